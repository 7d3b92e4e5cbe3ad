"""The choice of ProtoCL's and replay's settings, on validation data, with one written grid and budget for both.

Configurations are trained on nine tenths of the training data and compared on the last tenth, by the mean of the two
metrics that are reported, P_T and triangle mean, in three rounds:

- ``screen``: ``SCREENED`` configurations a method, drawn from its grid by a fixed generator as a maximin Latin
  hypercube (every value is tried about equally often, any two differ in as many settings as can be), on one seed;
- ``refine``: ``REFINED`` more around the screen's winner, on the same seed: of replay, drawn with two settings changed;
  of ProtoCL, all combinations of three choices that the screen leaves alone, because all of its trials fit the memory
  about as closely whatever their grid values;
- ``final``: the best ``FINALISTS`` of both on two other seeds, so that the winner did not win by its seed.

All are trained for the paper's epochs: how far a setting fits the memory rather than the classes grows with them.
``experiments/protocl.py`` states the winner and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from paper_lib import metrics, runs
from paper_lib.checks import one_of
from paper_lib.methods.protocl import ProtoCL
from paper_lib.methods.replay import Replay

VERSION = 2
SCREENED = 12
REFINED = 11
FINALISTS = 2
EPOCHS = 50
SEEDS = {"screen": (100,), "refine": (100,), "final": (101, 102)}
"""Rounds and their seeds, other than those of the runs that are reported."""

METHODS = {"protocl": ProtoCL, "replay": Replay}

SHARED: dict[Any, tuple[Any, ...]] = {
    "learning_rate": (1e-5, 3e-5, 1e-4),
    "dropout": (0.0, 0.2, 0.5),
    "weight_decay": (0.0, 1e-4, 1e-3, 1e-2),
    ("oversample", "replay_weight"): ((True, 1.0), (True, 4.0), (False, 15.0), (False, 60.0)),
}
"""What is tuned of both methods: names, or names that change together, to their values. At the last task a plain union
holds 15 current points to one of memory, so its weights stand for about the same objectives as the oversampled ones, in
half the steps; the larger of each gives all tasks about equal weight."""

GRIDS = {
    "protocl": SHARED
    | {
        "forget": (1.0, 0.999),
        ("evidence_mode", "class_prior"): (
            ("cumulative", "counts"),
            ("cumulative", "uniform"),
            ("recompute_final", "uniform"),
        ),
    },
    "replay": SHARED,
}
"""The grid of each method. Counts of one pass favour the current task: no such pair."""

MODEL: dict[str, tuple[Any, ...]] = {
    "noise_var": (0.05, 0.5),
    "loss": ("conditional", "joint_plus_conditional"),
    "dropout": (None, (0.2, 0.2, 0.0), (0.5, 0.5, 0.0)),
}
"""What ``refine`` combines for ProtoCL: the noise of embeddings about a prototype, a pull of embeddings to their own
prototype, and dropout that spares the embedding, as replay's spares its logits (None: the winner's)."""

FIXED = {"split_mnist": {"batch_size": 64}, "split_fmnist": {"batch_size": 128}}
"""What is not tuned: the release's batch sizes, for both methods."""


@dataclass(frozen=True)
class Config:
    """Parameters of ``paper-lib run protocl_tuning``.

    Attributes:
        dataset: ``split_mnist`` or ``split_fmnist``.
        scenario: only ``class_incremental``.
        preset: round, ``screen``, ``refine`` or ``final``; a round needs the stored tables of those before it.
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
        one_of("preset", self.preset, SEEDS)
        for name in self.methods:
            one_of("methods", name, METHODS)


def screened(method: str) -> list[dict[str, Any]]:
    """The settings of the screen, in the order of their trial numbers."""
    generator, grid = np.random.default_rng(2301), GRIDS[method]
    sizes = [len(values) for values in grid.values()]
    draws = [np.stack([generator.permutation(SCREENED) % size for size in sizes], axis=1) for _ in range(1000)]
    chosen = max(draws, key=lambda draw: ((draw[:, None] != draw).sum(-1) + len(grid) * np.eye(SCREENED)).min())
    return [_flat({name: grid[name][i] for name, i in zip(grid, trial, strict=True)}) for trial in chosen]


def refined(method: str, dataset: str) -> list[dict[str, Any]]:
    """The settings around the screen's winner; their trial numbers follow the screen's."""
    generator, grid = np.random.default_rng(1828), GRIDS[method]
    winner = screened(method)[int(ranking(method, dataset, "screen").trial[0])]
    if method == "protocl":
        combined = [dict(zip(MODEL, values, strict=True)) for values in product(*MODEL.values())]
        return [winner | {name: v for name, v in choice.items() if v is not None} for choice in combined[1:]]
    around = []
    while len(around) < REFINED:
        changes = {}
        for i in generator.choice(len(grid), 2, replace=False):
            name = list(grid)[i]
            others = [v for v in grid[name] if not _flat({name: v}).items() <= winner.items()]
            changes[name] = others[generator.integers(len(others))]
        candidate = winner | _flat(changes)
        if candidate not in [*screened(method), *around]:
            around.append(candidate)
    return around


def _flat(values: dict[Any, Any]) -> dict[str, Any]:
    """Names that change together, taken apart."""
    pairs = ((name, value) if isinstance(name, tuple) else ((name,), (value,)) for name, value in values.items())
    return {name: value for names, group in pairs for name, value in zip(names, group, strict=True)}


def trials(method: str, dataset: str, preset: str) -> dict[int, dict[str, Any]]:
    """The settings of a round by trial number."""
    tried = dict(enumerate(screened(method)))
    if preset == "screen":
        return tried
    added = dict(enumerate(refined(method, dataset), start=SCREENED))
    if preset == "refine":
        return added
    both = pd.concat([ranking(method, dataset, name) for name in ("screen", "refine")])
    best = both.sort_values("score", ascending=False, kind="stable").trial[:FINALISTS]
    return {int(trial): (tried | added)[int(trial)] for trial in sorted(best)}


def jobs(config: Config) -> list[runs.Job]:
    """One job a configuration of the round."""
    stream = {"dataset": config.dataset, "eval_split": "validation", "validation_fraction": 0.1}
    fixed = FIXED[config.dataset] | {"epochs": EPOCHS}
    return [
        runs.Job(
            *("protocl_tuning", VERSION, f"{method}-{trial:02d}"),
            *(METHODS[method](**fixed, **settings), stream, config.preset),
        )
        for method in config.methods
        for trial, settings in trials(method, config.dataset, config.preset).items()
    ]


def run(config: Config) -> pd.DataFrame:
    """Validation scores of every configuration, as a tidy table."""
    return runs.execute(jobs(config), config.seeds or SEEDS[config.preset], config.device)


def ranking(method: str, dataset: str, preset: str) -> pd.DataFrame:
    """The stored trials of a method on a data set in a round with their settings, best first.

    Returns:
        ``trial``, a column a setting, then ``final_accuracy`` (P_T), ``triangle_mean``, their mean ``score`` and ``n``
        seeds.
    """
    table = runs.stored("protocl_tuning")
    table = table[(table.dataset == dataset) & (table.preset == preset) & table.method.str.startswith(f"{method}-")]
    if table.empty:
        raise ValueError(f"no stored trial of {method!r} on {dataset!r} in round {preset!r}")
    known = dict(enumerate(screened(method)))
    if preset != "screen":
        known |= dict(enumerate(refined(method, dataset), start=SCREENED))
    scores = metrics.summary_table(table)
    wide = scores.pivot(index="method", columns="metric", values="mean")[["final_accuracy", "triangle_mean"]]
    wide["score"] = wide.mean(axis=1)
    wide = wide.assign(n=scores.groupby("method").n.max(), trial=[int(m.rsplit("-", 1)[1]) for m in wide.index])
    tried = pd.DataFrame([{"trial": t, **known[t]} for t in wide.trial])
    ranked = tried.merge(wide.reset_index(drop=True), on="trial")
    return ranked.sort_values("score", ascending=False, kind="stable", ignore_index=True)


def best(method: str, dataset: str) -> dict[str, Any]:
    """The settings that won the final round, with what was fixed."""
    winner = int(ranking(method, dataset, "final").trial[0])
    return FIXED[dataset] | {"epochs": EPOCHS} | trials(method, dataset, "final")[winner]
