"""Figure A8's chapter: labels alone are counted, arithmetic gives the shares, and curves come back as kept."""

import json
from dataclasses import replace

import notebooks
import numpy as np
import pytest

from paper_lib import driver, plots, runs, sweep, tables
from paper_lib.data.stream import make_stream
from paper_lib.experiments import protocl_dirichlet as dirichlet
from paper_lib.methods.protocl import ProtoCL
from paper_lib.rows import ROWS
from paper_lib.sweep import Selection


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path / "runs"))


@pytest.fixture(scope="module")
def digits():
    return make_stream("split_digits")


def trained(method, stream, seeds=(0, 2)):
    outcome = driver.run(method, stream, seeds)
    return np.concatenate([kept["concentration"] for kept in outcome.kept], axis=1)


PUBLISHED, _ = ROWS["protocl_as_published"].build("split_digits", "paper", {})
SMALL = ProtoCL(hidden=(8,), embedding_dim=4, epochs=2, batch_size=32, memory_per_task=20, learn_concentration=False)


@pytest.mark.parametrize(
    "method",
    [
        replace(PUBLISHED, hidden=(8,), embedding_dim=4, epochs=2),
        SMALL,
        replace(SMALL, oversample=False),
        replace(SMALL, memory_total=90),
        replace(SMALL, memory_per_task=0, batch_size=1000),
    ],
)
def test_labels_in_order_give_the_counts_of_a_run(method, digits):
    np.testing.assert_allclose(dirichlet.counted(method, digits, (0, 2)), trained(method, digits), rtol=1e-6)


def test_a_learned_prior_and_the_rounding_of_forgetting_move_no_share_by_a_hundredth_of_a_point(digits):
    method = replace(SMALL, forget=0.99, learn_concentration=True)
    mine, theirs = dirichlet.counted(method, digits, (0, 2)), trained(method, digits)
    np.testing.assert_allclose(dirichlet.shares(mine)[:, -1], dirichlet.shares(theirs)[:, -1], atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{}, {"oversample": False}, {"memory_total": 100}, {"forget": 0.98}, {"memory_per_task": 0}, {"epochs": 7}],
)
def test_arithmetic_gives_the_shares_that_counting_ends_with(changes, digits):
    method = replace(SMALL, **{"epochs": 3, "batch_size": 16, **changes})
    tasks = dirichlet.shares(dirichlet.counted(method, digits, (0, 1))[:, -1]).mean(0).reshape(5, 2).sum(-1)
    points = np.mean([len(task.y) for task in digits.train])
    np.testing.assert_allclose(tasks, dirichlet.by_counting(method, points), atol=0.02)


def test_old_and_new_one_to_one_is_the_sum_in_the_chapter():
    """1 + 1/1 + 1/2 + 1/3 + 1/4 for the first of five tasks, 1 for the last; a plain union is nearly even."""
    shares = dirichlet.by_counting(ProtoCL(memory_per_task=1))
    assert shares[0] / shares[-1] == pytest.approx(1 + 1 + 1 / 2 + 1 / 3 + 1 / 4)
    union = dirichlet.by_counting(ProtoCL(memory_per_task=200, oversample=False))
    assert union[0] / union[-1] == pytest.approx(1 + 4 * 200 / dirichlet.POINTS)


def test_curves_are_taken_out_of_the_run_store_and_counted_again_where_a_record_is_older():
    live = replace(dirichlet.LIVE, seeds=(0, 2), rows=("protocl",), changes={"epochs": 2})
    ((label, alpha),) = dirichlet.run(live).items()
    assert label == "ProtoCL" and alpha.shape == (2, 10, 10)
    for path in runs.folder().rglob("seed2.npz"):
        path.unlink()
    np.testing.assert_array_equal(dirichlet.run(live)[label], alpha)


def test_a_row_without_a_dirichlet_is_refused():
    with pytest.raises(ValueError, match="rows=replay counts no classes"):
        dirichlet.run(Selection(rows=("replay",)))


# --- at the paper's scale


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Curves of digits in place of those of Split-MNIST."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(
        dirichlet,
        "selection",
        lambda way: Selection(
            *("split_digits", dirichlet.SCENARIO, "paper"),
            seeds=(0, 1),
            rows=(dirichlet.WAYS[way][0],),
            changes={"forget": 0.999, **dirichlet.WAYS[way][1], "epochs": 2},
        ),
    )
    assert dirichlet.stored() == {}
    dirichlet.write()


def test_stored_curves_are_those_of_the_rows(written, digits):
    found = dirichlet.stored()
    assert list(found) == list(dirichlet.WAYS)
    for way, alpha in found.items():
        (job,) = sweep.jobs(dirichlet.selection(way))
        mine = dirichlet.counted(job.method, make_stream(**job.stream), (0, 1))
        np.testing.assert_allclose(alpha, mine, rtol=1e-6)
    plots.concentrations(dirichlet.drawn(), 5).draw_without_rendering()


def test_curves_of_other_settings_are_not_there_and_a_new_setting_at_its_default_is_no_other(written):
    path = runs.RESULTS / "dirichlet_split_mnist.npz"
    with np.load(path) as arrays:
        kept = dict(arrays)
    name = f"{dirichlet.CORRECTED}/identity"
    identity = json.loads(str(kept[name]))
    del identity["method"][2]["replay_weight"]  # as if it had been given to the method since
    np.savez(path, **{**kept, name: np.array(json.dumps(identity))})
    assert set(dirichlet.stored()) == set(dirichlet.WAYS)
    identity["method"][2]["epochs"] += 1
    np.savez(path, **{**kept, name: np.array(json.dumps(identity))})
    assert set(dirichlet.stored()) == set(dirichlet.WAYS) - {dirichlet.CORRECTED}


def test_what_is_stored_is_of_todays_settings_and_ten_seeds():
    found = dirichlet.stored()
    assert list(found) == list(dirichlet.WAYS)
    epochs = {dirichlet.PUBLISHED: 250}
    assert {way: alpha.shape for way, alpha in found.items()} == {
        way: (10, epochs.get(way, 30), 10) for way in dirichlet.WAYS
    }


def test_without_curves_everything_is_open_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    assert {claim.judged().verdict for claim in dirichlet.CLAIMS} == {"open"}
    shown, _ = dirichlet.shown()
    assert list(shown.index) == list(dirichlet.WAYS) and set(shown["roughly equal"]) == {"open"}
    assert dirichlet.judge_figure(None).verdict == "open"


def curves(shares):
    """Curves of two seeds that end with some shares, the same for both classes of a task."""
    last = 1e4 * np.repeat(np.asarray(shares, dtype=float), 2)
    return np.stack([[last], [1.01 * last]])


LIKE = {
    "early": [0.17, 0.116, 0.088, 0.07, 0.056],
    "late": [0.065, 0.065, 0.065, 0.08, 0.225],
    "even": [0.103, 0.102, 0.1, 0.098, 0.097],
}


def test_a_claim_that_stored_curves_contradict_fails(monkeypatch):
    right = dict(zip(dirichlet.WAYS, (curves(LIKE[name]) for name in ("early", "late", "early", "even")), strict=True))
    monkeypatch.setattr(dirichlet, "stored", lambda: right)
    assert {claim.judged().verdict for claim in dirichlet.CLAIMS} == {"holds"}
    assert dirichlet.judge_figure(None).verdict == "with a caveat"
    for name in ("even", "late"):
        monkeypatch.setattr(dirichlet, "stored", lambda name=name: {way: curves(LIKE[name]) for way in dirichlet.WAYS})
        assert dirichlet.CLAIMS[0].judged().verdict == "fails"
        assert dirichlet.CLAIMS[3].judged().verdict == "fails"
    monkeypatch.setattr(dirichlet, "stored", lambda: {way: curves(LIKE["even"]) for way in dirichlet.WAYS})
    assert [claim.judged().verdict for claim in dirichlet.CLAIMS[:3]] == ["fails"] * 3
    assert dirichlet.judge_figure(None).verdict == "reproduced"


@pytest.mark.slow
def test_the_answers_are_what_their_runs_give():
    said = (notebooks.NOTEBOOKS / "protocl_dirichlet.py").read_text(encoding="utf-8").partition("## Try it")[2]

    def last(**changes):
        ((_, alpha),) = dirichlet.run(replace(dirichlet.LIVE, rows=("protocl",), changes=changes)).items()
        return 100 * dirichlet.shares(alpha[:, -1]).mean(0)

    assert last(forget=0.99)[-2:] == pytest.approx([23, 23], abs=1) and "at 23 % each" in said
    union = last(oversample=False, memory_per_task=5)
    assert f"between {union.min():.1f} and {union.max():.1f} %" in said
    once = last(evidence_mode="recompute_each_epoch")
    assert once[-2:] == pytest.approx([29, 29], abs=1) and once[:-2] == pytest.approx([5] * 8, abs=1) and "29 %" in said
    scores = {}
    for prior in ("counts", "uniform"):
        one = Selection(scenario="class_incremental", rows=("protocl",), changes={"class_prior": prior})
        scores[prior] = tables.by_seed(sweep.run(one))["protocl"].mean()
    assert abs(scores["counts"] - scores["uniform"]) < 1
