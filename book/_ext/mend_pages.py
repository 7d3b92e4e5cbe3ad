"""A Sphinx extension: finished pages load each icon once and name their controls as a screen reader needs them.

What the theme and the notebook renderer write cannot be set otherwise, so it is replaced in the finished pages. A
replacement that finds nothing warns, which fails the strict build: the theme has changed and the line can go.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

MENDS = (
    # The style sheet's font draws the same icons: the script, 1.5 MB on every page, only turns them into pictures.
    (r'<script defer src="[^"]*/fontawesome\.js[^"]*"></script>', ""),
    # Without the label the summary is called by its visible words, "Show code cell source".
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    # A control's name begins with what stands on it.
    (r'(search-button-field .*) aria-label="Search"', r'\1 aria-label="Search Ctrl+K"'),
    # Every theorem and proof has this identifier.
    (r' id="proof-content"', ""),
    # The entries of a list must be list items; the role that docutils gives them is deprecated.
    (r'role="doc-biblioentry"', 'role="listitem"'),
    # A link to a page's source shows it in a new tab; this one saves it.
    (r'(<a href="[^"]*_sources/[^"]*") target="_blank"', r"\1 download"),
)
# What an icon looks like: two thousand rules, of which the book needs a dozen.
ICON = re.compile(r"\.fa-[\w-]+:before(?:,\.fa-[\w-]+:before)*\{content:[^}]*\}")


MENDED = "<!-- mended -->"
"""Ends a page that is done: a build writes only what has changed and leaves the other pages as they were."""


def icons(text: str) -> list[str]:
    """The names of icons, and of their sizes and styles, in a page or a rule of a style sheet."""
    return re.findall(r"\bfa-[\w-]+", text)


def mend(app: Sphinx, error: Exception | None) -> None:
    """Rewrite the built pages and drop what they no longer load."""
    if error or app.builder.name != "html":
        return
    found = dict.fromkeys((pattern for pattern, _ in MENDS), 0)
    used: set[str] = set()
    all_fresh = True
    for page in Path(app.outdir).rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        used.update(icons(html))
        if html.endswith(MENDED):
            all_fresh = False
            continue
        for pattern, replacement in MENDS:
            html, count = re.subn(pattern, replacement, html)
            found[pattern] += count
        page.write_text(html + MENDED, encoding="utf-8")
    sheet = Path(app.outdir) / "_static/styles/pydata-sphinx-theme.css"
    css, found[ICON.pattern] = ICON.subn(
        lambda rule: rule[0] if used & set(icons(rule[0])) else "", sheet.read_text(encoding="utf-8")
    )
    sheet.write_text(css, encoding="utf-8")
    for pattern in (pattern for pattern, count in found.items() if all_fresh and not count):
        logging.getLogger(__name__).warning("no page holds what book/_ext/mend_pages.py replaces: %s", pattern)


def hide_launch_buttons(app: Sphinx, config: Config) -> None:
    """Without a repository there is nothing to open on Binder or Colab, and the theme fails on its lack."""
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options.pop("launch_buttons", None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the start and the end of the build."""
    app.connect("config-inited", hide_launch_buttons)
    app.connect("build-finished", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
