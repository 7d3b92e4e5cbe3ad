"""Figure 7's chapter: which runs a size is, what its curve and claims are made of, and the numbers of its answers."""

from dataclasses import replace
from functools import partial

import notebooks
import numpy as np
import pandas as pd
import pytest

from paper_lib import paper, plots, runs, sweep, tables
from paper_lib.experiments import protocl_memory as memory
from paper_lib.notebook import config_from
from paper_lib.rows import MNISTS
from paper_lib.sweep import Selection


@pytest.mark.parametrize("dataset", MNISTS)
def test_the_size_of_table_1_and_none_are_the_rows_that_are_stored_already(dataset):
    base = memory.paper_rows(dataset)
    for name, total, row in (
        ("protocl", 1000, "protocl"),
        ("replay", 1000, "replay"),
        ("protocl", 0, "protocl_no_memory"),
    ):
        (job,) = sweep.jobs(memory.selection(name, total, base))
        (same,) = sweep.jobs(Selection(dataset, "class_incremental", "paper", rows=(row,)))
        assert job == same and not job.changes


def test_every_other_size_keeps_its_share_of_each_task_and_changes_nothing_else():
    base = memory.paper_rows("split_mnist")
    for name in memory.ROWS:
        (usual,) = sweep.jobs(memory.selection(name, 1000, base))
        for total in memory.TOTALS[1:]:
            (job,) = sweep.jobs(memory.selection(name, total, base))
            assert 5 * job.method.memory_per_task == total
            assert job.method == replace(usual.method, memory_per_task=total // 5) and job.stream == usual.stream
    found = [runs.key_of(job.identity("")) for one in memory.selections() for job in sweep.jobs(one)]
    assert len(set(found)) == len(found) == len(MNISTS) * len(memory.ROWS) * len(memory.TOTALS)


def test_a_quick_preset_with_fewer_tasks_holds_the_total_that_it_says():
    live = Selection("split_cifar100", "class_incremental", rows=("replay",))
    (job,) = sweep.jobs(memory.selection("replay", 250, live))
    assert job.stream["num_tasks"] * job.method.memory_per_task == 250


def test_sizes_that_cannot_be_are_named():
    assert config_from(memory.Sizes, {"totals": "0,25"}).totals == (0, 25)
    with pytest.raises(ValueError, match="has a number twice"):
        config_from(memory.Sizes, {"totals": [5, 5]})
    cifar = {"dataset": "split_cifar100", "preset": "paper"}
    for totals, selected, said in (
        (7, {}, "totals=7 is no multiple of 5, the tasks of split_digits"),
        (50, {"changes": {"num_tasks": 3}}, "totals=50 is no multiple of 3"),
        (5, cifar, "totals=5 is no multiple of 10"),
        (5, {"rows": ("sgd",)}, "rows='sgd' is not one of protocl, replay"),
    ):
        with pytest.raises(ValueError, match=said):
            memory.run(replace(memory.LIVE, **selected), memory.Sizes((totals,)))


def stored_runs(finals, seeds=range(6)):
    """Stored runs in which a row's accuracy on every task is a number by its size, and ten times the seed lower."""
    lines = []
    for (name, total), final in finals.items():
        (job,) = sweep.jobs(memory.selection(name, total, memory.paper_rows("split_mnist")))
        for seed in seeds:
            for trained in range(1, 6):
                for tested in range(1, trained + 1):
                    place = [*job.named.values(), "key", seed, trained, tested]
                    lines.append([*place, "accuracy", (final - seed / 10) / 100])
                    lines.append([*place, "nll", final / 10])
    return pd.DataFrame(lines, columns=runs.COLUMNS)


def test_a_curve_has_five_seeds_of_each_size_and_finds_a_size_by_its_runs():
    table = stored_runs({("protocl", 0): 20, ("protocl", 1000): 90, ("replay", 1000): 91, ("replay", 50): 60})
    lines = memory.curve(memory.paper_rows("split_mnist"), memory.TOTALS, partial(tables.of, table))
    found = {key: part for key, part in lines.groupby(["row", "total"])}
    assert set(found) == {("protocl", 0), ("protocl", 1000), ("replay", 50), ("replay", 1000)}
    for part in found.values():
        assert part.seed.tolist() == [0, 1, 2, 3, 4]
        np.testing.assert_allclose(part.final, part.final.iloc[0] - np.arange(5) / 10)
        np.testing.assert_allclose(part.triangle, part.final)
    assert memory.paired(lines, 1000).mean == pytest.approx(-1)
    assert memory.paired(lines, 50) is None


@pytest.mark.parametrize(
    ("finals", "verdict"),
    [
        ([20, 48, 67, 80, 88, 91, 93, 94], "reproduced"),
        ([20, 48, 67, 80, 88, 91, 90, 94], "not reproduced"),  # one step down
        ([20] * 8, "not reproduced"),
        ([94, 93, 91, 88, 80, 67, 48, 20], "not reproduced"),
    ],
)
def test_the_figure_is_reproduced_if_no_step_goes_down(finals, verdict):
    table = stored_runs({("protocl", t): v for t, v in zip(memory.TOTALS, finals, strict=True)})
    judged = memory.judge_figure(table)
    assert judged.verdict == verdict and f"{finals[-1] - 0.2:.1f} %" in judged.ours


def test_fewer_epochs_than_the_papers_are_a_caveat():
    (claim,) = (claim for claim in paper.claims() if claim.name == "memory")
    judged = claim.judged()
    assert judged.verdict == "with a caveat" and judged.ours.endswith("6 of 50 epochs")


def test_a_table_has_a_line_for_every_size_run_or_not(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    shown, more = memory.shown("split_mnist")
    assert list(shown.index) == list(memory.TOTALS) and set(shown.to_numpy().flat) == {"not run"}
    assert (more.filter(like="n, ") == 0).all(axis=None)
    assert set(memory.numbers().values()) == {"not run yet", "open"}
    figure = plots.memory_curves(memory.panels(), memory.TOTALS, memory.printed())
    figure.draw_without_rendering()
    assert [ax.get_title() for ax in figure.axes] == [f"{paper.LABELS[d]}, not run yet" for d in MNISTS]


def test_printed_numbers_stand_at_the_sizes_of_their_rows():
    assert memory.printed() == {
        "Split-MNIST": {0: (33.25, 0.15), 1000: (93.73, 1.05)},
        "Split-FMNIST": {1000: (82.73, 1.70)},
    }


ANSWERS = [
    ((0, 5), {}, {("protocl", 5): 40, ("replay", 5): 41}),
    ((50,), {"oversample": False}, {("protocl", 50): 78, ("replay", 50): 46}),
    ((50,), {}, {("protocl", 50): 82, ("replay", 50): 82}),
    ((1250,), {}, {("protocl", 1250): 97, ("replay", 1250): 97}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("totals", "changes", "answers"), ANSWERS)
def test_an_answer_is_what_its_run_gives(totals, changes, answers, tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    found = (
        memory.run(replace(memory.LIVE, changes=changes), memory.Sizes(totals)).groupby(["row", "total"]).final.mean()
    )
    said = (notebooks.NOTEBOOKS / "protocl_memory.py").read_text(encoding="utf-8").partition("## Try it")[2]
    for place, percent in answers.items():
        assert found[place] == pytest.approx(percent, abs=2), place
        assert str(percent) in said


@pytest.mark.parametrize("name", ["memory_per_task", "memory_total"])
def test_a_size_of_the_memory_is_set_by_the_curve_alone(name):
    live = replace(memory.LIVE, rows=("protocl",), changes={name: 3})
    with pytest.raises(ValueError, match=f"{name}=3 is what totals sets here"):
        memory.selections(live, (50,))


def test_what_recomputes_a_curve_is_a_command_for_every_size():
    lines = memory.source("split_mnist").splitlines()
    commands = [line.strip("`") for line in lines if line.startswith("`")]
    assert commands == list(map(tables.command, memory.selections(memory.paper_rows("split_mnist"))))
