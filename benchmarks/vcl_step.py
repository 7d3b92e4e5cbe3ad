"""What a step of variational continual learning costs beside a step of plain training, in one run.

    python benchmarks/vcl_step.py [--device cuda:0] [--seeds 1 10]

Both train a 784-200-200-10 network at batch 256 on random pixels through their methods' own ``learn``; the time of
an epoch counts noise, order and copies as well as the step. Products alone make the ratio about 7 with 10 draws: the
mean and the variance of the first layer once, of the others once a draw, and as many again, twice, backward.
"""

from __future__ import annotations

import argparse
import resource
import time
from itertools import pairwise

import torch

from paper_lib.data.stream import Spec, Task
from paper_lib.methods.replay import sgd
from paper_lib.methods.vcl import VCL

BATCH, STEPS = 256, 24


def seconds_a_step(method, num_seeds: int, device: str) -> float:
    """The fastest of the later epochs, over its steps; the first epoch warms up (and captures, on a GPU)."""
    units = tuple(range(10))
    spec = Spec("random", "class_incremental", (1, 28, 28), (units,), (tuple("0123456789"),), (0.13,), (0.31,))
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (BATCH * STEPS, 1, 28, 28), dtype=torch.uint8, generator=draws)
    task = Task(0, x, torch.randint(0, 10, (len(x),), generator=draws)).to(device)
    times = []

    def report(state, fraction):
        if int(state.at.step):  # within an epoch
            return
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter())

    method.learn(method.init(spec, range(num_seeds), device), task, report)
    return min(b - a for a, b in pairwise(times)) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10], help="numbers of seeds stacked")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads, batch {BATCH}")
    print(f"{'seeds':>5} {'SGD ms':>9} {'VCL ms':>9} {'ratio':>6} {'peak MB':>8}")
    for num_seeds in args.seeds:
        plain = seconds_a_step(sgd(epochs=6, batch_size=BATCH), num_seeds, args.device)
        bayes = seconds_a_step(
            VCL(epochs=4, batch_size=BATCH, num_samples=10, likelihood_start=False), num_seeds, args.device
        )
        peak = (
            torch.cuda.max_memory_allocated() / 2**20
            if args.device.startswith("cuda")
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        )
        print(f"{num_seeds:5d} {1e3 * plain:9.2f} {1e3 * bayes:9.2f} {bayes / plain:6.1f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
