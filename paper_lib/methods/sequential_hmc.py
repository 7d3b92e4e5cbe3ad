r"""Sequential Bayes with samples: HMC on a task, a density fitted to its draws, and that density as the next prior.

Source: Kessler et al. 2023, Sec. 3 and App. C to E. With :math:`\hat p_0 = \mathcal N(0, 1/\tau)`, task ``t`` samples

.. math:: \hat p_t(\theta) \propto p(D_t \mid \theta)\, \hat p_{t-1}(\theta),

and fits :math:`\hat p_t` to the draws (``recursion="density"``). If the fit were perfect, this would be the posterior
of all data so far, which two controls sample directly: ``exact`` goes on from the last draws and ``joint`` starts
afresh, both with the likelihood of every task so far under the first prior. Neither fits a density.

Where the paper's text and its released code part, a field says which one is meant; the row ``hmc_as_published`` has the
release's values. A prediction averages probabilities over draws of all chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from paper_lib import memory as mem
from paper_lib import rng
from paper_lib.checks import check_choices, each_within, within
from paper_lib.data.stream import Spec, Task
from paper_lib.inference import density as densities
from paper_lib.inference import diagnostics, hmc
from paper_lib.inference.network_density import Compiled, gaussian_prior, likelihood
from paper_lib.methods import Learned, unreported
from paper_lib.networks import MLP, flatten, unflatten

PIECE = 64
"""Iterations between two reports of progress."""

NETWORKS_AT_ONCE = 500
"""Draws times a few hundred points that a prediction takes at a time."""

WORTH_COMPILING = 20_000
"""Gradients a task from which on the density is compiled."""

SAMPLING = 0.8
"""Share of a task's progress that is told while it samples, where a density is fitted after."""

NUM_PROBES = 20
"""Training points of a task whose predictive probability is traced over the draws."""


class State(NamedTuple):
    """What ``SequentialHMC`` carries.

    Attributes:
        spec: shapes and scenario.
        seeds: the seeds that advance together.
        prior: the density that the next task takes for its prior.
        sampler: the run in progress, or the last one.
        draws: what predictions average over, ``(seed, draw, parameter)``; before the first task, the starts.
        data: all points so far, which the controls alone keep.
        running: 1 while a task is being sampled.
    """

    spec: Spec
    seeds: tuple[int, ...]
    prior: densities.GMM | densities.Flow
    sampler: hmc.State
    draws: Tensor
    data: mem.Memory
    running: Tensor


@dataclass(frozen=True)
class SequentialHMC:
    """Configuration, and the contract of ``paper_lib.methods.Method``.

    The defaults are the paper's text with the corrected sampler and density.

    Attributes:
        hidden: widths of the MLP's hidden layers.
        prior_precision: of every weight before the first task.
        recursion: the next task's prior is a fitted ``density``; or all data so far, going on from the last draws
            (``exact``) or afresh (``joint``).
        num_chains: chains a seed.
        step_size: of the leapfrog integrator; where the adaptation begins if there is one.
        num_leapfrog: gradients a trajectory.
        num_warmup: iterations that are not kept.
        num_draws: kept a chain.
        thin: iterations a kept draw.
        adapt: adapt step size and diagonal masses during the warm-up, a seed at a time.
        target_acceptance: that the step size aims at.
        burn_reject: where a rejection in the warm-up leaves a chain: it ``stay``s, or ``restart``s (release).
        include_init: the first draw kept is the starting point (release).
        start: where chains begin: draws of the prior (``prior``), or all at one fresh network, on every task
            (``shared_net``, release), where ``exact`` and ``joint`` are one. Else ``exact`` begins at the last draws.
        density: ``gmm``, ``gaussian``, or a flow, ``realnvp`` or ``spline``.
        flow_training: of a flow: ``corrected``, or with the step sizes, batches, rows and length of the ``release``.
        covariance: of the GMM's components, ``full``, ``diagonal`` or ``tied``.
        regularisation: of covariances: ``shrinkage``, or ``floor``, 1e-6 added to variances (release).
        max_components: most components tried.
        holdout: what components are chosen and flows stopped on: whole ``chains``, or ``rows`` (release).
        final_rows: rows that the chosen GMM is fitted to, or None for all; 3750 in the release.
        num_predict: draws that a prediction averages over, evenly from all chains.
        average: predictions average the ``probability`` or the ``logit`` (release).
        eval_chains: they use ``all`` chains or the ``last`` one (release).
    """

    hidden: tuple[int, ...] = (10, 10)
    prior_precision: float = 10.0
    recursion: Literal["density", "exact", "joint"] = "density"
    num_chains: int = 20
    step_size: float = 1e-3
    num_leapfrog: int = 20
    num_warmup: int = 1000
    num_draws: int = 1000
    thin: int = 10
    adapt: bool = False
    target_acceptance: float = 0.8
    burn_reject: Literal["stay", "restart"] = "stay"
    include_init: bool = False
    start: Literal["prior", "shared_net"] = "prior"
    density: Literal["gmm", "gaussian", "realnvp", "spline"] = "gmm"
    flow_training: Literal["corrected", "release"] = "corrected"
    covariance: Literal["full", "diagonal", "tied"] = "full"
    regularisation: Literal["shrinkage", "floor"] = "shrinkage"
    max_components: int = 500
    holdout: Literal["chains", "rows"] = "chains"
    final_rows: int | None = None
    num_predict: int = 1000
    average: Literal["probability", "logit"] = "probability"
    eval_chains: Literal["all", "last"] = "all"

    VERSION: ClassVar[int] = 2

    def __post_init__(self):
        check_choices(self)
        within("prior_precision", self.prior_precision, 0, above=True)
        for name in ("num_chains", "num_predict"):
            within(name, getattr(self, name), 1)
        each_within("hidden", self.hidden, 1)
        within("num_draws", self.num_draws, diagnostics.FEWEST_DRAWS + self.include_init)
        self.sampler()  # raises for a setting that cannot be
        settings = self.fit_settings()
        if self.recursion == "density":
            densities.num_fitted(settings, self.num_chains, self.num_draws)

    def sampler(self) -> hmc.HMC:
        """The sampler's settings."""
        return hmc.HMC(
            step_size=self.step_size,
            num_leapfrog=self.num_leapfrog,
            num_warmup=self.num_warmup,
            num_draws=self.num_draws,
            thin=self.thin,
            target_acceptance=self.target_acceptance,
            adapt_step=self.adapt,
            adapt_mass=self.adapt,
            burn_reject=self.burn_reject,
            include_init=self.include_init,
        )

    def fit_settings(self) -> densities.GMMSettings | densities.FlowSettings:
        """The density's settings."""
        if self.density in ("realnvp", "spline"):
            if self.flow_training == "release":
                return densities.published_flow(kind=self.density)
            return densities.FlowSettings(kind=self.density, holdout=self.holdout)
        return densities.GMMSettings(
            covariance=self.covariance,
            regularisation=self.regularisation,
            holdout=self.holdout,
            max_components=1 if self.density == "gaussian" else self.max_components,
            final_rows=self.final_rows,
        )

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        network = self._network(spec)
        if spec.scenario == "task_incremental":
            raise ValueError("scenario='task_incremental': sequential HMC has one head; use domain_incremental")
        position = self._fresh(network, seeds, device)
        prior = densities.isotropic(
            self.fit_settings(), len(seeds), position.shape[-1], self.prior_precision, device=device
        )
        sampler = hmc.init(self.sampler(), position, gaussian_prior(self.prior_precision))
        running = torch.zeros((), dtype=torch.int64)
        return State(spec, tuple(seeds), prior, sampler, position, mem.empty(spec, 1, device), running)

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
        spec, seeds, config = state.spec, state.seeds, self.sampler()
        network = self._network(spec)
        if not state.running and self.recursion != "density":
            state = state._replace(data=mem.add(state.data, task, torch.arange(len(task.y))[None]))
        target = self._target(network, state, task)
        if not state.running:
            start = self._start(network, state, task)
            state = state._replace(sampler=hmc.init(config, start, target), running=torch.ones((), dtype=torch.int64))
        run = hmc.Sampler(config, state.sampler, target, seeds, ("task", task.index))
        share = SAMPLING if self.recursion == "density" else 1.0
        while int(run.state.iteration) < config.num_iterations:
            sampled = run.advance(PIECE)
            report(state._replace(sampler=sampled), share * int(sampled.iteration) / config.num_iterations)
        sampled = run.state
        state = state._replace(sampler=sampled, draws=self._chosen(sampled.draws))
        info, kept = self._told(network, state, task)
        if self.recursion == "density":
            streams = rng.generators(seeds, "density", task.index)

            def told(share: float) -> None:
                report(state, SAMPLING + (1 - SAMPLING) * share)

            prior, fitted = densities.fit(sampled.draws, self.fit_settings(), streams, told)
            info |= {name: value for name, value in fitted.items() if value.ndim == 1}
            ours = prior.sample(self.num_predict, rng.generators(seeds, "density draws", task.index))
            info["density_accuracy"] = self._accuracy(network, spec, ours.float(), task)
            kept["held_out_curve"] = fitted["curve"]
            state = state._replace(prior=prior)
        return Learned(state._replace(running=torch.zeros((), dtype=torch.int64)), info, kept)

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        return self._predict(self._network(state.spec), state.spec, state.draws, x)

    def _network(self, spec: Spec) -> MLP:
        return MLP(spec.input_shape, self.hidden, spec.num_units)

    def _fresh(self, network: MLP, seeds: Sequence[int], device: str | torch.device, *path: int) -> Tensor:
        """Draws of the first prior, ``(seed, chain, parameter)``; of ``shared_net`` one network for all chains."""
        if self.start == "shared_net":
            return flatten(network.init(seeds, device))[:, None].expand(-1, self.num_chains, -1).contiguous()
        shape = self.num_chains, sum(map(math.prod, network.shapes))
        drawn = [torch.randn(shape, generator=g) for g in rng.generators(seeds, "start", *path)]
        return torch.stack(drawn).to(device) / math.sqrt(self.prior_precision)

    def _start(self, network: MLP, state: State, task: Task) -> Tensor:
        """Where the chains of a task begin."""
        if task.index == 0 or self.start == "shared_net":
            return self._fresh(network, state.seeds, task.x.device)
        if self.recursion == "joint":
            return self._fresh(network, state.seeds, task.x.device, task.index)
        if self.recursion == "exact":
            return state.sampler.current.position
        streams = rng.generators(state.seeds, "start", task.index)
        return state.prior.sample(self.num_chains, streams).float().contiguous()

    def _target(self, network: MLP, state: State, task: Task) -> hmc.LogDensity:
        """Likelihood and prior of a task."""
        everything = self.recursion != "density"
        x = state.data.x[0] if everything else task.x
        y = state.data.y[0] if everything else task.y
        data = likelihood(network, state.spec.scale(x), y)
        first = gaussian_prior(self.prior_precision)
        # Compiling takes seconds, a gradient of plain operations a fraction of a millisecond.
        backend = "compiled" if self.sampler().num_iterations * self.num_leapfrog >= WORTH_COMPILING else "eager"
        if everything or task.index == 0:
            return Compiled(hmc.product(data, first), backend)
        return hmc.product(Compiled(data, backend), state.prior.to(torch.float32).log_prob_and_grad)

    def _chosen(self, draws: Tensor) -> Tensor:
        """The draws that predictions average over, evenly from the chains, ``(seed, draw, parameter)``."""
        pooled = (draws[:, -1:] if self.eval_chains == "last" else draws).flatten(1, 2)
        at = torch.linspace(0, pooled.shape[1] - 1, min(self.num_predict, pooled.shape[1])).round().long()
        return pooled[:, at.to(draws.device)]

    def _told(self, network: MLP, state: State, task: Task) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What the record and the kept arrays say of a task's sampling."""
        sampled = state.sampler
        run = hmc.info(self.sampler(), sampled)
        names = ("warmup_acceptance_rate", "acceptance_rate", "step_size")
        info = {name: getattr(run, name).mean(-1) for name in names}
        info["divergent"] = (run.warmup_divergent + run.divergent).sum(-1).double()
        probes = self._probes(network, state.spec, sampled.draws, task)
        at_draws = sampled.trace.log_density[..., self.num_warmup :][..., self.thin - 1 :: self.thin]
        gated = {"log_density": at_draws} | ({"probe": probes} if len(task.x) else {})
        for name, gate in diagnostics.gate(gated).items():
            info |= {f"rhat_{name}": gate.rhat, f"ess_{name}": gate.ess, f"converged_{name}": gate.passed.double()}
        info["accuracy"] = self._accuracy(network, state.spec, state.draws, task)
        kept = {"draws": sampled.draws, "probes": probes} | dict(zip(sampled.trace._fields, sampled.trace, strict=True))
        return info, kept

    def _probes(self, network: MLP, spec: Spec, draws: Tensor, task: Task) -> Tensor:
        """Probability of the last class at a few points, under every kept draw, ``(seed, chain, draw, probe)``."""
        at = torch.linspace(0, len(task.x) - 1, min(NUM_PROBES, len(task.x))).round().long().to(task.x.device)
        parts = draws.flatten(0, 2).split(NETWORKS_AT_ONCE)
        found = [log_probs(network, part, spec.scale(task.x[at]))[..., -1].exp() for part in parts]
        return torch.cat(found).view(*draws.shape[:3], len(at))

    def _predict(self, network: MLP, spec: Spec, draws: Tensor, x: Tensor) -> Tensor:
        """Log of the mean probability over draws (or the softmax of the mean logit), ``(seed, n, unit)``."""
        predicted = []
        for own in draws:
            parts = []
            for points in spec.scale(x).split(256):
                total = 0.0
                for part in own.split(NETWORKS_AT_ONCE):
                    found = log_probs(network, part, points).double()
                    # A softmax of the mean log-probability is that of the mean logit.
                    total = total + (found.exp() if self.average == "probability" else found).sum(0)
                mean = total / len(own)
                parts.append(mean.log() if self.average == "probability" else mean.log_softmax(-1))
            predicted.append(torch.cat(parts))
        return torch.stack(predicted)

    def _accuracy(self, network: MLP, spec: Spec, draws: Tensor, task: Task) -> Tensor:
        """Accuracy on a task's own points of the predictive average over draws, ``(seed,)``."""
        return (self._predict(network, spec, draws, task.x).argmax(-1) == task.y).double().mean(-1)


def log_probs(network: MLP, draws: Tensor, x: Tensor) -> Tensor:
    """Log-probabilities of each of a set of networks.

    Args:
        network: their architecture.
        draws: their parameters ``(draw, parameter)``.
        x: scaled inputs ``(n, *input_shape)``.

    Returns:
        ``(draw, n, unit)``.
    """
    like = tuple(draws.new_empty(()).expand(len(draws), *shape) for shape in network.shapes)
    return network(unflatten(draws, like), x).log_softmax(-1)
