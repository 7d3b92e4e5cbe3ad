"""Tables 1 and 2: rows come from their own experiments, printed numbers stand beside what was run, and nothing else."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from paper_lib import metrics, runs
from paper_lib.experiments import class_incremental as experiment
from paper_lib.experiments import protocl, vcl_split_mnist
from paper_lib.experiments.class_incremental import PAPER, ROWS, SOURCES, Config


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(runs.FOLDER_VARIABLE, os.fspath(tmp_path))


def tidy(source, method, matrix, seeds, dataset="split_mnist", scenario="class_incremental", preset="paper"):
    """A stored table of one matrix ``(task, task)`` for every seed, of which only the triangle is written."""
    return pd.DataFrame(
        [
            (source, method, dataset, scenario, preset, method, seed, k + 1, j + 1, "accuracy", matrix[k][j])
            for seed in range(seeds)
            for k in range(len(matrix))
            for j in range(k + 1)
        ],
        columns=runs.COLUMNS,
    )


@pytest.fixture
def results(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)

    def store(name, *parts):
        pd.concat(parts).to_csv(tmp_path / f"{name}.csv", index=False)

    return store


FORGETS = np.diag([0.9905] * 5).tolist()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("methods", ("vcl_corset",), r"vcl_corset.*did you mean 'vcl_coreset'"),
        ("methods", ("hibnn",), r"methods='hibnn' is not one of"),
        ("scenario", "domain_incremental", r"scenario='domain_incremental' is not one of class_incremental"),
        ("dataset", "split_minst", r"did you mean 'split_mnist'"),
        ("dataset", "split_cifar10", r"row 'vcl_single_head': dataset='split_cifar10' is not one of"),
        ("methods", (), r"methods is empty; give at least one of sgd, "),
        ("methods", ("sgd", "sgd"), r"methods has 'sgd' twice"),
        ("preset", "papr", r"did you mean 'paper'"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(field, value, message):
    with pytest.raises(ValueError, match=message):
        Config(**{field: value})


def test_cifar_is_for_the_rows_that_have_it():
    rows = ("sgd", "replay", "protocl", "joint")
    assert [job.label for job in experiment.jobs(Config(dataset="split_cifar10", methods=rows))] == list(rows)


def test_a_row_is_the_run_of_its_own_experiment():
    mine = experiment.jobs(Config(dataset="split_mnist", preset="paper", methods=tuple(SOURCES)))
    for job, (row, source) in zip(mine, SOURCES.items(), strict=True):
        shared = {"dataset": "split_mnist", "preset": "paper", "scenario": "class_incremental", "methods": (row,)}
        (own,) = source.jobs(source.Config(**shared))
        assert job == own and job.label == row


def test_rows_are_all_that_can_be_run_and_all_that_the_paper_prints():
    assert set(ROWS) == set(SOURCES) | {row for row, _ in PAPER if row not in protocl.ROWS}
    assert PAPER["vcl_coreset", "split_mnist"] == vcl_split_mnist.PAPER["vcl_coreset", "split_mnist"] == (52.98, 18.56)
    assert PAPER["protocl", "split_fmnist"] == protocl.PAPER["protocl", "split_fmnist"] == (82.73, 1.70)


def test_without_stored_runs_the_paper_stands_alone(results):
    found = experiment.comparison("split_fmnist")
    assert set(found.verdict) == {"not run"} and set(found.n) == {0}
    assert list(found.index) == [row for row in ROWS if (row, "split_fmnist") in PAPER]
    assert experiment.printed_numbers()["SGD's P_5"].isna().all()


def test_only_the_paper_scale_in_this_scenario_counts(results):
    perfect, mine = np.ones((5, 5)).tolist(), ("protocl", "protocl_paper_epochs")
    results(
        "vcl_split_mnist",
        tidy("vcl_split_mnist", "vcl_single_head", FORGETS, 10),
        tidy("vcl_split_mnist", "vcl_single_head", perfect, 10, scenario="domain_incremental"),
        tidy("vcl_split_mnist", "vcl_single_head", perfect, 10, preset="quick"),
        tidy("vcl_split_mnist", "vcl_coreset", FORGETS, 3),
        tidy("vcl_split_mnist", "joint", FORGETS, 10),
    )
    results("protocl", tidy("protocl", "joint", perfect, 10), *(tidy("protocl", row, FORGETS, 10) for row in mine))
    found = experiment.comparison("split_mnist")
    verdicts = {"vcl_single_head": "agrees", "vcl_coreset": "reduced", "joint": ""}
    verdicts |= {"protocl": "reduced", "protocl_paper_epochs": "below"}  # tuning chose fewer epochs than the paper's
    assert found.verdict[list(verdicts)].to_dict() == verdicts
    assert found.triangle["vcl_single_head"] == pytest.approx(99.05 / 3) and found.n["vcl_coreset"] == 3
    assert found.P_T["joint"] == pytest.approx(100)


def test_printed_numbers_are_no_final_accuracy_of_a_learner_that_forgets_all(results):
    results("protocl", tidy("protocl", "sgd", FORGETS, 2))
    found = experiment.printed_numbers()
    assert set(found.index.get_level_values("method")) == {"vcl_single_head", "protocl_no_memory"}
    for _, line in found.iterrows():
        a = np.diag([line["a if triangle"]] * 5)
        assert line["a if P_5"] > 100 >= line["a if triangle"]
        assert metrics.triangle_mean(a) == pytest.approx(line.printed)
        assert metrics.final_accuracy(a) == pytest.approx(line.P_5)
    line = found.loc["vcl_single_head", "split_mnist"]
    assert (line["SGD's P_5"], line["SGD's triangle"]) == (pytest.approx(19.81), pytest.approx(99.05 / 3))


def test_rows_of_both_experiments_run_side_by_side():
    table = experiment.run(Config(methods=("sgd", "vcl_single_head"), seeds=(0,)))
    found = experiment.matrices(table)
    assert tuple(found) == ("sgd", "vcl_single_head")
    for a in found.values():
        assert metrics.learning_accuracy(a) > 0.9 and metrics.final_accuracy(a) < 0.25


def test_settings_come_from_provenance(results, tmp_path):
    results(
        "protocl",
        tidy("protocl", "replay", FORGETS, 2),
        tidy("protocl", "protocl_as_published", FORGETS, 2),
        tidy("protocl", "joint", FORGETS, 2),
    )
    results("vcl_split_mnist", tidy("vcl_split_mnist", "vcl_single_head", FORGETS, 2))
    sources = {
        "replay": {"memory_per_task": 200, "epochs": 25},
        "protocl_as_published": {"memory_per_task": 200, "memory_total": 1000, "epochs": 50},
        "joint": {"memory_per_task": None, "epochs": 10},
    }
    for name, stream, own in (
        ("protocl", {}, sources),
        ("vcl_split_mnist", {"scaling": "unit"}, {"vcl_single_head": {"coreset_per_task": 0, "num_samples": 10}}),
    ):
        entries = {row: {"identity": {"method": ["M", 1, given], "stream": stream}} for row, given in own.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps(entries))
    found = experiment.settings("split_mnist")
    assert found.memory.to_dict() == {
        **{"vcl_single_head": "none", "protocl_as_published": "1000 in all", "replay": "200 a task", "joint": "all"}
    }
    assert found.pixels.to_dict() == dict.fromkeys(sources, "standard") | {"vcl_single_head": "unit"}
    assert (
        found.epochs["replay"] == 25 and found.num_samples["vcl_single_head"] == 10 and np.isnan(found.epochs.iloc[0])
    )
    assert experiment.settings("split_cifar10").empty
