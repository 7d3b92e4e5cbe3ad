"""Experiments: what a configuration refuses, what its rows are, and that every row runs."""

import os
from dataclasses import replace

import numpy as np
import pytest

from paper_lib import metrics, runs
from paper_lib.experiments import protocl
from paper_lib.experiments.protocl import Config
from paper_lib.methods.protocl import ProtoCL


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(runs.FOLDER_VARIABLE, os.fspath(tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "near"),
    [
        ("dataset", "split_minst", "split_mnist"),
        ("dataset", "toy_gaussians", None),
        ("scenario", "class-incremental", "class_incremental"),
        ("preset", "papr", "paper"),
        ("eval_split", "valid", "validation"),
        ("methods", ("replay", "protcl"), "protocl"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed_and_a_near_match(field, value, near):
    named = value[-1] if isinstance(value, tuple) else value
    message = f"{field}='{named}' is not one of .*" + (rf"\(did you mean '{near}'\?\)" if near else "")
    with pytest.raises(ValueError, match=message):
        Config(**{field: value})


def test_every_row_is_a_job_with_its_own_key_and_the_configured_stream():
    jobs = protocl.jobs(Config(dataset="split_mnist", methods=protocl.ROWS, scenario="task_incremental"))
    assert tuple(job.label for job in jobs) == protocl.ROWS
    assert len({str(job.identity("data")) for job in jobs}) == len(jobs)
    assert {job.stream["scenario"] for job in jobs} == {"task_incremental"}
    assert {job.preset for job in jobs} == {"quick"}


def test_the_bounds_remember_everything_and_nothing_whatever_is_overridden():
    config = Config(memory_per_task=7)
    kept = {row: getattr(protocl.method(row, config), "memory_per_task") for row in protocl.ROWS}  # noqa: B009
    assert kept["protocl"] == kept["replay"] == 7
    assert kept["sgd"] == kept["protocl_no_memory"] == 0 and kept["joint"] is None
    assert protocl.method("joint", config).restart


@pytest.mark.parametrize("row", protocl.ROWS)
def test_an_override_changes_its_field_alone_and_is_tabulated_apart(row):
    plain = Config(preset="paper", methods=(row,))
    changed = replace(plain, learning_rate=0.5)
    assert protocl.method(row, changed) == replace(protocl.method(row, plain), learning_rate=0.5)
    assert protocl.jobs(plain)[0].preset == "paper" and protocl.jobs(changed)[0].preset == "paper+overrides"


def test_tuning_sees_no_test_data_and_final_runs_all_training_data():
    (validated,) = protocl.jobs(Config(methods=("protocl",), eval_split="validation"))
    assert validated.stream["eval_split"] == "validation" and validated.stream["validation_fraction"] == 0.1
    assert validated.preset == "quick, validation"
    (final,) = protocl.jobs(Config(methods=("protocl",)))
    assert "validation_fraction" not in final.stream


@pytest.mark.parametrize("dataset", list(protocl.PROTOCL))
def test_every_data_set_has_settings_of_every_row(dataset):
    rows = protocl.ROWS if dataset != "split_cifar100" else [r for r in protocl.ROWS if r != "protocl_as_published"]
    for preset in protocl.PRESETS:
        for row in rows:
            method = protocl.method(row, Config(dataset=dataset, preset=preset))
            assert isinstance(method, ProtoCL) == row.startswith("protocl")
            assert ("cifar" in dataset) == (method.network == "cifarnet")


def accuracies(table):
    """Row to its accuracy matrices ``(seed, task_trained, task_tested)``."""
    return {row: metrics.accuracy_matrices(part)[1] for row, part in table.groupby("method", sort=False)}


def test_every_row_runs_and_its_scores_are_probabilities():
    table = protocl.run(Config(methods=protocl.ROWS, seeds=(0, 1), epochs=1))
    assert list(table.columns) == runs.COLUMNS and set(table.experiment) == {"protocl"}
    found = accuracies(table)
    assert list(found) == list(protocl.ROWS)
    for matrix in found.values():
        assert matrix.shape == (2, 5, 5)
        inside = matrix[:, np.tri(5, dtype=bool)]
        assert ((inside >= 0) & (inside <= 1)).all()


def test_the_quick_preset_shows_the_claim():
    """Prototypes with memory beat chance threefold and beat training without memory."""
    found = accuracies(protocl.run(Config(methods=("protocl", "sgd"), seeds=(0,))))
    final = {row: metrics.final_accuracy(matrix)[0] for row, matrix in found.items()}
    assert final["protocl"] > 0.3 and final["protocl"] > final["sgd"]
