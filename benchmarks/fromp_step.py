"""What a step of functional regularisation costs beside a step of plain training, in one run.

    python benchmarks/fromp_step.py [--device cuda:0] [--seeds 1 10] [--task 5]

Both train a 784-256-256-10 network at batch 128 on random pixels through their methods' own ``learn``; the time of an
epoch counts order and copies as well as the step. At task 5 there are 800 memorable points, all of which go through
the network in every step: products alone make the ratio about 7, and 40 inverse kernels of 200 x 200 are read.
"""

from __future__ import annotations

import argparse
import resource
import time
from itertools import pairwise

import torch

from paper_lib.data.stream import Spec, Task
from paper_lib.methods.fromp import FROMP
from paper_lib.methods.replay import sgd

BATCH, STEPS = 128, 24


def seconds_a_step(method, num_seeds: int, device: str, task_index: int, epochs: int = 4) -> float:
    """The fastest of the last task's later epochs, over its steps; the first warms up (and captures, on a GPU)."""
    units = tuple((2 * t, 2 * t + 1) for t in range(5))
    names = tuple((str(a), str(b)) for a, b in units)
    spec = Spec("random", "class_incremental", (1, 28, 28), units, names, (0.0,), (1.0,))
    draws = torch.Generator().manual_seed(0)
    times = []

    def report(state, fraction):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter())

    state = method.init(spec, range(num_seeds), device)
    for index in range(task_index):
        x = torch.randint(0, 256, (BATCH * STEPS, 1, 28, 28), dtype=torch.uint8, generator=draws)
        y = torch.randint(2 * index, 2 * index + 2, (len(x),), generator=draws)
        times.clear()
        state = method.learn(state, Task(index, x, y).to(device), report).state
    return min(b - a for a, b in pairwise(times)) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10], help="numbers of seeds stacked")
    parser.add_argument("--task", type=int, default=5, help="task in which the step is timed, from 1")
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads, batch {BATCH}, task {args.task}"
    )
    print(f"{'seeds':>5} {'SGD ms':>9} {'FROMP ms':>9} {'ratio':>6} {'peak MB':>8}")
    torch.set_flush_denormal(True)
    settings = {"hidden": (256, 256), "batch_size": BATCH, "epochs": 4}
    for num_seeds in args.seeds:
        plain = seconds_a_step(sgd(**settings), num_seeds, args.device, args.task)
        regularised = seconds_a_step(FROMP(**settings), num_seeds, args.device, args.task)
        peak = (
            torch.cuda.max_memory_allocated() / 2**20
            if args.device.startswith("cuda")
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        )
        ratio = regularised / plain
        print(f"{num_seeds:5d} {1e3 * plain:9.2f} {1e3 * regularised:9.2f} {ratio:6.1f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
