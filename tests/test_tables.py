"""Tables: matrices, means that never cross settings, comparison with the paper, paired tests and verdicts."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from paper_lib import cli, metrics, runs, sweep, tables
from paper_lib.methods.replay import Replay
from paper_lib.metrics import Summary
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, Printed

NAN = float("nan")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    return tmp_path


def random_matrices(shape=(2,), num_tasks=5, seed=0):
    a = np.random.default_rng(seed).uniform(size=(*shape, num_tasks, num_tasks))
    return np.where(np.tri(num_tasks, dtype=bool), a, NAN)


def tidy(matrices, row="protocl", key=None, first_seed=0, metric="accuracy", **names):
    """A table of matrices ``(seed, task, task)``, of which what is a number on or below the diagonal is written."""
    given = {"dataset": "split_mnist", "scenario": "class_incremental", "split": "test", "preset": "paper"}
    given |= {"row": row, "changes": "", "key": key or row} | names
    lines = [
        given
        | {"seed": first_seed + s, "task_trained": k + 1, "task_tested": j + 1, "metric": metric, "value": a[k][j]}
        for s, a in enumerate(np.asarray(matrices, dtype=float))
        for k in range(len(a))
        for j in range(k + 1)
    ]
    return pd.DataFrame(lines)[runs.COLUMNS]


# --- matrices


def test_matrices_come_back_from_a_shuffled_table():
    a = random_matrices(shape=(3,), num_tasks=4)
    frame = tidy(a, first_seed=5).sample(frac=1, random_state=0)
    seeds, found = tables.matrices_of(frame)
    assert list(seeds) == [5, 6, 7]
    np.testing.assert_array_equal(found, a)
    with pytest.raises(ValueError, match=r"metric='nll'; there are \['accuracy'\]"):
        tables.matrices_of(frame, "nll")
    with pytest.raises(ValueError, match="two values of accuracy for"):
        tables.matrices_of(pd.concat([frame, tidy(a, row="other", first_seed=5)]))


def test_rows_stand_in_the_order_of_the_paper_and_seeds_that_diverged_are_left_out():
    a = random_matrices(shape=(3,))
    a[1, 3:] = NAN
    table = pd.concat([tidy(random_matrices(), "joint"), tidy(a, "replay"), tidy(random_matrices(), "sgd")])
    found = tables.matrices(table)
    assert list(found) == ["sgd", "replay", "joint"]
    np.testing.assert_array_equal(found["replay"], a[[0, 2]])
    assert list(tables.by_seed(table)["replay"].index) == [0, 2]
    np.testing.assert_allclose(tables.by_seed(table)["replay"], 100 * a[[0, 2], 4].mean(-1))
    np.testing.assert_allclose(tables.curves(table)["replay"][:, 1], a[[0, 2], 1, :2].mean(-1))
    np.testing.assert_allclose(tables.by_seed(table, metric="accuracy")["sgd"], 100 * random_matrices()[:, 4].mean(-1))


def test_a_network_a_task_keeps_each_task_as_it_was_learned():
    forgets = [[1.0, NAN, NAN], [0.2, 0.8, NAN], [0.0, 0.1, 0.6]]
    table = pd.concat([tidy([forgets], "single_task"), tidy([forgets], "sgd_single_head")])
    np.testing.assert_allclose(tables.matrices(table)["single_task"][0, 2], [1.0, 0.8, 0.6])
    found = tables.curves(table)
    np.testing.assert_allclose(found["single_task"], [[1.0, 0.9, 0.8]])
    np.testing.assert_allclose(found["sgd_single_head"], [[1.0, 0.5, 0.7 / 3]])
    line = tables.summary(table).set_index("row").loc["single_task"]
    assert line.triangle_mean == pytest.approx(100 * (3 * 1.0 + 2 * 0.8 + 0.6) / 6)
    assert (line.final_accuracy, line.forgetting) == pytest.approx((80, 0))


@pytest.mark.parametrize("row", ["single_task", "sgd_single_head"])
def test_tables_of_seeds_that_diverged_count_them(row):
    kept, lost = [[1.0, NAN], [0.2, 0.8]], [[NAN, NAN], [NAN, NAN]]
    both = pd.concat([tidy([kept, lost], row), tidy([kept, lost], row, metric="nll")])
    line = tables.comparison(both, (), (row,)).loc[row]
    assert (line.n, line.diverged) == (1, 1) and math.isfinite(line.final) and math.isfinite(line.nll)
    none = pd.concat([tidy([lost], row), tidy([lost], row, metric="nll")])
    line = tables.comparison(none, (), (row,)).loc[row]
    assert (line.n, line.diverged) == (0, 1) and math.isnan(line.final)


# --- means


def test_summary_has_every_row_s_scores_in_percent_over_seeds():
    a, b = random_matrices((3,), 4), random_matrices((2,), 4, seed=1)
    table = pd.concat([tidy(a), tidy(a + 1, metric="nll"), tidy(b, "replay")])
    found = tables.summary(table).set_index("row")
    line = found.loc["protocl"]
    final = 100 * a[:, -1].mean(-1)
    assert (line.final_accuracy, line["final_accuracy sd"]) == pytest.approx((final.mean(), final.std(ddof=1)))
    assert line.nll == pytest.approx((a[:, -1] + 1).mean()) and np.isnan(found.nll["replay"])
    assert found.triangle_mean["replay"] == pytest.approx(100 * np.nanmean(b, axis=(1, 2)).mean())
    lost = np.mean([[m[j, j] - m[3, j] for j in range(3)] for m in b])
    assert found.forgetting["replay"] == pytest.approx(100 * lost)
    assert found.learning_accuracy["replay"] == pytest.approx(100 * np.mean([np.diagonal(m) for m in b]))
    assert found.n.to_dict() == {"protocl": 3, "replay": 2} and (found.diverged == 0).all()


@pytest.mark.parametrize(
    ("other", "seed"),
    [
        *(({"changes": "epochs=30"}, seed) for seed in (0, 1)),
        *(({"key": "of another version"}, seed) for seed in (0, 1)),
        ({"preset": "quick"}, 1),
        ({"scenario": "domain_incremental"}, 1),
    ],
)
def test_summary_never_averages_unlike_settings(other, seed):
    """An epoch on seed 0 gave 0.133 and thirty on seed 1 gave 0.186; their mean, 0.159, is of nothing."""
    first = tidy(np.full((1, 2, 2), 0.133), "sgd", changes="epochs=1", key="a")
    second = tidy(np.full((1, 2, 2), 0.186), "sgd", first_seed=seed, **{"changes": "epochs=1", "key": "b"} | other)
    found = tables.summary(pd.concat([first, second]))
    assert found.final_accuracy.tolist() == pytest.approx([13.3, 18.6]) and found.n.tolist() == [1, 1]


def test_summary_averages_seeds_that_draw_their_own_points():
    parts = [tidy(np.full((1, 2, 2), s / 10), "imbalance_sgd", f"k{s}", s, changes="train_sizes=5,5") for s in range(3)]
    (line,) = tables.summary(pd.concat(parts)).itertuples()
    assert (line.n, line.final_accuracy) == (3, pytest.approx(10))


def test_summary_shows_diverged_seeds_and_takes_no_mean_over_them():
    a = random_matrices((3,), 3)
    a[1, 2] = NAN
    line = tables.summary(tidy(a)).iloc[0]
    assert (line.n, line.diverged) == (2, 1)
    assert line.final_accuracy == pytest.approx(100 * a[[0, 2], 2].mean())
    line = tables.summary(tidy(np.full((2, 3, 3), NAN))).iloc[0]
    assert (line.n, line.diverged) == (0, 2) and np.isnan(line.final_accuracy)


def test_an_infinite_likelihood_is_infinite_in_the_mean():
    nll = random_matrices((2,), 3)
    nll[1, 2, 0] = np.inf
    line = tables.summary(pd.concat([tidy(random_matrices((2,), 3)), tidy(nll, metric="nll")])).iloc[0]
    assert line.nll == np.inf and line.n == 2


# --- beside the paper


def test_printed_numbers_stand_beside_ours_with_a_verdict(results):
    close, far = np.full((10, 2, 2), 0.9), np.full((10, 2, 2), 0.5)
    rows = {"protocl": close, "sgd": far, "joint": close, "replay": close[:3], "vcl_coreset": close}
    table = pd.concat([tidy(a, row) for row, a in rows.items()])
    numbers = {"protocl": (90.5, 2.0), "sgd": (53.0, 0.4), "replay": (90.0, 1.0), "sfsvi": (1.0, 0.1)}
    numbers |= {"vcl_coreset": (90.0, 18.56)}
    printed = [Printed("Table 1", row, "split_mnist", *number) for row, number in numbers.items()]
    order = ["sfsvi", "replay", "sgd", "protocl", "joint", "vcl_coreset", "fromp"]
    found = tables.comparison(table, printed, order)
    assert list(found.index) == order[:-1]
    assert found.verdict.to_dict() == {
        **{"sfsvi": "open", "replay": "not comparable", "sgd": "not reproduced", "protocl": "reproduced", "joint": ""},
        "vcl_coreset": "not comparable",
    }
    assert found.words[["sfsvi", "replay", "sgd", "vcl_coreset"]].tolist() == [
        *("not run", "reduced: 3 seeds", "below", "uninformative ±")
    ]
    assert found.n.to_dict() == {"sfsvi": 0, "replay": 3, "sgd": 10, "protocl": 10, "joint": 10, "vcl_coreset": 10}
    assert found.loc["sgd", ["triangle", "final"]].tolist() == pytest.approx([50, 50])
    z = found.loc[["protocl", "sgd"], "final z"].tolist()
    assert z == pytest.approx([-0.5 / 2.0 * 10**0.5, -3.0 / 0.4 * 10**0.5])
    assert np.isnan(found.paper["joint"]) and np.isnan(found.final["sfsvi"])


def test_the_standard_error_beside_a_printed_number_is_of_final_accuracies(results):
    a = random_matrices((4,), 3)
    line = tables.comparison(tidy(a, "sgd"), [], ["sgd"], num_seeds=4).loc["sgd"]
    final = 100 * metrics.final_accuracy(a)
    assert line["final se"] == pytest.approx(stats.sem(final)) and line["final sd"] == pytest.approx(final.std(ddof=1))
    assert line["triangle sd"] == pytest.approx(100 * metrics.triangle_mean(a).std(ddof=1))


def test_the_gap_to_a_printed_number_with_a_sd_is_welch_s_statistic(results):
    a, b = random_matrices((5,), 3), 80 + 3 * np.random.default_rng(1).standard_normal(5)
    number = Printed("Table 1", "sgd", "split_mnist", b.mean(), b.std(ddof=1))
    line = tables.comparison(tidy(a, "sgd"), [number], ["sgd"], num_seeds=5).loc["sgd"]
    for column, score in (("triangle z", metrics.triangle_mean), ("final z", metrics.final_accuracy)):
        assert line[column] == pytest.approx(stats.ttest_ind(100 * score(a), b, equal_var=False).statistic)


def test_diverged_seeds_are_told_and_fewer_than_the_paper_s_are_left(results):
    a = np.full((10, 2, 2), 0.9)
    a[0, 1] = NAN
    line = tables.comparison(tidy(a, "sgd"), [Printed("Table 1", "sgd", "split_mnist", 90, 1)], ["sgd"]).loc["sgd"]
    assert (line.n, line.diverged, line.verdict, line.words) == (9, 1, "not comparable", "reduced: 9 seeds")


def of(mean, se, n=10):
    return Summary(mean, se * n**0.5, se, n)


@pytest.mark.parametrize(
    ("value", "margin", "triangle", "final", "epochs", "verdict", "words"),
    [
        (90, 1, of(94, 0.1), of(90.2, 0.1), 50, "reproduced", "reproduced"),
        (90, 1, of(90.2, 0.1), of(85, 0.1), 50, "with a caveat", "reproduced as a triangle mean"),
        # inside the ± and 2 standard errors away from it, yet z is 0.9 / hypot(1 / sqrt(10), 0.1) = 2.7
        (90, 1, of(80, 0.1), of(89.1, 0.1), 50, "with a caveat", "within ±, z -2.7"),
        (90, 1, of(90.9, 0.1), of(85, 0.1), 50, "with a caveat", "within ± as a triangle mean, z +2.7"),
        (90, 1, of(80, 0.1), of(85, 0.1), 50, "not reproduced", "below"),
        (90, 1, of(99, 0.1), of(95, 0.1), 50, "not reproduced", "above"),
        (90, 1, of(90, 0.1), of(90, 0.1), 49, "not comparable", "reduced: 49 of 50 epochs"),
        (90, 1, of(90, 0.1), of(90, 0.1), None, "reproduced", "reproduced"),
        (90, 1, of(90, 0.1, 3), of(90, 0.1, 3), 50, "not comparable", "reduced: 3 seeds"),
        (90, 1, of(90, NAN, 1), of(90, NAN, 1), 50, "not comparable", "reduced: 1 seed"),
        (90, 1, of(90, 0.1, 2), of(90, 0.1, 2), 10, "not comparable", "reduced: 2 seeds, 10 of 50 epochs"),
        (90, 16.7, of(90, 0.1), of(90, 0.1), 50, "not comparable", "uninformative ±"),
        (90, 16.6, of(90, 0.1), of(90, 0.1), 50, "reproduced", "reproduced"),
        (NAN, NAN, of(90, 0.1), of(90, 0.1), 50, "", ""),
    ],
)
def test_a_printed_number_is_judged_by_both_readings(value, margin, triangle, final, epochs, verdict, words):
    paper = Printed("Table 1", "sgd", "split_mnist", value, margin, epochs=50)
    assert tables.judge_number(paper, triangle, final, epochs) == Judgement(verdict, words)
    assert verdict in (*tables.VERDICTS, "")


def test_the_largest_standard_error_is_that_of_half_the_accuracies_at_either_end():
    assert pytest.approx(stats.sem([0] * 5 + [100] * 5)) == tables.LARGEST_SE


def stored_sources(results, table, **methods):
    """The provenance of rows: method settings and stream by key."""
    sources = {
        key: {"identity": {"method": ["M", 1, own], "stream": stream, "data": "d"}, "runs": made}
        for key, (own, stream, made) in methods.items()
    }
    (results / f"{table}.json").write_text(json.dumps(sources))


def test_a_verdict_reads_the_stored_identity_and_not_today_s_settings(results, monkeypatch):
    table = tidy(np.full((10, 2, 2), 0.9), "protocl", key="k")
    numbers = [Printed("Table 1", "protocl", "split_mnist", 90, 1, epochs=50)]
    by_task, half = [170, 20, 20, 20, 20], [80, 12, 12, 12, 12]
    cases = ((6, 6, "reduced: 6 of 50 epochs"), (50, 50, "reproduced"))
    cases += ((by_task, 50, "reproduced"), (half, 25.6, "reduced: 25.6 of 50 epochs"))
    for epochs, mean, words in cases:
        stored_sources(results, "split_mnist", k=({"epochs": epochs}, {}, []))
        runs._loaded_json.cache_clear()
        assert tables.epochs_of(table) == pytest.approx(mean)
        assert tables.comparison(table, numbers, ["protocl"]).words["protocl"] == words


def test_costs_are_seconds_a_seed_and_the_most_memory_of_a_stack(results):
    made = [
        {"seconds": 100.0, "seeds": [0, 1, 2], "peak_memory_bytes": 2_000_000_000},
        {"seconds": 60.0, "seeds": [3], "peak_memory_bytes": None},
    ]
    stored_sources(results, "split_mnist", k=({}, {}, made))
    table = tidy(random_matrices((4,)), "sgd", key="k")
    assert tables.costs(table) == {"seconds": 40.0, "memory": 2.0}
    assert np.isnan(tables.costs(tidy(random_matrices(), "sgd", key="unknown"))["seconds"])


def test_settings_come_from_provenance(results):
    own = {
        "vcl_single_head": ({"coreset_per_task": 0, "num_samples": 10}, {"scaling": "unit"}, []),
        "protocl_as_published": ({"memory_per_task": 200, "memory_total": 1000, "epochs": 50}, {}, []),
        "replay": ({"memory_per_task": 200, "epochs": 25}, {}, []),
        "joint": ({"memory_per_task": None, "epochs": 10}, {}, []),
    }
    stored_sources(results, "split_mnist", **own)
    table = pd.concat([tidy(random_matrices(), row) for row in reversed(own)])
    found = tables.settings(table, ("epochs", "num_samples"))
    assert list(found.index) == list(own)
    assert found.memory.tolist() == ["none", "1000 in all", "200 a task", "all"]
    assert found.pixels.tolist() == ["[0, 1]", *["standardised"] * 3]
    assert (
        found.epochs["replay"] == 25 and found.num_samples["vcl_single_head"] == 10 and np.isnan(found.epochs.iloc[0])
    )


def test_side_by_side_has_five_columns_and_folds_all_other_numbers(results):
    table = pd.concat([tidy(np.full((10, 2, 2), 0.9), "protocl"), tidy(random_matrices((1,)), "joint")])
    lines = tables.comparison(
        table, [Printed("Table 1", "protocl", "split_mnist", 90.5, 2)], ["protocl", "joint", "sgd"]
    )
    shown, more = tables.side_by_side(lines, str.upper)
    assert 1 + len(shown.columns) == 5
    assert shown.loc["PROTOCL"].tolist() == ["90.50 ± 2.00", "90.00 ± 0.00", "90.00 ± 0.00", "reproduced"]
    assert shown.loc["JOINT"].iloc[[0, 3]].tolist() == ["–", "–"] and "±" not in shown.loc["JOINT"].iloc[2]
    assert {"NLL", "final z", "s a seed", "n"} <= set(more.columns) and more.n.tolist() == [10, 1]


# --- paired tests


def test_differences_are_seed_by_seed_over_common_seeds():
    better = [[[1.0, 0, 0], [0.5, 1, 0], [gain] * 3] for gain in (0.5, 0.9, 0.1)]
    worse = [[[1.0, 0, 0], [0.5, 1, 0], [gain] * 3] for gain in (0.4, 0.7)]
    table = pd.concat([tidy(better, "vcl_single_head"), tidy(worse, "sgd_single_head")])
    found = tables.paired(table, "vcl_single_head", "sgd_single_head")
    # By 10 and by 20 points in P_3; t(0.975, 1) is 12.706.
    assert (found.n, found.mean) == (2, pytest.approx(15))
    assert (found.lower, found.upper) == pytest.approx((15 - 12.706 * 5, 15 + 12.706 * 5), rel=1e-4)
    triangle = tables.paired(table, "vcl_single_head", "sgd_single_head", "triangle_mean")
    assert triangle.mean == pytest.approx(7.5)  # in three of the triangle's six entries
    assert tables.paired(table, "vcl_single_head", "joint") is None
    assert tables.paired(table[table.seed == 0], "vcl_single_head", "sgd_single_head") is None


# --- statements


def claim(needs, judge=lambda table: tables.holds(len(table) > 0, f"{len(table)} lines")):
    return Claim(
        name="a",
        exhibit="Table 1",
        says="Something.",
        chapter="protocl",
        judge=judge,
        needs=needs,
    )


def test_a_statement_is_open_until_all_that_it_needs_has_been_run():
    there = Selection("split_mnist", "class_incremental", "paper", seeds=(0, 1), rows=("replay", "joint"))
    assert claim((there,)).judged().verdict == "holds"
    # Settings that no stored run has, or this test would break with every run that is added.
    lacking = replace(there, dataset="split_cifar10", changes={"epochs": 77})
    assert claim((there, lacking)).judged() == Judgement(
        "open", "not run: replay on Split-CIFAR10 with epochs=77, joint training on Split-CIFAR10 with epochs=77"
    )
    changed = replace(there, changes={"epochs": 77})
    assert claim((changed,)).judged().verdict == "open"
    assert claim((), lambda table: Judgement("reproduced", "in closed form")).judged().verdict == "reproduced"
    shown = tables.verdicts([claim((there,)), claim((lacking,))])
    assert shown.verdict.tolist() == ["holds", "open"] and list(shown.index) == ["Something."] * 2
    assert tables.holds(False, "none") == Judgement("fails", "none")
    a_selection_a_seed = tuple(replace(there, seeds=(seed,)) for seed in range(12))
    for needs in ((replace(there, seeds=tuple(range(12))),), a_selection_a_seed):
        more = tables.verdicts([claim(needs)])["stored runs"]
        assert more.iloc[0].endswith(
            "fewer seeds: replay on Split-MNIST 10 of 12, joint training on Split-MNIST 10 of 12"
        )


def test_rows_without_common_seeds_are_open_and_end_no_judgement(monkeypatch):
    accuracies = np.random.default_rng(0).uniform(0.8, 0.9, (4, 2, 2))
    asked = Selection("split_mnist", "class_incremental", "paper", seeds=tuple(range(4)), rows=("replay", "joint"))
    pairs = claim((asked,), lambda table: tables.holds(tables.paired(table, "replay", "joint").n > 1, "paired"))
    for first, judged in (
        (4, Judgement("open", "rows without two seeds in common on Split-MNIST")),
        (3, Judgement("open", "rows without two seeds in common on Split-MNIST")),
        (2, Judgement("holds", "paired")),
    ):
        table = pd.concat([tidy(accuracies, "replay"), tidy(accuracies, "joint", first_seed=first)])
        monkeypatch.setattr(sweep, "stored", lambda needs, table=table: table)
        assert pairs.judged() == judged


@pytest.mark.parametrize(
    "selection",
    [
        Selection("split_mnist", "class_incremental", "paper", seeds=tuple(range(10)), rows=("sgd", "joint")),
        Selection("split_digits", seeds=(3,), rows=("vcl_ddm",)),
        Selection("toy_pan", None, "paper", "validation", (100, 101), rows=("vcl_single_head",)),
        Selection(
            *("split_mnist", "domain_incremental", "paper", "test", (0, 2, 5)),
            rows=("imbalance_sgd", "imbalance_vcl"),
            changes={"train_sizes": (100, 1000), "epochs": (3, 4), "learning_rate": 1e-05, "restart": True},
        ),
    ],
)
def test_a_command_runs_the_selection_that_it_tells(selection, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(sweep, "run", lambda chosen: asked.append(chosen) or pd.DataFrame())
    words = tables.command(selection).split()
    assert words[:2] == ["paper-lib", "run"]
    assert cli.main(words[1:]) == 0, capsys.readouterr().err
    assert asked == [selection]


def test_the_command_of_a_claim_is_a_line_a_selection():
    needs = tuple(Selection(d, None, "paper", rows=("joint",)) for d in ("split_mnist", "split_fmnist"))
    assert claim(needs).command().splitlines() == [tables.command(one) for one in needs]
    assert isinstance(sweep.jobs(needs[0])[0].method, Replay)
