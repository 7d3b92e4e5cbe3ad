"""Printed formulas that do not hold, each beside the corrected one and a third number that uses neither.

M1 to M7 number the points as the chapter does. Every check is a function that returns a ``Check``; the third number
comes from simulation, quadrature, brute force or the definition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from paper_lib import metrics
from paper_lib.analysis import filter_derivation, protocl_derivation
from paper_lib.checks import within
from paper_lib.inference.gaussian import (
    Gaussian,
    Prototypes,
    condition_dirichlet,
    condition_prototypes,
    dirichlet_log_predictive,
    log_density,
)
from paper_lib.inference.kalman import WeightBelief, condition_weights, linearise, weight_targets
from paper_lib.rng import generator

F64 = torch.float64

SOURCE = "`papermill notebooks/errata.ipynb out.ipynb`\n`python -m pytest tests/test_errata.py`"
"""What recomputes the chapter's table, and what holds its claims."""


@dataclass(frozen=True)
class Config:
    """Settings of the checks.

    Attributes:
        num_steps: Ornstein-Uhlenbeck steps without data.
        reversion: their speed h, above 0 and below 1.
        num_draws: simulated paths, weights or class probabilities, at least 2.
        seed: of every random number.
    """

    num_steps: int = 20
    reversion: float = 0.2
    num_draws: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        within("num_steps", self.num_steps, 1)
        within("num_draws", self.num_draws, 2)
        within("reversion", self.reversion, 0, 1, above=True, below=True)


class Check(NamedTuple):
    """One quantity, three times.

    Attributes:
        point: M1 to M7.
        quantity: what the numbers are.
        printed: by the printed formula or claim.
        corrected: by the corrected one.
        independent: by another route.
        route: that route.
    """

    point: str
    quantity: str
    printed: float
    corrected: float
    independent: float
    route: str


class Result(NamedTuple):
    """What ``run`` found.

    Attributes:
        checks: a row a check, columns as ``Check``.
        drift: M1 step by step, of ``filter_derivation.variance_without_data``.
    """

    checks: pd.DataFrame
    drift: pd.DataFrame


def run(config: Config) -> Result:
    """All checks."""
    drift = filter_derivation.variance_without_data(
        config.reversion, 0.1, config.num_steps, config.num_draws, config.seed
    )
    step = filter_derivation.transitions(num_draws=config.num_draws, seed=config.seed).iloc[0]
    last, by = drift.iloc[-1], "simulation"
    rows = [
        Check("M1", "prior variance of a drifting weight", last.printed, last.corrected, last.simulated, by),
        Check("M2", "variance of a step of the optimal weight", step.printed, step.corrected, step.simulated, by),
        linearisation_offset(),
        shared_prototype(config),
        shared_probabilities(config),
        average_not_sum(),
        sign_of_the_bound(config),
        prototype_variance(),
    ]
    return Result(pd.DataFrame(rows), drift)


def shown(checks: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """The checks to be read: what is computed and by which route, and three numbers of so many significant digits."""
    numbers = ["printed", "corrected", "independent"]
    what = checks.point + ", " + checks.quantity + " (" + checks.route + ")"
    return checks[numbers].map(lambda value: f"{value:.{digits}g}").assign(quantity=what)[["quantity", *numbers]]


def numbers(checks: pd.DataFrame) -> dict[str, float]:
    """What the chapter's prose cites: the least or largest distance from the independent number, percent of it.

    Returns:
        ``corrected_off``, the largest of a corrected number; ``printed_off``, the least of a printed number; and the
        three numbers of M3, ``m3_printed``, ``m3_corrected`` and ``m3_independent``.
    """
    m3 = checks.set_index("point").loc["M3"]
    off = checks[["printed", "corrected"]].sub(checks.independent, axis=0).div(checks.independent, axis=0).abs() * 100
    return {
        "corrected_off": round(float(off.corrected.max()), 8),
        "printed_off": round(float(off.printed.min()), 8),
        **{f"m3_{name}": round(float(m3[name]), 8) for name in ("printed", "corrected", "independent")},
    }


def linearisation_offset() -> Check:
    """M3: posterior mean of the weight of a small network with a constant, by the output itself and by what is left."""
    x, y, noise_var = torch.tensor(1.0, dtype=F64), torch.tensor([1.6], dtype=F64), 0.1
    prior = WeightBelief(torch.tensor([0.3], dtype=F64), torch.tensor([0.04], dtype=F64))

    def f(theta: Tensor, x: Tensor) -> Tensor:
        return 1 + torch.tanh(theta * x)

    lin = linearise(f, prior.mean, x)
    gradient = lin.gradient[0]
    printed, corrected = (
        condition_weights(prior, gradient, target, noise_var).mean.item() for target in (y, weight_targets(lin, y)[0])
    )
    theta = torch.linspace(-2, 3, 20_001, dtype=F64)
    log_joint = -0.5 * ((y - f(theta, x)) ** 2 / noise_var + (theta - prior.mean) ** 2 / prior.var)
    exact = (theta * log_joint.softmax(0)).sum().item()
    return Check("M3", "posterior mean of a weight", printed, corrected, exact, "quadrature, not linearised")


def shared_prototype(config: Config) -> Check:
    """M4: log density of four points of one class, their prototype integrated out by quadrature."""
    z = 1 + math.sqrt(0.05) * torch.randn(4, 1, generator=generator(config.seed, "shared"), dtype=F64)
    prior = Gaussian(torch.zeros(1, dtype=F64), torch.full((1, 1), 1.05, dtype=F64))
    printed = log_density(prior, z).sum().item()
    centre = torch.linspace(-6, 6, 48_001, dtype=F64)
    terms = -0.5 * ((z - centre).square() / 0.05 + math.log(2 * math.pi * 0.05)).sum(0)
    terms = terms - 0.5 * (centre.square() + math.log(2 * math.pi))
    integral = (terms.logsumexp(0) + (centre[1] - centre[0]).log()).item()
    corrected = protocl_derivation.joint_log_density(z, 1.0, 0.05)
    return Check("M4", "log density of 4 points of a class", printed, corrected, integral, "quadrature")


def shared_probabilities(config: Config) -> Check:
    """M4: probability that three labels are all of the first of five classes, by draws of the class probabilities."""
    alpha = torch.full((5,), 0.78, dtype=F64)
    hit = torch.eye(5, dtype=F64)[0]
    logs = torch.stack([dirichlet_log_predictive(condition_dirichlet(alpha, n * hit))[0] for n in range(3)])
    printed, corrected = (3 * logs[0]).exp().item(), logs.sum().exp().item()
    draws = np.random.default_rng([config.seed, 4]).dirichlet(alpha.numpy(), config.num_draws)
    drawn = (draws[:, 0] ** 3).mean().item()
    return Check("M4", "probability that 3 labels are class 1", printed, corrected, drawn, "draws from the prior")


def average_not_sum() -> Check:
    """M5: performance after two tasks of 100 test points each, against the share of all points that are right."""
    right = np.array([[95, np.nan], [80, 90]])
    printed, corrected = right[1].sum().item() / 100, metrics.final_accuracy(right / 100)
    return Check("M5", "performance after 2 tasks", printed, corrected, (80 + 90) / 200, "pooled points")


def sign_of_the_bound(config: Config) -> Check:
    """M6: mean of a Gaussian q after going up and after going down the printed objective, and the exact mean."""
    y = 1 + torch.randn(9, generator=generator(config.seed, "sign"), dtype=F64)

    prior = torch.distributions.Normal(torch.zeros((), dtype=F64), 1.0)

    def objective(mean: Tensor) -> Tensor:
        q = torch.distributions.Normal(mean, 1 / math.sqrt(len(y) + 1))
        expected = -0.5 * ((y - mean).square() + q.variance + math.log(2 * math.pi)).sum()
        return torch.distributions.kl_divergence(q, prior) - expected

    def walk(direction: float) -> float:
        mean = torch.zeros((), dtype=F64, requires_grad=True)
        for _ in range(60):
            step = torch.autograd.grad(objective(mean), mean)[0]
            mean = (mean + direction * 0.05 * step).detach().requires_grad_()
        return mean.item()

    exact = y.sum().item() / (len(y) + 1)
    return Check("M6", "mean of q after 60 gradient steps", walk(1.0), walk(-1.0), exact, "conjugate posterior")


def prototype_variance() -> Check:
    """M7: variance of a prototype after three points, if the second argument of N is read as it is printed."""
    noise_var, n = 0.05, 3
    prior = Prototypes(torch.tensor([4.0], dtype=F64), torch.zeros(1, 1, dtype=F64))
    posterior = condition_prototypes(prior, torch.tensor([float(n)]), torch.zeros(1, 1, dtype=F64), noise_var)
    precision = posterior.precision.item()
    centre = np.linspace(-3, 3, 60_001)
    log_weight = -0.5 * (centre**2) * (4.0 + n / noise_var)  # three points at 0, times the prior
    variance = np.average(centre**2, weights=np.exp(log_weight - log_weight.max())).item()
    return Check("M7", "variance of a prototype after 3 points", precision, 1 / precision, variance, "quadrature")
