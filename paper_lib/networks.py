"""Networks whose seeds advance together: every parameter carries the seed on its first axis.

A network is a frozen description; its parameters are a tuple of tensors, weight then bias, layer by layer. Calling it
with parameters of ``R`` seeds computes ``R`` networks: one batched product a layer for the MLP, a loop over seeds
inside one helper for the convolutions. Dropout masks are inputs, drawn beforehand, so that a forward pass is pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib import rng
from paper_lib.checks import one_of

Params = tuple[Tensor, ...]
Tape = list[tuple[Tensor, Tensor]]


MASKS_AT_ONCE = 2_500_000
"""Entries of masks of a seed that lie ready at a time, or else those of one step: no device changes the number."""

IMAGES_AT_ONCE = 256
"""Images that a convolutional network takes at a time on a CPU where nothing is differentiated: a thousand of them have
half a gigabyte of activations."""

Kind = Literal["mlp", "cifarnet"]
Precision = Literal["auto", "float32", "bfloat16"]


class Network(Protocol):
    """What methods rely on.

    Attributes:
        input_shape: shape of one input.
        shapes: of one seed's parameters, weight then bias, layer by layer.
        mask_size: entries of one point's dropout masks.
    """

    input_shape: tuple[int, ...]
    shapes: Sequence[tuple[int, ...]]
    mask_size: int

    def init(self, seeds: Sequence[int], device: str | torch.device, dtype: torch.dtype = torch.float32) -> Params:
        """Fresh parameters, each ``(seed, ...)``."""

    def __call__(self, params: Params, x: Tensor, masks: Sequence[Tensor] = (), tape: Tape | None = None) -> Tensor:
        """Outputs ``(seed, n, output)`` for inputs ``(n, *shape)`` shared by the seeds or ``(seed, n, *shape)``.

        Every layer's input and pre-activation are appended to ``tape``.
        """

    def draw_masks(self, streams: Sequence[torch.Generator], steps: int, batch: int) -> tuple[Tensor, ...]:
        """Factors ``(step, seed, batch, *layer)``, 0 or 1/(1 - rate), for each layer that drops; none if none does."""


def _uniform_layers(shapes: Sequence[tuple[int, ...]], fan_ins: Sequence[int], seeds, device, dtype) -> Params:
    """Weights and biases uniform on +-1/sqrt(fan in), PyTorch's default for linear and convolutional layers."""
    drawn = []
    for stream in rng.generators(seeds, "init"):
        drawn.append(
            [
                torch.empty(s, dtype=dtype).uniform_(-1 / math.sqrt(f), 1 / math.sqrt(f), generator=stream)
                for s, f in zip(shapes, fan_ins, strict=True)
            ]
        )
    return tuple(torch.stack(tensors).to(device) for tensors in zip(*drawn, strict=True))


def _draw_masks(shapes, rates, streams, steps: int, batch: int) -> tuple[Tensor, ...]:
    """Sixteen random bits decide on a unit: several times cheaper than a Bernoulli draw, to 1 in 65,536."""
    masks = []
    for shape, rate in zip(shapes, rates, strict=True):
        if rate > 0:
            size = steps * batch * math.prod(shape)
            bits = torch.empty((len(streams), -(-size // 4)), dtype=torch.int64, device=streams[0].device)
            for row, stream in zip(bits, streams, strict=True):
                row.random_(-(2**63), None, generator=stream)
            kept = bits.view(torch.int16)[:, :size] >= round(65536 * rate) - 32768
            scaled = kept.to(torch.float32).div_(1 - rate)
            masks.append(scaled.view(len(streams), steps, batch, *shape).transpose(0, 1))
    return tuple(masks)


def _layer(h: Tensor, a: Tensor, tape: Tape | None) -> Tensor:
    """A layer's pre-activation ``h``, noted down with the input ``a`` that it comes from."""
    if tape is not None:
        tape.append((a, h))
    return h


def _row(x: Tensor, seed: int) -> Tensor:
    """One seed's images."""
    return x if x.dim() == 4 else x[seed]


@dataclass(frozen=True)
class MLP:
    """Fully connected ReLU layers.

    Attributes:
        input_shape: shape of one input, flattened first.
        hidden: widths of the hidden layers.
        num_outputs: width of the last layer, which is linear.
        dropout: rate after each layer, hidden layers first; shorter than the layers means none after the rest.
    """

    input_shape: tuple[int, ...]
    hidden: tuple[int, ...]
    num_outputs: int
    dropout: tuple[float, ...] = ()

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden layers, outputs."""
        return (math.prod(self.input_shape), *self.hidden, self.num_outputs)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Weight and bias of every layer."""
        return [s for i, o in pairwise(self.widths) for s in ((i, o), (1, o))]

    @property
    def mask_size(self) -> int:
        """Units that dropout decides on."""
        return sum(w for w, rate in zip(self.widths[1:], self._rates(), strict=True) if rate > 0)

    def init(self, seeds, device, dtype=torch.float32):
        fan_ins = [i for i in self.widths[:-1] for _ in range(2)]
        return _uniform_layers(self.shapes, fan_ins, seeds, device, dtype)

    def __call__(self, params, x, masks=(), tape=None):
        masks = list(masks)
        h = x.flatten(-len(self.input_shape))
        if h.dim() == 2:
            h = h.expand(params[0].shape[0], *h.shape)
        for layer, rate in enumerate(self._rates()):
            h = _layer(torch.baddbmm(params[2 * layer + 1], h, params[2 * layer]), h, tape)
            if layer < len(self.hidden):
                h = F.relu(h)
            if masks and rate > 0:
                h = h * masks.pop(0)
        return h

    def draw_masks(self, streams, steps, batch):
        return _draw_masks([(w,) for w in self.widths[1:]], self._rates(), streams, steps, batch)

    def _rates(self) -> tuple[float, ...]:
        num_layers = len(self.hidden) + 1
        return (*self.dropout, *[0.0] * num_layers)[:num_layers]


_CIFAR_MASKS = ((32, 15, 15), (64, 6, 6), (512,))


def precision(name: str, device: str | torch.device) -> torch.dtype:
    """What convolutions compute in: ``auto`` is bfloat16 on a CPU that has instructions for it, else float32.

    A CPU without them takes ten times as long in bfloat16 as in float32.
    """
    if one_of("precision", name, get_args(Precision)) != "auto":
        return getattr(torch, name)
    return torch.bfloat16 if torch.device(device).type == "cpu" and bfloat16_instructions() else torch.float32


def bfloat16_instructions() -> tuple[str, ...]:
    """What this machine's CPU has for products in bfloat16, a matter of PyTorch's private names."""
    kinds = {"AVX512-BF16": "_is_avx512_bf16_supported", "AMX": "_is_amx_tile_supported"}
    return tuple(kind for kind, name in kinds.items() if getattr(torch.cpu, name, bool)())


@dataclass(frozen=True)
class CifarNet:
    """Four 3x3 convolutions and two linear layers, the network of Zenke et al. 2017 that the paper uses on CIFAR.

    Attributes:
        num_outputs: width of the last layer.
        dropout: rates after the two pooling layers and after the hidden linear layer.
        precision: of all layers but the first and the last, see ``precision``; parameters, gradients and outputs stay
            as they are. It is for float32 parameters, and a call with a tape leaves it aside.
    """

    num_outputs: int
    dropout: tuple[float, float, float] = (0.25, 0.25, 0.5)
    precision: str = "float32"

    input_shape: ClassVar[tuple[int, ...]] = (3, 32, 32)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weight and bias of every layer."""
        convolutions = [s for o, i in ((32, 3), (32, 32), (64, 32), (64, 64)) for s in ((o, i, 3, 3), (o,))]
        return [*convolutions, (2304, 512), (1, 512), (512, self.num_outputs), (1, self.num_outputs)]

    @property
    def mask_size(self) -> int:
        """Units that dropout decides on."""
        return sum(math.prod(s) for s, rate in zip(_CIFAR_MASKS, self.dropout, strict=True) if rate > 0)

    def init(self, seeds, device, dtype=torch.float32):
        fan_ins = [f for f in (27, 288, 288, 576, 2304, 512) for _ in range(2)]
        return _uniform_layers(self.shapes, fan_ins, seeds, device, dtype)

    def __call__(self, params, x, masks=(), tape=None):
        return self._by_seed(self._one, params, x, masks, tape)

    def features(self, params: Params, x: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """Inputs of the last layer, ``(seed, n, 512)``."""
        return self._by_seed(self._trunk, params, x, masks)

    def _by_seed(self, function, params, x, masks, tape=None):
        whole = torch.is_grad_enabled() or tape is not None or x.is_cuda
        found = []
        for seed in range(params[0].shape[0]):
            p = [q[seed] for q in params]
            own = (_row(x, seed), *(m[seed] for m in masks))
            pieces = [own] if whole else zip(*(t.split(IMAGES_AT_ONCE) for t in own), strict=True)
            found.append(torch.cat([function(p, images, rest, tape) for images, *rest in pieces]))
        return torch.stack(found)

    def _one(self, p, x, masks, tape=None):
        x = self._trunk(p, x, masks, tape)
        return _layer(torch.addmm(p[11], x, p[10]), x, tape)

    def _trunk(self, p, x, masks, tape=None):
        outside = p[0].dtype
        inside = precision(self.precision, x.device) if tape is None and outside == torch.float32 else outside
        # The first layer's weight gradient, of three channels in bfloat16, is a hundred times slower where the threads
        # of a CPU have no core each.
        p, masks = [*p[:2], *(q.to(inside) for q in p[2:10])], [_channels_last(m.to(inside)) for m in masks]
        x = _channels_last(x)
        for block in range(2):
            at = 4 * block
            h = _layer(F.conv2d(x, p[at], p[at + 1], padding=1), x, tape).to(inside)
            x = F.relu(h, inplace=tape is None)
            # The rectified largest is the largest rectified, and a quarter of the work.
            x = F.relu(F.max_pool2d(_layer(F.conv2d(x, p[at + 2], p[at + 3]), x, tape), 2))
            x = x * masks.pop(0) if masks and self.dropout[block] > 0 else x
        x = x.flatten(1)
        x = F.relu(_layer(torch.addmm(p[9], x, p[8]), x, tape))
        x = x * masks.pop(0) if masks and self.dropout[2] > 0 else x
        return x.to(outside)

    def draw_masks(self, streams, steps, batch):
        return _draw_masks(_CIFAR_MASKS, self.dropout, streams, steps, batch)


def _channels_last(x: Tensor) -> Tensor:
    """Images with their channels side by side in memory, as convolutions on a CPU are fastest; other tensors as is."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def build(
    kind: str,
    input_shape: tuple[int, ...],
    hidden: tuple[int, ...],
    num_outputs: int,
    dropout: tuple[float, ...],
    precision: str = "float32",
) -> Network:
    """The network of a name: ``mlp`` with its hidden layers, or ``cifarnet`` with its own layers and dropout rates.

    ``precision`` is CifarNet's; an MLP computes in that of its parameters.
    """
    one_of("network", kind, get_args(Kind))
    if kind == "mlp":
        return MLP(input_shape, hidden, num_outputs, dropout)
    if input_shape != CifarNet.input_shape:
        raise ValueError(f"network='cifarnet' takes inputs of shape (3, 32, 32), and these have {input_shape}")
    return CifarNet(num_outputs, precision=precision)


def flatten(params: Params) -> Tensor:
    """All parameters as ``(seed, parameter)``, in the order of the tuple."""
    return torch.cat([p.flatten(1) for p in params], dim=1)


def unflatten(flat: Tensor, like: Params) -> Params:
    """The inverse of ``flatten``: views of ``(seed, parameter)`` in the shapes of ``like``."""
    sizes = [p[0].numel() for p in like]
    if flat.shape[-1] != sum(sizes):
        raise ValueError(f"a vector of {flat.shape[-1]} entries does not fill {sum(sizes)} parameters")
    return tuple(f.view(flat.shape[0], *p.shape[1:]) for f, p in zip(flat.split(sizes, dim=-1), like, strict=True))
