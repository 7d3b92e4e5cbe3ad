r"""Bayesian linear regression, and the mixture of linear experts that is well specified where one line is not.

**One line.** :math:`y = \phi(x)^\top w + \epsilon`, :math:`\epsilon \sim \mathcal N(0, \beta^{-1})`,
:math:`w \sim \mathcal N(m_0, S_0)`. The posterior is Gaussian, so the posterior of one task is the prior of the next,
and tasks in sequence give what all data at once would give.

**Linear experts.** Prediction at an input must know which line holds there, so an expert owns a region of inputs as
well as a line. The model is of both :math:`x` and :math:`y`,

.. math:: p(x, y) = \sum_k \pi_k \, \mathcal N(x; \mu_k, \tau_k^{-1}) \, \mathcal N(y; w_k^\top \phi(x), \beta^{-1}),

and the gate :math:`p(k \mid x) \propto \pi_k \mathcal N(x; \mu_k, \tau_k^{-1})` follows from it. The fit is Bayesian:
:math:`\pi \sim \mathrm{Dir}(\alpha)`, :math:`w_k` and :math:`\mu_k` Gaussian, :math:`\beta` and the region size
:math:`\tau^{-1/2}` known. Mean-field variational inference, :math:`q(k_{1:n}) \, q(\pi) \, q(\mu) \, q(w)`, leaves
every factor in its conjugate family, so the posterior of one task can be the prior of the next. The region size is
known on purpose: were it learned, the experts would also be spent on the shape of :math:`p(x)`, and one task would take
them all.

All restarts run at once on a leading axis, and the best is kept. Predictions are torch distributions over :math:`y`,
one a point.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical, Dirichlet, MixtureSameFamily, MultivariateNormal, Normal
from torch.distributions.kl import kl_divergence

from paper_lib.inference.gaussian import LOG_2PI, Gaussian, condition_on, predict


def line_features(x: Tensor) -> Tensor:
    """The features ``(1, x)`` of a line, ``(..., 2)`` for inputs ``(...)``."""
    return torch.stack([torch.ones_like(x), x], -1)


def condition_line(prior: Gaussian, phi: Tensor, y: Tensor, noise_precision: float) -> tuple[Gaussian, Tensor]:
    """Posterior of the coefficients, and the log evidence of the targets.

    Source: Kessler et al. 2023, Sec. 4; Bishop 2006, eqs. 3.50 and 3.51.

    Args:
        prior: over coefficients, mean ``(..., dim)``.
        phi: features ``(..., n, dim)``.
        y: targets ``(..., n)``.
        noise_precision: one over the variance of the noise.

    Returns:
        The posterior, and the log evidence ``(...)`` given the prior.

    Raises:
        ValueError: for a noise precision that is not positive, and as ``gaussian.condition_on``.
    """
    _check_positive("noise_precision", noise_precision)
    scale = math.sqrt(noise_precision)
    posterior, log_likelihood = condition_on(prior, scale * y, scale * phi)
    return posterior, log_likelihood + y.shape[-1] * math.log(scale)


def predict_line(posterior: Gaussian, phi: Tensor, noise_precision: float) -> Normal:
    """Predictive distribution of a target at each point ``(..., n)``, for features ``(..., n, dim)``.

    Source: Bishop 2006, eqs. 3.58 and 3.59.
    """
    _check_positive("noise_precision", noise_precision)
    each = Gaussian(posterior.mean[..., None, :], posterior.cov[..., None, :, :])
    mean, cov = predict(each, phi[..., None, :], phi.new_full((1, 1), 1 / noise_precision))
    return Normal(mean[..., 0], cov[..., 0, 0].sqrt())


class LinearExperts(NamedTuple):
    """A belief about linear experts, a product of conjugate factors.

    Attributes:
        concentration: of the Dirichlet over mixture weights ``(..., expert)``.
        centre: over the centre of each expert's inputs, mean ``(..., expert, 1)``.
        coef: over each line, intercept and slope, mean ``(..., expert, 2)``.
    """

    concentration: Tensor
    centre: Gaussian
    coef: Gaussian


def init_experts(
    coef: Gaussian, num_experts: int, concentration: float = 0.1, centre_mean: float = 0.0, centre_var: float = 1.0
) -> LinearExperts:
    """The same prior for each of ``num_experts`` experts.

    Args:
        coef: prior of one line, mean ``(2,)``.
        num_experts: at least the number of tasks; those that the data do not need keep their prior.
        concentration: of the Dirichlet; below 1 it favours few experts.
        centre_mean: prior mean of each expert's inputs.
        centre_var: prior variance of that mean.
    """
    centre = Gaussian(coef.mean.new_full((1,), centre_mean), coef.mean.new_full((1, 1), centre_var))
    each = [Gaussian(*(leaf.expand(num_experts, *leaf.shape) for leaf in one)) for one in (centre, coef)]
    return LinearExperts(coef.mean.new_full((num_experts,), concentration), *each)


def condition_experts(
    prior: LinearExperts,
    x: Tensor,
    y: Tensor,
    x_precision: float,
    noise_precision: float,
    generator: torch.Generator,
    num_restarts: int = 20,
    num_iterations: int = 200,
) -> tuple[LinearExperts, Tensor]:
    """Mean-field posterior of linear experts, which can be the next task's prior.

    Source: Bishop 2006, Sec. 10.2, with a line in each component.

    Args:
        prior: belief before the data, without leading axes.
        x: inputs ``(n,)``.
        y: targets ``(n,)``.
        x_precision: one over the variance of an expert's inputs, known and shared.
        noise_precision: one over the variance of the targets' noise, known and shared.
        generator: draws the initial responsibilities.
        num_restarts: independent starts.
        num_iterations: of coordinate ascent.

    Returns:
        The posterior of the start with the highest evidence lower bound, and that bound after each iteration
        ``(iteration,)``.
    """
    _check_data(x, y, num_restarts=num_restarts, num_iterations=num_iterations)
    _check_positive("x_precision", x_precision)
    _check_positive("noise_precision", noise_precision)
    one, phi, trace = torch.ones_like(x)[:, None], line_features(x), []
    responsibility = _random_responsibility(num_restarts, len(x), len(prior.concentration), x, generator)
    for _ in range(num_iterations):
        concentration = prior.concentration + responsibility.sum(-2)
        centre = _condition_weighted(prior.centre, one, x, x_precision * responsibility)
        coef = _condition_weighted(prior.coef, phi, y, noise_precision * responsibility)
        log_weight = concentration.digamma() - concentration.sum(-1, keepdim=True).digamma()
        log_x = _expected_log_density(centre, one, x, x_precision)
        log_y = _expected_log_density(coef, phi, y, noise_precision)
        joint = log_weight[..., None, :] + log_x + log_y
        posterior = LinearExperts(concentration, centre, coef)
        trace.append(joint.logsumexp(-1).sum(-1) - _kl(posterior, prior))
        responsibility = joint.softmax(-1)
    best = int(trace[-1].argmax())
    chosen = LinearExperts(concentration[best], *(Gaussian(g.mean[best], g.cov[best]) for g in (centre, coef)))
    return chosen, torch.stack(trace)[:, best]


def predict_experts(belief: LinearExperts, x: Tensor, x_precision: float, noise_precision: float) -> MixtureSameFamily:
    """Predictive distribution of a target at each input ``(n,)``, parameters integrated out.

    The gate is the Dirichlet predictive times each expert's predictive density of the input.
    """
    num_experts = len(belief.concentration)
    region = predict_line(belief.centre, x.new_ones(num_experts, len(x), 1), x_precision)
    line = predict_line(belief.coef, line_features(x).expand(num_experts, -1, -1), noise_precision)
    return _gated(belief.concentration.log() + region.log_prob(x).mT, line.mean.mT, line.stddev.mT)


def _condition_weighted(prior: Gaussian, phi: Tensor, y: Tensor, precision: Tensor) -> Gaussian:
    """Posterior of each expert's line when point n has noise precision ``precision[..., n, k]`` for expert k."""
    root = precision.mT.sqrt()
    return condition_on(prior, root * y, root[..., None] * phi)[0]


def _expected_log_density(belief: Gaussian, phi: Tensor, y: Tensor, precision: float) -> Tensor:
    """Log density of each target under each expert's line, averaged over the belief ``(..., n, expert)``."""
    square = (y[:, None] - phi @ belief.mean.mT).square() + torch.einsum("nd,...kde,ne->...nk", phi, belief.cov, phi)
    return 0.5 * (math.log(precision) - LOG_2PI - precision * square)


def _kl(posterior: LinearExperts, prior: LinearExperts) -> Tensor:
    """Kullback-Leibler divergence of the parameters' factors ``(...)``."""
    weight = kl_divergence(Dirichlet(posterior.concentration), Dirichlet(prior.concentration))
    pairs = ((posterior.centre, prior.centre), (posterior.coef, prior.coef))
    return weight + sum(kl_divergence(MultivariateNormal(*q), MultivariateNormal(*p)).sum(-1) for q, p in pairs)


def _gated(log_gate: Tensor, mean: Tensor, sd: Tensor) -> MixtureSameFamily:
    return MixtureSameFamily(Categorical(logits=log_gate), Normal(mean, sd))


def _random_responsibility(num: int, n: int, num_experts: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """Memberships to start from, ``(restart, n, expert)``: near random inputs, with some noise."""

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=like.dtype).to(like.device)

    # A handicap for some experts, so that starts differ in how many they use.
    width = (like.max() - like.min()).clamp_min(torch.finfo(like.dtype).tiny)
    distance = ((like - like.min()) / width)[:, None] - draw(num, 1, num_experts)
    return (draw(num, n, num_experts) - 10 * distance.abs() - 20 * draw(num, 1, num_experts)).softmax(-1)


def _check_data(x: Tensor, y: Tensor, **counts: int) -> None:
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise ValueError(f"x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)} must both be (n,) with n >= 1")
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}={count} must be at least 1")


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a positive finite number")
