"""The book's sources and, where it was built, its pages."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import book
import pytest
from bs4 import BeautifulSoup

BOOK = book.ROOT / "book"
MATHJAX = BOOK / "assets" / "mathjax"
SOURCES = (".md", ".ipynb")

built = pytest.mark.skipif(not (book.HTML / "index.html").exists(), reason="the book is not built: run `make book`")


def parsed(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def pages():
    return sorted(book.HTML.glob("*.html")) + sorted((book.HTML / "notebooks").glob("*.html"))


def test_links_are_links():
    assert not book.broken_links()


def test_a_checkout_without_links_fails_in_words(tmp_path):
    (tmp_path / "_config.yml").write_text("../_config.yml", encoding="utf-8")  # what git writes with symlinks off
    problems = book.broken_links(tmp_path)
    assert len(problems) == 3
    assert "links switched off" in problems[0]


def test_every_chapter_has_its_source():
    for name in book.chapters():
        assert sum((BOOK / f"{name}{suffix}").is_file() for suffix in SOURCES) == 1, name


def test_every_source_is_a_chapter():
    """A page that nobody listed would never be built."""
    chapters = set(book.chapters())
    assert len(chapters) == len(book.chapters()), "a chapter is listed twice"
    assert {path.stem for path in BOOK.glob("*.md")} <= chapters
    assert {f"notebooks/{path.stem}" for path in (BOOK / "notebooks").glob("*.ipynb")} <= chapters


def test_chapters_reads_nested_parts(tmp_path):
    toc = tmp_path / "_toc.yml"
    toc.write_text(
        "root: index\nparts:\n- caption: A\n  chapters:\n  - file: one\n    sections:\n    - file: two\n"
        "- caption: B\n  chapters:\n  - file: three\n",
        encoding="utf-8",
    )
    assert book.chapters(toc) == ["index", "one", "two", "three"]
    (tmp_path / "index.html").touch()
    (tmp_path / "two.html").touch()
    assert [page.name for page in book.missing_pages(tmp_path, toc)] == ["one.html", "three.html"]


def test_mathjax_is_the_file_that_its_note_names():
    digest = hashlib.sha256((MATHJAX / "tex-svg-full.js").read_bytes()).hexdigest()
    assert f"`{digest}`" in (MATHJAX / "README.md").read_text(encoding="utf-8")
    assert "Apache License" in (MATHJAX / "LICENSE").read_text(encoding="utf-8")


def test_no_labels_in_notebooks():
    """A label that two notebooks define breaks the strict build; equations are labelled on the parts' pages."""
    for source in (BOOK / "notebooks").glob("*.py"):
        assert not re.search(r"^# (\(.+\)=|:label:)", source.read_text(encoding="utf-8"), re.MULTILINE), source.name


@pytest.mark.slow
def test_a_named_repository_brings_buttons_that_open_a_chapter_elsewhere(tmp_path):
    for name in ("_ext", "references.bib"):
        (tmp_path / name).symlink_to(BOOK / name)
    config = (book.ROOT / "_config.yml").read_text(encoding="utf-8")
    assert 'url: ""' in config
    named = config.replace('url: ""', "url: https://github.com/somebody/something")
    (tmp_path / "_config.yml").write_text(named, encoding="utf-8")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: notebooks/scenarios\n", encoding="utf-8")
    (tmp_path / "notebooks").mkdir()
    shutil.copy(BOOK / "notebooks" / "scenarios.ipynb", tmp_path / "notebooks")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "--quiet", tmp_path]
    subprocess.run(command, capture_output=True, check=True)
    page = parsed(tmp_path / "_build" / "html" / "notebooks" / "scenarios.html")
    assert [link["href"] for link in page.select(".dropdown-launch-buttons a")] == [
        "https://mybinder.org/v2/gh/somebody/something/main?urlpath=lab/tree/notebooks/scenarios.ipynb",
        "https://colab.research.google.com/github/somebody/something/blob/main/notebooks/scenarios.ipynb",
    ]


@built
def test_buttons_download_and_launch_only_what_can_be_launched():
    for name in book.chapters():
        page = parsed(book.HTML / f"{name}.html")
        assert not page.select(".dropdown-launch-buttons"), "the configuration names no repository"
        (source,) = page.select("a.btn-download-source-button")
        assert source.has_attr("download") and not source.has_attr("target")
        assert (book.HTML / f"{name}.html").parent.joinpath(source["href"]).is_file()


@built
def test_every_chapter_is_a_page():
    assert not book.missing_pages(), "run `make book`"


@built
def test_no_page_loads_from_elsewhere():
    not_loaded = {"canonical", "author", "license", "next", "prev"}
    for page in pages():
        html = parsed(page)
        found = [tag["src"] for tag in html.select("[src]")]
        found += [tag["href"] for tag in html.select("link[href]") if not not_loaded & set(tag.get("rel", []))]
        assert found, page.name
        assert not [url for url in found if re.match(r"(https?:)?//", url)], page.name
    for sheet in book.HTML.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


@built
def test_a_page_weighs_at_most_a_megabyte():
    """The page without its figures, and all styles, scripts and the icon font that it names; MathJax is beside it."""
    font = (book.HTML / "_static/vendor/fontawesome/webfonts/fa-solid-900.woff2").stat().st_size
    for page in pages():
        html = parsed(page)
        names = {tag["src"] for tag in html.select("script[src]")}
        names |= {tag["href"] for tag in html.select("link[rel=stylesheet], link[as=script]")}
        files = {(page.parent / name.partition("?")[0]).resolve() for name in names}
        assert len(files) > 10, page.name
        for figure in html.select("svg"):
            figure.decompose()
        size = len(str(html).encode()) + font + sum(f.stat().st_size for f in files if f.parent.name != "mathjax")
        assert size <= 1_000_000, f"{page.name}: {size:,}"


@built
def test_every_image_has_a_description():
    for page in pages():
        for image in parsed(page).select("img"):
            description = image.get("alt", "")
            assert description and not description.endswith(".png"), (page.name, image)  # unset, it is the file's name


@built
def test_no_maths_is_left_in_the_prose():
    """A formula broken over lines, so that one begins with a list's sign, is silently read as text."""
    for page in pages():
        prose = parsed(page).select_one("main")
        for tag in prose.select(".math, pre, code, script, style"):
            tag.decompose()
        found = re.search(r".{0,40}(\$|\\[a-zA-Z(\[]).{0,40}", prose.get_text())
        assert not found, f"{page.name}: {found[0]}"
