r"""Sequential function-space variational inference: the prior of a task lies on functions (Rudner et al. 2022).

The approximate posterior is a mean-field Gaussian over the weights, of all layers of an MLP or of CifarNet's last one.
Linearised at its mean it has Gaussian outputs (``inference.linearised``), and task ``t`` minimises over minibatches

.. math:: -\sum_{i \in b} \mathbb E_{q_t} \log p(y_i \mid x_i, w)
    + \kappa \sum_{x \in X} \sum_c \mathrm{KL}\bigl(\tilde q_t(f_c(x)) \,\|\, \tilde q_{t-1}(f_c(x))\bigr),

with fresh context points :math:`X` every step, drawn from what was stored of each past task. The first task has made-up
images for context and :math:`\mathcal N(0, \text{prior\_var})` for prior. What :math:`q_{t-1}` says of stored points is
computed once a task.

CifarNet differs from the authors' in four ways. It is the paper's, with 2,304 features; all four convolutions of theirs
are padded, which leaves 4,096. Their masks of :math:`q_{t-1}` belong to places in the batch of context points and stay
for a task; here they belong to stored points. With neither is the divergence 0 at :math:`q_t = q_{t-1}`. Their draws of
the last layer have a mask each, where the draws of a step share one here. And their images of one colour have that of a
pixel (``context.colours``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from paper_lib import context, rng, training
from paper_lib import memory as mem
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference.linearised import output_moments
from paper_lib.inference.mean_field import MeanField, Sampler, cross_entropy, mapped
from paper_lib.methods import Learned, of_task, unreported
from paper_lib.networks import MLP, Kind, Network, Precision, build

STEPS_A_TAPE = 8
"""Steps whose random numbers are drawn at a time: part of what a seed sees, so the same on every device."""

POINTS_AT_ONCE = 512
"""Points that a prediction takes at a time."""


class State(NamedTuple):
    """What ``SFSVI`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        posterior: q_t, means ``(seed, ...)`` of all parameters and log variances of the last ones.
        prior: q_{t-1}, where the task in progress began.
        coreset: points stored of past tasks.
        moments: Adam's moments of means, then of log variances.
        at: how far the task in progress has come; losses are the expected negative log-likelihood and the weighted
            divergence, each a point.
    """

    spec: Spec
    seeds: tuple[int, ...]
    posterior: MeanField
    prior: MeanField
    coreset: mem.Memory
    moments: training.Moments
    at: training.Position


@dataclass(frozen=True)
class SFSVI:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    The defaults are the authors' for Split-MNIST with one head. Settings of a task are one number, or one a task.

    Attributes:
        hidden: widths of the MLP's hidden layers; ignored by CifarNet.
        network: ``mlp``, all of whose layers are random, or ``cifarnet``, whose last one is.
        epochs: passes over a task.
        batch_size: points a step; a last batch that is not full is left out.
        learning_rate: of Adam in a task.
        num_samples: Monte Carlo draws in training.
        num_samples_predict: draws that a prediction averages over.
        sampling: ``lrt`` draws each layer's pre-activations, noise of its own for every point; ``weight`` the weights,
            as the authors do.
        average: predictions average ``probabilities`` over draws, as all methods' here, or ``logits``, as theirs.
        prior_var: variance of every output under the first task's prior.
        init_log_var: bounds of the uniform log variances that training begins at.
        num_context: context points a step of a task, so many of each past one; in the first so many in all.
        context: images made up for the first task, and for all if nothing is stored: ``pixels`` uniform on
            ``context_range``, or ``colours``, half of one colour each, channels from pixels of the task, and half
            images of the task.
        context_range: of uniform pixels, before scaling.
        divergence_weight: of the sum over context points: ``equal`` is batch size over their number, ``normalized`` one
            over it.
        coreset_per_task: points stored of each task, at random.
        carry_moments: Adam goes on from the moments that the last task ended at.
        precision: of CifarNet: ``auto`` is what the device is fast in, and the run's provenance says which it was.
    """

    hidden: tuple[int, ...] = (256, 256)
    network: Kind = "mlp"
    epochs: int | tuple[int, ...] = 80
    batch_size: int = 128
    learning_rate: float | tuple[float, ...] = 5e-4
    num_samples: int = 5
    num_samples_predict: int = 5
    sampling: Literal["lrt", "weight"] = "lrt"
    average: Literal["probabilities", "logits"] = "probabilities"
    prior_var: float = 1e-3
    init_log_var: tuple[float, float] = (-10.0, -8.0)
    num_context: int | tuple[int, ...] = 40
    context: Literal["pixels", "colours"] = "pixels"
    context_range: tuple[float, float] = (0.0, 1.0)
    divergence_weight: Literal["equal", "normalized"] = "equal"
    coreset_per_task: int = 200
    carry_moments: bool = True
    precision: Precision = "auto"

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(self)
        for name in ("epochs", "hidden", "batch_size", "num_samples", "num_samples_predict"):
            each_within(name, getattr(self, name), 1)
        each_within("learning_rate", self.learning_rate, 0, above=True, whole=False)
        each_within("num_context", self.num_context, 0)
        for name in ("init_log_var", "context_range"):
            within(f"the upper bound of {name}", getattr(self, name)[1], getattr(self, name)[0])
        within("prior_var", self.prior_var, 0, above=True)
        within("coreset_per_task", self.coreset_per_task, 0)
        later = self.num_context[1:] if isinstance(self.num_context, tuple) else (self.num_context,)
        if self.coreset_per_task and max(later, default=0) > self.coreset_per_task:
            raise ValueError(
                f"num_context={self.num_context!r} asks for {max(later)} points of each past task, and "
                f"coreset_per_task={self.coreset_per_task!r} stores fewer"
            )

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        for name in ("epochs", "learning_rate", "num_context"):
            of_task(name, getattr(self, name), spec.num_tasks - 1)  # raises where a task has none
        mean = self._network(spec).init(seeds, device)
        streams = rng.generators(seeds, "init_log_var")
        log_var = tuple(
            torch.stack([torch.empty(p.shape[1:]).uniform_(*self.init_log_var, generator=g) for g in streams]).to(
                device
            )
            for p in (mean if self.network == "mlp" else mean[-2:])
        )
        q = MeanField(mean, log_var)
        return State(
            spec,
            tuple(seeds),
            q,
            q,
            mem.empty(spec, len(seeds), device),
            training.fresh_moments((*mean, *log_var)),
            training.start(len(seeds), device, 2),
        )

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        if state.at.is_at(0):
            moments = state.moments
            if not self.carry_moments:
                moments = training.fresh_moments((*state.posterior.mean, *state.posterior.log_var))
            state = state._replace(prior=state.posterior, moments=moments)
        fit, epochs = Fit(self, state, task), of_task("epochs", self.epochs, task.index)
        for at, done in fit.epochs.run(state.at, epochs, task.index):
            state = fit.state(state)._replace(at=at)
            report(state, done / epochs)
        nll, divergence = state.at.losses.unbind(-1)
        if self.coreset_per_task:
            chosen = mem.choose(len(task.y), self.coreset_per_task, state.seeds, task.index)
            state = state._replace(coreset=mem.add(state.coreset, task, chosen))
        info = {"loss": nll + divergence, "nll": nll, "divergence": divergence}
        return Learned(state._replace(at=training.start(len(state.seeds), task.x.device, 2)), info)

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        spec, network, q = state.spec, self._network(state.spec), state.posterior
        units = spec.units(task_id)
        sampler = Sampler(self._random(spec), self.num_samples_predict, POINTS_AT_ONCE, self.sampling)
        streams = rng.generators(state.seeds, "predict", device=x.device)
        noise = torch.empty(len(state.seeds), 1, sampler.size, device=x.device)
        log_probs = torch.full((len(state.seeds), len(x), spec.num_units), -torch.inf, device=x.device)
        for start in range(0, len(x), POINTS_AT_ONCE):
            if start == 0 or sampler.per_point:
                training.draw_normals(noise, streams)
            inputs = spec.scale(x[start : start + POINTS_AT_ONCE])
            for part in training.seed_parts(len(state.seeds), x.device):
                mean, log_var = _part(q, part)
                at = features(network, mean, inputs.expand(len(mean[0]), *inputs.shape))
                f = sampler(mean[-len(log_var) :], [v.exp() for v in log_var], at, noise[part, 0])[..., units]
                if self.average == "logits":
                    log_prob = f.mean(1).log_softmax(-1)
                else:
                    log_prob = f.log_softmax(-1).logsumexp(1) - math.log(self.num_samples_predict)
                log_probs[part, start : start + POINTS_AT_ONCE, units] = log_prob
        return log_probs

    def _network(self, spec: Spec) -> Network:
        return build(self.network, spec.input_shape, self.hidden, spec.num_units, (), self.precision)

    def _random(self, spec: Spec) -> MLP:
        """The layers that are random, with the ``features`` of a point for inputs."""
        shape, hidden = ((spec.num_inputs,), self.hidden) if self.network == "mlp" else ((512,), ())
        return MLP(shape, hidden, spec.num_units)


class Fit:
    """A task's step over its data, with the tensors that it changes in place; on a CPU one seed after the other."""

    def __init__(self, config: SFSVI, state: State, task: Task):
        spec, seeds, device, memory = state.spec, state.seeds, task.x.device, state.coreset
        network, num_layers, parts = config._network(spec), len(state.posterior.mean), training.seed_parts
        params = training.leaves((*state.posterior.mean, *state.posterior.log_var))
        for p in params:
            p.grad = torch.zeros_like(p)
        self.q = q = MeanField(params[:num_layers], params[num_layers:])
        learning_rate = of_task("learning_rate", config.learning_rate, task.index)
        self.optimiser = optimiser = training.adam(params, state.moments, learning_rate)
        batch_size = min(config.batch_size, len(task.y))
        sampler = Sampler(config._random(spec), config.num_samples, batch_size, config.sampling)
        mine, scale = spec.units(task.index), spec.scaler(device)
        y = spec.places(mine).to(device)[task.y]

        per_task, past = of_task("num_context", config.num_context, task.index), range(max(1, task.index))
        num_context = per_task * len(past)
        units = _own_units(spec, [t for t in past for _ in range(per_task)], device)
        weight = (batch_size if config.divergence_weight == "equal" else 1) / max(1, num_context)
        from_memory = memory.size > 0
        pool, known = memory.x.flatten(0, 1), prior_moments(config, state) if from_memory else None
        fixed = torch.zeros((), device=device), torch.tensor(config.prior_var, device=device)
        total = torch.zeros(len(seeds), 2, device=device)
        normals = torch.empty(len(seeds), STEPS_A_TAPE, sampler.size, device=device)

        def draw(streams: Sequence[torch.Generator], steps: int) -> Sequence[Tensor]:
            noise = training.draw_normals(normals[:, :steps], streams).transpose(0, 1)
            if from_memory:
                points = torch.stack([context.from_memory(memory, per_task, steps, g) for g in streams], dim=1)
                points += memory.size * torch.arange(len(seeds), device=device)[:, None]
            elif config.context == "pixels":
                settings = spec.input_shape, config.context_range, num_context, steps
                points = torch.stack([context.pixels(*settings, g) for g in streams], dim=1)
            else:
                points = torch.stack([context.colours(task.x, num_context, steps, g) for g in streams], dim=1)
            return noise, points, *network.draw_masks(streams, steps, batch_size + num_context)

        # The step holds no reference to this object: memory is given back with its last owner, not at some collection.
        def step(index, _, noise, points, *masks):
            for part in parts(len(seeds), device):
                data, at, drop = index[part], points[part], [m[part] for m in masks]
                x = torch.cat([scale(task.x[data]), scale(pool[at] if from_memory else at)], dim=1)
                mean = [m.detach()[part].requires_grad_() for m in q.mean]
                var = [v.detach()[part].exp().requires_grad_() for v in q.log_var]
                phi = features(network, mean, x, drop)
                f = sampler(mean[-len(var) :], var, phi[:, :batch_size], noise[part])[..., mine]
                losses = [cross_entropy(f, y[data]).sum(-1)]
                if num_context:
                    new = output_moments(mean[-len(var) :], var, phi[:, batch_size:], units)
                    old = fixed
                    if from_memory:
                        old = [k[at] for k in known]
                    elif task.index:
                        context_masks = [m[:, batch_size:] for m in drop]
                        old = moments_at(network, _part(state.prior, part), x[:, batch_size:], context_masks, units)
                    losses.append(weight * marginal_kl(*new, *old).sum((1, 2)))
                gradients = torch.autograd.grad(sum(losses).sum(), [*mean, *var])
                with torch.no_grad():
                    for p, g in zip(q.mean, gradients, strict=False):
                        p.grad[part] = g
                    for p, g, v in zip(q.log_var, gradients[num_layers:], var, strict=True):
                        torch.mul(g, v, out=p.grad[part])
                    for term, loss in enumerate(losses):
                        total[part, term] += loss / batch_size
            optimiser.step()

        stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser), total])
        draws, noise = torch.arange(len(task.y)).expand(len(seeds), -1), training.Noise("noise", STEPS_A_TAPE, draw)
        self.epochs = training.Epochs(stepper, total, draws, batch_size, seeds, noise, drop_partial=True)

    def state(self, start: State) -> State:
        """The state reached, sharing memory with the step: whoever keeps it copies."""
        return start._replace(posterior=mapped(Tensor.detach, self.q), moments=training.moments_of(self.optimiser))


def prior_moments(config: SFSVI, state: State) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(seed * point, unit)`` of what is stored, linearised at q_{t-1}; of dropout one draw."""
    spec, coreset, network, device = state.spec, state.coreset, config._network(state.spec), state.coreset.x.device
    streams = rng.generators(state.seeds, "prior_dropout", int(coreset.task.max()), device=device)
    found = []
    for t in coreset.task.unique().tolist():
        mine = (coreset.task == t).nonzero().flatten().to(device)
        masks = [m[0] for m in network.draw_masks(streams, 1, len(mine))]
        units = _own_units(spec, [t] * len(mine), device)
        rows = [
            moments_at(
                network, _part(state.prior, part), spec.scale(coreset.x[part][:, mine]), [m[part] for m in masks], units
            )
            for part in training.seed_parts(len(state.seeds), device)
        ]
        found.append([torch.cat(parts) for parts in zip(*rows, strict=True)])
    mean, var = (torch.cat(parts, dim=1).flatten(0, 1) for parts in zip(*found, strict=True))
    return mean, var


@torch.no_grad()
def moments_at(
    network: Network, q: MeanField, x: Tensor, masks: Sequence[Tensor], units: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(seed, n, k)`` of outputs at scaled points ``(seed, n, *shape)``, linearised at q's mean."""
    phi = features(network, q.mean, x, masks)
    return output_moments(q.mean[-len(q.log_var) :], [v.exp() for v in q.log_var], phi, units)


def features(network: Network, params: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
    """Inputs ``(seed, n, in)`` of the layers that are random, for scaled ``x`` ``(seed, n, *shape)``."""
    return x.flatten(2) if isinstance(network, MLP) else network.features(params, x, masks)


def marginal_kl(mean: Tensor, var: Tensor, mean0: Tensor, var0: Tensor) -> Tensor:
    """KL of Gaussians of one dimension from others, element by element."""
    return 0.5 * (var0.log() - var.log() + (var + (mean - mean0).square()) / var0 - 1)


def _own_units(spec: Spec, tasks: list[int], device: torch.device) -> Tensor | None:
    """The units ``(n, k)`` of the task of each of n points; None where all tasks share all, or there is no point."""
    if spec.scenario != "task_incremental" or not tasks:
        return None
    return torch.tensor([spec.task_units[t] for t in tasks], device=device)


def _part(q: MeanField, seeds: slice) -> MeanField:
    return mapped(lambda p: p[seeds], q)
