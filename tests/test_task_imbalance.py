"""Imbalance: closed forms against dense covariances, designs that hold what they say, and runs found again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from paper_lib import plots
from paper_lib.data.stream import make_stream
from paper_lib.experiments import task_imbalance as ti
from paper_lib.experiments.task_imbalance import Config
from paper_lib.methods.replay import sgd

TINY = Config(methods=("sgd", "joint"), seeds=(0, 3), num_points=10, num_updates=4, ratios=(0.5, 2.0))


# --- closed forms


def test_weight_at_rest_gives_each_task_the_share_of_its_points():
    table = ti.one_weight((4, 20), 5.0)
    total = table.num_first + table.num_second
    np.testing.assert_allclose(table.share_1, table.num_first / total, rtol=1e-5)
    np.testing.assert_allclose(table.error, table.num_second / total, atol=1e-5)


def test_drifting_weight_equals_conditioning_the_joint_gaussian_of_all_times():
    h, eta_var, noise_var, prior_var = 0.1, 0.05, 0.7, 2.0
    table = ti.one_weight((3,), 2.0, h, eta_var, noise_var, prior_var)
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
    for _, mine in ti.one_weight((100, 200), 0.5, h, eta_var, noise_var).groupby("num_first"):
        share = mine.share_1.to_numpy()
        np.testing.assert_allclose(share[1:30] / share[:29], factor, rtol=1e-6)


def test_two_weights_at_rest_are_ridge_regression():
    table = ti.two_weights(60, "full", 5, 2.0, noise_var=0.3, prior_var=2.0)
    angles = np.deg2rad([20.0, 80.0])
    x = np.stack([np.cos(angles), np.sin(angles)], 1)[[0] * 5 + [1] * 10]
    y = np.array([1.0] * 5 + [-1.0] * 10)
    mean = np.linalg.solve(x.T @ x / 0.3 + np.eye(2) / 2.0, x.T @ y / 0.3)
    assert table.error.iloc[-1] == pytest.approx(abs(x[0] @ mean - 1) / 2, rel=1e-9)


def test_only_a_model_that_cannot_hold_both_tasks_or_their_covariance_forgets():
    last = {
        (degrees, covariance): ti.two_weights(degrees, covariance, 50, 10).error.iloc[-1]
        for degrees in (0, 60)
        for covariance in ("full", "independent")
    }
    assert last[60, "full"] < 1e-3 < 0.2 < last[60, "independent"] < last[0, "full"]
    with pytest.raises(ValueError, match="did you mean 'full'"):
        ti.two_weights(0, "ful", 5, 1)


# --- the steps of the derivation


def test_simulated_transitions_have_the_corrected_variance():
    table = ti.transitions()
    assert ((table.corrected - table.simulated).abs() < 4 * table.se).all()
    assert ((table.printed - table.simulated).abs() > 20 * table.se).all()


def test_optimum_by_slope_solves_the_equation_of_each_weight():
    hessian = torch.tensor([[2.0, 1.0], [1.0, 4.0]]).double()
    theta = torch.tensor([[3.0, -8.0], [1.0, 2.0]]).double()
    torch.testing.assert_close(
        ti.optimum_by_slope(hessian, theta), torch.tensor([[4.0, -0.75], [-1.0, -0.25]]).double()
    )


def test_only_the_corrected_variance_without_data_stays_with_the_simulation():
    table = ti.variance_without_data()
    np.testing.assert_allclose(table.corrected, table.simulated, rtol=0.1)
    assert table.printed.iloc[-1] > 100 * table.limit.iloc[-1]


def test_lemma_1_is_bayes_rule_of_the_linearised_network():
    routes = dict(tuple(ti.lemma_1().groupby("route")))
    lemma, exact = routes["lemma"], routes["linearised, by integration"]
    for name in ("mean", "sd"):
        np.testing.assert_allclose(lemma[name], exact[name], atol=1e-6)
    off = routes["printed target"]["mean"].to_numpy() - exact["mean"].to_numpy()
    assert np.abs(off).max() > 5 * exact.sd.max()


# --- designs


@pytest.mark.parametrize("preset", ti.PRESETS)
@pytest.mark.parametrize("row", ti.ROWS)
def test_each_task_gets_the_updates_that_its_design_holds(preset, row):
    config = Config(preset=preset)
    batch = ti.settings(config).batch_size
    for cell in ti.cells(config):
        sizes = cell.sizes if row != "joint" else (cell.sizes[0], sum(cell.sizes))
        steps = [e * -(-n // batch) for e, n in zip(ti.method(row, cell, config).epochs, sizes, strict=True)]
        wanted = cell.updates if row != "joint" else (ti.settings(config).num_updates,) * 2
        assert steps[0] == pytest.approx(wanted[0], rel=0.05)
        assert steps[1] == pytest.approx(wanted[1] * (1 + (row == "joint")), rel=0.1 if row == "joint" else 0.05)


def test_designs_hold_one_size_and_meet_where_both_tasks_have_the_same():
    config = Config()
    n = ti.settings(config).num_points
    for cell in ti.cells(config):
        assert cell.sizes[1] / cell.sizes[0] == pytest.approx(cell.ratio)
        assert cell.sizes[cell.design == ti.SMALLER_FIRST] == n
        passes = cell.updates[1] / cell.sizes[1] / (cell.updates[0] / n)
        assert cell.design != ti.SAME_PASSES or passes == pytest.approx(1)
        assert cell.design == ti.SAME_PASSES or cell.updates[0] == cell.updates[1]
    assert len({ti.label("sgd", cell) for cell in ti.cells(config) if cell.ratio == 1}) == 1


def test_epochs_by_task_learns_each_task_with_its_own_epochs_and_is_named_by_its_method():
    stream = make_stream("split_digits", "domain_incremental", num_tasks=2, train_sizes=(20, 20))
    varied = ti.EpochsByTask(sgd(hidden=(8,)), (3, 1))
    state = varied.init(stream.spec, (0,), "cpu")
    same = state
    for task, epochs in zip(stream.train, (3, 1), strict=True):
        state, info, _ = varied.learn(state, task)
        assert info["loss"].shape == (1, epochs)
        same, *_ = sgd(hidden=(8,), epochs=epochs).learn(same, task)
    x = stream.held_out[0].x
    assert torch.equal(varied.predict(state, x), sgd(hidden=(8,)).predict(same, x))
    assert dataclasses.asdict(varied)["of"] == ("Replay", sgd().VERSION)


# --- runs


def test_runs_are_stored_paired_by_seed_and_dealt_to_designs(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    table = ti.run(TINY)
    assert set(table.seed) == {0, 3} and set(table.preset) == {"quick+overrides"}
    assert {(job.stream["train_seed"], job.stream["num_tasks"]) for job in ti.jobs(TINY, 3)} == {(3, 2)}
    scores = ti.by_design(table, TINY)
    assert len(scores) == 2 * 2 * 2 * 3
    one = scores[(scores.row == "sgd") & (scores.design == ti.SMALLER_FIRST) & (scores.ratio == 2) & (scores.seed == 3)]
    rows = table[(table.method == "sgd-5-10-4") & (table.seed == 3) & (table.metric == "accuracy")]
    matrix = rows.set_index(["task_trained", "task_tested"]).value
    assert one.before.item() == matrix[1, 1] and one.task_2.item() == matrix[2, 2]
    assert one.forgetting.item() == pytest.approx(matrix[1, 1] - matrix[2, 1])
    files = sorted(tmp_path.rglob("seed*.json"))
    stamps = [f.stat().st_mtime_ns for f in files]
    pd.testing.assert_frame_equal(ti.run(TINY), table)
    assert [f.stat().st_mtime_ns for f in files] == stamps
    with pytest.raises(ValueError, match="no run on split_mnist in domain_incremental of preset quick"):
        ti.by_design(table, dataclasses.replace(TINY, dataset="split_mnist"))


def test_effect_is_the_paired_change_between_ends_and_equal_sizes():
    effect = ti.effect_of_ratio(SCORES)
    assert len(effect) == 9 and (effect.n == 2).all()
    np.testing.assert_allclose(effect.equal_sizes, 0.105)
    for end, change in (("below", 0.05), ("above", 0.1)):
        for name in ("", "_low", "_high"):  # the same change in both seeds
            np.testing.assert_allclose(effect[end + name], change)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"methods": ("vcI",)}, "did you mean 'vcl'"),
        ({"scenario": "task_incremental"}, "domain_incremental, class_incremental"),
        ({"ratios": (1.0, 0.0)}, "must be positive"),
        ({"num_updates": 0}, "num_updates=0"),
        ({"preset": "papre"}, "did you mean 'paper'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Config(**arguments)


# --- figures

CELLS = [
    (row, design, ratio, seed, 1.0, 0.9, 0.8, 0.1 * ratio + 0.01 * seed)
    for row in ti.ROWS
    for design in ti.DESIGNS
    for ratio in (0.5, 1.0, 2.0)
    for seed in (0, 1)
]
SCORES = pd.DataFrame(CELLS, columns=["row", "design", "ratio", "seed", "before", "task_1", "task_2", "forgetting"])


def test_figure_shows_mean_and_spread_of_each_design():
    figure = plots.task_imbalance(SCORES)
    assert len(figure.axes) == 6
    for ax in figure.axes[:3]:
        line, _, (bars,) = ax.containers[0]
        np.testing.assert_allclose(line.get_ydata().astype(float), [5.5, 10.5, 20.5])
        low, high = np.array(bars.get_segments())[0][:, 1]
        assert high - low == pytest.approx(2 * np.std([0.0, 1.0], ddof=1))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.task_imbalance(SCORES),
        lambda: plots.lemma_1(ti.lemma_1(num_steps=4)),
        lambda: plots.filter_assumptions(ti.transitions(num_draws=50), ti.variance_without_data(num_draws=50)),
        lambda: plots.error_by_ratio(
            ti.one_weight((2, 4), 2), ti.one_weight((2, 4), 2, 0.1, 0.1), {"one": ti.two_weights(0, "full", 2, 2)}
        ),
    ],
)
def test_figures_have_labels_and_draw(draw, tmp_path):
    figure = draw()
    assert figure.axes[0].get_ylabel() and figure.axes[-1].get_xlabel()
    figure.savefig(tmp_path / "figure.png")
