"""Execute the notebooks: store them executed again, or run their quick presets into a folder.

    python scripts/notebooks.py store [NAME ...]   rewrite notebooks/NAME.ipynb from notebooks/NAME.py, executed
    python scripts/notebooks.py run OUT            papermill every notebook, as stored, into the folder OUT

A notebook is a pair: the ``.py`` is what people edit, the ``.ipynb`` carries the outputs. ``store`` leaves a notebook
byte for byte as it was when neither its source nor its outputs changed, so a diff shows only what moved.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
AT_ONCE = 4
"""Most notebooks that run at a time; no more than there are processors."""


def names() -> list[str]:
    """The notebooks' names, sorted: the stems of the ``.py`` files."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.py"))


def store(name: str, folder: Path = NOTEBOOKS) -> None:
    """Execute ``folder/name.py`` and write it with its outputs to ``folder/name.ipynb``.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the stored notebook is then left as it was.
    """
    import jupytext
    import nbformat
    from jupytext.combine import combine_inputs_with_outputs
    from nbclient import NotebookClient

    source, stored = folder / f"{name}.py", folder / f"{name}.ipynb"
    notebook = jupytext.read(source)
    if stored.exists():  # keeps the cells' ids
        notebook = combine_inputs_with_outputs(notebook, nbformat.read(stored, as_version=4), fmt="py:percent")
    # The kernel starts where nbval's and the book's do. Timings would change a line of each cell on every run.
    NotebookClient(notebook, record_timing=False, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = slim(output.data["image/png"])
    notebook.metadata.get("language_info", {}).pop("version", None)
    jupytext.write(notebook, stored, fmt="ipynb")


def slim(png: str) -> str:
    """A figure in a palette of 256 colours, a third of the bytes; both as base64."""
    from PIL import Image

    written = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        image.convert("RGB").quantize(256).save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def run(name: str, out: Path) -> float:
    """Run a stored notebook at its default parameters through papermill into ``out``: how many seconds it took.

    Raises:
        subprocess.CalledProcessError: a cell failed; ``stderr`` ends with its error.
    """
    start = time.perf_counter()
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "--log-level", "ERROR"]
    subprocess.run(
        [*command, str(NOTEBOOKS / f"{name}.ipynb"), str(out / f"{name}.ipynb")],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # the work of most cells is too small to share
    )
    return time.perf_counter() - start


def run_all(chosen: Sequence[str], out: Path) -> None:
    """Run notebooks, some at a time, neighbours apart: they share runs, which the later one then finds."""
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        names_of = {pool.submit(run, name, out): name for name in (*chosen[::2], *chosen[1::2])}
        for future in as_completed(names_of):
            name = names_of[future]
            try:
                print(f"notebooks/{name}.ipynb: executed in {future.result():.0f} s", flush=True)
            except subprocess.CalledProcessError as error:
                pool.shutdown(cancel_futures=True)
                sys.exit(
                    f"{error.stderr}\nnotebooks/{name}.ipynb failed: the error stands above, and in {out / name}.ipynb"
                )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("store").add_argument("names", nargs="*", metavar="NAME", help="default: every notebook")
    commands.add_parser("run").add_argument("out", type=Path, metavar="OUT")
    options = parser.parse_args()

    known = names()
    chosen = (options.names if options.command == "store" else None) or known
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"no notebook named {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    if options.command == "run":
        run_all(chosen, options.out)
    else:
        for name in chosen:
            start = time.perf_counter()
            store(name)
            print(f"notebooks/{name}.ipynb: executed in {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{len(chosen)} notebooks executed")


if __name__ == "__main__":
    main()
