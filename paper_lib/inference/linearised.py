r"""Networks linearised in their parameters: moments of outputs, kernels and curvature, without a Jacobian.

With parameters :math:`w \sim \mathcal N(m, \mathrm{diag}\, s)` a network linearised at :math:`m` has Gaussian outputs
with mean :math:`f(x; m)` and covariance :math:`J \,\mathrm{diag}(s)\, J^\top`. Three parts of it are all that
function-space methods need, and each falls apart into layers. Write :math:`a_n` for a layer's input at point
:math:`n`, :math:`\delta_{n,c}` for the gradient of output :math:`c` in the layer's pre-activations, and :math:`S` for
the variances of its weights (in x out).

- Variances (``output_moments``): :math:`\sum_o \delta_{n,c,o}^2 \,(a_n^2 S + s_b)_o`. The brackets cost one product a
  point, whatever the number of outputs, and no row of an output passes through the widest layer.
- Covariances among points (``kernel``): :math:`\sum_o \delta_{n,o}\, \delta_{m,o} \sum_i a_{n,i}\, a_{m,i}\, S_{io}`.
  The inner sums are the same for all outputs.
- The diagonal of the generalised Gauss-Newton matrix (``diagonal_ggn``): the softmax Hessian
  :math:`\mathrm{diag}\,p - p p^\top` is :math:`R R^\top` with :math:`R = \mathrm{diag}\sqrt p - p \sqrt p^\top`, so
  columns of :math:`R` go back through the network and their squares are summed, :math:`\sum_n a_{n,i}^2 \sum_k
  \delta_{n,k,o}^2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib.inference.mean_field import moments
from paper_lib.networks import Network, Params

UNITS_AT_ONCE = 32
"""Units of a dense layer whose sums over inputs a kernel keeps at a time."""

POINTS_AT_ONCE = 8
"""Points whose unfolded images a convolution's gradients keep at a time."""

FLOATS_AT_ONCE = 2**26
"""Gradients in pre-activations that are kept at a time: of CifarNet those of about 800 rows of a point."""

VECTORS_AT_ONCE = 512
"""Flat points whose curvature is summed at a time."""

IMAGES_AT_ONCE = 64
"""Images whose curvature is summed at a time."""


def output_moments(
    mean: Sequence[Tensor], var: Sequence[Tensor], x: Tensor, units: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs of a fully connected ReLU network linearised at its mean.

    Both are differentiable in ``mean``, ``var`` and ``x``; one layer makes them the moments of a linear model.

    Args:
        mean: weight ``(seed, in, out)`` and bias ``(seed, 1, out)`` of every layer.
        var: variances of the same shapes.
        x: ``(seed, n, in)``.
        units: ``(n, k)`` output units wanted of each point; None for all of them.

    Returns:
        Two ``(seed, n, k)``.
    """
    hidden, h = [], x
    for at in range(0, len(mean) - 2, 2):
        m, s = moments(h, *mean[at : at + 2], *var[at : at + 2])
        on = (m > 0).to(m.dtype)
        hidden.append((on, on * s))
        h = m.relu()
    f, f_var = moments(h, *mean[-2:], *var[-2:])
    delta = mean[-2].mT[:, None]
    if units is not None:
        at = units.expand(f.shape[0], -1, -1)
        f, f_var, delta = f.gather(-1, at), f_var.gather(-1, at), mean[-2].mT[:, units]
    for layer in reversed(range(len(hidden))):
        on, s = hidden[layer]
        if layer == len(hidden) - 1 and units is None:
            f_var = torch.baddbmm(f_var, s, mean[-2].square())
        else:
            f_var = f_var + _WeightedSquares.apply(delta, s)
        if layer > 0:
            delta = delta * on[:, :, None]
            delta = torch.bmm(delta.flatten(1, 2), mean[2 * layer].mT).unflatten(1, delta.shape[1:3])
    return f, f_var


class _WeightedSquares(torch.autograd.Function):
    """``sum_o delta_{n,k,o}^2 s_{n,o}`` with as few passes over ``delta`` as there can be."""

    @staticmethod
    def forward(ctx, delta, s):
        squared = delta.square()
        ctx.save_for_backward(delta, squared, s)
        return torch.matmul(squared, s[..., None])[..., 0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        delta, squared, s = ctx.saved_tensors
        g_s = torch.matmul(grad[:, :, None], squared)[:, :, 0]
        return torch.mul(grad[..., None], 2 * s[:, :, None]).mul_(delta), g_s


def kernel(network: Network, params: Params, var: Params, x: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    r"""Covariances among points of functions of one seed's outputs, :math:`G \,\mathrm{diag}(s)\, G^\top`.

    Args:
        network: an MLP or CifarNet; nothing is dropped.
        params: its parameters ``(1, ...)``, where it is linearised.
        var: their variances.
        x: ``(n, *shape)``.
        rows: from outputs ``(n, output)`` to ``(k, n, output)``, the gradients of k functions in the outputs.

    Returns:
        ``(k, n, n)`` in the precision of ``params``.
    """
    inputs, groups = _backward(network, params, x, rows)
    dense, kernels = {}, []
    for deltas in groups:
        total = 0.0
        for layer, (a, delta, s, s_bias) in enumerate(zip(inputs, deltas, var[::2], var[1::2], strict=True)):
            if a.dim() == 2:
                dense.setdefault(layer, []).append(delta)
            else:
                own = torch.cat(list(_conv_gradients(a, delta))).transpose(0, 1).flatten(2)
                total = total + torch.stack([(g * s.flatten()) @ g.T for g in own])
                delta = delta.flatten(3).sum(-1)
            total = total + torch.matmul(delta * s_bias.flatten(), delta.mT)
        kernels.append(total)
    total = torch.cat(kernels)
    for layer, delta in dense.items():
        total += _dense_kernel(inputs[layer], torch.cat(delta), var[2 * layer][0])
    return total


def diagonal_ggn(network: Network, params: Params, x: Tensor, units: Sequence[int] | None = None) -> Params:
    r"""The diagonal of :math:`\sum_n J_n^\top (\mathrm{diag}\,p_n - p_n p_n^\top) J_n`, p the softmax probabilities.

    Args:
        network: an MLP or CifarNet; nothing is dropped.
        params: its parameters ``(seed, ...)``.
        x: ``(n, *shape)``, the same points for every seed.
        units: outputs that the softmax runs over; None for all of them.

    Returns:
        Sums over points in the shapes of ``params``.
    """
    total = tuple(torch.zeros_like(p) for p in params)
    for seed in range(params[0].shape[0]):
        one = tuple(p[seed : seed + 1] for p in params)
        for part in x.split(VECTORS_AT_ONCE if x.dim() == 2 else IMAGES_AT_ONCE):
            inputs, groups = _backward(network, one, part, lambda f: softmax_roots(f, units))
            for deltas in groups:
                for a, delta, weight, bias in zip(inputs, deltas, total[::2], total[1::2], strict=True):
                    if a.dim() == 2:
                        squares = delta.square().sum(0)
                        weight[seed] += a.square().T @ squares
                        bias[seed] += squares.sum(0)
                    else:
                        for own in _conv_gradients(a, delta):
                            weight[seed] += own.square_().sum((0, 1)).view_as(weight[seed])
                        bias[seed] += delta.flatten(3).sum(-1).square().sum((0, 1))
    return total


def softmax_roots(f: Tensor, units: Sequence[int] | None = None) -> Tensor:
    """Columns of a root of the softmax Hessian, ``(k, n, output)`` for outputs ``(n, output)``; zero outside units.

    Their outer products sum to ``diag(p) - p p^T``.
    """
    units = range(f.shape[-1]) if units is None else units
    p = f[:, list(units)].softmax(-1)
    roots = torch.zeros((len(units), *f.shape), dtype=f.dtype, device=f.device)
    roots[..., list(units)] = torch.diag_embed(p.sqrt()).transpose(0, 1) - p.sqrt().T[..., None] * p
    return roots


def _backward(
    network: Network, params: Params, x: Tensor, rows: Callable[[Tensor], Tensor]
) -> tuple[list[Tensor], Iterator[list[Tensor]]]:
    """For each layer of one seed's network its inputs and what reaches its pre-activations from each row.

    Returns:
        Inputs ``(n, in)``, or ``(n, channel, height, width)`` of a convolution, and groups of rows, few enough for
        memory: gradients ``(k, n, out)`` or ``(k, n, channel, height, width)`` of every layer.
    """
    tape = []
    with torch.enable_grad():
        f = network([p.detach().requires_grad_() for p in params], x, tape=tape)[0]
    inputs, outputs = zip(*tape, strict=True)
    rows_at_once = max(1, FLOATS_AT_ONCE // sum(o.numel() for o in outputs))

    def groups():
        for group in rows(f.detach()).split(rows_at_once):
            reached = [torch.autograd.grad(f, outputs, row, retain_graph=True) for row in group]
            yield [torch.stack([d[0] if d.dim() == 3 else d for d in layer]) for layer in zip(*reached, strict=True)]

    return [a.detach()[0] if a.dim() == 3 else a.detach() for a in inputs], groups()


def _dense_kernel(a: Tensor, delta: Tensor, s: Tensor) -> Tensor:
    """The part of a dense layer's weights; the products that all rows share are formed some units at a time."""
    total = torch.zeros((len(delta), len(a), len(a)), dtype=a.dtype, device=a.device)
    for at in range(0, s.shape[1], UNITS_AT_ONCE):
        part = slice(at, at + UNITS_AT_ONCE)
        inner = torch.matmul(a * s.T[part, None], a.T)
        for k, d in enumerate(delta[..., part]):
            total[k] += (inner * d.T[:, :, None]).mul_(d.T[:, None]).sum(0)
    return total


def _conv_gradients(a: Tensor, delta: Tensor, size: int = 3) -> Iterator[Tensor]:
    """Gradients of each row and point in the weights of a convolution of stride 1, some points at a time.

    An unfolded image serves all rows, in one product a point.

    Yields:
        ``(n, k, out, in * size * size)``.
    """
    padding = (delta.shape[-1] - a.shape[-1] + size - 1) // 2
    for x, d in zip(a.split(POINTS_AT_ONCE), delta.split(POINTS_AT_ONCE, dim=1), strict=True):
        d = d.transpose(0, 1).flatten(3)
        yield torch.bmm(d.flatten(1, 2), F.unfold(x, size, padding=padding).mT).unflatten(1, d.shape[1:3])
