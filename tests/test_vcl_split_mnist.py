"""Figure 1's rows: which heads serve which scenario, what an override changes, and what the tables are made of."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paper_lib import metrics, plots, runs
from paper_lib.experiments import vcl_split_mnist as experiment
from paper_lib.experiments.vcl_split_mnist import DATASETS, PRESETS, ROWS, Config
from paper_lib.methods.vcl import ddm, improved

SINGLE = ("sgd_single_head", "vcl_single_head")
MULTI = (
    *("sgd_multi_head", "sgd_multi_head_long", "sgd_multi_head_reference"),
    *("vcl_multi_head", "vcl_multi_head_reference", "vcl_ddm", "vcl_improved"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(runs.FOLDER_VARIABLE, os.fspath(tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "near"),
    [
        ("dataset", "split_minst", "split_mnist"),
        ("dataset", "split_cifar10", None),
        ("scenario", "domain-incremental", "domain_incremental"),
        ("preset", "papr", "paper"),
        ("methods", ("joint", "vcl_singlehead"), "vcl_single_head"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed_and_a_near_match(field, value, near):
    named = value[-1] if isinstance(value, tuple) else value
    message = f"{field}='{named}' is not one of .*" + (rf"\(did you mean '{near}'\?\)" if near else "")
    with pytest.raises(ValueError, match=message):
        Config(**{field: value})


@pytest.mark.parametrize(
    ("row", "scenario", "instead"),
    [
        *((row, "task_incremental", "vcl_multi_head") for row in SINGLE),
        *((row, s, "vcl_single_head") for row in MULTI for s in ("domain_incremental", "class_incremental")),
    ],
)
def test_a_scenario_that_the_heads_cannot_serve_is_refused_with_the_rows_that_can(row, scenario, instead):
    with pytest.raises(ValueError, match=f"{scenario}.*{row}.*head.*{instead}") as error:
        Config(methods=("joint", row), scenario=scenario)
    assert "\n" not in str(error.value)


def test_the_toys_have_no_class_incremental_scenario():
    with pytest.raises(ValueError, match=r"class_incremental.*toy_pan.*domain_incremental"):
        Config(dataset="toy_pan", methods=("vcl_single_head",), scenario="class_incremental")


def test_every_row_takes_its_own_scenario_unless_one_is_given():
    own = {job.label: job.stream["scenario"] for job in experiment.jobs(Config(methods=ROWS))}
    assert {own[row] for row in MULTI} == {"task_incremental"}
    assert {own[row] for row in ROWS if row not in MULTI} == {"domain_incremental"}
    given = experiment.jobs(Config(methods=(*SINGLE, "joint"), scenario="class_incremental"))
    assert {job.stream["scenario"] for job in given} == {"class_incremental"}


@pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
def test_paper_preset_is_the_reference(dataset):
    rows = {row: experiment.method(row, Config(dataset=dataset, preset="paper")) for row in ROWS}
    assert rows.pop("vcl_ddm") == ddm() and rows.pop("vcl_improved") == improved()
    for row in rows:
        assert rows[row].hidden == (200, 200) and rows[row].learning_rate == 1e-3
        if row.startswith("vcl"):
            shown = (rows[row].batch_size, rows[row].epochs, rows[row].num_samples, rows[row].num_samples_predict)
            assert shown == (None if row == "vcl_multi_head_reference" else 256, 100, 10, 100)
        else:
            long = {"sgd_single_head_long": 256, "sgd_multi_head_long": 256, "sgd_multi_head_reference": None}
            assert (rows[row].batch_size, rows[row].epochs) == ((long[row], 100) if row in long else (128, 10))
    kept = {row: (m.coreset_per_task, m.coreset_selection) for row, m in rows.items() if "coreset" in row}
    assert kept == {"vcl_coreset": (200, "random"), "vcl_coreset_k_centre": (200, "k_centre")}
    assert rows["vcl_single_head"].coreset_per_task == rows["vcl_multi_head"].coreset_per_task == 0


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("change", [{"learning_rate": 0.5}, {"epochs": 7}, {"batch_size": 9}])
def test_an_override_changes_its_field_alone_and_is_tabulated_apart(row, change):
    plain = Config(dataset="split_mnist", preset="paper", methods=(row,))
    changed = replace(plain, **change)
    assert experiment.method(row, changed) == replace(experiment.method(row, plain), **change)
    assert experiment.jobs(plain)[0].preset == "paper" and experiment.jobs(changed)[0].preset == "paper+overrides"
    (value,) = (getattr(experiment.method(row, plain), name) for name in change)
    same = replace(plain, **dict.fromkeys(change, value))
    assert experiment.jobs(same)[0].preset == "paper"  # what changes nothing is not a change


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ()}, "methods is empty"),
        ({"methods": ("joint", "joint")}, "methods has 'joint' twice"),
        ({"epochs": 0}, "epochs=0 is not at least 1"),
        ({"batch_size": 0, "methods": ("vcl_multi_head",)}, "batch_size=0 is not at least 1"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0 is not above 0"),
        ({"coreset_per_task": 7}, "coreset_per_task=7 changes no row of .*; rows with a coreset are vcl_coreset"),
        ({"coreset_per_task": 0, "methods": ("vcl_coreset",)}, "coreset_per_task=0 is not at least 1"),
        ({"coreset_per_task": -1, "methods": ("vcl_ddm",)}, "coreset_per_task=-1 is not at least 0"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        Config(**settings)


def test_coreset_overrides_leave_rows_without_a_coreset_alone():
    config = Config(coreset_per_task=7, methods=ROWS)
    for row in ROWS:
        method, plain = experiment.method(row, config), experiment.method(row, Config())
        if row.startswith("vcl_coreset") or row in experiment.RECIPES:
            assert method == replace(plain, coreset_per_task=7)
        else:
            assert method == plain


def test_every_data_set_has_every_row_in_every_preset_with_its_own_key():
    for dataset in DATASETS:
        for preset in PRESETS:
            # on the toys VCL's batches are full in every row, so SGD's two rows that take them are one
            rows = [row for row in ROWS if not (dataset.startswith("toy") and row == "sgd_multi_head_reference")]
            jobs = experiment.jobs(Config(dataset=dataset, preset=preset, methods=tuple(rows)))
            assert len({str(job.identity("data")) for job in jobs}) == len(jobs)
        quick, paper = (experiment.method("vcl_single_head", Config(dataset=dataset, preset=p)) for p in PRESETS)
        assert quick.epochs <= paper.epochs


def test_every_row_runs_and_its_scores_are_probabilities():
    table = experiment.run(Config(methods=ROWS, seeds=(0, 1), epochs=1))
    assert list(table.columns) == runs.COLUMNS and set(table.experiment) == {"vcl_split_mnist"}
    found = experiment.matrices(table)
    assert tuple(found) == ROWS
    for a in found.values():
        assert a.shape == (2, 5, 5)
        inside = a[:, np.tri(5, dtype=bool)]
        assert ((inside >= 0) & (inside <= 1)).all()


def tidy(method, matrices, preset="paper", dataset="split_mnist", scenario="domain_incremental"):
    """A table of given matrices ``(seed, task, task)``, of which only the triangle is written."""
    return pd.DataFrame(
        [
            ("vcl_split_mnist", method, dataset, scenario, preset, method, seed, k + 1, j + 1, "accuracy", a[k][j])
            for seed, a in enumerate(matrices)
            for k in range(len(a))
            for j in range(k + 1)
        ],
        columns=runs.COLUMNS,
    )


FORGETS = [[1.0, 0, 0], [0.0, 0.9, 0], [0.0, 0.0, 0.8]]


def test_a_network_a_task_keeps_each_task_as_it_was_learned():
    table = pd.concat([tidy("single_task", [FORGETS]), tidy("sgd_single_head", [FORGETS])])
    found = experiment.curves(table)
    np.testing.assert_allclose(found["single_task"], [[1.0, 0.95, 0.9]])
    np.testing.assert_allclose(found["sgd_single_head"], [[1.0, 0.45, 0.8 / 3]])


def test_scores_mark_what_is_below_paper_scale():
    table = pd.concat(
        [
            tidy("vcl_single_head", [FORGETS] * 10),
            tidy("sgd_single_head", [FORGETS] * 3),
            tidy("joint", [FORGETS] * 10, preset="quick"),
        ]
    )
    scores = experiment.scores(table)
    assert scores.scale.to_dict() == {"sgd_single_head": "reduced", "vcl_single_head": "paper", "joint": "reduced"}
    assert scores.n.to_dict() == {"sgd_single_head": 3, "vcl_single_head": 10, "joint": 10}
    assert scores.triangle["mean"]["vcl_single_head"] == pytest.approx(100 * 2.7 / 6)
    assert scores.P_T.sd["vcl_single_head"] == pytest.approx(0)


def test_statements_are_differences_seed_by_seed():
    better = [[[1.0, 0, 0], [0.5, 1, 0], [gain, gain, gain]] for gain in (0.5, 0.9)]
    worse = [[[1.0, 0, 0], [0.5, 1, 0], [gain, gain, gain]] for gain in (0.4, 0.7)]
    found = experiment.statements(pd.concat([tidy("vcl_single_head", better), tidy("sgd_single_head", worse)]))
    assert len(found) == 1
    line = found.iloc[0]
    # By 10 and by 20 points in P_3, and in three of the triangle's six entries; t(0.975, 1) is 12.706.
    assert line.P_T.to_dict() == pytest.approx(
        {"mean": 15, "lower": 15 - 12.706 * 5, "upper": 15 + 12.706 * 5}, rel=1e-4
    )
    assert line.triangle.to_dict() == pytest.approx((line.P_T / 2).to_dict()) and line["n", ""] == 2
    assert experiment.statements(tidy("joint", better)).empty


def test_a_row_stands_beside_the_logged_run_of_its_own_scenario():
    five = [[1.0, 0, 0, 0, 0], *([[0.0] * k + [1.0] + [0.0] * (4 - k) for k in range(1, 5)])]
    half = [[a / 2 for a in line] for line in five]
    table = pd.concat(
        [
            tidy("vcl_single_head", [five, half], scenario="class_incremental"),
            tidy("vcl_coreset", [five]),  # its domain-incremental runs have no logged counterpart
            tidy("vcl_multi_head_reference", [five], scenario="task_incremental", preset="quick"),
            tidy("sgd_single_head", [five], scenario="class_incremental"),
        ]
    )
    found = experiment.beside_public_logs(table)
    assert list(found.index) == ["vcl_single_head"]
    line = found.loc["vcl_single_head"]
    # by hand: 70.75 / 5, and with s = 100 + 55.93 + 52.40 + 99.80 + 70.75 = 378.88, s / 15 and s / 5
    assert line.P_T.to_dict() == pytest.approx({"mean": 15, "lowest": 10, "highest": 20, "log": 14.15})
    assert line.triangle.to_dict() == pytest.approx({"mean": 25, "log": 378.88 / 15})
    assert line.learned.to_dict() == pytest.approx({"mean": 75, "log": 378.88 / 5}) and line["n", ""] == 2
    assert experiment.beside_public_logs(table[table.method == "sgd_single_head"]).empty


def test_without_stored_runs_there_is_nothing_to_show(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    assert experiment.stored("split_mnist").empty
    assert experiment.scores(experiment.stored("split_mnist")).empty
    assert experiment.by_dataset(experiment.scores, DATASETS).empty


def test_one_head_forgets_as_sgd_does_where_classes_are_new_and_a_head_a_task_does_not():
    config = Config(methods=("sgd_single_head", "vcl_single_head"), scenario="class_incremental", seeds=(0,))
    forgot = {row: a[0] for row, a in experiment.matrices(experiment.run(config)).items()}
    for a in forgot.values():
        assert metrics.learning_accuracy(a) > 0.9 and metrics.final_accuracy(a) < 0.25
    kept = experiment.curves(experiment.run(Config(methods=("vcl_multi_head",), seeds=(0,))))
    assert kept["vcl_multi_head"][0, -1] > 0.9


def test_panels_draw_every_curve_with_its_spread_and_name_the_seeds(tmp_path):
    values = np.array([[1.0, 0.5], [0.8, 0.7]])
    figure = plots.accuracy_panels({name: {row: values for row in ROWS} for name in ("left", "right")})
    figure.savefig(tmp_path / "figure.png")  # a layout that does not fit warns, and so fails
    for ax, title in zip(figure.axes, ("left", "right"), strict=True):
        assert ax.get_title().startswith(title) and "2 seeds" in ax.get_title() and ax.get_xlabel()
        assert len(ax.containers) == len(ROWS)
        line, _, (bars,) = ax.containers[0]
        np.testing.assert_allclose(line.get_ydata(), [90, 60])
        half = np.diff(bars.get_segments()[0][:, 1]) / 2
        assert half == pytest.approx(100 * np.std([1.0, 0.8], ddof=1))
    assert len(figure.legends[0].get_texts()) == len(ROWS)


def test_panels_of_one_head_and_of_many_have_the_bounds_and_scales_of_their_own():
    def falling(low):
        return np.array([[1.0, low - 0.01], [1.0, low + 0.01]])  # sd 0.014

    groups = experiment.by_heads({row: falling(0.6 if "single_head" in row else 0.95) for row in ROWS})
    assert all({"joint", "single_task"} <= set(group) for group in groups.values())
    assert set(groups["a head a task"]) - {"joint", "single_task"} == set(MULTI)
    figure = plots.accuracy_panels(groups, own_scales=True)
    assert [ax.get_ylim()[0] for ax in figure.axes] == [50, 90]
    assert len(figure.legends[0].get_texts()) == len(ROWS)  # once each, of both panels
