"""The weight filter against full Gaussians, simulation, quadrature and scipy's Riccati solver."""

import math

import numpy as np
import pytest
import torch
from scipy import linalg

from paper_lib.analysis.filter_derivation import optimum_by_slope
from paper_lib.inference.gaussian import Gaussian, condition_on
from paper_lib.inference.kalman import (
    WeightBelief,
    condition_weights,
    linearise,
    predict_weights,
    stationary_var,
    transition_var,
    weight_targets,
)
from paper_lib.rng import generator

F64 = torch.float64


def normal(g, *shape):
    return torch.randn(*shape, generator=g, dtype=F64)


def network(theta, x):
    """A 2-4-1 tanh network, 17 weights."""
    hidden = torch.tanh(x @ theta[:8].reshape(2, 4) + theta[8:12])
    return hidden @ theta[12:16] + theta[16]


def problem(num_steps=30):
    g = generator(0, "filter")
    return normal(g, 17), normal(g, num_steps, 2), normal(g, num_steps), normal(g, 17)


def random_precision(g, dim):
    root = normal(g, dim, dim)
    return root @ root.mT + 0.1 * torch.eye(dim, dtype=F64)


def filtered(lin, y, state, noise_var, reversion=0.0, eta_var=0.0):
    """Lemma 1 over the observations, one at a time."""
    for gradient, target in zip(lin.gradient, weight_targets(lin, y), strict=True):
        state = condition_weights(predict_weights(state, reversion, eta_var), gradient, target, noise_var)
    return state


def test_linearise_equals_finite_differences():
    theta, x, _, direction = problem()
    lin = linearise(network, theta, x)
    assert lin.gradient.shape == (30, 17)
    torch.testing.assert_close(lin.value, network(theta, x))
    step = 1e-5 * direction
    difference = (network(theta + step, x) - network(theta - step, x)) / 2e-5
    torch.testing.assert_close(lin.gradient @ direction, difference, atol=1e-7, rtol=0)


def test_lemma_1_is_the_posterior_of_all_weights_given_that_the_others_are_where_they_are():
    """Conditional on the others, so narrower than the marginal of the full posterior."""
    theta, x, y, mean = problem()
    lin, var = linearise(network, theta, x), torch.linspace(0.5, 2, 17, dtype=F64)
    each = filtered(lin, y, WeightBelief(mean, var), noise_var=0.1)
    target = y - lin.value + lin.gradient @ theta
    full, _ = condition_on(Gaussian(mean, var.diag()), target, lin.gradient, 0.1 * torch.eye(30, dtype=F64))
    precision = torch.linalg.inv(full.cov)
    off = precision - precision.diagonal().diag()
    conditional = full.mean - (off @ (theta - full.mean)) / precision.diagonal()
    torch.testing.assert_close(each.mean, conditional, atol=1e-10, rtol=0)
    torch.testing.assert_close(each.var, 1 / precision.diagonal(), atol=1e-10, rtol=0)
    assert (each.var < 0.9 * full.cov.diagonal()).all()


def test_lemma_1_of_a_moving_weight_is_the_last_marginal_of_the_weight_at_all_times():
    """One weight at all times is one Gaussian; all observations at once, with the other weights held, condition it."""
    theta, x, y, mean = problem(num_steps=6)
    h, eta_var, noise_var = 0.2, 0.05, 0.1
    lin, start = linearise(network, theta, x), torch.linspace(0.5, 2, 17, dtype=F64)
    each = filtered(lin, y, WeightBelief(mean, start), noise_var, h, eta_var)
    steps = np.arange(1, 7)
    for i in range(17):
        # Cov(theta_s, theta_t) = (1-h)^|t-s| Var(theta_min(s,t)).
        var = [(1 - h) ** (2 * t) * start[i] + eta_var * sum((1 - h) ** (2 * j) for j in range(t)) for t in steps]
        cov = torch.tensor([[(1 - h) ** abs(s - t) * var[min(s, t) - 1] for t in steps] for s in steps], dtype=F64)
        prior = Gaussian(torch.tensor((1 - h) ** steps) * mean[i], cov)
        held = theta.clone()
        held[i] = 0.0
        residual = y - lin.value - lin.gradient @ (held - theta)  # what weight i alone has to explain
        joint, _ = condition_on(prior, residual, lin.gradient[:, i].diag(), noise_var * torch.eye(6, dtype=F64))
        torch.testing.assert_close(each.mean[i], joint.mean[-1], atol=1e-10, rtol=0)
        torch.testing.assert_close(each.var[i], joint.cov[-1, -1], atol=1e-10, rtol=0)


def test_printed_target_biases_the_mean_where_the_network_is_not_linear_through_the_origin():
    theta, x, y, mean = problem()
    lin = linearise(network, theta, x[:1])
    prior = WeightBelief(mean, torch.ones(17, dtype=F64))
    right = condition_weights(prior, lin.gradient[0], weight_targets(lin, y[:1])[0], 0.1)
    printed = condition_weights(prior, lin.gradient[0], y[:1], 0.1)
    grid = torch.linspace(-30, 30, 600_001, dtype=F64)  # posterior mean of one weight by quadrature
    output = lin.value + lin.gradient[0, 12] * (grid - theta[12])
    log_post = -((y[0] - output).square()) / 0.2 - (grid - mean[12]).square() / 2
    expected = (log_post.softmax(0) * grid).sum()
    torch.testing.assert_close(right.mean[12], expected, atol=1e-8, rtol=0)
    assert (printed.mean[12] - expected).abs() > 1e-2


def test_variance_without_data_settles_as_a_simulated_process_does():
    h, eta_var = 0.3, 0.2
    state = WeightBelief(torch.ones(1, dtype=F64), torch.zeros(1, dtype=F64))
    for _ in range(200):
        state = predict_weights(state, h, eta_var)
    assert state.var.item() == pytest.approx(stationary_var(h, eta_var), rel=1e-12)
    g = generator(0, "process")
    theta = torch.zeros(100_000, dtype=F64)
    for _ in range(30):
        theta = (1 - h) * theta + math.sqrt(eta_var) * normal(g, 100_000)
    assert theta.var().item() == pytest.approx(stationary_var(h, eta_var), rel=0.025)


@pytest.mark.parametrize("reversion", [0.01, 0.3, 0.9])
def test_printed_exponent_diverges(reversion):
    start = WeightBelief(torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64))
    printed, corrected = start, start
    for _ in range(500):
        printed = predict_weights(printed, reversion, 0.1, ou_factor="printed")
        corrected = predict_weights(corrected, reversion, 0.1)
    assert corrected.var <= max(1.0, stationary_var(reversion, 0.1))
    assert printed.var > 1e4 * corrected.var


@pytest.mark.parametrize(("reversion", "eta_var"), [(0.0, 0.1), (0.2, 0.1), (0.5, 1e-3), (0.3, 0.0)])
def test_filter_settles_at_the_riccati_solution(reversion, eta_var):
    gradient, noise_var = torch.tensor([0.7], dtype=F64), 0.4
    state = WeightBelief(torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64))
    for _ in range(3000):
        prior = predict_weights(state, reversion, eta_var)
        state = condition_weights(prior, gradient, gradient, noise_var)
    settled = 0.0  # without drift all is learned
    if eta_var > 0:
        settled = linalg.solve_discrete_are([[1 - reversion]], [[0.7]], [[eta_var]], [[noise_var]]).item()
    assert prior.var.item() == pytest.approx(settled, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "hessian",
    [torch.tensor([[2.0, 1.0], [1.0, 4.0]], dtype=F64), random_precision(generator(3, "transition"), 5)],
    ids=["two weights", "five weights at random"],
)
def test_the_optimum_of_a_weight_moves_as_an_ornstein_uhlenbeck_step_of_the_corrected_variance(hessian):
    """All weights step; the optimum of each, where the slope is zero, reverts as they do and its noise is theirs."""
    g, h, eta_var, num_draws = generator(4, "transition"), 0.2, 0.3, 200_000
    theta = normal(g, num_draws, len(hessian))
    moved = (1 - h) * theta + math.sqrt(eta_var) * normal(g, *theta.shape)
    before, after = optimum_by_slope(hessian, theta), optimum_by_slope(hessian, moved)
    noise = after - (1 - h) * before
    corrected, printed = (transition_var(hessian, eta_var, formula) for formula in ("corrected", "printed"))
    np.testing.assert_allclose(noise.var(0), corrected, rtol=0.02)
    assert ((printed / corrected - 1).abs() > 0.1).all()
    # The step's noise knows nothing of where the optimum was.
    correlation = (noise * before).mean(0) / (noise.std(0) * before.std(0))
    assert (noise.mean(0).abs() < 5 * (corrected / num_draws).sqrt()).all()
    assert (correlation.abs() < 5 / math.sqrt(num_draws)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: predict_weights(w, 0.1, 0.1, "as_printed"), "ou_factor='as_printed'.*did you mean 'printed'"),
        (lambda w: predict_weights(w, 1.0, 0.1, "printed"), "divides by zero"),
        (lambda w: predict_weights(w, 2.5, 0.1), r"reversion=2.5 must lie in \[0, 2\)"),
        (lambda w: predict_weights(w, 0.1, -1.0), "eta_var=-1.0"),
        (lambda w: condition_weights(w, w.mean, w.mean, noise_var=0.0), "noise_var=0.0"),
        (lambda w: stationary_var(0.0, 0.1), "no stationary variance"),
        (lambda w: transition_var(-torch.eye(2), 0.1), "diagonal must be positive"),
        (lambda w: transition_var(torch.eye(2), 0.1, "Printed"), "did you mean 'printed'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(WeightBelief(torch.zeros(2, dtype=F64), torch.ones(2, dtype=F64)))
