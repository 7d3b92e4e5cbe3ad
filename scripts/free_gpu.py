"""Run Python on a GPU that nothing else started like this holds: Snakemake counts devices and hands out none.

    python scripts/free_gpu.py -m paper_lib.cli run ... device=cuda:0

The GPUs are those that ``CUDA_VISIBLE_DEVICES`` names, or all. A lock on a file stands for each; the system takes it
back when the command ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


def main() -> None:
    """Wait for a GPU, then become the command."""
    named = os.environ.get(VISIBLE)
    devices = (_all() if named is None else named).replace(",", " ").split()
    if not devices:
        sys.exit(f"no GPU: {VISIBLE}={named!r} names none" if named is not None else "no GPU: nvidia-smi lists none")
    os.environ[VISIBLE] = devices[0] if len(devices) == 1 else _free(devices)  # one is nobody else's, as on Slurm
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def _all() -> str:
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no GPU: {error}")


def _free(devices: list[str]) -> str:
    """The first device whose lock can be had; the process keeps it."""
    while True:
        for device in devices:
            path = Path(tempfile.gettempdir()) / f"paper-lib-{os.getuid()}-gpu{device}.lock"
            lock = os.open(path, os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                os.set_inheritable(lock, True)
                return device
        time.sleep(0.2)


if __name__ == "__main__":
    main()
