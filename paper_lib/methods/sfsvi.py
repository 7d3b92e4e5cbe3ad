r"""Sequential function-space variational inference: the prior of a task lies on functions (Rudner et al. 2022).

The approximate posterior is a mean-field Gaussian over the weights, of all layers of an MLP or of CifarNet's last one.
Linearised at its mean it has Gaussian outputs (``inference.linearised``), and task ``t`` minimises over minibatches

.. math:: -\sum_{i \in b} \mathbb E_{q_t} \log p(y_i \mid x_i, w)
    + \kappa \sum_{x \in X} \sum_c \mathrm{KL}\bigl(\tilde q_t(f_c(x)) \,\|\, \tilde q_{t-1}(f_c(x))\bigr),

with fresh context points :math:`X` every step, drawn from what was stored of each past task. The first task has made-up
images for context and :math:`\mathcal N(0, \text{prior\_var})` for prior. What :math:`q_{t-1}` says of stored points is
computed once a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paper_lib import memory as mem
from paper_lib import rng, training
from paper_lib.checks import one_of, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference.linearised import output_moments
from paper_lib.inference.mean_field import MeanField
from paper_lib.methods import Learned, unreported
from paper_lib.methods.vcl import Sampler, _map, _parts, _units, draw_normals
from paper_lib.networks import MLP, Network, build

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
        epoch: epochs done of the task in progress, 0 between tasks.
        losses: expected negative log-likelihood and weighted divergence, each mean a point, of those epochs,
            ``(seed, epoch, 2)``.
    """

    spec: Spec
    seeds: tuple[int, ...]
    posterior: MeanField
    prior: MeanField
    coreset: mem.Memory
    moments: training.Moments
    epoch: Tensor
    losses: Tensor


@dataclass(frozen=True)
class SFSVI:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    The defaults are the authors' for Split-MNIST with one head. ``epochs``, ``learning_rate`` and ``num_context`` take
    one value or one for each task, the last for all after it.

    Attributes:
        hidden: widths of the MLP's hidden layers; ignored by CifarNet.
        network: ``mlp``, all of whose layers are random, or ``cifarnet``, whose last one is.
        epochs: passes over each task.
        batch_size: points a step; a last batch that is not full is left out.
        learning_rate: of Adam.
        num_samples: Monte Carlo draws in training.
        num_samples_predict: draws that a prediction averages over.
        sampling: ``lrt`` draws each layer's pre-activations, noise of its own for every point; ``weight`` the weights,
            as the authors do.
        average: predictions average ``probabilities`` over draws, or ``logits`` as the authors' do.
        prior_var: variance of every output under the first task's prior.
        init_log_var: bounds of the uniform log variances that training begins at.
        num_context: context points a step and past task, and in the first task.
        context: images made up for the first task, and for all if nothing is stored: ``pixels`` uniform on
            ``context_range``, or ``colours``, half of one colour each, channels from pixels of the task, and half
            images of the task.
        context_range: of uniform pixels, before scaling.
        divergence_weight: of the sum over context points: ``equal`` is batch size over their number, ``normalized`` one
            over it.
        coreset_per_task: points stored of each task, at random.
        carry_moments: Adam goes on from the moments that the last task ended at.
    """

    hidden: tuple[int, ...] = (256, 256)
    network: Literal["mlp", "cifarnet"] = "mlp"
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

    VERSION: ClassVar[int] = 1
    lrt_noise: ClassVar[str] = "per_point"

    def __post_init__(self):
        one_of("network", self.network, ("mlp", "cifarnet"))
        one_of("sampling", self.sampling, ("lrt", "weight"))
        one_of("average", self.average, ("probabilities", "logits"))
        one_of("context", self.context, ("pixels", "colours"))
        one_of("divergence_weight", self.divergence_weight, ("equal", "normalized"))
        for name in ("batch_size", "num_samples", "num_samples_predict"):
            within(name, getattr(self, name), 1)
        for name, low, above in (("epochs", 1, False), ("learning_rate", 0, True), ("num_context", 0, False)):
            for value in _each(getattr(self, name)):
                within(name, value, low, above=above)
        within("prior_var", self.prior_var, 0, above=True)
        within("coreset_per_task", self.coreset_per_task, 0)

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
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
            torch.zeros((), dtype=torch.int64),
            torch.empty(len(seeds), 0, 2),
        )

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        if state.epoch == 0:
            state = state._replace(prior=state.posterior, losses=state.losses[:, :0])
            if not self.carry_moments:
                state = state._replace(moments=training.fresh_moments((*state.prior.mean, *state.prior.log_var)))
        fit, epochs = Fit(self, state, task), _at(self.epochs, task.index)
        for epoch in range(int(state.epoch), epochs):
            fit.epoch(epoch)
            state = fit.state()._replace(epoch=torch.tensor(epoch + 1))
            report(state, (epoch + 1) / epochs)
        nll, divergence = state.losses.unbind(-1)
        if self.coreset_per_task:
            chosen = mem.choose(len(task.y), self.coreset_per_task, state.seeds, task.index)
            state = state._replace(coreset=mem.add(state.coreset, task, chosen))
        info = {"loss": nll + divergence, "nll": nll, "divergence": divergence}
        return Learned(state._replace(epoch=torch.tensor(0)), info)

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        spec, network, q = state.spec, self._network(state.spec), state.posterior
        if task_id is None and spec.scenario == "task_incremental":
            raise ValueError("task_id=None: in the task_incremental scenario a prediction needs its task")
        units = _units(spec, task_id)
        sampler = Sampler(self, _widths(q), self.num_samples_predict, POINTS_AT_ONCE)
        streams = rng.generators(state.seeds, "predict", device=x.device)
        noise = torch.empty(len(state.seeds), 1, sampler.size, device=x.device)
        log_probs = torch.full((len(state.seeds), len(x), spec.num_units), -torch.inf, device=x.device)
        for start in range(0, len(x), POINTS_AT_ONCE):
            if start == 0 or sampler.per_point:
                draw_normals(noise, streams)
            inputs = spec.scale(x[start : start + POINTS_AT_ONCE])
            for part in _parts(len(state.seeds), x.device):
                mean, log_var = _map(lambda p, part=part: p[part], q)
                at = features(network, mean, inputs.expand(len(mean[0]), *inputs.shape))
                f = sampler(mean[-len(log_var) :], [v.exp() for v in log_var], at, noise[part, 0])[..., units]
                if self.average == "logits":
                    log_prob = f.mean(1).log_softmax(-1)
                else:
                    log_prob = f.log_softmax(-1).logsumexp(1) - math.log(self.num_samples_predict)
                log_probs[part, start : start + POINTS_AT_ONCE, units] = log_prob
        return log_probs

    def _network(self, spec: Spec) -> Network:
        return build(self.network, spec.input_shape, self.hidden, spec.num_units, ())


class Fit:
    """A task's step over its data, with the tensors that it changes in place; on a CPU one seed after the other."""

    def __init__(self, config: SFSVI, state: State, task: Task):
        spec, device, num_seeds = state.spec, task.x.device, len(state.seeds)
        self.config, self.task, self.start = config, task, state
        self.network = network = config._network(spec)
        self.batch_size = batch_size = min(config.batch_size, len(task.y))
        self.per_task = _at(config.num_context, task.index)
        past = range(max(1, task.index))
        self.num_context = num_context = self.per_task * len(past)
        self.stored = stored = config.coreset_per_task > 0 and task.index > 0
        units = None
        if spec.scenario == "task_incremental":
            units = torch.tensor([spec.task_units[t] for t in past for _ in range(self.per_task)], device=device)
        if stored and self.per_task > (fewest := int(state.coreset.task.bincount().min())):
            raise ValueError(f"num_context={self.per_task} is more than the {fewest} points stored of a task")
        mine = _units(spec, task.index)
        place = torch.zeros(spec.num_units, dtype=torch.int64)
        place[mine] = torch.arange(len(mine))
        y = place.to(device)[task.y]
        weight = {"equal": batch_size, "normalized": 1}[config.divergence_weight] / max(1, num_context)

        params = training.leaves((*state.posterior.mean, *state.posterior.log_var))
        for p in params:
            p.grad = torch.zeros_like(p)
        layers = len(state.posterior.mean)
        self.q = q = MeanField(params[:layers], params[layers:])
        self.total = total = torch.zeros(num_seeds, 2, device=device)
        self.optimiser = optimiser = training.adam(params, state.moments, _at(config.learning_rate, task.index))
        self.sampler = sampler = Sampler(config, _widths(q), config.num_samples, batch_size)
        scale, pool, prior = spec.scaler(device), state.coreset.x.flatten(0, 1), state.prior
        fixed = (torch.zeros((), device=device), torch.tensor(config.prior_var, device=device))
        known = prior_moments(config, state) if stored and num_context else None

        # The step holds no reference to this object: memory is given back with its last owner, not at some collection.
        def step(index, noise, context, *masks):
            for part in _parts(num_seeds, device):
                points, at = index[part], context[part]
                x = torch.cat([scale(task.x[points]), scale(pool[at] if stored else at)], dim=1)
                drop = [m[part] for m in masks]
                mean = [m.detach()[part].requires_grad_() for m in q.mean]
                var = [v.detach()[part].exp().requires_grad_() for v in q.log_var]
                phi, tail = features(network, mean, x, drop), mean[-len(var) :]
                f = sampler(tail, var, phi[:, :batch_size], noise[part])[..., mine]
                labels = y[points][:, None].expand(f.shape[:-1])
                nll = F.cross_entropy(f.flatten(0, 2), labels.flatten(), reduction="none").view_as(labels)
                nll = nll.sum((1, 2)) / config.num_samples
                divergence = torch.zeros_like(nll)
                if num_context:
                    moments = output_moments(tail, var, phi[:, batch_size:], units)
                    if known is not None:
                        old = [k[at] for k in known]
                    elif task.index:
                        with torch.no_grad():
                            m0, v0 = _map(lambda p, part=part: p[part], prior)
                            phi0 = features(network, m0, x, drop)[:, batch_size:]
                            old = output_moments(m0[-len(v0) :], [v.exp() for v in v0], phi0, units)
                    else:
                        old = fixed
                    divergence = weight * marginal_kl(*moments, *old).sum((1, 2))
                gradients = torch.autograd.grad((nll + divergence).sum(), [*mean, *var])
                with torch.no_grad():
                    for p, g in zip(q.mean, gradients, strict=False):
                        p.grad[part] = g
                    for p, g, v in zip(q.log_var, gradients[layers:], var, strict=True):
                        torch.mul(g, v, out=p.grad[part])
                    total[part] += torch.stack([nll.detach(), divergence.detach()], dim=-1)
            optimiser.step()

        self.stepper = training.Stepper(step, [*params, *training.tensors_of(optimiser), total])
        self.noise = torch.empty(num_seeds, STEPS_A_TAPE, sampler.size, device=device)

    def epoch(self, epoch: int) -> None:
        """One pass over the task in each seed's own order."""
        seeds, device, path = self.start.seeds, self.total.device, (self.task.index, epoch)
        order = rng.permutations(len(self.task.y), rng.generators(seeds, "order", *path))
        index, _ = training.minibatches(order, self.batch_size, drop_partial=True)
        on_device = [rng.generators(seeds, word, *path, device=device) for word in ("noise", "dropout")]
        draws = rng.generators(seeds, "context", *path, device="cpu" if self.stored else device)
        self.total.zero_()
        for part in training.tapes(len(index), STEPS_A_TAPE):
            steps = part.stop - part.start
            draw_normals(self.noise[:, :steps], on_device[0])
            masks = self.network.draw_masks(on_device[1], steps, self.batch_size + self.num_context)
            context = torch.stack([self._context(g, r, steps) for r, g in enumerate(draws)], dim=1).to(device)
            self.stepper((index[part].to(device), self.noise[:, :steps].transpose(0, 1), context, *masks))
        self.start = self.start._replace(
            losses=torch.cat([self.start.losses, (self.total / (len(index) * self.batch_size)).cpu()[:, None]], dim=1)
        )

    def _context(self, stream: torch.Generator, row: int, steps: int) -> Tensor:
        """Context of one seed: places in what is stored ``(step, n)``, or images ``(step, n, *shape)`` made up."""
        config, x, n = self.config, self.task.x, self.num_context
        if self.stored:
            coreset, places = self.start.coreset, []
            for t in range(self.task.index):
                mine = (coreset.task == t).nonzero().flatten() + row * coreset.size
                order = torch.rand(steps, len(mine), generator=stream).argsort(-1)
                places.append(mine[order[:, : self.per_task]])
            return torch.cat(places, dim=1)
        if config.context == "pixels":
            return torch.empty((steps, n, *x.shape[1:]), device=x.device).uniform_(
                *config.context_range, generator=stream
            )
        channels = x.transpose(0, 1).flatten(1)
        pixels = torch.randint(channels.shape[1], (len(channels), steps, n // 2), generator=stream, device=x.device)
        colours = channels.gather(1, pixels.flatten(1)).view(pixels.shape).permute(1, 2, 0)[..., None, None]
        images = x[torch.randint(len(x), (steps, n - n // 2), generator=stream, device=x.device)]
        return torch.cat([colours.expand(-1, -1, *x.shape[1:]), images], dim=1)

    def state(self) -> State:
        """The state reached, sharing memory with the step: whoever keeps it copies."""
        return self.start._replace(posterior=_map(Tensor.detach, self.q), moments=training.moments_of(self.optimiser))


def prior_moments(config: SFSVI, state: State) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(seed * point, unit)`` of what is stored, linearised at q_{t-1}.

    In the task-incremental scenario of the units of the point's own task. Dropout has one draw a task.
    """
    spec, coreset, network, device = state.spec, state.coreset, config._network(state.spec), state.coreset.x.device
    streams = rng.generators(state.seeds, "prior_dropout", int(coreset.task.max()), device=device)
    means, variances = [], []
    for t in range(int(coreset.task.max()) + 1):
        mine = (coreset.task == t).nonzero().flatten().to(device)
        units = None
        if spec.scenario == "task_incremental":
            units = torch.tensor(spec.task_units[t], device=device).expand(len(mine), -1)
        masks = [m[0] for m in network.draw_masks(streams, 1, len(mine))]
        found = []
        for part in _parts(len(state.seeds), device):
            mean, log_var = _map(lambda p, part=part: p[part], state.prior)
            x, drop = spec.scale(coreset.x[part][:, mine]), [m[part] for m in masks]
            with torch.no_grad():
                phi = features(network, mean, x, drop)
                found.append(output_moments(mean[-len(log_var) :], [v.exp() for v in log_var], phi, units))
        for whole, parts in zip((means, variances), zip(*found, strict=True), strict=True):
            whole.append(torch.cat(parts))
    return torch.cat(means, dim=1).flatten(0, 1), torch.cat(variances, dim=1).flatten(0, 1)


def features(network: Network, params: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
    """Inputs ``(seed, n, in)`` of the layers that are random, for scaled ``x`` ``(seed, n, *shape)``."""
    return x.flatten(2) if isinstance(network, MLP) else network.features(params, x, masks)


def marginal_kl(mean: Tensor, var: Tensor, mean0: Tensor, var0: Tensor) -> Tensor:
    """KL of Gaussians from Gaussians of one dimension, element by element."""
    return 0.5 * (var0.log() - var.log() + (var + (mean - mean0).square()) / var0 - 1)


def _widths(q: MeanField) -> tuple[int, ...]:
    """Inputs, hidden layers and outputs of the layers that are random."""
    weights = q.log_var[::2]
    return (weights[0].shape[1], *(w.shape[2] for w in weights))


def _each(setting) -> tuple:
    """The values of a setting that has one for all tasks or one for each."""
    return setting if isinstance(setting, tuple) else (setting,)


def _at(setting, task_index: int):
    """The value for a task."""
    return _each(setting)[min(task_index, len(_each(setting)) - 1)]
