"""Densities fitted to pooled draws of a posterior, to be the prior of the next task.

``fit(draws, settings, streams)`` gives a density a seed, stacked on the first axis, and what to record of the fit. A
density is a NamedTuple of tensors with ``log_prob(theta)``, ``log_prob_and_grad(theta)`` and ``sample(n, streams)`` for
``theta`` ``(seed, chain, dim)``: a mixture of Gaussians (``gmm.GMM``), of which a single Gaussian is the smallest, or a
normalising flow (``flow.Flow``). ``isotropic`` is the prior before the first task in the same form, so that a state
keeps one structure over tasks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from paper_lib.checks import check_choices, within
from paper_lib.inference.density import em, flow, gmm
from paper_lib.inference.density.flow import Flow, FlowSettings, published_flow
from paper_lib.inference.density.gmm import GMM

__all__ = ["GMM", "Flow", "FlowSettings", "GMMSettings", "fit", "isotropic"]
__all__ += ["num_fitted", "passes", "published_flow"]

HELD_OUT = 0.25
"""Share of chains or rows that components are chosen and training is stopped on."""

MAX_FALLS = 2
"""Falls of the held-out likelihood in a row that end the ladder of component numbers."""


@dataclass(frozen=True)
class GMMSettings:
    """A mixture of Gaussians and how it is fitted. Defaults are the corrected ones.

    Attributes:
        covariance: ``full``, ``diagonal``, or ``tied``: one for all components.
        regularisation: ``shrinkage``, or ``floor``: 1e-6 added to variances, as published (see ``em``).
        max_components: end of the ladder; 1 for a single Gaussian.
        holdout: rows that the number of components is chosen on: a quarter of the ``chains``, or a random quarter of
            the ``rows``, as published, which are neighbours of those fitted.
        final_rows: the chosen mixture is fitted to so many random rows that were not held out (3750 as published), or
            to all rows if None.
        max_rows: draws are thinned evenly to at most so many.
        num_iterations: most EM iterations of a fit.
        tolerance: gain of the mean log density of a row, in nats, below which EM stops; None for ``em.TOLERANCE``.
    """

    covariance: Literal["full", "diagonal", "tied"] = "full"
    regularisation: Literal["shrinkage", "floor"] = "shrinkage"
    max_components: int = 500
    holdout: Literal["chains", "rows"] = "chains"
    final_rows: int | None = None
    max_rows: int = 16_000
    num_iterations: int = 100
    tolerance: float | None = None

    def __post_init__(self):
        check_choices(self)
        least = {"tolerance": 0, "max_components": 1, "final_rows": 1, "max_rows": 1, "num_iterations": 1}
        for name, bound in least.items():
            if getattr(self, name) is not None:
                within(name, getattr(self, name), bound)


def isotropic(
    settings: GMMSettings | FlowSettings, num_seeds: int, dim: int, precision: float,
    dtype: torch.dtype = torch.float64, device: str | torch.device = "cpu",
) -> GMM | Flow:  # fmt: skip
    """The normal of mean zero and covariance 1/precision as a density of these settings."""
    within("precision", precision, 0, above=True)
    if isinstance(settings, GMMSettings):
        return gmm.isotropic(num_seeds, dim, precision, dtype, device)
    return flow.isotropic(settings, num_seeds, dim, precision, dtype, device)


def fit(
    draws: Tensor,
    settings: GMMSettings | FlowSettings,
    streams: Sequence[torch.Generator],
    told: Callable[[float], None] = lambda share: None,
) -> tuple[GMM | Flow, dict[str, Tensor]]:
    """A density a seed, fitted to that seed's draws alone.

    Args:
        draws: ``(seed, chain, draw, dim)``, in order within a chain.
        settings: which density and how; their type chooses.
        streams: one CPU generator a seed.
        told: is called with the share of the work that is done, after each seed or epoch.

    Returns:
        The density, a mixture in float64 and a flow in float32, and of each seed: ``held_out``, mean log density of
        held-out draws before the final fit ``(seed,)``; ``held_out_gaussian``, the same of the best single Gaussian;
        ``curve``, held-out values of every number of components tried or of every epoch ``(seed, step)``, NaN after the
        end; and ``num_components`` or ``epochs`` ``(seed,)``.

    Raises:
        ValueError: for draws that are missing or not finite, too few chains to hold one out, or settings that the
            number of draws does not allow.
    """
    _check(draws, settings, streams)
    thinned = _thin(draws.double(), settings.max_rows)
    for seed, own in enumerate(thinned):
        _warn_of_degenerate(own, seed)
    parts = [_hold_out(own, settings.holdout, stream) for own, stream in zip(thinned, streams, strict=True)]
    if isinstance(settings, FlowSettings):
        single = [em.fit_from(rows, em.alone(rows), "full", "shrinkage", 1, 0.0)[0] for rows, _ in parts]
        bound = [one.log_prob(held_out[None]).mean() for one, (_, held_out) in zip(single, parts, strict=True)]
        density, info = flow.train(settings, *map(torch.stack, zip(*parts, strict=True)), streams, told)
        return density, info | {"held_out_gaussian": torch.stack(bound).cpu()}
    fitted = []
    for seed, (own, part, stream) in enumerate(zip(thinned, parts, streams, strict=True)):
        fitted.append(_fit_mixture(own.flatten(0, 1), *part, settings, stream, seed))
        told((seed + 1) / len(streams))
    mixtures, infos = zip(*fitted, strict=True)
    return gmm.stack(mixtures), {name: _stacked([info[name] for info in infos]) for name in infos[0]}


def passes(accuracy_gap, held_out_gain, tolerance: float = 0.01):
    """Whether a density may stand for the posterior that it was fitted to; of numbers or of arrays.

    Its draws are as accurate on the current task as HMC's, and it is no worse than one Gaussian on held-out draws. Of a
    mixture the second holds by construction, as the best rung of a ladder that one Gaussian is the first of.

    Args:
        accuracy_gap: accuracy of the density's draws less that of HMC's, from -1 to 1.
        held_out_gain: mean log density of held-out draws less that of the best single Gaussian, nats.
        tolerance: largest difference of accuracies, either way.

    >>> passes(-0.01, 10.0), passes(-0.02, 10.0), passes(0.0, -1.0), passes(0.0, float("nan"))
    (True, False, False, False)
    """
    # A difference of one point is within one point, whatever its last bit.
    return (abs(accuracy_gap) <= tolerance + 1e-12) & (held_out_gain >= 0)


def num_fitted(settings: GMMSettings | FlowSettings, num_chains: int, num_draws: int) -> int:
    """How many draws of a seed are fitted to while others are held out.

    Raises:
        ValueError: for settings that so many chains and draws do not allow.
    """
    if settings.holdout == "chains" and num_chains < 2:
        raise ValueError("num_chains=1: holdout='chains' keeps chains from the fit; give 2 or more, or holdout='rows'")
    if num_chains * num_draws < 2:
        raise ValueError("num_draws=1: holdout='rows' keeps draws from the fit; give 2 or more")
    if settings.max_rows < num_chains:
        raise ValueError(f"max_rows={settings.max_rows} is less than one draw of each of {num_chains} chains")
    each = min(num_draws, settings.max_rows // num_chains)
    units, size = (num_chains, each) if settings.holdout == "chains" else (num_chains * each, 1)
    num_rows = (units - _num_held_out(units)) * size
    if isinstance(settings, GMMSettings) and (settings.final_rows or 0) > num_rows:
        raise ValueError(
            f"final_rows={settings.final_rows} is more than the {num_rows} rows that are not held out; give at most "
            "so many, or None for all rows"
        )
    return num_rows


def _num_held_out(num_units: int) -> int:
    return max(1, round(HELD_OUT * num_units))


def _fit_mixture(
    every: Tensor, rows: Tensor, held_out: Tensor, settings: GMMSettings, stream: torch.Generator, seed: int
) -> tuple[GMM, dict[str, Tensor]]:
    tolerance = em.TOLERANCE[settings.regularisation] if settings.tolerance is None else settings.tolerance
    how = (settings.covariance, settings.regularisation, settings.num_iterations, tolerance)
    ladder = [k for k in em.LADDER if k <= settings.max_components]
    curve = torch.full((len(ladder),), torch.nan, dtype=torch.float64)
    members, best, falls = em.alone(rows), None, 0
    for rung, num_components in enumerate(ladder):
        if rung > 0:
            members = em.split(rows, members, num_components)
            if members is None:
                warnings.warn(
                    f"seed {seed}: max_components={settings.max_components}, but {len(rows)} rows are not "
                    f"{num_components} different ones; the ladder ended at {ladder[rung - 1]}",
                    stacklevel=3,
                )
                break
        mixture, members = em.fit_from(rows, members, *how)
        curve[rung] = mixture.log_prob(held_out[None]).mean()
        if best is None or curve[rung] > best[0]:
            best = float(curve[rung]), mixture
        falls = falls + 1 if rung > 0 and not curve[rung] > curve[rung - 1] else 0
        if falls == MAX_FALLS:
            break
    final = every
    if settings.final_rows is not None:
        chosen = torch.randperm(len(rows), generator=stream)[: settings.final_rows].sort().values  # folds go by order
        final = rows[chosen.to(rows.device)]
    mixture, _ = em.fit_from(final, em.expect(best[1], final)[0], *how)
    info = {"num_components": torch.tensor(mixture.mean.shape[1]), "curve": curve}
    return mixture, info | {"held_out": curve.new_tensor(best[0]), "held_out_gaussian": curve[0]}


def _thin(draws: Tensor, max_rows: int) -> Tensor:
    """Draws at even distances in each chain, so few that all chains of a seed have at most ``max_rows``."""
    num_chains, num_draws = draws.shape[1:3]
    kept = min(num_draws, max(1, max_rows // num_chains))
    return draws[:, :, torch.linspace(0, num_draws - 1, kept).round().long().to(draws.device)]


def _hold_out(own: Tensor, holdout: str, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to fit ``(n, dim)`` and rows held out ``(m, dim)`` of one seed's draws ``(chain, draw, dim)``."""
    units = own if holdout == "chains" else own.flatten(0, 1)[:, None]
    out = torch.zeros(len(units), dtype=torch.bool)
    out[torch.randperm(len(units), generator=stream)[: _num_held_out(len(units))]] = True
    out = out.to(own.device)
    return units[~out].flatten(0, 1), units[out].flatten(0, 1)


def _check(draws: Tensor, settings: GMMSettings | FlowSettings, streams: Sequence[torch.Generator]) -> None:
    if draws.ndim != 4 or 0 in draws.shape:
        raise ValueError(
            f"draws have shape {tuple(draws.shape)}; a density is fitted to (seed, chain, draw, dim), each at least 1"
        )
    if len(streams) != len(draws):
        raise ValueError(f"{len(streams)} streams for {len(draws)} seeds; give one generator a seed")
    bad = (~draws.isfinite()).any(-1)
    if bool(bad.any()):
        where = ", ".join(f"seed {s} chain {c}" for s, c in bad.any(-1).nonzero().tolist()[:5])
        raise ValueError(f"{int(bad.sum())} of {bad.numel()} draws are not finite ({where}); give finite draws only")
    num_fitted(settings, *draws.shape[1:3])


def _warn_of_degenerate(own: Tensor, seed: int) -> None:
    rows = own.flatten(0, 1)
    constant = (rows == rows[0]).all(0).nonzero().flatten().tolist()
    if constant:
        warnings.warn(
            f"seed {seed}: {len(constant)} of {rows.shape[1]} weights never move (the first is {constant[0]}); "
            f"mixtures and standardised flows give them a standard deviation of about {em.FLOOR**0.5:g}",
            stacklevel=3,
        )
    # A fixed direction tells rows apart as well as all columns do.
    direction = torch.linspace(1, 2, rows.shape[1], dtype=rows.dtype, device=rows.device).sqrt()
    distinct = len((rows @ direction).unique())
    if 2 * distinct < len(rows):
        warnings.warn(
            f"seed {seed}: {len(rows)} rows hold only {distinct} different ones, so chains stand still for long; "
            f"regularisation='shrinkage' keeps components from collapsing on them, 'floor' does not",
            stacklevel=3,
        )


def _stacked(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([v.cpu() for v in values])
