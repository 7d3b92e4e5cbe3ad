"""Tables 1 and 2: class-incremental learning, every row of the paper beside the runs that reproduce it.

Runs are those of the chapters on each method, which hold their settings: this file only brings the rows together, and a
run started here is found again there. Rows of methods that the book has no runs of yet show the paper's number alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType

import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, runs
from paper_lib.checks import one_of, some_of
from paper_lib.experiments import protocl, vcl_split_mnist

VERSION = 1

SOURCES: dict[str, ModuleType] = {
    "sgd": protocl,
    "vcl_single_head": vcl_split_mnist,
    "vcl_coreset": vcl_split_mnist,
    "vcl_coreset_k_centre": vcl_split_mnist,
    "replay": protocl,
    "protocl": protocl,
    "protocl_paper_epochs": protocl,
    "protocl_as_published": protocl,
    "joint": protocl,
}
"""Rows that can be run and the experiment that runs each."""

ROWS = (
    *("sgd", "vcl_single_head", "vcl_coreset", "vcl_coreset_k_centre", "hibnn", "fromp", "sfsvi"),
    *("protocl", "protocl_paper_epochs", "protocl_as_published", "replay", "joint"),
)
"""Rows of the tables: the paper's in its order, between the bounds and with plain replay after ProtoCL."""

PAPER = {
    **vcl_split_mnist.PAPER,
    **protocl.PAPER,
    ("hibnn", "split_mnist"): (85.50, 3.20),
    ("hibnn", "split_fmnist"): (43.70, 20.21),
    ("fromp", "split_mnist"): (84.40, 0.00),
    ("fromp", "split_fmnist"): (68.54, 0.00),
    ("fromp", "split_cifar10"): (48.92, 10.86),
    ("sfsvi", "split_mnist"): (92.94, 0.17),
    ("sfsvi", "split_fmnist"): (80.55, 0.41),
    ("sfsvi", "split_cifar10"): (50.85, 3.87),
    ("sfsvi", "split_cifar100"): (20.04, 2.37),
}
"""Kessler et al. 2023, Tables 1 and 2, percent; each second number is called a standard error over 10 seeds."""


SHOWN_SETTINGS = ("hidden", "epochs", "batch_size", "learning_rate", "dropout", "weight_decay", "num_samples")
"""Settings that ``settings`` shows; all of them stand in ``results/*.json``."""


@dataclass(frozen=True)
class Config:
    """Parameters of the notebook and of ``paper-lib run class_incremental``.

    Attributes:
        dataset: stream of tasks.
        scenario: only ``class_incremental``.
        preset: ``quick`` for a look (seconds on digits), ``paper`` for the paper's or the reference's epochs.
        seeds: seeds that advance together.
        device: ``cpu`` or ``cuda:0``.
        methods: rows to run.
    """

    dataset: str = "split_digits"
    scenario: str = "class_incremental"
    preset: str = "quick"
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "cpu"
    methods: tuple[str, ...] = ("sgd", "vcl_single_head", "vcl_coreset", "replay", "protocl", "joint")

    def __post_init__(self):
        one_of("scenario", self.scenario, ("class_incremental",))
        some_of("methods", self.methods, SOURCES)
        jobs(self)  # each source checks what its rows can serve


def jobs(config: Config) -> list[runs.Job]:
    """One job a row, that of the row's own experiment."""
    chosen = []
    for row in config.methods:
        shared = (config.dataset, config.scenario, config.preset, config.seeds, config.device)
        try:
            chosen += SOURCES[row].jobs(SOURCES[row].Config(*shared, methods=(row,)))
        except ValueError as error:
            raise ValueError(f"row {row!r}: {error}") from error
    return chosen


def run(config: Config) -> pd.DataFrame:
    """Scores of every row, seed and pair of tasks, as a tidy table."""
    return runs.execute(jobs(config), config.seeds, config.device)


def matrices(table: pd.DataFrame) -> dict[str, NDArray]:
    """Accuracy matrices ``(seed, task_trained, task_tested)`` of every row of a table of one data set."""
    found = metrics.matrices_by_method(table)
    return {row: found[row] for row in ROWS if row in found}


def stored(dataset: str) -> pd.DataFrame:
    """The stored runs at the paper's scale of every row on a data set; no rows where none has been run."""
    parts = []
    for source in (protocl, vcl_split_mnist):
        name = source.__name__.rsplit(".", 1)[1]
        try:
            table = runs.stored(name)
        except FileNotFoundError:
            continue
        own = table.method.isin([row for row, runs_it in SOURCES.items() if runs_it is source])
        scenario = table.scenario == "class_incremental"
        parts.append(table[own & scenario & (table.dataset == dataset) & (table.preset == "paper")])
    return pd.concat(parts) if parts else pd.DataFrame(columns=runs.COLUMNS)


def comparison(dataset: str) -> pd.DataFrame:
    """A column of Table 1 or 2 beside the stored runs, as ``metrics.beside_paper`` shows them."""
    printed = {row: numbers for (row, name), numbers in PAPER.items() if name == dataset}
    shorter = protocl.fewer_epochs(dataset)
    return metrics.beside_paper(stored(dataset), printed, ROWS, protocl.PAPER_SEEDS, shorter)


def settings(dataset: str) -> pd.DataFrame:
    """What the stored runs of a data set were made with, out of their provenance.

    Returns:
        A line a row: ``pixels`` (``standard`` for zero mean and unit variance, ``unit`` for [0, 1]), ``memory`` (points
        kept), and settings of the method under their own names, NaN where it has none.
    """
    table = stored(dataset)
    sources = {name: runs.provenance(name) for name in table.experiment.unique()}
    lines = {}
    for row, part in table.groupby("method"):
        identity = sources[part.experiment.iloc[0]][part.key.iloc[0]]["identity"]
        own = identity["method"][2]
        kept = own.get("coreset_per_task", own.get("memory_per_task"))
        total = own.get("memory_total")
        lines[row] = {
            "pixels": identity["stream"].get("scaling", "standard"),
            "memory": f"{total} in all" if total else "all" if kept is None else f"{kept} a task" if kept else "none",
        } | {name: own.get(name, math.nan) for name in SHOWN_SETTINGS}
    return pd.DataFrame.from_dict(lines, orient="index").reindex([row for row in ROWS if row in lines])


def printed_numbers(num_tasks: int = 5) -> pd.DataFrame:
    """What the printed numbers of rows without memory are of a learner that knows its last task alone, percent.

    Returns:
        A line a row and data set: the ``printed`` number; the accuracy ``a`` on a task just learned that it asks for if
        it is a final accuracy (``a if P_5``) and if it is a triangle mean (``a if triangle``); the final accuracy
        ``P_5`` and the ``triangle`` mean of complete forgetting with the latter; and what stored runs of SGD, which
        forgets completely, measure for the two (NaN where none has been run).
    """
    unit = metrics.complete_forgetting(1.0, num_tasks)
    lines = []
    for (row, dataset), (printed, _) in PAPER.items():
        if row not in ("vcl_single_head", "protocl_no_memory"):
            continue
        needed = printed / unit.triangle_mean
        final, triangle = metrics.complete_forgetting(needed, num_tasks)
        sgd = comparison(dataset).T.get("sgd", {})
        lines.append(
            {
                **{"method": row, "dataset": dataset, "printed": printed, "a if P_5": printed / unit.final_accuracy},
                **{"a if triangle": needed, "P_5": final, "triangle": triangle},
                **{"SGD's P_5": float(sgd.get("P_T", "nan")), "SGD's triangle": float(sgd.get("triangle", "nan"))},
            }
        )
    return pd.DataFrame(lines).set_index(["method", "dataset"])
