"""The sampler that the paper used, hamiltorch (Cobb and Jalaian 2021), to compare ours with.

It runs one chain at a time and is some hundred times slower. It is an optional package, imported when first called; its
import reseeds every global generator from the clock, so their states are put back.
"""

from __future__ import annotations

import random
from types import ModuleType

import numpy as np
import torch


def load() -> ModuleType:
    """The package, with the states of all global generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the package seeds this very generator
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            import hamiltorch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the reference sampler is hamiltorch: {error}; install it with pip install 'paper-lib[hamiltorch]'"
        ) from error
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
    return hamiltorch
