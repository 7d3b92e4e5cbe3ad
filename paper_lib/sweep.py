"""From names to numbers: a ``Selection`` of rows becomes jobs, runs them, and finds what is stored of them.

Notebooks, the command line, plans, tuning and chapters all fill in a ``Selection``; nothing else makes jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from paper_lib import runs
from paper_lib.checks import check_seeds, one_of, some_of
from paper_lib.data.stream import DATASETS, EVAL_SPLITS, LABELS, NUM_TASKS, SCENARIOS, serves
from paper_lib.rows import ROWS, row, takers

PRESETS = ("quick", "paper")
VALIDATION_FRACTION = 0.1
"""Share of the training data that tuning is scored on, left out of training there."""


@dataclass(frozen=True)
class Selection:
    """Which rows to run or to look up.

    Attributes:
        dataset: stream of tasks.
        scenario: which units compete, and whether the task is named; None for each row's own.
        preset: ``quick`` for a look (seconds on digits), ``paper`` for the size of the paper or of the reference.
        split: what is scored, ``test``, or ``validation``: a tenth of the training data, then left out of training.
        seeds: seeds that advance together.
        device: ``cpu`` or ``cuda:0``.
        rows: names of ``rows.ROWS``.
        changes: settings that replace the preset's, in the rows that take them.
    """

    dataset: str = "split_digits"
    scenario: str | None = None
    preset: str = "quick"
    split: str = "test"
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "cpu"
    rows: tuple[str, ...] = tuple(name for name, one in ROWS.items() if "split_digits" in one.settings)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        one_of("dataset", self.dataset, DATASETS)
        one_of("preset", self.preset, PRESETS)
        one_of("split", self.split, EVAL_SPLITS)
        some_of("rows", self.rows, ROWS)
        check_seeds("seeds", self.seeds)
        if self.scenario is not None:
            one_of("scenario", self.scenario, SCENARIOS)
            if not serves(self.dataset, self.scenario):
                others = " or ".join(s for s in SCENARIOS if serves(self.dataset, s))
                raise ValueError(f"scenario={self.scenario!r} makes no sense for {self.dataset}, which has {others}")
        for name, value in self.changes.items():
            if not set(there := takers(name)) & set(self.rows):
                raise ValueError(
                    f"{name}={value!r} changes no row of {', '.join(self.rows)}; rows that take it are "
                    f"{', '.join(there)}"
                )
        jobs(self)  # raises for a setting that cannot be


def jobs(selection: Selection) -> list[runs.Job]:
    """One job a row."""
    return [_job(name, selection) for name in selection.rows]


def _job(name: str, selection: Selection) -> runs.Job:
    one, dataset = row(name), selection.dataset
    scenario = selection.scenario or next((s for s in one.scenarios if serves(dataset, s)), one.scenarios[0])
    if scenario not in one.scenarios:
        others = ", ".join(other for other, its in ROWS.items() if scenario in its.scenarios)
        raise ValueError(
            f"scenario={scenario!r} cannot be served by {name!r}, which serves {' or '.join(one.scenarios)}: a head a "
            f"task asks for the task's name, and one head for none; {scenario} is served by {others}"
        )
    method, stream = one.build(dataset, selection.preset, selection.changes)
    tasks = stream.get("num_tasks") or NUM_TASKS[dataset]
    for setting in ("epochs", "num_context"):
        value = selection.changes.get(setting)
        if isinstance(value, tuple | list) and len(value) != tasks:
            told = runs.written({setting: value})
            raise ValueError(f"{told} has {len(value)} entries for {tasks} tasks; give one number, or one a task")
    plain, usual = one.build(dataset, selection.preset, {})
    if selection.split == "validation":
        for options in (stream, usual):
            options.setdefault("validation_fraction", VALIDATION_FRACTION)
    changed = {n: v for n, v in selection.changes.items() if _value(method, stream, n) != _value(plain, usual, n)}
    return runs.Job(
        row=name,
        method=method,
        stream={"dataset": dataset, "scenario": scenario, "eval_split": selection.split, **stream},
        preset=selection.preset,
        changes=runs.written(changed),
    )


def _value(method: Any, stream: Mapping[str, Any], name: str) -> Any:
    return getattr(method, name, stream.get(name, runs.STREAM_DEFAULTS.get(name)))


def num_tasks(selection: Selection) -> int:
    """Tasks that the rows of a selection learn, of which a quick preset may have fewer than the data set."""
    return max(job.stream.get("num_tasks") or NUM_TASKS[selection.dataset] for job in jobs(selection))


def is_look(selection: Selection) -> bool:
    """Whether the quick preset leaves out training points, so that what comes out is no result."""
    return selection.preset == "quick" and any(job.stream.get("train_sizes") for job in jobs(selection))


def title(selection: Selection) -> str:
    """The data set's name, and what a look leaves of it.

    >>> title(Selection("split_digits")), title(Selection("split_cifar100", rows=("sgd",)))
    ('digits', 'Split-CIFAR100, a look:\\n5 tasks of 400 training points')
    """
    name = LABELS[selection.dataset]
    if not is_look(selection):
        return name
    streams = [job.stream["train_sizes"] for job in jobs(selection) if job.stream.get("train_sizes")]
    numbers = (
        sorted(set(n), key=str) for n in (map(len, streams), (size or "all" for sizes in streams for size in sizes))
    )
    tasks, points = (" or ".join(map(str, n)) for n in numbers)
    return f"{name}, a look:\n{tasks} tasks of {points} training points"


def run(selection: Selection | Iterable[Selection]) -> pd.DataFrame:
    """Run what has no record yet and return the scores of every row, seed and pair of tasks, as a tidy table."""
    chosen = [selection] if isinstance(selection, Selection) else list(selection)
    return pd.concat([runs.execute(jobs(one), one.seeds, one.device) for one in chosen], ignore_index=True)


def stored(selection: Selection | Iterable[Selection]) -> pd.DataFrame:
    """What the committed tables hold of a selection as its rows are set today, whatever its seeds.

    A run with another setting, or of another version of its method, is not there, whatever its name. The selection's
    device plays no part.

    Raises:
        ValueError: a row's runs are on unlike data.
    """
    chosen = [selection] if isinstance(selection, Selection) else list(selection)
    parts = [runs.find(job) for one in chosen for job in jobs(one)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=runs.COLUMNS)


def stored_at_paper_scale(dataset: str, rows: Sequence[str], scenario: str | None = None) -> pd.DataFrame:
    """Stored runs of the paper preset on the test set: of those rows that have settings on the data set."""
    there = [name for name in rows if dataset in row(name).settings]
    there = [name for name in there if scenario is None or scenario in row(name).scenarios]
    if not there:
        return pd.DataFrame(columns=runs.COLUMNS)
    return stored(Selection(dataset, scenario, "paper", rows=tuple(there)))
