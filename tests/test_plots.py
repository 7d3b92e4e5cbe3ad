"""Figures show the data that they are given, with labelled axes, and leave nothing open behind them."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from paper_lib import plots
from paper_lib.analysis import filter_derivation, weight_filter
from paper_lib.analysis.misspecification import Curve
from paper_lib.analysis.scenarios import Config as ScenariosConfig
from paper_lib.analysis.scenarios import recursion
from paper_lib.experiments import vcl_split_mnist
from paper_lib.rows import HEAD_A_TASK, ROWS, shown_in

GRID = np.linspace(-1, 1, 5)
CURVES = tuple(Curve(m, t, GRID, GRID * t, np.ones(5)) for m in ("line", "experts") for t in (1, 2))
DATA = ((GRID - 1, GRID), (GRID + 1, -GRID))
SCORES = pd.DataFrame(
    [
        (seed, model, trained, tested, metric, seed + trained)
        for seed in (0, 2)
        for model in ("line", "mixture", "experts", "single_task")
        for trained, tested in ((1, 1), (2, 1), (2, 2))
        for metric in ("mse", "log_likelihood")
    ],
    columns=["seed", "model", "task_trained", "task_tested", "metric", "value"],
)
EXCESS = pd.DataFrame(
    [(s, b, n, t, 0.1 / n) for s in (0, 1) for b in (1.0, 10.0) for n in (5, 50) for t in (1, 2)],
    columns=["seed", "noise_precision", "num_points", "task_trained", "excess_mse"],
)
DRIFT = pd.DataFrame(
    {"step": [0, 1, 2], "printed": [1.0, 2, 4], "corrected": [1.0, 0.8, 0.6], "simulated": [1, 0.8, 0.6]}
)
SWAP = pd.DataFrame({"num_points": [1, 2, 4], "exact": [-3.0, -2.0, -1.0], "product": [-3.0, -3.0, -3.1]})

FIGURES = {
    "change_point_fit": lambda: plots.change_point_fit(CURVES, DATA),
    "change_point_scores": lambda: plots.change_point_scores(SCORES),
    "excess_error": lambda: plots.excess_error(EXCESS, 1 / 12),
    "recursive_bayes": lambda: plots.recursive_bayes(recursion(ScenariosConfig(num_tasks=3))),
    "drift_variance": lambda: plots.drift_variance(DRIFT),
    "complete_forgetting": lambda: plots.complete_forgetting(
        [90, 100], {"triangle mean": [30, 33.3], "final": [18, 20]}, {"a row": (99, 33)}
    ),
    "monte_carlo_check": lambda: plots.monte_carlo_check(
        [1, 2], [0.2, 0.3], [0.21, 0.3], [0.01, 0.02], x_label="x", y_label="y"
    ),
    "prototype_swap": lambda: plots.prototype_swap(SWAP),
    "lemma_1": lambda: plots.lemma_1(filter_derivation.lemma_1(num_steps=4)),
    "filter_assumptions": lambda: plots.filter_assumptions(*filter_derivation.run(filter_derivation.Config())[:2]),
    "error_by_ratio": lambda: plots.error_by_ratio(*weight_filter.run(weight_filter.Config(num_first=(2, 4)))),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_a_white_card_with_labels_that_draws(name, tmp_path):
    figure = FIGURES[name]()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert any(ax.get_xlabel() for ax in figure.axes) and figure.axes[0].get_ylabel()
    words = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in words) >= 10 and figure.get_figwidth() <= 5.05, "too small on a phone"
    figure.savefig(tmp_path / "figure.png")  # a layout that does not fit warns, and so fails
    assert plt.get_fignums() == []


def test_fit_draws_each_curve_over_the_data_seen_so_far():
    figure = plots.change_point_fit(CURVES, DATA)
    for ax, curve in zip(figure.axes, CURVES, strict=True):
        lines = {line.get_label(): line.get_ydata() for line in ax.lines}
        np.testing.assert_array_equal(lines["predictive mean"], curve.mean)
        assert sum("training" in label for label in lines) == curve.task_trained


def test_scores_show_mean_and_spread_over_data_sets():
    left = plots.change_point_scores(SCORES).axes[0]
    line, _, (bars,) = left.containers[0]
    assert line.get_ydata() == [2.0]  # seeds 0 and 2 after task 1
    half = np.diff(bars.get_segments()[0][:, 1]) / 2
    assert half == pytest.approx(np.sqrt(2))
    assert "2 data sets" in left.containers[0].get_label()


def test_check_shows_the_difference_in_standard_errors():
    _, below = FIGURES["monte_carlo_check"]().axes
    np.testing.assert_allclose(below.lines[0].get_ydata(), [1.0, 0.0], atol=1e-12)


def test_evidence_bars_stand_on_one_another_and_end_at_the_evidence_of_all_data():
    shown = recursion(ScenariosConfig(num_tasks=3))
    bars = plots.recursive_bayes(shown).axes[1].patches
    ends = [bar.get_y() + bar.get_height() for bar in bars]
    np.testing.assert_allclose([bar.get_y() for bar in bars][1:], ends[:-1])
    assert ends[-1] == pytest.approx(shown.batch_log_evidence)


def test_matrices_stand_two_abreast_and_no_panel_is_empty(tmp_path):
    names = ["sgd", "vcl_single_head", "vcl_coreset", "protocl", "joint"]
    figure = plots.accuracy_matrices({name: np.full((2, 3, 3), place / 10) for place, name in enumerate(names)})
    figure.savefig(tmp_path / "figure.png")
    *panels, _ = figure.axes
    words = [" ".join(ax.get_title().split()) for ax in panels]
    assert words == [f"{ROWS[name].style.label}, 2 seeds" for name in names]
    assert [ax.images[0].get_array().max() for ax in panels] == pytest.approx([0, 10, 20, 30, 40])
    assert len({round(ax.get_position().y0, 6) for ax in panels}) == 3


@pytest.mark.parametrize("exhibit", ["tables", "figure_1", "task_imbalance"])
def test_curves_have_the_style_of_their_row_and_the_spread_of_their_seeds(exhibit, tmp_path):
    rows = shown_in(exhibit)
    values = np.array([[1.0, 0.5], [0.8, 0.7]])
    figure = plots.accuracy_over_tasks(dict.fromkeys(rows, values))
    words = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in words) >= 10 and figure.get_figwidth() <= 5.05, "too small on a phone"
    figure.savefig(tmp_path / "figure.png")  # a layout that does not fit warns, and so fails
    (ax,) = figure.axes
    drawn = {container.get_label(): container for container in ax.containers}
    assert list(drawn) == [ROWS[row].style.label for row in rows] and "2 seeds" in ax.get_title()
    for row in rows:
        line, _, (bars,) = drawn[ROWS[row].style.label]
        assert (line.get_color(), line.get_linestyle()) == (ROWS[row].style.colour, ROWS[row].style.line)
        assert line.get_marker() == (ROWS[row].style.marker or "None")
        np.testing.assert_allclose(line.get_ydata(), [90, 60])
        low, high = np.array(bars.get_segments())[0][:, 1]
        sd = 100 * np.std([1.0, 0.8], ddof=1)
        assert (low, high) == pytest.approx((90 - sd, 100))  # cut where a percentage ends


def test_panels_draw_every_curve_and_name_the_seeds(tmp_path):
    rows, values = shown_in("figure_1"), np.array([[1.0, 0.5], [0.8, 0.7]])
    figure = plots.accuracy_panels({name: dict.fromkeys(rows, values) for name in ("left", "right")})
    figure.savefig(tmp_path / "figure.png")
    for ax, title in zip(figure.axes, ("left", "right"), strict=True):
        assert ax.get_title().startswith(title) and "2 seeds" in ax.get_title() and ax.get_xlabel()
        assert len(ax.containers) == len(rows)
    assert len(figure.legends[0].get_texts()) == len(rows)


def test_panels_of_one_head_and_of_many_have_the_bounds_and_scales_of_their_own():
    def falling(low):
        return np.array([[1.0, low - 0.01], [1.0, low + 0.01]])  # sd 0.014

    rows = shown_in("figure_1")
    groups = vcl_split_mnist.by_heads({row: falling(0.6 if "single_head" in row else 0.95) for row in rows})
    bounds = set(vcl_split_mnist.BOUNDS)
    assert all(bounds <= set(group) for group in groups.values())
    many = {row for row in rows if ROWS[row].scenarios == HEAD_A_TASK}
    assert set(groups["a head a task"]) - bounds == many
    assert set(groups["one head"]) - bounds == set(rows) - many - bounds
    figure = plots.accuracy_panels(groups, own_scales=True)
    assert [ax.get_ylim()[0] for ax in figure.axes] == [50, 90]
    assert len(figure.legends[0].get_texts()) == len(rows)  # once each, of both panels


def test_scores_are_dots_on_the_printed_number(tmp_path):
    lines = pd.DataFrame(
        {"final": [60.0, 90.0], "final sd": [2.0, np.nan], "triangle": [70.0, 95.0], "triangle sd": [1.0, np.nan]}
        | {"paper": [61.0, np.nan], "margin": [3.0, np.nan], "n": [10, 1]},
        index=["protocl", "joint"],
    )
    figure = plots.scores({"digits": lines})
    figure.savefig(tmp_path / "figure.png")
    (ax,) = figure.axes
    drawn = [c.lines[0].get_xdata() for c in ax.containers if hasattr(c, "lines")]
    dots = sorted(float(x[0]) for x in drawn if len(x))
    assert dots == [60, 70, 90, 95]
    ends = [patch.get_x() + np.array([0, patch.get_width()]) for patch in ax.patches]
    np.testing.assert_allclose(ends, [[58, 64]])
    assert {"60.0", "90.0"} <= {text.get_text() for text in ax.texts}


def test_every_trial_is_a_dot_at_its_epochs(tmp_path):
    tried = pd.DataFrame({"epochs": [3, 3, 50], "score": [50, 60, 70]})
    figure = plots.scores_by_epochs({"left": {"protocl": tried, "replay": tried}, "right": {"protocl": tried}})
    figure.savefig(tmp_path / "figure.png")
    for ax, rows in zip(figure.axes, (2, 1), strict=True):
        assert len(ax.lines) == 3 * rows  # trials, those far below the best at the edge, and a ring about the best
        for shown, far, best in zip(ax.lines[::3], ax.lines[1::3], ax.lines[2::3], strict=True):
            assert [*shown.get_ydata(), *best.get_ydata()] == pytest.approx([60, 70, 70])
            assert shown.get_xdata() == pytest.approx([3, 50], rel=0.1)
            assert len(far.get_ydata()) == 1 and ax.get_ylim()[0] < far.get_ydata()[0] < 60
        assert [label.get_text() for label in ax.get_xticklabels()] == ["3", "50"]
