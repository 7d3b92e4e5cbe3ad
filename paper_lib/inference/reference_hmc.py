"""The sampler that the paper used, hamiltorch (Cobb and Jalaian 2021), on our densities, to compare ours with.

It runs one chain at a time and is some hundred times slower. It is an optional package, imported when first called; its
import reseeds every global generator from the clock, so their states are put back. Two things differ from ``hmc``: in
its version 0.4.1 a rejection right after the warm-up, before the first acceptance, restarts the chain at its starting
point (its fork in the paper's release does so on all rejections of the warm-up as well); and its random numbers come
from torch's global generator, a chain's momentum and uniform number in turn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from paper_lib import rng
from paper_lib.inference.hmc import HMC, LogDensity


def sample(
    config: HMC, position: Tensor, target: LogDensity, seeds: Sequence[int], path: tuple[str | int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """A whole run from its starting points, as ``hmc.sample``.

    Args:
        config: settings without adaptation; ``burn_reject`` is as said above, whatever it names.
        position: where the chains begin, ``(seed, chain, dim)``.
        target: log density and gradient.
        seeds: one for each row.
        path: address of the random numbers.

    Returns:
        Draws ``(seed, chain, draw, dim)`` and the share of proposals accepted ``(seed, chain)``, warm-up included.

    Raises:
        ModuleNotFoundError: where hamiltorch is not installed.
        ValueError: for settings that adapt.
    """
    if config.adapt_step or config.adapt_mass:
        raise ValueError(f"adapt_step={config.adapt_step!r}: hamiltorch runs with a fixed step and unit masses only")
    original = load()
    draws, rates = [], []
    for seed, row in zip(seeds, position, strict=True):
        for chain, start in enumerate(row):
            with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(rng.generator(seed, "momentum", *path, chain, 0).initial_seed())
                recorded, rate = original.sample(
                    lambda theta: _Known.apply(theta, target),
                    start,
                    num_samples=config.num_iterations,
                    num_steps_per_sample=config.num_leapfrog,
                    step_size=config.step_size,
                    burn=config.num_warmup - 1,  # it records iterations after this one, and the start before them
                    debug=2,
                    verbose=False,
                )
            skipped = 0 if config.include_init else config.thin
            draws.append(torch.stack(recorded)[skipped :: config.thin])
            rates.append(rate)
    shape = position.shape[:2]
    return torch.stack(draws).unflatten(0, shape), torch.tensor(rates, dtype=torch.float64).view(shape)


def load() -> ModuleType:
    """The package, with the states of all global generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the package seeds this very generator
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            import hamiltorch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the reference sampler is hamiltorch: {error}; install it with pip install 'paper-lib[hamiltorch]'"
        ) from error
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
    return hamiltorch


class _Known(torch.autograd.Function):
    """The log density of one chain with the gradient that the target gives."""

    @staticmethod
    def forward(ctx, theta: Tensor, target: LogDensity) -> Tensor:
        log_density, gradient = target(theta[None, None])
        ctx.save_for_backward(gradient[0, 0])
        return log_density[0, 0]

    @staticmethod
    def backward(ctx, slope: Tensor) -> tuple[Tensor, None]:
        return slope.to(ctx.saved_tensors[0].dtype) * ctx.saved_tensors[0], None
