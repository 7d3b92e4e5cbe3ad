"""The tuned settings are the ones that the stored trials chose, and the budget is the same for both methods."""

from itertools import combinations

import pandas as pd
import pytest

from paper_lib import runs
from paper_lib.experiments import protocl, protocl_tuning

each_dataset = pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
each_method = pytest.mark.parametrize("method", ["protocl", "replay"])


@each_dataset
@each_method
def test_reported_settings_won_the_final_round(method, dataset):
    assert protocl.TUNED[method][dataset] == protocl_tuning.best(method, dataset)
    assert protocl.TUNED[f"{method}_paper_epochs"][dataset] == protocl_tuning.best(method, dataset, epochs=50)


@each_dataset
@each_method
def test_all_of_the_budget_was_tried_and_the_best_went_on(method, dataset):
    ranked = {name: protocl_tuning.ranking(method, dataset, name) for name in protocl_tuning.TRIALS}
    for name, table in ranked.items():
        assert sorted(table.trial) == list(protocl_tuning.trials(method, dataset, name))
        assert len(table) == protocl_tuning.TRIALS[name]
    final = set(protocl_tuning.ranking(method, dataset, "final").trial)
    tried = pd.concat(ranked.values())
    both = [tried[tried.epochs == protocl_tuning.EPOCHS], tried[tried.epochs < protocl_tuning.EPOCHS]]
    assert final == {t for table in both for t in table.nlargest(protocl_tuning.FINALISTS, "score").trial}


@each_method
def test_refinements_change_two_settings_of_the_winner(method):
    winner = protocl_tuning.ranking(method, "split_mnist", "fewer_epochs").iloc[0]
    tried = protocl_tuning.refined(method, "split_mnist")
    for candidate in tried:
        changed = {name for name in candidate if candidate[name] != winner[name]}
        assert 1 <= len(changed - {"oversample", "evidence_mode"}) <= 2
    assert len({str(candidate) for candidate in tried}) == protocl_tuning.TRIALS["refine"]


def test_the_trials_of_both_methods_are_as_many_and_as_long():
    for name in ("paper_epochs", "fewer_epochs"):
        mine, other = ([t["epochs"] for t in protocl_tuning.drawn(m, name)] for m in ("protocl", "replay"))
        assert sorted(mine) == sorted(other) and len(mine) == protocl_tuning.TRIALS[name]
        assert (set(mine) == {protocl_tuning.EPOCHS}) == (name == "paper_epochs")


def test_trials_saw_validation_data_only():
    table = runs.stored("protocl_tuning")
    sources = runs.provenance("protocl_tuning")
    assert {sources[key]["identity"]["stream"]["eval_split"] for key in table.key} == {"validation"}
    reported = runs.stored("protocl")
    assert not set(reported.seed) & set(table.seed)


@each_method
@pytest.mark.parametrize("preset", ["paper_epochs", "fewer_epochs"])
def test_every_value_is_tried_about_equally_often_and_no_two_trials_are_near_another(method, preset):
    drawn = protocl_tuning.drawn(method, preset)
    grid = protocl_tuning.LENGTHS[preset] | protocl_tuning.SHARED | protocl_tuning.OWN[method]
    keys = [names if isinstance(names, tuple) else (names,) for names in grid]
    columns = [[tuple(settings[name] for name in names) for settings in drawn] for names in keys]
    for column, values in zip(columns, grid.values(), strict=True):
        counts = [column.count(value if isinstance(value, tuple) else (value,)) for value in values]
        assert sum(counts) == len(drawn) and max(counts) - min(counts) <= 1
    trials = list(zip(*columns, strict=True))
    assert all(sum(a != b for a, b in zip(*pair, strict=True)) >= 2 for pair in combinations(trials, 2))
