"""CONTRIBUTING's recipes in a temporary copy: a method is its file and a row, a data set its reader and an entry."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

METHOD = '''"""Classifies by the frequency of the classes so far, whatever the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from paper_lib.methods import Learned, unreported


class State(NamedTuple):
    """Counts ``(seed, unit)`` of the points so far."""

    spec: Any
    seeds: tuple[int, ...]
    counts: torch.Tensor


@dataclass(frozen=True)
class Frequencies:
    """Configuration.

    Attributes:
        prior: pseudo-count of every class.
    """

    prior: float = 1.0

    VERSION: ClassVar[int] = 1

    def init(self, spec, seeds, device):
        return State(spec, tuple(seeds), torch.full((len(seeds), spec.num_units), self.prior, device=device))

    def learn(self, state, task, report=unreported):
        counts = torch.bincount(task.y, minlength=state.spec.num_units)
        return Learned(state._replace(counts=state.counts + counts), {})

    def predict(self, state, x, task_id=None):
        return state.counts.log_softmax(-1)[:, None].expand(-1, len(x), -1)
'''

ROW = """    yield Row(
        "tally",
        Frequencies,
        on(("split_digits", "split_mnist")),
        {},
        CLASSES_FIRST,
        Style("class frequencies", BLACK, "*", "-."),
    )
"""

READER = '''

def corners():
    """A point in each of four corners, twice for training."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.arange(4)
    noise = 0.1 * torch.randn(160, 2, generator=torch.Generator().manual_seed(0))
    return VisionData(x.repeat(40, 1) + noise, y.repeat(40), x, y, tuple("abcd"))
'''


@pytest.fixture
def copy(tmp_path):
    """The project without its stored results, and a way to run commands in it."""
    for name in ("paper_lib", "plans", "scripts", "notebooks", "book"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    for name in ("README.md", "_toc.yml", "_config.yml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "results").mkdir()

    def edit(path, before, after):
        text = (tmp_path / path).read_text()
        assert text.count(before) == 1, f"{before!r} is not once in {path}"
        (tmp_path / path).write_text(text.replace(before, after))

    def run(*words):
        own = {"PYTHONPATH": os.fspath(tmp_path), "PAPER_LIB_RUNS": os.fspath(tmp_path / "runs")}
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env={**os.environ, **own}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.edit, run.folder = edit, tmp_path
    return run


SHOWN = """
from paper_lib import plan, plots, runs, sweep, tables
from paper_lib.data import stream
from paper_lib.experiments import class_incremental

make = runs.make_stream  # digits in place of files that may not be there
runs.make_stream = lambda dataset, scenario="class_incremental", **options: make("split_digits", scenario, **options)
chosen = sweep.Selection("split_mnist", "class_incremental", "paper", seeds=tuple(range(10)), rows=("tally", "sgd"),
                         changes={})
print("planned", any("tally" in whole.command for whole in plan.load("paper").wholes()))
sweep.run(chosen)
runs.tabulate()
lines = class_incremental.comparison("split_mnist")
print("table", lines.n["tally"], f"{lines.final['tally']:.2f}")
shown, _ = tables.side_by_side(lines, lambda name: class_incremental.paper.label(name))
print("label", "class frequencies" in shown.index)
table = class_incremental.stored("split_mnist")
curve, dots = plots.accuracy_over_tasks(tables.curves(table)), plots.scores({"Split-MNIST": lines})
print("curve", "class frequencies" in [text.get_text() for text in curve.legends[0].get_texts()])
print("dots", "class frequencies" in [text.get_text() for text in dots.axes[0].get_yticklabels()])
"""


@pytest.mark.slow
def test_a_method_s_file_and_its_row_stand_in_table_1_the_figures_the_scoreboard_and_the_plan(copy):
    (copy.folder / "paper_lib" / "methods" / "frequencies.py").write_text(METHOD)
    rows = "paper_lib/rows.py"
    copy.edit(
        rows,
        "from paper_lib.methods.protocl",
        "from paper_lib.methods.frequencies import Frequencies\nfrom paper_lib.methods.protocl",
    )
    marker = '    yield memory("joint", joint'
    copy.edit(rows, marker, ROW + marker)
    out = copy("-m", "paper_lib.cli", "run", "rows=tally", "dataset=split_digits", "seeds=0:3")  # CONTRIBUTING's look
    assert re.search(r"tally +split_digits +class_incremental", out)
    assert "    prior  a number. pseudo-count of every class." in copy("-m", "paper_lib.cli", "list", "tally")
    (copy.folder / "show.py").write_text(SHOWN)
    told = dict(line.split(" ", 1) for line in copy("show.py").splitlines())
    n, final = told.pop("table").split()
    assert n == "10" and 8 < float(final) < 13  # chance of ten
    assert told == dict.fromkeys(("planned", "label", "curve", "dots"), "True")
    copy("scripts/scoreboard.py")
    page = (copy.folder / "book" / "reproduction.md").read_text()
    assert f"| Split-MNIST | class frequencies | {final} / " in page


@pytest.mark.slow
def test_a_data_set_is_its_reader_and_one_entry(copy):
    with (copy.folder / "paper_lib" / "data" / "vision.py").open("a") as file:
        file.write(READER)
    entry = '    "corners": _Deal("four corners", _in_turn("corners", 2, 2), (0.5, 0.5), (0.5, 0.5), vision.corners),\n'
    copy.edit("paper_lib/data/stream.py", "_DEALS = {\n", "_DEALS = {\n" + entry)
    words = ("dataset=corners", "seeds=0:2", "epochs=200", "batch_size=none")
    out = copy("-m", "paper_lib.cli", "run", "rows=imbalance_joint,imbalance_sgd", *words)
    found = {line.split()[0]: float(line.split()[3]) for line in out.splitlines()[2:]}
    assert set(found) == {"imbalance_joint", "imbalance_sgd"} and found["imbalance_joint"] > 70
    code = "from paper_lib import paper; print(paper.LABELS['corners'])"
    assert copy("-c", code) == "four corners\n"
    with_row = '    **on(MNISTS, epochs=10),\n    "toy_pan": {"hidden": (10, 10), "epochs": 200'
    copy.edit("paper_lib/rows.py", with_row, '    "corners": {"epochs": 200},\n' + with_row)
    out = copy("-m", "paper_lib.cli", "run", "rows=sgd_multi_head,joint_unit", "dataset=corners", "seeds=0")
    assert "task_incremental" in out and "domain_incremental" in out
