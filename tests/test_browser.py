"""The built book in headless Chromium with every other host out of reach."""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

import book
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log line for each."""

    def log_message(self, *message: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the built book on this machine."""
    if missing := book.missing_pages():
        pytest.skip(f"the book is not built, {missing[0].name} is missing: run `make book`")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(book.HTML)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="no browser test: the Python package playwright is missing")
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip(f"no browser test: none of {', '.join(CHROMIUM)} is installed")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


class Visit:
    """One page, opened with other hosts blocked, and everything it complained about or asked for."""

    def __init__(self, browser: Any, site: str, name: str) -> None:
        self.elsewhere: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(reduced_motion="reduce")
        self.page.route("**/*", lambda route: self._serve(route, site))
        self.page.on("console", lambda line: self.complaints.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.goto(f"{site}/{name}.html", wait_until="load")
        self.page.evaluate("window.MathJax ? window.MathJax.startup.promise.then(() => true) : true")

    def _serve(self, route: Any, site: str) -> None:
        if route.request.url.startswith((site, "data:", "blob:")):
            route.continue_()
        else:
            self.elsewhere.append(route.request.url)
            route.abort()


@pytest.fixture(scope="module", params=[*book.chapters(), "search", "genindex", "prf-prf"])
def visit(request: pytest.FixtureRequest, browser: Any, site: str) -> Iterator[Visit]:
    visit = Visit(browser, site, request.param)
    yield visit
    visit.page.close()


def test_page_is_whole_without_a_network(visit):
    """Nothing asked of other hosts, no error, all maths typeset, every image there and described."""
    assert visit.elsewhere == []
    assert visit.complaints == []

    page = visit.page
    sources = page.locator(".math").count()
    assert page.locator("mjx-container").count() >= sources, "maths left as source"
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0
    text = page.locator("main").inner_text()
    assert "\\(" not in text and "\\[" not in text

    images = page.evaluate("[...document.images].map(i => [i.src, i.complete && i.naturalWidth > 0, i.alt])")
    assert [source for source, loaded, _ in images if not loaded] == []
    assert [source for source, _, description in images if not description] == []


def test_axe_finds_nothing_serious(visit):
    """The rules of axe-core: all of them on a desktop and on a phone, those of colour in the light and in the dark."""
    page = visit.page
    page.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))

    def check(**which: object) -> None:
        options = {"resultTypes": ["violations"], **which}
        found = page.evaluate("options => axe.run(document, options)", options)["violations"]
        assert [
            (violation["id"], node["target"], node["failureSummary"])
            for violation in found
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ] == []

    check(rules={"label-content-name-mismatch": {"enabled": True}})
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.wait_for_selector("html[data-theme=dark]")
    check(runOnly={"type": "rule", "values": ["color-contrast"]})
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(500)  # what scrolls now gets its tab stop once the size has settled
    check(rules={"color-contrast": {"enabled": False}})


def test_figures_are_legible_on_a_phone(visit):
    """Text of 10 points, the smallest on a figure of 200 dots an inch, has at least 9 pixels; so has that of an SVG."""
    visit.page.emulate_media(color_scheme="dark")  # where a figure has a margin
    visit.page.set_viewport_size({"width": 390, "height": 844})
    heights = visit.page.evaluate(
        """() => [
            ...[...document.querySelectorAll(".cell_output img")].map(image => {
                const style = getComputedStyle(image);
                const width = image.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
                return [image.alt, width / image.naturalWidth * 200 * 10 / 72];
            }),
            ...[...document.querySelectorAll(".cell_output svg text")].map(text =>
                [text.textContent, parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().d]),
        ]"""
    )
    assert [(what, height) for what, height in heights if height < 9] == []


def test_nothing_is_cut_on_a_phone(visit):
    """No formula, scoreboard or parameter's comment is wider than its place, and margin notes have a line's width."""
    visit.page.emulate_media(color_scheme="light")
    visit.page.set_viewport_size({"width": 390, "height": 844})
    boxes = "mjx-container[display=true], table.table:not(.dataframe), .tag_parameters pre"
    cut = visit.page.evaluate(
        """boxes => [...document.querySelectorAll(boxes)].filter(box => [box, box.parentElement].some(
            one => one.scrollWidth > one.clientWidth + 1)).map(box => box.outerHTML.slice(0, 200))""",
        boxes,
    )
    notes = visit.page.evaluate("[...document.querySelectorAll('aside.margin')].map(note => note.clientWidth)")
    assert cut == [] and all(width > 300 for width in notes)


def test_nothing_is_cut_on_paper(visit):
    """On A4 no table, code or formula is wider than its place, and no navigation is printed."""
    visit.page.emulate_media(media="print", color_scheme="light")
    visit.page.set_viewport_size({"width": 718, "height": 1046})
    cut = visit.page.evaluate(
        """[...document.querySelectorAll(".table, table, pre, .cell_output, mjx-container[display=true]")].filter(
            box => box.scrollWidth > box.clientWidth + 1).map(box => box.outerHTML.slice(0, 200))"""
    )
    shown = [
        box for box in visit.page.locator(".bd-sidebar, .bd-header-article, .prev-next-area").all() if box.is_visible()
    ]
    visit.page.emulate_media(media="screen")
    assert cut == [] and shown == []


def test_every_icon_is_drawn(browser, site):
    """Icons are letters of a font; the rules of those that no page uses are left out of the style sheet."""
    visit = Visit(browser, site, "notebooks/protocl")
    letters = visit.page.evaluate(
        """[...document.querySelectorAll("[class*='fa-']")].map(
            icon => [icon.className, getComputedStyle(icon, "::before").content.length])"""
    )
    visit.page.close()
    assert len(letters) > 10
    assert [name for name, length in letters if length != 3] == []  # a letter in quotation marks


def test_search_finds_a_chapter(browser, site):
    """The search page works from its own index."""
    visit = Visit(browser, site, "search")
    visit.page.goto(f"{site}/search.html?q=Hamiltonian")
    visit.page.wait_for_selector("#search-results li a")
    assert any("hamiltonian" in link.get_attribute("href") for link in visit.page.locator("#search-results li a").all())
    assert visit.complaints == [] and visit.elsewhere == []
    visit.page.close()


def test_search_works_from_the_files_alone(browser):
    """Without a server, too; only the excerpts, which a browser reads from no file, are left out."""
    page = browser.new_page()
    page.goto((book.HTML / "search.html").as_uri() + "?q=Hamiltonian")
    page.wait_for_selector("#search-results li a")
    assert any("hamiltonian" in link.get_attribute("href") for link in page.locator("#search-results li a").all())
    page.close()


def test_the_download_button_downloads(browser, site):
    page = browser.new_page()
    page.goto(f"{site}/notebooks/protocl.html")
    page.click(".dropdown-download-buttons > button")
    with page.expect_download() as download:
        page.click(".btn-download-source-button")
    assert download.value.suggested_filename == "protocl.ipynb"
    page.close()
