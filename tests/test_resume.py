"""A run that is killed at random moments and started again ends with the records of one that was not."""

import json
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest
import torch

from paper_lib import runs, sweep

# A process forked from one that has imported everything starts in no time: imports take seconds, kills come by dozens.
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["paper_lib.runs", "paper_lib.sweep", "sklearn.datasets", "torch._dynamo"])


def run(folder, rows):
    os.environ["PAPER_LIB_RUNS"] = str(folder)
    torch.set_num_threads(1)
    chosen = sweep.Selection(rows=rows, seeds=(0, 1, 2), changes={"epochs": 12})
    runs.execute(sweep.jobs(chosen), chosen.seeds, checkpoint_seconds=0)


def started(folder, rows):
    process = FRESH.Process(target=run, args=(folder, rows))
    process.start()
    return process


def ended(process):
    process.join()
    return process.exitcode


def killed_until_it_ends(folder, rows, moments):
    """How often the run was killed. A moment is seconds after the first file of the run has changed."""
    kills = 0
    for moment in moments:
        before = stamps(folder)
        process = started(folder, rows)
        while process.is_alive() and stamps(folder) == before:
            time.sleep(0.01)
        process.join(moment)
        process.kill()
        if ended(process) == 0:
            return kills
        assert process.exitcode == -signal.SIGKILL
        kills += 1
    assert ended(started(folder, rows)) == 0
    return kills


def stamps(folder):
    found = {}
    for path in folder.rglob("*"):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # renamed since
            continue
    return found


def numbers(folder):
    """All records without their provenance, by place."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        record = json.loads(path.read_text())
        del record["provenance"], record["seconds"]
        found[path.relative_to(folder)] = record
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows", [("protocl", "replay", "joint"), ("protocl_as_published", "protocl_no_memory", "sgd")], ids=" ".join
)
def test_a_run_killed_at_random_moments_ends_with_the_same_numbers(rows, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir(), broken.mkdir()
    assert ended(started(whole, rows)) == 0
    draw = random.Random(0)
    kills = killed_until_it_ends(broken, rows, [draw.uniform(0, 0.3) for _ in range(12)])
    assert kills >= 5
    expected = numbers(whole)
    assert len(expected) == 9
    assert numbers(broken) == expected
    files, other = ({p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (broken, whole))
    assert files == other and all(p.name.startswith("seed") and not p.name.startswith("seeds") for p in files)
    for path in (p for p in files if p.suffix == ".npz"):
        with np.load(broken / path) as arrays, np.load(whole / path) as others:
            assert arrays.files and all(np.array_equal(arrays[name], others[name]) for name in others.files)
