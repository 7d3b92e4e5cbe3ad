"""A sign of life: how far a run is and how long it will take, on standard error.

On a terminal one line is drawn again and again; in a file or a pipe a line is added every quarter of a minute. A
notebook's outputs are stored, so lines go past them, to where the process that runs it shows its own: papermill's user
reads them beside papermill's bar, Jupyter's in the server's log. Telling never ends a run: a stream that cannot be
written to is left alone.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

FIRST_SECONDS, LINE_SECONDS, DRAW_SECONDS = 5.0, 15.0, 0.2
"""Time until the first line, between lines, and between drawings on a terminal."""


class Progress:
    """Tells of a run over tasks while its block lasts.

    Args:
        label: begins the line, such as the method's name and the data's.
        num_tasks: of the stream.
        done: tasks done before, by a run that is gone on with.
        sizes: points of each task, by which its share of the time is guessed; the same of all without them.
        file: where to tell; standard error without it.
        clock: seconds.
    """

    def __init__(
        self,
        label: str,
        num_tasks: int,
        done: float = 0.0,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        sizes: Sequence[int] = (),
    ):
        self.file = sys.stderr if file is None else file
        self.in_notebook = type(self.file).__module__.startswith("ipykernel")
        if self.in_notebook:
            self.file = _past_the_outputs(self.file)
        self.label, self.num_tasks, self.clock = f"{label}: " if label else "", num_tasks, clock
        self.sizes = [*(sizes or [1] * num_tasks), 0]
        self.start, self.first = clock(), self._share(done)
        self.on_terminal = self._is_terminal()
        self.due = self.start + (0.0 if self.on_terminal else FIRST_SECONDS)
        self.width = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self.on_terminal and self.width:
            self._write("\n")

    def show(self, done: float) -> None:
        """Say that so many tasks are done, 1.5 in the middle of the second; nothing where it is too early for a line.

        >>> Progress("replay", 5, file=sys.stdout, clock=iter([0.0, 80.0, 80.0]).__next__).show(2.0)
        replay: task 3/5, 40 %, 2 min 0 s left
        """
        now = self.clock()
        if self.file is None or now < self.due:
            return
        share, left = self._share(done), ""
        if share > self.first:
            left = f", {duration((now - self.start) * (1 - share) / (share - self.first))} left"
        task = min(int(done) + 1, self.num_tasks)
        line = f"{self.label}task {task}/{self.num_tasks}, {100 * share:.0f} %{left}"
        if self.on_terminal:
            line = f"{line} [{'#' * round(20 * share):<20}]"[: shutil.get_terminal_size().columns - 1]
            self._write("\r" + line.ljust(self.width))
            self.width = len(line)
        elif self.in_notebook and self.file.isatty():  # papermill's bar stands on the line, and is drawn again below it
            self._write("\r" + line.ljust(shutil.get_terminal_size().columns - 1) + "\n")
        else:
            self._write(line + "\n")
        self.due = self.clock() + (DRAW_SECONDS if self.on_terminal else LINE_SECONDS)

    def _share(self, done: float) -> float:
        """Of the points of all tasks, those of so many."""
        whole = int(done)
        return (sum(self.sizes[:whole]) + (done - whole) * self.sizes[whole]) / sum(self.sizes)

    def _is_terminal(self) -> bool:
        try:
            return self.file is not None and not self.in_notebook and self.file.isatty()
        except (OSError, ValueError):  # closed
            return False

    def _write(self, text: str) -> None:
        encoding = getattr(self.file, "encoding", None) or "ascii"
        try:
            self.file.write(text.encode(encoding, "replace").decode(encoding))
            self.file.flush()
        except (OSError, ValueError, LookupError):  # closed, a full disk, a broken pipe, a strange encoding
            self.file = None


def _past_the_outputs(stream: TextIO) -> TextIO | None:
    """The standard error that a notebook's process was started with; None where its outputs are all there is."""
    try:
        return open(stream.fileno(), "w", errors="replace", closefd=False)
    except (OSError, ValueError):
        return None


def duration(seconds: float) -> str:
    """A length of time in words.

    >>> duration(41.2), duration(80), duration(7530)
    ('41 s', '1 min 20 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
