r"""The log-likelihood of an MLP classifier and its gradient, for many chains at once.

The likelihood of Kessler et al. 2023, Sec. 3, is :math:`\log p(D \mid \theta) = \sum_n \log p(y_n \mid x_n, \theta)`
with a softmax over the network's outputs. The networks are tiny and the chains many, so batched matrix products of ten
by ten are slow. Instead every layer is a broadcast product and a sum, with the data on the last axis: compiled, that is
a loop over the data for each weight, and it fills the processor's vectors. The gradient is written by hand, backwards
through the same loops; nothing is recorded.

Positions are parameters in the order of ``networks.flatten``. The densities here are functions of
``(seed, chain, dim)`` as in ``hmc.LogDensity``. ``Compiled`` makes one fast, prior and all:

>>> from paper_lib.inference import hmc
>>> network = MLP((2,), (10, 10), 2)
>>> x, y = torch.randn(160, 2), torch.randint(2, (160,))
>>> target = hmc.product(likelihood(network, x, y), gaussian_prior(precision=10.0))
>>> log_density, gradient = target(torch.zeros(1, 20, 162))
>>> log_density.shape, gradient.shape
(torch.Size([1, 20]), torch.Size([1, 20, 162]))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib.checks import one_of, within
from paper_lib.inference.gaussian import LOG_2PI
from paper_lib.inference.hmc import LogDensity
from paper_lib.networks import MLP


def likelihood(network: MLP, x: Tensor, y: Tensor) -> LogDensity:
    """The log-likelihood of all points, summed, as a function of the network's parameters.

    Args:
        network: without dropout.
        x: inputs ``(n, *input_shape)`` shared by all chains, or ``(seed, n, *input_shape)``; of the positions' dtype.
        y: labels ``(n,)`` or ``(seed, n)`` int64, each below the number of outputs.

    Returns:
        Positions ``(seed, chain, parameter)`` to log-likelihood ``(seed, chain)``, float64, and gradient. Terms are
        in the positions' dtype, their sum in float64.
    """
    inputs = x.flatten(x.ndim - len(network.input_shape))
    if inputs.ndim not in (2, 3) or inputs.shape[:-1] != y.shape or inputs.shape[-1] != network.widths[0]:
        raise ValueError(
            f"x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)} must be (n, *input_shape) and (n,) with "
            f"inputs of shape {network.input_shape}, or both with a leading axis of seeds"
        )
    if any(network.dropout):
        raise ValueError(f"dropout={network.dropout}: a log-likelihood has no dropout")
    widths = network.widths
    sizes = [size for i, o in pairwise(widths) for size in (i * o, o)]
    if y.numel() == 0:  # a product of no factors
        return lambda theta: (torch.zeros_like(theta[..., 0], dtype=torch.float64), torch.zeros_like(theta))
    first = inputs.view(-1, 1, *inputs.shape[-2:]).mT.contiguous()  # (seed or 1, chain 1, input, n)
    target = F.one_hot(y, widths[-1]).to(x.dtype).view(-1, 1, y.shape[-1], widths[-1]).mT.contiguous()

    def log_density(theta: Tensor) -> tuple[Tensor, Tensor]:
        parts = theta.split(sizes, dim=-1)
        weights = [w.unflatten(-1, shape) for w, shape in zip(parts[::2], pairwise(widths), strict=True)]
        layers = [first]
        for weight, bias in zip(weights, parts[1::2], strict=True):
            if len(layers) > 1:
                layers[-1] = layers[-1].relu()
            layers.append((weight[..., None] * layers[-1][..., :, None, :]).sum(-3) + bias[..., None])
        logits = layers.pop()
        shifted = logits - logits.amax(-2, keepdim=True)
        exponential = shifted.exp()
        total = exponential.sum(-2, keepdim=True)
        log_prob = (shifted * target).sum(-2) - total.log()[..., 0, :]

        slope = target - exponential / total  # of the log-likelihood in the last layer's pre-activations
        gradient = []
        for layer, weight in zip(reversed(layers), reversed(weights), strict=True):
            by_weight = (layer[..., :, None, :] * slope[..., None, :, :]).sum(-1)
            gradient = [by_weight.flatten(-2), slope.sum(-1), *gradient]
            if layer is not first:
                slope = (weight[..., None] * slope[..., None, :, :]).sum(-2) * (layer > 0)
        return log_prob.sum(-1, dtype=torch.float64), torch.cat(gradient, dim=-1)

    return log_density


def gaussian_prior(precision: float) -> LogDensity:
    r"""Independent :math:`\mathcal N(0, 1/\tau)` on every entry of a position; the paper's :math:`\tau` is 10."""
    within("precision", precision, 0, above=True)

    def log_density(theta: Tensor) -> tuple[Tensor, Tensor]:
        constant = 0.5 * theta.shape[-1] * (math.log(precision) - LOG_2PI)
        return constant - 0.5 * precision * theta.square().sum(-1, dtype=torch.float64), -precision * theta

    return log_density


class Compiled:
    """A density compiled by TorchInductor where there is a compiler, and as it is otherwise.

    The first call with a shape compiles, which takes seconds, and finds out whether that works. ``torch.compile`` would
    give the same kernels, look for changes of the density at every call, which at twenty chains costs as much as a
    quarter of the kernels, and after eight densities of one kind, such as those of eight tasks, give up in silence.

    Args:
        density: pure tensor operations, the same ones whatever the values.
        backend: ``compiled``, or ``eager`` to leave it as it is.

    Attributes:
        backend: what is in use.
        reason: why it is not the one asked for; empty where it is.
    """

    def __init__(self, density: LogDensity, backend: str = "compiled"):
        self.density, self.backend, self.reason = density, one_of("backend", backend, ("compiled", "eager")), ""
        self.functions: dict[tuple, Callable] = {}

    def __call__(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        if self.backend == "compiled":
            key = (theta.shape, theta.dtype, theta.device)
            if key in self.functions or self._compile(key, theta):
                return tuple(self.functions[key](theta))
        return self.density(theta)

    @torch.no_grad()
    def _compile(self, key: tuple, theta: Tensor) -> bool:
        """Compile for positions like these, and say whether that worked."""
        import torch._inductor  # a second and a half
        from torch.fx.experimental.proxy_tensor import make_fx

        trace = make_fx(self.density)(theta)  # an error of the density itself is not the compiler's
        try:
            function = torch._inductor.compile(trace, [theta])
            function(theta)
        except Exception as error:  # whatever a missing or broken compiler raises
            self.backend, self.reason = "eager", f"{type(error).__name__}: {error}".splitlines()[0]
            return False
        self.functions[key] = function
        return True
