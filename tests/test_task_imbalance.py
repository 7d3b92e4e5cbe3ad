"""Imbalance: designs that hold what they say, runs found again, and what the chapter says of the stored ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from paper_lib import plots, runs
from paper_lib.data.stream import make_stream
from paper_lib.experiments import task_imbalance as ti
from paper_lib.experiments.task_imbalance import Config
from paper_lib.methods.replay import sgd

TINY = Config(methods=("sgd", "joint"), seeds=(0, 3), num_points=10, num_updates=4, ratios=(0.5, 2.0))


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
    for ax in figure.axes[::2]:
        line, _, (bars,) = ax.containers[0]
        np.testing.assert_allclose(line.get_ydata().astype(float), [5.5, 10.5, 20.5])
        low, high = np.array(bars.get_segments())[0][:, 1]
        assert high - low == pytest.approx(2 * np.std([0.0, 1.0], ddof=1))


def test_spread_of_an_accuracy_stays_between_0_and_100_percent():
    certain = SCORES.assign(task_2=[1.0 if seed else 0.8 for seed in SCORES.seed])
    for ax in plots.task_imbalance(certain).axes[1::2]:
        for container in ax.containers:
            ends = np.array(container.lines[2][0].get_segments())[:, :, 1]
            assert ends.min() > 70 and ends.max() == 100  # 90 ± 14.1


# --- what the chapter says


def test_stored_runs_show_what_the_chapter_says():
    """No effect of the data alone: the change of forgetting with the ratio, in points, with its interval."""
    stored = ti.by_design(runs.stored("task_imbalance"), ti.PAPER)
    change = 100 * ti.effect_of_ratio(stored).set_index(["row", "design"])
    forgotten = 100 * stored.groupby(["row", "design", "ratio"]).forgetting.mean()
    assert change.below_low["sgd", ti.SAME_PASSES] > 9
    in_updates = change.xs(ti.SAME_UPDATES, level="design").loc[["sgd", "vcl"]]
    assert (in_updates.below_low * in_updates.below_high < 0).all()
    assert change.above_high["sgd", ti.SAME_UPDATES] < -3
    sequential = change.loc[["sgd", "vcl"]]
    assert sequential.above_low.max() < 0 and sequential.below_low.drop(ti.SAME_PASSES, level=1).max() < 0
    ends = ["below_low", "below_high", "above_low", "above_high"]
    assert change.loc[("sgd", ti.SMALLER_FIRST), ends].abs().max() < 3
    assert forgotten["joint"].max() < 1.5 < 20 < change.equal_sizes[["sgd", "vcl"]].min()


@pytest.mark.slow
def test_live_runs_show_what_the_chapter_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    live = ti.by_design(ti.run(Config()), Config())
    forgetting = live.groupby(["row", "design", "ratio"]).forgetting.mean()
    passes, updates, smaller = (forgetting["sgd", design] for design in ti.DESIGNS)
    assert passes[5.0] - passes[0.2] > 0.1 > abs(updates[5.0] - updates[0.2])
    assert abs(smaller[5.0] - smaller[0.2]) < 0.1 and forgetting["joint"].max() < 0.15
