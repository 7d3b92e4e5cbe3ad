"""Rows: each builds wherever it has settings, none looks like another, and settings are those of the paper."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from paper_lib.data.stream import DATASETS, SCENARIOS, make_stream, serves
from paper_lib.methods.protocl import ProtoCL
from paper_lib.methods.sequential_hmc import SequentialHMC
from paper_lib.methods.vcl import VCL, ddm, improved
from paper_lib.rows import CIFARS, HEAD_A_TASK, MNISTS, ONE_HEAD, ROWS, STREAM_OPTIONS, TOYS, row, shown_in, takers
from paper_lib.sweep import PRESETS, Selection, jobs

PAIRS = [(name, dataset) for name, one in ROWS.items() for dataset in one.settings]
ONE_HEAD_ROWS = ("sgd_single_head", "sgd_single_head_long", "vcl_single_head")
MANY_HEADS = (
    *("sgd_multi_head", "sgd_multi_head_long", "sgd_multi_head_reference"),
    *("vcl_multi_head", "vcl_multi_head_reference", "vcl_ddm", "vcl_improved"),
)
MEMORY = (
    *("protocl", "protocl_paper_epochs", "protocl_calibrated", "protocl_as_published"),
    *("protocl_no_memory", "protocl_no_memory_paper_epochs"),
    *("replay", "replay_calibrated", "joint_calibrated", "joint", "sgd"),
)


def method(name, dataset="split_mnist", preset="paper", **changes):
    return ROWS[name].build(dataset, preset, changes)[0]


@pytest.mark.parametrize(("name", "dataset"), PAIRS)
def test_every_row_builds_on_its_data_sets_in_every_preset(name, dataset):
    one = ROWS[name]
    assert one.name == name and dataset in DATASETS and set(one.scenarios) <= set(SCENARIOS)
    assert any(serves(dataset, scenario) for scenario in one.scenarios)
    for preset in PRESETS:
        built, stream = one.build(dataset, preset, {})
        assert {"init", "learn", "predict", "VERSION"} <= set(dir(built))
        assert set(stream) <= set(STREAM_OPTIONS)
    quick, paper = (one.build(dataset, preset, {})[0] for preset in ("quick", "paper"))
    if isinstance(paper, SequentialHMC):
        assert quick.sampler().num_iterations <= paper.sampler().num_iterations
        return
    quick, paper = (np.sum(getattr(m, "epochs", 0)) for m in (quick, paper))  # a method need not have any
    assert quick <= paper


@pytest.mark.parametrize("dataset", DATASETS)
def test_settings_and_quick_changes_are_of_data_sets_that_are_there(dataset):
    assert any(dataset in one.settings for one in ROWS.values())
    for one in ROWS.values():
        assert set(one.settings) <= set(DATASETS)
        assert set(one.quick.get(dataset, {})) <= set(one.takes)


def test_no_two_rows_are_drawn_alike_where_they_are_drawn_together():
    exhibits = {name for one in ROWS.values() for name in one.exhibits}
    for exhibit in exhibits:
        styles = [ROWS[name].style for name in shown_in(exhibit)]
        assert len({style[1:] for style in styles}) == len(styles), exhibit
        assert len({style.label for style in styles}) == len(styles), exhibit


def test_no_two_rows_are_one_run():
    """Every row of a data set has an identity of its own, in both presets and in each scenario of its own."""
    for dataset in ("split_digits", *MNISTS, *CIFARS, *TOYS):
        for preset in PRESETS:
            names = [n for n, one in ROWS.items() if dataset in one.settings]
            names = [n for n in names if any(serves(dataset, s) for s in ROWS[n].scenarios)]
            # on the toys VCL's batches are full in every row, so rows that take full batches are the plain ones
            names = [n for n in names if not (dataset in TOYS and n == "sgd_multi_head_reference")]
            # HMC adapts in every row of the quick preset, so that chains move at all
            names = [n for n in names if not (preset == "quick" and n == "hmc_adapted")]
            # and ProtoCL's epochs were tuned on the MNISTs alone
            names = [n for n in names if dataset in MNISTS or "paper_epochs" not in n]
            found = {}
            for job in jobs(Selection(dataset, None, preset, rows=tuple(names))):
                found.setdefault(str(job.identity("data")), []).append(job.row)
            assert [rows for rows in found.values() if len(rows) > 1] == []


def test_the_heads_of_a_row_say_which_scenarios_it_serves_and_its_own_comes_first():
    for name in ONE_HEAD_ROWS:
        assert set(ROWS[name].scenarios) == {"domain_incremental", "class_incremental"}
    for name in MANY_HEADS:
        assert ROWS[name].scenarios == ("task_incremental",)
    figure_1 = jobs(Selection("split_digits", rows=shown_in("figure_1")))
    own = {job.row: job.stream["scenario"] for job in figure_1}
    assert {own[name] for name in MANY_HEADS} == {"task_incremental"}
    assert {own[name] for name in own if name not in MANY_HEADS} == {"domain_incremental"}
    assert {job.stream["scenario"] for job in jobs(Selection("split_digits", rows=MEMORY))} == {"class_incremental"}
    assert HEAD_A_TASK == ("task_incremental",) and set(ONE_HEAD) == set(SCENARIOS) - set(HEAD_A_TASK)


def test_tables_1_and_2_and_figure_1_show_their_rows():
    assert set(MEMORY) | {"vcl_single_head", "vcl_coreset", "vcl_coreset_k_centre"} <= set(shown_in("tables"))
    assert {*ONE_HEAD_ROWS, *MANY_HEADS, "joint_unit", "single_task"} == set(shown_in("figure_1"))
    assert shown_in("tables")[0] == "sgd" and shown_in("tables")[-1] == "joint"  # the bounds are outermost
    assert {"sgd", "replay", "replay_calibrated", "joint_calibrated", "joint"} == {
        n for n in MEMORY if not isinstance(method(n), ProtoCL)
    }


# --- settings of the reference


@pytest.mark.parametrize("dataset", MNISTS)
def test_figure_1_has_the_reference_s_settings(dataset):
    rows = {name: method(name, dataset) for name in (*shown_in("figure_1"), "vcl_coreset", "vcl_coreset_k_centre")}
    assert rows.pop("vcl_ddm") == ddm() and rows.pop("vcl_improved") == improved()
    for name, made in rows.items():
        assert made.hidden == (200, 200) and made.learning_rate == 1e-3
        if name.startswith("vcl"):
            shown = (made.batch_size, made.epochs, made.num_samples, made.num_samples_predict)
            assert shown == (None if name == "vcl_multi_head_reference" else 256, 100, 10, 100)
        else:
            long = {"sgd_single_head_long": 256, "sgd_multi_head_long": 256, "sgd_multi_head_reference": None}
            assert (made.batch_size, made.epochs) == ((long[name], 100) if name in long else (128, 10))
        assert ROWS[name].build(dataset, "paper", {})[1] == {"scaling": "unit"}
    kept = {name: (m.coreset_per_task, m.coreset_selection) for name, m in rows.items() if "coreset" in name}
    assert kept == {"vcl_coreset": (200, "random"), "vcl_coreset_k_centre": (200, "k_centre")}
    assert rows["vcl_single_head"].coreset_per_task == rows["vcl_multi_head"].coreset_per_task == 0
    assert rows["joint_unit"].memory_per_task is None and rows["joint_unit"].restart
    assert rows["single_task"].memory_per_task == 0 and rows["single_task"].restart


@pytest.mark.parametrize(
    ("name", "dataset", "shown"),
    [
        # Sec. 7 and App. I: 50 epochs, 200 points a task, two layers; CIFAR: 80 epochs, embeddings of 32
        ("protocl_paper_epochs", "split_mnist", {"epochs": 50, "batch_size": 64, "memory_per_task": 200}),
        ("protocl_paper_epochs", "split_fmnist", {"epochs": 50, "batch_size": 128, "memory_per_task": 200}),
        ("protocl", "split_cifar10", {"epochs": 80, "embedding_dim": 32, "network": "cifarnet", "learning_rate": 1e-3}),
        ("protocl", "split_cifar100", {"epochs": 80, "embedding_dim": 32, "network": "cifarnet"}),
        ("replay", "split_mnist", {"memory_per_task": 200, "batch_size": 64, "restart": False}),
        ("protocl_no_memory", "split_mnist", {"memory_per_task": 0, "batch_size": 64, "epochs": 6}),
        ("protocl_no_memory_paper_epochs", "split_mnist", {"memory_per_task": 0, "batch_size": 64, "epochs": 50}),
        # the release's README: 784-256-128, dropout 0.1 and 0.0, weight decay 1e-4 and 1e-2, 1000 points in all
        (
            "protocl_as_published",
            "split_mnist",
            {"epochs": 50, "batch_size": 64, "hidden": (256,), "embedding_dim": 128, "learning_rate": 1e-4}
            | {"dropout": 0.1, "weight_decay": 1e-4, "memory_total": 1000},
        ),
        ("protocl_as_published", "split_cifar10", {"embedding_dim": 32, "batch_size": 128, "learning_rate": 1e-3}),
        ("protocl_as_published", "split_cifar10_100", {"embedding_dim": 250, "batch_size": 32, "epochs": 200}),
        (
            "protocl_as_published",
            "split_fmnist",
            {"epochs": 50, "batch_size": 128, "dropout": 0.0, "weight_decay": 1e-2, "memory_total": 1000},
        ),
    ],
)
def test_protocl_has_the_paper_s_and_the_release_s_settings(name, dataset, shown):
    made = method(name, dataset)
    assert {setting: getattr(made, setting) for setting in shown} == shown


@pytest.mark.parametrize("dataset", ["split_digits", *MNISTS, "split_cifar10", "split_cifar10_100"])
def test_as_published_learns_what_the_release_s_split_leaves(dataset):
    _, stream = ROWS["protocl_as_published"].build(dataset, "paper", {})
    assert stream["validation_fraction"] == pytest.approx(1 / 6 if dataset in MNISTS else 0.2)


@pytest.mark.parametrize("dataset", ["split_digits", *MNISTS, *CIFARS])
def test_the_network_is_cifarnet_on_cifar_alone(dataset):
    for name in MEMORY:
        if dataset in ROWS[name].settings:
            made = method(name, dataset)
            assert isinstance(made, ProtoCL) == name.startswith("protocl")
            assert ("cifar" in dataset) == (made.network == "cifarnet")
    missing = {name for name in MEMORY if dataset not in ROWS[name].settings}
    untuned = {"joint_calibrated"} if dataset in CIFARS else set()
    assert missing - untuned == ({"protocl_as_published"} if dataset == "split_cifar100" else set())  # broken there
    assert missing >= untuned


# --- changes


@pytest.mark.parametrize("name", [*MEMORY, *ONE_HEAD_ROWS, *MANY_HEADS, "vcl_coreset", "imbalance_vcl"])
@pytest.mark.parametrize("change", [{"learning_rate": 0.5}, {"epochs": 7}, {"batch_size": 9}])
def test_a_change_changes_its_setting_alone(name, change):
    plain = method(name)
    assert method(name, **change) == replace(plain, **change)


def test_the_bounds_remember_everything_and_nothing_whatever_is_changed():
    shared = {"protocl_as_published"}  # by all tasks
    kept = {name: method(name, memory_per_task=7).memory_per_task for name in MEMORY if name not in shared}
    assert kept["protocl"] == kept["replay"] == 7
    assert kept["sgd"] == kept["protocl_no_memory"] == 0 and kept["joint"] is None
    assert method("joint", restart=False).restart
    assert method("protocl_as_published", memory_total=35).memory_total == 35
    for name, changes in (("protocl_as_published", {}), ("protocl", {"memory_total": 35})):
        with pytest.raises(ValueError, match=r"memory_per_task=7 plays no part in row .* beside memory_total="):
            method(name, memory_per_task=7, **changes)


def test_a_change_of_the_coreset_leaves_rows_without_one_alone():
    for name, one in ROWS.items():
        if "vcl" in name:
            built, plain = method(name, coreset_per_task=7), method(name)
            taken = name.startswith("vcl_coreset") or name in ("vcl_ddm", "vcl_improved")
            assert built == (replace(plain, coreset_per_task=7) if taken else plain)
            assert taken == ("coreset_per_task" in one.takes)


def test_a_change_of_the_stream_is_none_of_the_method():
    built, stream = ROWS["replay"].build("split_mnist", "paper", {"num_tasks": 2, "train_sizes": (20, 20)})
    assert built == method("replay") and stream == {"num_tasks": 2, "train_sizes": (20, 20)}
    make_stream("split_digits", **stream)


def test_what_a_row_takes_is_all_but_what_defines_it():
    for one in ROWS.values():
        fixed = one.make.keywords if isinstance(one.make, partial) else {}
        assert not set(fixed) & set(one.takes) and set(STREAM_OPTIONS) <= set(one.takes)
    assert "coreset_selection" not in ROWS["vcl_coreset_k_centre"].takes
    assert takers("coreset_per_task") == [name for name, one in ROWS.items() if "coreset_per_task" in one.takes]
    assert {"vcl_coreset", "vcl_coreset_k_centre", "vcl_ddm", "vcl_improved"} <= set(takers("coreset_per_task"))
    assert not {"vcl_single_head", "sgd", "replay"} & set(takers("coreset_per_task"))
    with pytest.raises(ValueError, match=r"there is no setting 'epoch' \(did you mean 'epochs'\?\)"):
        takers("epoch")


def test_a_row_or_a_data_set_that_is_not_there_is_named_with_what_is():
    with pytest.raises(ValueError, match=r"rows='replya' is not one of .* \(did you mean 'replay'\?\)"):
        row("replya")
    with pytest.raises(ValueError, match="row 'vcl_single_head' has no settings on dataset='split_cifar10'; it has"):
        ROWS["vcl_single_head"].build("split_cifar10", "paper", {})
    assert isinstance(method("vcl_single_head"), VCL)
