"""ProtoCL's chapter: its targets, set before the runs, and its rows against the paper and against replay."""

import numpy as np
import pandas as pd
import pytest
from test_tables import tidy

from paper_lib import paper, runs, tables
from paper_lib.experiments import protocl
from paper_lib.rows import MNISTS, ROWS


@pytest.mark.parametrize("dataset", MNISTS)
def test_the_comparison_holds_the_chapter_s_rows(dataset):
    found = protocl.comparison(dataset)
    assert list(found.index) == [row for row in protocl.ROWS if row in found.index]
    not_needed = {"protocl_no_memory", "protocl_no_memory_paper_epochs", "sgd"} if dataset == "split_fmnist" else set()
    assert set(protocl.ROWS) - set(found.index) <= not_needed
    assert (found.n[~found.index.isin(not_needed)] == 10).all()
    printed = {p.row: p.value for p in paper.printed(dataset)}
    assert found.paper.dropna().to_dict() == {row: value for row, value in printed.items() if row in protocl.ROWS}
    assert found.seconds.gt(0).all() and found.memory.gt(0).all()


def test_targets_are_met_or_not_by_the_mean_and_open_with_too_few_seeds(monkeypatch):
    a = np.full((10, 2, 2), 0.93)
    b = a - np.arange(10)[:, None, None] / 1000  # replay is behind, by 0.45 points on average
    for seeds, met in ((10, ["no", "yes", "yes"]), (9, ["open"] * 3)):
        table = pd.concat([tidy(a[:seeds], "protocl"), tidy(b[:seeds], "replay")])
        monkeypatch.setattr(protocl, "stored", lambda dataset, table=table: table)
        found = protocl.targets("split_mnist")
        assert found.target.tolist()[:2] == ["at least 94.0", "at least 92.5"]
        assert found.reached.tolist() == pytest.approx([93, 93, 100 * (a - b)[:seeds].mean()])
        assert found.met.tolist() == met


def test_without_stored_runs_every_target_is_open(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    found = pd.concat(protocl.targets("split_mnist", row) for row in protocl.TARGETS)
    assert set(found.met) == {"open"} and set(found.n) == {0}


def test_the_live_rows_are_protocl_replay_and_the_bounds():
    assert set(protocl.LIVE.rows) == {"protocl", "replay", "joint", "sgd"}
    assert set(protocl.ROWS) <= set(ROWS) and tables.command(protocl.LIVE).startswith("paper-lib run")
