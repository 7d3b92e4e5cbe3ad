"""The change-point example: its claims, its closed forms by quadrature, and the experts beside the line."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from paper_lib.analysis.misspecification import (
    EXCESS_LIMIT,
    Config,
    change_point_task,
    excess_error,
    numbers,
    run,
    shown,
    summarise,
)
from paper_lib.rng import generator

QUICK = Config(seeds=(0, 1), num_test=4000)


@pytest.fixture(scope="module")
def result():
    return run(QUICK)


def test_tasks_lie_where_the_paper_puts_them():
    for index, (low, high, slope) in enumerate([(-1, 0, 1), (0, 1, -1)]):
        x, y = change_point_task(index, 20_000, 100.0, generator(0, "tasks", index))
        assert low <= x.min() < low + 0.01 and high - 0.01 < x.max() <= high
        fit = np.polyfit(x.numpy(), y.numpy(), 1)
        np.testing.assert_allclose(fit, [slope, 1], atol=0.01)
        assert np.std(y.numpy() - np.polyval(fit, x.numpy())) == pytest.approx(0.1, rel=0.03)


def test_the_line_forgets_and_the_experts_do_not(result):
    mean = summarise(result.scores).groupby(["model", "metric"]).forgetting.mean()
    assert mean["line", "mse"] == pytest.approx(EXCESS_LIMIT, rel=0.25)
    assert mean["line", "log_likelihood"] > 2
    assert abs(mean["experts", "mse"]) < 0.002
    assert abs(mean["experts", "log_likelihood"]) < 0.05


def test_a_mixture_without_regions_keeps_the_density_and_loses_the_mean(result):
    """At the true lines with even weights: the mean is 1 everywhere, its error on task 1 that of 1 against x + 1."""
    of = result.scores.query("model == 'mixture' and task_trained == 2 and task_tested == 1").groupby("metric").value
    x, y = change_point_task(0, 20_000, 100.0, generator(5, "mixture"))
    at = [torch.distributions.Normal(1 + slope * x, 0.1).log_prob(y) for slope in (1, -1)]
    # Half of the mixture's weight goes with the line that does not hold there.
    ideal = torch.stack(at).logsumexp(0).mean().item() - np.log(2)
    assert of.mean()["log_likelihood"] == pytest.approx(ideal, abs=0.1)
    assert of.mean()["mse"] == pytest.approx((1 - y).square().mean().item(), abs=0.1)
    before = result.scores.query("model == 'mixture' and task_trained == 1 and task_tested == 1")
    assert before.query("metric == 'mse'").value.max() < 0.015


def test_the_chapter_s_run_shows_what_the_chapter_says():
    """The line forgets and the experts do not, in both metrics, the mixture by error, and more data do not help."""
    result = run(Config())
    mean = summarise(result.scores).groupby(["model", "metric"]).mean(numeric_only=True)
    assert (mean.forgetting["line"] > 5 * mean.forgetting["experts"].abs()).all()
    assert (mean.average_performance["line"] < mean.average_performance["experts"]).all()
    table = shown(result.scores)
    assert list(table.loc["line, squared error"])[:2] == ["0.011", "0.090"]
    assert list(table.loc["experts, squared error"])[:2] == ["0.011", "0.011"]
    by = summarise(result.scores).query("model == 'line' and metric == 'mse'")
    lost, both = table.loc["line, squared error"].iloc[2:]
    assert lost == f"{by.forgetting.mean():.3f} ± {by.forgetting.std():.3f}" and lost.startswith("0.079 ±")
    assert table.loc["experts, squared error"].iloc[2].startswith("0.000 ±")
    assert both == f"{-by.average_performance.mean():.3f}"
    assert shown(run(replace(QUICK, seeds=(1,))).scores).loc["line, squared error"].iloc[2].count("±") == 0
    assert mean.forgetting["mixture", "mse"] > mean.forgetting["line", "mse"]
    assert mean.forgetting["mixture", "log_likelihood"] < mean.forgetting["line", "log_likelihood"] / 5
    said = numbers(result.scores)
    for model in ("line", "mixture", "experts"):
        assert said[f"{model}_forgetting"] == pytest.approx(mean.forgetting[model, "mse"])
        assert said[f"{model}_nats"] == pytest.approx(mean.forgetting[model, "log_likelihood"])
        before, after, forgetting = (said[f"{model}_{name}"] for name in ("before", "after", "forgetting"))
        assert after - before == pytest.approx(forgetting)
    excess = excess_error(Config(), (3000,), (1.0, 100.0)).groupby("task_trained").excess_mse.mean()
    assert excess[1] < 0.01 and abs(excess[2] - EXCESS_LIMIT) < 0.01


def test_summary_follows_from_the_scores_by_hand(result):
    mine = result.scores.query("seed == 1 and model == 'line' and metric == 'mse'")
    mse = {(r.task_trained, r.task_tested): r.value for r in mine.itertuples()}
    row = summarise(result.scores).query("seed == 1 and model == 'line' and metric == 'mse'").iloc[0]
    assert row.average_performance == pytest.approx(-(mse[2, 1] + mse[2, 2]) / 2)
    assert row.forgetting == pytest.approx(mse[2, 1] - mse[1, 1])


def test_a_seed_does_not_depend_on_its_neighbours(result):
    alone = run(replace(QUICK, seeds=(1,))).scores
    np.testing.assert_array_equal(alone.value, result.scores.query("seed == 1").value)


def test_excess_error_equals_held_out_error_and_tends_to_one_twelfth():
    table = excess_error(replace(QUICK, seeds=(0, 1, 2)), (50_000,), (1.0, 100.0))
    np.testing.assert_allclose(table.query("task_trained == 2").excess_mse, EXCESS_LIMIT, atol=2e-3)
    assert (table.query("task_trained == 1").excess_mse < 1e-3).all()
    few = excess_error(replace(QUICK, seeds=(3,)), (5,), (10.0,)).excess_mse
    x, y = change_point_task(0, 5, 10.0, generator(3, "excess", 0, 5))
    # The posterior mean is a ridge solution; its error by quadrature over task 1.
    phi = torch.stack([torch.ones(5).double(), x], -1).numpy()
    a, b = np.linalg.solve(phi.T @ phi + np.eye(2) / 10, phi.T @ y.numpy())
    grid = np.linspace(-1, 0, 100_001)
    assert few.iloc[0] == pytest.approx(np.trapezoid((a + b * grid - 1 - grid) ** 2, grid), rel=1e-6)


@pytest.mark.parametrize("bad", [{"num_points": 0}, {"noise_precision": -1.0}, {"prior_var": float("inf")}])
def test_settings_without_meaning_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Config(**bad)
