"""The choice of settings for accuracy and likelihood together, on validation data; one budget but for joint training.

ProtoCL as ``protocl_tuning.py`` chose it is over-confident. Here labels may be smoothed, memory may weigh more, the
embedding may have a rate of dropout of its own and the noise may be another or learned. Replay, joint training and the
baselines get the same room. Configurations are trained on nine tenths of the training data and compared on the last:

- ``drawn``: one maximin Latin hypercube over all settings of ProtoCL and replay, and one trial before it. Both methods
  take the same trials, replay without the settings that it has not, so both have as many trials and in each of them as
  many steps. FROMP, S-FSVI and HIBNN have as many trials of their own settings and at most as many passes over a task
  (``BASELINES``). Of joint training, every combination of a small grid. One seed.
- ``final``: the best three of each but joint training on two other seeds, so that no winner won by its seed.

The score asks for accuracy and calibration: the mean of P_T and triangle mean, in percent, less five points for every
nat of negative log-likelihood after the last task. ``rows.py`` states the winners and a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import pandas as pd

from paper_lib.experiments.protocl_tuning import SCENARIO, determined, latin_hypercube, scored
from paper_lib.rows import MNIST_SIZES, MNISTS, ROWS
from paper_lib.sweep import Selection

TRIALS = 20
FINALISTS = 3
SEEDS = {"drawn": (100,), "final": (101, 102)}
"""Stages and their seeds, other than those of the runs that are reported."""

POINTS_A_NAT = 5.0
"""What a nat of negative log-likelihood costs: a tenth of one weighs as much as half a point of accuracy."""

GRID: dict[Any, tuple[Any, ...]] = {
    "learning_rate": (1e-4, 2e-4, 5e-4),
    ("epochs", "oversample", "replay_weight"): (
        *((3, True, 4.0), (3, True, 16.0), (3, True, 64.0), (6, True, 1.0), (6, True, 4.0), (6, True, 16.0)),
        *((6, False, 16.0), (6, False, 64.0), (12, False, 16.0), (12, False, 64.0)),
    ),
    "dropout": (0.0, 0.2, 0.5),
    "embedding_dropout": (0.0, 0.2),
    "weight_decay": (0.0, 1e-4, 1e-3),
    "label_smoothing": (0.0, 0.05, 0.1, 0.2),
    "class_prior": ("counts", "uniform"),
    ("noise_var", "learn_noise_var"): ((0.05, False), (0.2, False), (0.05, True)),
    "forget": (1.0, 0.999),
}
"""What is tuned: names, or names that change together, to their values. An oversampled epoch takes twice the steps and
weighs memory as a plain one at sixteen times the weight does, at the last task."""

FIXED = {"evidence_mode": "cumulative"}
"""What predicted best without calibration, of ProtoCL."""

FIRST: dict[str, Any] = {
    **{"learning_rate": 1e-4, "epochs": 6, "oversample": True, "replay_weight": 16.0, "dropout": 0.2},
    **{"embedding_dropout": 0.2, "weight_decay": 1e-3, "label_smoothing": 0.1, "class_prior": "counts"},
    **{"noise_var": 0.05, "learn_noise_var": False, "forget": 0.999},
}
"""A trial before those that are drawn: ProtoCL's settings without calibration on Split-MNIST, with labels smoothed and
memory four times as heavy, which was known to help."""

LONGEST = max(epochs for epochs, *_ in GRID["epochs", "oversample", "replay_weight"])
"""Passes over a task of the longest trial of replay."""

PASSES = (3, 6, LONGEST)

BASELINES: dict[str, dict[Any, tuple[Any, ...]]] = {
    "fromp": {
        "learning_rate": (1e-4, 3e-4, 1e-3),
        "epochs": PASSES,
        "temperature": (1.0, 10.0, 100.0),
        "prior_precision": (1e-4, 1e-3, 1e-2),
        "clip": (0.1, 2.0, 100.0),
        "selection": ("lambda_descend", "random"),
    },
    "sfsvi": {
        "learning_rate": (2e-4, 5e-4, 1e-3, 2e-3),
        "epochs": PASSES,
        "num_context": (10, 20, 40),
        "prior_var": (1e-3, 1e-2, 1e-1),
        "divergence_weight": ("equal", "normalized"),
        "init_log_var": ((-10.0, -8.0), (-7.0, -5.0)),
        "carry_moments": (True, False),
    },
    "hibnn": {
        "learning_rate": (1e-3, 3e-3, 1e-2),
        "epochs": PASSES,
        "likelihood_epochs": PASSES,
        "batch_size": (64, 128, 512),
        "prior_var": (0.1, 0.7),
        "init_log_var": (-10.0, -6.0),
        "stick_prior": ((5.0, 1.0), (20.0, 1.0)),
    },
}
"""What is tuned of the baselines. Before the trials drawn from it, each has its reference's settings with ``LONGEST``
passes: a fraction of the reference's own but for FROMP, whose are ten. HIBNN's passes by maximum likelihood, over the
first task alone, come on top."""

METHODS = ("protocl", "replay", *BASELINES, "joint")

JOINT = {"learning_rate": (3e-4, 1e-3), "epochs": (10, 20), "dropout": (0.0, 0.3)}
"""Joint training has no memory to weigh and starts afresh for every task, so a trial takes several times as long."""


@cache
def trials(method: str) -> list[dict[str, Any]]:
    """The settings of the first stage, in the order of their trial numbers; the same on every data set."""
    if method == "joint":
        return [dict(zip(JOINT, values, strict=True)) for values in product(*JOINT.values())]
    if method in BASELINES:
        grid = BASELINES[method]
        reference, _ = ROWS[method].build(MNISTS[0], "paper", {"epochs": LONGEST, "likelihood_epochs": LONGEST})
        return [{name: getattr(reference, name) for name in grid}, *latin_hypercube(grid, TRIALS, seed=1907)]
    return [_of(method, FIXED | settings) for settings in (FIRST, *latin_hypercube(GRID, TRIALS, seed=1907))]


def _of(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that a method takes; of ProtoCL the dropout of the embedding is the last of the layers'."""
    hidden, embedding = settings["dropout"], settings["embedding_dropout"]
    rates = {"dropout": (hidden, hidden, embedding) if method == "protocl" else hidden}
    return {name: value for name, value in (settings | rates).items() if name in ROWS[method].takes}


def selections(method: str, dataset: str, stage: str) -> list[Selection]:
    """One selection a configuration of a stage, in the order of their trial numbers."""
    return list(_numbered(method, dataset, stage).values())


def _numbered(method: str, dataset: str, stage: str) -> dict[int, Selection]:
    numbers = range(len(trials(method)))
    if stage == "final":
        numbers = sorted(map(int, ranking(method, dataset, "drawn").trial[:FINALISTS]))
    return {
        trial: Selection(
            *(dataset, SCENARIO, "paper", "validation", SEEDS[stage]),
            rows=(method,),
            changes=trials(method)[trial],
        )
        for trial in numbers
    }


def stages(method: str) -> tuple[str, ...]:
    """The stages of a method; joint training, of few trials that each take long, has one."""
    return ("drawn",) if method == "joint" else ("drawn", "final")


def known(method: str, dataset: str) -> Iterator[Selection]:
    """The selections of all stages that the stored trials of the stages before them determine."""
    return determined(stages(method), partial(selections, method, dataset))


@cache
def ranking(method: str, dataset: str, stage: str) -> pd.DataFrame:
    """The stored trials of a method on a data set in a stage, best first.

    Returns:
        ``trial``, a column a setting, ``final_accuracy`` (P_T) and ``triangle_mean`` in percent, ``nll`` after the last
        task in nats, their ``score`` and ``n`` seeds.

    Raises:
        ValueError: a trial has not been run.
    """
    table = scored(method, _numbered(method, dataset, stage))
    table["score"] -= POINTS_A_NAT * table.nll
    return table.sort_values("score", ascending=False, kind="stable", ignore_index=True)


def best(method: str, dataset: str) -> dict[str, Any]:
    """The settings that won the last stage, with what was fixed."""
    winner = int(ranking(method, dataset, stages(method)[-1]).trial[0])
    fixed = ROWS[method].settings if method in BASELINES else MNIST_SIZES
    return {**fixed[dataset], **trials(method)[winner]}
