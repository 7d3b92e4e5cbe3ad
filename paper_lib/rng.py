"""Random streams that depend on what they are for and on nothing else.

A generator is addressed by its seed and a path, such as ``(3, "order", task, epoch)``. So seed 3 sees the same numbers
whatever runs beside it, and a resumed run needs no generator state: the address of the epoch that it resumes is enough.
Two addresses have unlike streams, but for chance: a CPU's generator takes 32 bits of what an address is hashed to.
Initialisation, order and memory choice draw on the CPU; noise draws on the device that computes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

LENGTHS = {
    **{"order": 3, "dropout": 3, "noise": 3, "memory": 2, "train": 3, "validation": 3, "toy": 3},
    **{"change point": 3, "experts": 2, "excess": 3},
}
"""Parts of the addresses that begin with these words. Stored results rest on them; a new word needs no entry.

NumPy's ``SeedSequence`` takes a 0 at the end of a short address for nothing. Elsewhere such a 0 is marked; these words
have one length each instead, so that their numbers stay what they were.
"""


def generator(seed: int, *path: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """The generator at an address.

    Args:
        seed: the run's seed, a non-negative integer.
        path: words and non-negative integers that say what the numbers are for.
        device: where they are drawn.

    Raises:
        ValueError: if the address begins with a word of ``LENGTHS`` and has another length.

    >>> one, same, other = (torch.rand((), generator=generator(0, "order", 0, e)) for e in (1, 1, 2))
    >>> bool(one == same), bool(one == other)
    (True, False)
    """
    length = LENGTHS.get(path[0], len(path)) if path else 0
    if len(path) != length:
        raise ValueError(f"the address {path} has {len(path)} parts; those that begin with {path[0]!r} have {length}")
    words = [seed, *(zlib.crc32(p.encode()) if isinstance(p, str) else p for p in path)]
    if path and path[-1] == 0 and path[0] not in LENGTHS:
        words += [zlib.crc32(b"length"), len(path)]
    state = np.random.SeedSequence(words).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(state) & (2**63 - 1))


def generators(seeds: Sequence[int], *path: str | int, device: str | torch.device = "cpu") -> list[torch.Generator]:
    """One generator a seed, all at the same path."""
    return [generator(seed, *path, device=device) for seed in seeds]


def permutations(n: int, streams: Sequence[torch.Generator]) -> Tensor:
    """One random order of ``n`` items a generator, ``(seed, n)`` int64 on the CPU."""
    return torch.stack([torch.randperm(n, generator=g) for g in streams])
