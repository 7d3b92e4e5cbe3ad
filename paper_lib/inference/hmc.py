r"""Hamiltonian Monte Carlo (Duane et al. 1987; Neal 2011), all chains of all seeds in one batch.

A draw :math:`\theta` gets a momentum :math:`p \sim \mathcal N(0, M)`, follows
:math:`H(\theta, p) = -\log p(\theta) + \tfrac12 p^\top M^{-1} p` for ``num_leapfrog`` steps of the leapfrog integrator,
and moves to the end point with probability :math:`\min(1, e^{H_\text{old} - H_\text{new}})`. A trajectory begins with
the gradient at which the last one ended, so it costs ``num_leapfrog`` gradients. An energy that is not finite, or that
has risen by more than ``MAX_ENERGY_ERROR``, is a divergence: rejected and counted.

The target is any function of positions ``(seed, chain, dim)`` that returns the log density ``(seed, chain)`` in
float64 and its gradient ``(seed, chain, dim)``, of an unnormalised density. It may be NaN or infinite; it must not wait
for the device. ``product`` multiplies densities, such as a likelihood and a prior.

Momenta and acceptance draws lie ready on tapes, each chain's from its own generators, addressed by the iteration. So a
trajectory is one in-place step, which a GPU replays as a CUDA graph, a chain does the same whatever runs beside it, and
a run in pieces is the run in one piece. What has been drawn is kept thinned, what describes the sampler at every
iteration.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from paper_lib import rng, training
from paper_lib.checks import check_choices, within
from paper_lib.inference import warmup

LogDensity = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Positions ``(seed, chain, dim)`` to log density ``(seed, chain)`` float64 and gradient ``(seed, chain, dim)``."""

MAX_ENERGY_ERROR = 1000.0
"""A rise in energy beyond which a trajectory has diverged, as in Stan."""

PATIENCE = 20
"""Iterations without an accepted proposal after which a seed counts as stuck."""


@dataclass(frozen=True)
class HMC:
    """Settings of the sampler; the defaults are the paper's, text of App. D, but for what is kept.

    Attributes:
        step_size: of the leapfrog integrator, in units of the position; where the adaptation begins if there is one.
        num_leapfrog: gradients a trajectory.
        num_warmup: iterations that are not kept. The release's ``burn`` of b is a ``num_warmup`` of b + 1.
        num_draws: kept a chain.
        thin: iterations a kept draw.
        adapt_step: dual averaging of the step size in the warm-up, one a seed.
        target_acceptance: that it aims at.
        adapt_mass: estimate a diagonal mass matrix in the warm-up, one a seed; the step size must adapt to it.
        burn_reject: where a rejection in the warm-up leaves a chain: it ``stay``s where it is, or ``restart``s at its
            starting point, as in the sampler that the paper's release contains. There a rejection restarts the chain
            until the first proposal after the warm-up is accepted.
        include_init: the first draw kept is the starting point, as in the release.
    """

    step_size: float = 1e-3
    num_leapfrog: int = 20
    num_warmup: int = 1000
    num_draws: int = 1000
    thin: int = 10
    adapt_step: bool = False
    target_acceptance: float = 0.8
    adapt_mass: bool = False
    burn_reject: Literal["stay", "restart"] = "stay"
    include_init: bool = False

    def __post_init__(self):
        within("step_size", self.step_size, 0, above=True)
        for name in ("num_leapfrog", "num_draws", "thin"):
            within(name, getattr(self, name), 1)
        within("num_warmup", self.num_warmup, 0)
        within("target_acceptance", self.target_acceptance, 0, 1, above=True, below=True)
        check_choices(self)
        if self.include_init and self.num_draws < 2:
            raise ValueError(f"num_draws={self.num_draws}: with include_init the starting point is the only draw")
        if self.adapt_mass and not self.adapt_step:
            raise ValueError("adapt_mass=True changes what a step means: set adapt_step=True as well")
        if self.adapt_step and self.num_warmup < warmup.FEWEST:
            raise ValueError(f"num_warmup={self.num_warmup} is too short to adapt in; give {warmup.FEWEST} or more")

    @property
    def num_iterations(self) -> int:
        """Trajectories of a whole run, warm-up included."""
        return self.num_warmup + self.thin * (self.num_draws - self.include_init)


class Point(NamedTuple):
    """Positions ``(seed, chain, dim)`` with their log density ``(seed, chain)`` float64 and gradient."""

    position: Tensor
    log_density: Tensor
    gradient: Tensor


class Trace(NamedTuple):
    """What every iteration leaves, each ``(seed, chain, iteration)`` float32, NaN until it is reached.

    Attributes:
        log_density: after the iteration.
        energy_error: of the proposal, new minus old; large, infinite or not a number where it diverged.
        acceptance: probability of the proposal, 0 where it diverged.
    """

    log_density: Tensor
    energy_error: Tensor
    acceptance: Tensor


class State(NamedTuple):
    """What a run carries; all of it are tensors.

    Attributes:
        current: where the chains are.
        fallback: where a rejection leaves them: ``current``, or in the warm-up of ``restart`` the starting point.
        step_size: ``(seed, chain)`` float64, in use.
        inverse_mass: diagonal of the inverse mass matrix ``(seed, 1, dim)``.
        adaptation: of the two.
        iteration: done so far, int64 on the CPU.
        draws: ``(seed, chain, draw, dim)``, NaN until they are drawn.
        trace: of every iteration.
        accepted: proposals accepted in the warm-up and after it, ``(seed, chain, 2)`` int64.
        divergent: divergences in the warm-up and after it, ``(seed, chain, 2)`` int64.
    """

    current: Point
    fallback: Point
    step_size: Tensor
    inverse_mass: Tensor
    adaptation: warmup.Adaptation
    iteration: Tensor
    draws: Tensor
    trace: Trace
    accepted: Tensor
    divergent: Tensor


class Info(NamedTuple):
    """What a run was like, each ``(seed, chain)``; NaN for a phase without iterations.

    Attributes:
        warmup_acceptance_rate: share of proposals accepted in the warm-up.
        acceptance_rate: after it.
        warmup_divergent: divergences in the warm-up.
        divergent: after it.
        step_size: in use.
    """

    warmup_acceptance_rate: Tensor
    acceptance_rate: Tensor
    warmup_divergent: Tensor
    divergent: Tensor
    step_size: Tensor


def product(*densities: LogDensity) -> LogDensity:
    """The product of densities: log densities and gradients add up."""

    def log_density(theta: Tensor) -> tuple[Tensor, Tensor]:
        log_prob, gradient = densities[0](theta)
        for density in densities[1:]:
            more_log_prob, more_gradient = density(theta)
            log_prob, gradient = log_prob + more_log_prob, gradient + more_gradient
        return log_prob, gradient

    return log_density


@torch.no_grad()
def init(config: HMC, position: Tensor, target: LogDensity) -> State:
    """The state before the first iteration.

    Args:
        config: settings.
        position: where the chains begin, ``(seed, chain, dim)``.
        target: log density and gradient.

    Raises:
        ValueError: for a target of another shape or precision, or one that is not finite where some chain begins.
    """
    if position.ndim != 3 or 0 in position.shape:
        raise ValueError(f"position of shape {tuple(position.shape)} is not (seed, chain, dim), each at least 1")
    position = position.detach().clone()
    log_density, gradient = (t.detach().clone() for t in target(position))
    chains = position.shape[:2]
    if log_density.shape != chains or log_density.dtype != torch.float64 or gradient.shape != position.shape:
        raise ValueError(
            f"target returns a log density {tuple(log_density.shape)} in {log_density.dtype} and a gradient "
            f"{tuple(gradient.shape)}; for this position they must be {tuple(chains)} in torch.float64 and "
            f"{tuple(position.shape)}"
        )
    bad = ~(log_density.isfinite() & gradient.isfinite().all(-1))
    if bad.any():
        seed, chain = (int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"position: at the start of {int(bad.sum())} of {bad.numel()} chains the log density or its gradient is "
            f"not finite, first for chain {chain} of row {seed} (log density {float(log_density[seed, chain])}); "
            "give starts inside the support, near enough to the mass"
        )
    current = Point(position, log_density, gradient)
    draws = position.new_full((*chains, config.num_draws, position.shape[-1]), torch.nan)
    if config.include_init:
        draws[:, :, 0] = position
    count = torch.zeros((*chains, 2), dtype=torch.int64, device=position.device)
    trace = [torch.full((*chains, config.num_iterations), torch.nan, device=position.device) for _ in range(3)]
    step_size = torch.full(chains, config.step_size, dtype=torch.float64, device=position.device)
    return State(
        current,
        current,
        step_size,
        torch.ones_like(position[:, :1]),
        warmup.init(step_size, position),
        torch.zeros((), dtype=torch.int64),
        draws,
        Trace(*trace),
        count,
        count.clone(),
    )


def leapfrog(
    target: LogDensity, start: Point, momentum: Tensor, step_size: Tensor, inverse_mass: Tensor, num_steps: int
) -> tuple[Point, Tensor]:
    """Follow the Hamiltonian flow: half a kick, then drifts and kicks in turn, the last kick a half one.

    Args:
        target: log density and gradient.
        start: where the flow begins.
        momentum: ``(seed, chain, dim)``.
        step_size: broadcasts against it, as does ``inverse_mass``.
        inverse_mass: diagonal.
        num_steps: drifts, one gradient each.

    Returns:
        The end point and the momentum there.
    """
    position, gradient = start.position.clone(), start.gradient
    half, drift = 0.5 * step_size, step_size * inverse_mass
    momentum = torch.addcmul(momentum, half, gradient)
    for step in range(num_steps):
        position.addcmul_(drift, momentum)
        log_density, gradient = target(position)
        momentum.addcmul_(step_size if step < num_steps - 1 else half, gradient)
    return Point(position, log_density, gradient), momentum


class Sampler:
    """A run, begun or gone on with, such as inside ``learn``, where a checkpoint may be taken between pieces::

        sampler = Sampler(config, chains, target, seeds, (task.index,))
        while chains.iteration < config.num_iterations:
            chains = sampler.advance(500)
            report(state._replace(chains=chains), int(chains.iteration) / config.num_iterations)

    Args:
        config: settings.
        state: where it stands; it stays as it is.
        target: log density and gradient.
        seeds: one for each row of the state.
        path: address of the momenta, such as the task's index.
    """

    def __init__(
        self, config: HMC, state: State, target: LogDensity, seeds: Sequence[int], path: tuple[str | int, ...] = ()
    ):
        if len(seeds) != len(state.step_size):
            raise ValueError(f"{len(seeds)} seeds do not fit a state of {len(state.step_size)}")
        self.config, self.seeds, self.path = config, tuple(seeds), path
        self.state = state = _copy(state, config)
        self.plan = warmup.plan(config.num_warmup)
        self.warned = False
        current, fallback, trace = state.current, state.fallback, state.trace

        # The step holds no reference to this object: memory is given back with its last owner, not at some collection.
        def step(momentum: Tensor, log_uniform: Tensor, control: Tensor) -> None:
            iteration, slot, phase, *flags = control.split(1)
            step_size = state.step_size.to(momentum.dtype)[..., None]
            if config.adapt_mass:
                momentum = momentum / state.inverse_mass.sqrt()
            proposal, end = leapfrog(target, current, momentum, step_size, state.inverse_mass, config.num_leapfrog)
            error = _kinetic(end, state.inverse_mass) - proposal.log_density
            error = error - (_kinetic(momentum, state.inverse_mass) - current.log_density)
            diverged = ~(error <= MAX_ENERGY_ERROR) | error.isinf()  # a comparison with NaN is false
            accept = (log_uniform <= -error) & ~diverged
            acceptance = torch.where(diverged, 0.0, (-error).clamp(max=0).exp())

            # Where the fallback is the present point, both are the same tensors, and this writes them once.
            moved = _where(accept, proposal, fallback)
            if fallback is not current:
                _write(fallback, _where(accept & (phase == 1), proposal, fallback))
            _write(current, moved)

            state.draws.index_copy_(2, slot, current.position[:, :, None])
            for tensor, value in zip(trace, (current.log_density, error, acceptance), strict=True):
                tensor.index_copy_(2, iteration, value.to(tensor.dtype)[..., None])
            for count, event in ((state.accepted, accept), (state.divergent, diverged)):
                count.index_add_(2, phase, event[..., None].to(count.dtype))
            if config.adapt_step:
                warmup.update(config, state, acceptance, *flags)

        touched = [t for t in _tensors(state) if t is not state.iteration]
        self.stepper = training.Stepper(step, touched)

    @torch.no_grad()
    def advance(self, num_iterations: int) -> State:
        """Take at most so many iterations; the state returned shares memory with the run: whoever keeps it copies."""
        start = int(self.state.iteration)
        stop = min(start + num_iterations, self.config.num_iterations)
        size = training.STEPS_A_TAPE
        for block in range(start // size, -(-stop // size)):
            part = slice(max(start, block * size), min(stop, (block + 1) * size))
            within_block = slice(part.start - block * size, part.stop - block * size)
            momentum, log_uniform = self._draw(block)
            self.stepper((momentum[within_block], log_uniform[within_block], self._controls(part)))
            self.state.iteration.fill_(part.stop)
        self._warn_if_stuck()
        return self.state

    def _draw(self, block: int) -> tuple[Tensor, Tensor]:
        """Standard normals ``(step, seed, chain, dim)`` and logs of uniforms ``(step, seed, chain)`` of a tape."""
        position = self.state.current.position
        normal = position.new_empty((*position.shape[:2], training.STEPS_A_TAPE, position.shape[2]))
        uniform = normal.new_empty(normal.shape[:3], dtype=torch.float64)
        for row, seed in enumerate(self.seeds):
            for chain in range(position.shape[1]):
                stream = rng.generator(seed, "momentum", *self.path, chain, block, device=position.device)
                normal[row, chain].normal_(generator=stream)
                uniform[row, chain].uniform_(generator=stream)
        return normal.movedim(2, 0), uniform.log_().movedim(2, 0)

    def _controls(self, part: slice) -> Tensor:
        """For each iteration: its number, the draw that it writes, its phase, and the flags of ``warmup.plan``."""
        iteration = torch.arange(part.start, part.stop)
        first = int(self.config.include_init)
        # Iterations write the draw that they lead up to; the last one of them stays. So the warm-up leaves nothing.
        slot = (iteration - self.config.num_warmup).clamp(min=0) // self.config.thin + first
        phase = (iteration >= self.config.num_warmup).to(torch.int64)
        flags = torch.zeros((len(iteration), self.plan.shape[1]), dtype=torch.int64)
        in_warmup = self.plan[part]
        flags[: len(in_warmup)] = in_warmup
        controls = torch.cat([iteration[:, None], slot[:, None], phase[:, None], flags], dim=1)
        return controls.to(self.state.step_size.device)

    def _warn_if_stuck(self) -> None:
        done, config = int(self.state.iteration), self.config
        phase = int(done > config.num_warmup)
        tried = done - config.num_warmup if phase else done
        if self.warned or tried < PATIENCE or (config.adapt_step and not phase):
            return
        stuck = self.state.accepted[..., phase].sum(-1) == 0
        if stuck.any():
            self.warned = True
            used, lost = self.state.step_size[stuck], self.state.divergent[stuck][..., phase]
            warnings.warn(
                f"step_size={config.step_size!r}: no proposal was accepted in {tried} iterations of seeds "
                f"{[s for s, bad in zip(self.seeds, stuck.tolist(), strict=True) if bad]}, "
                f"{int(lost.sum())} of {tried * used.numel()} diverged; the step really used is from "
                f"{float(used.min()):.3g} to {float(used.max()):.3g}. Give a smaller step_size or set adapt_step.",
                stacklevel=3,
            )


def sample(
    config: HMC, position: Tensor, target: LogDensity, seeds: Sequence[int], path: tuple[str | int, ...] = ()
) -> State:
    """A whole run from its starting points ``(seed, chain, dim)``.

    >>> def standard_normal(theta):
    ...     return -0.5 * theta.square().sum(-1, dtype=torch.float64), -theta
    >>> config = HMC(step_size=0.1, num_leapfrog=15, num_warmup=10, num_draws=20, thin=1)
    >>> state = sample(config, torch.zeros(1, 4, 2), standard_normal, seeds=[0])
    >>> tuple(state.draws.shape), info(config, state).acceptance_rate.min().item() > 0.9
    ((1, 4, 20, 2), True)
    """
    return Sampler(config, init(config, position, target), target, seeds, path).advance(config.num_iterations)


def info(config: HMC, state: State) -> Info:
    """Acceptance, divergences and step size of a run so far."""
    done = int(state.iteration)
    in_warmup = min(done, config.num_warmup)
    rates = [
        count.to(torch.float64) / (number or torch.nan)
        for count, number in zip(state.accepted.unbind(-1), (in_warmup, done - in_warmup), strict=True)
    ]
    return Info(*rates, *state.divergent.unbind(-1), state.step_size)


def _kinetic(momentum: Tensor, inverse_mass: Tensor) -> Tensor:
    """Kinetic energy ``(seed, chain)``, summed in float64."""
    return 0.5 * (momentum.square() * inverse_mass).sum(-1, dtype=torch.float64)


def _where(mask: Tensor, one: Point, other: Point) -> Point:
    """One point's chains where the mask ``(seed, chain)`` says so, the other's elsewhere."""
    masks = (mask[..., None], mask, mask[..., None])
    return Point(*(torch.where(m, a, b) for m, a, b in zip(masks, one, other, strict=True)))


def _write(point: Point, values: Point) -> None:
    for tensor, value in zip(point, values, strict=True):
        tensor.copy_(value)


def _tensors(tree) -> list[Tensor]:
    return [tree] if isinstance(tree, Tensor) else [t for child in tree for t in _tensors(child)]


def _copy(state: State, config: HMC) -> State:
    """A state to be changed in place; ``stay`` always falls back on the present point, which is stored once."""

    def copy(tree):
        return tree.detach().clone() if isinstance(tree, Tensor) else type(tree)(*map(copy, tree))

    copied = copy(state)
    return copied._replace(fallback=copied.current) if config.burn_reject == "stay" else copied
