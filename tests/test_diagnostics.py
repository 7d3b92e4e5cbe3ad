"""Diagnostics against chains whose effective size and disagreement are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from paper_lib.inference import diagnostics


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def autoregressive(correlation: float, *shape) -> torch.Tensor:
    """Chains with a known effective size, n (1 - r) / (1 + r), for ``(seed, chain, draw, quantity)``."""
    noise = normals(*shape)
    draws = [noise[:, :, 0]]
    for step in range(1, shape[2]):
        draws.append(correlation * draws[-1] + math.sqrt(1 - correlation**2) * noise[:, :, step])
    return torch.stack(draws, dim=2)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_size_of_autoregressive_chains(correlation):
    size = diagnostics.ess(autoregressive(correlation, 3, 4, 4000, 2))
    assert size.shape == (3, 2)
    expected = 16_000 * (1 - correlation) / (1 + correlation)
    torch.testing.assert_close(size.mean(), torch.tensor(expected, dtype=torch.float64), rtol=0.1, atol=0)


def test_rhat_sees_chains_that_disagree():
    draws = normals(2, 4, 500, 3)
    draws[1, 2, :, 1] += 1.0  # one chain elsewhere
    draws[1, 0, :, 2] *= 4.0  # one chain wider, about the same place
    values = diagnostics.rhat(draws)
    assert (values[0] < 1.01).all() and values[1, 0] < 1.01
    assert values[1, 1] > 1.05 and values[1, 2] > 1.05
    drifting = normals(1, 4, 500, 1) + torch.linspace(0, 2, 500, dtype=torch.float64)[:, None]
    assert diagnostics.rhat(drifting) > 1.1  # all chains alike, halves of chains not


def test_rhat_of_split_chains_by_hand():
    """On normal scores of ranks, for one quantity: the definition, written with numpy and scipy."""
    from scipy import stats

    draws = normals(1, 3, 100, 1)
    halves = draws[0, :, :, 0].reshape(6, 50).numpy()

    def scores(values):
        return stats.norm.ppf((stats.rankdata(values).reshape(values.shape) - 0.375) / (values.size + 0.25))

    def ratio(z):
        within, between = z.var(1, ddof=1).mean(), 50 * z.mean(1).var(ddof=1)
        return math.sqrt((49 / 50 * within + between / 50) / within)

    folded = np.abs(halves - np.median(halves))
    expected = max(ratio(scores(halves)), ratio(scores(folded)))
    assert abs(float(diagnostics.rhat(draws)) - expected) < 1e-10


def test_gate():
    good = normals(2, 4, 400, 5)
    bad = good.clone()
    bad[1, 0, :, 3] += 2
    few = normals(2, 4, 60, 1)
    verdicts = diagnostics.gate({"log_density": good[..., 0], "probability": bad, "few": few})
    assert verdicts["log_density"].passed.tolist() == [True, True]
    assert verdicts["probability"].passed.tolist() == [True, False]
    assert verdicts["few"].passed.tolist() == [False, False] and (verdicts["few"].rhat < 1.05).all()
    assert (verdicts["few"].ess > 100).all() and (verdicts["few"].ess < diagnostics.MIN_ESS).all()


@pytest.mark.parametrize("value", [3.0, torch.inf, torch.nan], ids=["stuck", "infinite", "not a number"])
def test_chains_that_say_nothing_do_not_pass(value):
    draws = normals(2, 4, 400, 2)
    draws[1, :, :, 0] = value
    verdict = diagnostics.gate({"log_density": draws})["log_density"]
    assert verdict.passed.tolist() == [True, False]
    assert verdict.rhat[1].isnan() and verdict.ess[1].isnan()


def test_chains_stuck_apart_do_not_pass():
    draws = torch.arange(4.0)[None, :, None, None].expand(1, 4, 100, 1).clone()
    assert not diagnostics.gate({"weight": draws})["weight"].passed
    draws[0, 0] = normals(100, 1).float()
    assert not diagnostics.gate({"weight": draws})["weight"].passed


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 4, 7, 2\).*num_draws"):
        diagnostics.ess(normals(1, 4, 7, 2))
    with pytest.raises(ValueError, match="chain, draw, quantity"):
        diagnostics.rhat(normals(4, 100))
