"""The metrics (App. B) on a small stream, with both of the bounds that they are read against.

Four learners: ``sgd`` keeps nothing, ``replay`` a small memory, ``joint`` is the multi-task bound (training afresh on
all tasks so far), ``single_task`` the single-task bound (a fresh network for each task).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, runs
from paper_lib.checks import one_of
from paper_lib.data.stream import DATASETS, SCENARIOS
from paper_lib.methods.replay import Replay, joint, sgd, single_task

VERSION = 1

PRESETS = {"quick": 20, "paper": 50}
"""Epochs of each preset."""

BY_HAND = ((1, np.nan, np.nan), (0.5, 1, np.nan), (0, 0.5, 1))
"""A learner that loses half of a task with every task that follows."""

PRINTED = {
    "VCL, Split-MNIST": 33.01,
    "VCL, Split-FMNIST": 32.77,
    "ProtoCL without memory, Split-MNIST": 33.25,
}
"""Kessler et al. 2023, Table 1 and Sec. 6: percent, called mean or average accuracies over five tasks."""

PRINTED_SE = {"VCL + coreset, MNIST": 18.56, "VCL + coreset, FMNIST": 16.96, "HIBNN, FMNIST": 20.21}
"""Kessler et al. 2023, Table 1: percentage points, called standard errors over 10 seeds."""


@dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        dataset: stream of tasks.
        scenario: which units compete, and whether the task is named at test time.
        preset: ``quick`` or ``paper``, which trains longer; the paper has no such figure.
        seeds: seeds that advance together.
        device: ``cpu`` or ``cuda:0``.
    """

    dataset: str = "split_digits"
    scenario: str = "class_incremental"
    preset: str = "quick"
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "cpu"

    def __post_init__(self) -> None:
        one_of("dataset", self.dataset, DATASETS)
        one_of("scenario", self.scenario, SCENARIOS)
        one_of("preset", self.preset, PRESETS)


def run(config: Config) -> pd.DataFrame:
    """Scores of every learner, seed and pair of tasks, as a tidy table."""
    settings = {"hidden": (64,), "epochs": PRESETS[config.preset], "batch_size": 64}
    learners = {
        "sgd": sgd(**settings),
        "replay": Replay(memory_per_task=50, **settings),
        "joint": joint(**settings),
        "single_task": single_task(**settings),
    }
    stream = {"dataset": config.dataset, "scenario": config.scenario}
    jobs = [runs.Job("metrics", VERSION, name, method, stream, config.preset) for name, method in learners.items()]
    return runs.execute(jobs, config.seeds, config.device)


def scores(a: NDArray) -> pd.DataFrame:
    """``P_k``, ``F_k`` and the triangle mean of one matrix, after each task."""
    a = np.asarray(a, dtype=float)
    tasks = range(1, len(a) + 1)
    return pd.DataFrame(
        {
            "P_k": metrics.average_accuracy(a),
            "F_k": metrics.forgetting(a),
            "triangle mean": [metrics.triangle_mean(a[:k, :k]) for k in tasks],
        },
        index=pd.Index(tasks, name="tasks learned, k"),
    ).round(3)


def identified() -> pd.DataFrame:
    """The accuracy that gives each printed number as a triangle mean under complete forgetting, and its P_5.

    Returns:
        Columns ``printed``, ``just_learned``, ``triangle_mean`` and ``final_accuracy``, percent.
    """
    unit = metrics.complete_forgetting(1.0, 5)
    rows = {}
    for name, printed in PRINTED.items():
        just_learned = printed / unit.triangle_mean
        score = metrics.complete_forgetting(just_learned, 5)
        rows[name] = (printed, just_learned, score.triangle_mean, score.final_accuracy)
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["printed", "just_learned", "triangle_mean", "final_accuracy"]
    ).round(2)


def largest_standard_error(num_seeds: int = 10, num_tries: int = 20_000, seed: int = 0) -> tuple[float, float]:
    """The largest standard error of accuracies between 0 and 100, by bound and by search.

    The sample variance is largest with half of the accuracies at either end: a convex function of each.

    Args:
        num_seeds: accuracies.
        num_tries: random sets of accuracies, half of them at the ends only.
        seed: of the search.

    Returns:
        The bound, and the largest found.
    """
    ends = 100.0 * (np.arange(num_seeds) % 2)
    rng = np.random.default_rng(seed)
    tries = 100 * rng.random((num_tries, num_seeds))
    tries[::2] = 100 * (tries[::2] > 50)
    found = tries.std(1, ddof=1).max() / np.sqrt(num_seeds)
    return float(ends.std(ddof=1) / np.sqrt(num_seeds)), float(found)
