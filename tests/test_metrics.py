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
    found, expected = metrics.paired_difference(a, b, level=0.9), stats.ttest_rel(a, b)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.lower, found.upper) == pytest.approx(tuple(expected.confidence_interval(0.9)))
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
    with pytest.raises(ValueError, match="level=95"):
        metrics.paired_difference([1, 2], [1, 2], level=95)


def test_paired_difference_without_spread():
    assert metrics.paired_difference([2.0, 2.0], [1.0, 1.0]).p_value == 0.0
    assert np.isnan(metrics.paired_difference([1.0, 1.0], [1.0, 1.0]).p_value)
    assert np.isnan(metrics.paired_difference([1.0], [0.0]).p_value)


def tidy(matrices, method="protocl", key="k", first_seed=0):
    columns = {"experiment": "toy", "dataset": "split_digits", "scenario": "class_incremental", "preset": "quick"}
    return pd.DataFrame(
        [
            {**columns, "method": method, "key": key, "seed": first_seed + s, "task_trained": k, "task_tested": j}
            | {"metric": "accuracy", "value": a[k, j]}
            for s, a in enumerate(matrices)
            for k, j in np.ndindex(a.shape)
            if not np.isnan(a[k, j])
        ]
    )


def test_matrices_come_back_from_a_shuffled_table():
    a = random_matrices(shape=(3,), num_tasks=4)
    frame = tidy(a, first_seed=5).sample(frac=1, random_state=0)
    seeds, found = metrics.accuracy_matrices(frame)
    assert list(seeds) == [5, 6, 7]
    np.testing.assert_array_equal(found, a)
    with pytest.raises(ValueError, match=r"metric='nll'; there are \['accuracy'\]"):
        metrics.accuracy_matrices(frame, "nll")
    with pytest.raises(ValueError, match="two values of accuracy for"):
        metrics.accuracy_matrices(pd.concat([frame, tidy(a, method="other", first_seed=5)]))


def test_summary_table_has_every_method_and_leaves_other_metrics_out():
    a, b = random_matrices(shape=(3,), num_tasks=4), random_matrices(shape=(2,), num_tasks=4, seed=1)
    frame = pd.concat([tidy(a), tidy(b, method="replay")])
    frame = pd.concat([frame, frame.assign(metric="nll", value=9.0)])
    table = metrics.summary_table(frame).set_index(["method", "metric"])
    assert len(table) == 6
    row = table.loc[("protocl", "final_accuracy")]
    assert (row["mean"], row["sd"], row["n"]) == pytest.approx((a[:, -1].mean(), a[:, -1].mean(-1).std(ddof=1), 3))
    assert table.loc[("replay", "triangle_mean"), "mean"] == pytest.approx(np.nanmean(b, axis=(1, 2)).mean())
    lost = np.mean([[m[j, j] - m[3, j] for j in range(3)] for m in b])
    assert table.loc[("replay", "forgetting"), "mean"] == pytest.approx(lost)


def test_summary_table_never_mixes_two_settings():
    a = random_matrices(shape=(2,), num_tasks=3)
    table = metrics.summary_table(pd.concat([tidy(a, key="one"), tidy(a / 2, key="two")]))
    final = table[table["metric"] == "final_accuracy"].set_index("key")["mean"]
    assert final["one"] == pytest.approx(2 * final["two"])


def test_a_network_a_task_is_summarised_as_one_that_keeps_every_network():
    a = [[[1.0, NAN, NAN], [0.2, 0.8, NAN], [0.0, 0.1, 0.6]]]
    by_hand = {"final_accuracy": 0.8, "triangle_mean": (3 * 1.0 + 2 * 0.8 + 0.6) / 6, "forgetting": 0.0}
    table = metrics.summary_table(tidy(np.array(a), method="single_task")).set_index("metric")["mean"]
    assert table.to_dict() == pytest.approx(by_hand)
    (kept,) = metrics.matrices_by_method(tidy(np.array(a), method="single_task")).values()
    np.testing.assert_array_equal(kept[0, 2], [1.0, 0.8, 0.6])


def test_summary_table_of_single_task_learners_and_of_a_half_finished_run():
    diagonal = np.where(np.eye(3, dtype=bool), random_matrices(shape=(2,), num_tasks=3), NAN)
    table = metrics.summary_table(tidy(diagonal, method="single_task"))
    assert list(table["metric"]) == ["learning_accuracy"]
    assert table["mean"].item() == pytest.approx(np.nanmean(diagonal))
    half = random_matrices(shape=(2,), num_tasks=3)
    half[1, 2] = NAN
    with pytest.raises(ValueError, match="after task 2 on task 0"):
        metrics.summary_table(tidy(half))


def test_printed_numbers_stand_beside_ours_with_a_verdict_on_the_triangle_mean():
    close, far = np.full((10, 2, 2), 0.9), np.full((10, 2, 2), 0.5)
    frame = pd.concat([tidy(close, "close"), tidy(far, "far"), tidy(close, "unprinted"), tidy(close[:3], "few")])
    printed = {"close": (90.5, 0.6), "far": (50.5, 0.4), "few": (90.0, 1.0), "missing": (1.0, 0.0)}
    found = metrics.beside_paper(frame, printed, ["missing", "few", "far", "close", "unprinted", "neither"])
    assert found.verdict.to_dict() == {
        **{"missing": "not run", "few": "reduced", "far": "below", "close": "agrees", "unprinted": ""}
    }
    assert found.n.to_dict() == {"missing": 0, "few": 3, "far": 10, "close": 10, "unprinted": 10}
    assert found.loc["far", ["triangle", "P_T"]].tolist() == pytest.approx([50, 50])
    assert found.z[["close", "far"]].tolist() == pytest.approx([-0.5 / 0.6 * 10**0.5, -0.5 / 0.4 * 10**0.5])
    assert np.isnan(found.paper["unprinted"]) and np.isnan(found.P_T["missing"])


def test_the_standard_error_beside_a_printed_number_is_of_final_accuracies():
    a = random_matrices((4,), 3)
    line = metrics.beside_paper(tidy(a, "own"), {}, ["own"], num_seeds=4).loc["own"]
    final = 100 * metrics.final_accuracy(a)
    assert line["P_T se"] == pytest.approx(stats.sem(final)) and line["P_T sd"] == pytest.approx(final.std(ddof=1))
    assert line["triangle sd"] == pytest.approx(100 * metrics.triangle_mean(a).std(ddof=1))


def test_the_gap_to_a_printed_number_with_a_sd_is_welch_s_statistic():
    a, b = random_matrices((5,), 3), 80 + 3 * np.random.default_rng(1).standard_normal(5)
    line = metrics.beside_paper(tidy(a, "own"), {"own": (b.mean(), b.std(ddof=1))}, ["own"], num_seeds=5).loc["own"]
    for column, score in (("z", metrics.triangle_mean), ("P_T z", metrics.final_accuracy)):
        assert line[column] == pytest.approx(stats.ttest_ind(100 * score(a), b, equal_var=False).statistic)
