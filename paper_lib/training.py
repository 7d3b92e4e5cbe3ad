"""Stochastic gradient training of stacked seeds: minibatches, Adam's moments as leaves, and steps that a GPU replays.

One training step of a small network is a hundred kernels of a few microseconds. So a step is written as a function that
changes tensors in place, its inputs lie ready on tapes of many steps, and on a GPU it is captured once as a CUDA graph
and replayed. On a CPU the same function is simply called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib import rng
from paper_lib.networks import Network, Params

STEPS_A_TAPE = 32
"""Steps drawn and copied at a time: part of what a seed sees, so the same on every device."""


class Moments(NamedTuple):
    """Adam's running moments of the gradient, each shaped as the parameters, and the number of steps taken."""

    first: Params
    second: Params
    step: Tensor


def fresh_moments(params: Params) -> Moments:
    """Moments before the first step."""
    zeros = tuple(torch.zeros_like(p, requires_grad=False) for p in params)
    return Moments(zeros, tuple(torch.zeros_like(z) for z in zeros), torch.zeros((), dtype=torch.float32))


def adam(
    params: Params, moments: Moments, learning_rate: float, weight_decay: float = 0.0, num_exempt: int = 0
) -> torch.optim.Adam:
    """PyTorch's fused Adam (Kingma and Ba 2015) over leaves, going on from stored moments.

    Seeds are independent because Adam is element-wise. ``weight_decay`` is the L2 term added to the gradient of all but
    the last ``num_exempt`` parameters.
    """
    on_gpu = params[0].is_cuda
    decayed, exempt = list(params[: len(params) - num_exempt]), list(params[len(params) - num_exempt :])
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}]
    optimiser = torch.optim.Adam(groups, lr=learning_rate, fused=True, capturable=on_gpu)
    for p, first, second in zip(params, moments.first, moments.second, strict=True):
        optimiser.state[p] = {
            "step": moments.step.to(p.device if on_gpu else "cpu").clone(),
            "exp_avg": first.clone(),
            "exp_avg_sq": second.clone(),
        }
    return optimiser


def moments_of(optimiser: torch.optim.Adam) -> Moments:
    """The moments inside an optimiser, to be stored."""
    states = [optimiser.state[p] for group in optimiser.param_groups for p in group["params"]]
    return Moments(
        tuple(s["exp_avg"] for s in states), tuple(s["exp_avg_sq"] for s in states), states[0]["step"].detach().cpu()
    )


def tensors_of(optimiser: torch.optim.Adam) -> list[Tensor]:
    """Every tensor that a step of the optimiser changes besides the parameters."""
    return [t for state in optimiser.state.values() for t in state.values()]


def leaves(params: Params) -> Params:
    """Copies that gradients are taken of, so that the state they come from stays as it is."""
    return tuple(p.detach().clone().requires_grad_() for p in params)


def minibatches(order: Tensor, batch_size: int, drop_partial: bool = False) -> tuple[Tensor, Tensor]:
    """Cut each seed's order into batches of one size.

    Args:
        order: ``(seed, n)`` indices.
        batch_size: points a batch.
        drop_partial: leave out a last batch that is not full; otherwise it is filled up with points of weight 0.

    Returns:
        indices ``(step, seed, batch)`` and weights ``(step, seed, batch)`` float32, 1 for a point and 0 for filling.
    """
    num_seeds, n = order.shape
    steps = n // batch_size if drop_partial else -(-n // batch_size)
    if steps == 0:
        raise ValueError(f"{n} points do not fill one batch of {batch_size}; batch_size must be at most {n}")
    padded = torch.zeros((num_seeds, steps * batch_size), dtype=order.dtype)
    weight = torch.zeros((num_seeds, steps * batch_size))
    kept = min(n, steps * batch_size)
    padded[:, :kept] = order[:, :kept]
    weight[:, :kept] = 1.0
    shape = (num_seeds, steps, batch_size)
    return padded.view(shape).transpose(0, 1), weight.view(shape).transpose(0, 1)


def tapes(num_steps: int, size: int = STEPS_A_TAPE) -> Iterator[slice]:
    """Slices of at most ``size`` steps that cover an epoch."""
    for start in range(0, num_steps, size):
        yield slice(start, min(start + size, num_steps))


class Stepper:
    """Runs an in-place step over tapes of inputs, on a GPU as a replayed CUDA graph.

    Args:
        step: takes one step's slice of every tape and changes ``touched`` in place; no host synchronisation, no shapes
            that depend on data.
        touched: every tensor that the step changes; restored after the warm-up that a capture needs.
    """

    def __init__(self, step: Callable[..., None], touched: Sequence[Tensor]):
        self.step = step
        self.touched = list(touched)
        self.graph = None

    def __call__(self, tapes: Sequence[Tensor]) -> None:
        """Take ``len(tapes[0])`` steps. Tapes longer than any before are captured anew."""
        if not self.touched[0].is_cuda:
            for inputs in zip(*tapes, strict=True):
                self.step(*inputs)
            return
        if self.graph is None or len(tapes[0]) > len(self.tapes[0]):
            self._capture(tapes)
        for own, tape in zip(self.tapes, tapes, strict=True):
            own[: len(tape)].copy_(tape)
        self.position.zero_()
        for _ in range(len(tapes[0])):
            self.graph.replay()

    def _capture(self, tapes: Sequence[Tensor]) -> None:
        self.tapes = [t.to(self.touched[0].device).clone(memory_format=torch.contiguous_format) for t in tapes]
        self.position = torch.zeros(1, dtype=torch.int64, device=self.touched[0].device)

        def advance():
            self.step(*(t.index_select(0, self.position).squeeze(0) for t in self.tapes))
            self.position.add_(1)

        saved = [t.detach().clone() for t in self.touched]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(min(3, len(tapes[0]))):
                advance()
        torch.cuda.current_stream().wait_stream(stream)
        self.position.zero_()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            advance()
        with torch.no_grad():
            for tensor, value in zip(self.touched, saved, strict=True):
                tensor.copy_(value)


def train_epoch(
    stepper: Stepper,
    network: Network,
    draws: Tensor,
    batch_size: int,
    seeds: Sequence[int],
    path: tuple[str | int, ...],
    drop_partial: bool = False,
) -> int:
    """One pass over every seed's draws in its own random order, with dropout masks where the network drops.

    Args:
        stepper: its step takes indices ``(seed, batch)``, weights ``(seed, batch)`` and the network's masks.
        network: draws the masks.
        draws: ``(seed, n)`` indices, CPU.
        batch_size: points a step and seed.
        seeds: of the random order and of the masks.
        path: address of this epoch's random numbers, such as ``(task, epoch)``.
        drop_partial: see ``minibatches``.

    Returns:
        The number of steps taken.
    """
    device = stepper.touched[0].device
    order = rng.permutations(draws.shape[1], rng.generators(seeds, "order", *path))
    index, weight = minibatches(draws.gather(1, order), batch_size, drop_partial)
    noise = rng.generators(seeds, "dropout", *path, device=device)
    for part in tapes(len(index)):
        masks = network.draw_masks(noise, part.stop - part.start, batch_size)
        stepper((index[part].to(device), weight[part].to(device), *masks))
    return len(index)
