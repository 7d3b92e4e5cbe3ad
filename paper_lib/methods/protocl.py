r"""ProtoCL: Gaussian class prototypes with conjugate updates over a learned embedding (Kessler et al. 2023, Sec. 7).

An encoder embeds an input, :math:`z = f(x; w)`. Labels have a Dirichlet-categorical model, embeddings of a class
are :math:`\mathcal N(\bar z_c, s^2 I)` about a prototype :math:`\bar z_c \sim \mathcal N(\mu_c, \lambda_c^{-1} I)`. The
posterior over prototypes and label probabilities is exact given the embeddings:

.. math:: \lambda_c \mathrel{+}= n_c / s^2, \quad Q_c \mathrel{+}= \textstyle\sum_{y_i = c} z_i / s^2, \quad
    \alpha_c \mathrel{+}= n_c, \qquad \mu_c = Q_c / \lambda_c,

and the joint predictive of an embedding and its label is

.. math:: \log p(z, y = c) = \log (\alpha_c / \textstyle\sum_j \alpha_j)
    + \log \mathcal N(z; \mu_c, (s^2 + \lambda_c^{-1}) I).

Algorithm 1 alternates a gradient step on the encoder with an update of the posterior, over the current task united with
a memory. The prior never changes, so the state is the evidence: counts and sums of embeddings of each class. Where the
paper's text and the released code part, a field says which one is meant; ``as_published`` sets the release's values.

Two fields go beyond both. The conditional loss :math:`-\log p(y | z)` leaves the scale of the embeddings free: with
:math:`s^2` fixed, embeddings that move apart drive it to certainty on the points trained on, those of memory above all.

- ``label_smoothing`` takes a label as the mixture :math:`(1 - \epsilon)\,\delta_y + \epsilon\, U` with the uniform
  distribution over the classes seen. The log odds at which the loss is least, and with them the differences of squared
  distances to prototypes, are then bounded. Evidence still counts the label itself.
- ``learn_noise_var`` lets :math:`\log s^2` take gradient steps on the generative model's own likelihood,
  :math:`-\log \mathcal N(z; \mu_y, (s^2 + \lambda_y^{-1}) I)` at embeddings held fixed. Its minimum is the spread of
  embeddings about their prototypes, so that log odds do not depend on the embeddings' scale. The conditional loss would
  rather shrink :math:`s^2`, as certainty on points trained on costs nothing. Counts and sums do not contain
  :math:`s^2`, so the posterior is exact after each change of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from paper_lib import memory as mem
from paper_lib import rng, training
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference import gaussian
from paper_lib.methods import Learned, unreported
from paper_lib.networks import MASKS_AT_ONCE, Kind, Network, Params, Precision, build


class Evidence(NamedTuple):
    """What the posterior has seen of each class.

    Attributes:
        counts: ``(seed, class)``, or ``(seed, slot, class)`` where every batch slot keeps its own posterior.
        sums: sums of embeddings, ``(seed, class, dim)`` or ``(seed, slot, class, dim)``.
    """

    counts: Tensor
    sums: Tensor


class Prior(NamedTuple):
    """The prior over prototypes and label probabilities.

    Attributes:
        precision: :math:`\\lambda_0`, ``(seed, class)``.
        precision_mean: :math:`Q_0`, ``(seed, class, dim)``.
        log_concentration: :math:`\\log \\alpha_0`, ``(seed, class)``.
    """

    precision: Tensor
    precision_mean: Tensor
    log_concentration: Tensor


class State(NamedTuple):
    """What ``ProtoCL`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        params: encoder parameters, each ``(seed, ...)``.
        moments: Adam's moments, of the encoder, of the log concentration, and of the log noise where that is learned.
        prior: of the prototypes; its log concentration is learned.
        evidence: what Algorithm 1 has accumulated.
        predictive_evidence: what predictions use.
        memory: points of past tasks.
        at: how far the task in progress has come.
        trace: the Dirichlet's concentration after each epoch of the task in progress, ``(seed, epoch, class)``.
        log_noise_var: :math:`\\log s^2`, ``(seed,)``.
    """

    spec: Spec
    seeds: tuple[int, ...]
    params: Params
    moments: training.Moments
    prior: Prior
    evidence: Evidence
    predictive_evidence: Evidence
    memory: mem.Memory
    at: training.Position
    trace: Tensor
    log_noise_var: Tensor


def log_joint(
    z: Tensor,
    prior: Prior,
    evidence: Evidence,
    noise_var: float | Tensor,
    class_prior: Literal["counts", "uniform"] = "counts",
) -> Tensor:
    """The joint predictive :math:`\\log p(z, y = c)` for every class.

    Source: Kessler et al. 2023, eq:proto_cl_log_post, one point's factor.

    Args:
        z: embeddings ``(seed, n, dim)``; with slots, point ``i`` is scored by the posterior of slot ``i``.
        prior: of the prototypes.
        evidence: its counts and sums.
        noise_var: :math:`s^2`, or ``(seed, 1)``.
        class_prior: ``counts`` takes p(y) from the Dirichlet posterior, ``uniform`` leaves it out.

    Returns:
        ``(seed, n, class)``.
    """
    slotted = evidence.counts.dim() == 3
    if slotted:
        z, prior = z[:, :, None], Prior(*(p[:, None] for p in prior))
    posterior = gaussian.condition_prototypes(gaussian.Prototypes(*prior[:2]), *evidence, noise_var)
    score = gaussian.prototype_log_density(posterior, z, noise_var)
    if class_prior == "counts":
        concentration = gaussian.condition_dirichlet(prior.log_concentration.exp(), evidence.counts)
        score = score + gaussian.dirichlet_log_predictive(concentration)[..., None, :]
    return score[:, :, 0] if slotted else score


def concentration(prior: Prior, evidence: Evidence) -> Tensor:
    """The Dirichlet posterior's parameters :math:`\\alpha_c`, ``(seed, class)``; the counts of slots are added up.

    Source: Kessler et al. 2023, eq:proto_cl_dir_updates.
    """
    counts = evidence.counts.sum(1) if evidence.counts.dim() == 3 else evidence.counts
    return prior.log_concentration.exp() + counts


def observe(evidence: Evidence, z: Tensor, one_hot: Tensor, forget: float = 1.0) -> Evidence:
    """The evidence after a batch of labelled embeddings.

    Source: Kessler et al. 2023, eq:proto_cl_dir_updates to eq:proto_cl_norm_mean_update.

    Args:
        evidence: of all seeds, with or without slots.
        z: embeddings ``(seed, n, dim)``; with slots, ``n`` is the number of slots.
        one_hot: labels ``(seed, n, class)``; a row of zeros leaves its point out.
        forget: what earlier evidence is multiplied by.
    """
    if evidence.counts.dim() == 3:
        counts, sums = one_hot, one_hot[..., None] * z[:, :, None]
    else:
        counts, sums = gaussian.class_sums(z, one_hot)
    if forget == 1:
        return Evidence(evidence.counts + counts, evidence.sums + sums)
    return Evidence(forget * evidence.counts + counts, forget * evidence.sums + sums)


@dataclass(frozen=True)
class ProtoCL:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    Attributes:
        hidden: widths of the encoder's hidden layers; ignored by CifarNet.
        network: ``mlp`` or ``cifarnet``.
        embedding_dim: dimensions of an embedding.
        dropout: rate after every layer of the MLP, the embedding included, or one rate a layer, the embedding's last;
            CifarNet has its own.
        epochs: passes over each task.
        batch_size: points a step.
        learning_rate: of Adam.
        weight_decay: L2 term added to the encoder's gradient.
        noise_var: variance of an embedding about its prototype, in each dimension.
        learn_noise_var: whether it takes gradient steps from there (module docstring), or stays.
        alpha_init: prior concentration of each class.
        learn_concentration: whether the prior concentration takes gradient steps (text) or stays (release).
        loss: ``conditional`` minimises -log p(y | z) (release), ``joint`` -log p(z, y) (text), or both added.
        posterior: ``shared`` by a batch (text), or ``per_slot``: each position in the batch keeps its own (release).
        evidence_after_step: update the posterior after the encoder's step (text) or before it (release).
        forget: what the accumulated evidence is multiplied by in every step; 1 forgets nothing.
        evidence_mode: predictions use what training accumulated (``cumulative``), or one pass over the current task and
            memory with the final encoder (``recompute_final``), or a pass at the end of every epoch which training goes
            on from (``recompute_each_epoch``).
        class_prior: p(y) in predictions, from the Dirichlet posterior (``counts``) or ``uniform``.
        memory_total: points of memory in all, shared equally by the tasks so far (release); or None.
        memory_per_task: points kept of each task (text); used where ``memory_total`` is None.
        oversample: repeat memory in an epoch until old and new are about 1:1.
        replay_weight: weight of a memory point's loss, 1 for a current point's.
        label_smoothing: share of the uniform distribution, over competing classes of the task and of memory, in the
            label of the conditional loss (module docstring).
        drop_partial_batches: leave out a last training batch that is not full.
        predict_with_dropout: keep dropout on in predictions (release).
        precision: of CifarNet: ``auto`` is what the device is fast in, and the run's provenance says which it was.
    """

    hidden: tuple[int, ...] = (200, 200)
    network: Kind = "mlp"
    embedding_dim: int = 128
    dropout: float | tuple[float, ...] = 0.0
    epochs: int = 50
    batch_size: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    noise_var: float = 0.05
    learn_noise_var: bool = False
    alpha_init: float = 0.7
    learn_concentration: bool = True
    loss: Literal["conditional", "joint", "joint_plus_conditional"] = "conditional"
    posterior: Literal["shared", "per_slot"] = "shared"
    evidence_after_step: bool = False
    forget: float = 1.0
    evidence_mode: Literal["cumulative", "recompute_final", "recompute_each_epoch"] = "cumulative"
    class_prior: Literal["counts", "uniform"] = "counts"
    memory_total: int | None = None
    memory_per_task: int = 200
    oversample: bool = True
    replay_weight: float = 1.0
    label_smoothing: float = 0.0
    drop_partial_batches: bool = False
    predict_with_dropout: bool = False
    precision: Precision = "auto"

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(self)
        for name in ("embedding_dim", "epochs", "batch_size", "hidden"):
            each_within(name, getattr(self, name), 1)
        for name in ("learning_rate", "noise_var", "alpha_init"):
            within(name, getattr(self, name), 0, above=True)
        for rate in self._rates():
            within("dropout", rate, 0, 1, below=True)
        if len(self._rates()) != len(self.hidden) + 1:
            raise ValueError(f"dropout={self.dropout!r} is not one rate, nor {len(self.hidden) + 1}, one a layer")
        within("forget", self.forget, 0, 1)
        within("label_smoothing", self.label_smoothing, 0, 1, below=True)
        if self.memory_total is not None:
            within("memory_total", self.memory_total, 0)
        for name in ("weight_decay", "replay_weight", "memory_per_task"):
            within(name, getattr(self, name), 0)
        if self.posterior == "per_slot" and self.evidence_mode != "cumulative":
            raise ValueError(
                f"evidence_mode={self.evidence_mode!r} is not there for posterior='per_slot', only cumulative"
            )
        if self.learn_noise_var and self.posterior == "per_slot":
            raise ValueError("learn_noise_var=True is not there for posterior='per_slot', only shared")
        if self.label_smoothing and self.loss == "joint":
            raise ValueError(
                f"label_smoothing={self.label_smoothing!r} changes nothing for loss='joint', only conditional"
            )

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        params = self.encoder(spec).init(seeds, device)
        num_seeds, num_classes = len(seeds), spec.num_units
        draws = [
            (
                torch.randn(num_classes, generator=g).exp(),
                torch.randn(num_classes, self.embedding_dim, generator=g),
            )
            for g in rng.generators(seeds, "prior")
        ]
        precision, precision_mean = (torch.stack(d).to(device) for d in zip(*draws, strict=True))
        log_concentration = torch.full((num_seeds, num_classes), self.alpha_init, device=device).log()
        log_noise_var = torch.full((num_seeds,), self.noise_var, device=device).log()
        slots = (self.batch_size,) if self.posterior == "per_slot" else ()
        evidence = Evidence(
            torch.zeros(num_seeds, *slots, num_classes, device=device),
            torch.zeros(num_seeds, *slots, num_classes, self.embedding_dim, device=device),
        )
        return State(
            spec,
            tuple(seeds),
            params,
            training.fresh_moments((*params, log_concentration, *[log_noise_var] * self.learn_noise_var)),
            Prior(precision, precision_mean, log_concentration),
            evidence,
            evidence,
            mem.empty(spec, num_seeds, device),
            training.start(num_seeds, device),
            log_concentration.new_empty(num_seeds, 0, num_classes),
            log_noise_var,
        )

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        spec, seeds = state.spec, state.seeds
        encoder = self.encoder(spec)
        pool = mem.pool(task, state.memory, len(seeds), self.oversample)
        trainer = Trainer(self, state, encoder, pool)
        at, trace, drop_partial = state.at, state.trace, self.drop_partial_batches
        # Every slot of a batch has a posterior, and the release's batches are full.
        is_fixed = self.posterior == "per_slot" or drop_partial
        batch_size = self.batch_size if is_fixed else min(self.batch_size, pool.draws.shape[1])
        noise = training.masks(encoder, batch_size)
        epochs = training.Epochs(trainer.stepper, trainer.total, pool.draws, batch_size, seeds, noise, drop_partial)
        for at, done in epochs.run(state.at, self.epochs, task.index):
            if int(at.step) == 0:
                if self.evidence_mode == "recompute_each_epoch":
                    trainer.replace_evidence(self._one_pass(trainer.state(state), task))
                now = trainer.state(state)
                trace = torch.cat([trace, concentration(now.prior, now.evidence)[:, None]], dim=1)
            report(trainer.state(state)._replace(at=at, trace=trace), done / self.epochs)

        state = trainer.state(state)._replace(at=training.start(len(seeds), task.x.device), trace=trace[:, :0])
        recompute = self.evidence_mode == "recompute_final"
        state = state._replace(
            predictive_evidence=self._one_pass(state, task) if recompute else state.evidence,
            memory=self.remember(state, task),
        )
        info = {"loss": at.losses, "concentration": concentration(state.prior, state.predictive_evidence)}
        info |= {"noise_var": state.log_noise_var.exp()} if self.learn_noise_var else {}
        return Learned(state, info, {"concentration": trace})

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        spec, encoder = state.spec, self.encoder(state.spec)
        streams = rng.generators(state.seeds, "predict", state.memory.size, device=x.device)
        embedded = []
        at_once = max(1, MASKS_AT_ONCE // max(1, encoder.mask_size)) if self.predict_with_dropout else len(x)
        for part in x.split(at_once):
            masks = encoder.draw_masks(streams, 1, len(part)) if self.predict_with_dropout else ()
            embedded.append(encoder(state.params, spec.scale(part), [m[0] for m in masks]))
        z = torch.cat(embedded, dim=1)
        score = self._score(z, state)
        return score.masked_fill(~spec.task_mask(task_id).to(x.device), -torch.inf).log_softmax(-1)

    def _score(self, z: Tensor, state: State) -> Tensor:
        """Scores of any number of points: with slots, one batch of slots after the other."""
        evidence = state.predictive_evidence
        if self.posterior == "shared":
            return log_joint(z, state.prior, evidence, self.noise_var_of(state.log_noise_var), self.class_prior)
        parts = []
        for part in z.split(self.batch_size, dim=1):
            slots = Evidence(*(e[:, : part.shape[1]] for e in evidence))
            parts.append(log_joint(part, state.prior, slots, self.noise_var, self.class_prior))
        return torch.cat(parts, dim=1)

    def _one_pass(self, state: State, task: Task) -> Evidence:
        """Evidence of the task and memory, each point once, under the encoder as it is."""
        encoder, spec = self.encoder(state.spec), state.spec
        evidence = Evidence(*(torch.zeros_like(e) for e in state.evidence))
        with torch.no_grad():
            for x, y in zip(task.x.split(4096), task.y.split(4096), strict=True):
                one_hot = torch.nn.functional.one_hot(y, spec.num_units).float().expand(len(state.seeds), -1, -1)
                evidence = observe(evidence, encoder(state.params, spec.scale(x)), one_hot)
            if state.memory.size:
                one_hot = torch.nn.functional.one_hot(state.memory.y, spec.num_units).float()
                evidence = observe(evidence, encoder(state.params, spec.scale(state.memory.x)), one_hot)
        return evidence

    def encoder(self, spec: Spec) -> Network:
        """The network that embeds inputs."""
        return build(self.network, spec.input_shape, self.hidden, self.embedding_dim, self._rates(), self.precision)

    def noise_var_of(self, log_noise_var: Tensor) -> float | Tensor:
        """The noise as ``log_joint`` takes it, from its logarithm ``(seed,)`` where it is learned."""
        return log_noise_var.exp()[:, None] if self.learn_noise_var else self.noise_var

    def _rates(self) -> tuple[float, ...]:
        return self.dropout if isinstance(self.dropout, tuple) else (self.dropout,) * (len(self.hidden) + 1)

    def remember(self, state: State, task: Task) -> mem.Memory:
        """Memory with points of a task, which depends on the seeds alone."""
        if self.memory_total is None:
            chosen = mem.choose(len(task.y), self.memory_per_task, state.seeds, task.index)
            return mem.add(state.memory, task, chosen)
        share = self.memory_total // (task.index + 1)
        chosen = mem.choose(len(task.y), share, state.seeds, task.index)
        return mem.add(state.memory, task, chosen, keep=share)


class Trainer:
    """The step of Algorithm 1 over a pool, with the tensors that it changes in place."""

    def __init__(self, config: ProtoCL, state: State, encoder: Network, pool: mem.Pool):
        self.params = training.leaves(state.params)
        hyperparameters = state.prior.log_concentration, state.log_noise_var
        self.log_concentration, self.log_noise_var = training.leaves(hyperparameters)
        self.log_concentration.requires_grad_(config.learn_concentration)
        self.evidence = Evidence(*(e.clone() for e in state.evidence))
        self.total = torch.zeros(len(state.seeds), device=pool.x.device)
        of_model = (self.log_concentration, *[self.log_noise_var] * config.learn_noise_var)
        learned, rates = (*self.params, *of_model), (config.learning_rate, config.weight_decay)
        self.optimiser = training.adam(learned, state.moments, *rates, num_exempt=len(of_model))
        prior = state.prior._replace(log_concentration=self.log_concentration)
        scale, num_classes = state.spec.scaler(pool.x.device), state.spec.num_units
        competing = state.spec.competing_units().to(pool.x.device)
        seen = mem.seen(pool.y[: pool.num_current], state.memory, num_classes)[:, None]
        identity = torch.eye(num_classes, dtype=self.params[0].dtype, device=pool.x.device)

        def step(index, weight, *masks):
            x, y = scale(pool.x[index]), pool.y[index]
            z = encoder(self.params, x, masks)
            noise_var = config.noise_var_of(self.log_noise_var)
            held = noise_var.detach() if config.learn_noise_var else noise_var
            score = log_joint(z, prior, self.evidence, held)
            label = y[..., None]
            loss = 0.0
            if config.loss != "joint":
                log_probs = score.masked_fill(~competing[y], -torch.inf).log_softmax(-1)
                nll = -log_probs.gather(-1, label)[..., 0]
                if config.label_smoothing:
                    nll = training.smoothed(nll, log_probs, competing[y] & seen, config.label_smoothing)
                loss = loss + nll
            if config.loss != "conditional":
                loss = loss - score.gather(-1, label)[..., 0]
            importance = torch.where(index < pool.num_current, weight, weight * config.replay_weight)
            # A batch of memory alone has no weight at all where replay_weight is 0.
            total = importance.sum(-1).clamp_min(torch.finfo(importance.dtype).tiny)
            losses = (importance * loss).sum(-1) / total
            self.optimiser.zero_grad(set_to_none=True)
            losses.sum().backward()
            if config.learn_noise_var:
                density = log_joint(z.detach(), prior, self.evidence, noise_var, "uniform").gather(-1, label)[..., 0]
                (-(importance * density).sum(-1) / total).sum().backward()
            self.optimiser.step()
            with torch.no_grad():
                if config.evidence_after_step:
                    z = encoder(self.params, x, masks)
                one_hot = identity[y] * weight[..., None]
                self.replace_evidence(observe(self.evidence, z.detach(), one_hot, config.forget))
                self.total.add_(losses)

        touched = [*learned, *training.tensors_of(self.optimiser), *self.evidence, self.total]
        self.stepper = training.Stepper(step, touched)

    def replace_evidence(self, evidence: Evidence) -> None:
        for own, new in zip(self.evidence, evidence, strict=True):
            own.copy_(new)

    def state(self, start: State) -> State:
        """The state reached, sharing memory with the step: whoever keeps it copies."""
        return start._replace(
            params=tuple(p.detach() for p in self.params),
            moments=training.moments_of(self.optimiser),
            prior=start.prior._replace(log_concentration=self.log_concentration.detach()),
            evidence=self.evidence,
            log_noise_var=self.log_noise_var.detach(),
        )
