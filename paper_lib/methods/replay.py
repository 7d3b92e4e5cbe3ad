r"""Plain replay: stochastic gradient descent on the current task united with a memory of past ones.

The minimised loss of a batch is the weighted mean of :math:`-\log \mathrm{softmax}(f(x; w))_y` over the units that
compete for a point: all of them, or those of its own task where the task is named (a multi-head network). With label
smoothing the one-hot label is mixed with the uniform distribution over the classes seen so far.

Three of the bounds and baselines are this method with other settings, each a function below: ``sgd`` keeps no memory,
``joint`` keeps everything and starts afresh for every task, ``single_task`` keeps nothing and starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib import memory as mem
from paper_lib import training
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.methods import Learned, of_task, unreported
from paper_lib.networks import Kind, Network, Params, Precision, build


class State(NamedTuple):
    """What ``Replay`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        params: network parameters, each ``(seed, ...)``.
        moments: Adam's moments.
        memory: points of past tasks.
        at: how far the task in progress has come.
    """

    spec: Spec
    seeds: tuple[int, ...]
    params: Params
    moments: training.Moments
    memory: mem.Memory
    at: training.Position


@dataclass(frozen=True)
class Replay:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    Attributes:
        hidden: widths of the MLP's hidden layers; ignored by CifarNet.
        network: ``mlp`` or ``cifarnet``.
        dropout: rate after each hidden layer of the MLP; CifarNet has its own.
        epochs: passes over each task, or one number a task.
        batch_size: points a step, or None for all of them.
        learning_rate: of Adam.
        weight_decay: L2 term added to the gradient, of the trunk alone where each task has its head.
        memory_per_task: points kept of each task, or None for all of them.
        oversample: repeat memory in an epoch until old and new are about 1:1.
        replay_weight: weight of a memory point's loss, 1 for a current point's.
        label_smoothing: share of the uniform distribution over competing classes, of the task and of memory, in a
            label: the log odds that the loss asks for are then bounded.
        restart: begin every task with fresh parameters.
        train_trunk: False freezes all layers but the last after the first task.
        precision: of CifarNet: ``auto`` is what the device is fast in, and the run's provenance says which it was.
    """

    hidden: tuple[int, ...] = (200, 200)
    network: Kind = "mlp"
    dropout: float = 0.0
    epochs: int | tuple[int, ...] = 10
    batch_size: int | None = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    memory_per_task: int | None = 200
    oversample: bool = True
    replay_weight: float = 1.0
    label_smoothing: float = 0.0
    restart: bool = False
    train_trunk: bool = True
    precision: Precision = "auto"

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(self)
        each_within("hidden", self.hidden, 1)
        each_within("epochs", self.epochs, 1)
        if self.batch_size is not None:
            within("batch_size", self.batch_size, 1)
        within("learning_rate", self.learning_rate, 0, above=True)
        for name in ("dropout", "label_smoothing"):
            within(name, getattr(self, name), 0, 1, below=True)
        for name in ("weight_decay", "replay_weight"):
            within(name, getattr(self, name), 0)
        if self.memory_per_task is not None:
            within("memory_per_task", self.memory_per_task, 0)

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        of_task("epochs", self.epochs, spec.num_tasks - 1)  # raises where a task has none
        params = self._network(spec).init(seeds, device)
        memory = mem.empty(spec, 1 if self.memory_per_task is None else len(seeds), device)
        return State(
            spec,
            tuple(seeds),
            params,
            training.fresh_moments(params),
            memory,
            training.start(len(seeds), device),
        )

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        spec, seeds = state.spec, state.seeds
        network = self._network(spec)
        if state.at.is_at(0):
            fresh = network.init(seeds, task.x.device) if self.restart else state.params
            state = state._replace(params=fresh, moments=training.fresh_moments(fresh))
        trained = slice(None) if self.train_trunk or task.index == 0 else slice(-2, None)
        params = training.leaves(state.params)
        moments = training.Moments(state.moments.first[trained], state.moments.second[trained], state.moments.step)
        # Where each task has its head, decay would move the heads of tasks that are not being learned.
        heads = 2 if spec.scenario == "task_incremental" else 0
        optimiser = training.adam(params[trained], moments, self.learning_rate, self.weight_decay, heads)
        pool = mem.pool(task, state.memory, len(seeds), self.oversample)
        total = torch.zeros(len(seeds), device=task.x.device)
        competing = spec.competing_units().to(task.x.device)
        scale = spec.scaler(task.x.device)
        seen = mem.seen(task.y, state.memory, spec.num_units)[:, None]

        def step(index, weight, *masks):
            y = pool.y[index]
            logits = network(params, scale(pool.x[index]), masks)
            logits = logits.masked_fill(~competing[y], -torch.inf)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(weight)
            if self.label_smoothing:
                loss = training.smoothed(loss, logits.log_softmax(-1), competing[y] & seen, self.label_smoothing)
            weight = torch.where(index < pool.num_current, weight, weight * self.replay_weight)
            # A batch of memory alone has no weight at all where replay_weight is 0.
            losses = (weight * loss).sum(-1) / weight.sum(-1).clamp_min(torch.finfo(weight.dtype).tiny)
            optimiser.zero_grad(set_to_none=True)
            losses.sum().backward()
            optimiser.step()
            total.add_(losses.detach())

        def current(at: training.Position) -> State:
            new = training.moments_of(optimiser)
            kept = [tuple(old[: len(old) - len(n)] + n) for old, n in zip(state.moments[:2], new[:2], strict=True)]
            return state._replace(
                params=tuple(p.detach() for p in params),
                moments=training.Moments(*kept, new.step),
                at=at,
            )

        stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser), total])
        num_draws = pool.draws.shape[1]
        batch_size, at = min(self.batch_size or num_draws, num_draws), state.at
        epochs = training.Epochs(stepper, total, pool.draws, batch_size, seeds, training.masks(network, batch_size))
        num_epochs = of_task("epochs", self.epochs, task.index)
        for at, done in epochs.run(state.at, num_epochs, task.index):
            report(current(at), done / num_epochs)
        state = current(training.start(len(seeds), task.x.device))
        return Learned(state._replace(memory=self._remember(state, task)), {"loss": at.losses})

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        logits = self._network(state.spec)(state.params, state.spec.scale(x))
        return logits.masked_fill(~state.spec.task_mask(task_id).to(x.device), -torch.inf).log_softmax(-1)

    def _network(self, spec: Spec) -> Network:
        rates = (self.dropout,) * len(self.hidden)
        return build(self.network, spec.input_shape, self.hidden, spec.num_units, rates, self.precision)

    def _remember(self, state: State, task: Task) -> mem.Memory:
        if self.memory_per_task is None:
            return mem.add(state.memory, task, torch.arange(len(task.y))[None])
        return mem.add(state.memory, task, mem.choose(len(task.y), self.memory_per_task, state.seeds, task.index))


sgd = partial(Replay, memory_per_task=0)
"""Training on each task alone, from where the last one ended."""

joint = partial(Replay, memory_per_task=None, oversample=False, restart=True)
"""Training afresh on all tasks so far: what remembering everything reaches."""

single_task = partial(Replay, memory_per_task=0, restart=True)
"""A fresh network for each task: what a task reaches with nothing to remember and nothing learned before."""
