"""Build the book strictly and check that every chapter became a page.

    python scripts/book.py

Jupyter Book's exit code alone does not say that the pages are there, so each entry of ``_toc.yml`` is looked up in the
output. Prints where the first page is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "book" / "_build" / "html"
LINKS = ("_config.yml", "_toc.yml", "notebooks")


def chapters(toc: Path = ROOT / "_toc.yml") -> list[str]:
    """The documents that a table of contents names, in its order, the root first.

    Raises:
        KeyError: the file has no ``root``.
    """

    def files(node: object) -> list[str]:
        if isinstance(node, list):
            return [name for item in node for name in files(item)]
        if isinstance(node, dict):
            here = [node["file"]] if "file" in node else []
            return here + [name for value in node.values() for name in files(value)]
        return []

    content = yaml.safe_load(toc.read_text(encoding="utf-8"))
    return [content["root"], *files(content)]


def broken_links(book: Path = ROOT / "book") -> list[str]:
    """What is wrong with the links that let the book find its configuration and notebooks, a line each."""
    return [
        f"book/{name} is not a symbolic link to ../{name}: this checkout was made with links switched off. "
        "Clone again with `git -c core.symlinks=true clone` (on Windows with developer mode on)."
        for name in LINKS
        if not ((book / name).is_symlink() and (book / name).exists())
    ]


def missing_pages(html: Path = HTML, toc: Path = ROOT / "_toc.yml") -> list[Path]:
    """The pages that the table of contents promises and the built book lacks."""
    return [page for name in chapters(toc) if not (page := html / f"{name}.html").is_file()]


def main() -> None:
    """Build, check, print the first page."""
    if problems := broken_links():
        sys.exit("\n".join(problems))
    shutil.rmtree(HTML, ignore_errors=True)  # pages of an earlier build must not stand in for missing ones
    # --all reads every page again: a warning of a page that has not changed would otherwise pass unseen.
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ROOT / "book", "-W", "-n", "--keep-going"]
    if (status := subprocess.run([*command, "--all", "--quiet"], cwd=ROOT).returncode) != 0:
        sys.exit(f"The book did not build without warnings (exit status {status}): they stand above.")
    if missing := missing_pages():
        sys.exit("The book built, but these pages are missing:\n" + "\n".join(map(str, missing)))
    print(f"The book's first page: {HTML / 'index.html'}")


if __name__ == "__main__":
    main()
