"""Figures to play with: Python's numbers by another route, a card that needs nothing from elsewhere, and the script."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from bs4 import BeautifulSoup
from scipy.stats import multivariate_normal

from paper_lib import interactive
from paper_lib.interactive import CLASSES, NOISE, NUM_POINTS, clusters, two_lines

CARDS = {"two-tasks": interactive.two_tasks, "prototypes": interactive.prototypes}
POINTS = [(0, -1.0, 1.5), (1, 0.5, 0.5), (0, 0.3, 1.0)]


def test_the_line_is_ridge_regression_and_its_errors_are_integrals():
    slope, height = 0.4, 1.7
    state = two_lines(slope, height)
    x = np.concatenate([(np.arange(NUM_POINTS) + 0.5) / NUM_POINTS - side for side in (1, 0)])
    truth = np.where(x < 0, 1 + x, height + slope * x)
    phi = np.stack([np.ones_like(x), x], 1)
    for line, n in ((state.before, NUM_POINTS), (state.after, 2 * NUM_POINTS)):
        y = (truth + NOISE)[:n]
        np.testing.assert_allclose(line, np.linalg.solve(phi[:n].T @ phi[:n] + np.eye(2) / 100, phi[:n].T @ y))
    grid = np.linspace(0, 1, 20_001)
    second = np.trapezoid((np.polyval(state.after[::-1], grid) - height - slope * grid) ** 2, grid)
    assert state.errors[2] == pytest.approx(second, rel=1e-6)
    first = np.trapezoid((np.polyval(state.after[::-1], grid - 1) - grid) ** 2, grid)
    assert state.errors[1] == pytest.approx(first, rel=1e-6)


def test_on_one_line_nothing_is_forgotten_and_on_the_paper_s_two_a_twelfth():
    same, paper = two_lines(1.0, 1.0), two_lines()
    assert same.errors[1] < 0.002 and paper.errors[0] < 0.005
    assert paper.errors[1] == pytest.approx(1 / 12, abs=0.02)


def test_clusters_are_conjugate_updates_by_hand():
    table = np.array(POINTS)
    scores = []
    for i, cluster in enumerate(clusters(POINTS)):
        mine = table[table[:, 0] == i, 1:]
        precision = 1 + len(mine) / 0.3
        np.testing.assert_allclose(cluster.mean, (np.array(CLASSES[i][2]) + mine.sum(0) / 0.3) / precision)
        assert (cluster.count, cluster.sd) == (len(mine), pytest.approx(precision**-0.5))
        density = multivariate_normal(cluster.mean, (0.3 + 1 / precision) * np.eye(2)).pdf([0.0, 1.2])
        scores.append((0.7 + len(mine)) * density)
    assert clusters(POINTS)[0].probability == pytest.approx(scores[0] / sum(scores))


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_the_same_each_time_and_has_a_still_picture_and_named_controls(name):
    html = CARDS[name]()._repr_html_()
    assert html == CARDS[name]().html and not re.search(r"https?:|src=|@import", html)
    card = BeautifulSoup(html, "html.parser")
    pictures = card.select("svg[role=img]")
    assert len(pictures) == 2 and all(picture["aria-label"] for picture in pictures)
    assert len(card.select("input")) == len(card.select("label input")) >= 2
    assert card.select_one("output").get_text()


@pytest.mark.slow
@pytest.mark.browser
def test_the_script_says_what_python_says(tmp_path):
    """Moved by keyboard alone."""
    api = pytest.importorskip("playwright.sync_api", reason="no browser test: the Python package playwright is missing")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("no browser test: no Chromium is installed")
    page_file = tmp_path / "cards.html"
    page_file.write_text("<!doctype html><meta charset=utf-8>" + "".join(c().html for c in CARDS.values()))
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_file.as_uri())

        def text(name: str) -> str:
            return page.locator(f"#{name} output").inner_text()

        def said(html: str) -> str:
            return BeautifulSoup(html, "html.parser").get_text()

        def press(selector: str, key: str, times: int) -> None:
            page.locator(selector).focus()
            for _ in range(times):
                page.keyboard.press(key)

        assert text("two-tasks") == said(interactive._errors_in_words(two_lines()))
        press("#two-tasks [name=slope]", "ArrowRight", 14)
        press("#two-tasks [name=height]", "ArrowRight", 7)
        assert text("two-tasks") == said(interactive._errors_in_words(two_lines(0.4, 1.7)))

        assert text("prototypes") == said(interactive._clusters_in_words(clusters(())))
        press("#prototypes [name=x]", "ArrowLeft", 10)  # to -1; y is at 1
        press("#prototypes button >> nth=0", "Enter", 2)
        assert text("prototypes") == said(interactive._clusters_in_words(clusters([(0, -1.0, 1.0)] * 2)))
        press("#prototypes button >> nth=1", "Enter", 1)
        assert text("prototypes") == said(interactive._clusters_in_words(clusters(())))
        browser.close()
    assert complaints == []
