"""Two-dimensional toy sets: five tasks, each with one Gaussian blob of class 0 and one of class 1.

Source: Kessler et al. 2023, Sec. 3 and App. C. The first set is that of Pan et al. 2020; in the second the blobs'
centres lie on a circle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from paper_lib.rng import generator


class Blobs(NamedTuple):
    """Axis-aligned Gaussian blobs.

    Attributes:
        centre: ``(task, class, 2)`` float64.
        sd: ``(task, class, 2)`` float64, along each axis.
    """

    centre: Tensor
    sd: Tensor

    def density(self) -> Independent:
        """The blobs as a batch ``(task, class)`` of densities over ``(2,)``."""
        return Independent(Normal(self.centre, self.sd, validate_args=False), 1)


def pan() -> Blobs:
    """The toy set of Pan et al. 2020."""
    centre = (
        ((0.0, 0.2), (0.6, 0.9), (1.3, 0.4), (1.6, -0.1), (2.0, 0.3)),
        ((0.45, 0.0), (0.7, 0.45), (1.0, 0.1), (1.7, -0.4), (2.3, 0.1)),
    )
    sd = (
        ((0.08, 0.22), (0.24, 0.08), (0.04, 0.2), (0.16, 0.05), (0.05, 0.16)),
        ((0.08, 0.16), (0.16, 0.08), (0.06, 0.16), (0.24, 0.05), (0.05, 0.22)),
    )
    # Written class by class, as published; stored task by task.
    return Blobs(*(torch.tensor(v, dtype=torch.float64).transpose(0, 1).contiguous() for v in (centre, sd)))


def gaussians() -> Blobs:
    """Blob k at 36 k degrees on the circle of radius 2, variance 0.02; task t holds blobs 2t and 2t + 1."""
    angle = torch.arange(10, dtype=torch.float64) * (math.pi / 5)
    centre = 2.0 * torch.stack([angle.cos(), angle.sin()], dim=-1).view(5, 2, 2)
    return Blobs(centre, torch.full_like(centre, math.sqrt(0.02)))


def sample(blobs: Blobs, n: int, seed: int, split: str) -> tuple[Tensor, Tensor]:
    """Points of every blob.

    Args:
        blobs: what to draw from.
        n: points a blob.
        seed: of the data, not of a run. Both sets draw the same noise, moved and scaled.
        split: ``train`` or ``test``, each with numbers of its own.

    Returns:
        ``x`` ``(task * class * n, 2)`` float32, blob after blob, and the blob of each point, ``2 * task + class``.
    """
    num_tasks, num_classes, dim = blobs.centre.shape
    noise = torch.stack(
        [
            torch.randn(n, dim, dtype=torch.float64, generator=generator(seed, "toy", split, blob))
            for blob in range(num_tasks * num_classes)
        ]
    ).view(num_tasks, num_classes, n, dim)
    x = blobs.centre[:, :, None] + blobs.sd[:, :, None] * noise
    return x.view(-1, dim).float(), torch.arange(num_tasks * num_classes).repeat_interleave(n)


def bayes_accuracy(blobs: Blobs, num_draws: int = 20_000, seed: int = 0) -> float:
    """Accuracy of the best single-head classifier, which knows the blobs but not the task.

    It is the mean over x of the larger class probability, ``E_x[max_c p(c | x)]``, estimated with ``num_draws`` draws
    of each blob (standard error below 1e-4 at the default for both sets).

    >>> round(bayes_accuracy(pan()), 3)
    0.998
    """
    x, _ = sample(blobs, num_draws, seed, "bayes")
    log_density = blobs.density().log_prob(x.double()[:, None, None, :])  # (n, task, class)
    return float(log_density.logsumexp(1).softmax(-1).amax(-1).mean())
