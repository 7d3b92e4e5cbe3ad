"""Telling how far a run is: what is said and when, and that a stream which takes nothing ends nothing."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paper_lib.progress import Progress

ROOT = Path(__file__).parent.parent


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(file, moments, first=0.0):
    clock = Clock()
    with Progress("replay", 4, first, file, clock) as progress:
        for clock.now, done in moments:
            progress.show(done)
    return file


def test_lines_come_every_quarter_of_a_minute_and_the_first_before_it():
    file = told(io.StringIO(), [(t / 10, t / 400) for t in range(400)])
    lines = file.getvalue().splitlines()
    assert lines == [
        "replay: task 1/4, 3 %, 2 min 35 s left",
        "replay: task 1/4, 12 %, 2 min 20 s left",
        "replay: task 1/4, 22 %, 2 min 5 s left",
    ]


def test_a_short_run_says_nothing_in_a_file():
    assert told(io.StringIO(), [(0.5, 1), (4.9, 4)]).getvalue() == ""


def test_time_left_counts_from_where_a_run_was_gone_on_with():
    assert told(io.StringIO(), [(10, 2.5)], first=2.0).getvalue() == "replay: task 3/4, 62 %, 30 s left\n"
    assert told(io.StringIO(), [(10, 2.0)], first=2.0).getvalue() == "replay: task 3/4, 50 %\n"
    assert told(io.StringIO(), [(10, 4.0)]).getvalue() == "replay: task 4/4, 100 %, 0 s left\n"


def test_the_share_of_a_task_is_that_of_its_points():
    clock, file = Clock(), io.StringIO()
    with Progress("replay", 3, 1.0, file, clock, sizes=(8, 1, 1)) as progress:  # the first was done before
        clock.now = 10
        progress.show(2.0)
    assert file.getvalue() == "replay: task 3/3, 90 %, 10 s left\n"


def test_a_terminal_has_one_line_that_is_drawn_again(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = told(Terminal(), [(0, 0), (0.1, 0.1), (100, 2), (200, 4)]).getvalue()
    before, first, second, third = text.split("\r")
    assert before == "" and "\n" not in first + second and third.endswith("\n")
    assert first == "replay: task 1/4, 0 % [                    ]"
    assert second.startswith("replay: task 3/4, 50 %, 1 min 40 s left [##########")
    assert all(len(line.rstrip("\n")) < 60 for line in (first, second, third))


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error, self.tries = error, 0

    def write(self, text):
        self.tries += 1
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "full"), ValueError("I/O operation on closed file")])
def test_a_stream_that_takes_nothing_is_left_alone(error):
    file = Broken(error)
    told(file, [(10, 1), (30, 2)])
    assert file.tries == 1


def test_a_closed_stream_is_left_alone():
    file = io.StringIO()
    file.close()
    told(file, [(10, 1)])


def test_what_a_stream_cannot_encode_is_replaced():
    raw = io.BytesIO()
    with Progress(
        "müßig", 2, file=io.TextIOWrapper(raw, "ascii", newline=""), clock=iter([0.0, 9.0, 9.0]).__next__
    ) as p:
        p.show(1)
        assert raw.getvalue() == b"m??ig: task 2/2, 50 %, 9 s left\n"


PROGRAM = """
import torch
from paper_lib import driver, progress
from paper_lib.data.stream import make_stream
from paper_lib.methods.replay import Replay
progress.FIRST_SECONDS = progress.LINE_SECONDS = 0
outcome = driver.run(Replay(hidden=(4,), epochs=2), make_stream("split_digits"), (0,), label="r\\u00e9play")
print(outcome.scores["accuracy"].shape)
"""


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", ""])
def test_no_kind_of_standard_error_ends_a_run(stderr):
    command = f'"$0" -c "$1" {stderr}'
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, PROGRAM], capture_output=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0 and done.stdout == b"(1, 5, 5)\n"
    if not stderr:
        lines = done.stderr.decode("ascii").splitlines()
        assert lines[0].startswith("r?play: task 1/5, 10 %") and lines[-1] == "r?play: task 5/5, 100 %, 0 s left"


@pytest.mark.parametrize(("chosen", "expected"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_unless_the_user_has_chosen(chosen, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if chosen is None else {"OMP_WAIT_POLICY": chosen}
    # When the first extension module of torch is looked for, OpenMP has not been loaded.
    code = (
        "import os, sys\nclass Finder:\n def find_spec(name, *rest):\n"
        "  name == 'torch' and print(os.environ.get('OMP_WAIT_POLICY'))\n"
        "sys.meta_path.insert(0, Finder)\nimport paper_lib.cli, paper_lib.driver"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout == f"{expected}\n", done.stderr


class Outputs(io.StringIO):
    """As a notebook's standard error is: what is written becomes an output; its number is the process's own stream."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def fileno(self):
        if self.number is None:
            raise io.UnsupportedOperation("fileno")
        return self.number


Outputs.__module__ = "ipykernel.iostream"


def test_a_notebook_tells_past_its_outputs(tmp_path):
    with (tmp_path / "stderr").open("w") as own:
        outputs = told(Outputs(own.fileno()), [(10, 2)])
        os.fstat(own.fileno())  # it is not closed
    assert outputs.getvalue() == "" and (tmp_path / "stderr").read_text() == "replay: task 3/4, 50 %, 10 s left\n"
    assert told(Outputs(None), [(10, 2)]).getvalue() == ""
