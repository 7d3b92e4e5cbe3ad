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
    if method == "protocl":
        assert protocl.TUNED["protocl_paper_epochs"][dataset] == protocl_tuning.best(method, dataset, epochs=50)


@each_dataset
@each_method
def test_all_of_the_budget_was_tried_and_the_best_went_on(method, dataset):
    ranked = {name: protocl_tuning.ranking(method, dataset, name) for name in protocl_tuning.ROUNDS[method]}
    for name, table in ranked.items():
        assert sorted(table.trial) == list(protocl_tuning.trials(method, dataset, name))
        assert len(table) == protocl_tuning.TRIALS[name]
    final = set(protocl_tuning.ranking(method, dataset, "final").trial)
    tried = pd.concat(ranked.values())
    fewer, paper = tried[tried.epochs < protocl_tuning.EPOCHS], tried[tried.epochs == protocl_tuning.EPOCHS]
    assert final == {*fewer.nlargest(4, "score").trial, *paper.nlargest(2, "score").trial}


@each_method
@pytest.mark.parametrize("preset", ["refine", "refine_again"])
def test_refinements_change_two_settings_of_the_best_so_far(method, preset):
    rounds = protocl_tuning.ROUNDS[method]
    before = pd.concat([protocl_tuning.ranking(method, "split_mnist", n) for n in rounds[: rounds.index(preset)]])
    winner = before.nlargest(1, "score").iloc[0]
    candidates = protocl_tuning.refined(method, "split_mnist", preset)
    for candidate in candidates:
        changed = {name for name in candidate if candidate[name] != winner[name]}
        assert 1 <= len(changed - {"oversample", "evidence_mode"}) <= 2
    assert len({str(candidate) for candidate in candidates}) == protocl_tuning.TRIALS[preset]


def test_the_trials_that_compare_the_methods_are_as_many_and_as_long():
    mine, other = ([t["epochs"] for t in protocl_tuning.drawn(m, "fewer_epochs")] for m in ("protocl", "replay"))
    assert sorted(mine) == sorted(other)
    assert protocl_tuning.ROUNDS["protocl"] == ("paper_epochs", *protocl_tuning.ROUNDS["replay"])
    with pytest.raises(ValueError, match=r"preset='paper_epochs' is not one of fewer_epochs"):
        protocl_tuning.Config(preset="paper_epochs", methods=("replay",))


def test_trials_saw_validation_data_only():
    table = runs.stored("protocl_tuning")
    sources = runs.provenance("protocl_tuning")
    assert {sources[key]["identity"]["stream"]["eval_split"] for key in table.key} == {"validation"}
    reported = runs.stored("protocl")
    assert not set(reported.seed) & set(table.seed)


@pytest.mark.parametrize(
    ("method", "preset"), [("protocl", "paper_epochs"), ("protocl", "fewer_epochs"), ("replay", "fewer_epochs")]
)
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
