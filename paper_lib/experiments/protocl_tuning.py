"""The choice of ProtoCL's and replay's settings, on validation data, with one written grid and budget for both.

``BUDGET`` configurations a method are drawn without replacement from its grid by a fixed generator. Each is trained as
in the final runs, but on nine tenths of the training data, and evaluated on the last tenth. The configuration with the
highest mean P_T wins; ``experiments/protocl.py`` states it and a test compares the two.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from paper_lib import runs
from paper_lib.checks import one_of
from paper_lib.methods import Method
from paper_lib.methods.protocl import ProtoCL
from paper_lib.methods.replay import Replay

VERSION = 1
BUDGET = 24
METHODS = {"protocl": ProtoCL, "replay": Replay}

SHARED = {
    "learning_rate": (1e-4, 3e-4, 1e-3),
    "dropout": (0.0, 0.2, 0.5),
    "weight_decay": (0.0, 1e-4, 1e-3),
    "replay_weight": (1.0, 2.0, 4.0),
}
"""What is tuned of both methods."""

GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "protocl": SHARED
    | {
        "evidence_mode": ("cumulative", "recompute_final"),
        "class_prior": ("counts", "uniform"),
        "forget": (1.0, 0.999, 0.99),
    },
    "replay": SHARED | {"oversample": (True, False)},
}

FIXED = {"split_mnist": {"batch_size": 64, "epochs": 50}, "split_fmnist": {"batch_size": 128, "epochs": 50}}
"""What is not tuned: the release's batch sizes and the paper's epochs, for both methods."""


@dataclass(frozen=True)
class Config:
    """Parameters of ``paper-lib run protocl_tuning``.

    Attributes:
        dataset: ``split_mnist`` or ``split_fmnist``.
        scenario: only ``class_incremental``.
        preset: only ``paper``.
        seeds: seeds that advance together, other than the final runs' first ones on purpose.
        device: ``cpu`` or ``cuda:0``.
        methods: ``protocl``, ``replay`` or both.
        trials: which configurations of the draw to run, all of them if None.
    """

    dataset: str = "split_mnist"
    scenario: str = "class_incremental"
    preset: str = "paper"
    seeds: tuple[int, ...] = (100, 101, 102)
    device: str = "cpu"
    methods: tuple[str, ...] = ("protocl", "replay")
    trials: tuple[int, ...] | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, FIXED)
        one_of("scenario", self.scenario, ("class_incremental",))
        one_of("preset", self.preset, ("paper",))
        for name in self.methods:
            one_of("methods", name, METHODS)
        for trial in self.trials or ():
            if not 0 <= trial < BUDGET:
                raise ValueError(f"trials: {trial} is not one of 0 to {BUDGET - 1}")


def drawn(method: str) -> list[dict[str, Any]]:
    """The ``BUDGET`` settings of a method, in the order of the draw."""
    grid = GRIDS[method]
    product = list(itertools.product(*grid.values()))
    chosen = np.random.default_rng(2301).choice(len(product), BUDGET, replace=False)
    return [dict(zip(grid, product[i], strict=True)) for i in chosen]


def configured(method: str, dataset: str, trial: int) -> Method:
    """One configuration of the draw."""
    return METHODS[method](**FIXED[dataset], **drawn(method)[trial])


def jobs(config: Config) -> list[runs.Job]:
    """One job a configuration, the two methods in turn."""
    stream = {"dataset": config.dataset, "eval_split": "validation", "validation_fraction": 0.1}
    return [
        runs.Job(
            *("protocl_tuning", VERSION, f"{method}-{trial:02d}"),
            *(configured(method, config.dataset, trial), stream, "paper"),
        )
        for trial in (range(BUDGET) if config.trials is None else config.trials)
        for method in config.methods
    ]


def run(config: Config) -> pd.DataFrame:
    """Validation scores of every configuration, as a tidy table."""
    return runs.execute(jobs(config), config.seeds, config.device)


def ranking(method: str, dataset: str) -> pd.DataFrame:
    """The stored trials of a method on a data set with their settings, best first.

    Returns:
        A column a setting, then ``final_accuracy`` (P_T), its sd over seeds, ``triangle_mean`` and ``n``.
    """
    table = runs.stored("protocl_tuning")
    rows = []
    for (label, name, _, _), accuracy in runs.matrices(table).items():
        if name == dataset and label.startswith(f"{method}-"):
            final = accuracy[:, -1].mean(-1)
            scores = {
                "final_accuracy": final.mean(),
                "sd": final.std(ddof=1) if len(final) > 1 else np.nan,
                "triangle_mean": np.nanmean(accuracy, (1, 2)).mean(),
                "n": len(final),
            }
            rows.append({"trial": label, **drawn(method)[int(label[-2:])], **scores})
    if not rows:
        raise ValueError(f"no stored trial of {method!r} on {dataset!r}")
    return pd.DataFrame(rows).sort_values("final_accuracy", ascending=False, kind="stable", ignore_index=True)


def best(method: str, dataset: str) -> dict[str, Any]:
    """The settings that won, with what was fixed."""
    winner = ranking(method, dataset).iloc[0]
    grid = GRIDS[method]
    return FIXED[dataset] | {k: v for k, v in drawn(method)[int(winner.trial[-2:])].items() if k in grid}
