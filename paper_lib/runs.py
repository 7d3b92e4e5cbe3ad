"""Stored runs: one record a seed, written whole, found again by what determines its numbers.

A ``Job`` is a row of a figure or table: a method on a stream. Its key is a digest of the method's configuration, the
stream's configuration, the versions of method and experiment, and the data. ``execute`` runs the seeds that have no
record yet and ``tabulate`` merges records into the committed tables under ``results/``.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from paper_lib import driver
from paper_lib.data.stream import make_stream
from paper_lib.methods import Method

FOLDER_VARIABLE = "PAPER_LIB_RUNS"
COMMIT_VARIABLE = "PAPER_LIB_COMMIT"
"""Names the commit on machines that have a copy of the package without its history."""

RECORD = {"experiment", "method", "dataset", "scenario", "presets", "key", "seed", "identity", "scores", "provenance"}
"""What a record must hold to be tabulated."""

RESULTS = Path(__file__).resolve().parent.parent / "results"
COLUMNS = [
    *("experiment", "method", "dataset", "scenario", "preset", "key", "seed"),
    *("task_trained", "task_tested", "metric", "value"),
]
"""Columns of every table; tasks count from 1 there, as in the paper."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A row of an experiment.

    Attributes:
        experiment: name of the experiment's module.
        version: the experiment's VERSION.
        label: name of the row, such as ``protocl``.
        method: configuration of the method.
        stream: arguments of ``make_stream``.
        preset: name under which the row is tabulated.
    """

    experiment: str
    version: int
    label: str
    method: Method
    stream: Mapping[str, Any]
    preset: str

    def identity(self, digest: str) -> dict[str, Any]:
        """All that determines the numbers of a seed, given the digest of the stream's data."""
        return {
            "experiment": [self.experiment, self.version],
            "method": [type(self.method).__name__, type(self.method).VERSION, dataclasses.asdict(self.method)],
            "stream": dict(self.stream),
            "data": digest,
        }


def folder() -> Path:
    """Where records live: ``PAPER_LIB_RUNS``, else the platform's folder for a user's data."""
    if os.environ.get(FOLDER_VARIABLE):
        return Path(os.environ[FOLDER_VARIABLE])
    from platformdirs import user_data_path

    return user_data_path("paper_lib") / "runs"


def execute(
    jobs: Iterable[Job], seeds: Sequence[int], device: str = "cpu", checkpoint_seconds: float = 60.0
) -> pd.DataFrame:
    """Run what has no record yet and return the tidy table of all seeds of all jobs.

    Seeds of a job advance together. A killed call goes on from its last checkpoint when it is made again.
    """
    checkout = _checkout()  # now: the code that runs was loaded from it, and a commit may be made meanwhile
    records = []
    for job in jobs:
        stream = make_stream(**job.stream)
        identity = job.identity(stream.digest)
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        place = folder() / job.experiment / f"{job.label}-{key}"
        stack, checkpoint = _stack(place, seeds)
        if stack:
            started = time.perf_counter()
            outcome = driver.run(
                job.method,
                stream,
                stack,
                device,
                checkpoint=checkpoint,
                checkpoint_seconds=checkpoint_seconds,
                label=f"{job.label} on {stream.spec.dataset}",
            )
            provenance = checkout | _provenance(device, stack, time.perf_counter() - started)
            for row, seed in enumerate(stack):
                record = {
                    **{"experiment": job.experiment, "method": job.label, "dataset": stream.spec.dataset},
                    **{"scenario": stream.spec.scenario, "presets": [job.preset], "key": key, "seed": seed},
                    "identity": identity,
                    "scores": {name: _plain(values[row]) for name, values in outcome.scores.items()},
                    "info": {name: [_plain(v[row]) for v in values] for name, values in outcome.info.items()},
                    "seconds": _plain(outcome.seconds),
                    "provenance": provenance,
                }
                write_whole(place / f"seed{seed}.json", json.dumps(record))
            _clear(place, stack)
        records += [_asked_for(place / f"seed{s}.json", job.preset) for s in seeds]
    return tidy(records)


def _asked_for(path: Path, preset: str) -> dict[str, Any]:
    """A record under a preset; it keeps the names of all presets that have asked for it."""
    record = read(path)
    if preset not in record["presets"]:
        record["presets"].append(preset)
        write_whole(path, json.dumps(record))
    return record | {"preset": preset}


def _stack(place: Path, seeds: Sequence[int]) -> tuple[tuple[int, ...], Path]:
    """The seeds that advance together, none where all have records, and their checkpoint.

    A checkpoint that holds all missing seeds, and no seed that nobody asks for, is gone on with: a kill between two
    records must not lose the seeds whose record comes last.
    """
    missing = {s for s in seeds if not (place / f"seed{s}.json").exists()}
    for path in sorted(place.glob("seeds*.npz")):
        if missing and missing <= set(_seeds_of(path)) <= set(seeds):
            return _seeds_of(path), path
    stack = tuple(sorted(missing))
    spans = [[s for _, s in group] for _, group in groupby(enumerate(stack), lambda pair: pair[1] - pair[0])]
    name = ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
    return stack, place / f"seeds{name}.npz"


def _seeds_of(checkpoint: Path) -> tuple[int, ...]:
    """The seeds that a checkpoint's name tells.

    >>> _seeds_of(Path("seeds0-3,7.npz"))
    (0, 1, 2, 3, 7)
    """
    ends = [span.split("-") for span in checkpoint.name.removeprefix("seeds").split(".")[0].split(",")]
    return tuple(s for span in ends for s in range(int(span[0]), int(span[-1]) + 1))


def _clear(place: Path, stack: Sequence[int]) -> None:
    """Remove checkpoints whose seeds all have records, and what kills left half-written of them and of the records."""
    for path in place.glob("seeds*.npz*"):
        if all((place / f"seed{s}.json").exists() for s in _seeds_of(path)):
            path.unlink(missing_ok=True)
    for seed in stack:
        for part in place.glob(f"seed{seed}.json.*.part"):
            part.unlink(missing_ok=True)


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
        raise ValueError(f"{path} is not a run record ({error}); remove it and run again") from error


def tidy(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Scores of records as a long table, a row a number, with the columns ``COLUMNS``."""
    rows = []
    for record in records:
        head = [record[name] for name in COLUMNS[:7]]
        for metric, matrix in record["scores"].items():
            for trained, line in enumerate(matrix, 1):
                rows += [[*head, trained, tested, metric, v] for tested, v in enumerate(line[:trained], 1)]
    return pd.DataFrame(rows, columns=COLUMNS)


def stored(experiment: str) -> pd.DataFrame:
    """The committed table of an experiment."""
    path = RESULTS / f"{experiment}.csv"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in RESULTS.glob("*.csv"))) or "none"
        raise FileNotFoundError(f"{path} is not there; stored tables: {there}")
    return pd.read_csv(path, dtype={"key": str}, keep_default_na=False, na_values=["nan", ""])


def provenance(experiment: str) -> dict[str, Any]:
    """For each key of the committed table, what determined its numbers (``identity``) and how they came (``runs``)."""
    return json.loads((RESULTS / f"{experiment}.json").read_text())


def tabulate(experiment: str) -> Path:
    """Merge the records of an experiment into ``results/EXPERIMENT.csv`` and the provenance beside it.

    A row of a table has one setting, that of its latest record: seeds of other settings or versions leave it, so that
    no mean is taken over unlike runs. Rows with a preset's values replaced, of which a sweep makes many, are told apart
    by their keys. Quick runs stay out: they are for a look.
    """
    records = [read(p) for p in sorted((folder() / experiment).glob("*/seed*.json"))]
    records = [r | {"preset": preset} for r in records for preset in r["presets"] if not preset.startswith("quick")]
    if not records:
        others = sorted({p.parent.parent.name for p in folder().glob("*/*/seed*.json")}) or ["none"]
        raise FileNotFoundError(
            f"no record of experiment {experiment!r} to tabulate in {folder() / experiment}, quick runs left out; "
            f"experiments with records: {', '.join(others)}"
        )
    path, beside = RESULTS / f"{experiment}.csv", RESULTS / f"{experiment}.json"
    sources = provenance(experiment) if beside.exists() else {}
    records.sort(key=lambda r: r["provenance"]["finished"])
    names = ["method", "dataset", "scenario", "preset"]
    current = {_row(r): _setting(r["identity"]) for r in records}
    latest = {(*_row(r), r["seed"]): r for r in records if current[_row(r)] == _setting(r["identity"])}
    new = tidy(latest.values())
    old = stored(experiment) if path.exists() else new.iloc[:0]
    known = {key: _setting(source["identity"]) for key, source in sources.items()}
    replaced = [
        (*_row(line), line["seed"]) in latest or current.get(_row(line), known[line["key"]]) != known[line["key"]]
        for line in old[[*names, "seed", "key"]].to_dict("records")
    ]
    kept = old[~np.array(replaced, dtype=bool)]
    table = pd.concat([kept, new]) if len(kept) else new
    table = table.sort_values([*names, "metric", "seed", "task_trained", "task_tested"])
    for record in latest.values():
        entry = sources.setdefault(record["key"], {"identity": record["identity"], "runs": []})
        if record["provenance"] not in entry["runs"]:
            entry["runs"].append(record["provenance"])
    sources = {key: sources[key] for key in sorted(set(table.key))}
    write_whole(path, table.to_csv(index=False, float_format="%.6g", quoting=csv.QUOTE_MINIMAL))
    write_whole(beside, json.dumps(sources, indent=1, sort_keys=True) + "\n")
    return path


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes a row of a table: names, and the key too where a preset's values were replaced."""
    names = [record[name] for name in ("method", "dataset", "scenario", "preset")]
    return (*names, record["key"] if record["preset"].endswith("+overrides") else "")


def _setting(identity: Mapping[str, Any]) -> str:
    """What the seeds of a row share: all of the identity but the data that a seed draws for itself."""
    stream = {name: value for name, value in identity["stream"].items() if not name.endswith("_seed")}
    return json.dumps({**identity, "stream": stream, "data": None}, sort_keys=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file in one piece: a kill leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _plain(values: np.ndarray) -> Any:
    """Nested lists with None for what is not a number, since JSON has no NaN."""
    if np.ndim(values):
        return [_plain(v) for v in values]
    return float(values) if np.isfinite(values) else None


def _provenance(device: str, seeds: Sequence[int], seconds: float) -> dict[str, Any]:
    """Where, when and with what a stack of seeds ran: recorded, not compared."""
    on_gpu = torch.device(device).type == "cuda"
    peak = (
        torch.cuda.max_memory_allocated(device) if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    )
    return {
        "seeds": list(seeds),
        "device": torch.cuda.get_device_name(device) if on_gpu else f"cpu, {torch.get_num_threads()} threads",
        "seconds": round(seconds, 1),
        "peak_memory_bytes": int(peak),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@cache
def _checkout() -> dict[str, Any]:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    if os.environ.get(COMMIT_VARIABLE):
        return {"commit": os.environ[COMMIT_VARIABLE], "dirty": False}
    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "paper_lib"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
