"""The budget of calibration is the same for every method, and the reported settings are what its trials chose."""

import shlex
from dataclasses import asdict
from itertools import combinations

import pytest

from paper_lib import cli, tables
from paper_lib.experiments import calibration
from paper_lib.methods.protocl import ProtoCL
from paper_lib.notebook import selection_from
from paper_lib.plan import load
from paper_lib.rows import MNISTS, ROWS
from paper_lib.sweep import Selection, jobs

each_dataset = pytest.mark.parametrize("dataset", MNISTS)
each_method = pytest.mark.parametrize("method", calibration.METHODS)


def test_both_methods_take_the_same_trials_and_so_as_many_steps():
    mine, other = calibration.trials("protocl"), calibration.trials("replay")
    assert len(mine) == len(other) == calibration.TRIALS + 1
    common = {"learning_rate", "epochs", "oversample", "replay_weight", "weight_decay", "label_smoothing"}
    for a, b in zip(mine, other, strict=True):
        assert {name: a[name] for name in common} == {name: b[name] for name in common}
        assert a["dropout"][:2] == (b["dropout"],) * 2 and set(b) == common | {"dropout"}
        assert set(a) == set(b) | {"class_prior", "noise_var", "learn_noise_var", "forget", "evidence_mode"}


@pytest.mark.parametrize("method", ["protocl", *calibration.BASELINES])
def test_every_value_is_tried_about_equally_often_and_no_two_trials_are_near_another(method):
    drawn, grid = calibration.trials(method)[1:], calibration.BASELINES.get(method, calibration.GRID)
    if method == "protocl":
        drawn = [{"embedding_dropout": t["dropout"][2], **t, "dropout": t["dropout"][0]} for t in drawn]
    columns = [[tuple(t[n] for n in names) if isinstance(names, tuple) else t[names] for t in drawn] for names in grid]
    for column, values in zip(columns, grid.values(), strict=True):
        counts = [column.count(value) for value in values]
        assert sum(counts) == calibration.TRIALS and max(counts) - min(counts) <= 1
    trials = list(zip(*columns, strict=True))
    least = 3 if method == "protocl" else 2
    assert all(sum(a != b for a, b in zip(*pair, strict=True)) >= least for pair in combinations(trials, 2))


@each_dataset
@pytest.mark.parametrize("method", calibration.BASELINES)
def test_a_baseline_has_replays_budget_and_its_references_settings_for_a_start(method, dataset):
    trials, replays = calibration.trials(method), calibration.trials("replay")
    assert len(trials) == len(replays) and max(t["epochs"] for t in trials) == max(t["epochs"] for t in replays)
    reference = asdict(ROWS[method].build(dataset, "paper", {})[0])
    assert {k for k, v in trials[0].items() if v != reference[k]} <= {"epochs", "likelihood_epochs"}
    assert trials[0]["epochs"] == calibration.LONGEST


@each_method
@each_dataset
def test_a_trial_is_what_its_command_line_runs_on_validation_data(method, dataset):
    for trial, one in zip(calibration.trials(method), calibration.selections(method, dataset, "drawn"), strict=True):
        words = shlex.split(tables.command(one))
        told = selection_from(Selection(), cli._assignments(words[2:]))
        (job,), (same,) = jobs(one), jobs(told)
        assert job.identity("") == same.identity("") and (one.split, one.seeds) == ("validation", (100,))
        assert {name: getattr(job.method, name) for name in trial} == trial
        memory = {"sfsvi": "coreset_per_task", "hibnn": None}.get(method, "memory_per_task")
        assert memory is None or getattr(job.method, memory) == (None if method == "joint" else 200)
        assert isinstance(job.method, ProtoCL) == (method == "protocl")
        untuned = ROWS[method].build(dataset, "paper", {})[0]
        assert "batch_size" in trial or job.method.batch_size == untuned.batch_size


@each_dataset
@pytest.mark.parametrize("method", ["protocl", "replay", *calibration.BASELINES])
def test_reported_settings_won_the_final_stage(method, dataset):
    assert ROWS[f"{method}_calibrated"].settings[dataset] == calibration.best(method, dataset)
    drawn, final = (calibration.ranking(method, dataset, stage) for stage in ("drawn", "final"))
    assert set(drawn.trial[: calibration.FINALISTS]) == set(final.trial) and set(final.n) == {2}
    assert (final.score.diff().dropna() <= 0).all()


@each_dataset
def test_joint_training_has_the_settings_of_its_best_trial(dataset):
    assert ROWS["joint_calibrated"].settings[dataset] == calibration.best("joint", dataset)
    trials = calibration.ranking("joint", dataset, "drawn")
    assert set(trials.trial) == set(range(8)) and trials.score[0] > trials.score[1:].max()


@each_method
def test_all_trials_are_planned(method):
    planned = load("paper").selections
    for dataset in MNISTS:
        assert all(one in planned for one in calibration.selections(method, dataset, "drawn"))
