r"""Have the chains converged? Effective sample size and rank-normalised split R-hat, and a gate on both.

Both are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021, Bayesian Analysis 16(2)), computed by
arviz-stats. They recommend :math:`\hat R < 1.01` and an effective sample size above 400, over all chains, before any
estimate is trusted; below that, R-hat itself is noise. Weights of a network are not identified (units swap, signs
flip), so a gate is set on what is: the log density and predictive probabilities. Weights are worth a look, not a gate.

Draws may be infinite or constant in a chain that is stuck. R-hat is then not a number, and a gate fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

MAX_RHAT = 1.01
"""Vehtari et al. 2021, Sec. 4."""

MIN_ESS = 400.0
"""Vehtari et al. 2021, Sec. 4: bulk, all chains together."""

FEWEST_DRAWS = 8
"""Draws a chain below which halves of chains say nothing."""


def ess(draws: Tensor) -> Tensor:
    """Bulk effective sample size.

    Args:
        draws: ``(..., chain, draw, quantity)``, thinned or not.

    Returns:
        ``(..., quantity)`` float64; not a number for a quantity that is not finite.
    """
    return _measure("ess", draws, method="bulk")


def rhat(draws: Tensor) -> Tensor:
    """Rank-normalised split R-hat, the larger one of location and scale, ``(..., quantity)`` as ``ess``."""
    return _measure("rhat", draws, method="rank")


class Gate(NamedTuple):
    """Whether chains may be trusted, each ``(...)`` with the leading axes of the draws, such as seeds.

    Attributes:
        passed: every quantity has an R-hat of at most ``MAX_RHAT`` and an ESS of at least ``MIN_ESS``.
        rhat: the largest; not a number where some quantity's is.
        ess: the smallest.
    """

    passed: Tensor
    rhat: Tensor
    ess: Tensor


def gate(quantities: Mapping[str, Tensor]) -> dict[str, Gate]:
    """A gate for each named group of quantities.

    Args:
        quantities: name to draws ``(seed, ..., chain, draw, quantity)`` or, of one quantity, ``(seed, chain, draw)``.

    >>> draws = torch.randn(1, 4, 500, generator=torch.Generator().manual_seed(0))
    >>> verdict = gate({"log_density": draws})["log_density"]
    >>> verdict.passed.tolist(), f"R-hat {float(verdict.rhat):.3f}, ESS {float(verdict.ess):.0f}"
    ([True], 'R-hat 1.001, ESS 2049')
    """
    verdicts = {}
    for name, draws in quantities.items():
        if draws.ndim == 3:
            draws = draws[..., None]
        worst, fewest = rhat(draws).amax(-1), ess(draws).amin(-1)  # both hand on what is not a number
        verdicts[name] = Gate((worst <= MAX_RHAT) & (fewest >= MIN_ESS), worst, fewest)
    return verdicts


def _measure(name: str, draws: Tensor, method: str) -> Tensor:
    from arviz_stats.base import array_stats  # half a second, and not on every machine that computes

    if draws.ndim < 3 or draws.shape[-2] < FEWEST_DRAWS or 0 in draws.shape:
        raise ValueError(
            f"draws of shape {tuple(draws.shape)} are not (..., chain, draw, quantity) with at least {FEWEST_DRAWS} "
            "draws a chain; keep more (num_draws)"
        )
    if draws.shape[-3] == 1:  # R-hat splits chains, and of one chain arviz gives none
        half = draws.shape[-2] // 2
        draws = torch.cat([draws[..., :half, :], draws[..., -half:, :]], dim=-3)
    values = draws.detach().to("cpu", torch.float64).numpy()
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that are stuck
        measured = np.asarray(getattr(array_stats, name)(values, chain_axis=-3, draw_axis=-2, method=method))
    moved = (values != values[..., :1, :]).any((-3, -2))
    usable = np.isfinite(values).all((-3, -2)) & moved
    return torch.from_numpy(np.where(usable, measured, np.nan))
