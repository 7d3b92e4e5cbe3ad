"""Sweeps: a plan is a file of selections; its pieces are what one process runs at a time, each with a stamp once done.

A plan under ``plans/`` states ``SELECTIONS``, and ``CHAPTERS`` for selections that a chapter spreads over its design.
Snakemake runs the pieces (``Snakefile``), every one as ``paper-lib run ...``. A stamp lies beside the run records and
its name holds a key of all settings, the methods' versions and the stream's options: whatever was changed has no stamp,
and what was changed back has its old one. So a second sweep has nothing to do, and a killed one goes on.
"""

from __future__ import annotations

import importlib
import pkgutil
import runpy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from paper_lib import experiments, runs, sweep, tables
from paper_lib.checks import one_of
from paper_lib.data.stream import serves
from paper_lib.progress import duration
from paper_lib.rows import ROWS
from paper_lib.sweep import Selection

PLANS = runs.RESULTS.parent / "plans"

SHOWN_IN = {"tables": "class_incremental"}
"""The scenario that an exhibit shows its rows in, if not each row's own."""


@dataclass(frozen=True)
class Piece:
    """What one process of a sweep runs.

    Attributes:
        selection: rows and seeds.
        chapter: one that spreads the selection over its own design, such as ``task_imbalance``; or empty.
    """

    selection: Selection
    chapter: str = ""

    @cached_property
    def jobs(self) -> list[tuple[runs.Job, tuple[int, ...]]]:
        """Each job with its seeds."""
        parts: Iterable[Selection] = [self.selection]
        if self.chapter:
            parts = importlib.import_module(f"{experiments.__name__}.{self.chapter}").selections(self.selection)
        return [(job, part.seeds) for part in parts for job in sweep.jobs(part)]

    @property
    def command(self) -> str:
        """The command line that runs it."""
        return tables.command(self.selection).replace(" run ", f" run {self.chapter} " if self.chapter else " run ", 1)

    @property
    def key(self) -> str:
        """A short name of all that determines its numbers but the data, which are not read to plan."""
        return runs.key_of({"jobs": [[job.named, job.identity(""), seeds] for job, seeds in self.jobs]})

    @property
    def name(self) -> str:
        """What it is, for a reader, and its key: the name of its stamp and of its log."""
        one = self.selection
        rows = self.chapter or (one.rows[0] if len(one.rows) == 1 else f"{one.rows[0]}-to-{one.rows[-1]}")
        return ".".join([one.dataset, rows, one.preset, one.split, f"seeds{runs.spans(one.seeds)}", self.key])

    def has(self, values: Mapping[str, str]) -> bool:
        """Whether one of its jobs has a column's value, or one of several with commas, for each of some columns."""
        wanted = {name: alternatives(name, value) for name, value in values.items()}
        return any(all(job.named[name] in those for name, those in wanted.items()) for job, _ in self.jobs)

    def missing(self) -> Piece | None:
        """The rows and seeds that the committed tables lack; None if they lack none.

        Of a chapter's design these are the seeds of which anything is lacking.
        """
        lacking = [(job.row, sorted(set(seeds) - set(runs.find(job).seed))) for job, seeds in self.jobs]
        rows = {row for row, seeds in lacking if seeds}
        left = {seed for _, seeds in lacking for seed in seeds}
        if not left:
            return None
        kept = self.selection.rows if self.chapter else tuple(row for row in self.selection.rows if row in rows)
        seeds = tuple(seed for seed in self.selection.seeds if seed in left)
        return Piece(replace(self.selection, rows=kept, seeds=seeds), self.chapter)

    def seconds(self) -> float | None:
        """How long it takes by earlier runs of the same settings; None if one of its jobs has none."""
        computed = {runs.key_of(job.identity("")): (job, seeds) for job, seeds in self.jobs}  # rows can share settings
        each = [(_seconds_a_seed(job), len(seeds)) for job, seeds in computed.values()]
        return None if any(one is None for one, _ in each) else sum(one * n for one, n in each)


def alternatives(column: str, value: str) -> list[str]:
    """The values of a column that are meant; changed settings have commas of their own.

    >>> alternatives("row", "sgd,joint"), alternatives("changes", "epochs=25,6")
    (['sgd', 'joint'], ['epochs=25,6'])
    """
    return [value] if column == "changes" else value.split(",")


@dataclass(frozen=True)
class Plan:
    """What a sweep runs.

    Attributes:
        selections: what ``paper-lib run`` takes.
        chapters: a chapter's name to the selection that it spreads over its design.
        seeds_a_piece: data set, or row, to how many seeds one process runs at most; all where nothing is said.
    """

    selections: tuple[Selection, ...]
    chapters: Mapping[str, Selection] = field(default_factory=dict)
    seeds_a_piece: Mapping[str, int] = field(default_factory=dict)

    def wholes(self) -> list[Piece]:
        """Every selection as one piece."""
        return [*map(Piece, self.selections), *(Piece(one, chapter) for chapter, one in self.chapters.items())]

    def pieces(self, missing: bool = False) -> list[Piece]:
        """Every selection in pieces of a few seeds, each once; those that the committed tables lack, or all."""
        wholes = self.wholes()
        if missing:
            wholes = [left for one in wholes if (left := one.missing())]
        # Chapters share rows, some with fewer seeds: their pieces can be the same. Rows can share settings: one process
        # runs them, as two would compute the same seeds at a time.
        found: dict[str, Piece] = {}
        for part in (part for one in wholes for part in self._split(one)):
            numbers = runs.key_of({"jobs": [[job.identity(""), seeds] for job, seeds in part.jobs]})
            there = found.setdefault(numbers, part)
            rows = tuple(dict.fromkeys((*there.selection.rows, *part.selection.rows)))
            if rows != there.selection.rows:
                found[numbers] = Piece(replace(there.selection, rows=rows), there.chapter)
        return list(found.values())

    def _split(self, piece: Piece) -> Iterator[Piece]:
        seeds = piece.selection.seeds
        names = (piece.selection.dataset, *piece.selection.rows)
        step = min(self.seeds_a_piece.get(name, len(seeds)) for name in names)
        for start in range(0, len(seeds), step):
            yield Piece(replace(piece.selection, seeds=seeds[start : start + step]), piece.chapter)


def file(name: str) -> Path:
    """The file of a plan: of ``plans/`` by its name, or one's own by its path.

    Raises:
        ValueError: there is none.
    """
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ValueError(f"there is no plan {name}")
        return Path(name).resolve()
    return PLANS / f"{one_of('plan', name, sorted(p.stem for p in PLANS.glob('*.py')))}.py"


def load(name: str) -> Plan:
    """A plan by its name or path; see ``file``.

    Raises:
        ValueError: there is none, or it states no selections.
    """
    found = runpy.run_path(str(file(name)))
    if "SELECTIONS" not in found:
        raise ValueError(f"{file(name)} states no SELECTIONS")
    chosen, chapters = tuple(found["SELECTIONS"]), found.get("CHAPTERS", {})
    if elsewhere := [one.device for one in (*chosen, *chapters.values()) if one.device != "cpu"]:
        raise ValueError(f"device={elsewhere[0]!r} is none of a plan's settings: the sweep's profile gives devices")
    return Plan(chosen, chapters, found.get("SEEDS_A_PIECE", {}))


def folder() -> Path:
    """Where stamps and logs lie: beside the records that they speak of."""
    return runs.folder() / "sweeps"


def stamp(piece: Piece) -> Path:
    """The file that says that a piece is done."""
    return folder() / f"{piece.name}.done"


def listed(pieces: Iterable[Piece]) -> dict[str, dict[str, str]]:
    """What Snakemake is told of pieces: each one's command and how long it takes, by its name."""
    return {one.name: {"command": one.command, "takes": in_words(one.seconds())} for one in pieces}


# --- what plans are made of


def shown(preset: str, seeds: Iterable[int], datasets: Mapping[str, Iterable[str]]) -> list[Selection]:
    """A selection for every row, exhibit and data set, in the exhibit's scenario or in the row's own.

    Rows without settings on a data set, and scenarios that it has not, are left out.

    Args:
        preset: ``quick`` or ``paper``.
        seeds: of every row.
        datasets: exhibit to its data sets.
    """
    return apart(
        Selection(dataset, scenario, preset, seeds=tuple(seeds), rows=(name,))
        for name, row in ROWS.items()
        for exhibit in row.exhibits
        for dataset in datasets.get(exhibit, ())
        for scenario in [SHOWN_IN.get(exhibit)]
        if dataset in row.settings and any(serves(dataset, s) for s in row.scenarios if scenario in (None, s))
    )


def live() -> dict[str, Selection]:
    """What each chapter with stored runs runs when it is read, by the chapter's name."""
    names = (module.name for module in pkgutil.iter_modules(experiments.__path__))
    found = {name: getattr(importlib.import_module(f"{experiments.__name__}.{name}"), "LIVE", None) for name in names}
    return {name: selection for name, selection in found.items() if selection is not None}


def apart(selections: Iterable[Selection]) -> list[Selection]:
    """One selection a row with all its seeds, in the scenario that it runs in."""
    found: dict[Any, Selection] = {}
    for one in selections:
        for job in sweep.jobs(one):
            taken = {name: value for name, value in one.changes.items() if name in ROWS[job.row].takes}
            alone = replace(one, rows=(job.row,), scenario=job.named["scenario"], changes=taken)
            there = found.setdefault((job.row, *_setting(alone)), alone)
            found[job.row, *_setting(alone)] = replace(there, seeds=tuple(sorted({*there.seeds, *alone.seeds})))
    return list(found.values())


def together(selections: Iterable[Selection], rows_a_piece: int) -> list[Selection]:
    """Selections that differ in their rows alone as one, of at most so many rows: short runs can share a process.

    Rows of the same settings count as one.
    """
    found: dict[Any, dict[Any, list[Selection]]] = {}
    for one in selections:
        settings = tuple(runs.key_of(job.identity("")) for job in sweep.jobs(one))
        found.setdefault((one.seeds, *_setting(one)), {}).setdefault(settings, []).append(one)
    alike = [list(part.values()) for part in found.values()]
    groups = (part[at : at + rows_a_piece] for part in alike for at in range(0, len(part), rows_a_piece))
    return [
        replace(group[0][0], rows=tuple(row for part in group for one in part for row in one.rows)) for group in groups
    ]


def _setting(one: Selection) -> tuple[str | None, ...]:
    return one.dataset, one.scenario, one.preset, one.split, one.device, runs.written(one.changes, with_seed=True)


# --- how long it takes


def _seconds_a_seed(job: runs.Job) -> float | None:
    """Mean over the earlier runs of a job's settings, out of the committed tables or else out of the run store."""
    made = [
        run
        for source in runs.provenance(job.table).values()
        if job.matches(source["identity"])
        for run in source["runs"]
    ]
    made = made or [run for identity, run in _identities(job.stream["dataset"]) if job.matches(identity)]
    return sum(run["seconds"] for run in made) / sum(len(run["seeds"]) for run in made) if made else None


_identities = cache(runs.identities)


def in_words(seconds: float | None) -> str:
    """A time as a plan tells it.

    >>> in_words(9000), in_words(None)
    ('about 2 h 30 min', 'unknown')
    """
    return "unknown" if seconds is None else f"about {duration(seconds)}"
