"""What weights remember: against dense covariances, ridge regression and the settled gain, and as the chapter says."""

import numpy as np
import pytest

from paper_lib.analysis import weight_filter as wf


def test_weight_at_rest_gives_each_task_the_share_of_its_points():
    table = wf.one_weight((4, 20), 5.0)
    total = table.num_first + table.num_second
    np.testing.assert_allclose(table.share_1, table.num_first / total, rtol=1e-5)
    np.testing.assert_allclose(table.error, table.num_second / total, atol=1e-5)


def test_drifting_weight_equals_conditioning_the_joint_gaussian_of_all_times():
    h, eta_var, noise_var, prior_var = 0.1, 0.05, 0.7, 2.0
    table = wf.one_weight((3,), 2.0, h, eta_var, noise_var, prior_var)
    steps = np.arange(1, 10)
    var = [(1 - h) ** (2 * t) * prior_var + eta_var * sum((1 - h) ** (2 * j) for j in range(t)) for t in steps]
    cov = np.array([[(1 - h) ** abs(s - t) * var[min(s, t) - 1] for t in steps] for s in steps])
    weights = np.linalg.solve(cov + noise_var * np.eye(9), cov[-1])
    last = table.iloc[-1]
    assert last.num_second == 6
    assert last.share_1 == pytest.approx(weights[:3].sum(), rel=1e-10)
    assert last.share_2 == pytest.approx(weights[3:].sum(), rel=1e-10)


def test_old_share_of_a_drifting_weight_decays_by_the_settled_gain():
    """prod (1 - h)(1 - K): after many points a constant factor, whatever the size of task 1."""
    h, eta_var, noise_var = 0.05, 0.02, 0.5
    from scipy.linalg import solve_discrete_are

    prior = solve_discrete_are([[1 - h]], [[1.0]], [[eta_var]], [[noise_var]]).item()
    factor = (1 - h) * (1 - prior / (prior + noise_var))
    for _, mine in wf.one_weight((100, 200), 0.5, h, eta_var, noise_var).groupby("num_first"):
        share = mine.share_1.to_numpy()
        np.testing.assert_allclose(share[1:30] / share[:29], factor, rtol=1e-6)


def test_two_weights_at_rest_are_ridge_regression():
    table = wf.two_weights(60, "full", 5, 2.0, noise_var=0.3, prior_var=2.0)
    angles = np.deg2rad([20.0, 80.0])
    x = np.stack([np.cos(angles), np.sin(angles)], 1)[[0] * 5 + [1] * 10]
    y = np.array([1.0] * 5 + [-1.0] * 10)
    mean = np.linalg.solve(x.T @ x / 0.3 + np.eye(2) / 2.0, x.T @ y / 0.3)
    assert table.error.iloc[-1] == pytest.approx(abs(x[0] @ mean - 1) / 2, rel=1e-9)


def test_each_weight_alone_follows_the_lemma_by_hand():
    """Two scalar filters that see what is left of each point when the other weight's mean is taken off."""
    table = wf.two_weights(70, "Lemma 1", 3, 2.0, noise_var=0.5, prior_var=4.0, from_axis=10.0)
    angles = np.deg2rad([10.0, 80.0])
    mean, precision = np.zeros(2), np.full(2, 0.25)
    for target, angle in [(1.0, angles[0])] * 3 + [(-1.0, angles[1])] * 6:
        g = np.array([np.cos(angle), np.sin(angle)])
        left = target - (g @ mean - g * mean)
        mean, precision = (precision * mean + g * left / 0.5) / (precision + g**2 / 0.5), precision + g**2 / 0.5
    first = np.array([np.cos(angles[0]), np.sin(angles[0])])
    assert table.error.iloc[-1] == pytest.approx(abs(first @ mean - 1) / 2, rel=1e-9)


def test_only_a_model_that_cannot_hold_both_tasks_or_their_covariance_forgets():
    last = {
        (degrees, update): wf.two_weights(degrees, update, 50, 10).error.iloc[-1]
        for degrees in (0, 60)
        for update in wf.UPDATES
    }
    assert last[60, "full"] < 1e-3 < 0.2 < last[60, "independent"] < last[60, "Lemma 1"] < last[0, "full"]
    with pytest.raises(ValueError, match="did you mean 'full'"):
        wf.two_weights(0, "ful", 5, 1)


def test_the_chapter_s_figure_shows_what_the_chapter_says():
    """Only the ratio counts at rest; new points count in drift; two weights keep both tasks by their covariance."""
    result = wf.run(wf.Config())
    share = result.still.num_second / (result.still.num_first + result.still.num_second)
    assert (result.still.error - share).abs().max() < 1e-4
    equal = result.drifting[result.drifting.ratio == 1].error
    assert list(equal.round(2)) == [0.5, 0.72, 0.85]
    worst = result.pairs.groupby("model").error.max()
    assert worst["60° apart, full"] < 1e-3 < 0.3 < worst["60° apart, independent"] < worst["60° apart, Lemma 1"]
    assert 0.5 < worst["60° apart, Lemma 1"] < worst["same direction"]


@pytest.mark.parametrize("bad", [{"num_first": ()}, {"max_ratio": 0.5}, {"reversion": 1.0}, {"degrees": 200.0}])
def test_settings_without_meaning_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        wf.Config(**bad)
