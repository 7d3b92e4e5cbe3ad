"""Continual-learning methods, one a file, all with the contract below.

A method is a frozen configuration with three functions. It never sees the stream: the driver hands it one task's
training data at a time and asks for predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from paper_lib.data.stream import Spec, Task

State = NamedTuple
"""A nested tree of NamedTuples and tuples whose leaves are tensors: all there is to save.

Leaves that are no tensors never change: ``spec`` and ``seeds``, as ``init`` was given them, and frozen settings. The
tree has the same structure after ``init`` and after every task; tensors may change shape. Seeds come first in every
tensor that differs between them; what is ragged over seeds is padded and masked.
"""


class Learned(NamedTuple):
    """What ``learn`` gives back of one task.

    Attributes:
        state: the state after it.
        info: small numbers for the record, name to ``(seed, ...)``, such as ``loss`` ``(seed, epoch)``.
        kept: arrays that outlive the run, name to ``(seed, ...)``: draws, traces, curves. They may be large.
    """

    state: State
    info: Mapping[str, Tensor]
    kept: Mapping[str, Tensor] = MappingProxyType({})


def unreported(state: State, fraction: float) -> None:
    """The default of ``learn``'s ``report``: nobody listens."""


class Method(Protocol):
    """The contract. ``VERSION`` is bumped when the numbers of a method move."""

    VERSION: int

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        """The state before any data, from shapes and seeds alone."""

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        """What becomes of a state with one task, from its training data and the method's own memory.

        ``report(state, fraction)`` may be called between steps, about once a second and after each epoch, with a state
        from which ``learn`` can go on: given that state and the same task, it must end where the uninterrupted call
        ends. The state may share memory with what trains on. ``learn`` ends by building all that prediction needs.
        """

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        """Log-probabilities ``(seed, n, unit)`` for stored inputs ``x`` ``(n, *input_shape)``.

        Pure: no labels, no update. ``task_id`` is given in task-incremental streams alone; units outside that task then
        have log-probability minus infinity.
        """


def of_task(name: str, setting: float | tuple[float, ...], task_index: int) -> float:
    """The value for a task of a setting that is one number, or one a task.

    Raises:
        ValueError: there is none for the task.

    >>> of_task("epochs", 3, 7), of_task("epochs", (3, 5), 1)
    (3, 5)
    """
    if not isinstance(setting, tuple):
        return setting
    if task_index >= len(setting):
        raise ValueError(f"{name}={setting!r} has none for task {task_index + 1}; give one number, or one a task")
    return setting[task_index]
