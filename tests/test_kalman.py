"""The weight filter against regression, joint Gaussians, simulation, scipy's optimiser and Riccati solver."""

import math

import numpy as np
import pytest
import torch
from scipy import linalg, optimize

from paper_lib.inference.gaussian import Gaussian, condition_on
from paper_lib.inference.kalman import (
    WeightBelief,
    condition_weights,
    coordinate_optimum,
    filter_full,
    filter_weights,
    linearise,
    predict_full,
    predict_weights,
    stationary_var,
    steady_state_var,
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


def test_linearise_equals_finite_differences():
    theta, x, _, direction = problem()
    lin = linearise(network, theta, x)
    assert lin.gradient.shape == (30, 17)
    torch.testing.assert_close(lin.value, network(theta, x))
    step = 1e-5 * direction
    difference = (network(theta + step, x) - network(theta - step, x)) / 2e-5
    torch.testing.assert_close(lin.gradient @ direction, difference, atol=1e-7, rtol=0)


def test_static_filter_equals_the_batch_posterior_of_the_linearised_network():
    theta, x, y, mean = problem()
    prior = Gaussian(mean, torch.eye(17, dtype=F64))
    states, log_likelihood = filter_full(network, prior, x, y, noise_var=0.1, anchor=theta)
    lin = linearise(network, theta, x)
    phi, target = lin.gradient.numpy(), (y - lin.value + lin.gradient @ theta).numpy()
    precision = np.eye(17) + phi.T @ phi / 0.1
    np.testing.assert_allclose(states.cov[-1], np.linalg.inv(precision), atol=1e-10)
    np.testing.assert_allclose(
        states.mean[-1], np.linalg.solve(precision, mean.numpy() + phi.T @ target / 0.1), atol=1e-10
    )
    _, evidence = condition_on(prior, torch.as_tensor(target), lin.gradient, 0.1 * torch.eye(30, dtype=F64))
    assert log_likelihood.sum().item() == pytest.approx(evidence.item(), rel=1e-10)


def test_moving_filter_equals_conditioning_the_joint_gaussian_of_all_times():
    """All weights at all times are one Gaussian; observing all outputs at once leaves the same last marginal."""
    theta, x, y, mean = problem(num_steps=6)
    h, eta_var, noise_var = 0.2, 0.05, 0.1
    states, log_likelihood = filter_full(
        network, Gaussian(mean, torch.eye(17, dtype=F64)), x, y, noise_var, h, eta_var, theta
    )
    lin = linearise(network, theta, x)
    steps = np.arange(1, 7)
    # Cov(theta_s, theta_t) = (1-h)^|t-s| Var(theta_min(s,t)), for every weight alike.
    var = [(1 - h) ** (2 * t) + eta_var * sum((1 - h) ** (2 * j) for j in range(t)) for t in steps]
    time_cov = np.array([[(1 - h) ** abs(s - t) * var[min(s, t) - 1] for t in steps] for s in steps])
    joint_mean = np.concatenate([(1 - h) ** t * mean.numpy() for t in steps])
    joint_cov = np.kron(time_cov, np.eye(17))
    observe = linalg.block_diag(*lin.gradient.numpy()[:, None])
    target = (y - lin.value + lin.gradient @ theta).numpy()
    innovation = observe @ joint_cov @ observe.T + noise_var * np.eye(6)
    gain = np.linalg.solve(innovation, observe @ joint_cov).T
    np.testing.assert_allclose(states.mean[-1], (joint_mean + gain @ (target - observe @ joint_mean))[-17:], atol=1e-10)
    np.testing.assert_allclose(states.cov[-1], (joint_cov - gain @ observe @ joint_cov)[-17:, -17:], atol=1e-10)
    residual = target - observe @ joint_mean
    evidence = -0.5 * (residual @ np.linalg.solve(innovation, residual) + np.linalg.slogdet(2 * np.pi * innovation)[1])
    assert log_likelihood.sum().item() == pytest.approx(evidence, rel=1e-10)


def test_lemma_1_is_the_posterior_of_each_weight_with_the_others_held():
    theta, x, y, mean = problem()
    var = torch.linspace(0.5, 2, 17, dtype=F64)
    state = filter_weights(network, WeightBelief(mean, var), x, y, noise_var=0.1, anchor=theta)
    lin = linearise(network, theta, x)
    for i in range(17):
        held = theta.clone()
        held[i] = 0.0
        residual = y - lin.value - lin.gradient @ (held - theta)  # what weight i alone has to explain
        prior = Gaussian(mean[i : i + 1], var[i : i + 1, None])
        one, _ = condition_on(prior, residual, lin.gradient[:, i : i + 1], 0.1 * torch.eye(30, dtype=F64))
        torch.testing.assert_close(state.mean[-1, i], one.mean[0], atol=1e-10, rtol=0)
        torch.testing.assert_close(state.var[-1, i], one.cov[0, 0], atol=1e-10, rtol=0)


def test_variance_of_lemma_1_is_conditional_not_marginal():
    theta, x, y, mean = problem()
    full, _ = filter_full(network, Gaussian(mean, torch.eye(17, dtype=F64)), x, y, 0.1, anchor=theta)
    each = filter_weights(network, WeightBelief(mean, torch.ones(17, dtype=F64)), x, y, 0.1, anchor=theta)
    conditional = 1 / torch.linalg.inv(full.cov[-1]).diagonal()
    torch.testing.assert_close(each.var[-1], conditional, atol=1e-10, rtol=0)
    assert (each.var[-1] < full.cov[-1].diagonal()).all()


def test_one_linear_weight_gets_the_weighted_mean_of_its_data():
    """Static and flat prior: n1 targets A, then n2 targets B give (n1 A + n2 B) / (n1 + n2)."""
    x = torch.ones(40, dtype=F64)
    y = torch.cat([torch.full((10,), 1.0, dtype=F64), torch.full((30,), -1.0, dtype=F64)])
    flat = WeightBelief(torch.zeros(1, dtype=F64), torch.full((1,), 1e12, dtype=F64))
    state = filter_weights(lambda theta, x: theta * x, flat, x, y, noise_var=1.0)
    assert state.mean[-1].item() == pytest.approx((10 * 1 + 30 * -1) / 40, abs=1e-9)


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


def test_full_step_equals_the_step_of_each_weight():
    g = generator(1, "steps")
    cov = random_precision(g, 4)
    full = predict_full(Gaussian(normal(g, 4), cov), 0.1, 0.3)
    each = predict_weights(WeightBelief(torch.zeros(4, dtype=F64), cov.diagonal()), 0.1, 0.3)
    torch.testing.assert_close(full.cov.diagonal(), each.var)


@pytest.mark.parametrize(("reversion", "eta_var"), [(0.0, 0.1), (0.2, 0.1), (0.5, 1e-3), (0.3, 0.0)])
def test_filter_settles_at_the_riccati_solution(reversion, eta_var):
    gradient, noise_var = torch.tensor([0.7], dtype=F64), 0.4
    state = WeightBelief(torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64))
    for _ in range(3000):
        prior = predict_weights(state, reversion, eta_var)
        state = condition_weights(prior, gradient, gradient, noise_var)
    settled = steady_state_var(gradient, noise_var, reversion, eta_var)
    torch.testing.assert_close(prior.var, settled, atol=1e-12, rtol=1e-9)
    if eta_var > 0:
        riccati = linalg.solve_discrete_are([[1 - reversion]], [[0.7]], [[eta_var]], [[noise_var]])
        assert settled.item() == pytest.approx(riccati.item(), rel=1e-9)


def test_coordinate_optimum_is_where_an_optimiser_ends():
    g = generator(2, "quadratic")
    hessian, theta, z = random_precision(g, 5), normal(g, 5), normal(g, 5)
    optimum = coordinate_optimum(hessian, theta, z)

    def loss(value, i):
        moved = theta.clone()
        moved[i] = value
        return (0.5 * moved @ hessian @ moved - z @ moved).item()

    for i in range(5):
        found = optimize.minimize_scalar(loss, args=(i,), tol=1e-12).x
        assert optimum[i].item() == pytest.approx(found, abs=1e-6)
    shifted = theta + torch.nn.functional.one_hot(torch.tensor(2), 5)
    assert coordinate_optimum(hessian, shifted, z)[2].item() == pytest.approx(optimum[2].item(), rel=1e-12)


def test_transition_variance_is_that_of_simulated_optima():
    """Let the other weights step; the optimum of each then moves with the corrected variance, not the printed one."""
    g = generator(3, "transition")
    hessian, eta_var = random_precision(g, 5), 0.3
    optima = coordinate_optimum(hessian, math.sqrt(eta_var) * normal(g, 200_000, 5))
    corrected = transition_var(hessian, eta_var)
    np.testing.assert_allclose(optima.var(0), corrected, rtol=0.02)
    printed = transition_var(hessian, eta_var, formula="printed")
    assert ((printed / corrected - 1).abs() > 0.1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w, x, y: predict_weights(w, 0.1, 0.1, "as_printed"), "ou_factor='as_printed'.*did you mean 'printed'"),
        (lambda w, x, y: predict_weights(w, 1.0, 0.1, "printed"), "divides by zero"),
        (lambda w, x, y: predict_weights(w, 2.5, 0.1), r"reversion=2.5 must lie in \[0, 2\)"),
        (lambda w, x, y: predict_weights(w, 0.1, -1.0), "eta_var=-1.0"),
        (lambda w, x, y: filter_weights(network, w, x, y, noise_var=0.0), "noise_var=0.0"),
        (lambda w, x, y: filter_weights(network, w, x[:0], y[:0], 0.1), "at least 1"),
        (lambda w, x, y: filter_weights(network, w, x, y[:4], 0.1), r"y of shape \(4,\)"),
        (lambda w, x, y: filter_weights(lambda t, x: t[:2] * x, w, x, y, 0.1), "f has 2 outputs.*filter_full"),
        (lambda w, x, y: coordinate_optimum(-torch.eye(2), torch.ones(2)), "diagonal must be positive"),
        (lambda w, x, y: stationary_var(0.0, 0.1), "no stationary variance"),
        (lambda w, x, y: transition_var(torch.eye(2), 0.1, "Printed"), "did you mean 'printed'"),
    ],
)
def test_bad_input_is_named(call, message):
    theta, x, y, _ = problem()
    with pytest.raises(ValueError, match=message):
        call(WeightBelief(theta, torch.ones(17, dtype=F64)), x, y)
