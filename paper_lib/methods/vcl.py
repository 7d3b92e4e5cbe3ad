r"""Variational continual learning: the posterior of one task is the prior of the next (Nguyen et al. 2018).

The approximate posterior is a mean-field Gaussian over the weights of an MLP (``inference.mean_field``). Task ``t``
minimises, over minibatches of its :math:`N_t` points,

.. math:: -\mathbb E_{q_t} \log p(y \mid x, w) + \mathrm{KL}(q_t \,\|\, q_{t-1}) / N_t,

from :math:`q_0 = \mathcal N(0, 1)`. Where the task is named, the softmax runs over the task's own units, which are a
head of their own: only the trunk and that head train, and the others stay at what they were, or at the prior. A coreset
is taken out of each task's data. The posterior never sees it: a throw-away copy of :math:`q_t` learns it just before
predictions, all coresets at once with a single head, and with several heads each head its own coreset, from
:math:`q_t` each time.

Learning a task runs in phases, each with fresh Adam: ``likelihood`` (a start for the first task's means),
``posterior``, and ``coreset``, once or once a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from paper_lib import memory as mem
from paper_lib import rng, training
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference import mean_field
from paper_lib.inference.mean_field import MeanField, Sampler
from paper_lib.methods import Learned, of_task, unreported
from paper_lib.networks import MLP
from paper_lib.training import Phase, Position

ROWS_AT_ONCE = 25_600
"""Samples times points that a prediction takes at a time."""

UNITS_AT_ONCE = 2**19
"""Samples times points times units of the widest layer that a step on a CPU takes at a time: 2 MiB of activations."""

LOG_VAR_RANGE = (-20.0, 4.0)
"""Each step ends with log variances cut off at these."""


class State(NamedTuple):
    """What ``VCL`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        posterior: q_t over all units, parameters ``(seed, ...)``; while task t is learned still q_{t-1}.
        predictive: what predictions use, ``(seed, head, ...)``: one for all tasks, or with coresets and several heads
            one for each task so far.
        coreset: points taken out of past tasks.
        fit: what the phase in progress trains, over the units that it trains.
        moments: Adam's moments of its means, then of its log variances.
        at: how far the task in progress has come.
        kl: KL(q_t || q_{t-1}) a point after every epoch of the posterior's phase, ``(seed, epoch)``.
    """

    spec: Spec
    seeds: tuple[int, ...]
    posterior: MeanField
    predictive: MeanField
    coreset: mem.Memory
    fit: MeanField
    moments: training.Moments
    at: Position
    kl: Tensor


@dataclass(frozen=True)
class VCL:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    The defaults are those of Rudner et al.'s single-head Split-MNIST runs on the paper's network.

    Attributes:
        hidden: widths of the hidden layers.
        epochs: passes over each task, or one number a task.
        batch_size: points a step, or None for all of them.
        learning_rate: of Adam.
        num_samples: Monte Carlo draws in training.
        num_samples_predict: draws that a prediction averages over.
        prior_var: variance of every weight before the first task.
        init_log_var: log variance that the first task, a new head and a restart begin at.
        sampling: ``lrt`` draws each layer's pre-activations, ``weight`` the weights (Nguyen et al.'s code).
        lrt_noise: noise of ``lrt`` differs between points (``per_point``) or not (``shared``, Swaroop et al.'s code).
        likelihood_start: the first task's means begin at the weights of a network trained by maximum likelihood for as
            many epochs, on all of the task's points.
        likelihood_init: where that network begins: ``uniform`` as ``networks.MLP``, or ``truncated_normal`` with
            standard deviation 0.1, which after wide layers is larger, as in Nguyen et al.'s code.
        restart: every task begins at small random means and ``init_log_var`` (Swaroop et al.) instead of at q_{t-1}
            (Nguyen et al.); the prior is q_{t-1} either way.
        coreset_per_task: points kept of each task; 0 for none.
        coreset_selection: ``random`` or ``k_centre``.
        coreset_epochs: passes over a coreset before predictions; None for as many as ``epochs``.
    """

    hidden: tuple[int, ...] = (200, 200)
    epochs: int | tuple[int, ...] = 100
    batch_size: int | None = 256
    learning_rate: float = 1e-3
    num_samples: int = 10
    num_samples_predict: int = 100
    prior_var: float = 1.0
    init_log_var: float = -6.0
    sampling: Literal["lrt", "weight"] = "lrt"
    lrt_noise: Literal["per_point", "shared"] = "per_point"
    likelihood_start: bool = True
    likelihood_init: Literal["uniform", "truncated_normal"] = "uniform"
    restart: bool = False
    coreset_per_task: int = 0
    coreset_selection: Literal["random", "k_centre"] = "random"
    coreset_epochs: int | None = None

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(self)
        each_within("epochs", self.epochs, 1)
        each_within("hidden", self.hidden, 1)
        for name in ("batch_size", "num_samples", "num_samples_predict", "coreset_epochs"):
            if getattr(self, name) is not None:
                within(name, getattr(self, name), 1)
        within("learning_rate", self.learning_rate, 0, above=True)
        within("init_log_var", self.init_log_var, *LOG_VAR_RANGE)
        # A posterior equals its prior where nothing is learned, so both have the one range.
        within("prior_var", self.prior_var, *map(math.exp, LOG_VAR_RANGE))
        within("coreset_per_task", self.coreset_per_task, 0)

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        of_task("epochs", self.epochs, spec.num_tasks - 1)  # raises where a task has none
        num_seeds = len(seeds)
        prior = mean_field.isotropic(self._network(spec).shapes, num_seeds, self.prior_var, device)
        return State(
            spec,
            tuple(seeds),
            prior,
            mean_field.mapped(lambda p: p[:, None], prior),
            mem.empty(spec, num_seeds, device),
            prior,
            training.fresh_moments((*prior.mean, *prior.log_var)),
            training.start(num_seeds, device),
            torch.empty(num_seeds, 0),
        )

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        if len(task.y) <= self.coreset_per_task:
            raise ValueError(
                f"coreset_per_task={self.coreset_per_task} leaves nothing of task {task.index + 1} to learn from; "
                f"it must be below its {len(task.y)} points"
            )
        phases = self._phases(state.spec, task.index)
        for phase in phases:
            if int(state.at.epoch) < phase.end:
                state = self._run(phase, state, task, lambda s, done: report(s, done / phases[-1].end))
        (posterior,) = (phase for phase in phases if phase.name == "posterior")
        nll, kl = state.at.losses[:, posterior.start : posterior.end], state.kl
        at = training.start(len(state.seeds), task.x.device)
        return Learned(state._replace(at=at, kl=kl[:, :0]), {"loss": nll + kl, "nll": nll, "kl": kl})

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        spec, num_seeds, num_samples = state.spec, len(state.seeds), self.num_samples_predict
        units = spec.units(task_id)
        num_heads = state.predictive.mean[0].shape[1]
        if state.coreset.size and spec.scenario == "task_incremental" and task_id >= num_heads:
            raise ValueError(f"task_id={task_id!r}: only tasks 0 to {num_heads - 1} have been learned")
        head = min(task_id or 0, num_heads - 1)
        q = mean_field.head(mean_field.mapped(lambda p: p[:, head], state.predictive), units)
        per = max(1, ROWS_AT_ONCE // num_samples)
        sampler = self._sampler(spec, units, num_samples, per)
        streams = rng.generators(state.seeds, "predict", device=x.device)
        noise = torch.empty(num_seeds, 1, sampler.size, device=x.device)
        log_probs = torch.full((num_seeds, len(x), spec.num_units), -torch.inf, device=x.device)
        for start in range(0, len(x), per):
            if start == 0 or sampler.per_point:
                training.draw_normals(noise, streams)
            inputs = spec.scale(x[start : start + per]).flatten(1)
            for part in training.seed_parts(num_seeds, x.device):
                mean, log_var = mean_field.mapped(lambda p, part=part: p[part], q)
                at_once = inputs.expand(mean[0].shape[0], -1, -1)
                logits = sampler(mean, [v.exp() for v in log_var], at_once, noise[part, 0])
                log_prob = logits.log_softmax(-1).logsumexp(1) - math.log(num_samples)
                log_probs[part, start : start + per, units] = log_prob
        return log_probs

    def _phases(self, spec: Spec, task_index: int) -> list[Phase]:
        """What learning a task consists of, in order."""
        own = of_task("epochs", self.epochs, task_index)
        coreset_epochs = own if self.coreset_epochs is None else self.coreset_epochs
        heads = range(task_index + 1) if spec.scenario == "task_incremental" else [task_index]
        return training.phases(
            *([("likelihood", own, task_index)] if self.likelihood_start and task_index == 0 else []),
            ("posterior", own, task_index),
            *([("coreset", coreset_epochs, head) for head in heads] if self.coreset_per_task else []),
        )

    def _run(self, phase: Phase, state: State, task: Task, report: Callable[[State, float], None]) -> State:
        """The state after a phase, begun or gone on with."""
        if state.at.is_at(phase.start):
            fit = self._start(phase, state, task)
            state = state._replace(fit=fit, moments=training.fresh_moments((*fit.mean, *fit.log_var)))
        fit = Fit(self, phase, state, *self._data(phase, state, task))
        for at, done in fit.epochs.run(state.at, phase.end, task.index):
            state = fit.state(state)._replace(at=at)
            if phase.name == "posterior" and int(at.step) == 0:
                kl = fit.kl().cpu().to(state.kl.dtype)
                state = state._replace(kl=torch.cat([state.kl, kl[:, None]], dim=1))
            if at.is_at(phase.end):
                state = self._finish(phase, state, task)
            report(state, done)
        return state

    def _start(self, phase: Phase, state: State, task: Task) -> MeanField:
        """Where a phase begins, over the units that it trains."""
        spec, device = state.spec, task.x.device
        units = spec.units(phase.head)
        network, old = self._network(spec, units), mean_field.head(state.posterior, units)
        if phase.name == "coreset":
            return old
        if phase.name == "likelihood" and self.likelihood_init == "uniform":
            mean = network.init(state.seeds, device, old.mean[0].dtype)
        elif phase.name == "posterior" and self.likelihood_start and task.index == 0:
            mean = state.fit.mean
        else:
            # Stored runs have the first task's at the address of ``network.init``; no run draws both.
            address = ("init", task.index) if task.index else ("init",)
            mean = mean_field.small_means(network.shapes, rng.generators(state.seeds, *address), device)
        fresh = MeanField(mean, tuple(torch.full_like(m, self.init_log_var) for m in mean))
        if task.index == 0 or self.restart:
            return fresh
        if spec.scenario == "task_incremental":
            return MeanField(*(o[:-2] + f[-2:] for o, f in zip(old, fresh, strict=True)))
        return old

    def _finish(self, phase: Phase, state: State, task: Task) -> State:
        """The state with what a phase has trained in its place."""
        units = state.spec.units(phase.head)
        if phase.name == "likelihood":
            return state
        if phase.name == "coreset":
            learned = mean_field.with_head(state.posterior, state.fit, units)
            both = [
                tuple(torch.cat([p, new[:, None]], dim=1) for p, new in zip(*pair, strict=True))
                for pair in zip(state.predictive, learned, strict=True)
            ]
            return state._replace(predictive=MeanField(*both))
        posterior = mean_field.with_head(state.posterior, state.fit, units)
        if self.coreset_per_task:
            predictive = mean_field.mapped(lambda p: p[:, None][:, :0], posterior)
            return state._replace(
                posterior=posterior,
                predictive=predictive,
                coreset=mem.add(state.coreset, task, self._choose(task, state.seeds)),
            )
        return state._replace(posterior=posterior, predictive=mean_field.mapped(lambda p: p[:, None], posterior))

    def _choose(self, task: Task, seeds: Sequence[int]) -> Tensor:
        """Points of a task's coreset, ``(seed, m)``."""
        if self.coreset_selection == "k_centre":
            return mem.k_centre(task.x, self.coreset_per_task).cpu().expand(len(seeds), -1)
        return mem.choose(len(task.y), self.coreset_per_task, seeds, task.index)

    def _data(self, phase: Phase, state: State, task: Task) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, units and each seed's points ``(seed, m)`` of a phase."""
        n, num_seeds = len(task.y), len(state.seeds)
        if phase.name == "coreset":
            size = state.coreset.size
            mine = torch.arange(size)
            if state.spec.scenario == "task_incremental":
                mine = mine[state.coreset.task == phase.head]
            x, y = state.coreset.x.flatten(0, 1), state.coreset.y.flatten()
            return x, y, mine + size * torch.arange(num_seeds)[:, None]
        kept = torch.ones((num_seeds, n), dtype=torch.bool)
        if phase.name == "posterior" and self.coreset_per_task:
            kept.scatter_(1, self._choose(task, state.seeds), False)
        return task.x, task.y, kept.nonzero()[:, 1].view(num_seeds, -1)

    def _network(self, spec: Spec, units: Sequence[int] | None = None) -> MLP:
        """The network with some of its output units, or all."""
        return MLP((spec.num_inputs,), self.hidden, spec.num_units if units is None else len(units))

    def _sampler(self, spec: Spec, units: Sequence[int], num_samples: int, num_points: int) -> Sampler:
        per_point = self.lrt_noise == "per_point"
        return Sampler(self._network(spec, units), num_samples, num_points, self.sampling, per_point)


class Fit:
    """A phase's step over its data, with the tensors that it changes in place.

    On a CPU a step takes one seed after the other, and of a large batch one part after the other: their activations fit
    into the cache, those of ten seeds do not.
    """

    def __init__(self, config: VCL, phase: Phase, state: State, x: Tensor, y: Tensor, draws: Tensor):
        spec, device, num_seeds = state.spec, x.device, len(state.seeds)
        units = spec.units(phase.head)
        network = config._network(spec, units)
        self.num_points = n = draws.shape[1]
        batch_size = min(config.batch_size or n, n)
        layers = len(state.fit.mean)
        params = training.leaves((*state.fit.mean, *state.fit.log_var))
        for p in params:
            p.grad = torch.zeros_like(p)
        self.q = q = MeanField(params[:layers], params[layers:])
        self.prior = prior = mean_field.head(state.posterior, units)
        total = torch.zeros(num_seeds, device=device)
        self.optimiser = optimiser = training.adam(params, state.moments, config.learning_rate)
        gradient = MeanField(*(tuple(p.grad for p in group) for group in q))
        scale = spec.scaler(device)
        place = spec.places(units).to(device)

        if phase.name == "likelihood":
            num_points, size = math.inf, 0

            def sample(mean, var, x, noise, at):
                return network(mean, x)[:, None]
        else:
            sample = config._sampler(spec, units, config.num_samples, batch_size)
            num_points, size = n, sample.size
        at_once = batch_size
        if device.type == "cpu" and config.sampling == "lrt":
            at_once = max(1, UNITS_AT_ONCE // (config.num_samples * max(network.widths[1:])))

        # The step holds no reference to this object: memory is given back with its last owner, not at some collection.
        def step(index, weight, noise):
            for part in training.seed_parts(num_seeds, device):
                share = weight[part] / weight[part].sum(-1, keepdim=True).clamp_min(1)

                def expected_nll(mean, var, start, part=part, share=share):
                    points = index[part, start : start + at_once]
                    logits = sample(mean, var, scale(x[points]).flatten(2), noise[part], start)
                    nll = mean_field.cross_entropy(logits, place[y[points]])
                    return (share[:, start : start + at_once] * nll).sum(-1)

                terms = [partial(expected_nll, start=start) for start in range(0, index.shape[1], at_once)]
                at = [mean_field.mapped(lambda p, part=part: p.detach()[part], tree) for tree in (q, prior, gradient)]
                total[part] += mean_field.nelbo_gradient(at[0], at[1], num_points, terms, at[2])
            optimiser.step()
            with torch.no_grad():
                for v in q.log_var:
                    v.clamp_(*LOG_VAR_RANGE)

        stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser), total])
        noise = training.normals(num_seeds, size, -(-n // batch_size), device)
        self.epochs = training.Epochs(stepper, total, draws, batch_size, state.seeds, noise)

    def kl(self) -> Tensor:
        """KL(q || prior) a point, ``(seed,)``."""
        with torch.no_grad():
            return mean_field.kl(self.q, self.prior) / self.num_points

    def state(self, start: State) -> State:
        """The state reached, sharing memory with the step: whoever keeps it copies."""
        return start._replace(fit=mean_field.mapped(Tensor.detach, self.q), moments=training.moments_of(self.optimiser))


def ddm(**settings) -> VCL:
    """Nguyen et al.'s Split-MNIST runs: weight samples, full batches, coresets of 40. Source: their code."""
    return VCL(
        **{
            "hidden": (256, 256),
            "epochs": 120,
            "batch_size": None,
            "sampling": "weight",
            "likelihood_init": "truncated_normal",
            "coreset_per_task": 40,
            **settings,
        }
    )


def improved(**settings) -> VCL:
    """Swaroop et al.'s Split-MNIST runs: long training, every task from small random means. Source: their code.

    Theirs runs in float64, ours in float32; theirs draws the means from a normal that is not truncated.
    """
    return VCL(
        **{
            "hidden": (200,),
            "epochs": 600,
            "learning_rate": 5e-3,
            "num_samples_predict": 20,
            "lrt_noise": "shared",
            "likelihood_start": False,
            "restart": True,
            "coreset_per_task": 40,
            **settings,
        }
    )
