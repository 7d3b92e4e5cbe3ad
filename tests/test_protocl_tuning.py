"""The tuned settings are the ones that the stored trials chose, and the budget is the same for both methods."""

from dataclasses import replace
from itertools import combinations

import pytest

from paper_lib import runs
from paper_lib.experiments import protocl, protocl_tuning
from paper_lib.methods.protocl import ProtoCL


@pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_reported_settings_won_the_final_round(method, dataset):
    stated = {"protocl": protocl.PROTOCL, "replay": protocl.REPLAY}[method][dataset]
    assert stated == protocl_tuning.best(method, dataset)


@pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_all_of_the_budget_was_tried_and_the_best_went_on(method, dataset):
    rounds = {name: protocl_tuning.ranking(method, dataset, name) for name in protocl_tuning.SEEDS}
    for name in ("screen", "refine"):
        assert sorted(rounds[name].trial) == list(protocl_tuning.trials(method, dataset, name))
    first = rounds["screen"].merge(rounds["refine"], how="outer").nlargest(protocl_tuning.FINALISTS, "score")
    assert set(rounds["final"].trial) == set(first.trial)


def test_refinements_of_replay_change_two_settings_of_the_winner():
    winner = protocl_tuning.screened("replay")[protocl_tuning.ranking("replay", "split_mnist", "screen").trial[0]]
    tried = protocl_tuning.refined("replay", "split_mnist")
    for candidate in tried:
        changed = {name for name in candidate if candidate[name] != winner[name]}
        assert 1 <= len(changed - {"oversample"}) <= 2
    assert len({str(c) for c in [*tried, winner]}) == protocl_tuning.REFINED + 1


def test_refinements_of_protocl_combine_what_the_screen_left_alone():
    screened = protocl_tuning.screened("protocl")
    winner = ProtoCL(**screened[protocl_tuning.ranking("protocl", "split_mnist", "screen").trial[0]])
    tried = [ProtoCL(**settings) for settings in protocl_tuning.refined("protocl", "split_mnist")]
    assert len(set(tried)) == protocl_tuning.REFINED and winner not in tried
    for candidate in tried:
        combined = {name: getattr(candidate, name) for name in protocl_tuning.MODEL}
        assert replace(winner, **combined) == candidate


def test_trials_saw_validation_data_only():
    table = runs.stored("protocl_tuning")
    sources = runs.provenance("protocl_tuning")
    assert {sources[key]["identity"]["stream"]["eval_split"] for key in table.key} == {"validation"}
    reported = runs.stored("protocl")
    assert not set(reported.seed) & set(table.seed)


@pytest.mark.parametrize("method", ["protocl", "replay"])
def test_every_value_is_tried_about_equally_often_and_no_two_trials_are_near_another(method):
    drawn, grid = protocl_tuning.screened(method), protocl_tuning.GRIDS[method]
    keys = [names if isinstance(names, tuple) else (names,) for names in grid]
    columns = [[tuple(settings[name] for name in names) for settings in drawn] for names in keys]
    for column, values in zip(columns, grid.values(), strict=True):
        counts = [column.count(value if isinstance(value, tuple) else (value,)) for value in values]
        assert sum(counts) == len(drawn) and max(counts) - min(counts) <= 1
    trials = list(zip(*columns, strict=True))
    assert all(sum(a != b for a, b in zip(*pair, strict=True)) >= 2 for pair in combinations(trials, 2))
