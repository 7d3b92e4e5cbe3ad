"""The tuned settings are the ones that the stored trials chose, and the budget is the same for both methods."""

import pytest

from paper_lib import runs
from paper_lib.experiments import protocl, protocl_tuning


@pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_reported_settings_won_the_final_round(method, dataset):
    stated = {"protocl": protocl.PROTOCL, "replay": protocl.REPLAY}[method][dataset]
    assert stated == protocl_tuning.best(method, dataset)


@pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_all_of_the_budget_was_tried_and_the_best_went_on(method, dataset):
    rounds = {name: protocl_tuning.ranking(method, dataset, name) for name in protocl_tuning.ROUNDS}
    for name in ("screen", "refine"):
        assert sorted(rounds[name].trial) == list(protocl_tuning.trials(method, dataset, name))
    first = rounds["screen"].merge(rounds["refine"], how="outer").nlargest(protocl_tuning.FINALISTS, "final_accuracy")
    assert set(rounds["final"].trial) == set(first.trial)


@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_refinements_change_two_settings_of_the_winner(method):
    winner = protocl_tuning.screened(method)[protocl_tuning.ranking(method, "split_mnist", "screen").trial[0]]
    pairs = [n for names in protocl_tuning.GRIDS[method] if isinstance(names, tuple) for n in names[1:]]
    for candidate in protocl_tuning.refined(method, "split_mnist"):
        changed = {name for name in candidate if candidate[name] != winner[name]}
        assert 1 <= len(changed - set(pairs)) <= 2


def test_trials_saw_validation_data_only():
    table = runs.stored("protocl_tuning")
    sources = runs.provenance("protocl_tuning")
    assert {sources[key]["identity"]["stream"]["eval_split"] for key in table.key} == {"validation"}
    reported = runs.stored("protocl")
    assert not set(reported.seed) & set(table.seed)


@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_every_value_is_tried_about_equally_often(method):
    drawn = protocl_tuning.screened(method)
    for name, values in protocl_tuning.SHARED.items():
        counts = [sum(settings[name] == value for settings in drawn) for value in values]
        assert max(counts) - min(counts) <= 1
