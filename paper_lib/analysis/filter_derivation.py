"""The steps of Section 5 and Appendix G, each beside a route that does not use its formula.

- The variance of a step of a weight's optimum (eq:transition_dynamics): simulated steps, optima where the slope is 0.
- The prior variance of a weight without data: simulated paths.
- Lemma 1 (eq:bnn_kf): Bayes' rule by sums over a grid of the weight's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from paper_lib.inference.kalman import (
    WeightBelief,
    condition_weights,
    linearise,
    predict_weights,
    stationary_var,
    transition_var,
    weight_targets,
)
from paper_lib.rng import generator

F64 = torch.float64


@dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        seed: of every random number.
    """

    seed: int = 0


class Result(NamedTuple):
    """What ``run`` found.

    Attributes:
        steps: of ``transitions``.
        idle: of ``variance_without_data``.
        lemma: of ``lemma_1``.
    """

    steps: pd.DataFrame
    idle: pd.DataFrame
    lemma: pd.DataFrame


def run(config: Config) -> Result:
    """All three checks."""
    return Result(*(check(seed=config.seed) for check in (transitions, variance_without_data, lemma_1)))


def transitions(
    num_weights: int = 5, reversion: float = 0.2, eta_var: float = 0.3, num_draws: int = 20_000, seed: int = 0
) -> pd.DataFrame:
    """Variance of the step of each weight's optimum: both formulas, and a simulation.

    Source: Kessler et al. 2023, eq:transition_dynamics. Weights of a random quadratic loss take one Ornstein-Uhlenbeck
    step. The optimum of each, before and after, is where autograd's slope is zero, so no formula for it is used.

    Returns:
        Columns ``weight, corrected, printed, simulated, se``.
    """
    g = generator(seed, "transitions")
    root, theta = (torch.randn(n, num_weights, generator=g, dtype=F64) for n in (num_weights, 1))
    hessian = root @ root.mT + 0.1 * torch.eye(num_weights, dtype=F64)
    noise = torch.randn(num_draws, num_weights, generator=g, dtype=F64)
    moved = (1 - reversion) * theta + eta_var**0.5 * noise
    steps = optimum_by_slope(hessian, moved) - (1 - reversion) * optimum_by_slope(hessian, theta)
    squares = steps.square()  # the step's mean is zero
    return pd.DataFrame(
        {
            "weight": np.arange(1, num_weights + 1),
            "corrected": transition_var(hessian, eta_var),
            "printed": transition_var(hessian, eta_var, "printed"),
            "simulated": squares.mean(0),
            "se": squares.std(0) / num_draws**0.5,
        }
    )


def optimum_by_slope(hessian: Tensor, theta: Tensor) -> Tensor:
    """For each weight where autograd's slope of ``-theta' H theta / 2`` is zero, the others held ``(..., weight)``.

    The slope along a coordinate is a line, so two of its values say where it is zero.
    """

    def slope(points: Tensor, i: int) -> Tensor:
        points = points.detach().requires_grad_()
        loss = -0.5 * torch.einsum("...i,ij,...j->", points, hessian, points)
        return torch.autograd.grad(loss, points)[0][..., i]

    optima = []
    for i in range(theta.shape[-1]):
        at = theta.expand(2, *theta.shape).clone()
        at[0, ..., i], at[1, ..., i] = 0.0, 1.0
        low, high = slope(at, i)
        optima.append(low / (low - high))
    return torch.stack(optima, dim=-1)


def variance_without_data(
    reversion: float = 0.05, eta_var: float = 0.1, num_steps: int = 60, num_draws: int = 4000, seed: int = 0
) -> pd.DataFrame:
    """Prior variance of a weight over steps without data, by the corrected and the printed exponent and simulated.

    Source: Kessler et al. 2023, App. G, the prior variance of the next step.

    Returns:
        Columns ``step, corrected, printed, simulated, limit``; all begin at variance 1.
    """
    g = generator(seed, "variance without data")
    start = WeightBelief(torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64))
    corrected = printed = start
    weights = torch.randn(num_draws, generator=g, dtype=F64)
    limit = stationary_var(reversion, eta_var)
    rows = []
    for number in range(num_steps + 1):
        rows.append((number, float(corrected.var), float(printed.var), float(weights.var(correction=0)), limit))
        corrected = predict_weights(corrected, reversion, eta_var)
        printed = predict_weights(printed, reversion, eta_var, "printed")
        noise = torch.randn(num_draws, generator=g, dtype=F64)
        weights = (1 - reversion) * weights + eta_var**0.5 * noise
    return pd.DataFrame(rows, columns=["step", "corrected", "printed", "simulated", "limit"])


def lemma_1(
    num_steps: int = 25, reversion: float = 0.05, eta_var: float = 0.02, noise_var: float = 0.05, seed: int = 0
) -> pd.DataFrame:
    """One weight of a 2-4-1 tanh network followed over observations, by Lemma 1 and by numerical integration.

    Source: Kessler et al. 2023, eq:bnn_kf_mean_app and eq:bnn_kf_variance_app. All other weights are known. The numbers
    come from Bayes' rule and the transition on a grid of the weight's values, once with the network linearised at
    theta_0 = 0.5 as the lemma does and once with the network itself.

    Returns:
        Columns ``route, time, mean, sd, truth``; routes ``lemma``, ``printed target`` (y where the linearisation asks
        for y less its constant), ``linearised, by integration`` and ``network, by integration``.
    """
    g = generator(seed, "lemma 1")
    theta = torch.randn(17, generator=g, dtype=F64)
    x = torch.randn(num_steps, 2, generator=g, dtype=F64)
    which, grid = 0, torch.linspace(-4, 4, 1601, dtype=F64)
    theta[which] = 0.5

    def network(weights: Tensor, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(inputs @ weights[:8].reshape(2, 4) + weights[8:12])
        return hidden @ weights[12:16] + weights[16]

    def with_weight(value: Tensor) -> Tensor:
        return torch.cat([theta[:which], value[None], theta[which + 1 :]])

    outputs = torch.vmap(lambda value: network(with_weight(value), x))(grid).mT
    truth, y = [torch.tensor(1.0, dtype=F64)], []
    for x_t in x:
        step, noise = torch.randn(2, generator=g, dtype=F64)
        truth.append((1 - reversion) * truth[-1] + eta_var**0.5 * step)
        y.append(network(with_weight(truth[-1]), x_t) + noise_var**0.5 * noise)
    y = torch.stack(y)

    lin = linearise(network, theta, x)
    gradient = lin.gradient[:, which]
    targets = weight_targets(lin, y)[:, which]
    found = {
        "lemma": _filtered(gradient, targets, reversion, eta_var, noise_var),
        "printed target": _filtered(gradient, y, reversion, eta_var, noise_var),
        "linearised, by integration": _integrated(
            grid, lin.value[:, None] + gradient[:, None] * (grid - theta[which]), y, reversion, eta_var, noise_var
        ),
        "network, by integration": _integrated(grid, outputs, y, reversion, eta_var, noise_var),
    }
    tables = [
        pd.DataFrame({"time": np.arange(1, num_steps + 1), "mean": mean, "sd": var.sqrt(), "truth": truth[1:]}).assign(
            route=route
        )
        for route, (mean, var) in found.items()
    ]
    return pd.concat(tables, ignore_index=True).astype({"truth": float})


def _filtered(
    gradient: Tensor, targets: Tensor, reversion: float, eta_var: float, noise_var: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance after each observation by Lemma 1, from a standard normal."""
    belief = WeightBelief(torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64))
    beliefs = []
    for g, target in zip(gradient, targets, strict=True):
        belief = condition_weights(predict_weights(belief, reversion, eta_var), g, target, noise_var)
        beliefs.append(belief)
    return tuple(torch.cat(leaf) for leaf in zip(*beliefs, strict=True))


def _integrated(
    grid: Tensor, outputs: Tensor, y: Tensor, reversion: float, eta_var: float, noise_var: float
) -> tuple[Tensor, Tensor]:
    """The same by sums over a grid of the weight's values; ``outputs`` ``(time, grid)``."""
    transition = (-(grid[:, None] - (1 - reversion) * grid).square() / (2 * eta_var)).softmax(0)
    weight = (-grid.square() / 2).softmax(0)
    moments = []
    for output, y_t in zip(outputs, y, strict=True):
        log_likelihood = -(y_t - output).square() / (2 * noise_var)
        weight = (log_likelihood + (transition @ weight).log()).softmax(0)
        mean = weight @ grid
        moments.append((mean, weight @ (grid - mean).square()))
    return tuple(torch.stack(leaf) for leaf in zip(*moments, strict=True))
