"""Replay memory of stacked seeds: what is kept of past tasks, and the pool that an epoch draws from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib import rng
from paper_lib.checks import within
from paper_lib.data.stream import Spec, Task


class Memory(NamedTuple):
    """Points kept of past tasks; every seed keeps as many.

    Attributes:
        x: ``(seed, m, *input_shape)`` as stored (uint8 pixels or floats). A first axis of 1 serves all seeds.
        y: ``(seed, m)`` int64 output units.
        task: ``(m,)`` int64, the task that each place's point comes from.
    """

    x: Tensor
    y: Tensor
    task: Tensor

    @property
    def size(self) -> int:
        return self.y.shape[1]


class Pool(NamedTuple):
    """A task's data and memory side by side.

    Attributes:
        x: ``(n, *input_shape)``, all points of the task and of every seed's memory.
        y: ``(n,)`` int64 output units.
        draws: ``(seed, m)`` int64 on the CPU, the points of one epoch, memory repeated where it is oversampled.
        num_current: the first ``num_current`` points of ``x`` are the current task's.
    """

    x: Tensor
    y: Tensor
    draws: Tensor
    num_current: int


def empty(spec: Spec, num_seeds: int, device: str | torch.device) -> Memory:
    """Memory before the first task."""
    return Memory(
        torch.empty((num_seeds, 0, *spec.input_shape), dtype=torch.uint8, device=device),
        torch.empty((num_seeds, 0), dtype=torch.int64, device=device),
        torch.empty(0, dtype=torch.int64),
    )


def add(memory: Memory, task: Task, chosen: Tensor, keep: int | None = None) -> Memory:
    """Memory with the chosen points of a task.

    Args:
        memory: memory of past tasks.
        task: the task just learned.
        chosen: ``(seed, m)`` indices into the task's points.
        keep: points to keep of every past task, the first ones of each; all of them if None.
    """
    chosen = chosen.to(task.y.device)
    kept = torch.arange(memory.size)
    if keep is not None and memory.size:
        kept = torch.cat([(memory.task == t).nonzero().flatten()[:keep] for t in memory.task.unique()])
    on_device = kept.to(task.y.device)
    return Memory(
        torch.cat([memory.x[:, on_device].to(task.x.dtype), task.x[chosen]], dim=1),
        torch.cat([memory.y[:, on_device], task.y[chosen]], dim=1),
        torch.cat([memory.task[kept], torch.full((chosen.shape[1],), task.index)]),
    )


def choose(num_points: int, num_chosen: int, seeds: Sequence[int], task_index: int) -> Tensor:
    """Random points to keep, ``(seed, min(num_chosen, num_points))`` indices without replacement."""
    streams = rng.generators(seeds, "memory", task_index)
    return rng.permutations(num_points, streams)[:, :num_chosen]


def pool(task: Task, memory: Memory, num_seeds: int, oversample: bool) -> Pool:
    """The pool of Algorithm 1's line 3, a task's data united with memory.

    Args:
        task: the current task, ``n`` points.
        memory: memory of past tasks, ``m`` points a seed.
        num_seeds: rows of ``draws``.
        oversample: repeat memory ``max(1, n // m)`` times, so that old and new are about 1:1; otherwise a plain union.
    """
    n, m = len(task.y), memory.size
    current = torch.arange(n).expand(num_seeds, n)
    if m == 0:
        return Pool(task.x, task.y, current, n)
    start = n + m * torch.arange(num_seeds)[:, None] * (memory.x.shape[0] > 1)
    old = (start + torch.arange(m)).repeat(1, max(1, n // m) if oversample else 1)
    x = torch.cat([task.x, memory.x.flatten(0, 1)])
    y = torch.cat([task.y, memory.y.flatten()])
    return Pool(x, y, torch.cat([current, old], dim=1), n)


def seen(y: Tensor, memory: Memory, num_units: int) -> Tensor:
    """The units that a task's labels or memory's name, bool ``(seed, unit)``; one row where all seeds share memory.

    >>> past = Memory(torch.zeros(2, 1), torch.tensor([[0], [1]]), torch.zeros(1))
    >>> seen(torch.tensor([3, 3]), past, 4).int().tolist()
    [[1, 0, 0, 1], [0, 1, 0, 1]]
    """
    found = torch.zeros((memory.y.shape[0], num_units), dtype=torch.bool, device=y.device)
    return found.scatter(1, memory.y, True).index_fill(1, y.unique(), True)


def k_centre(x: Tensor, num_chosen: int) -> Tensor:
    """Greedy k-centre points ``(num_chosen,)``: from the first, always the one farthest from all chosen so far.

    Source: Gonzalez 1985; the coreset of Nguyen et al. 2018, Sec. 3. Distances are Euclidean between stored inputs. No
    point is chosen twice, so at most all of them can be.

    >>> k_centre(torch.arange(11.0)[:, None], 3).tolist()
    [0, 10, 5]
    """
    within("num_chosen", num_chosen, 0, len(x))
    points = x.flatten(1).float()
    chosen = torch.zeros(num_chosen, dtype=torch.int64, device=x.device)
    distance = torch.full((len(x),), torch.inf, device=x.device)
    for place in range(1, num_chosen):
        latest = points[chosen[place - 1]]
        distance = torch.minimum(distance, torch.linalg.vector_norm(points - latest, dim=1))
        distance[chosen[place - 1]] = -1.0
        chosen[place] = distance.argmax()
    return chosen
