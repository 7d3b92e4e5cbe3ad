"""Figure 1: differences seed by seed, rows beside logged runs, panels by heads, and what the live runs show."""

import os

import numpy as np
import pandas as pd
import pytest
from test_tables import tidy

from paper_lib import metrics, runs, sweep, tables
from paper_lib.experiments import vcl_split_mnist as experiment
from paper_lib.rows import HEAD_A_TASK, ROWS, shown_in
from paper_lib.sweep import Selection


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", os.fspath(tmp_path))


def own(matrices, row, **names):
    """Runs in the row's own scenario."""
    return tidy(matrices, row, scenario=ROWS[row].scenarios[0], **names)


def test_differences_are_seed_by_seed():
    better = [[[1.0, 0, 0], [0.5, 1, 0], [gain, gain, gain]] for gain in (0.5, 0.9)]
    worse = [[[1.0, 0, 0], [0.5, 1, 0], [gain, gain, gain]] for gain in (0.4, 0.7)]
    found = experiment.differences(pd.concat([own(better, "vcl_single_head"), own(worse, "sgd_single_head")]))
    assert list(found.index) == ["one head: VCL over SGD"]
    line = found.iloc[0]
    # By 10 and by 20 points in P_3, and in three of the triangle's six entries; t(0.975, 1) is 12.706.
    expected = {"final": 15, "final low": 15 - 12.706 * 5, "final high": 15 + 12.706 * 5}
    expected |= {name.replace("final", "triangle"): value / 2 for name, value in expected.items()}
    assert line.to_dict() == pytest.approx(expected | {"n": 2}, rel=1e-4)
    assert experiment.differences(own(better, "joint_unit")).empty


def test_what_is_compared_are_rows_that_figure_1_shows():
    shown = set(shown_in("figure_1"))
    assert all({row, other} <= shown and row != other for row, other, _ in experiment.COMPARED)
    assert len({words for *_, words in experiment.COMPARED}) == len(experiment.COMPARED)


def test_scores_stand_in_the_order_of_the_rows_and_tell_their_seeds():
    forgets = [[1.0, 0, 0], [0.0, 0.9, 0], [0.0, 0.0, 0.8]]
    table = pd.concat([own([forgets] * 10, "vcl_single_head"), own([forgets] * 3, "sgd_single_head")])
    scores = experiment.scores(table)
    assert scores.n.to_dict() == {"sgd_single_head": 3, "vcl_single_head": 10}
    assert scores.triangle_mean["vcl_single_head"] == pytest.approx(100 * 2.7 / 6)
    assert scores["final_accuracy sd"]["vcl_single_head"] == pytest.approx(0)
    assert scores.learning_accuracy["sgd_single_head"] == pytest.approx(90)


def test_a_row_stands_beside_the_logged_run_of_its_own_scenario():
    five = np.eye(5)
    half = five / 2
    table = pd.concat(
        [
            tidy([five, half], "vcl_single_head", scenario="class_incremental"),
            tidy([five], "vcl_coreset", scenario="domain_incremental"),  # these have no logged counterpart
            tidy([five], "sgd_single_head", scenario="class_incremental"),
            tidy([five], "vcl_single_head", scenario="class_incremental", dataset="split_fmnist"),
        ]
    )
    found = experiment.beside_public_logs(table)
    assert list(found.index) == ["vcl_single_head"]
    # by hand: 70.75 / 5, and with s = 100 + 55.93 + 52.40 + 99.80 + 70.75 = 378.88, s / 15 and s / 5
    assert found.loc["vcl_single_head"].to_dict() == pytest.approx(
        {"final accuracy": 15, "lowest": 10, "highest": 20, "log, final accuracy": 14.15, "n": 2}
        | {"triangle mean": 25, "log, triangle mean": 378.88 / 15}
        | {"learning accuracy": 75, "log, learning accuracy": 378.88 / 5}
    )
    assert experiment.beside_public_logs(table[table.row == "sgd_single_head"]).empty


def test_logged_runs_are_of_rows_that_serve_their_scenario():
    for (row, scenario), log in experiment.PUBLIC_LOGS.items():
        assert scenario in ROWS[row].scenarios and [len(line) for line in log] == [1, 2, 3, 4, 5]
        assert all(0 <= value <= 100 for line in log for value in line)


def test_the_stored_runs_are_in_each_row_s_own_scenario():
    table = experiment.stored("split_mnist")
    own = table[["row", "scenario"]].drop_duplicates().set_index("row").scenario.to_dict()
    assert own == {row: ROWS[row].scenarios[0] for row in own} and set(own) >= {*experiment.MNIST[0].rows}
    assert set(table.preset) == {"paper"} and set(table.changes) == {""}


def test_without_stored_runs_there_is_nothing_to_show(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    assert experiment.stored("split_mnist").empty
    assert experiment.differences(experiment.stored("split_mnist")).empty


def test_one_head_forgets_as_sgd_does_where_classes_are_new_and_a_head_a_task_does_not():
    chosen = Selection(rows=("sgd_single_head", "vcl_single_head"), scenario="class_incremental", seeds=(0,))
    for a in tables.matrices(sweep.run(chosen)).values():
        assert metrics.learning_accuracy(a[0]) > 0.9 and metrics.final_accuracy(a[0]) < 0.25
    kept = tables.curves(sweep.run(Selection(rows=("vcl_multi_head",), seeds=(0,))))
    assert kept["vcl_multi_head"][0, -1] > 0.9


def test_the_live_rows_are_one_head_a_head_a_task_and_a_bound():
    groups = experiment.by_heads(dict.fromkeys(experiment.LIVE.rows, np.ones((1, 5))))
    assert {row for row in groups["a head a task"] if ROWS[row].scenarios == HEAD_A_TASK}
    assert all(set(experiment.BOUNDS) & set(group) for group in groups.values())
