"""The metrics chapter: its numbers from matrices written out, a search, and a run of one seed."""

import numpy as np
import pytest

from paper_lib.experiments.metrics import (
    BY_HAND,
    PRINTED,
    PRINTED_SE,
    Config,
    identified,
    largest_standard_error,
    run,
    scores,
)
from paper_lib.metrics import matrices_by_method


def test_scores_of_the_matrix_by_hand():
    table = scores(BY_HAND)
    np.testing.assert_allclose(table["P_k"], [1, 0.75, 0.5])
    np.testing.assert_allclose(table["F_k"], [np.nan, 0.5, 0.75])
    np.testing.assert_allclose(table["triangle mean"], [1, 2.5 / 3, 4 / 6], atol=5e-4)


def test_printed_numbers_are_triangle_means_of_matrices_that_are_zero_off_the_diagonal():
    table = identified()
    for name, printed in PRINTED.items():
        a = np.where(np.tri(5), np.eye(5) * table.just_learned[name], np.nan)
        assert np.nanmean(a) == pytest.approx(printed, abs=0.005)
        assert np.mean(a[-1]) == pytest.approx(table.final_accuracy[name], abs=0.005)
    np.testing.assert_allclose(table.just_learned, [99.03, 98.31, 99.75], atol=0.005)
    assert table.final_accuracy.between(19.6, 20).all()


@pytest.mark.parametrize("num_seeds", [4, 10])
def test_no_search_beats_the_largest_standard_error(num_seeds):
    bound, found = largest_standard_error(num_seeds)
    assert found <= bound + 1e-9
    assert found == pytest.approx(bound, rel=1e-9)  # some try has half at either end
    assert bound == pytest.approx(50 / np.sqrt(num_seeds - 1))


def test_printed_standard_errors_are_not_possible():
    assert min(PRINTED_SE.values()) > largest_standard_error()[0]


def test_learners_stand_in_their_order_on_digits(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    found = matrices_by_method(run(Config(seeds=(0,))))
    final = {name: a[0, -1].mean() for name, a in found.items()}
    assert final["sgd"] == pytest.approx(0.2, abs=0.02)
    assert final["sgd"] < final["replay"] < final["joint"] + 0.02
    assert np.diagonal(found["single_task"][0]).mean() > 0.98 and final["single_task"] > 0.98


@pytest.mark.parametrize("bad", [{"dataset": "split_digit"}, {"preset": "full"}])
def test_settings_without_meaning_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Config(**bad)
