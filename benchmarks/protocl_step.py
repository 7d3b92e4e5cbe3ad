"""What a ProtoCL training step costs a seed: seeds stacked, alone, and as plain PyTorch modules one seed at a time.

    python benchmarks/protocl_step.py [--threads 2] [--steps 180]

The network is the release's on MNIST (784-256-128, dropout 0.1 after both layers), the batch 64. ``modules`` is the
same method as users write it: ``nn.Sequential``, ``nn.Dropout``, broadcast distances, ``torch.optim.Adam``. All rows
are measured in one run, on random pixels; the first steps are not counted.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

from paper_lib import memory, training
from paper_lib.data.stream import Spec, Task
from paper_lib.methods.protocl import ProtoCL, Trainer

NUM_POINTS, BATCH = 12_000, 64
CONFIG = ProtoCL(hidden=(256,), dropout=0.1, weight_decay=1e-4, batch_size=BATCH)


def stacked(task: Task, spec: Spec, num_seeds: int, steps: int) -> float:
    """Seconds of a step of all seeds, drawing of order and masks included."""
    seeds = range(num_seeds)
    state = CONFIG.init(spec, seeds, "cpu")
    pool = memory.pool(task, state.memory, num_seeds, True)
    encoder = CONFIG.encoder(spec)
    trainer = Trainer(CONFIG, state, encoder, pool)
    draws = pool.draws[:, : steps * BATCH]
    noise = training.masks(encoder, BATCH)
    epochs = training.Epochs(trainer.stepper, trainer.total, draws[:, : 20 * BATCH], BATCH, seeds, noise)
    *_, (at, _) = epochs.run(state.at, 1, 0)
    start = time.perf_counter()
    *_, (at, _) = epochs._replace(draws=draws).run(at, 2, 0)
    return (time.perf_counter() - start) / steps


def modules(task: Task, spec: Spec, steps: int) -> float:
    """Seconds of a step of one seed in plain modules."""
    encoder = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 128), nn.Dropout(0.1)
    )
    concentration = nn.Parameter(torch.zeros(10))
    optimiser = torch.optim.Adam([*encoder.parameters(), concentration], lr=1e-4, weight_decay=1e-4)
    precision, precision_mean, counts = torch.ones(10), torch.zeros(10, 128), torch.zeros(10)
    pixels = spec.scale(task.x)

    def step(index):
        nonlocal precision, precision_mean, counts
        y = task.y[index]
        z = encoder(pixels[index])
        normal = torch.distributions.Normal(precision_mean / precision[:, None], (0.05 + 1 / precision[:, None]).sqrt())
        alpha = concentration.exp() + counts
        score = normal.log_prob(z[:, None]).sum(-1) + (alpha / alpha.sum()).log()
        loss = nn.functional.cross_entropy(score, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        one_hot = nn.functional.one_hot(y, 10).float()
        counts = counts + one_hot.sum(0)
        precision = precision + one_hot.sum(0) / 0.05
        precision_mean = precision_mean + one_hot.T @ z.detach() / 0.05

    batches = torch.randint(NUM_POINTS, (steps + 20, BATCH))
    for index in batches[:20]:
        step(index)
    start = time.perf_counter()
    for index in batches[20:]:
        step(index)
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=180)
    arguments = parser.parse_args()
    if not 1 <= arguments.steps <= NUM_POINTS // BATCH:
        parser.error(f"--steps must be from 1 to {NUM_POINTS // BATCH}, and it is {arguments.steps}")
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (NUM_POINTS, 1, 28, 28), generator=generator, dtype=torch.uint8)
    task = Task(0, x, torch.randint(10, (NUM_POINTS,), generator=generator))
    spec = Spec(*("random", "class_incremental", (1, 28, 28)), (tuple(range(10)),), ((),), (0.1307,), (0.3081,))

    ten = stacked(task, spec, 10, arguments.steps) / 10
    one = stacked(task, spec, 1, arguments.steps)
    plain = modules(task, spec, arguments.steps)
    print(f"{arguments.threads} threads, {arguments.steps} steps, batch {BATCH}, 784-256-128")
    print(f"{'':<28}{'ms a seed and step':>20}{'times ten stacked':>20}")
    for name, seconds in (("ten seeds stacked", ten), ("one seed", one), ("one seed, plain modules", plain)):
        print(f"{name:<28}{1e3 * seconds:>20.3f}{seconds / ten:>20.2f}")


if __name__ == "__main__":
    main()
