"""The choice of ProtoCL's and replay's settings, on validation data, with one written grid and budget for both.

``BUDGET`` configurations a method are drawn from its grid by a fixed generator as a Latin hypercube: every value of a
setting is tried equally often. They are trained on nine tenths of the training data and compared by mean P_T on the
last tenth, in two rounds (successive halving, Jamieson and Talwalkar 2016): all of them for ten epochs on one seed,
then the best ``FINALISTS`` for the paper's epochs on another. ``experiments/protocl.py`` states the winner and a test
compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from paper_lib import metrics, runs
from paper_lib.checks import one_of
from paper_lib.methods.protocl import ProtoCL
from paper_lib.methods.replay import Replay

VERSION = 1
BUDGET = 12
FINALISTS = 2
ROUNDS = {"screen": {"epochs": 10}, "final": {"epochs": 50}}
SEEDS = {"screen": (100,), "final": (101,)}
"""Seeds of each round, other than those of the runs that are reported."""

METHODS = {"protocl": ProtoCL, "replay": Replay}

SHARED = {
    "learning_rate": (1e-4, 3e-4, 1e-3),
    "dropout": (0.0, 0.2, 0.5),
    "weight_decay": (0.0, 1e-4, 1e-3),
    "replay_weight": (1.0, 2.0, 4.0),
}
"""What is tuned of both methods."""

GRIDS: dict[str, dict[Any, tuple[Any, ...]]] = {
    "protocl": SHARED
    | {
        "forget": (1.0, 0.999),
        ("evidence_mode", "class_prior"): (
            ("cumulative", "counts"),
            ("cumulative", "uniform"),
            ("recompute_final", "uniform"),
        ),
    },
    "replay": SHARED | {"oversample": (True, False)},
}
"""Names, or names that change together, to their values. Counts of one pass favour the current task: no such pair."""

FIXED = {"split_mnist": {"batch_size": 64}, "split_fmnist": {"batch_size": 128}}
"""What is not tuned: the release's batch sizes, for both methods."""


@dataclass(frozen=True)
class Config:
    """Parameters of ``paper-lib run protocl_tuning``.

    Attributes:
        dataset: ``split_mnist`` or ``split_fmnist``.
        scenario: only ``class_incremental``.
        preset: round, ``screen`` or ``final``; the final round needs the screen's stored table.
        seeds: seeds that advance together; None for the round's.
        device: ``cpu`` or ``cuda:0``.
        methods: ``protocl``, ``replay`` or both.
    """

    dataset: str = "split_mnist"
    scenario: str = "class_incremental"
    preset: str = "screen"
    seeds: tuple[int, ...] | None = None
    device: str = "cpu"
    methods: tuple[str, ...] = ("protocl", "replay")

    def __post_init__(self):
        one_of("dataset", self.dataset, FIXED)
        one_of("scenario", self.scenario, ("class_incremental",))
        one_of("preset", self.preset, ROUNDS)
        for name in self.methods:
            one_of("methods", name, METHODS)


def drawn(method: str) -> list[dict[str, Any]]:
    """The settings of a method that are tried, in the order of the draw."""
    generator = np.random.default_rng(2301)
    columns = {name: generator.permutation(BUDGET) % len(values) for name, values in GRIDS[method].items()}
    return [_flat({name: GRIDS[method][name][column[i]] for name, column in columns.items()}) for i in range(BUDGET)]


def _flat(values: dict[Any, Any]) -> dict[str, Any]:
    """Names that change together, taken apart."""
    pairs = ((name, value) if isinstance(name, tuple) else ((name,), (value,)) for name, value in values.items())
    return {name: value for names, group in pairs for name, value in zip(names, group, strict=True)}


def jobs(config: Config) -> list[runs.Job]:
    """One job a configuration of the round, the methods in turn."""
    stream = {"dataset": config.dataset, "eval_split": "validation", "validation_fraction": 0.1}
    trials = {
        method: list(range(BUDGET))
        if config.preset == "screen"
        else sorted(int(t) for t in ranking(method, config.dataset, "screen").trial[:FINALISTS])
        for method in config.methods
    }
    return [
        runs.Job(
            "protocl_tuning",
            VERSION,
            f"{method}-{trial:02d}",
            METHODS[method](**settings(method, config.dataset, trial, config.preset)),
            stream,
            config.preset,
        )
        for turn in range(max(map(len, trials.values())))
        for method in config.methods
        for trial in trials[method][turn : turn + 1]
    ]


def run(config: Config) -> pd.DataFrame:
    """Validation scores of every configuration, as a tidy table."""
    return runs.execute(jobs(config), config.seeds or SEEDS[config.preset], config.device)


def settings(method: str, dataset: str, trial: int, preset: str) -> dict[str, Any]:
    """What a configuration of the draw sets, in a round."""
    return FIXED[dataset] | ROUNDS[preset] | drawn(method)[trial]


def ranking(method: str, dataset: str, preset: str) -> pd.DataFrame:
    """The stored trials of a method on a data set in a round with their settings, best first.

    Returns:
        ``trial``, a column a setting, then ``final_accuracy`` (P_T), ``triangle_mean`` and ``n`` seeds.
    """
    table = runs.stored("protocl_tuning")
    table = table[(table.dataset == dataset) & (table.preset == preset) & table.method.str.startswith(f"{method}-")]
    if table.empty:
        raise ValueError(f"no stored trial of {method!r} on {dataset!r} in round {preset!r}")
    scores = metrics.summary_table(table)
    wide = scores.pivot(index="method", columns="metric", values="mean")[["final_accuracy", "triangle_mean"]]
    wide = wide.assign(n=scores.groupby("method").n.max(), trial=[int(m.rsplit("-", 1)[1]) for m in wide.index])
    tried = pd.DataFrame([{"trial": t, **drawn(method)[t]} for t in wide.trial])
    ranked = tried.merge(wide.reset_index(drop=True), on="trial")
    return ranked.sort_values("final_accuracy", ascending=False, kind="stable", ignore_index=True)


def best(method: str, dataset: str) -> dict[str, Any]:
    """The settings that won the final round."""
    return settings(method, dataset, int(ranking(method, dataset, "final").trial[0]), "final")
