"""Metrics against loops, scikit-learn and scipy."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.metrics import accuracy_score, log_loss

from paper_lib import metrics

NAN = float("nan")
HAND = np.array([[1, NAN, NAN], [0.5, 1, NAN], [0, 0.5, 1]])


def random_matrices(shape=(2, 4), num_tasks=5, seed=0):
    a = np.random.default_rng(seed).uniform(size=(*shape, num_tasks, num_tasks))
    return np.where(np.tri(num_tasks, dtype=bool), a, NAN)


def random_log_probs(num_seeds=3, n=400, num_units=6, sharpness=3.0, seed=0, allowed=None):
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.choice(allowed or range(num_units), n))
    logits = torch.from_numpy(rng.normal(size=(num_seeds, n, num_units)) * sharpness)
    logits += 2 * torch.nn.functional.one_hot(y, num_units)
    if allowed:
        logits[..., [u for u in range(num_units) if u not in allowed]] = -torch.inf
    return logits.log_softmax(-1), y


def test_the_hand_written_matrix():
    assert metrics.average_accuracy(HAND) == pytest.approx([1, 0.75, 0.5])
    assert metrics.final_accuracy(HAND) == pytest.approx(0.5)
    assert metrics.forgetting(HAND)[1:] == pytest.approx([0.5, 0.75])
    assert np.isnan(metrics.forgetting(HAND)[0])
    assert metrics.triangle_mean(HAND) == pytest.approx(4 / 6)
    assert metrics.learning_accuracy(HAND) == 1.0


def test_matrix_metrics_agree_with_loops_over_every_leading_axis():
    stacked = random_matrices()
    average, forgot = metrics.average_accuracy(stacked), metrics.forgetting(stacked)
    assert average.shape == forgot.shape == (2, 4, 5)
    for index in np.ndindex(2, 4):
        a = stacked[index]
        for k in range(5):
            assert average[index][k] == pytest.approx(np.mean([a[k, j] for j in range(k + 1)]))
            if k:
                assert forgot[index][k] == pytest.approx(np.mean([a[j, j] - a[k, j] for j in range(k)]))
        assert np.isnan(forgot[index][0])
        assert metrics.triangle_mean(stacked)[index] == pytest.approx(np.nanmean(a))
        assert metrics.final_accuracy(stacked)[index] == pytest.approx(a[-1].mean())
        assert metrics.learning_accuracy(stacked)[index] == pytest.approx(np.trace(a) / 5)


def test_what_was_never_seen_changes_nothing():
    a = random_matrices()
    filled = np.where(np.isnan(a), 7.0, a)
    for metric in (metrics.average_accuracy, metrics.triangle_mean, metrics.forgetting):
        np.testing.assert_array_equal(metric(a), metric(filled))


def test_one_task_leaves_nothing_to_forget():
    assert np.isnan(metrics.forgetting([[0.9]])).all()
    assert metrics.triangle_mean([[0.9]]) == metrics.final_accuracy([[0.9]]) == 0.9


@pytest.mark.parametrize("num_tasks", [1, 2, 5, 10])
def test_complete_forgetting_is_what_the_metrics_say_of_a_diagonal_matrix(num_tasks):
    expected = metrics.complete_forgetting(0.983, num_tasks)
    a = np.diag(np.full(num_tasks, 0.983))
    assert metrics.final_accuracy(a) == pytest.approx(expected.final_accuracy)
    assert metrics.triangle_mean(a) == pytest.approx(expected.triangle_mean)


def test_printed_values_of_the_table_are_triangle_means_of_complete_forgetting():
    for per_task, printed in ((0.9903, 33.01), (0.983, 32.77), (0.9975, 33.25)):
        assert round(100 * metrics.complete_forgetting(per_task, 5).triangle_mean, 2) == printed


def test_a_wrong_matrix_is_refused_with_its_place():
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        metrics.average_accuracy(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        metrics.triangle_mean(np.ones(3))
    a = random_matrices(shape=(2,))
    a[1, 3, 2] = NAN
    with pytest.raises(ValueError, match=r"after task 3 on task 2 of matrix \(1,\)"):
        metrics.forgetting(a)
    with pytest.raises(ValueError, match="num_tasks=0"):
        metrics.complete_forgetting(1.0, 0)
    with pytest.raises(ValueError, match="diagonal"):
        metrics.learning_accuracy([[NAN]])


@pytest.mark.parametrize("allowed", [None, [2, 3]])
def test_accuracy_and_likelihood_agree_with_scikit_learn(allowed):
    log_probs, y = random_log_probs(allowed=allowed)
    units = allowed or list(range(6))
    for seed in range(3):
        probs = log_probs[seed].exp().numpy()[:, units]
        assert metrics.accuracy(log_probs, y)[seed].item() == pytest.approx(
            accuracy_score(y.numpy(), np.array(units)[probs.argmax(-1)])
        )
        assert metrics.negative_log_likelihood(log_probs, y)[seed].item() == pytest.approx(
            log_loss(y.numpy(), probs, labels=units)
        )


@pytest.mark.parametrize("allowed", [None, [2, 3]])
@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_calibration_error_agrees_with_a_loop_over_bins(allowed, num_bins):
    log_probs, y = random_log_probs(allowed=allowed)
    found = metrics.expected_calibration_error(log_probs, y, num_bins)
    for seed in range(3):
        probs = np.exp(log_probs[seed].numpy())
        confidence, correct = probs.max(-1), probs.argmax(-1) == y.numpy()
        edges = np.linspace(0, 1, num_bins + 1)
        expected = 0.0
        for low, high in itertools.pairwise(edges):
            inside = (confidence > low) & (confidence <= high)
            if inside.any():
                expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
        assert found[seed].item() == pytest.approx(expected, abs=1e-12)


def test_calibration_error_of_known_forecasts():
    y = torch.tensor([0, 0, 0, 1])
    certain = torch.tensor([[0.0, -torch.inf]]).expand(1, 4, 2)
    three_quarters = torch.tensor([[0.75, 0.25]]).log().expand(1, 4, 2)
    assert metrics.expected_calibration_error(certain, y).item() == pytest.approx(0.25)
    assert metrics.expected_calibration_error(three_quarters, y).item() == pytest.approx(0.0, abs=1e-7)
    assert metrics.negative_log_likelihood(certain, y).item() == float("inf")


def test_wrong_log_probabilities_are_refused():
    log_probs, y = random_log_probs()
    with pytest.raises(ValueError, match=r"\(3, 400, 6\) and y \(399,\)"):
        metrics.accuracy(log_probs, y[:-1])
    with pytest.raises(ValueError, match="n > 0"):
        metrics.accuracy(log_probs[:, :0], y[:0])
    with pytest.raises(ValueError, match="not normalised"):
        metrics.negative_log_likelihood(log_probs + 1, y)
    with pytest.raises(ValueError, match="num_bins=0"):
        metrics.expected_calibration_error(log_probs, y, 0)


@pytest.mark.parametrize(
    "score", [metrics.accuracy, metrics.negative_log_likelihood, metrics.expected_calibration_error]
)
def test_a_diverged_seed_has_no_score_and_leaves_the_others_theirs(score):
    log_probs, y = random_log_probs()
    whole = score(log_probs, y)
    log_probs[1, 5] = NAN
    found = score(log_probs, y)
    assert found.isnan().tolist() == [False, True, False]
    assert torch.equal(found[[0, 2]], whole[[0, 2]])
    log_probs[:] = NAN
    assert score(log_probs, y).isnan().all()
    with pytest.raises(ValueError, match="n > 0"):
        score(log_probs[:, :0], y[:0])


def test_summary_agrees_with_scipy():
    values = np.random.default_rng(1).normal(size=10)
    summary = metrics.summarise(values)
    assert summary == pytest.approx((values.mean(), stats.tstd(values), stats.sem(values), 10))
    one = metrics.summarise([0.5])
    assert one.mean == 0.5 and one.n == 1 and np.isnan(one.sd) and np.isnan(one.se)
    for bad in ([], [[1.0]]):
        with pytest.raises(ValueError, match="shape"):
            metrics.summarise(bad)


def test_paired_difference_agrees_with_scipy():
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.3, size=8), rng.normal(size=8)
    found, expected = metrics.paired_difference(a, b), stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.lower, found.upper) == pytest.approx(tuple(expected))
    assert (found.mean, found.se, found.n) == pytest.approx(((a - b).mean(), stats.sem(a - b), 8))


def test_paired_difference_matches_mappings_by_seed():
    a, b = {0: 1.0, 1: 3.0, 2: 2.0}, {2: 1.0, 0: 0.0, 1: 0.0}
    found = metrics.paired_difference(a, b)
    assert found == pytest.approx(metrics.paired_difference([1, 3, 2], [0, 0, 1]))
    assert metrics.paired_difference(pd.Series(a), pd.Series(b)) == found
    with pytest.raises(ValueError, match=r"seeds: \[0, 1, 2\] and \[0, 1\]"):
        metrics.paired_difference(a, {0: 1.0, 1: 1.0})
    with pytest.raises(ValueError, match="not the same seeds"):
        metrics.paired_difference([1, 2], [1, 2, 3])


def test_paired_difference_without_spread():
    assert metrics.paired_difference([2.0, 2.0], [1.0, 1.0])[-2:] == (1.0, 1.0)
    one = metrics.paired_difference([1.0], [0.0])
    assert one.mean == 1.0 and np.isnan(one.lower) and np.isnan(one.upper)
