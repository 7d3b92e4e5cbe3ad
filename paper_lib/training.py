"""Stochastic gradient training of stacked seeds: minibatches, Adam's moments as leaves, and steps that a GPU replays.

One training step of a small network is a hundred kernels of a few microseconds. So a step is written as a function that
changes tensors in place, its inputs lie ready on tapes of many steps, and on a GPU it is captured once as a CUDA graph
and replayed. On a CPU the same function is simply called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib import rng
from paper_lib.networks import MASKS_AT_ONCE, Network, Params

STEPS_A_TAPE = 32
"""Steps drawn and copied at a time, at most: part of what a seed sees, so the same on every device."""

NORMALS_AT_ONCE = 10_000_000
"""At most so many normal draws a seed, or else those of one step, lie ready at a time: no device changes the number."""

REPORT_SECONDS = 1.0
"""Time between reports within an epoch."""


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


def smoothed(nll: Tensor, log_probs: Tensor, classes: Tensor, smoothing: float) -> Tensor:
    r"""Cross entropy to a smoothed label, :math:`(1 - \epsilon)\,\delta_y + \epsilon\, U(\text{classes})`.

    Source: Szegedy et al. 2016, Sec. 7. At its minimum the log odds of the label against another class are
    :math:`\log(1 + (1 - \epsilon) n / \epsilon)` with ``n`` classes, where those of an unsmoothed label have no bound.

    Args:
        nll: negative log-likelihood of the labels ``(seed, n)``.
        log_probs: of all classes ``(seed, n, class)``.
        classes: which the uniform part covers, bool ``(seed, n, class)``, at least one a point.
        smoothing: :math:`\epsilon`.

    Returns:
        ``(seed, n)``.
    """
    uniform = -log_probs.masked_fill(~classes, 0.0).sum(-1) / classes.sum(-1)
    return (1 - smoothing) * nll + smoothing * uniform


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


def tape_steps(size: int, at_once: int) -> int:
    """Steps of a tape that holds at most ``at_once`` numbers a seed, ``size`` a step, or else those of one step."""
    return max(1, min(STEPS_A_TAPE, at_once // max(1, size)))


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
        """Take ``len(tapes[0])`` steps."""
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


class Noise(NamedTuple):
    """Random inputs of training steps.

    Attributes:
        word: begins their addresses, ``(word, task, epoch)``.
        tape: steps drawn at a time.
        draw: takes a generator a seed and a number of steps; gives tapes ``(step, seed, ...)``.
    """

    word: str
    tape: int
    draw: Callable[[Sequence[torch.Generator], int], Sequence[Tensor]]


def masks(network: Network, batch_size: int) -> Noise:
    """Dropout masks of a network, none where it drops nothing."""
    return Noise(
        "dropout",
        tape_steps(batch_size * network.mask_size, MASKS_AT_ONCE),
        lambda streams, steps: network.draw_masks(streams, steps, batch_size),
    )


def normals(num_seeds: int, size: int, steps: int, device: str | torch.device) -> Noise:
    """Standard normals ``(step, seed, size)``, in one place of memory: the next draw replaces them.

    Args:
        num_seeds: rows of the place.
        size: numbers a step and seed.
        steps: steps of an epoch.
        device: where they are drawn.
    """
    tape = tape_steps(size, NORMALS_AT_ONCE)
    place = torch.empty(num_seeds, min(tape, steps), size, device=device)

    def draw(streams: Sequence[torch.Generator], steps: int) -> Sequence[Tensor]:
        return (draw_normals(place[:, :steps], streams).transpose(0, 1),)

    return Noise("noise", tape, draw)


def draw_normals(out: Tensor, streams: Sequence[torch.Generator]) -> Tensor:
    """Fill ``(seed, ...)`` with standard normals, each row from its own generator; on a CPU by all its threads."""

    def fill(row: Tensor, stream: torch.Generator) -> None:
        with torch.inference_mode(out.is_inference()):  # a mode of the thread, which a new thread does not inherit
            row.normal_(generator=stream)

    if out.is_cuda or torch.get_num_threads() == 1:
        list(map(fill, out, streams))
    else:
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            list(threads.map(fill, out, streams))
    return out


def seed_parts(num_seeds: int, device: torch.device) -> list[slice]:
    """Seeds computed at once: all on a GPU, one on a CPU, whose cache holds the activations of one."""
    return [slice(None)] if device.type == "cuda" else [slice(r, r + 1) for r in range(num_seeds)]


class Position(NamedTuple):
    """How far a task's training has come: what a state needs to go on from there, besides what is trained.

    Attributes:
        epoch: epochs done, of all phases together.
        step: steps done of the next epoch.
        total: sum over those steps of their losses, ``(seed,)``, or ``(seed, term)`` of losses of several terms.
        losses: mean loss of the epochs done, ``(seed, epoch)`` or ``(seed, epoch, term)``.
    """

    epoch: Tensor
    step: Tensor
    total: Tensor
    losses: Tensor

    def is_at(self, epoch: int) -> bool:
        """Whether just so many epochs are done."""
        return int(self.epoch) == epoch and int(self.step) == 0


def start(num_seeds: int, device: str | torch.device, *terms: int) -> Position:
    """Where every task begins; ``terms`` is how many a loss has, if they are counted one by one."""
    nothing = torch.zeros((), dtype=torch.int64)
    return Position(nothing, nothing, torch.zeros(num_seeds, *terms, device=device), torch.empty(num_seeds, 0, *terms))


class Phase(NamedTuple):
    """A part of learning a task with an optimiser of its own.

    Attributes:
        name: of the method's choice.
        start: epochs of the task before it.
        end: epochs of the task up to its end.
        head: the task whose units it trains.
    """

    name: str
    start: int
    end: int
    head: int


def phases(*parts: tuple[str, int, int]) -> list[Phase]:
    """Phases one after the other from ``(name, epochs, head)``.

    >>> [(phase.name, phase.start, phase.end) for phase in phases(("a", 3, 0), ("b", 2, 0))]
    [('a', 0, 3), ('b', 3, 5)]
    """
    ends = list(accumulate(epochs for _, epochs, _ in parts))
    return [Phase(n, end - epochs, end, head) for (n, epochs, head), end in zip(parts, ends, strict=True)]


class Epochs(NamedTuple):
    """Passes over every seed's draws, each seed in a random order of its own.

    Attributes:
        stepper: its step takes indices ``(seed, batch)``, weights ``(seed, batch)`` and the noise's tapes.
        total: to which a step adds its losses, ``(seed,)`` or ``(seed, term)``.
        draws: ``(seed, n)`` indices, CPU.
        batch_size: points a step and seed.
        seeds: of the random order and of the noise.
        noise: further inputs of a step.
        drop_partial: see ``minibatches``.
    """

    stepper: Stepper
    total: Tensor
    draws: Tensor
    batch_size: int
    seeds: Sequence[int]
    noise: Noise
    drop_partial: bool = False

    def run(self, at: Position, end: int, task: int) -> Iterator[tuple[Position, float]]:
        """Train from a position up to an epoch.

        Args:
            at: where to go on.
            end: epochs of the task that are done afterwards.
            task: part of the address of all random numbers; so an order is drawn again, and noise before ``at`` is
                drawn and thrown away.

        Yields:
            After each epoch, and about once a second within one, where training is, and the epochs done with their
            fraction. ``total`` shares memory with the step: whoever keeps it copies.
        """
        device, losses, first = self.total.device, at.losses, int(at.step)
        self.total.copy_(at.total)
        shown = time.monotonic()
        for epoch in range(int(at.epoch), end):
            order = rng.permutations(self.draws.shape[1], rng.generators(self.seeds, "order", task, epoch))
            index, weight = minibatches(self.draws.gather(1, order), self.batch_size, self.drop_partial)
            num_steps, streams = len(index), rng.generators(self.seeds, self.noise.word, task, epoch, device=device)
            for part in tapes(num_steps, self.noise.tape):
                noise = self.noise.draw(streams, part.stop - part.start)
                tape = (index[part].to(device), weight[part].to(device), *noise)
                at_once = part.stop - part.start if device.type == "cuda" else 1
                for step in range(max(first, part.start), part.stop, at_once):
                    piece = slice(step - part.start, step - part.start + at_once)
                    self.stepper([t[piece] for t in tape])
                    done = min(step + at_once, part.stop)
                    if done < num_steps and time.monotonic() - shown >= REPORT_SECONDS:
                        position = Position(torch.tensor(epoch), torch.tensor(done), self.total, losses)
                        yield position, epoch + done / num_steps
                        shown = time.monotonic()
            mean = self.total.cpu()[:, None] / num_steps
            losses, first = torch.cat([losses, mean.to(losses.dtype)], dim=1), 0
            self.total.zero_()
            yield Position(torch.tensor(epoch + 1), torch.tensor(0), self.total, losses), epoch + 1
            shown = time.monotonic()
