r"""Mean-field Gaussian networks: their divergence, two ways to sample their outputs, and the gradient of the bound.

Weights and biases are independent, :math:`q(w) = \prod_i \mathcal N(w_i; m_i, e^{v_i})`, and the minimised thing is

.. math:: \text{nelbo} = -\mathbb E_q \log p(y \mid x, w) + \mathrm{KL}(q \,\|\, p) / N

for the mean over a minibatch of a data set of :math:`N` points. The expectation is a Monte Carlo average over either

- draws of the weights (``weight_samples``), or
- draws of each layer's pre-activations (``local_samples``; Kingma, Salimans and Welling 2015): for inputs :math:`a`
  they are Gaussian with mean :math:`a M + m_b` and variance :math:`a^2 e^V + e^{v_b}`. Noise that differs between
  points lowers the variance of the gradient, and moments of the first layer, 79 % of the weights of a 784-200-200-10
  network, are the same for every draw and computed once.

Networks are fully connected with ReLU between layers. Parameters are tuples of weight and bias, layer by layer, with
the seed first; noise is an input. Nothing here waits for a GPU, so all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib.networks import Params

VAR_FLOOR = 1e-9
"""Added to the variance of a pre-activation, so that its square root has a gradient where inputs are all zero."""


class MeanField(NamedTuple):
    """Independent Gaussians over a network's parameters.

    Attributes:
        mean: weight ``(seed, in, out)`` and bias ``(seed, 1, out)`` of every layer.
        log_var: of the same shapes.
    """

    mean: Params
    log_var: Params


def kl(q: MeanField, p: MeanField) -> Tensor:
    """KL(q || p) of each seed, ``(seed,)`` float64: terms in the parameters' precision, their sum in float64."""
    total = 0.0
    for m, v, m0, v0 in zip(*q, *p, strict=True):
        terms = torch.expm1(v - v0) - (v - v0) + (m - m0).square() * torch.exp(-v0)
        total = total + 0.5 * terms.flatten(1).sum(1, dtype=torch.float64)
    return total


def nelbo_gradient(
    q: MeanField,
    p: MeanField,
    num_points: float,
    expected_nll: Sequence[Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]],
    out: MeanField,
) -> Tensor:
    """The gradient of ``sum(expected_nll) + kl(q, p) / num_points``, the divergence's part in closed form.

    The data's part is differentiated in mean and *variance*, which spares the tape all element-wise work on parameters.

    Args:
        q: where the gradient is taken.
        p: the prior.
        num_points: ``N``; infinity leaves the divergence out.
        expected_nll: terms, differentiated one after the other; each takes means and variances of q and returns
            ``(seed,)``.
        out: the gradient with respect to mean and log variance is written here.

    Returns:
        The sum of ``expected_nll`` ``(seed,)``.
    """
    mean = [m.detach().requires_grad_() for m in q.mean]
    var = [v.detach().exp().requires_grad_() for v in q.log_var]
    losses, gradients = [], None
    for term in expected_nll:
        losses.append(term(mean, var))
        more = torch.autograd.grad(losses[-1].sum(), [*mean, *var], allow_unused=True, materialize_grads=True)
        if gradients is None:
            gradients = more
            continue
        for total, g in zip(gradients, more, strict=True):
            total.add_(g)
    with torch.no_grad():
        for g, m, m0, v0, to in zip(gradients, q.mean, p.mean, p.log_var, out.mean, strict=False):
            torch.neg(v0, out=to).exp_().mul_(1 / num_points).mul_(m - m0).add_(g)
        for g, s, v, v0, to in zip(gradients[len(mean) :], var, q.log_var, p.log_var, out.log_var, strict=True):
            torch.sub(v, v0, out=to).expm1_().mul_(0.5 / num_points).addcmul_(g, s)
    return sum(loss.detach() for loss in losses)


def local_noise_shapes(widths: Sequence[int], num_samples: int, num_points: int) -> list[tuple[int, ...]]:
    """Shapes of one seed's noise for ``local_samples``; with ``num_points=1`` all points share it."""
    return [(num_samples, num_points, width) for width in widths[1:]]


def local_samples(mean: Sequence[Tensor], var: Sequence[Tensor], x: Tensor, noise: Sequence[Tensor]) -> Tensor:
    """Outputs under draws of each layer's pre-activations.

    Args:
        mean: of weights and biases.
        var: their variances.
        x: ``(seed, n, in)``.
        noise: standard normal ``(seed, sample, n or 1, out)`` for every layer.

    Returns:
        ``(seed, sample, n, out)``.
    """
    h, last = x, len(noise) - 1
    for layer, e in enumerate(noise):
        m, v = moments(h, *mean[2 * layer : 2 * layer + 2], *var[2 * layer : 2 * layer + 2])
        num_draws = 1 if layer == 0 else e.shape[1]
        m, v = (t.view(t.shape[0], num_draws, -1, t.shape[-1]) for t in (m, v))
        h = _Perturb.apply(m, v, e, layer < last)
        if layer < last:
            h = h.flatten(1, 2)
    return h


def weight_noise_shapes(widths: Sequence[int], num_samples: int) -> list[tuple[int, ...]]:
    """Shapes of one seed's noise for ``weight_samples``: a layer's weights and, in the last row, its biases."""
    return [(num_samples, i + 1, o) for i, o in pairwise(widths)]


def weight_samples(mean: Sequence[Tensor], var: Sequence[Tensor], x: Tensor, noise: Sequence[Tensor]) -> Tensor:
    """Outputs under draws of the weights, the same for all points.

    Args:
        mean: of weights and biases.
        var: their variances.
        x: ``(seed, n, in)``.
        noise: standard normal ``(seed, sample, in + 1, out)`` for every layer.

    Returns:
        ``(seed, sample, n, out)``.
    """
    num_seeds, num_samples = noise[0].shape[:2]
    h = x[:, None].expand(-1, num_samples, -1, -1).flatten(0, 1)
    for layer, e in enumerate(noise):
        at = slice(2 * layer, 2 * layer + 2)
        w, b = (
            (m[:, None] + s.sqrt()[:, None] * part).flatten(0, 1)
            for m, s, part in zip(mean[at], var[at], (e[:, :, :-1], e[:, :, -1:]), strict=True)
        )
        h = torch.baddbmm(b, h, w)
        if layer < len(noise) - 1:
            h = h.relu()
    return h.unflatten(0, (num_seeds, num_samples))


def moments(a: Tensor, weight: Tensor, bias: Tensor, weight_var: Tensor, bias_var: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(seed, n, out)`` of a layer's pre-activations for inputs ``a`` ``(seed, n, in)``."""
    return _Moments.apply(a, weight, bias, weight_var, bias_var)


class _Moments(torch.autograd.Function):
    """Two products forward and four backward, with one pass over the inputs' gradient instead of four."""

    @staticmethod
    def forward(ctx, a, weight, bias, weight_var, bias_var):
        squared = a.square()
        ctx.save_for_backward(a, squared, weight, weight_var)
        return torch.baddbmm(bias, a, weight), torch.baddbmm(bias_var, squared, weight_var)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g_mean, g_var):
        a, squared, weight, weight_var = ctx.saved_tensors
        g_a = None
        if ctx.needs_input_grad[0]:
            g_a = torch.bmm(g_var, weight_var.mT).mul_(a).baddbmm_(g_mean, weight.mT, beta=2)
        return (
            g_a,
            torch.bmm(a.mT, g_mean),
            g_mean.sum(1, keepdim=True),
            torch.bmm(squared.mT, g_var),
            g_var.sum(1, keepdim=True),
        )


class _Perturb(torch.autograd.Function):
    """``mean + noise * sqrt(var)``, rectified in a hidden layer; draws of the first layer share mean and variance."""

    @staticmethod
    def forward(ctx, mean, var, noise, hidden):
        sd = (var + VAR_FLOOR).sqrt_()
        out = torch.addcmul(mean, noise, sd)
        if hidden:
            out.relu_()
        ctx.hidden, ctx.one_mean = hidden, mean.shape[1] != out.shape[1]
        ctx.save_for_backward(out, noise, sd)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        out, noise, sd = ctx.saved_tensors
        g_mean = torch.ops.aten.threshold_backward(grad, out, 0.0) if ctx.hidden else grad
        g_var = g_mean * noise
        if ctx.one_mean:
            g_mean, g_var = g_mean.sum(1, keepdim=True), g_var.sum(1, keepdim=True)
        return g_mean, g_var.div_(sd).mul_(0.5), None, None
