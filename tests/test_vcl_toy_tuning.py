"""VCL's toy settings are those that the stored validation trials chose."""

import pytest

from paper_lib import runs, sweep
from paper_lib.experiments import vcl_toy_tuning
from paper_lib.rows import ROWS, TOYS, VCL_SETTINGS
from paper_lib.sweep import Selection

each_dataset = pytest.mark.parametrize("dataset", vcl_toy_tuning.DATASETS)


@each_dataset
def test_reported_settings_won_on_validation_data(dataset):
    for stated in (VCL_SETTINGS[dataset], *(ROWS[row].settings[dataset] for row in vcl_toy_tuning.ROWS)):
        assert {name: stated[name] for name in vcl_toy_tuning.GRID} == vcl_toy_tuning.best(dataset)
    ranking = vcl_toy_tuning.ranking(dataset)
    assert sorted(ranking.trial) == list(range(len(vcl_toy_tuning.TRIALS))) and set(ranking.n) == {2}
    assert ranking.score.is_monotonic_decreasing


@each_dataset
def test_trials_saw_neither_test_data_nor_reported_seeds(dataset):
    table, sources = runs.stored(f"{dataset}-validation"), runs.provenance(f"{dataset}-validation")
    assert {sources[key]["identity"]["stream"]["eval_split"] for key in table.key} == {"validation"}
    assert set(table.seed) == set(vcl_toy_tuning.SEEDS)
    assert not set(runs.stored(dataset).seed) & set(table.seed)


@each_dataset
def test_trials_differ_from_the_reported_row_in_the_grid_alone(dataset):
    jobs = [job for trial in range(len(vcl_toy_tuning.TRIALS)) for job in trial_jobs(dataset, trial)]
    assert len({str(job.identity("data")) for job in jobs}) == 2 * len(vcl_toy_tuning.TRIALS) == 12
    reported = {job.row: job for job in sweep.jobs(Selection(dataset, None, "paper", rows=vcl_toy_tuning.ROWS))}
    for job in jobs:
        mine = reported[job.row]
        changed = {n for n, v in vars(job.method).items() if v != getattr(mine.method, n)}
        assert changed <= set(vcl_toy_tuning.GRID)
        assert job.stream["scenario"] == mine.stream["scenario"]


def trial_jobs(dataset, trial):
    return sweep.jobs(vcl_toy_tuning.selection(dataset, trial))


def test_only_the_toys_are_tuned():
    assert vcl_toy_tuning.DATASETS == TOYS == ("toy_pan", "toy_gaussians")
