r"""Bayesian linear regression, and the mixture of linear experts that is well specified where one line is not.

**One line.** :math:`y = \phi(x)^\top w + \epsilon`, :math:`\epsilon \sim \mathcal N(0, \beta^{-1})`,
:math:`w \sim \mathcal N(m_0, S_0)`. The posterior is Gaussian, so the posterior of one task is the prior of the next,
and tasks in sequence give what all data at once would give.

**Linear experts.** Prediction at an input must know which line holds there, so an expert owns a region of inputs as
well as a line. The model is of both :math:`x` and :math:`y`,

.. math:: p(x, y) = \sum_k \pi_k \, \mathcal N(x; \mu_k, \tau_k^{-1}) \, \mathcal N(y; w_k^\top \phi(x), \beta^{-1}),

and the gate :math:`p(k \mid x) \propto \pi_k \mathcal N(x; \mu_k, \tau_k^{-1})` follows from it. Two fits:

- ``fit_em`` maximises the likelihood in all parameters, :math:`\beta` among them;
- ``condition_experts`` is Bayesian: :math:`\pi \sim \mathrm{Dir}(\alpha)`, :math:`w_k` Gaussian,
  :math:`(\mu_k, \tau_k)` normal-gamma, :math:`\beta` known. Mean-field variational inference,
  :math:`q(k_{1:n}) \, q(\pi, \mu, \tau, w)`, leaves every factor in its conjugate family, so the posterior of one task
  can be the prior of the next.

Both run all restarts at once on a leading axis and keep the best. Predictions are torch distributions over
:math:`y`, one a point.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical, Dirichlet, Gamma, MixtureSameFamily, MultivariateNormal, Normal, StudentT
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


class Mixture(NamedTuple):
    """Point estimates of linear experts.

    Attributes:
        log_weight: of each expert ``(..., expert)``.
        x_mean: centre of its inputs ``(..., expert)``.
        x_var: their variance ``(..., expert)``.
        coef: its line, intercept and slope ``(..., expert, 2)``.
        noise_precision: of the targets, shared ``(...)``.
    """

    log_weight: Tensor
    x_mean: Tensor
    x_var: Tensor
    coef: Tensor
    noise_precision: Tensor


def fit_em(
    x: Tensor,
    y: Tensor,
    num_experts: int,
    generator: torch.Generator,
    num_restarts: int = 20,
    num_iterations: int = 200,
    floor: float = 1e-6,
) -> tuple[Mixture, Tensor]:
    """Maximum-likelihood linear experts by expectation-maximisation.

    Source: Bishop 2006, Sec. 14.5.1, with a Gaussian over inputs in each expert.

    Args:
        x: inputs ``(n,)``.
        y: targets ``(n,)``.
        num_experts: number of lines.
        generator: draws the initial responsibilities.
        num_restarts: independent starts.
        num_iterations: of E and M steps.
        floor: least variance of an expert's inputs and of the noise, and ridge of its line; without it the likelihood
            has no maximum.

    Returns:
        The best mixture, and its log likelihood of ``(x, y)`` before each M step ``(iteration,)``.
    """
    _check_data(x, y)
    phi, trace = line_features(x), []
    responsibility = _random_responsibility(num_restarts, len(x), num_experts, x, generator)
    for _ in range(num_iterations):
        mixture = _maximise(x, y, phi, responsibility, floor)
        joint = _log_joint(mixture, x, y, phi)
        trace.append(joint.logsumexp(-1).sum(-1))
        responsibility = joint.softmax(-1)
    best = int(trace[-1].argmax())
    return Mixture(*(leaf[best] for leaf in mixture)), torch.stack(trace)[:, best]


def predict_mixture(mixture: Mixture, x: Tensor) -> MixtureSameFamily:
    """Predictive distribution of a target at each input ``(n,)``."""
    log_gate = mixture.log_weight + Normal(mixture.x_mean, mixture.x_var.sqrt()).log_prob(x[:, None])
    mean = line_features(x) @ mixture.coef.mT
    return _gated(log_gate, mean, mixture.noise_precision.rsqrt().expand_as(mean))


class LinearExperts(NamedTuple):
    """A belief about linear experts, a product of conjugate factors.

    Attributes:
        concentration: of the Dirichlet over mixture weights ``(..., expert)``.
        coef: over each line, intercept and slope: mean ``(..., expert, 2)``.
        x_mean: centre of the normal-gamma over each expert's inputs ``(..., expert)``.
        x_count: how many inputs that centre is worth ``(..., expert)``.
        x_shape: shape of the gamma over the precision of its inputs ``(..., expert)``.
        x_rate: rate of that gamma ``(..., expert)``.
    """

    concentration: Tensor
    coef: Gaussian
    x_mean: Tensor
    x_count: Tensor
    x_shape: Tensor
    x_rate: Tensor


def init_experts(
    coef: Gaussian,
    num_experts: int,
    concentration: float = 1.0,
    x_mean: float = 0.0,
    x_count: float = 0.1,
    x_shape: float = 1.0,
    x_rate: float = 0.1,
) -> LinearExperts:
    """The same prior for each of ``num_experts`` experts; ``coef`` is that of one line, mean ``(2,)``.

    The other arguments are those of ``LinearExperts``, one number for all experts.
    """
    dim = coef.mean.shape[-1]
    lines = Gaussian(coef.mean.expand(num_experts, dim), coef.cov.expand(num_experts, dim, dim))
    numbers = [coef.mean.new_full((num_experts,), v) for v in (concentration, x_mean, x_count, x_shape, x_rate)]
    return LinearExperts(numbers[0], lines, *numbers[1:])


def condition_experts(
    prior: LinearExperts,
    x: Tensor,
    y: Tensor,
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
        noise_precision: known, shared by the experts.
        generator: draws the initial responsibilities.
        num_restarts: independent starts.
        num_iterations: of coordinate ascent.

    Returns:
        The posterior of the start with the highest evidence lower bound, and that bound after each iteration
        ``(iteration,)``.
    """
    _check_data(x, y)
    _check_positive("noise_precision", noise_precision)
    phi, trace = line_features(x), []
    responsibility = _random_responsibility(num_restarts, len(x), len(prior.concentration), x, generator)
    for _ in range(num_iterations):
        posterior = _conjugate_update(prior, x, y, phi, responsibility, noise_precision)
        joint = _expected_log_joint(posterior, x, y, phi, noise_precision)
        trace.append(joint.logsumexp(-1).sum(-1) - _kl(posterior, prior))
        responsibility = joint.softmax(-1)
    best = int(trace[-1].argmax())
    coef = Gaussian(*(leaf[best] for leaf in posterior.coef))
    rest = {name: getattr(posterior, name)[best] for name in LinearExperts._fields if name != "coef"}
    return LinearExperts(coef=coef, **rest), torch.stack(trace)[:, best]


def predict_experts(belief: LinearExperts, x: Tensor, noise_precision: float) -> MixtureSameFamily:
    """Predictive distribution of a target at each input ``(n,)``, parameters integrated out.

    The gate is the Dirichlet predictive times each expert's Student-t predictive of the input.
    """
    scale = (belief.x_rate * (belief.x_count + 1) / (belief.x_shape * belief.x_count)).sqrt()
    log_gate = belief.concentration.log() + StudentT(2 * belief.x_shape, belief.x_mean, scale).log_prob(x[:, None])
    lines = predict_line(belief.coef, line_features(x).expand(len(belief.x_mean), -1, -1), noise_precision)
    return _gated(log_gate, lines.mean.mT, lines.stddev.mT)


def _conjugate_update(
    prior: LinearExperts, x: Tensor, y: Tensor, phi: Tensor, responsibility: Tensor, noise_precision: float
) -> LinearExperts:
    """Every factor's posterior when point n counts ``responsibility[..., n, k]`` times for expert k."""
    count = responsibility.sum(-2)
    root = (noise_precision * responsibility.mT).sqrt()
    coef, _ = condition_on(prior.coef, root * y, root[..., None] * phi)
    x_count = prior.x_count + count
    x_mean = (prior.x_count * prior.x_mean + x @ responsibility) / x_count
    scatter = (responsibility * (x[:, None] - x_mean[..., None, :]).square()).sum(-2)
    x_rate = prior.x_rate + 0.5 * (scatter + prior.x_count * (x_mean - prior.x_mean).square())
    return LinearExperts(
        prior.concentration + count, coef, x_mean, x_count, (prior.x_shape + 0.5 * count).expand_as(x_rate), x_rate
    )


def _expected_log_joint(q: LinearExperts, x: Tensor, y: Tensor, phi: Tensor, noise_precision: float) -> Tensor:
    """``E_q log p(k, x, y | parameters)``, ``(..., n, expert)``."""
    log_weight = q.concentration.digamma() - q.concentration.sum(-1, keepdim=True).digamma()
    log_precision = q.x_shape.digamma() - q.x_rate.log()
    x_square = (q.x_shape / q.x_rate)[..., None, :] * (x[:, None] - q.x_mean[..., None, :]).square()
    y_square = (y[:, None] - phi @ q.coef.mean.mT).square() + torch.einsum("nd,...kde,ne->...nk", phi, q.coef.cov, phi)
    constant = log_weight + 0.5 * (log_precision + math.log(noise_precision) - 1 / q.x_count) - LOG_2PI
    return constant[..., None, :] - 0.5 * (x_square + noise_precision * y_square)


def _kl(q: LinearExperts, p: LinearExperts) -> Tensor:
    """Kullback-Leibler divergence of the parameters' factors ``(...)``."""
    weight = kl_divergence(Dirichlet(q.concentration), Dirichlet(p.concentration.expand_as(q.concentration)))
    coef = kl_divergence(MultivariateNormal(*q.coef), MultivariateNormal(*p.coef))
    precision = kl_divergence(Gamma(q.x_shape, q.x_rate), Gamma(p.x_shape, p.x_rate))
    ratio = p.x_count / q.x_count
    shift = p.x_count * q.x_shape / q.x_rate * (q.x_mean - p.x_mean).square()
    return weight + (coef + precision + 0.5 * (shift + ratio - 1 - ratio.log())).sum(-1)


def _maximise(x: Tensor, y: Tensor, phi: Tensor, responsibility: Tensor, floor: float) -> Mixture:
    """The M step: weighted moments of inputs and weighted least squares."""
    count = responsibility.sum(-2).clamp_min(floor)
    x_mean = x @ responsibility / count
    x_var = (responsibility * (x[:, None] - x_mean[..., None, :]).square()).sum(-2) / count
    gram = torch.einsum("...nk,nd,ne->...kde", responsibility, phi, phi)
    moment = torch.einsum("...nk,nd,n->...kd", responsibility, phi, y)
    ridge = floor * torch.eye(phi.shape[-1], dtype=x.dtype, device=x.device)
    coef = torch.linalg.solve(gram + ridge, moment)
    noise_var = (responsibility * (y[:, None] - phi @ coef.mT).square()).sum((-2, -1)) / len(x)
    log_weight = count.log() - count.sum(-1, keepdim=True).log()
    return Mixture(log_weight, x_mean, x_var.clamp_min(floor), coef, 1 / noise_var.clamp_min(floor))


def _log_joint(mixture: Mixture, x: Tensor, y: Tensor, phi: Tensor) -> Tensor:
    """``log p(k, x, y)``, ``(..., n, expert)``."""
    log_x = Normal(mixture.x_mean[..., None, :], mixture.x_var[..., None, :].sqrt()).log_prob(x[:, None])
    log_y = Normal(phi @ mixture.coef.mT, mixture.noise_precision[..., None, None].rsqrt()).log_prob(y[:, None])
    return mixture.log_weight[..., None, :] + log_x + log_y


def _gated(log_gate: Tensor, mean: Tensor, sd: Tensor) -> MixtureSameFamily:
    return MixtureSameFamily(Categorical(logits=log_gate), Normal(mean, sd))


def _random_responsibility(num: int, n: int, num_experts: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """Memberships to start from, ``(restart, n, expert)``: near random inputs, with some noise."""
    if num_experts < 1 or num < 1:
        raise ValueError(f"num_experts={num_experts} and num_restarts={num} must be at least 1")
    centre = torch.rand(num, 1, num_experts, generator=generator, dtype=like.dtype).to(like.device)
    centre = like.min() + centre * (like.max() - like.min())
    distance = (like[:, None] - centre).abs() / (like.max() - like.min()).clamp_min(torch.finfo(like.dtype).tiny)
    noise = torch.rand(num, n, num_experts, generator=generator, dtype=like.dtype).to(like.device)
    return (noise - 10 * distance).softmax(-1)


def _check_data(x: Tensor, y: Tensor) -> None:
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise ValueError(f"x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)} must both be (n,) with n >= 1")


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a positive finite number")
