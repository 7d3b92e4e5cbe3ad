r"""What Hamiltonian Monte Carlo learns while it warms up: a step size and a diagonal mass matrix.

The step size follows Nesterov's dual averaging (Hoffman and Gelman 2014, Sec. 3.2.1): after iteration :math:`m` with
acceptance probability :math:`\alpha_m`,

.. math:: \bar H_m = \Bigl(1 - \frac{1}{m + t_0}\Bigr) \bar H_{m-1} + \frac{\delta - \alpha_m}{m + t_0}, \quad
    \log \epsilon_m = \mu - \frac{\sqrt m}{\gamma} \bar H_m,

and the mean of :math:`\log \epsilon_m` with weights that favour late iterations is what is used after the warm-up. The
inverse masses are the variances of the positions, pooled over a seed's chains in windows that double in length, as in
Stan (Carpenter et al. 2017); each window's end restarts the averaging. All is arithmetic on tensors, switched by flags
that are known beforehand, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from paper_lib.inference.hmc import HMC, State

FEWEST = 20
"""Iterations of the shortest warm-up that adapts."""

GAMMA, T_0, KAPPA = 0.05, 10.0, 0.75
"""Constants of the dual averaging, Hoffman and Gelman's."""


class Adaptation(NamedTuple):
    """Running quantities of the warm-up, float64.

    Attributes:
        averaging: iterations, mean shortfall of the acceptance, log of the centre and of the averaged step size,
            ``(seed, chain, 4)``.
        count: positions in the present window ``(seed,)``.
        total: their sum ``(seed, dim)``.
        total_square: the sum of their squares ``(seed, dim)``.
    """

    averaging: Tensor
    count: Tensor
    total: Tensor
    total_square: Tensor


def init(step_size: Tensor, position: Tensor) -> Adaptation:
    """Before the first iteration, for step sizes ``(seed, chain)`` and positions ``(seed, chain, dim)``."""
    zeros = torch.zeros_like(position[:, 0], dtype=torch.float64)
    return Adaptation(_begin(step_size), zeros[:, 0].clone(), zeros, zeros.clone())


def plan(num_warmup: int) -> Tensor:
    """Flags ``(iteration, 4)`` int64: adapt the step; add to the window; a window ends; the warm-up ends.

    A first part of 15 % (at most 75 iterations) and a last part of 10 % (at most 50) adapt the step alone. Between them
    lie windows of 25, 50, 100, ... iterations, the last as long as need be.

    >>> flags = plan(200)
    >>> flags.sum(0).tolist(), flags[:, 2].nonzero().flatten().tolist()
    ([200, 150, 2, 1], [54, 179])
    """
    flags = torch.zeros((num_warmup, 4), dtype=torch.int64)
    if num_warmup:
        start, stop, length = min(75, 15 * num_warmup // 100), num_warmup - min(50, num_warmup // 10), 25
        flags[:, 0], flags[start:stop, 1], flags[-1, 3] = 1, 1, 1
        while start < stop:
            end = start + length if start + 3 * length <= stop else stop
            flags[end - 1, 2] = 1
            start, length = end, 2 * length
    return flags


def update(config: HMC, state: State, acceptance: Tensor, adapt: Tensor, add: Tensor, end: Tensor, done: Tensor):
    """Adapt a state in place after an iteration.

    Args:
        config: settings of the sampler.
        state: after the iteration.
        acceptance: probabilities ``(seed, chain)``.
        adapt: the first flag of the iteration, ``(1,)``; ``add``, ``end`` and ``done`` are the others.
    """
    averaging, count, total, total_square = state.adaptation
    acceptance = acceptance.mean(-1, keepdim=True).expand_as(acceptance)  # a seed's chains share a step
    m, shortfall, centre, averaged = averaging.unbind(-1)
    m = m + 1
    shortfall = shortfall + (config.target_acceptance - acceptance - shortfall) / (m + T_0)
    log_step = centre - m.sqrt() / GAMMA * shortfall
    averaged = averaged + m.pow(-KAPPA) * (log_step - averaged)
    step_size = torch.where(done == 1, averaged, log_step).exp()
    state.step_size.copy_(torch.where(adapt == 1, step_size, state.step_size))
    averaging.copy_(torch.where(adapt == 1, torch.stack([m, shortfall, centre, averaged], -1), averaging))
    if config.adapt_mass:
        position = state.current.position.to(torch.float64)
        count += add * position.shape[1]
        total += add * position.sum(1)
        total_square += add * position.square().sum(1)
        n = count.clamp(min=1)[:, None]
        variance = (total_square / n - (total / n).square()).clamp(min=0)
        shrunk = (n * variance + 5 * 1e-3) / (n + 5)  # towards a small variance while there are few positions
        new = shrunk[:, None].to(state.inverse_mass.dtype)
        state.inverse_mass.copy_(torch.where(end == 1, new, state.inverse_mass))
        averaging.copy_(torch.where(end == 1, _begin(state.step_size), averaging))
        for sums in (count, total, total_square):
            sums *= 1 - end


def _begin(step_size: Tensor) -> Tensor:
    """Averaging from its start, about ten times the step size, so that it tries large steps first."""
    log_step = step_size.log()
    return torch.stack([torch.zeros_like(log_step), torch.zeros_like(log_step), log_step + 2.302585, log_step], -1)
