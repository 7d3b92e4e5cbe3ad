"""Regression against its batch answer, quadrature and scipy; linear experts against exact evidence and known lines."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from paper_lib.inference.gaussian import Gaussian
from paper_lib.inference.regression import (
    condition_experts,
    condition_line,
    init_experts,
    line_features,
    predict_experts,
    predict_line,
)
from paper_lib.rng import generator

F64 = torch.float64
PRIOR = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
PRECISION = 100.0
X_PRECISION = 12.0  # of inputs that are uniform on an interval of length one


def change_point(n=50, seed=0):
    """Two tasks: y = x + 1 on [-1, 0), then y = -x + 1 on [0, 1]."""
    g = generator(seed, "change point", 0, 0)
    tasks = []
    for slope in (1.0, -1.0):
        x = -slope * torch.rand(n, generator=g, dtype=F64)
        tasks.append((x, slope * x + 1 + torch.randn(n, generator=g, dtype=F64) / math.sqrt(PRECISION)))
    return tasks


def errors(distribution, y):
    return (distribution.mean - y).square().mean().item()


def test_tasks_in_sequence_equal_all_data_at_once():
    (x1, y1), (x2, y2) = change_point()
    first, evidence_1 = condition_line(PRIOR, line_features(x1), y1, PRECISION)
    both, evidence_2 = condition_line(first, line_features(x2), y2, PRECISION)
    batch, evidence = condition_line(PRIOR, line_features(torch.cat([x1, x2])), torch.cat([y1, y2]), PRECISION)
    torch.testing.assert_close(both.mean, batch.mean, atol=1e-10, rtol=0)
    torch.testing.assert_close(both.cov, batch.cov, atol=1e-10, rtol=0)
    assert (evidence_1 + evidence_2).item() == pytest.approx(evidence.item(), rel=1e-10)


def test_posterior_evidence_and_predictive_against_dense_formulas():
    x, y = change_point()[0]
    phi = line_features(x)
    posterior, evidence = condition_line(PRIOR, phi, y, PRECISION)
    gram = np.eye(2) + PRECISION * phi.numpy().T @ phi.numpy()
    np.testing.assert_allclose(posterior.mean, np.linalg.solve(gram, PRECISION * phi.numpy().T @ y.numpy()), atol=1e-11)
    np.testing.assert_allclose(posterior.cov, np.linalg.inv(gram), atol=1e-12)
    marginal = stats.multivariate_normal(np.zeros(50), phi.numpy() @ phi.numpy().T + np.eye(50) / PRECISION)
    assert evidence.item() == pytest.approx(marginal.logpdf(y.numpy()), rel=1e-10)

    # The predictive density of one more target is the ratio of two evidences.
    x_new, y_new = torch.tensor([0.7], dtype=F64), torch.tensor([1.5], dtype=F64)
    _, longer = condition_line(PRIOR, torch.cat([phi, line_features(x_new)]), torch.cat([y, y_new]), PRECISION)
    predictive = predict_line(posterior, line_features(x_new), PRECISION)
    assert predictive.log_prob(y_new).item() == pytest.approx((longer - evidence).item(), abs=1e-9)


def test_one_line_for_both_tasks_tends_to_its_known_limit():
    """Large n: slope 0, intercept 1/2, and on each task an excess error of the variance of x on it, 1/12."""
    tasks = change_point(n=200_000)
    state = PRIOR
    for x, y in tasks:
        state, _ = condition_line(state, line_features(x), y, PRECISION)
    np.testing.assert_allclose(state.mean, [0.5, 0.0], atol=5e-3)
    for x, y in tasks:
        excess = errors(predict_line(state, line_features(x), PRECISION), y) - 1 / PRECISION
        assert excess == pytest.approx(1 / 12, abs=1e-3)


def log_evidence_of_inputs(x, centre_mean, centre_var):
    n = len(x)
    cov = np.eye(n) / X_PRECISION + centre_var * np.ones((n, n))
    return stats.multivariate_normal(np.full(n, centre_mean), cov).logpdf(x.numpy())


def test_one_expert_has_the_exact_evidence():
    """With one expert nothing is approximated: the bound is the log evidence of x plus that of y."""
    x, y = change_point()[0]
    prior = init_experts(PRIOR, 1, centre_mean=0.2, centre_var=0.7)
    _, bound = condition_experts(prior, x, y, X_PRECISION, PRECISION, generator(0, "start"), 1, 2)
    expected = condition_line(PRIOR, line_features(x), y, PRECISION)[1].item() + log_evidence_of_inputs(x, 0.2, 0.7)
    assert bound[-1].item() == pytest.approx(expected, rel=1e-9)


def test_bound_rises_and_stays_below_the_evidence():
    """Two experts and four points: the evidence is a sum over all sixteen memberships."""
    x, y = (torch.cat(v)[::25] for v in zip(*change_point(), strict=True))
    prior = init_experts(PRIOR, 2, concentration=1.0)
    _, bound = condition_experts(prior, x, y, X_PRECISION, PRECISION, generator(0, "start"))
    assert bound.diff().min() > -1e-9
    evidence = -math.inf
    for code in range(16):
        mine = torch.tensor([bool(code >> i & 1) for i in range(4)])
        term = -math.log(math.comb(4, int(mine.sum())) * 5)  # these memberships under Dir(1, 1)
        for member in (mine, ~mine):
            if member.any():
                term += condition_line(PRIOR, line_features(x[member]), y[member], PRECISION)[1].item()
                term += log_evidence_of_inputs(x[member], 0.0, 1.0)
        evidence = np.logaddexp(evidence, term)
    assert evidence - 4 < bound[-1].item() < evidence


@pytest.mark.parametrize("num_experts", [2, 4])
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_propagated_experts_keep_both_tasks(num_experts, seed):
    tasks = change_point(seed=seed)
    belief = init_experts(PRIOR, num_experts)
    for index, (x, y) in enumerate(tasks):
        belief, _ = condition_experts(belief, x, y, X_PRECISION, PRECISION, generator(0, "start", index), 10, 60)
    assert (belief.concentration > 1).sum() == 2
    for x, y in tasks:
        alone = predict_line(condition_line(PRIOR, line_features(x), y, PRECISION)[0], line_features(x), PRECISION)
        predictive = predict_experts(belief, x, X_PRECISION, PRECISION)
        assert errors(predictive, y) < errors(alone, y) + 0.005  # one line for both loses 0.083
        assert predictive.log_prob(y).mean() > alone.log_prob(y).mean() - 0.3


def test_predictive_of_experts_integrates_to_one_and_has_its_mean():
    task = change_point()[0]
    belief, _ = condition_experts(init_experts(PRIOR, 2), *task, X_PRECISION, PRECISION, generator(0, "start"))
    predictive = predict_experts(belief, torch.tensor([-0.5, 0.5], dtype=F64), X_PRECISION, PRECISION)
    grid = torch.linspace(-12, 12, 20_001, dtype=F64)
    density = predictive.log_prob(grid[:, None]).exp()
    torch.testing.assert_close(torch.trapezoid(density, grid, dim=0), torch.ones(2, dtype=F64), atol=1e-6, rtol=0)
    first_moment = torch.trapezoid(grid[:, None] * density, grid, dim=0)
    torch.testing.assert_close(first_moment, predictive.mean, atol=1e-6, rtol=0)


def experts(x, y, **counts):
    return condition_experts(init_experts(PRIOR, 2), x, y, 1.0, 1.0, generator(0), **counts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: condition_line(PRIOR, line_features(x), y, 0.0), "noise_precision=0.0 must be a positive"),
        (lambda x, y: condition_line(PRIOR, line_features(x[:0]), y[:0], 1.0), "y is empty"),
        (lambda x, y: condition_line(PRIOR, x[:, None], y, 1.0), "matrix has shape"),
        (lambda x, y: experts(x, y[:3]), r"x of shape \(50,\) and y of shape \(3,\)"),
        (lambda x, y: experts(x, y, num_iterations=0), "num_iterations=0"),
        (lambda x, y: condition_experts(init_experts(PRIOR, 2), x[:0], y[:0], 1.0, 1.0, generator(0)), "n >= 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*change_point()[0])
