"""VCL's toy settings are those that the stored validation trials chose."""

import pytest

from paper_lib import runs
from paper_lib.experiments import vcl_split_mnist, vcl_toy_tuning


@pytest.mark.parametrize("dataset", vcl_toy_tuning.DATASETS)
def test_reported_settings_won_on_validation_data(dataset):
    stated = vcl_split_mnist.VCL_SETTINGS[dataset]
    assert {name: stated[name] for name in vcl_toy_tuning.GRID} == vcl_toy_tuning.best(dataset)
    ranking = vcl_toy_tuning.ranking(dataset)
    assert sorted(ranking.trial) == list(range(len(vcl_toy_tuning.TRIALS))) and set(ranking.n) == {2}
    assert ranking.score.is_monotonic_decreasing


def test_trials_saw_neither_test_data_nor_reported_seeds():
    table, sources = runs.stored("vcl_toy_tuning"), runs.provenance("vcl_toy_tuning")
    assert {sources[key]["identity"]["stream"]["eval_split"] for key in table.key} == {"validation"}
    assert not set(runs.stored("vcl_split_mnist").seed) & set(table.seed)


def test_trials_differ_from_the_reported_row_in_the_grid_alone():
    jobs = vcl_toy_tuning.jobs(vcl_toy_tuning.Config(dataset="toy_gaussians"))
    assert len({str(job.identity("data")) for job in jobs}) == 2 * len(vcl_toy_tuning.TRIALS)
    for job in jobs:
        row = job.label.rsplit("-", 1)[0]
        paper = vcl_split_mnist.Config(dataset="toy_gaussians", preset="paper", methods=(row,))
        (reported,) = vcl_split_mnist.jobs(paper)
        changed = {n for n, v in vars(job.method).items() if v != getattr(reported.method, n)}
        assert changed <= set(vcl_toy_tuning.GRID)
        assert job.stream["scenario"] == reported.stream["scenario"]


def test_only_the_toys_are_tuned():
    with pytest.raises(ValueError, match=r"split_mnist.*not one of toy_pan, toy_gaussians"):
        vcl_toy_tuning.Config(dataset="split_mnist")
