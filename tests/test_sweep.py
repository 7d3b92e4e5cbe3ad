"""Selections: what they refuse, the jobs that they become, and that every stored run is reachable from one."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paper_lib import plan, runs, sweep, tables
from paper_lib.data.stream import LABELS
from paper_lib.notebook import selection_from
from paper_lib.rows import CIFARS, HEAD_A_TASK, ROWS, shown_in
from paper_lib.sweep import Selection

SINGLE = ("sgd_single_head", "vcl_single_head")
MULTI = tuple(name for name, one in ROWS.items() if one.scenarios == HEAD_A_TASK)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", os.fspath(tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "near"),
    [
        ("dataset", "split_minst", "split_mnist"),
        ("dataset", "SplitMNIST", "split_mnist"),
        ("dataset", "zebra", None),
        ("scenario", "class-incremental", "class_incremental"),
        ("preset", "papr", "paper"),
        ("split", "valid", "validation"),
        ("rows", ("replay", "protcl"), "protocl"),
        ("rows", ("vcl_corset",), "vcl_coreset"),
        ("rows", ("joint", "vcl_singlehead"), "vcl_single_head"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed_and_a_near_match(field, value, near):
    named = value[-1] if isinstance(value, tuple) else value
    message = f"{field}='{named}' is not one of .*" + (rf"\(did you mean '{near}'\?\)" if near else "")
    with pytest.raises(ValueError, match=message) as error:
        Selection(**{field: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": ()}, "rows is empty; give at least one of sgd, "),
        ({"rows": ("joint", "joint")}, "rows has 'joint' twice"),
        ({"seeds": ()}, "seeds is empty; give at least one"),
        ({"seeds": (0, 1, 0)}, r"seeds=\(0, 1, 0\): 0 is there twice"),
        ({"seeds": (-1,)}, r"seeds=\(-1,\): -1 is negative"),
        ({"changes": {"epochs": 0}}, "epochs=0 is not at least 1"),
        ({"changes": {"epochs": 2.5}}, "epochs=2.5 is not a whole number"),
        ({"changes": {"epochs": (3, "4")}}, "epochs='4' is not a number"),
        ({"changes": {"hidden": (0,)}}, "hidden=0 is not at least 1"),
        ({"changes": {"network": "cifarnt"}}, r"network='cifarnt' is not one of mlp, cifarnet \(did you mean"),
        (
            {"changes": {"memory_total": 5}, "rows": ("protocl_no_memory",)},
            "memory_total=5 changes no row of protocl_no",
        ),
        ({"changes": {"num_context": 60, "coreset_per_task": 50}, "rows": ("sfsvi",)}, "num_context=60 asks for 60"),
        ({"changes": {"batch_size": 0}, "rows": ("vcl_multi_head",)}, "batch_size=0 is not at least 1"),
        ({"changes": {"learning_rate": -1.0}}, "learning_rate=-1.0 is not above 0"),
        ({"changes": {"coreset_per_task": -1}, "rows": ("vcl_ddm",)}, "coreset_per_task=-1 is not at least 0"),
        ({"changes": {"epoch": 3}}, r"there is no setting 'epoch' \(did you mean 'epochs'\?\)"),
        (
            {"changes": {"coreset_per_task": 7}, "rows": ("sgd", "vcl_single_head")},
            "coreset_per_task=7 changes no row of sgd, vcl_single_head; rows that take it are vcl_coreset, ",
        ),
        ({"rows": ("vcl_single_head",), "dataset": "split_cifar10"}, "no settings on dataset='split_cifar10'; it has"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(given, message):
    with pytest.raises(ValueError, match=message):
        Selection(**({"rows": ("sgd", "replay")} | given))


@pytest.mark.parametrize(
    ("row", "scenario", "instead"),
    [
        *((row, "task_incremental", "vcl_multi_head") for row in SINGLE),
        *((row, s, "vcl_single_head") for row in MULTI for s in ("domain_incremental", "class_incremental")),
    ],
)
def test_a_scenario_that_the_heads_cannot_serve_is_refused_with_the_rows_that_can(row, scenario, instead):
    with pytest.raises(ValueError, match=f"{scenario}.*{row}.*head.*{instead}") as error:
        Selection(rows=("joint_unit", row), scenario=scenario)
    assert "\n" not in str(error.value)


def test_the_toys_have_no_class_incremental_scenario():
    with pytest.raises(ValueError, match=r"class_incremental.*toy_pan.*domain_incremental"):
        Selection("toy_pan", "class_incremental", rows=("vcl_single_head",))
    (job,) = sweep.jobs(Selection("toy_pan", rows=("joint_unit",)))
    assert job.stream["scenario"] == "domain_incremental"


def test_every_row_takes_its_own_scenario_unless_one_is_given():
    own = {job.row: job.stream["scenario"] for job in sweep.jobs(Selection())}
    assert own == {name: one.scenarios[0] for name, one in ROWS.items() if "split_digits" in one.settings}
    given = sweep.jobs(Selection(rows=(*SINGLE, "joint_unit"), scenario="class_incremental"))
    assert {job.stream["scenario"] for job in given} == {"class_incremental"}


def test_every_row_is_a_job_with_the_selected_stream_and_preset():
    rows = ("sgd", "replay", "protocl", "joint")
    jobs = sweep.jobs(Selection("split_cifar10", "task_incremental", rows=rows))
    assert tuple(job.row for job in jobs) == rows and len({str(job.identity("data")) for job in jobs}) == len(rows)
    assert {(job.stream["dataset"], job.stream["scenario"]) for job in jobs} == {("split_cifar10", "task_incremental")}
    assert {(job.preset, job.changes, job.table) for job in jobs} == {("quick", "", "split_cifar10")}


@pytest.mark.parametrize("row", ["protocl", "sgd_multi_head_long", "vcl_ddm", "joint"])
@pytest.mark.parametrize("change", [{"learning_rate": 0.5}, {"epochs": 7}, {"batch_size": 9}])
def test_a_change_is_tabulated_apart_and_one_that_changes_nothing_is_none(row, change):
    plain = Selection("split_mnist", preset="paper", rows=(row,))
    (before,) = sweep.jobs(plain)
    (changed,) = sweep.jobs(replace(plain, changes=change))
    assert (before.preset, before.changes) == ("paper", "")
    assert (changed.preset, changed.changes) == ("paper", runs.written(change))
    assert not changed.matches(before.identity("data"))
    (value,) = (getattr(before.method, name) for name in change)
    (same,) = sweep.jobs(replace(plain, changes=dict.fromkeys(change, value)))
    assert same == before


def test_a_change_reaches_those_rows_alone_that_take_it():
    first, second = sweep.jobs(Selection(rows=("sgd", "vcl_coreset"), changes={"coreset_per_task": 0}))
    assert first.changes == "" and second.changes == "coreset_per_task=0"  # told, for it is VCL without a coreset
    for same in ({"scaling": "standard"}, {"validation_seed": 0}, {"num_tasks": None}):
        (told,), (plain,) = (sweep.jobs(Selection(rows=("sgd",), changes=changes)) for changes in (same, {}))
        assert told.changes == "" and told.identity("data") == plain.identity("data")
    streams = sweep.jobs(Selection(rows=("sgd",), changes={"num_tasks": 2, "train_sizes": (20, 20), "train_seed": 3}))
    assert streams[0].changes == "num_tasks=2 train_sizes=20,20" and streams[0].stream["train_seed"] == 3


def test_tuning_sees_no_test_data_and_final_runs_all_training_data():
    (validated,) = sweep.jobs(Selection(rows=("protocl",), split="validation"))
    assert validated.stream["eval_split"] == "validation" and validated.stream["validation_fraction"] == 0.1
    assert validated.named["split"] == "validation" and validated.table == "split_digits-validation"
    (final,) = sweep.jobs(Selection(rows=("protocl",)))
    assert "validation_fraction" not in final.stream and final.named["split"] == "test"
    (published,) = sweep.jobs(Selection(rows=("protocl_as_published",), split="validation"))
    assert published.stream["validation_fraction"] == 0.2  # the release's own


def test_the_seeds_and_the_device_are_no_part_of_what_is_stored():
    few = sweep.stored(Selection("split_mnist", "class_incremental", "paper", seeds=(0,), rows=("replay", "joint")))
    assert set(few.seed) == set(range(10)) and set(few.row) == {"replay", "joint"}
    assert set(few[runs.NAMES[1:]].drop_duplicates().itertuples(index=False, name=None)) == {
        ("split_mnist", "class_incremental", "test", "paper", "")
    }


def settings_of(identity, row):
    """The changes of a selection that finds an identity, one and all."""
    own = identity["method"][2] | {n: v for n, v in identity["stream"].items() if n not in ("dataset", "scenario")}
    own = {name: tuple(v) if isinstance(v, list) else v for name, v in own.items()}
    return {name: value for name, value in own.items() if name in ROWS[row].takes}


@pytest.mark.parametrize("table", runs.table_names())
def test_every_stored_run_is_reachable_from_a_selection(table):
    frame, sources, lines = runs.stored(table), runs.provenance(table), 0
    for group, part in frame.groupby([*runs.NAMES, "key"], sort=False):
        name = dict(zip(runs.NAMES, group, strict=False))
        changes = settings_of(sources[group[-1]]["identity"], name["row"])
        chosen = Selection(
            name["dataset"], name["scenario"], "paper", name["split"], rows=(name["row"],), changes=changes
        )
        (job,) = sweep.jobs(chosen)
        assert (job.changes, job.named["split"]) == (name["changes"], name["split"])  # the name tells the settings
        found = runs.find(job)
        mine = found[found.key == group[-1]]
        assert len(mine) == len(part) and np.isclose(mine.value.sum(), part.value.sum())
        lines += len(part)
    assert lines == len(frame) > 0


def test_what_is_missing_is_told_by_row_and_seed():
    chosen = Selection("split_mnist", "class_incremental", "paper", seeds=(8, 9, 10), rows=("replay", "joint"))
    left = plan.Piece(chosen).missing().selection
    assert (left.rows, left.seeds) == (("replay", "joint"), (10,))
    assert plan.Piece(replace(chosen, seeds=(0, 1))).missing() is None
    assert plan.Piece(replace(chosen, changes={"epochs": 77})).missing().selection.seeds == (8, 9, 10)


def test_rows_without_settings_or_without_the_scenario_are_no_part_of_the_paper_s_scale():
    found = sweep.stored_at_paper_scale("split_mnist", shown_in("tables"), "task_incremental")
    assert found.empty
    assert sweep.stored_at_paper_scale("split_cifar10", ("vcl_single_head",)).empty


def test_rows_run_side_by_side_and_their_scores_are_probabilities():
    """Every row on digits for one epoch, with two seeds."""
    table = sweep.run(Selection(seeds=(0, 1), changes={"epochs": 1}))
    assert list(table.columns) == runs.COLUMNS and set(table.row) == set(Selection().rows)
    found = {name: tables.matrices_of(part)[1] for name, part in table.groupby("row")}
    for name, a in found.items():
        num_tasks = 2 if name.startswith("imbalance") else 5
        assert a.shape == (2, num_tasks, num_tasks)
        inside = a[:, np.tri(num_tasks, dtype=bool)]
        assert ((inside >= 0) & (inside <= 1)).all()
    nll = table[table.metric == "nll"]
    assert (nll.value >= 0).all()


def test_a_diverged_row_ends_nothing():
    """The rows beside it and after it are run, and its seeds are told as diverged."""
    chosen = Selection(rows=("sgd", "protocl", "replay"), seeds=(0, 1), changes={"learning_rate": 1e3, "epochs": 1})
    line = tables.summary(sweep.run(chosen)).set_index("row")
    assert list(line.index) == ["sgd", "protocl", "replay"]
    assert ((line.n + line.diverged) == 2).all() and line.diverged.sum() > 0
    assert line.final_accuracy.isna().equals(line.n == 0)


def test_several_selections_are_one_table():
    chosen = [Selection(rows=(row,), seeds=(0,), changes={"epochs": 1}) for row in ("sgd", "joint")]
    both = sweep.run(chosen)
    pd.testing.assert_frame_equal(both, sweep.run(replace(chosen[0], rows=("sgd", "joint"))))
    assert sweep.stored([]).empty and list(sweep.stored([]).columns) == runs.COLUMNS


def test_a_look_at_cifar_has_one_seed_unless_more_are_asked_for():
    live = Selection(scenario="class_incremental", rows=("sgd", "protocl"))
    for values, seeds in (
        ({"dataset": "split_cifar100", "seeds": None}, (0,)),
        ({"dataset": "split_cifar100"}, (0,)),
        ({"dataset": "split_cifar100", "seeds": "0:2"}, (0, 1)),
        ({"dataset": "split_cifar100", "preset": "paper", "seeds": None}, (0, 1, 2)),
        ({"seeds": None}, (0, 1, 2)),
    ):
        assert selection_from(live, values).seeds == seeds


@pytest.mark.parametrize("dataset", CIFARS)
def test_a_look_at_cifar_is_called_one_and_the_paper_s_size_is_not(dataset):
    rows = ("protocl", "replay", "joint", "sgd")
    assert sweep.title(Selection(dataset, rows=rows)).endswith(", a look:\n5 tasks of 400 training points")
    assert sweep.title(Selection(dataset, preset="paper", rows=rows)) == LABELS[dataset]
