"""Sticks and masks against scipy, torch.distributions, closed forms and their limits."""

import math

import pytest
import torch
from scipy import stats

from paper_lib.inference import sticks
from paper_lib.inference.sticks import NORMALS


def noise(*shape, seed=0, dtype=torch.float64):
    """Normals for Beta variates ``(1, *shape)``."""
    return torch.randn(1, NORMALS, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pair(a, b, dtype=torch.float64):
    return torch.tensor([[a]], dtype=dtype), torch.tensor([[b]], dtype=dtype)


@pytest.mark.parametrize(("a", "b"), [(5.0, 1.0), (0.3, 0.7), (0.02, 3.98), (40.0, 60.0)])
def test_variates_have_the_distribution_of_beta(a, b):
    draws = sticks.log_beta(pair(a, b), noise(20_000)).exp()[0]
    assert stats.kstest(draws.numpy(), stats.beta(a, b).cdf).pvalue > 0.01


@pytest.mark.parametrize(("a", "b"), [(5.0, 1.0), (0.3, 0.7), (2.0, 30.0)])
def test_gradients_of_expectations_are_those_of_their_closed_forms(a, b):
    # E v = a / (a + b) and E log v = psi(a) - psi(a + b).
    for function, closed in (
        (torch.exp, lambda a, b: a / (a + b)),
        (lambda log_v: log_v, lambda a, b: torch.digamma(a) - torch.digamma(a + b)),
    ):
        mine, theirs = ([p.requires_grad_() for p in pair(a, b)] for _ in range(2))
        function(sticks.log_beta(mine, noise(200_000))).mean().backward()
        closed(*theirs).sum().backward()
        for one, other in zip(mine, theirs, strict=True):
            assert one.grad.item() == pytest.approx(other.grad.item(), rel=0.03, abs=2e-4)


def test_the_smallest_concentrations_have_finite_draws_and_gradients():
    a, b = (p.requires_grad_() for p in pair(4e-6, 4.0, torch.float32))
    log_pi = sticks.log_beta((a, b), noise(10_000, dtype=torch.float32))
    loc = sticks.location(log_pi, "logit_pi")
    loc.sum().backward()
    assert loc.isfinite().all() and a.grad.isfinite().all() and b.grad.isfinite().all()
    assert loc.min().item() == pytest.approx(-math.log(1e6), rel=1e-4)


def test_divergence_of_beta_distributions_is_that_of_torch():
    draws = torch.Generator().manual_seed(0)
    a, b, a0, b0 = (torch.rand(50, generator=draws, dtype=torch.float64) * 6 + 0.01 for _ in range(4))
    expected = torch.distributions.kl_divergence(torch.distributions.Beta(a, b), torch.distributions.Beta(a0, b0))
    torch.testing.assert_close(sticks.beta_kl((a, b), (a0, b0)), expected)
    assert torch.equal(sticks.beta_kl((a, b), (a, b)), torch.zeros(50).double())


def buffet(num_units, num_draws, child_concentration, num_layers=2, a=5.0, b=1.0):
    one = (torch.full((1, num_units), a).double(), torch.full((1, num_units), b).double())
    if child_concentration is None:
        given, layers = [one] * num_layers, num_layers
    else:
        given, layers = [one], 1 + num_layers
    return sticks.draw(
        given, child_concentration, [noise(num_draws, 1, num_units, seed=layer) for layer in range(layers)]
    )


def test_units_are_on_with_probabilities_five_sixths_to_the_kth():
    log_pi, _ = buffet(60, 20_000, None, 1)
    expected = (5 / 6) ** torch.arange(1, 61).double()
    mean = log_pi[0].exp().mean((0, 1, 2))
    torch.testing.assert_close(mean[:30], expected[:30], atol=0.01, rtol=0.03)
    assert mean.sum() == pytest.approx(5 * (1 - (5 / 6) ** 60), rel=0.02)


def test_without_a_bound_on_the_concentration_layers_have_the_global_probabilities():
    away = []
    for c in (4.0, 1e8):
        log_pi, pairs = buffet(20, 500, c)
        shared = pairs[1][0] / c
        assert len(log_pi) == 2 and len(pairs) == 3
        away.append(max((layer.exp() - shared).abs().max() for layer in log_pi))
    assert away[0] > 0.3 and away[1] < 1e-3
    log_pi, pairs = buffet(20, 20_000, 4.0)
    expected = (5 / 6) ** torch.arange(1, 21).to(pairs[1][0].dtype)
    torch.testing.assert_close((pairs[1][0] / 4).mean((0, 1, 2)), expected, atol=0.02, rtol=0.0)
    for layer in log_pi:  # at any concentration they have them on average
        torch.testing.assert_close(layer.exp().mean((1, 2)), (pairs[1][0] / 4)[:, 0, 0], atol=0.01, rtol=0.0)


@pytest.mark.parametrize("pi", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_a_mask_is_above_one_half_with_probability_pi_at_its_logit_and_less_at_its_logarithm(pi, temperature):
    z = torch.randn(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for kind, expected in (("logit_pi", pi), ("log_pi", pi / (1 + pi))):
        loc = sticks.location(torch.tensor(pi).double().log(), kind)
        on = (sticks.concrete(loc, temperature, z).sigmoid() > 0.5).double().mean()
        assert on == pytest.approx(expected, abs=0.005)


def test_cold_masks_are_hard():
    z = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loc = sticks.location(torch.tensor(0.3).double().log(), "logit_pi")
    soft = [
        (lambda m: ((m > 0.01) & (m < 0.99)).double().mean())(sticks.concrete(loc, t, z).sigmoid()) for t in (1, 0.01)
    ]
    assert soft[0] > 0.9 and soft[1] < 0.03


def test_the_density_of_a_masks_logit_is_that_of_torch():
    # torch has it of the mask itself; the logit's is larger by the log slope of the sigmoid.
    y = torch.linspace(-6, 6, 41, dtype=torch.float64)
    for loc, temperature in ((0.7, 0.5), (-2.0, 1.3)):
        mine = sticks.log_concrete(y, torch.tensor(loc).double(), temperature)
        theirs = torch.distributions.RelaxedBernoulli(
            torch.tensor(temperature).double(), logits=torch.tensor(loc).double()
        ).base_dist.log_prob(y)
        torch.testing.assert_close(mine, theirs)
        grid = torch.linspace(-60, 60, 20_001, dtype=torch.float64)
        area = torch.trapezoid(sticks.log_concrete(grid, torch.tensor(loc).double(), temperature).exp(), grid)
        assert area.item() == pytest.approx(1, abs=1e-6)
