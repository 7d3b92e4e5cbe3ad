r"""The Indian buffet prior on which units a layer uses: Beta sticks, their draws and divergence, and relaxed masks.

Unit :math:`k` of a layer is on with probability :math:`\pi_k = \prod_{i \le k} v_i`, sticks
:math:`v_i \sim \mathrm{Beta}(a_i, b_i)`, truncated at the layer's width. In the hierarchical prior (Kessler et al.
2021) these are global, and a layer's own are :math:`\pi^l_k \sim \mathrm{Beta}(c\,\pi_k, c\,(1 - \pi_k))`. A mask is a
draw of the binary concrete distribution, whose logit :math:`y = (\text{loc} + \text{logit}\, u) / \lambda` has density

.. math:: \log q(y) = \log\lambda + (\text{loc} - \lambda y) - 2\,\mathrm{softplus}(\text{loc} - \lambda y)

(Maddison, Mnih and Teh 2017). Draws are functions of standard normal noise, so they lie on tapes like all other noise
and can be captured in a CUDA graph. A Beta variate is made of two Gamma variates, each of the first accepted of a few
proposals (Marsaglia and Tsang 2000), with implicit gradients (Figurnov, Mohamed and Mnih 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = 1e-6
"""Probabilities keep this distance from 0 and 1."""

UNIFORM_FLOOR = 1e-4
"""The uniform noise of a mask keeps this distance from 0 and 1."""

OFFSET = 0.01
"""Added to the softplus of a raw parameter: no concentration is below."""

PROPOSALS = 4
"""Of a Gamma variate. One is refused with probability 0.05 at most, so all of them once in 160,000 draws."""

NORMALS = 2 * (2 * PROPOSALS + 1)
"""Standard normals that one Beta variate takes."""

Pair = tuple[Tensor, Tensor]


def concentration(raw: Tensor) -> Tensor:
    """A positive parameter of a Beta distribution from an unconstrained one."""
    return F.softplus(raw) + OFFSET


def raw(value: float) -> float:
    """The inverse of ``concentration``.

    >>> round(float(concentration(torch.tensor(raw(5.0)))), 5)
    5.0
    """
    return value - OFFSET + math.log(-math.expm1(OFFSET - value))  # log(e^x - 1), which overflows for large x


def beta_kl(q: Pair, p: Pair) -> Tensor:
    """KL of Beta distributions from others, element by element."""
    (a, b), (a0, b0) = q, p
    return (
        _log_beta_function(a0, b0)
        - _log_beta_function(a, b)
        + (a - a0) * torch.digamma(a)
        + (b - b0) * torch.digamma(b)
        + (a0 - a + b0 - b) * torch.digamma(a + b)
    )


def _log_beta_function(a: Tensor, b: Tensor) -> Tensor:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


def log_beta(pair: Pair, noise: Tensor) -> Tensor:
    """Logarithms of Beta variates.

    Args:
        pair: concentrations, of the shape of the variates or broadcast to it.
        noise: standard normal ``(seed, NORMALS, ...)`` for variates ``(seed, ...)``.
    """
    one, other = (_log_gamma(c, n) for c, n in zip(pair, noise.chunk(2, dim=1), strict=True))
    return one - torch.logaddexp(one, other)


def _log_gamma(a: Tensor, noise: Tensor) -> Tensor:
    """Logarithms of Gamma variates: G(a) is G(a + 1) U^(1/a), whose logarithm is there for the smallest a."""
    normal, uniform = noise[:, :PROPOSALS], torch.special.ndtr(noise[:, PROPOSALS:])
    return _Gamma.apply(a + 1, normal, uniform[:, 1:]).log() + uniform[:, 0].clamp_min(1e-30).log() / a


class _Gamma(torch.autograd.Function):
    """Gamma variates for shapes of at least 1, differentiated at a fixed place of their distribution function."""

    @staticmethod
    def forward(ctx, shape, normal, uniform):
        d = (shape - 1 / 3).unsqueeze(1)
        v = (1 + normal / (9 * d).sqrt()) ** 3
        accepted = uniform.log() < 0.5 * normal.square() + d * (1 - v + v.clamp_min(1e-30).log())
        accepted &= v > 0
        first = v.gather(1, accepted.int().argmax(1, keepdim=True))
        gamma = (d * torch.where(accepted.any(1, keepdim=True), first, 1.0)).squeeze(1)
        ctx.save_for_backward(shape, gamma)
        return gamma

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        shape, gamma = ctx.saved_tensors
        slope = torch._standard_gamma_grad(shape.expand_as(gamma), gamma)
        return (grad * slope).sum_to_size(shape.shape), None, None


def draw(
    sticks: Sequence[Pair], child_concentration: float | None, noise: Sequence[Tensor]
) -> tuple[list[Tensor], list[Pair]]:
    """Draws of every layer's log probabilities, and the Beta distributions that they come from.

    Args:
        sticks: concentrations ``(seed, unit)``: of every layer's sticks, or with a hierarchy of the global ones alone.
        child_concentration: c of the hierarchy, or None without one.
        noise: ``(seed, NORMALS, draw, n, unit)`` of every layer, with a hierarchy of the global sticks before.

    Returns:
        log probabilities ``(seed, draw, n, unit)`` of every layer; concentrations ``(seed, 1, 1, unit)`` of all Beta
        distributions. A layer's are those at the mean of the draws of the global probabilities.
    """
    pairs = [(a[:, None, None], b[:, None, None]) for a, b in sticks]
    if child_concentration is None:
        return [log_beta(pair, n).cumsum(-1) for pair, n in zip(pairs, noise, strict=True)], pairs
    shared = log_beta(pairs[0], noise[0]).cumsum(-1).exp().mean((1, 2), keepdim=True).clamp(FLOOR, 1 - FLOOR)
    children = [(child_concentration * shared, child_concentration * (1 - shared))] * (len(noise) - 1)
    return [log_beta(pair, n) for pair, n in zip(children, noise[1:], strict=True)], pairs + children


def location(log_pi: Tensor, kind: str) -> Tensor:
    """Where a mask's distribution lies: ``logit_pi``, with which it is above 1/2 with probability pi, or ``log_pi``."""
    if kind == "log_pi":
        return log_pi.clamp_min(math.log(FLOOR))
    return torch.logit(log_pi.exp(), eps=FLOOR)


def concrete(loc: Tensor, temperature: float, noise: Tensor) -> Tensor:
    """Logits of relaxed masks from standard normal noise."""
    return (loc + torch.logit(torch.special.ndtr(noise), eps=UNIFORM_FLOOR)) / temperature


def log_concrete(y: Tensor, loc: Tensor, temperature: float) -> Tensor:
    """Log density of a relaxed mask's logit."""
    centred = loc - temperature * y
    return math.log(temperature) + centred - 2 * F.softplus(centred)


def pairs(raw: Sequence[Tensor]) -> list[Pair]:
    """Concentrations of sticks from raw parameters, which alternate."""
    positive = [concentration(r) for r in raw]
    return list(zip(positive[::2], positive[1::2], strict=True))


@dataclass(frozen=True)
class Buffet:
    """How a network's hidden layers draw which of their units are on.

    Attributes:
        widths: of the hidden layers.
        num_draws: of sticks and masks.
        child_concentration: c of the hierarchy, or None without one.
        concrete_loc: see ``location``.
        temperature: of the masks.
        per_point: whether layers' sticks are drawn for each point, or once for all.
    """

    widths: tuple[int, ...]
    num_draws: int
    child_concentration: float | None
    concrete_loc: str
    temperature: float
    per_point: bool

    def noise_shapes(self, num_points: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Shapes of one seed's noise for masks and for sticks."""
        layers = [(NORMALS, self.num_draws, num_points if self.per_point else 1, width) for width in self.widths]
        shared = [] if self.child_concentration is None else [(NORMALS, self.num_draws, 1, self.widths[0])]
        return [(self.num_draws, num_points, width) for width in self.widths], shared + layers

    def locations(self, raw: Sequence[Tensor], noise: Sequence[Tensor]) -> tuple[list[Tensor], list[Pair]]:
        """A draw of where every layer's masks lie, ``(seed, draw, n, unit)``, and the Beta distributions behind it."""
        log_pi, betas = draw(pairs(raw), self.child_concentration, noise)
        return [location(p, self.concrete_loc) for p in log_pi], betas

    def masks(self, locations: Sequence[Tensor], noise: Sequence[Tensor]) -> list[Tensor]:
        """Logits of masks at their locations, layer by layer."""
        return [concrete(loc, self.temperature, e) for loc, e in zip(locations, noise, strict=True)]
