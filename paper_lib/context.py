"""Context points, where a method compares functions: drawn from memory, or made up where there is none."""

from __future__ import annotations

import torch
from torch import Tensor

from paper_lib.memory import Memory


def from_memory(memory: Memory, count: int, steps: int, stream: torch.Generator) -> Tensor:
    """Places in memory, ``count`` of every past task without replacement, ``(step, task * count)``.

    Args:
        memory: of past tasks.
        count: points of each.
        steps: draws, independent of each other.
        stream: on the device of the places.

    Raises:
        ValueError: a task has fewer points.
    """
    drawn = []
    for task in memory.task.unique():
        mine = (memory.task == task).nonzero().flatten().to(stream.device)
        if count > len(mine):
            raise ValueError(f"num_context={count} is more than the {len(mine)} points stored of task {int(task) + 1}")
        order = torch.rand(steps, len(mine), generator=stream, device=stream.device).argsort(-1)
        drawn.append(mine[order[:, :count]])
    return torch.cat(drawn, dim=1)


def pixels(
    shape: tuple[int, ...], between: tuple[float, float], count: int, steps: int, stream: torch.Generator
) -> Tensor:
    """Inputs of uniform entries, ``(step, count, *shape)`` float32 before scaling."""
    return torch.empty((steps, count, *shape), device=stream.device).uniform_(*between, generator=stream)


def colours(x: Tensor, count: int, steps: int, stream: torch.Generator) -> Tensor:
    """Images of one colour, and for the other half images of a task, ``(step, count, *shape)`` as stored.

    Args:
        x: the task's images ``(n, channel, height, width)``; each channel of a colour is that of a pixel of its own,
            where Rudner et al.'s code takes all channels of one pixel, and its images from the current batch.
        count: images.
        steps: draws.
        stream: on the device of ``x``.
    """
    channels, half = x.transpose(0, 1).flatten(1), count // 2
    place = torch.randint(channels.shape[1], (len(channels), steps * half), generator=stream, device=x.device)
    plain = channels.gather(1, place).T.reshape(steps, half, len(channels), 1, 1).expand(-1, -1, -1, *x.shape[2:])
    chosen = torch.randint(len(x), (steps, count - half), generator=stream, device=x.device)
    return torch.cat([plain, x[chosen]], dim=1)
