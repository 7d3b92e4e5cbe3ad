"""The choice of VCL's settings on the toy sets, on validation data: none are published.

Every combination of a small grid is trained on nine tenths of a toy set's training data, with one head and with a head
a task, and compared by P_T on the last tenth, averaged over the two. ``experiments/vcl_split_mnist.py`` states the
winner and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from paper_lib import metrics, runs
from paper_lib.checks import one_of, some_of
from paper_lib.experiments import vcl_split_mnist

VERSION = 1
SEEDS = (100, 101)
"""Other than those of the runs that are reported."""

GRID = {"learning_rate": (3e-3, 1e-2, 3e-2), "restart": (True, False)}
"""What is tuned, at the reported number of epochs. A task begins at the last posterior (Nguyen et al.) or, with
``restart``, afresh (Swaroop et al.); the first one begins at maximum likelihood either way."""

TRIALS = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
DATASETS = ("toy_pan", "toy_gaussians")
METHODS = ("vcl_single_head", "vcl_multi_head")


@dataclass(frozen=True)
class Config:
    """Parameters of ``paper-lib run vcl_toy_tuning``.

    Attributes:
        dataset: ``toy_pan`` or ``toy_gaussians``.
        scenario: None, for each row's own.
        preset: only ``grid``.
        seeds: seeds that advance together.
        device: ``cpu`` or ``cuda:0``.
        methods: ``vcl_single_head``, ``vcl_multi_head`` or both.
    """

    dataset: str = "toy_pan"
    scenario: None = None
    preset: str = "grid"
    seeds: tuple[int, ...] = SEEDS
    device: str = "cpu"
    methods: tuple[str, ...] = METHODS

    def __post_init__(self):
        one_of("dataset", self.dataset, DATASETS)
        one_of("preset", self.preset, ("grid",))
        some_of("methods", self.methods, METHODS)


def jobs(config: Config) -> list[runs.Job]:
    """One job a row and combination."""
    held_out = {"dataset": config.dataset, "scaling": "unit", "eval_split": "validation", "validation_fraction": 0.1}
    chosen = []
    for row in config.methods:
        paper = vcl_split_mnist.Config(dataset=config.dataset, preset="paper", methods=(row,))
        stream = held_out | {"scenario": vcl_split_mnist.LAYOUTS[row][0]}
        for trial, settings in enumerate(TRIALS):
            method = replace(vcl_split_mnist.method(row, paper), **settings)
            chosen.append(runs.Job("vcl_toy_tuning", VERSION, f"{row}-{trial:02d}", method, stream, config.preset))
    return chosen


def run(config: Config) -> pd.DataFrame:
    """Validation scores of every row and combination, as a tidy table."""
    return runs.execute(jobs(config), config.seeds, config.device)


def ranking(dataset: str) -> pd.DataFrame:
    """The stored trials on a data set, best first.

    Returns:
        ``trial``, a column a setting, P_T with one head and with a head a task, their mean ``score``, and ``n`` seeds.
    """
    table = runs.stored("vcl_toy_tuning")
    matrices = metrics.matrices_by_method(table[table.dataset == dataset])
    lines = []
    for trial, settings in enumerate(TRIALS):
        scores: dict[str, Any] = {row: metrics.final_accuracy(matrices[f"{row}-{trial:02d}"]) for row in METHODS}
        n = len(scores[METHODS[0]])
        scores = {row: values.mean() for row, values in scores.items()}
        lines.append({"trial": trial, **settings, **scores, "score": sum(scores.values()) / len(METHODS), "n": n})
    return pd.DataFrame(lines).sort_values("score", ascending=False, kind="stable", ignore_index=True)


def best(dataset: str) -> dict[str, Any]:
    """The winning settings."""
    return TRIALS[int(ranking(dataset).trial[0])]
