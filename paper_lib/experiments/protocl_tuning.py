"""The choice of ProtoCL's and replay's settings, on validation data, with one written grid and budget for both.

Configurations are trained on nine tenths of the training data and compared on the last tenth, by the mean of the two
metrics that are reported, P_T and triangle mean, in stages:

- ``paper_epochs``: of ProtoCL alone, configurations drawn from its grid by a fixed generator as a maximin Latin
  hypercube (every value is tried about equally often, any two differ in as many settings as can be), for the paper's
  epochs, one seed;
- ``fewer_epochs``: of both methods, twice as many, drawn likewise from a grid with larger learning rates and fewer
  epochs: how far a setting fits the memory rather than the classes grows with the passes over it;
- ``refine``, then ``refine_again``: more that differ from the best so far in two settings, the paper's epochs allowed;
- ``final``: the best four with fewer epochs than the paper's on two other seeds, so that no winner won by its seed, and
  the best two with the paper's.

``rows.py`` states the winners and a test compares them. Before this grid there was a smaller one, whose winners were
scored on the test set before the grid was extended to what stands here; the chapter on ProtoCL says so too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from paper_lib import paper, sweep, tables
from paper_lib.rows import MNIST_SIZES
from paper_lib.sweep import Selection

EPOCHS = 50
TRIALS = {"paper_epochs": 12, "fewer_epochs": 24, "refine": 12, "refine_again": 12}
FINALISTS = {"fewer": 4, "paper": 2}
SEEDS = {**dict.fromkeys(TRIALS, (100,)), "final": (101, 102)}
"""Stages and their seeds, other than those of the runs that are reported."""

SCENARIO = "class_incremental"
METHODS = ("protocl", "replay")

SHARED: dict[Any, tuple[Any, ...]] = {
    "dropout": (0.0, 0.2, 0.5),
    "weight_decay": (0.0, 1e-4, 1e-3, 1e-2),
    ("oversample", "replay_weight"): ((True, 1.0), (True, 4.0), (False, 15.0), (False, 60.0)),
}
"""What is tuned of both methods: names, or names that change together, to their values. At the last task a plain union
holds 15 current points to one of memory, so its weights stand for about the same objectives as the oversampled ones, in
half the steps; the larger of each gives all tasks about equal weight."""

OWN: dict[str, dict[Any, tuple[Any, ...]]] = {
    "protocl": {
        "forget": (1.0, 0.999),
        ("evidence_mode", "class_prior"): (
            ("cumulative", "counts"),
            ("cumulative", "uniform"),
            ("recompute_final", "uniform"),
        ),
    },
    "replay": {},
}
"""What is tuned of each method besides. Counts of one pass favour the current task: no such pair."""

LENGTHS: dict[str, dict[Any, tuple[Any, ...]]] = {
    "paper_epochs": {"learning_rate": (1e-5, 3e-5, 1e-4)},
    "fewer_epochs": {"learning_rate": (1e-4, 3e-4, 1e-3), "epochs": (3, 6, 12, 25)},
    "refine": {"learning_rate": (3e-5, 1e-4, 3e-4, 1e-3), "epochs": (3, 6, 12, 25, EPOCHS)},
    "refine_again": {"learning_rate": (3e-5, 1e-4, 3e-4, 1e-3), "epochs": (3, 6, 12, 25, EPOCHS)},
}
"""How far training goes in each stage, for the paper's 50 epochs unless it says otherwise."""

STAGES = {"protocl": tuple(TRIALS), "replay": ("fewer_epochs", "refine", "refine_again")}
"""The stages of each method before the final one."""


@cache
def drawn(method: str, stage: str) -> list[dict[str, Any]]:
    """The settings of one of the first two stages, in the order of their trial numbers."""
    return [{"epochs": EPOCHS} | settings for settings in latin_hypercube(_grid(method, stage), TRIALS[stage], 2301)]


def latin_hypercube(grid: Mapping[Any, tuple[Any, ...]], num_trials: int, seed: int) -> list[dict[str, Any]]:
    """Settings of a grid, every value about equally often, any two trials different in as many names as can be.

    Args:
        grid: names, or names that change together, to their values.
        num_trials: how many.
        seed: of the thousand designs of which the best is taken.
    """
    generator, n = np.random.default_rng(seed), num_trials
    sizes = [len(values) for values in grid.values()]
    draws = [np.stack([generator.permutation(n) % size for size in sizes], axis=1) for _ in range(1000)]
    chosen = max(draws, key=lambda draw: ((draw[:, None] != draw).sum(-1) + len(grid) * np.eye(n)).min())
    picked = [{name: values[i] for (name, values), i in zip(grid.items(), trial, strict=True)} for trial in chosen]
    return list(map(flat, picked))


@cache
def refined(method: str, dataset: str, stage: str) -> list[dict[str, Any]]:
    """The settings around the best of the stored stages before it, in the order of their trial numbers."""
    before = STAGES[method][: STAGES[method].index(stage)]
    generator, grid = np.random.default_rng(1826 + list(TRIALS).index(stage)), _grid(method, stage)
    known = {t: settings for name in before for t, settings in trials(method, dataset, name).items()}
    winner = known[int(_best_first([ranking(method, dataset, name) for name in before]).trial[0])]
    around: list[dict[str, Any]] = []
    while len(around) < TRIALS[stage]:
        changes = {}
        for i in generator.choice(len(grid), 2, replace=False):
            name = list(grid)[i]
            others = [v for v in grid[name] if not flat({name: v}).items() <= winner.items()]
            changes[name] = others[generator.integers(len(others))]
        if (candidate := winner | flat(changes)) not in [*known.values(), *around]:
            around.append(candidate)
    return around


def _grid(method: str, stage: str) -> dict[Any, tuple[Any, ...]]:
    return LENGTHS[stage] | SHARED | OWN[method]


def flat(values: dict[Any, Any]) -> dict[str, Any]:
    """Names that change together, taken apart."""
    pairs = ((name, value) if isinstance(name, tuple) else ((name,), (value,)) for name, value in values.items())
    return {name: value for names, group in pairs for name, value in zip(names, group, strict=True)}


def trials(method: str, dataset: str, stage: str) -> dict[int, dict[str, Any]]:
    """The settings of a stage by trial number; the numbers of a stage follow those of the stage before."""
    if stage == "final":
        known = {t: settings for name in STAGES[method] for t, settings in trials(method, dataset, name).items()}
        ranked = tried(method, dataset)
        fewer, paper = (ranked.trial[ranked.epochs < EPOCHS], ranked.trial[ranked.epochs == EPOCHS])
        best = [*fewer[: FINALISTS["fewer"]], *paper[: FINALISTS["paper"]]]
        return {int(t): known[int(t)] for t in sorted(best)}
    start = sum(n for name, n in TRIALS.items() if list(TRIALS).index(name) < list(TRIALS).index(stage))
    chosen = refined(method, dataset, stage) if stage.startswith("refine") else drawn(method, stage)
    return dict(enumerate(chosen, start))


def selections(method: str, dataset: str, stage: str) -> list[Selection]:
    """One selection a configuration of a stage, in the order of their trial numbers."""
    return [
        Selection(dataset, SCENARIO, "paper", "validation", SEEDS[stage], rows=(method,), changes=settings)
        for settings in trials(method, dataset, stage).values()
    ]


def known(method: str, dataset: str) -> Iterator[Selection]:
    """The selections of all stages that the stored trials of the stages before them determine."""
    return determined((*STAGES[method], "final"), partial(selections, method, dataset))


def determined(stages: Iterable[str], selections: Callable[[str], list[Selection]]) -> Iterator[Selection]:
    """The selections of stages, one after the other, until one needs stored trials that are not there."""
    for stage in stages:
        try:
            yield from selections(stage)
        except ValueError:  # a stage before it has not been run
            return


@cache
def ranking(method: str, dataset: str, stage: str) -> pd.DataFrame:
    """The stored trials of a method on a data set in a stage with their settings, best first.

    Returns:
        ``trial``, a column a setting, then ``final_accuracy`` (P_T), ``triangle_mean``, their mean ``score`` in percent
        and ``n`` seeds.

    Raises:
        ValueError: a trial has not been run.
    """
    chosen = dict(zip(trials(method, dataset, stage), selections(method, dataset, stage), strict=True))
    return _best_first([scored(method, chosen).drop(columns="nll")])


def scored(method: str, chosen: Mapping[int, Selection]) -> pd.DataFrame:
    """The stored trials of a method by their numbers, in that order.

    Returns:
        ``trial``, a column a setting, then ``final_accuracy`` (P_T), ``triangle_mean``, their mean ``score`` in
        percent, ``nll`` after the last task in nats, and ``n`` seeds.

    Raises:
        ValueError: a trial has not been run.
    """
    lines = []
    for trial, one in chosen.items():
        table = sweep.stored(one)
        table = table[table["seed"].isin(one.seeds)]
        if table.empty:
            raise ValueError(
                f"trial {trial} of {method!r} on {one.dataset!r}, seeds {one.seeds}, has no stored run: "
                f"{tables.command(one)}"
            )
        scores = {s: tables.by_seed(table, s)[method] for s in ("final_accuracy", "triangle_mean")}
        means = {s: values.mean() for s, values in scores.items()}
        nll = tables.by_seed(table, metric="nll")[method].mean()
        own = {"score": sum(means.values()) / 2, "nll": nll, "n": len(scores["final_accuracy"])}
        lines.append({"trial": trial, **one.changes, **means, **own})
    return pd.DataFrame(lines)


def _best_first(rankings: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(rankings).sort_values("score", ascending=False, kind="stable", ignore_index=True)


def tried(method: str, dataset: str) -> pd.DataFrame:
    """All stored trials of a method on a data set before the final stage, as ``ranking`` gives them."""
    return _best_first([ranking(method, dataset, name) for name in STAGES[method]])


def by_title() -> dict[str, dict[str, pd.DataFrame]]:
    """``tried`` by a data set's name as a chapter calls it, then by method."""
    return {paper.LABELS[d]: {method: tried(method, d) for method in METHODS} for d in MNIST_SIZES}


def best(method: str, dataset: str, epochs: int | None = None) -> dict[str, Any]:
    """The settings that won the final stage, with what was fixed; of all, or of those with so many epochs."""
    ranked = ranking(method, dataset, "final")
    winner = int(ranked.trial[0] if epochs is None else ranked.trial[ranked.epochs == epochs].iloc[0])
    return MNIST_SIZES[dataset] | trials(method, dataset, "final")[winner]
