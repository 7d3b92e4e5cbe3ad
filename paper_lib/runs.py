"""Stored runs: one record a seed, written whole, found again by what determines its numbers.

A ``Job`` is a row on a stream. What determines its numbers is its identity: the method's settings and version, the
stream's options, and the digest of the data. A setting that a method has been given since, at its default, is no other
identity; a changed default is. ``execute`` runs the seeds that have no record yet, ``tabulate`` merges records into the
committed tables under ``results/``, one a data set, and ``find`` looks a job up in them.

The run store holds a folder an identity, ``DATASET/METHOD-KEY``, with ``seedN.json`` and beside it ``seedN.npz`` for
the arrays that outlive the run; the former is written last and commits both.
"""

from __future__ import annotations

import csv
import dataclasses
import errno
import hashlib
import inspect
import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from paper_lib import driver, networks
from paper_lib.data.stream import make_stream
from paper_lib.files import folder, whole_file, write_whole
from paper_lib.methods import Method

COMMIT_VARIABLE = "PAPER_LIB_COMMIT"
"""Names the commit on machines that have a copy of the package without its history."""

RECORD = {"names", "key", "seed", "identity", "scores", "provenance"}
"""What a record must hold to be tabulated."""

RESULTS = Path(__file__).resolve().parent.parent / "results"

LONGEST_NAME = 200
"""Characters of seeds in a file's name; systems allow 255 for all of it."""

NAMES = ["row", "dataset", "scenario", "split", "preset", "changes"]
COLUMNS = [*NAMES, "key", "seed", "task_trained", "task_tested", "metric", "value"]
"""Columns of every table; tasks count from 1 there, as in the paper."""

OF_A_SEED = "train_seed"
"""The option of a stream in which the seeds of one row may differ, as each draws its own data."""

STREAM_DEFAULTS = {n: p.default for n, p in inspect.signature(make_stream).parameters.items() if n != "dataset"}
"""What a stream's options are where nobody says otherwise."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A row on a stream.

    Attributes:
        row: its name, such as ``protocl``.
        method: configuration of the method.
        stream: arguments of ``make_stream``.
        preset: name under which it is tabulated.
        changes: settings that are not the preset's, as ``written`` writes them.
    """

    row: str
    method: Method
    stream: Mapping[str, Any]
    preset: str
    changes: str = ""

    @cached_property
    def digest(self) -> str:
        """Of the stream's data."""
        return make_stream(**self.stream).digest

    def identity(self, digest: str) -> dict[str, Any]:
        """All that determines the numbers of a seed, given the digest of the stream's data."""
        return self._settings | {"data": digest}

    @cached_property
    def _settings(self) -> dict[str, Any]:
        method = [type(self.method).__name__, type(self.method).VERSION, dataclasses.asdict(self.method)]
        return json.loads(json.dumps({"method": method, "stream": _told(self.stream)}))

    def matches(self, identity: Mapping[str, Any]) -> bool:
        """Whether a stored identity, its data aside, is this job's as its method is defined today."""
        its = _completed(identity, type(self.method))
        return its["method"] == self._settings["method"] and self._settings["stream"] == _told(its["stream"])

    @property
    def table(self) -> str:
        """Name of the table that holds the job's runs."""
        return _table(self.stream)

    @property
    def named(self) -> dict[str, Any]:
        """The columns ``NAMES``."""
        return _named(self.stream, self.row, self.preset, self.changes)


def _named(stream: Mapping[str, Any], row: str, preset: str, changes: str) -> dict[str, Any]:
    told = {**STREAM_DEFAULTS, **stream}
    return {
        **{"row": row, "dataset": told["dataset"], "scenario": told["scenario"]},
        **{"split": told["eval_split"], "preset": preset, "changes": changes},
    }


def _told(stream: Mapping[str, Any]) -> dict[str, Any]:
    """A stream's options as JSON has them, without those at their defaults; data set and scenario always."""
    # An option that is no longer there is told, so that the runs that had it are no runs of today.
    told = {n: v for n, v in stream.items() if n not in STREAM_DEFAULTS or v != STREAM_DEFAULTS[n]}
    return json.loads(json.dumps({"scenario": STREAM_DEFAULTS["scenario"]} | told))


def _table(stream: Mapping[str, Any]) -> str:
    """The table of a stream's runs, as of a line of such a table."""
    return stream["dataset"] + ("-validation" if stream.get("eval_split") == "validation" else "")


def written(changes: Mapping[str, Any], with_seed: bool = False) -> str:
    """Changed settings as one string, without ``OF_A_SEED`` unless it is asked for.

    >>> written({"train_sizes": (100, 50), "epochs": 3, "train_seed": 7})
    'epochs=3 train_sizes=100,50'
    """

    def word(value: Any) -> str:
        return ",".join(map(word, value)) if isinstance(value, tuple | list) else str(value)

    return " ".join(f"{n}={word(v)}" for n, v in sorted(changes.items()) if with_seed or n != OF_A_SEED)


# --- running


def execute(
    jobs: Iterable[Job], seeds: Sequence[int], device: str = "cpu", checkpoint_seconds: float = 60.0
) -> pd.DataFrame:
    """Run what has no record yet and return the tidy table of all seeds of all jobs.

    Seeds of a job advance together. A killed call goes on from its last checkpoint when it is made again. A seed that
    diverges is stored as such, and neither its stack nor a later job ends with it.
    """
    checkout = _checkout()  # now: the code that runs was loaded from it, and a commit may be made meanwhile
    records = []
    for job in jobs:
        stream = make_stream(**job.stream)
        identity, place = _place(job, stream.digest)
        reused = [s for s in seeds if (place / f"seed{s}.json").exists()]
        for seed in reused:
            read(place / f"seed{seed}.json")  # raises now if it is damaged, and not after hours
        stacks = _stacks(place, seeds)
        if stacks:
            place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            _clear(place, seeds)  # a kill may have come after a record and before this
        elif stacks:  # said now as well
            raise PermissionError(errno.EACCES, "cannot be written", str(place))
        for stack, checkpoint in stacks:
            label = f"{job.row} on {stream.spec.dataset}"
            if checkpoint.exists():
                print(f"{label}: seeds {spans(stack)} go on from their checkpoint", file=_stderr())
            _reset_peak_memory(device)
            outcome = driver.run(
                *(job.method, stream, stack, device),
                checkpoint=checkpoint,
                checkpoint_seconds=checkpoint_seconds,
                label=label,
            )
            provenance = checkout | _provenance(job.method, device, stack, outcome.elapsed)
            for at, seed in enumerate(stack):
                _store(job, identity, place, seed, at, outcome, provenance)
            lost = [s for at, s in enumerate(stack) if outcome.diverged[at] >= 0]
            if lost:
                print(f"{label}: seeds {spans(lost)} diverged; they are stored as such", file=_stderr())
            _clear(place, stack)
        mine = [_asked_for(place / f"seed{s}.json", job) for s in seeds]
        _warn_of_other_code(job, [r for r in mine if r["seed"] in reused])
        records += mine
    return tidy(records)


def key(job: Job) -> str:
    """The key of a job's records, by which they find what else was computed of them."""
    return key_of(_place(job, job.digest)[0])


def _place(job: Job, digest: str) -> tuple[dict[str, Any], Path]:
    """The identity of a job, and the folder of its records.

    It is the identity of a record or of the committed tables if one of theirs is the job's, so that a setting which the
    method has been given since, at its default, moves nothing.
    """
    identity = job.identity(digest)
    parent = folder() / job.stream["dataset"]
    if not _folder_of(parent, identity).is_dir():
        stored = [its for its, _ in identities(job.stream["dataset"], identity["method"][0])]
        stored += [source["identity"] for source in provenance(job.table).values()]
        identity = next((i for i in stored if i["data"] == digest and job.matches(i)), identity)
    return identity, _folder_of(parent, identity)


def _folder_of(parent: Path, identity: Mapping[str, Any]) -> Path:
    return parent / f"{identity['method'][0]}-{key_of(identity)}"


def key_of(identity: Mapping[str, Any]) -> str:
    """A short name of an identity."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _store(
    job: Job, identity: Mapping, place: Path, seed: int, at: int, outcome: driver.Outcome, provenance: Mapping
) -> None:
    """Write one seed's record, its arrays first."""
    kept = {f"{name}/{t}": v[at] for t, arrays in enumerate(outcome.kept) for name, v in arrays.items()}
    if kept:
        with whole_file(place / f"seed{seed}.npz", "wb") as file:
            np.savez(file, **kept)
    path, name = place / f"seed{seed}.json", [job.row, job.preset, job.changes]
    earlier = _whole(path) or {"names": []}  # a row of the same settings may have been run meanwhile
    names = [*(other for other in earlier["names"] if other != name), name]
    record = {
        **{"names": names, "key": key_of(identity), "seed": seed, "identity": identity},
        "scores": {name: _plain(values[at]) for name, values in outcome.scores.items()},
        "info": {name: [_plain(v[at]) for v in values] for name, values in outcome.info.items()},
        "diverged": int(outcome.diverged[at]) + 1 or None,
        "kept": sorted(kept),
        "seconds": _plain(outcome.seconds),
        "provenance": provenance,
    }
    write_whole(path, json.dumps(record))


def _asked_for(path: Path, job: Job) -> dict[str, Any]:
    """A record under a job's names; it keeps all names under which it has been asked for."""
    record, name = read(path), [job.row, job.preset, job.changes]
    if name not in record["names"]:
        record["names"].append(name)
        try:
            write_whole(path, json.dumps(record))
        except OSError as error:  # a store that others share and only read
            print(f"{job.row}: {error}; the record is used as it is", file=_stderr())
    return record | job.named


def _stacks(place: Path, seeds: Sequence[int]) -> list[tuple[tuple[int, ...], Path]]:
    """Seeds that advance together, each stack with its checkpoint: those of checkpoints first, then all others.

    A checkpoint is gone on with if it holds a missing seed and none that nobody asks for; of seeds that have a record
    by then, the record is written again.
    """
    missing = {s for s in seeds if not (place / f"seed{s}.json").exists()}
    stacks = []
    for path in sorted(place.glob("seeds*.npz"), key=lambda p: (-len(_seeds_of(p)), p.name)):
        own = set(_seeds_of(path))
        if own & missing and own <= set(seeds) and not any(own & set(stack) for stack, _ in stacks):
            stacks.append((_seeds_of(path), path))
            missing -= own
    rest = tuple(sorted(missing))
    if len(name := spans(rest)) > LONGEST_NAME:
        raise ValueError(f"seeds={name[:30]}...: so many single seeds name no file; give ranges, or fewer at a time")
    return stacks + ([(rest, place / f"seeds{name}.npz")] if rest else [])


def spans(seeds: Iterable[int]) -> str:
    """Seeds as a file's name tells them.

    >>> spans((0, 1, 2, 7))
    '0-2,7'
    """
    groups = [[s for _, s in group] for _, group in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in groups)


def _seeds_of(checkpoint: Path) -> tuple[int, ...]:
    """The seeds that a checkpoint's name tells; none if it is no checkpoint's.

    >>> _seeds_of(Path("seeds0-3,7.npz"))
    (0, 1, 2, 3, 7)
    """
    if not re.fullmatch(r"seeds[\d,-]+\.npz(\..*)?", checkpoint.name):
        return ()
    ends = [span.split("-") for span in checkpoint.name.removeprefix("seeds").split(".")[0].split(",")]
    return tuple(s for span in ends for s in range(int(span[0]), int(span[-1]) + 1))


def _clear(place: Path, stack: Sequence[int]) -> None:
    """Remove checkpoints whose seeds all have records, and what kills left half-written of them and of the records."""
    checkpoints = [(path, own) for path in place.glob("seeds*.npz*") if (own := _seeds_of(path))]
    done = [path for path, own in checkpoints if all((place / f"seed{s}.json").exists() for s in own)]
    parts = [part for seed in stack for part in place.glob(f"seed{seed}.*.part")]
    for path in (*done, *parts):
        if not _in_flight(path):
            path.unlink(missing_ok=True)


def _in_flight(path: Path) -> bool:
    """Whether another process of this machine is writing a part (Linux tells): two may be given the same seeds."""
    number = path.name.split(".")[-2]
    return path.suffix == ".part" and number != str(os.getpid()) and Path("/proc", number).exists()


def _warn_of_other_code(job: Job, reused: Sequence[Mapping[str, Any]]) -> None:
    """Say it where a method's file has changed since a record of the same version was made."""
    now = _code_digest(type(job.method))
    other = [r["seed"] for r in reused if r["provenance"].get("code", now) != now]
    if other:
        print(
            f"{job.row}: {inspect.getsourcefile(type(job.method))} has changed since the records of seeds "
            f"{spans(other)} were made; if its numbers move, raise {type(job.method).__name__}.VERSION",
            file=_stderr(),
        )


@cache
def _code_digest(method_type: type) -> str:
    return hashlib.sha256(Path(inspect.getsourcefile(method_type)).read_bytes()).hexdigest()[:12]


def _stderr():
    """Where messages go; nowhere if the process was started without it."""
    return sys.stderr or open(os.devnull, "w")


# --- records and tables


def read(path: Path) -> dict[str, Any]:
    """One record.

    Raises:
        ValueError: if the file is damaged; the message says how to go on.
    """
    try:
        record = json.loads(path.read_text())
        if absent := RECORD - record.keys():
            raise ValueError(f"it lacks {', '.join(sorted(absent))}")
        return record
    except (OSError, ValueError, AttributeError) as error:  # no object in JSON, or no text at all
        stamps = folder() / "sweeps"
        raise ValueError(
            f"{path} is not a run record ({error}); remove it and run again, a sweep's stamp of it in {stamps} too"
        ) from error


def _whole(path: Path) -> dict[str, Any] | None:
    """A record that is looked at in passing; None if it is damaged or not there."""
    with suppress(ValueError):
        return read(path)


def identities(dataset: str, method: str = "*") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Identity and provenance of a record of every folder of a data set, and of a method, in the run store."""
    places = sorted((folder() / dataset).glob(f"{method}-*"))
    firsts = (next(iter(sorted(place.glob("seed*.json"))), None) for place in places)
    records = [record for path in firsts if path is not None and (record := _whole(path))]
    return [(record["identity"], record["provenance"]) for record in records]


def kept(job: Job, seed: int) -> dict[str, np.ndarray]:
    """The arrays that outlived a seed's run, ``name/task`` to array; none where there is no record of it here."""
    _, place = _place(job, job.digest)
    path = place / f"seed{seed}.npz"
    if not path.exists() or not (place / f"seed{seed}.json").exists():
        return {}
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def tidy(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Records as a long table, a row a number, with the columns ``COLUMNS``.

    Scores of every pair of tasks, NaN where a seed diverged; and what ``learn`` reported of a task as one number, which
    stands at that task for both.
    """
    lines = []

    def add(head: list[Any], trained: int, tested: int, metric: str, value: Any) -> None:
        lines.append([*head, trained, tested, metric, math.nan if value is None else float(value)])

    for record in records:
        head = [record[name] for name in COLUMNS[:8]]
        for metric, matrix in record["scores"].items():
            for trained, line in enumerate(matrix, 1):
                for tested, value in enumerate(line[:trained], 1):
                    add(head, trained, tested, metric, value)
        for name, values in record.get("info", {}).items():
            for trained, value in enumerate(values, 1):
                if not isinstance(value, list):
                    add(head, trained, trained, f"info: {name}", value)
    return pd.DataFrame(lines, columns=COLUMNS)


def table_names() -> list[str]:
    """Names of the committed tables."""
    return sorted(path.stem for path in RESULTS.glob("*.csv"))


def stored(table: str) -> pd.DataFrame:
    """A committed table; one without rows if it is not there."""
    path = RESULTS / f"{table}.csv"
    return _loaded(path, path.stat().st_mtime_ns)[0] if path.exists() else pd.DataFrame(columns=COLUMNS)


@lru_cache(maxsize=32)
def _loaded(path: Path, changed: int) -> tuple[pd.DataFrame, dict[tuple[str, str], dict[str, np.ndarray]]]:
    """A table, and for each row and scenario the keys of its runs with their lines in the table."""
    frame = pd.read_csv(
        path, keep_default_na=False, na_values={"value": ["", "nan"]}, dtype={"key": str, "changes": str}
    )
    if list(frame.columns) != COLUMNS or (frame["key"] == "").any():
        raise ValueError(f"{path} is damaged, not as `paper-lib tabulate` writes it; git can restore it")
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for (row, scenario, key), lines in frame.groupby(["row", "scenario", "key"]).indices.items():
        found.setdefault((row, scenario), {})[key] = lines
    return frame, found


def provenance(table: str) -> dict[str, Any]:
    """For each key of a committed table, what determined its numbers (``identity``) and how they came (``runs``)."""
    path = RESULTS / f"{table}.json"
    return _loaded_json(path, path.stat().st_mtime_ns) if path.exists() else {}


def provenance_of(lines: pd.DataFrame) -> dict[str, Any]:
    """``provenance`` of the keys of stored lines, in the order of the lines; keys that have none are left out."""
    streams = lines[["dataset", "split"]].drop_duplicates().rename(columns={"split": "eval_split"})
    known = {key: entry for s in streams.to_dict("records") for key, entry in provenance(_table(s)).items()}
    return {key: known[key] for key in lines["key"].unique() if key in known}


@lru_cache(maxsize=32)
def _loaded_json(path: Path, changed: int) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); git can restore it") from error


def _sources(table: str, keys: Iterable[str]) -> dict[str, Any]:
    """``provenance``, which these keys of the table must have."""
    sources = provenance(table)
    if absent := sorted(set(keys) - sources.keys()):
        raise ValueError(f"{RESULTS / table}.json lacks {', '.join(absent[:3])} of the table beside it")
    return sources


def find(job: Job) -> pd.DataFrame:
    """What a committed table holds of a job: of its row, with its identity as the method is defined today.

    Raises:
        ValueError: they are of unlike data.
    """
    path = RESULTS / f"{job.table}.csv"
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    table, index = _loaded(path, path.stat().st_mtime_ns)
    mine = index.get((job.row, job.named["scenario"]), {})
    sources = _sources(job.table, mine)
    keys = [key for key in mine if job.matches(sources[key]["identity"])]
    if len({sources[key]["identity"]["data"] for key in keys}) > 1:
        raise ValueError(f"stored runs of {job.row!r} are on unlike data: keys {', '.join(keys)}")
    found = table.iloc[np.concatenate([mine[key] for key in keys]) if keys else []].assign(**job.named)
    return found.drop_duplicates(COLUMNS[6:11], ignore_index=True)


def tabulate(table: str | None = None) -> list[Path]:
    """Merge the records of one data set, or of all, into its table under ``results/`` and the provenance beside it.

    A row of a table (all of ``NAMES``) has one identity, that of its latest run, in the table or in a record: seeds of
    other settings, versions or data leave it or do not enter, so that no mean is taken over unlike runs. Quick runs
    stay out: they are for a look.
    """
    dataset = (table or "*").removesuffix("-validation")
    records = [read(p) for p in sorted(folder().glob(f"{dataset}/*/seed*.json"))]
    renamed = [r | _named(r["identity"]["stream"], *name) for r in records for name in r["names"] if name[1] != "quick"]
    chosen = [r for r in renamed if table in (None, _table(r["identity"]["stream"]))]
    if not chosen:
        there = sorted({p.parent.parent.name for p in folder().glob("*/*/seed*.json")}) or ["none"]
        raise FileNotFoundError(
            f"no record to tabulate{f' of {table!r}' if table else ''} in {folder()}, quick runs left out; data sets "
            f"with records: {', '.join(there)}"
        )
    chosen.sort(key=lambda r: _table(r["identity"]["stream"]))
    return [_merge(name, list(part)) for name, part in groupby(chosen, lambda r: _table(r["identity"]["stream"]))]


def _merge(name: str, records: list[dict[str, Any]]) -> Path:
    path, beside = RESULTS / f"{name}.csv", RESULTS / f"{name}.json"
    sources = dict(_sources(name, stored(name)["key"]))
    records.sort(key=lambda r: r["provenance"]["finished"])
    old = stored(name)
    dated = []
    for line in old[[*NAMES, "key"]].drop_duplicates().to_dict("records"):
        source = sources[line["key"]]
        dated.append((max(run["finished"] for run in source["runs"]), _group(line), source["identity"]))
    dated += [(r["provenance"]["finished"], _group(r), r["identity"]) for r in records]
    current = {group: identity for _, group, identity in sorted(dated, key=lambda d: d[0])}
    latest = {(*_group(r), r["seed"]): r for r in records if _alike(current[_group(r)], r["identity"])}
    new = tidy(latest.values())
    kept = [
        (*_group(line), line["seed"]) not in latest and _alike(current[_group(line)], sources[line["key"]]["identity"])
        for line in old[[*NAMES, "seed", "key"]].to_dict("records")
    ]
    before, old = old, old[np.array(kept, dtype=bool)]
    table = pd.concat([old, new]) if len(old) else new
    _tell_what_leaves(before, table)
    table = table.sort_values([*NAMES, "metric", "seed", "task_trained", "task_tested"], ignore_index=True)
    for record in latest.values():
        entry = sources.setdefault(record["key"], {"identity": record["identity"], "runs": []})
        if record["provenance"] not in entry["runs"]:
            sources[record["key"]] = entry | {"runs": [*entry["runs"], record["provenance"]]}
    # Whatever a kill leaves, every key of the table has its provenance: that of old and new keys comes first.
    write_whole(beside, json.dumps(sources, indent=1, sort_keys=True) + "\n")
    write_whole(path, table.to_csv(index=False, float_format="%.6g", quoting=csv.QUOTE_MINIMAL))
    sources = {key: sources[key] for key in set(table.key)}
    write_whole(beside, json.dumps(sources, indent=1, sort_keys=True) + "\n")
    return path


def _tell_what_leaves(before: pd.DataFrame, after: pd.DataFrame) -> None:
    """Say which committed seeds a table loses because a later run of their row has other settings or data."""
    runs_of = [set(map(tuple, table[[*NAMES, "seed"]].drop_duplicates().to_numpy())) for table in (before, after)]
    left: dict[tuple[str, ...], list[int]] = {}
    for *group, seed in sorted(runs_of[0] - runs_of[1]):
        left.setdefault(tuple(group), []).append(seed)
    for (row, dataset, *_, changes), seeds in left.items():
        what = f"{row} on {dataset}" + f" with {changes}" * bool(changes)
        print(
            f"{what}: committed seeds {spans(seeds)} leave the table: a later run has other settings, another version "
            "or other data",
            file=_stderr(),
        )


def _group(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(record[name] for name in NAMES)


@cache
def _defaults(method_type: type) -> dict[str, Any]:
    """A method's settings that have defaults, as JSON has them."""
    given = {f.name: f.default for f in dataclasses.fields(method_type)}
    return json.loads(json.dumps({n: d for n, d in given.items() if d is not dataclasses.MISSING}))


def _completed(identity: Mapping[str, Any], method_type: type | None = None) -> dict[str, Any]:
    """An identity with the settings that its method, one of ``rows`` if not given, has had since, at their defaults."""
    from paper_lib import rows

    name, version, settings = identity["method"]
    kind = method_type or getattr(rows, name, None)
    return {**identity, "method": [name, version, (_defaults(kind) if kind else {}) | settings]}


def _alike(identity: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two identities may stand in one row: equal, but for the data that a seed draws for itself."""
    identity, other = _completed(identity), _completed(other)
    if OF_A_SEED not in {*identity["stream"], *other["stream"]}:
        return identity == other
    streams = ({n: v for n, v in i["stream"].items() if n != OF_A_SEED} for i in (identity, other))
    return identity["method"] == other["method"] and next(streams) == next(streams)


# --- files and provenance


def _plain(values: np.ndarray) -> Any:
    """Nested lists; JSON has neither NaN, which becomes None, nor infinity, which becomes a word."""
    if np.ndim(values):
        return [_plain(v) for v in values]
    return float(values) if np.isfinite(values) else None if np.isnan(values) else str(float(values))


def _provenance(method: Method, device: str, seeds: Sequence[int], seconds: float) -> dict[str, Any]:
    """Where, when and with what a stack of seeds ran: recorded, not compared."""
    on_gpu = torch.device(device).type == "cuda"
    return {
        "seeds": list(seeds),
        "device": torch.cuda.get_device_name(device) if on_gpu else f"cpu, {torch.get_num_threads()} threads",
        "cpu": ", ".join((torch.backends.cpu.get_cpu_capability(), *networks.bfloat16_instructions())),
        "precision": str(_precision(method, device)).removeprefix("torch."),
        "seconds": round(seconds, 1),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else _peak_memory(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "code": _code_digest(type(method)),
    }


def _precision(method: Method, device: str) -> torch.dtype:
    """What most of a method's products are computed in."""
    chosen = getattr(method, "precision", "float32") if getattr(method, "network", "mlp") == "cifarnet" else "float32"
    return networks.precision(chosen, device)


def _reset_peak_memory(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak counts from here


def _peak_memory() -> int | None:
    """Most memory that the process has held since ``_reset_peak_memory``, bytes; None where no system tells it."""
    try:
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return 1024 * int(peak[1])
    except (OSError, TypeError):
        return None


@cache
def _checkout() -> dict[str, Any]:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    if os.environ.get(COMMIT_VARIABLE):
        return {"commit": os.environ[COMMIT_VARIABLE], "dirty": None}  # nobody has looked
    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "paper_lib"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
