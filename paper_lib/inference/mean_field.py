r"""Mean-field Gaussian networks: their divergence, two ways to sample their outputs, and the gradient of the bound.

Weights and biases are independent, :math:`q(w) = \prod_i \mathcal N(w_i; m_i, e^{v_i})`, and the minimised thing is

.. math:: \text{nelbo} = -\mathbb E_q \log p(y \mid x, w) + \mathrm{KL}(q \,\|\, p) / N

for the mean over a minibatch of a data set of :math:`N` points. The expectation is a Monte Carlo average over either

- draws of the weights of any network (``weight_samples``), or
- draws of each layer's pre-activations (``local_samples``; Kingma, Salimans and Welling 2015): for inputs :math:`a`
  they are Gaussian with mean :math:`a M + m_b` and variance :math:`a^2 e^V + e^{v_b}`. Noise that differs between
  points lowers the variance of the gradient, and moments of the first layer, 79 % of the weights of a 784-200-200-10
  network, are the same for every draw and computed once. The network is fully connected with ReLU between layers.

Parameters are tuples of weight and bias, layer by layer, with the seed first; noise is an input, and ``Sampler`` cuts
it from one flat tensor. Nothing here waits for a GPU, so all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib.networks import Network, Params

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


def isotropic(shapes: Sequence[tuple[int, ...]], num_seeds: int, var: float, device: str | torch.device) -> MeanField:
    """Every parameter normal with mean 0 and variance ``var``."""
    sizes = [(num_seeds, *shape) for shape in shapes]
    return MeanField(
        tuple(torch.zeros(size, device=device) for size in sizes),
        tuple(torch.full(size, math.log(var), device=device) for size in sizes),
    )


def small_means(shapes: Sequence[tuple[int, ...]], streams: Sequence[torch.Generator], device: torch.device) -> Params:
    """Normal with standard deviation 0.1, truncated at two of them as in Nguyen et al.'s code; a generator a seed."""
    drawn = []
    for stream in streams:
        tensors = [torch.empty(shape) for shape in shapes]
        drawn.append([torch.nn.init.trunc_normal_(t, 0.0, 0.1, -0.2, 0.2, generator=stream) for t in tensors])
    return tuple(torch.stack(tensors).to(device) for tensors in zip(*drawn, strict=True))


def mapped(function: Callable[[Tensor], Tensor], q: MeanField) -> MeanField:
    """A function of every tensor."""
    return MeanField(*(tuple(function(p) for p in group) for group in q))


def head(q: MeanField, units: Sequence[int]) -> MeanField:
    """The network with some of its output units."""
    return MeanField(*((*g[:-2], g[-2][..., units], g[-1][..., units]) for g in q))


def with_head(q: MeanField, part: MeanField, units: Sequence[int]) -> MeanField:
    """Copies of a part's trunk and of ``q``'s output units, those of the part in the place of ``units``."""

    def placed(old: Tensor, new: Tensor) -> Tensor:
        old = old.clone()
        old[..., units] = new
        return old

    return MeanField(
        *(
            (*(p.clone() for p in new[:-2]), *(placed(o, n) for o, n in zip(old[-2:], new[-2:], strict=True)))
            for old, new in zip(q, part, strict=True)
        )
    )


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


def local_samples(
    mean: Sequence[Tensor],
    var: Sequence[Tensor],
    x: Tensor,
    noise: Sequence[Tensor],
    factors: Sequence[Tensor] | None = None,
) -> Tensor:
    """Outputs under draws of each layer's pre-activations.

    Args:
        mean: of weights and biases.
        var: their variances.
        x: ``(seed, n, in)``.
        noise: standard normal ``(seed, sample, n or 1, out)`` for every layer.
        factors: ``(seed, sample or 1, n or 1, out)`` for every hidden layer, of its units after the rectifier; None
            for none.

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
            h = (h if factors is None else h * factors[layer]).flatten(1, 2)
    return h


def weight_noise_shapes(shapes: Sequence[tuple[int, ...]], num_samples: int) -> list[tuple[int, int]]:
    """Shapes of one seed's noise for ``weight_samples``: a layer's weights and then its biases, one after the other."""
    sizes = [math.prod(shape) for shape in shapes]
    return [(num_samples, weight + bias) for weight, bias in zip(sizes[::2], sizes[1::2], strict=True)]


def weight_samples(
    network: Network, mean: Sequence[Tensor], var: Sequence[Tensor], x: Tensor, noise: Sequence[Tensor]
) -> Tensor:
    """Outputs of any network under draws of its weights, the same for all points.

    Args:
        network: called with ``seed * sample`` networks' parameters.
        mean: of weights and biases.
        var: their variances.
        x: ``(seed, n, *shape)``, or ``(n, *shape)`` for all seeds.
        noise: standard normal ``(seed, sample, parameters of a layer)`` for every layer.

    Returns:
        ``(seed, sample, n, out)``.
    """
    num_seeds, num_samples = noise[0].shape[:2]
    flat = [e for layer, m in zip(noise, mean[::2], strict=True) for e in layer.tensor_split([m[0].numel()], dim=-1)]
    drawn = tuple(
        (m[:, None] + s.sqrt()[:, None] * e.unflatten(-1, m.shape[1:])).flatten(0, 1)
        for m, s, e in zip(mean, var, flat, strict=True)
    )
    if x.dim() == len(network.input_shape) + 2:
        x = x[:, None].expand(-1, num_samples, *x.shape[1:]).flatten(0, 1)
    return network(drawn, x).unflatten(0, (num_seeds, num_samples))


class Sampler:
    """Draws of a network's outputs from one flat tensor of noise.

    Args:
        network: with its number of outputs.
        num_samples: draws.
        num_points: points at a time, at most.
        sampling: ``lrt`` draws each layer's pre-activations, of an MLP alone; ``weight`` the weights.
        per_point: whether the noise of ``lrt`` differs between points.

    Attributes:
        size: numbers of a seed's noise.
        per_point: whether each point has noise of its own.
    """

    def __init__(self, network: Network, num_samples: int, num_points: int, sampling: str, per_point: bool = True):
        self.network, self.local = network, sampling == "lrt"
        self.per_point = self.local and per_point
        self.shapes = (
            local_noise_shapes(network.widths, num_samples, num_points if self.per_point else 1)
            if self.local
            else weight_noise_shapes(network.shapes, num_samples)
        )
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.size = sum(self.sizes)

    def __call__(self, mean: Sequence[Tensor], var: Sequence[Tensor], x: Tensor, noise: Tensor, at: int = 0) -> Tensor:
        """Outputs ``(seed, sample, n, out)`` for points ``x`` ``(seed, n, *shape)``; their noise begins at ``at``."""
        parts = [p.unflatten(-1, s) for p, s in zip(noise.split(self.sizes, dim=-1), self.shapes, strict=True)]
        if not self.local:
            return weight_samples(self.network, mean, var, x, parts)
        if self.per_point:
            parts = [p[:, :, at : at + x.shape[1]] for p in parts]
        return local_samples(mean, var, x.flatten(2), parts)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Of labels ``(seed, n)``, in nats, averaged over draws of logits ``(seed, draw, n, unit)``."""
    of_draws = labels[:, None].expand(logits.shape[:-1])
    nll = F.cross_entropy(logits.flatten(0, 2), of_draws.flatten(), reduction="none")
    return nll.view_as(of_draws).mean(1)


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
