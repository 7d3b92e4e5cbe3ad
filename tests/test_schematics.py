"""Schematics draw every variable once, with the arrows of the model, and overlap nothing that is to be read."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Circle, FancyArrowPatch

from paper_lib import schematics

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 2, 3, 8, 8, 3), dtype=np.uint8)
NAMES = [["airplane", "automobile"], ["bird", "cat"]]
LABELS = [[[0, 1], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [2, 3]]]
TITLES = ("task-incremental", "domain-incremental", "class-incremental")

FIGURES = {
    "filtering_model": schematics.filtering_model,
    "protocl_model": schematics.protocl_model,
    "hmc_propagation": schematics.hmc_propagation,
    "scenarios": lambda: schematics.scenarios(IMAGES, NAMES, LABELS, TITLES, (True, False, False)),
}


def texts(figure):
    return [t.get_text() for ax in figure.axes for t in (*ax.texts, ax.title) if t.get_text()]


@pytest.mark.parametrize("name", FIGURES)
def test_drawn_on_a_white_card_with_no_text_over_another_or_over_the_edge(name):
    figure = FIGURES[name]()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert plt.get_fignums() == []
    figure.draw_without_rendering()
    shown = [t for ax in figure.axes for t in (*ax.texts, ax.title) if t.get_text().strip()]
    boxes = [(t.get_text(), t.get_window_extent()) for t in shown]
    for text, box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text
    for (one, a), (other, b) in combinations(boxes, 2):
        assert not a.overlaps(b), (one, other)
    for ax in figure.axes:
        lines = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
        for line in lines + [line for line in ax.lines if line.get_linestyle() in ("--", ":")]:
            path = line.get_transform().transform_path(line.get_path()).interpolated(50)
            crossed = [text for text, box in boxes if any(box.contains(*point) for point in path.vertices)]
            assert not crossed, "a line runs through a text"
    assert all(text.get_fontsize() > 9.4 for text in shown) and figure.get_figwidth() <= 5.05, "too small on a phone"


def test_the_filter_observes_inputs_and_outputs_and_hides_the_weights():
    figure = schematics.filtering_model()
    ax = figure.axes[0]
    circles = [c for c in ax.patches if isinstance(c, Circle) and c.radius > 0.3]
    grey = [c.get_facecolor()[0] < 1 for c in circles]
    assert (len(circles), sum(grey)) == (12, 8)
    # Of each step: weights to output, input to output, weights before to weights; and one more out of the last.
    assert sum(isinstance(p, FancyArrowPatch) for p in ax.patches) == 13
    assert r"$\theta^*_{t+1}$" in texts(figure)


def test_scenarios_ask_what_their_labels_say():
    found = texts(FIGURES["scenarios"]())
    assert found.count("$t = ?$") == 4 and {"$t = 1$", "$t = 2$"} <= set(found)
    assert found.count("$y = 0$") == 5 and found.count("$y = 3$") == 1
    assert r"$y \in \{0, 1, 2, 3\}$" in found


def test_propagation_narrows_the_prior_and_has_no_more_tasks_than_it_knows():
    figure = schematics.hmc_propagation(num_tasks=3)
    spread = [np.prod(np.ptp(np.asarray(line.get_data()), axis=1)) for line in figure.axes[0].lines]
    assert spread[0] > spread[2]
    with pytest.raises(ValueError, match="num_tasks=4"):
        schematics.hmc_propagation(num_tasks=4)
