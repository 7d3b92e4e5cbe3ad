r"""FROMP: functional regularisation of the memorable past (Pan et al. 2020).

A deterministic network with weights :math:`w` has a Laplace posterior :math:`\mathcal N(w_t, \Sigma_t)`, its precision
the diagonal :math:`\delta + F_t`, where :math:`F_t` sums the generalised Gauss-Newton diagonal of every task's data at
the weights that the task ended at. Linearised there, the probabilities of a class at the stored points of a task are a
Gaussian vector with covariance :math:`K = G \Sigma G^\top + \epsilon I`. Task ``t`` minimises over minibatches

.. math:: \tfrac1\tau \operatorname{mean}\bigl(-\log p(y \mid x, w)\bigr)
    + \tfrac12 \sum_{s<t} \sum_c r_{s,c}^\top K_{s,c}^{-1} r_{s,c}, \qquad r_{s,c} = p_{s,c}(w) - p_{s,c}(w_{t-1}),

with the kernels built once a task, at :math:`w_{t-1}`, in float64. The gradient of the second term is
:math:`J^\top K^{-1} r`, so one pass of all stored points through the network and back is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib import memory as mem
from paper_lib import rng, training
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference.linearised import diagonal_ggn, kernel
from paper_lib.methods import Learned, of_task, unreported
from paper_lib.networks import Kind, Network, Params, build

POINTS_AT_ONCE = 4096
"""Points whose scores are computed at a time."""


class State(NamedTuple):
    """What ``FROMP`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        params: network parameters, each ``(seed, ...)``.
        old: w_{t-1}, where the task in progress began.
        curvature: F_{t-1}, in the shapes of ``params``.
        memory: the memorable points of past tasks.
        moments: Adam's moments.
        at: how far the task in progress has come; losses are the negative log-likelihood over ``tau`` and the penalty.
    """

    spec: Spec
    seeds: tuple[int, ...]
    params: Params
    old: Params
    curvature: Params
    memory: mem.Memory
    moments: training.Moments
    at: training.Position


class Prior(NamedTuple):
    """What the posterior of past tasks says of the functions at their stored points.

    Attributes:
        value: the functions at w_{t-1}, ``(seed, task * function, point)``.
        precision: inverse kernels ``(seed, task * function, point, point)``.
    """

    value: Tensor
    precision: Tensor


@dataclass(frozen=True)
class FROMP:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    The defaults are Kessler et al.'s network and memory and Pan et al.'s points, with the other settings of the public
    class-incremental runs of Scannell et al.'s code, which take random points.

    Attributes:
        hidden: widths of the MLP's hidden layers; ignored by CifarNet.
        network: ``mlp`` or ``cifarnet``.
        dropout: whether CifarNet drops units on the current task's points, as the reference has it; on stored points
            none are dropped.
        epochs: passes over each task, or one number a task.
        batch_size: points a step.
        learning_rate: of Adam, which starts afresh with every task.
        temperature: tau, divides the likelihood.
        prior_precision: delta, of every weight.
        clip: bound on the norm of each seed's gradient; None for none.
        jitter: epsilon, added to the kernels' diagonals; tenfold where a Cholesky decomposition fails.
        memory_per_task: points stored of each task, in equal numbers of its classes.
        selection: ``lambda_descend`` stores the points with the largest trace of the softmax Hessian, the least
            certain; ``lambda_ascend`` those with the smallest; ``random`` any.
        space: functions that are held are the ``probabilities`` or the ``logits``.
    """

    hidden: tuple[int, ...] = (200, 200)
    network: Kind = "mlp"
    dropout: bool = True
    epochs: int | tuple[int, ...] = 10
    batch_size: int = 32
    learning_rate: float = 1e-4
    temperature: float = 10.0
    prior_precision: float = 1e-3
    clip: float | None = 0.1
    jitter: float = 1e-6
    memory_per_task: int = 200
    selection: Literal["lambda_descend", "random", "lambda_ascend"] = "lambda_descend"
    space: Literal["probabilities", "logits"] = "probabilities"

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(self)
        for name in ("epochs", "hidden", "batch_size", "memory_per_task"):
            each_within(name, getattr(self, name), 1)
        for name in ("learning_rate", "temperature", "prior_precision", "jitter", "clip"):
            if getattr(self, name) is not None:
                within(name, getattr(self, name), 0, above=True)

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        of_task("epochs", self.epochs, spec.num_tasks - 1)  # raises where a task has none
        most = max(map(len, spec.task_units))
        if self.memory_per_task < most:
            raise ValueError(
                f"memory_per_task={self.memory_per_task!r} is less than a point for each of {most} classes"
            )
        params = self._network(spec).init(seeds, device)
        return State(
            spec,
            tuple(seeds),
            params,
            params,
            tuple(torch.zeros_like(p) for p in params),
            mem.empty(spec, len(seeds), device),
            training.fresh_moments(params),
            training.start(len(seeds), device, 2),
        )

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        spec, seeds, device = state.spec, state.seeds, task.x.device
        if state.at.is_at(0):
            state = state._replace(old=state.params, moments=training.fresh_moments(state.params))
        network = self._network(spec)
        params = training.leaves(state.params)
        for p in params:
            p.grad = torch.zeros_like(p)
        optimiser = training.adam(params, state.moments, self.learning_rate)
        total = torch.zeros(len(seeds), 2, device=device)
        competing, scale = spec.competing_units().to(device), spec.scaler(device)
        stored, remembers = scale(state.memory.x), state.memory.size > 0
        if remembers:
            functions, prior = held(self, spec, state.memory), functional_prior(self, state)

        def step(index, weight, *masks):
            for part in training.seed_parts(len(seeds), device):
                own = [p.detach()[part].requires_grad_() for p in params]
                y, w = task.y[index[part]], weight[part]
                f = network(own, scale(task.x[index[part]]), [m[part] for m in masks])
                f = f.masked_fill(~competing[y], -torch.inf)
                nll = F.cross_entropy(f.flatten(0, 1), y.flatten(), reduction="none").view_as(w)
                nll = (w * nll).sum(-1) / w.sum(-1) / self.temperature
                penalty = torch.zeros_like(nll)
                if remembers:
                    values = functions(network(own, stored[part]))
                    penalty = half_quadratic(values - prior.value[part], prior.precision[part])
                gradients = torch.autograd.grad((nll + penalty).sum(), own)
                for p, g in zip(params, gradients, strict=True):
                    p.grad[part] = g
                total[part] += torch.stack([nll.detach(), penalty.detach()], dim=-1)
            clip(params, self.clip)
            optimiser.step()

        stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser), total])
        draws, batch_size = torch.arange(len(task.y)).expand(len(seeds), -1), min(self.batch_size, len(task.y))
        num_epochs = of_task("epochs", self.epochs, task.index)
        epochs = training.Epochs(stepper, total, draws, batch_size, seeds, training.masks(network, batch_size))
        for at, done in epochs.run(state.at, num_epochs, task.index):
            moments = training.moments_of(optimiser)
            state = state._replace(params=tuple(p.detach() for p in params), moments=moments, at=at)
            report(state, done / num_epochs)
        nll, penalty = state.at.losses.unbind(-1)
        state = self._remember(state, task)._replace(at=training.start(len(seeds), device, 2))
        return Learned(state, {"loss": nll + penalty, "nll": nll, "penalty": penalty})

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        f = self._network(state.spec)(state.params, state.spec.scale(x))
        return f.masked_fill(~state.spec.task_mask(task_id).to(x.device), -torch.inf).log_softmax(-1)

    def _network(self, spec: Spec) -> Network:
        network = build(self.network, spec.input_shape, self.hidden, spec.num_units, ())
        return network if self.dropout else replace(network, dropout=(0.0,) * len(network.dropout))

    def _remember(self, state: State, task: Task) -> State:
        """The state with a task's memorable points and its part of the curvature."""
        spec = state.spec
        task_id = task.index if spec.scenario == "task_incremental" else None
        with torch.no_grad():
            p = torch.cat([self.predict(state, x, task_id) for x in task.x.split(POINTS_AT_ONCE)], dim=1).exp()
        chosen = memorable((p * (1 - p)).sum(-1), task, self.memory_per_task, self.selection, state.seeds)
        units = None if task_id is None else spec.task_units[task_id]
        more = diagonal_ggn(self._network(spec), state.params, spec.scale(task.x), units)
        return state._replace(
            memory=mem.add(state.memory, task, chosen),
            curvature=tuple(old + new for old, new in zip(state.curvature, more, strict=True)),
        )


def held(config: FROMP, spec: Spec, memory: mem.Memory) -> Callable[[Tensor], Tensor]:
    """What is held at stored points: from logits there, ``(seed, point, unit)``, to ``(seed, task * function, point)``.

    A function is the probability (or the logit) of a unit; with a head a task, of the units of the point's task.
    """
    num_tasks, units = int(memory.task.max()) + 1, None
    if spec.scenario == "task_incremental":
        units = torch.tensor(spec.task_units[:num_tasks], device=memory.x.device)[None, :, None]

    def functions(f: Tensor) -> Tensor:
        f = f.unflatten(1, (num_tasks, -1))
        if units is not None:
            f = f.gather(-1, units.expand(*f.shape[:3], -1))
        f = f.softmax(-1) if config.space == "probabilities" else f
        return f.transpose(2, 3).flatten(1, 2)

    return functions


def functional_prior(config: FROMP, state: State) -> Prior:
    """The prior of a task's functions at w_{t-1}; kernels and their decompositions in float64."""
    spec, memory, network = state.spec, state.memory, config._network(state.spec)
    functions, values, precisions = held(config, spec, memory), [], []
    x, dtype = spec.scale(memory.x), state.old[0].dtype
    for part in training.seed_parts(len(state.seeds), memory.x.device):
        with torch.no_grad():
            values.append(functions(network([p[part] for p in state.old], x[part])))
    for seed in range(len(state.seeds)):
        old = tuple(p[seed : seed + 1].double() for p in state.old)
        var = tuple(1 / (config.prior_precision + f[seed : seed + 1].double()) for f in state.curvature)
        for t in range(int(memory.task.max()) + 1):
            units = spec.task_units[t] if spec.scenario == "task_incremental" else range(spec.num_units)
            points = x[seed, (memory.task == t).to(x.device)].double()
            k = kernel(network, old, var, points, lambda f, units=units: _rows(f, list(units), config.space))
            if not k.isfinite().all():  # a seed that has diverged stays so, and the others go on
                precisions.append(torch.full_like(k, torch.nan).to(dtype))
                continue
            precisions.append(torch.cholesky_inverse(safe_cholesky(k, config.jitter)).to(dtype))
    precision = torch.stack(precisions).unflatten(0, (len(state.seeds), -1)).flatten(1, 2)
    return Prior(torch.cat(values), precision)


def _rows(f: Tensor, units: list[int], space: str) -> Tensor:
    """Gradients ``(k, n, unit)`` in the logits ``(n, unit)`` of the units' probabilities, or of their logits."""
    rows = torch.zeros((len(units), *f.shape), dtype=f.dtype, device=f.device)
    p = f[:, units].softmax(-1)
    own = torch.eye(len(units), dtype=f.dtype, device=f.device)[:, None]
    rows[..., units] = own if space == "logits" else p.T[..., None] * (own - p)
    return rows


def safe_cholesky(k: Tensor, jitter: float) -> Tensor:
    """Lower factors of ``k + jitter I`` ``(..., n, n)``, the jitter tenfold, up to 1e6 times, where it is too small."""
    k, eye = (k + k.mT) / 2, torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    added = torch.full(k.shape[:-2], jitter, dtype=k.dtype, device=k.device)
    for _ in range(7):
        factor, failed = torch.linalg.cholesky_ex(k + added[..., None, None] * eye)
        if not failed.any():
            return factor
        added = torch.where(failed > 0, 10 * added, added)
    raise ValueError(f"a kernel has no Cholesky factor even with {added.max() / 10:.0e} on its diagonal; is it finite?")


def half_quadratic(r: Tensor, precision: Tensor) -> Tensor:
    """``r^T precision r / 2`` summed over functions, ``(seed,)``; precisions are symmetric.

    One product with the precisions, in value and gradient together.
    """
    g = torch.matmul(precision, r.detach()[..., None])[..., 0]
    whole = (g * r).sum((1, 2))
    return whole - 0.5 * whole.detach()


def memorable(score: Tensor, task: Task, count: int, selection: str, seeds: Sequence[int]) -> Tensor:
    """Points to store, ``(seed, m)``, as many of each class that the task has.

    Args:
        score: ``(seed, n)``, the traces of the softmax Hessians.
        task: whose points they are.
        count: of points, rounded down to a multiple of the classes.
        selection: as ``FROMP.selection``.
        seeds: of the random ones.
    """
    if selection == "random":
        streams = rng.generators(seeds, "memory", task.index)
        score = torch.stack([torch.rand(len(task.y), generator=g) for g in streams]).to(score.device)
    classes, sizes = task.y.unique(return_counts=True)
    quota = count // len(classes)
    if not 1 <= quota <= int(sizes.min()):
        raise ValueError(
            f"memory_per_task={count} is {quota} points for each of {len(classes)} classes of task {task.index + 1}, "
            f"the smallest of which has {int(sizes.min())} points"
        )
    order = score.argsort(dim=1, descending=selection != "lambda_ascend", stable=True)
    return torch.cat([order[task.y[order] == c].view(len(seeds), -1)[:, :quota] for c in classes], dim=1)


def clip(params: Sequence[Tensor], bound: float | None) -> None:
    """Scale each seed's gradient, of all parameters together, down to a norm of at most ``bound``."""
    if bound is None:
        return
    norm = torch.stack([p.grad.flatten(1).norm(dim=1) for p in params]).norm(dim=0)
    factor = (bound / norm.clamp_min(1e-30)).clamp_max(1.0)
    for p in params:
        p.grad.mul_(factor.view(-1, *[1] * (p.dim() - 1)))
