"""Tables 1 and 2: every row of the paper, what was run beside it, and nothing else."""

import dataclasses
import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_tables import tidy

from paper_lib import metrics, paper, runs, sweep, tables
from paper_lib.experiments import class_incremental as experiment
from paper_lib.experiments.class_incremental import ROWS
from paper_lib.rows import ROWS as ALL
from paper_lib.rows import shown_in

FORGETS = np.diag([0.9905] * 5)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", os.fspath(tmp_path))


@pytest.fixture
def results(monkeypatch, tmp_path):
    """Stores tables of rows with the identity that each has today."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)

    def store(dataset, *parts):
        table = pd.concat(parts)
        sources = {}
        for (row, scenario, key), part in table.groupby(["row", "scenario", "key"]):
            preset = part.preset.iloc[0]
            epochs = [int(n) for n in part.changes.iloc[0].removeprefix("epochs=").split(",") if n]
            changes = {"epochs": epochs[0] if len(epochs) == 1 else tuple(epochs)} if epochs else {}
            chosen = sweep.Selection(dataset, scenario, preset, rows=(row,), changes=changes)
            (job,) = sweep.jobs(chosen)
            sources[key] = {"identity": job.identity("data"), "runs": []}
        table.to_csv(tmp_path / f"{dataset}.csv", index=False)
        (tmp_path / f"{dataset}.json").write_text(json.dumps(sources))

    return store


def test_rows_are_all_that_can_be_run_and_all_that_the_paper_prints():
    assert set(ROWS) == set(shown_in("tables")) | {p.row for p in paper.PRINTED}
    assert set(ROWS) <= set(ALL)


def test_without_stored_runs_the_paper_stands_alone(results):
    found = experiment.comparison("split_fmnist")
    assert set(found.verdict) == {"open"} and set(found.n) == {0}
    assert list(found.index) == [row for row in ROWS if row in {p.row for p in paper.printed("split_fmnist")}]


def test_only_the_paper_s_scale_in_this_scenario_and_as_set_today_counts(results):
    perfect, mine = np.ones((5, 5)), ("protocl", "protocl_paper_epochs")
    of = {"dataset": "split_mnist"}
    results(
        "split_mnist",
        tidy([FORGETS] * 10, "vcl_single_head", "a"),
        tidy([perfect] * 10, "vcl_single_head", "b", scenario="domain_incremental"),
        tidy([perfect] * 10, "vcl_single_head", "c", preset="quick"),
        tidy([perfect] * 10, "vcl_single_head", "d", changes="epochs=3"),
        tidy([FORGETS] * 3, "vcl_coreset", "e"),
        tidy([perfect] * 10, "joint", "f"),
        *(tidy([FORGETS] * 10, row, row, **of) for row in mine),
    )
    found = experiment.comparison("split_mnist")
    words = {
        "vcl_single_head": "reproduced as a triangle mean",
        "vcl_coreset": "uninformative ± (3 seeds)",
        "joint": "",
    }
    words |= {"protocl": "reduced: 6 of 50 epochs", "protocl_paper_epochs": "below"}  # tuning chose fewer epochs
    assert found.words[list(words)].to_dict() == words
    assert found.triangle["vcl_single_head"] == pytest.approx(99.05 / 3) and found.n["vcl_coreset"] == 3
    assert found.final["joint"] == pytest.approx(100)


def test_settings_are_shown_of_every_row_that_was_run():
    for dataset in ("split_mnist", "split_fmnist", "split_cifar10"):
        found = experiment.shown_settings(dataset)
        assert set(found.index) == {paper.label(row) for row in experiment.stored(dataset)["row"]}
        assert all(isinstance(cell, str) and "nan" not in cell for cell in found.to_numpy().ravel())
    assert experiment.shown_settings("split_mnist").dropout["ProtoCL, calibrated"] == "0.2"


def test_a_short_run_stands_in_for_table_2_until_there_is_a_full_one(results, monkeypatch):
    perfect, name = np.ones((5, 5)), "ProtoCL on Split-CIFAR10"
    monkeypatch.setattr(paper, "REDUCED", (dataclasses.replace(paper.REDUCED[0], changes={"epochs": 3}),))
    cifar = {"dataset": "split_cifar10"}
    short = tidy([FORGETS], "protocl", "short", changes="epochs=3", **cifar)

    def judged():
        return next(claim for claim in paper.claims() if claim.name == name)

    assert judged().judged().verdict == "open"
    results("split_cifar10", short)
    assert experiment.comparison("split_cifar10").words["protocl"] == "reduced: 1 seed, 3 of 80 epochs"
    found = judged()
    assert found.judged().verdict == "not comparable" and "epochs=3" in found.command()
    assert "epochs=3" in experiment.source("split_cifar10")
    results("split_cifar10", short, tidy([perfect] * 10, "protocl", "full", **cifar))
    assert set(paper.stored("split_cifar10", ("protocl",)).changes) == {""}
    assert "epochs=3" not in judged().command()


def test_one_seed_settles_nothing(results):
    for dataset in ("split_mnist", "split_fmnist"):
        results(dataset, tidy([np.eye(5)], "vcl_single_head", dataset=dataset))
    assert experiment.CLAIMS[0].judged() == tables.Judgement(
        "open", "one seed: VCL, one head on Split-MNIST, VCL, one head on Split-FMNIST"
    )


def test_a_full_run_of_one_row_leaves_what_stands_in_for_others(results, monkeypatch):
    monkeypatch.setattr(paper, "REDUCED", (dataclasses.replace(paper.REDUCED[0], changes={"epochs": 3}),))
    cifar, perfect = {"dataset": "split_cifar10"}, np.ones((5, 5))
    short = tidy([FORGETS], "protocl", "short", changes="epochs=3", **cifar)
    results("split_cifar10", short, tidy([perfect] * 10, "fromp", "full", **cifar))
    there = paper.stored("split_cifar10", ("protocl", "fromp"))
    assert set(there[["row", "changes"]].itertuples(index=False, name=None)) == {("protocl", "epochs=3"), ("fromp", "")}


def test_rows_that_stand_in_with_settings_of_their_own_are_told_apart(results):
    """Methods count epochs in their own way, so a data set's stand-ins are several selections."""
    short = {
        row: tidy([FORGETS], row, row, dataset="split_cifar10", changes=changes)
        for row, changes in (("protocl", "epochs=10"), ("sfsvi", "epochs=25,6,6,6,6"))
    }
    results("split_cifar10", *short.values())
    found = paper.stored("split_cifar10", ("protocl", "sfsvi", "fromp"))
    assert set(found["row"]) == set(short)
    assert [one.rows for one in paper.standing_in("split_cifar10", list(short))] == [("protocl",), ("sfsvi",)]


def test_the_live_rows_stand_on_both_bounds_and_show_the_claim():
    """Prototypes with memory beat chance threefold and beat training without memory."""
    table = sweep.run(replace(experiment.LIVE, seeds=(0,), rows=("protocl", "sgd", "joint", "vcl_single_head")))
    found = tables.matrices(table)
    final = {row: metrics.final_accuracy(a)[0] for row, a in found.items()}
    assert final["protocl"] > 0.3 and final["sgd"] < final["protocl"] < final["joint"] + 0.02
    for row in ("sgd", "vcl_single_head"):
        assert metrics.learning_accuracy(found[row][0]) > 0.9 and final[row] < 0.25


def test_settings_are_those_of_the_stored_runs():
    found = tables.settings(experiment.stored("split_mnist"), experiment.SHOWN_SETTINGS)
    assert list(found.index) == [row for row in shown_in("tables") if row in found.index]
    assert {p.row for p in paper.printed("split_mnist") if p.row.startswith(("vcl", "protocl"))} <= set(found.index)
    assert found.memory["joint"] == "all" and found.memory["sgd"] == "none"
    assert found.memory["protocl_as_published"] == "1000 in all" and found.memory["replay"] == "200 a task"
    assert found.pixels["vcl_coreset"] == "[0, 1]" and found.pixels["protocl"] == "standardised"
    assert found.epochs["protocl_paper_epochs"] == 50 and found.num_samples["vcl_single_head"] == 10
