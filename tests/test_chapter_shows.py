"""What the chapters that run rows show: dots where the scores are, tables that fold, statements that hold."""

import numpy as np
import pandas as pd
import pytest

from paper_lib import plots, runs, tables
from paper_lib.experiments import (
    class_incremental,
    metrics,
    protocl,
    protocl_dirichlet,
    protocl_memory,
    vcl_split_mnist,
)
from paper_lib.notebook import Table, selection_from
from paper_lib.sweep import Selection

CHAPTERS = (metrics, vcl_split_mnist, class_incremental, protocl, protocl_memory, protocl_dirichlet)

LINES = pd.DataFrame(
    {
        **{"paper": [93.7, np.nan], "margin": [1.0, np.nan], "n": [10, 10]},
        **{"triangle": [94.0, 99.5], "triangle sd": [0.5, 2.0], "final": [91.0, 98.0], "final sd": [1.0, np.nan]},
    },
    index=["protocl", "joint"],
)


@pytest.mark.parametrize(
    "claim", [c for m in CHAPTERS for c in m.CLAIMS], ids=lambda c: f"{c.chapter}: {c.name or c.says}"
)
def test_what_a_chapter_says_about_stored_runs_holds(claim):
    """All that these chapters need has been run, so that nothing is open."""
    assert claim.judged().verdict == "holds"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda m: m.__name__.rpartition(".")[2])
def test_numbers_of_the_prose_are_finite_and_plain(chapter):
    for name, value in chapter.numbers().items():
        assert type(value) is str or (type(value) is float and np.isfinite(value)), name


def test_dots_stand_at_the_scores_and_whiskers_end_with_the_scale(tmp_path):
    figure = plots.scores({"digits": LINES})
    figure.savefig(tmp_path / "figure.png")
    (ax,) = figure.axes
    drawn = [c for c in ax.containers if hasattr(c, "has_xerr") and len(c.lines[0].get_xdata())]
    assert [c.lines[0].get_xdata()[0] for c in drawn] == [94.0, 91.0, 99.5, 98.0]
    ends = [c.lines[2][0].get_segments()[0][:, 0] for c in drawn]
    np.testing.assert_allclose(ends, [[93.5, 94.5], [90, 92], [97.5, 100], [98, 98]])
    assert [bar.get_x() for bar in ax.patches] == pytest.approx([92.7])  # the printed number of the row that has one
    assert ax.get_xlim()[0] == 80 and ax.get_title() == "digits, 10 seeds"
    assert [t.get_text() for t in ax.texts if "P_T" not in t.get_text()] == ["91.0", "98.0"]


def test_two_panels_share_their_rows_and_leave_out_what_was_not_run():
    figure = plots.scores({"a": LINES, "b": LINES.assign(n=[0, 3])})
    assert [len(ax.containers) for ax in figure.axes] >= [4, 2]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "ProtoCL",
        "joint training",
    ]
    assert figure.axes[1].get_title() == "b,\n3 seeds"


def test_whiskers_of_curves_stay_between_0_and_100():
    figure = plots.accuracy_over_tasks({"sgd": np.array([[1.0, 0.0], [0.9, 0.1]])})
    _, _, (bars,) = figure.axes[0].containers[0]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert ends.min() == 0 and ends.max() == 100


def test_matrices_stand_two_abreast():
    figure = plots.accuracy_matrices({name: np.full((2, 3, 3), 0.5) for name in ("sgd", "replay", "joint")})
    places = [ax.get_position() for ax in figure.axes[:3]]
    assert len({round(p.x0, 6) for p in places}) == 2 and len({round(p.y0, 6) for p in places}) == 2


def test_a_table_without_printed_numbers_has_no_column_of_them():
    both = LINES.assign(words="below")
    assert list(tables.side_by_side(both, str)[0]) == [
        "paper ±",
        "triangle mean ± sd",
        "final accuracy ± sd",
        "verdict",
    ]
    alone = both.loc[["joint"]]
    assert list(tables.side_by_side(alone, str)[0]) == ["triangle mean ± sd", "final accuracy ± sd", "verdict"]
    assert list(tables.side_by_side(alone.assign(words=""), str)[0]) == ["triangle mean ± sd", "final accuracy ± sd"]


def test_the_source_of_a_table_is_its_command_and_its_provenance():
    command, words = tables.source(protocl.stored("split_mnist")).splitlines()
    rows = "sgd,protocl,protocl_paper_epochs,protocl_calibrated,protocl_as_published,protocl_no_memory"
    rows += ",protocl_no_memory_paper_epochs"
    rows += ",replay,replay_calibrated,joint_calibrated,joint"
    assert command == (
        f"`paper-lib run dataset=split_mnist scenario=class_incremental preset=paper seeds=0:10 rows={rows}`"
    )
    known = {r["commit"][:7] for source in runs.provenance("split_mnist").values() for r in source["runs"]}
    named = {word.strip("+") for word in words.split("commits ")[1].split(";")[0].split(", ")}
    assert named <= known and words.startswith("10 seeds a row; ") and "torch" in words
    mixed = tables.source(vcl_split_mnist.stored("split_mnist"))
    assert "scenario" not in mixed.splitlines()[0]  # each row's own


def test_a_table_folds_its_source_and_keeps_a_spread_together():
    table = Table(pd.DataFrame({"x": ["1.00 ± 0.10"]}), source="`paper-lib run a<b`\n3 seeds")
    html = table._repr_html_()
    assert "<code>paper-lib run a&lt;b</code><br>3 seeds" in html and html.count("<details") == 1
    assert '<span class="spread">1.00 ±&nbsp;0.10</span>' in html
    assert repr(table).endswith("`paper-lib run a<b`\n3 seeds")


def test_a_setting_that_is_not_given_is_no_setting_of_the_rows():
    live = Selection(rows=("protocl", "sgd"))
    assert selection_from(live, {"rows": ["sgd"], "forget": None}).rows == ("sgd",)
    with pytest.raises(ValueError, match=r"forget=0.9 changes no row of sgd"):
        selection_from(live, {"rows": ["sgd"], "forget": 0.9})
