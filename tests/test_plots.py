"""Figures show the data that they are given, with labelled axes, and leave nothing open behind them."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from paper_lib import plots
from paper_lib.analysis import filter_derivation, weight_filter
from paper_lib.analysis.misspecification import Curve
from paper_lib.analysis.scenarios import Config as ScenariosConfig
from paper_lib.analysis.scenarios import recursion

GRID = np.linspace(-1, 1, 5)
CURVES = tuple(Curve(m, t, GRID, GRID * t, np.ones(5)) for m in ("line", "experts") for t in (1, 2))
DATA = ((GRID - 1, GRID), (GRID + 1, -GRID))
SCORES = pd.DataFrame(
    [
        (seed, model, trained, tested, metric, seed + trained)
        for seed in (0, 2)
        for model in ("line", "experts", "single_task")
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
    "sd_bound": lambda: plots.sd_bound([0, 50, 100], 50 / 3, {"a row": 18.56}),
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


def test_the_largest_standard_error_of_ten_accuracies_is_drawn_as_computed():
    line = plots.sd_bound([0, 100], 50 / 3, {}).axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [0, 50 / 3])  # five zeros and five hundreds: sd 52.7


def test_matrices_stand_at_most_four_abreast_and_no_panel_is_empty(tmp_path):
    names = list(plots.METHOD_STYLES)[:6]
    figure = plots.accuracy_matrices({name: np.full((2, 3, 3), place / 10) for place, name in enumerate(names)})
    figure.savefig(tmp_path / "figure.png")
    *panels, _ = figure.axes
    assert [ax.get_title() for ax in panels] == [f"{plots.METHOD_STYLES[name][0]}\n2 seeds" for name in names]
    assert [ax.images[0].get_array().max() for ax in panels] == pytest.approx([0, 10, 20, 30, 40, 50])
    assert len({round(ax.get_position().y0, 6) for ax in panels}) == 2


def test_no_two_methods_are_drawn_alike():
    styles = list(plots.METHOD_STYLES.values())
    assert len({style[1:] for style in styles}) == len({style[0] for style in styles}) == len(styles)


def test_every_trial_is_a_dot_at_its_epochs(tmp_path):
    tried = pd.DataFrame({"epochs": [3, 3, 50], "score": [0.5, 0.6, 0.7]})
    figure = plots.scores_by_epochs({"left": {"protocl": tried, "replay": tried}, "right": {"protocl": tried}})
    figure.savefig(tmp_path / "figure.png")
    for ax, rows in zip(figure.axes, (2, 1), strict=True):
        assert len(ax.lines) == rows
        for line in ax.lines:
            assert line.get_ydata() == pytest.approx([50, 60, 70])
            assert line.get_xdata() == pytest.approx([3, 3, 50], rel=0.1)
        assert [label.get_text() for label in ax.get_xticklabels()] == ["3", "50"]
