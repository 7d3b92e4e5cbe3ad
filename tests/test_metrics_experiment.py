"""The metrics chapter: its numbers from matrices written out, a search, and a run of one seed."""

from dataclasses import replace

import numpy as np
import pytest

from paper_lib import paper, sweep, tables
from paper_lib.experiments.metrics import (
    BY_HAND,
    LIVE,
    identified,
    impossible_margins,
    largest_standard_error,
    scores,
)


def test_scores_of_the_matrix_by_hand():
    table = scores(BY_HAND)
    np.testing.assert_allclose(table["P_k"], [1, 0.75, 0.5])
    np.testing.assert_allclose(table["F_k"], [np.nan, 0.5, 0.75])
    np.testing.assert_allclose(table["triangle mean"], [1, 2.5 / 3, 4 / 6], atol=5e-4)


def test_printed_numbers_are_triangle_means_of_matrices_that_are_zero_off_the_diagonal():
    table = identified()
    printed = {f"{paper.label(p.row)}, {paper.LABELS[p.dataset]}": p.value for p in paper.PRINTED}
    assert table.printed.tolist() == [33.01, 32.77, 33.25]
    for name, line in table.iterrows():
        a = np.where(np.tri(5), np.eye(5) * line["just learned"], np.nan)
        assert printed[name] == line.printed
        assert np.nanmean(a) == pytest.approx(line.printed, abs=0.005)
        assert np.mean(a[-1]) == pytest.approx(line["final accuracy"], abs=0.005)
    np.testing.assert_allclose(table["just learned"], [99.03, 98.31, 99.75], atol=0.005)
    assert table["final accuracy"].between(19.6, 20).all()


@pytest.mark.parametrize("num_seeds", [4, 10])
def test_no_search_beats_the_largest_standard_error(num_seeds):
    bound, found = largest_standard_error(num_seeds)
    assert found <= bound + 1e-9
    assert found == pytest.approx(bound, rel=1e-9)  # some try has half at either end
    assert bound == pytest.approx(50 / np.sqrt(num_seeds - 1))


def test_printed_standard_errors_are_not_possible():
    assert sorted(impossible_margins().values()) == [16.96, 18.56, 20.21]
    assert min(impossible_margins().values()) > largest_standard_error()[0]
    assert max({p.margin for p in paper.PRINTED} - set(impossible_margins().values())) < largest_standard_error()[0]


def test_learners_stand_in_their_order_on_digits(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    found = tables.matrices(sweep.run(replace(LIVE, seeds=(0,))))
    assert set(found) == set(LIVE.rows)
    final = {name: a[0, -1].mean() for name, a in found.items()}
    assert final["sgd"] == pytest.approx(found["sgd"][0, 4, 4] / 5, abs=0.02) and final["sgd"] < 0.22
    assert final["sgd"] < final["replay"] < final["joint"] + 0.02
    assert np.diagonal(found["single_task"][0]).mean() > 0.98 and final["single_task"] > 0.98
