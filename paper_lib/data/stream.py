"""Streams of tasks: what a continual-learning method sees, in which order, and what it is asked afterwards.

A data set's classes are dealt to tasks in their natural order. The scenario says which output unit a class owns and
whether the task is named at test time (van de Ven and Tolias 2019; Kessler et al. 2023, App. A):

- ``task_incremental``: a unit a class; the task is named, so only its own units compete (a multi-head network).
- ``domain_incremental``: unit = position of the class inside its task; every task shares those units.
- ``class_incremental``: a unit a class; the task is not named, so all units compete.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SCENARIOS = ("task_incremental", "domain_incremental", "class_incremental")


@dataclass(frozen=True)
class Spec:
    """What a method may know before it sees data.

    Attributes:
        dataset: name of the stream, such as ``split_mnist``.
        scenario: one of ``SCENARIOS``.
        input_shape: shape of one input, ``(channels, height, width)`` for images and ``(dim,)`` for toys.
        task_units: for each task the output units that its labels use.
        class_names: for each task the names of its classes, in the order of its units.
        pixel_mean: per channel (or per dimension), subtracted from inputs in [0, 1].
        pixel_sd: per channel (or per dimension), divides after the subtraction.
    """

    dataset: str
    scenario: str
    input_shape: tuple[int, ...]
    task_units: tuple[tuple[int, ...], ...]
    class_names: tuple[tuple[str, ...], ...]
    pixel_mean: tuple[float, ...]
    pixel_sd: tuple[float, ...]

    @property
    def num_tasks(self) -> int:
        return len(self.task_units)

    @property
    def num_units(self) -> int:
        """Width of the output layer."""
        return 1 + max(max(units) for units in self.task_units)

    @property
    def num_inputs(self) -> int:
        """Entries of one flattened input."""
        return int(torch.Size(self.input_shape).numel())

    def scale(self, x: Tensor) -> Tensor:
        """Standardised float32 inputs from stored ones (uint8 pixels or floats).

        Args:
            x: ``(..., *input_shape)``; uint8 is read as 255ths.

        Returns:
            ``(..., *input_shape)``, float32 (float64 stays float64).
        """
        tail = (-1,) + (1,) * (len(self.input_shape) - 1)
        if x.dtype == torch.uint8:
            mean, inverse_sd = (torch.tensor(v, device=x.device).view(tail) for v in self._affine(255.0))
            return x.float().sub_(mean).mul_(inverse_sd)
        mean, inverse_sd = (torch.tensor(v, device=x.device, dtype=x.dtype).view(tail) for v in self._affine(1.0))
        return (x - mean) * inverse_sd

    def _affine(self, white: float) -> tuple[list[float], list[float]]:
        return [white * m for m in self.pixel_mean], [1.0 / (white * s) for s in self.pixel_sd]


@dataclass(frozen=True)
class Task:
    """One task's inputs and labels.

    Attributes:
        index: position in the stream, from 0.
        x: ``(n, *input_shape)``, uint8 pixels or floats.
        y: ``(n,)`` int64, the output unit of each point.
    """

    index: int
    x: Tensor
    y: Tensor

    def to(self, device: str | torch.device) -> Task:
        return Task(self.index, self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Stream:
    """Tasks in order, with what evaluates each.

    Attributes:
        spec: what a method may know before it sees data.
        train: training data of each task.
        held_out: the data that each task is evaluated on (test or validation).
        digest: SHA-256 over specification, training and held-out data.
    """

    spec: Spec
    train: tuple[Task, ...]
    held_out: tuple[Task, ...]
    digest: str
