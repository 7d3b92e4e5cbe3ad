r"""Online learning of a network's weights as Kalman filtering, each weight by itself (Lemma 1).

The optimal weights move a little between observations and each observation is Gaussian about the network's output,

.. math::
   \theta_t = (1 - h) \, \theta_{t-1} + \eta \, \epsilon_t, \qquad
   y_t = f(x_t; \theta_t) + \sigma \, \epsilon'_t,

an Ornstein-Uhlenbeck process in discrete time with reversion speed :math:`h`. Linearised at :math:`\theta_0`,
:math:`f(x; \theta) \approx f(x; \theta_0) + g^\top (\theta - \theta_0)`, so the filter sees the linear observation

.. math:: \tilde y = y - f(x; \theta_0) + g^\top \theta_0 = g^\top \theta + \sigma \epsilon'.

With full covariance a step would be ``gaussian.predict`` then ``gaussian.condition_on``. Lemma 1 treats each weight
alone, all others fixed at :math:`\theta_0`; its variance is therefore conditional on the others, not marginal.

Two printed formulas are wrong and kept as named options, so that their effect can be shown: the prior variance of
App. G, :math:`\eta^2 + (1-h)^{-2} s` for :math:`\eta^2 + (1-h)^2 s`, and :math:`\eta^2` of ``transition_var`` without
:math:`H_{ii}^{-2}`. The printed mean update also puts :math:`y` where :math:`\tilde y` belongs; ``condition_weights``
takes the one or the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib.checks import one_of

FORMULAS = ("corrected", "printed")


class WeightBelief(NamedTuple):
    """Independent normal beliefs, one a weight.

    Attributes:
        mean: ``(..., weight)``.
        var: ``(..., weight)``.
    """

    mean: Tensor
    var: Tensor


class Linearisation(NamedTuple):
    """A network to first order.

    Attributes:
        value: output at the anchor, flattened, ``(num_y,)``.
        gradient: of each output in the weights ``(num_y, weight)``.
        anchor: weights at which it was linearised ``(weight,)``.
    """

    value: Tensor
    gradient: Tensor
    anchor: Tensor


def linearise(f: Callable[[Tensor, Tensor], Tensor], anchor: Tensor, x: Tensor) -> Linearisation:
    """First-order expansion in the weights of a pure function ``f(theta, x)``.

    Args:
        f: takes weights ``(weight,)`` and inputs, returns outputs of any shape.
        anchor: weights ``(weight,)``.
        x: inputs, passed on to ``f``.
    """

    def flat(theta: Tensor) -> tuple[Tensor, Tensor]:
        value = f(theta, x).reshape(-1)
        return value, value

    gradient, value = torch.func.jacrev(flat, has_aux=True)(anchor)
    return Linearisation(value, gradient, anchor)


def predict_weights(
    state: WeightBelief, reversion: float, eta_var: float | Tensor, ou_factor: str = "corrected"
) -> WeightBelief:
    """One Ornstein-Uhlenbeck step of each weight.

    Source: Kessler et al. 2023, App. G, the prior mean and variance.

    Args:
        state: belief after the last observation.
        reversion: speed h of the reversion to zero.
        eta_var: variance of the step's noise, a number or one a weight.
        ou_factor: ``corrected`` multiplies the variance by (1-h)^2, ``printed`` by (1-h)^-2.
    """
    _check_rates(reversion, eta_var)
    exponent = 2 if one_of("ou_factor", ou_factor, FORMULAS) == "corrected" else -2
    if exponent < 0 and reversion == 1:
        raise ValueError("reversion=1 with ou_factor='printed' divides by zero")
    return WeightBelief((1 - reversion) * state.mean, eta_var + (1 - reversion) ** exponent * state.var)


def condition_weights(state: WeightBelief, gradient: Tensor, y: Tensor, noise_var: float | Tensor) -> WeightBelief:
    """Posterior of each weight given one output, the other weights held at the anchor.

    Source: Kessler et al. 2023, Lemma 1, eq:bnn_kf, eq:bnn_kf_mean_app and eq:bnn_kf_variance_app.

    Args:
        state: prior of each weight.
        gradient: of the output in each weight ``(..., weight)``.
        y: what the weight's own term must explain ``(..., weight)``, from ``weight_targets``; the paper prints the
            output itself.
        noise_var: variance of the output's noise.
    """
    _check_noise(noise_var)
    # By the gain, which a weight that is certain has too.
    scale = gradient.square() * state.var + noise_var
    gain = state.var * gradient / scale
    return WeightBelief(state.mean + gain * (y - gradient * state.mean), state.var * noise_var / scale)


def weight_targets(lin: Linearisation, y: Tensor) -> Tensor:
    """``y - f(x; theta_0) + g_i theta_0i`` for each weight i, ``(num_y, weight)`` for outputs ``y`` ``(num_y,)``."""
    return (y.reshape(-1) - lin.value)[:, None] + lin.gradient * lin.anchor


def transition_var(hessian: Tensor, eta_var: float, formula: str = "corrected") -> Tensor:
    """Variance of the step of each weight's optimum when every other weight takes a step of variance ``eta_var``.

    Source: Kessler et al. 2023, Assumption 2, below eq:transition_dynamics.

    Args:
        hessian: H ``(..., weight, weight)``.
        eta_var: variance of the other weights' noise.
        formula: ``corrected`` divides by the square of H_ii, ``printed`` does not.

    Returns:
        ``(..., weight)``.
    """
    diagonal = _diagonal(hessian)
    off = hessian.square().sum(-1) - diagonal.square()
    return eta_var * (off / diagonal.square() if one_of("formula", formula, FORMULAS) == "corrected" else off)


def stationary_var(reversion: float, eta_var: float) -> float:
    """Variance at which the Ornstein-Uhlenbeck process settles without data, for 0 < reversion < 2."""
    if not 0 < reversion < 2:
        raise ValueError(f"reversion={reversion!r} has no stationary variance; it must lie between 0 and 2")
    return eta_var / (1 - (1 - reversion) ** 2)


def _diagonal(hessian: Tensor) -> Tensor:
    diagonal = hessian.diagonal(dim1=-2, dim2=-1)
    if not bool((diagonal > 0).all()):
        raise ValueError(f"the Hessian's diagonal must be positive; its smallest entry is {float(diagonal.min()):.3g}")
    return diagonal


def _check_rates(reversion: float, eta_var: float | Tensor) -> None:
    if not 0 <= reversion < 2:
        raise ValueError(f"reversion={reversion!r} must lie in [0, 2), where the process does not diverge")
    if not bool(torch.as_tensor(eta_var >= 0).all()):
        raise ValueError(f"eta_var={eta_var!r} must not be negative")


def _check_noise(noise_var: float | Tensor) -> None:
    if not bool(torch.as_tensor(noise_var > 0).all()):
        raise ValueError(f"noise_var={noise_var!r} must be positive")
