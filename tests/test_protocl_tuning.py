"""The tuned settings are the ones that the stored trials chose, and the budget is the same for both methods."""

from itertools import combinations

import pandas as pd
import pytest

from paper_lib import runs, sweep
from paper_lib.experiments import calibration, protocl_tuning
from paper_lib.rows import PROTOCL, PROTOCL_PAPER_EPOCHS, REPLAY, ROWS

each_dataset = pytest.mark.parametrize("dataset", ["split_mnist", "split_fmnist"])
each_method = pytest.mark.parametrize("method", ["protocl", "replay"])


@each_dataset
@each_method
def test_reported_settings_won_the_final_stage(method, dataset):
    stated = {"protocl": PROTOCL, "replay": REPLAY}[method]
    assert stated[dataset] == ROWS[method].settings[dataset] == protocl_tuning.best(method, dataset)
    if method == "protocl":
        best = protocl_tuning.best(method, dataset, epochs=50)
        assert PROTOCL_PAPER_EPOCHS[dataset] == ROWS["protocl_paper_epochs"].settings[dataset] == best


@each_dataset
@each_method
def test_all_of_the_budget_was_tried_and_the_best_went_on(method, dataset):
    ranked = {name: protocl_tuning.ranking(method, dataset, name) for name in protocl_tuning.STAGES[method]}
    for name, table in ranked.items():
        assert sorted(table.trial) == list(protocl_tuning.trials(method, dataset, name))
        assert len(table) == protocl_tuning.TRIALS[name]
    final = set(protocl_tuning.ranking(method, dataset, "final").trial)
    tried = pd.concat(ranked.values())
    fewer, paper = tried[tried.epochs < protocl_tuning.EPOCHS], tried[tried.epochs == protocl_tuning.EPOCHS]
    assert final == {*fewer.nlargest(4, "score").trial, *paper.nlargest(2, "score").trial}


@each_method
@pytest.mark.parametrize("stage", ["refine", "refine_again"])
def test_refinements_change_two_settings_of_the_best_so_far(method, stage):
    stages = protocl_tuning.STAGES[method]
    before = pd.concat([protocl_tuning.ranking(method, "split_mnist", n) for n in stages[: stages.index(stage)]])
    winner = before.nlargest(1, "score").iloc[0]
    candidates = protocl_tuning.refined(method, "split_mnist", stage)
    for candidate in candidates:
        changed = {name for name in candidate if candidate[name] != winner[name]}
        assert 1 <= len(changed - {"oversample", "evidence_mode"}) <= 2
    assert len({str(candidate) for candidate in candidates}) == protocl_tuning.TRIALS[stage]


def test_the_trials_that_compare_the_methods_are_as_many_and_as_long():
    mine, other = ([t["epochs"] for t in protocl_tuning.drawn(m, "fewer_epochs")] for m in ("protocl", "replay"))
    assert sorted(mine) == sorted(other)
    assert protocl_tuning.STAGES["protocl"] == ("paper_epochs", *protocl_tuning.STAGES["replay"])
    assert "paper_epochs" not in protocl_tuning.STAGES["replay"]


@each_dataset
def test_trials_saw_validation_data_only(dataset):
    table, sources = runs.stored(f"{dataset}-validation"), runs.provenance(f"{dataset}-validation")
    streams = [sources[key]["identity"]["stream"] for key in table.key.unique()]
    assert {(s["eval_split"], s["validation_fraction"]) for s in streams} == {("validation", 0.1)}
    reported = runs.stored(dataset)
    assert set(reported.split) == {"test"} and not set(reported.seed) & set(table.seed)


@each_dataset
@each_method
def test_the_stored_trials_are_those_of_the_stages_and_each_is_a_change_of_the_reported_row(method, dataset):
    chosen = [one for name in (*protocl_tuning.STAGES[method], "final") for one in known(method, dataset, name)]
    told = {sweep.jobs(one)[0].changes for one in chosen}
    later = {sweep.jobs(one)[0].changes for one in calibration.known(method, dataset)}
    table = runs.stored(f"{dataset}-validation")
    assert told <= set(table.changes[table.row == method]) <= told | later
    for one in chosen:
        assert one.rows == (method,) and (one.preset, one.split) == ("paper", "validation")
        assert set(one.seeds) <= set(sweep.stored(one).seed)
        assert set(one.changes) <= set(ROWS[method].settings[dataset]) | {"epochs"}


def known(method, dataset, name):
    chosen = protocl_tuning.selections(method, dataset, name)
    assert {one.seeds for one in chosen} == {protocl_tuning.SEEDS[name]}
    return chosen


@pytest.mark.parametrize(
    ("method", "stage"), [("protocl", "paper_epochs"), ("protocl", "fewer_epochs"), ("replay", "fewer_epochs")]
)
def test_every_value_is_tried_about_equally_often_and_no_two_trials_are_near_another(method, stage):
    drawn = protocl_tuning.drawn(method, stage)
    grid = protocl_tuning.LENGTHS[stage] | protocl_tuning.SHARED | protocl_tuning.OWN[method]
    keys = [names if isinstance(names, tuple) else (names,) for names in grid]
    columns = [[tuple(settings[name] for name in names) for settings in drawn] for names in keys]
    for column, values in zip(columns, grid.values(), strict=True):
        counts = [column.count(value if isinstance(value, tuple) else (value,)) for value in values]
        assert sum(counts) == len(drawn) and max(counts) - min(counts) <= 1
    trials = list(zip(*columns, strict=True))
    assert all(sum(a != b for a, b in zip(*pair, strict=True)) >= 2 for pair in combinations(trials, 2))
