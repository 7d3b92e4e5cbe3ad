"""Files written in one piece, checkpoints, records and tables alike; and the folder of those that runs leave."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

FOLDER_VARIABLE = "PAPER_LIB_RUNS"
"""Names the folder of run records and their checkpoints."""


def folder() -> Path:
    """Where records live: ``PAPER_LIB_RUNS``, else the platform's folder for a user's data."""
    if os.environ.get(FOLDER_VARIABLE):
        return Path(os.environ[FOLDER_VARIABLE]).expanduser()
    from platformdirs import user_data_path

    return user_data_path("paper_lib") / "runs"


@contextmanager
def whole_file(path: Path, mode: str = "w") -> Iterator[IO]:
    """A file that a kill or a full disk leaves as it was.

    What is written lies beside it, in a part that bears the process's number, and takes its place at the end. A part
    stays of a kill alone; the next run clears those of runs.

    Raises:
        OSError: it cannot be written; the message names the file, and nothing half-written stays.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open(mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        hint = f"; {FOLDER_VARIABLE} can name another folder" if path.is_relative_to(folder()) else ""
        raise OSError(error.errno, f"{what}: {path} was not written{hint}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file in one piece: a kill or a full disk leaves the old one or the new one."""
    with whole_file(path) as file:
        file.write(text)
