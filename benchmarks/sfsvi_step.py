"""What a step of function-space inference costs beside a step of plain training, in one run.

    python benchmarks/sfsvi_step.py [--device cuda:0] [--seeds 1 10] [--task 5] [--network cifarnet]

Both train a 784-256-256-10 network, or CifarNet, at batch 128 on random pixels through their methods' own ``learn``;
the time of an epoch counts noise, order, context and copies as well as the step. Seconds are the processor's, of all
threads, so that other work on the machine counts little; on a GPU they are the wall's. At task 5 there are 160 context
points, 40 of each past task. Products alone make the ratio about 11: the likelihood's with 5 draws, and those of 1,600
rows, one for each output of a context point, that pass through the middle layer.
"""

from __future__ import annotations

import argparse
import resource
import time
from itertools import pairwise

import torch

from paper_lib.data.stream import Spec, Task
from paper_lib.methods.replay import sgd
from paper_lib.methods.sfsvi import SFSVI

BATCH, STEPS = 128, 24
IMAGES = {"mlp": (1, 28, 28), "cifarnet": (3, 32, 32)}


def seconds_a_step(method, shape: tuple[int, int, int], num_seeds: int, device: str, task_index: int) -> float:
    """The fastest of the last task's later epochs, over its steps; the first warms up (and captures, on a GPU)."""
    units = tuple((2 * t, 2 * t + 1) for t in range(5))
    names = tuple((str(a), str(b)) for a, b in units)
    spec = Spec("random", "class_incremental", shape, units, names, (0.0,) * shape[0], (1.0,) * shape[0])
    draws = torch.Generator().manual_seed(0)
    times = []

    def report(state, fraction):
        if int(state.at.step):  # within an epoch
            return
        if device.startswith("cuda"):
            torch.cuda.synchronize()
            times.append(time.perf_counter())
        else:
            times.append(time.process_time())

    state = method.init(spec, range(num_seeds), device)
    for index in range(task_index):
        x = torch.randint(0, 256, (BATCH * STEPS, *shape), dtype=torch.uint8, generator=draws)
        y = torch.randint(2 * index, 2 * index + 2, (len(x),), generator=draws)
        times.clear()
        state = method.learn(state, Task(index, x, y).to(device), report).state
    return min(b - a for a, b in pairwise(times)) / STEPS


def compare(name: str, make, description: str, networks=tuple(IMAGES)) -> None:
    """Print what a step of a method costs, at each number of seeds; one of one network takes no such setting."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 10], help="numbers of seeds stacked")
    parser.add_argument("--task", type=int, default=5, help="task in which the step is timed, from 1")
    parser.add_argument("--network", choices=networks, default="mlp")
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads, {args.network}, batch {BATCH}, "
        f"task {args.task}"
    )
    print(f"{'seeds':>5} {'SGD ms':>9} {name + ' ms':>10} {'ratio':>6} {'peak MB':>8}")
    torch.set_flush_denormal(True)
    settings = {"hidden": (256, 256), "batch_size": BATCH, "epochs": 4}
    network = {"network": args.network}
    for num_seeds in args.seeds:
        of = IMAGES[args.network], num_seeds, args.device, args.task
        plain = seconds_a_step(sgd(**settings, **network), *of)
        other = seconds_a_step(make(**settings, **(network if len(networks) > 1 else {})), *of)
        peak = (
            torch.cuda.max_memory_allocated() / 2**20
            if args.device.startswith("cuda")
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        )
        print(f"{num_seeds:5d} {1e3 * plain:9.2f} {1e3 * other:10.2f} {other / plain:6.1f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    compare("S-FSVI", SFSVI, __doc__)
