"""What one or two weights remember of a task after a larger one, in closed form (Sec. 5, App. G).

Optimal weights drift by an Ornstein-Uhlenbeck step and every point is a noisy look at them, see ``inference.kalman``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from paper_lib.checks import each_within, one_of, within
from paper_lib.inference.gaussian import Gaussian, condition_on
from paper_lib.inference.kalman import Linearisation, WeightBelief, condition_weights, predict_weights, weight_targets

F64 = torch.float64

TARGETS = (1.0, -1.0)
"""What a point of task 1 and one of task 2 are observed to be, before noise."""

UPDATES = ("full", "independent", "Lemma 1")
"""How a point changes the belief about two weights, see ``two_weights``."""


@dataclass(frozen=True)
class Config:
    """Settings; the paper states none of them.

    Attributes:
        num_first: numbers of points of task 1, each a curve of the one-weight panels.
        max_ratio: points of task 2 come in until they are so many times those of task 1.
        reversion: Ornstein-Uhlenbeck speed h of the weight that drifts, at least 0 and below 1.
        eta_var: variance of its step.
        degrees: angle between the gradients of the two tasks, for two weights.
    """

    num_first: tuple[int, ...] = (10, 50, 250)
    max_ratio: float = 10.0
    reversion: float = 0.01
    eta_var: float = 0.001
    degrees: float = 60.0

    def __post_init__(self) -> None:
        each_within("num_first", self.num_first, 1)
        within("num_first", max(self.num_first, default=0), 1, 10_000)
        within("max_ratio", self.max_ratio, 1, 1000)
        within("reversion", self.reversion, 0, 1, below=True)
        within("eta_var", self.eta_var, 0)
        within("degrees", self.degrees, 0, 180)


class Result(NamedTuple):
    """What ``run`` found.

    Attributes:
        still: of ``one_weight`` without drift.
        drifting: of ``one_weight`` with the configured drift.
        pairs: of ``two_weights``, by ``model``.
    """

    still: pd.DataFrame
    drifting: pd.DataFrame
    pairs: pd.DataFrame


def run(config: Config) -> Result:
    """What each model remembers of task 1, at every ratio of sizes."""
    models = {"same direction": (0.0, "full")}
    for update in UPDATES:
        models[f"{config.degrees:g}° apart, {update}"] = (config.degrees, update)
    pairs = [two_weights(*model, 50, config.max_ratio).assign(model=name) for name, model in models.items()]
    return Result(
        one_weight(config.num_first, config.max_ratio),
        one_weight(config.num_first, config.max_ratio, config.reversion, config.eta_var),
        pd.concat(pairs, ignore_index=True),
    )


def one_weight(
    num_first: Sequence[int],
    max_ratio: float,
    reversion: float = 0.0,
    eta_var: float = 0.0,
    noise_var: float = 1.0,
    prior_var: float = 1e6,
) -> pd.DataFrame:
    """What a weight that is observed directly remembers of task 1 while points of task 2 come in.

    Source: Kessler et al. 2023, Lemma 1. The posterior mean is linear in the targets, so a task's share in it is the
    mean for targets that are 1 in that task and 0 in the other. The noise is left at its mean, zero.

    Args:
        num_first: numbers of points of task 1, each a curve.
        max_ratio: points of task 2 come in until they are so many times those of task 1.
        reversion: Ornstein-Uhlenbeck speed h.
        eta_var: variance of its step.
        noise_var: variance of an observation.
        prior_var: variance before any data, about 0.

    Returns:
        Columns ``num_first, num_second, ratio, share_1, share_2, error``; ``error`` is the distance of the mean from
        the target of task 1 over the distance of the two targets.
    """
    one, in_task = torch.ones((), dtype=F64), torch.eye(2, dtype=F64)

    def step(belief: WeightBelief, target: Tensor) -> WeightBelief:
        return condition_weights(predict_weights(belief, reversion, eta_var), one, target, noise_var)

    belief = WeightBelief(torch.zeros(2, dtype=F64), torch.full((2,), prior_var, dtype=F64))
    starts = {}
    for number in range(1, max(num_first) + 1):
        belief = step(belief, in_task[0])
        starts[number] = belief
    belief = WeightBelief(*(torch.stack(leaf) for leaf in zip(*(starts[n] for n in num_first), strict=True)))
    rows = []
    for number in range(round(max_ratio * max(num_first)) + 1):
        if number:
            belief = step(belief, in_task[1])
        for n, (share_1, share_2) in zip(num_first, belief.mean.tolist(), strict=True):
            if number <= max_ratio * n:
                error = _error(share_1 * TARGETS[0] + share_2 * TARGETS[1])
                rows.append((n, number, number / n, share_1, share_2, error))
    return pd.DataFrame(rows, columns=["num_first", "num_second", "ratio", "share_1", "share_2", "error"])


def two_weights(
    degrees: float,
    update: str,
    num_first: int,
    max_ratio: float,
    noise_var: float = 1.0,
    prior_var: float = 100.0,
    from_axis: float = 20.0,
) -> pd.DataFrame:
    """What two weights remember of task 1, if the tasks read them out along different directions.

    Args:
        degrees: angle between the gradients of the two tasks, both of length 1.
        update: ``full`` conditions both weights on a point; ``independent`` then drops their correlation and keeps
            their variances; ``Lemma 1`` conditions each weight alone, the other one held at its mean.
        num_first: points of task 1.
        max_ratio: points of task 2 come in until they are so many times those of task 1.
        noise_var: variance of an observation.
        prior_var: variance of each weight before any data, about 0.
        from_axis: angle in degrees from the first weight's axis to the gradient of task 1; does not count for ``full``.

    Returns:
        Columns ``num_second, ratio, error``, ``error`` as ``one_weight``'s for the output of task 1.
    """
    one_of("update", update, UPDATES)
    angles = torch.deg2rad(torch.tensor([from_axis, from_axis + degrees], dtype=F64))
    gradients = torch.stack([angles.cos(), angles.sin()], dim=1)
    state = Gaussian(torch.zeros(2, dtype=F64), prior_var * torch.eye(2, dtype=F64))
    noise = noise_var * torch.eye(1, dtype=F64)
    rows = []
    for number in range(1, round((1 + max_ratio) * num_first) + 1):
        task = int(number > num_first)
        gradient, target = gradients[task : task + 1], torch.tensor([TARGETS[task]], dtype=F64)
        if update == "Lemma 1":
            belief = WeightBelief(state.mean, state.cov.diagonal())
            y = weight_targets(Linearisation(gradient @ state.mean, gradient, state.mean), target)
            mean, var = condition_weights(belief, gradient[0], y[0], noise_var)
            state = Gaussian(mean, var.diag())
        else:
            state, _ = condition_on(state, target, gradient, noise)
        if update == "independent":
            state = Gaussian(state.mean, state.cov.diagonal().diag())
        if (second := number - num_first) >= 0:
            rows.append((second, second / num_first, _error(float(gradients[0] @ state.mean))))
    return pd.DataFrame(rows, columns=["num_second", "ratio", "error"])


def _error(output: float) -> float:
    """Distance from the target of task 1, over that of the two targets."""
    return abs(output - TARGETS[0]) / abs(TARGETS[0] - TARGETS[1])
