r"""HIBNN: a Bayesian network whose tasks take units from an Indian buffet, and a head a task found by its entropy.

The approximate posterior is VCL's mean-field Gaussian, times Beta sticks that say which units of a hidden layer a point
uses (``inference.sticks``), and task ``t`` minimises over minibatches of its :math:`N_t` points (Kessler et al. 2021)

.. math:: -\mathbb E \log p(y \mid x, w, z) + s\,\mathbb E\,\mathrm{KL}(z) +
    \bigl(\mathrm{KL}(w) + \mathrm{KL}(\text{sticks})\bigr) / N_t,

with masks :math:`z` that multiply hidden units, each the average of a few relaxed draws, and the last task's posterior
for prior. Given the sticks :math:`v` a mask is distributed as in the prior, :math:`q(z \mid v) = p(z \mid v)`, so
:math:`\mathrm{KL}(z) = 0`; and given the global sticks so are a layer's. All that is paid is their divergence. As
published, :math:`\mathrm{KL}(z)` compares a point's masks under sticks of the posterior with those under independent
sticks of the prior, which is above 100 nats where posterior and prior are equal, and :math:`s = 1 / N_t` makes it
small; layers' sticks are compared likewise.

The reference's code fits a network by maximum likelihood first, at a rate of 1e-3 and from a truncated normal. Here the
rate is the posterior's and decays alike, and the fit begins at the uniform weights of ``networks.MLP``.

Every task has a head over all units, of which its labels name its own. Where the task is not named, a point belongs to
the head that is most certain of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib import rng, training
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference import mean_field, sticks
from paper_lib.inference.mean_field import MeanField
from paper_lib.inference.sticks import Buffet, beta_kl, log_concrete
from paper_lib.methods import Learned, of_task, unreported
from paper_lib.networks import MLP, Params
from paper_lib.training import Phase

ROWS_AT_ONCE = 25_600
"""Samples times points that a prediction takes at a time."""

DECAY_STEPS = 1000
"""Steps in which the learning rate is multiplied by ``decay``."""


class Posterior(NamedTuple):
    """Weights ``(seed, ...)``, head after head in the last layer, and raw parameters ``(seed, unit)`` of the sticks."""

    weights: MeanField
    sticks: Params


class State(NamedTuple):
    """What ``HIBNN`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        posterior: after the tasks learned; while one is learned, its prior.
        num_heads: tasks learned.
        fit: what the task in progress trains, with its own head alone.
        moments: Adam's moments of means, log variances and sticks.
        at: how far the task in progress has come; losses are the terms of the objective.
    """

    spec: Spec
    seeds: tuple[int, ...]
    posterior: Posterior
    num_heads: Tensor
    fit: Posterior
    moments: training.Moments
    at: training.Position


class ByHead(NamedTuple):
    """What every head learned says of points.

    Attributes:
        log_prob: averaged over draws, ``(seed, n, head, unit)``.
        votes: share of the draws that name each unit, of the same shape.
        entropy: expected over draws, ``(seed, n, head)``.
    """

    log_prob: Tensor
    votes: Tensor
    entropy: Tensor

    def uncertainty(self, kind: str) -> Tensor:
        """Entropy of a head, ``expected`` over draws or of the ``predictive`` average, ``(seed, n, head)``."""
        return self.entropy if kind == "expected" else torch.special.entr(self.log_prob.exp()).sum(-1)


@dataclass(frozen=True)
class HIBNN:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    The defaults are the reference's on the paper's network, except for disputed points.

    Attributes:
        hidden: widths of the hidden layers, where the sticks are truncated.
        prior: ``hierarchical``, layers of one width that share global sticks, or ``ibp``, sticks of its own in every
            layer, as the reference also has it with a single layer.
        epochs: passes over each task, or one number a task.
        likelihood_epochs: passes over the first task by maximum likelihood, where the means begin.
        batch_size: points a step.
        learning_rate: of Adam, at the start of each task.
        decay: factor of the learning rate every thousand steps, a little in each.
        num_samples: Monte Carlo draws of pre-activations in training.
        num_masks: draws of sticks and masks; a unit is multiplied by the average of its masks.
        num_samples_predict: draws that a prediction averages over.
        prior_var: variance of every weight before the first task.
        init_log_var: log variance that the first task and a new head begin at.
        stick_prior: concentrations of the sticks before the first task, with which a / b units are on.
        child_concentration: of a layer's probabilities around the global ones; ignored by ``ibp``.
        temperature: of the masks.
        prior_temperature: of the first task's prior; afterwards both are one. Ignored where the sticks alone are paid
            for (``structured``), as the prior's masks are those of the posterior then.
        concrete_loc: masks lie at ``logit_pi`` (corrected), or at ``log_pi`` (as published), where a unit with pi = 1
            is as often off as on.
        mask_kl: what masks cost: the divergence of their sticks, global ones in a hierarchy (``structured``,
            corrected); or that of a point's masks and of layers' sticks under independent draws from posterior and
            prior as well, divided by N (``over_n``, as published) or whole (``per_point``).
        beta_per_point: layers' sticks are drawn for every point (as published), or once for all (corrected).
        head_entropy: of a head, the entropy of its ``predictive`` average (corrected), or that ``expected`` over draws
            (as published).
    """

    hidden: tuple[int, ...] = (200, 200)
    prior: Literal["hierarchical", "ibp"] = "hierarchical"
    epochs: int | tuple[int, ...] = 1000
    likelihood_epochs: int = 200
    batch_size: int = 512
    learning_rate: float = 1e-3
    decay: float = 0.87
    num_samples: int = 10
    num_masks: int = 10
    num_samples_predict: int = 100
    prior_var: float = 0.7
    init_log_var: float = -6.0
    stick_prior: tuple[float, float] = (5.0, 1.0)
    child_concentration: float = 4.0
    temperature: float = 0.7
    prior_temperature: float = 0.7
    concrete_loc: Literal["logit_pi", "log_pi"] = "logit_pi"
    mask_kl: Literal["structured", "over_n", "per_point"] = "structured"
    beta_per_point: bool = False
    head_entropy: Literal["predictive", "expected"] = "predictive"

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(self)
        each_within("epochs", self.epochs, 1)
        each_within("hidden", self.hidden, 1)
        for name in ("likelihood_epochs", "batch_size", "num_samples", "num_masks", "num_samples_predict"):
            within(name, getattr(self, name), 1)
        for name in ("learning_rate", "prior_var", "child_concentration", "temperature", "prior_temperature"):
            within(name, getattr(self, name), 0, above=True)
        within("decay", self.decay, 0, 1, above=True)
        for value in self.stick_prior:
            within("stick_prior", value, sticks.OFFSET, above=True)
        if not self.hidden:
            raise ValueError("hidden=() has no layer to mask; give at least one width")
        if self.prior == "hierarchical" and (len(self.hidden) < 2 or len(set(self.hidden)) > 1):
            raise ValueError(
                f"hidden={self.hidden!r}: prior='hierarchical' takes two or more layers of one width; "
                "prior='ibp' takes any"
            )

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        of_task("epochs", self.epochs, spec.num_tasks - 1)  # raises where a task has none
        num_seeds = len(seeds)
        weights = mean_field.isotropic(self._network(spec, spec.num_tasks).shapes, num_seeds, self.prior_var, device)
        widths = self.hidden[:1] if self.prior == "hierarchical" else self.hidden
        raw = [torch.full((num_seeds, w), sticks.raw(c), device=device) for w in widths for c in self.stick_prior]
        q = Posterior(weights, tuple(raw))
        at = training.start(num_seeds, device, 4)
        return State(spec, tuple(seeds), q, torch.tensor(0), q, training.fresh_moments(_params(q)), at)

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        first = [("likelihood", self.likelihood_epochs, 0)] if task.index == 0 else []
        phases = training.phases(*first, ("posterior", of_task("epochs", self.epochs, task.index), task.index))
        for phase in phases:
            if int(state.at.epoch) >= phase.end:
                continue
            if state.at.is_at(phase.start):
                fit = self._start(phase, state, task)
                state = state._replace(fit=fit, moments=training.fresh_moments(_params(fit)))
            fit = Fit(self, phase, state, task)
            for at, done in fit.epochs.run(state.at, phase.end, task.index):
                state = fit.state(state)._replace(at=at)
                report(state, done / phases[-1].end)
        names = ("nll", "kl_weights", "kl_masks", "kl_sticks")
        terms = dict(zip(names, state.at.losses[:, phases[-1].start :].unbind(-1), strict=True))
        weights = mean_field.with_head(state.posterior.weights, state.fit.weights, _columns(state.spec, task.index))
        state = self._after(state, Posterior(weights, state.fit.sticks), task.index + 1)
        on = [(a / (a + b)).cumprod(-1).sum(-1) for a, b in sticks.pairs(state.posterior.sticks)]
        kept = {"posterior": torch.cat([p.flatten(1).float() for p in _params(state.posterior)], 1)}
        return Learned(state, {"loss": sum(terms.values()), **terms, "units_on": sum(on) / len(on)}, kept)

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        num_heads = int(state.num_heads)
        state.spec.units(task_id)  # raises where a task is to be named and is not
        if num_heads <= (task_id or 0):
            raise ValueError(f"task_id={task_id!r}: a prediction needs a head, and {num_heads} tasks have been learned")
        found = self.by_head(state, x)
        if state.spec.scenario == "task_incremental":
            return found.log_prob[:, :, task_id]
        return choose(found.log_prob, found.uncertainty(self.head_entropy).argmin(-1))

    def restored(self, spec: Spec, seed: int, posterior: Tensor, num_heads: int) -> State:
        """The state after so many tasks, of one seed, from the ``posterior`` ``(parameter,)`` that ``learn`` kept."""
        state = self.init(spec, (seed,), "cpu")
        like = _params(state.posterior)
        flat = posterior.split([p.numel() for p in like])
        params = [f.view_as(p).to(p.dtype) for f, p in zip(flat, like, strict=True)]
        return self._after(state, _posterior(params, len(self.hidden) + 1), num_heads)

    def _after(self, state: State, posterior: Posterior, num_heads: int) -> State:
        start = training.start(len(state.seeds), posterior.sticks[0].device, 4)
        return state._replace(posterior=posterior, num_heads=torch.tensor(num_heads), at=start)

    @torch.no_grad()
    def by_head(self, state: State, x: Tensor) -> ByHead:
        """What every head learned says of stored inputs ``(n, *input_shape)``."""
        spec, num_seeds, num_heads = state.spec, len(state.seeds), int(state.num_heads)
        columns = range(num_heads * spec.num_units)
        weights = mean_field.head(state.posterior.weights, columns)
        per = max(1, ROWS_AT_ONCE // self.num_samples_predict)
        noise_of = Noise(self, self._network(spec, num_heads), self.num_samples_predict, per)
        streams = rng.generators(state.seeds, "predict", device=x.device)
        buffet, noise = self._buffet, torch.empty(num_seeds, 1, noise_of.size, device=x.device)
        competes = torch.zeros(num_heads, spec.num_units, dtype=torch.bool, device=x.device)
        for head in range(num_heads):
            competes[head, spec.units(head)] = True
        shape = (num_seeds, len(x), *competes.shape)
        found = ByHead(*(x.new_empty(s, dtype=torch.float32) for s in (shape, shape, shape[:-1])))
        for start in range(0, len(x), per):
            training.draw_normals(noise, streams)
            inputs = spec.scale(x[start : start + per]).flatten(1)
            for part in training.seed_parts(num_seeds, x.device):
                mean, log_var = mean_field.mapped(lambda p, part=part: p[part], weights)
                local, uniform, own = noise_of.cut(noise[part, 0], len(inputs))
                masks = buffet.masks(buffet.locations([r[part] for r in state.posterior.sticks], own)[0], uniform)
                factors = [m.sigmoid().mean(1, keepdim=True) for m in masks]
                x_part = inputs.expand(mean[0].shape[0], -1, -1)
                logits = mean_field.local_samples(mean, [v.exp() for v in log_var], x_part, local, factors)
                logits = logits.unflatten(-1, competes.shape).masked_fill(~competes, -torch.inf)
                log_prob = logits.log_softmax(-1)
                rows = (part, slice(start, start + per))
                found.log_prob[rows] = log_prob.logsumexp(1) - math.log(self.num_samples_predict)
                found.votes[rows] = F.one_hot(logits.argmax(-1), spec.num_units).float().mean(1)
                found.entropy[rows] = torch.special.entr(log_prob.exp()).sum(-1).mean(1)
        return found

    @property
    def _buffet(self) -> Buffet:
        hierarchy = self.child_concentration if self.prior == "hierarchical" else None
        return Buffet(self.hidden, self.num_masks, hierarchy, self.concrete_loc, self.temperature, self.beta_per_point)

    def _network(self, spec: Spec, num_heads: int) -> MLP:
        return MLP((spec.num_inputs,), self.hidden, num_heads * spec.num_units)

    def _start(self, phase: Phase, state: State, task: Task) -> Posterior:
        """Where a phase begins: the first task's means as on a network of its own, later ones where the last ended."""
        old, raw = mean_field.head(state.posterior.weights, _columns(state.spec, task.index)), state.posterior.sticks
        if phase.name == "posterior" and task.index == 0:
            return state.fit
        network = MLP((state.spec.num_inputs,), self.hidden, old.mean[-1].shape[-1])
        if task.index == 0:
            mean = network.init(state.seeds, task.x.device)
        else:
            streams = rng.generators(state.seeds, "init", task.index)
            mean = mean_field.small_means(network.shapes, streams, task.x.device)
        fresh = MeanField(mean, tuple(torch.full_like(m, self.init_log_var) for m in mean))
        if task.index:
            fresh = MeanField(*(o[:-2] + f[-2:] for o, f in zip(old, fresh, strict=True)))
        return Posterior(fresh, raw)


class Noise:
    """One flat tensor of ``size`` normals a seed, for draws of pre-activations, masks and sticks.

    Args:
        config: widths and numbers of draws.
        network: without its masks.
        num_samples: draws of pre-activations.
        num_points: points at a time, at most.
        with_prior: whether there is noise for the sticks of the prior too.
    """

    def __init__(self, config: HIBNN, network: MLP, num_samples: int, num_points: int, with_prior: bool = False):
        masks, sticks = config._buffet.noise_shapes(num_points)
        local = mean_field.local_noise_shapes(network.widths, num_samples, num_points)
        self.groups = [local, masks, sticks] + [sticks] * with_prior
        self.sizes = [math.prod(shape) for group in self.groups for shape in group]
        self.size = sum(self.sizes)

    def cut(self, noise: Tensor, num_points: int) -> list[list[Tensor]]:
        """Noise of pre-activations, masks, sticks and the prior's sticks, each layer by layer."""
        parts = iter(noise.split(self.sizes, dim=-1))
        return [[next(parts).unflatten(-1, shape)[..., :num_points, :] for shape in group] for group in self.groups]


class Fit:
    """A phase's step over a task, with the tensors that it changes in place; on a CPU one seed after the other."""

    def __init__(self, config: HIBNN, phase: Phase, state: State, task: Task):
        spec, device, num_seeds, num_points = state.spec, task.x.device, len(state.seeds), len(task.y)
        units, batch_size = spec.units(task.index), min(config.batch_size, num_points)
        prior = Posterior(mean_field.head(state.posterior.weights, _columns(spec, task.index)), state.posterior.sticks)
        network = MLP((spec.num_inputs,), config.hidden, len(units))
        paid = config.mask_kl != "structured"
        noise_of = Noise(config, network, config.num_samples, batch_size, with_prior=paid)
        params = training.leaves(_params(state.fit))
        for p in params:
            p.grad = torch.zeros_like(p)
        self.params, self.num_layers = params, len(config.hidden) + 1
        num_layers = self.num_layers
        learning_rate = torch.tensor(config.learning_rate, device=device)
        self.optimiser = optimiser = training.adam(params, state.moments, learning_rate)
        steps, scale = optimiser.state[params[0]]["step"], spec.scaler(device)
        place = spec.places(units).to(device)
        total = torch.zeros(num_seeds, 4, device=device)
        mask_weight = 1.0 if config.mask_kl == "per_point" else 1 / num_points
        buffet, temperature = config._buffet, config.temperature
        prior_temperature = temperature if task.index else config.prior_temperature

        # The step holds no reference to this object: memory is given back with its last owner, not at some collection.
        def step(index, weight, noise=None):
            for part in training.seed_parts(num_seeds, device):
                mine = [p.detach()[part].requires_grad_() for p in params]
                q, p = _posterior(mine, num_layers), _posterior([t[part] for t in _params(prior)], num_layers)
                share = weight[part] / weight[part].sum(-1, keepdim=True)
                x, y = scale(task.x[index[part]]).flatten(2), place[task.y[index[part]]]
                if phase.name == "likelihood":
                    losses = [(share * mean_field.cross_entropy(network(q.weights.mean, x)[:, None], y)).sum(-1)]
                else:
                    local, uniform, own, *other = noise_of.cut(noise[part], batch_size)
                    at, betas = buffet.locations(q.sticks, own)
                    masks = buffet.masks(at, uniform)
                    factors = [m.sigmoid().mean(1, keepdim=True) for m in masks]
                    var = [v.exp() for v in q.weights.log_var]
                    logits = mean_field.local_samples(q.weights.mean, var, x, local, factors)
                    if paid:
                        prior_at, prior_betas = buffet.locations(p.sticks, *other)
                        # A mask's own density is that of its noise, whatever the sticks: it has no gradient.
                        ratios = [
                            log_concrete(m.detach(), a.detach(), temperature) - log_concrete(m, b, prior_temperature)
                            for m, a, b in zip(masks, at, prior_at, strict=True)
                        ]
                        of_masks = (share * sum(r.sum(-1).mean(1) for r in ratios)).sum(-1)
                    else:
                        betas, prior_betas = sticks.pairs(q.sticks), sticks.pairs(p.sticks)
                        of_masks = torch.zeros_like(share[:, 0])
                    divergences = [beta_kl(*both).flatten(1).sum(1) for both in zip(betas, prior_betas, strict=True)]
                    losses = [
                        (share * mean_field.cross_entropy(logits, y)).sum(-1),
                        mean_field.kl(q.weights, p.weights).to(share.dtype) / num_points,
                        mask_weight * of_masks,
                        sum(divergences) / num_points,
                    ]
                gradients = torch.autograd.grad(sum(losses).sum(), mine, allow_unused=True, materialize_grads=True)
                with torch.no_grad():
                    for of, g in zip(params, gradients, strict=True):
                        of.grad[part] = g
                    for term, loss in enumerate(losses):
                        total[part, term] += loss
            learning_rate.copy_(config.learning_rate * config.decay ** (steps / DECAY_STEPS))
            optimiser.step()

        stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser), total])
        draws = torch.arange(num_points).expand(num_seeds, -1)
        size = 0 if phase.name == "likelihood" else noise_of.size
        noise = training.normals(num_seeds, size, -(-num_points // batch_size), device)
        self.epochs = training.Epochs(stepper, total, draws, batch_size, state.seeds, noise)

    def state(self, start: State) -> State:
        """The state reached, sharing memory with the step: whoever keeps it copies."""
        fit = _posterior([p.detach() for p in self.params], self.num_layers)
        return start._replace(fit=fit, moments=training.moments_of(self.optimiser))


def choose(by_head: Tensor, head: Tensor) -> Tensor:
    """What the head ``(seed, n)`` of each point says, ``(seed, n, unit)`` of ``(seed, n, head, unit)``."""
    return by_head.take_along_dim(head[..., None, None], dim=2).squeeze(2)


def _columns(spec: Spec, task_index: int) -> list[int]:
    """A task's outputs in the last layer."""
    return [task_index * spec.num_units + unit for unit in spec.units(task_index)]


def _params(q: Posterior) -> Params:
    return (*q.weights.mean, *q.weights.log_var, *q.sticks)


def _posterior(params: Sequence[Tensor], num_layers: int) -> Posterior:
    """The inverse of ``_params``."""
    size = 2 * num_layers
    return Posterior(MeanField(tuple(params[:size]), tuple(params[size : 2 * size])), tuple(params[2 * size :]))
