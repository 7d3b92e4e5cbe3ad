"""What a training step of CifarNet costs: in ProtoCL as it is run here, and as plain PyTorch modules in float32.

    python benchmarks/cifarnet.py [--threads 2] [--steps 20] [--batch 128]

``plain`` is the network as users write it: ``nn.Sequential``, ``nn.Dropout``, channels first, ``torch.optim.Adam``,
float32. The others are ProtoCL's whole step, drawing of order and masks included, in each precision that the CPU is
fast in. Ways to compute three seeds at once are a forward and backward pass of the first two convolutions. All rows
are measured in one run on random pixels, in seconds of all threads, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from paper_lib import memory, networks, training
from paper_lib.data.stream import Spec, Task
from paper_lib.methods.protocl import ProtoCL, Trainer


def seconds(step: Callable[[], object], steps: int) -> tuple[float, float]:
    """Wall and processor seconds of a call; the first two are not counted."""
    for _ in range(2):
        step()
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps


def plain(x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """A step of the same network in plain modules."""

    def block(channels: int, width: int) -> list[nn.Module]:
        first, second = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, width, 3)
        return [first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]

    head = [nn.Flatten(), nn.Linear(2304, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)]
    network = nn.Sequential(*block(3, 32), *block(32, 64), *head)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step() -> None:
        loss = F.cross_entropy(network(x.float() / 255), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def protocl(task: Task, spec: Spec, batch: int, precision: str) -> Callable[[], None]:
    """A step of ProtoCL, one seed."""
    config = ProtoCL(
        hidden=(), network="cifarnet", embedding_dim=32, batch_size=batch, learning_rate=1e-3, precision=precision
    )
    state, encoder = config.init(spec, (0,), "cpu"), config.encoder(spec)
    pool = memory.pool(task, state.memory, 1, True)
    trainer, noise = Trainer(config, state, encoder, pool), training.masks(encoder, batch)

    def step() -> None:
        epoch = training.Epochs(trainer.stepper, trainer.total, pool.draws[:, :batch], batch, (0,), noise)
        list(epoch.run(state.at, 1, 0))

    return step


def ways(batch: int, num_seeds: int = 3) -> dict[str, Callable[[], None]]:
    """The first two convolutions of several seeds, forward and backward."""
    x = torch.randn(num_seeds, batch, 3, 32, 32)
    first = torch.randn(num_seeds, 32, 3, 3, 3, requires_grad=True)
    second = torch.randn(num_seeds, 32, 32, 3, 3, requires_grad=True)

    def one(x, a, b):
        x = x.contiguous(memory_format=torch.channels_last)
        return F.conv2d(F.relu(F.conv2d(x, a, padding=1)), b).sum()

    def loop():
        sum(one(x[r], first[r], second[r]) for r in range(num_seeds)).backward()

    def grouped():
        wide = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        h = F.relu(F.conv2d(wide, first.flatten(0, 1), padding=1, groups=num_seeds))
        F.conv2d(h, second.flatten(0, 1), groups=num_seeds).sum().backward()

    def mapped():
        torch.vmap(lambda x, a, b: F.conv2d(F.relu(F.conv2d(x, a, padding=1)), b).sum())(
            x, first, second
        ).sum().backward()

    return {"a loop": loop, "grouped convolutions": grouped, "vmap": mapped}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    arguments = parser.parse_args()
    if min(vars(arguments).values()) < 1:
        parser.error("--threads, --steps and --batch must be at least 1")
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    generator, batch = torch.Generator().manual_seed(0), arguments.batch
    x = torch.randint(256, (batch, 3, 32, 32), generator=generator, dtype=torch.uint8)
    task = Task(0, x, torch.randint(10, (batch,), generator=generator))
    spec = Spec(*("random", "class_incremental", (3, 32, 32)), (tuple(range(10)),), ((),), (0.5,) * 3, (0.25,) * 3)

    steps = {"plain modules, float32": plain(x, task.y), "float32": protocl(task, spec, batch, "float32")}
    if networks.precision("auto", "cpu") == torch.bfloat16:
        steps["bfloat16"] = protocl(task, spec, batch, "bfloat16")
    print(f"{platform.processor() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, torch", end=" ")
    print(f"{torch.__version__}, {arguments.threads} threads, batch {batch}, {arguments.steps} steps")
    print(f"{'':<26}{'images/s':>10}{'images/s of a core':>20}{'times plain':>13}")
    base = None
    for name, step in steps.items():
        wall, processor = seconds(step, arguments.steps)
        base = base or processor
        print(f"{name:<26}{batch / wall:>10.0f}{batch / processor:>20.0f}{base / processor:>13.2f}")
    print("\nthree seeds, two convolutions" + f"{'ms a seed, one core':>22}")
    for name, step in ways(batch).items():
        print(f"{name:<26}{1e3 * seconds(step, max(1, arguments.steps // 4))[1] / 3:>25.1f}")


if __name__ == "__main__":
    main()
