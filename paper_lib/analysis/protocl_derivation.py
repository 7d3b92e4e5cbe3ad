"""The steps of ProtoCL's derivation (App. F), each checked by a route that does not use its formula.

- The Dirichlet predictive against a Polya urn: draw a ball, put it back with another of its colour.
- The integral of a product of two Gaussians (eq:matrix_cook_book) against Monte Carlo.
- Posterior prototypes after many small batches against one pass over all points.
- The objective: the paper swaps a product over points with the integral over the prototype that they share. The exact
  integral, by the chain rule of conditioning, stands beside the paper's product of one-point predictives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from paper_lib.checks import within
from paper_lib.inference.gaussian import (
    Gaussian,
    Prototypes,
    class_sums,
    condition_dirichlet,
    condition_prototypes,
    dirichlet_log_predictive,
    log_density,
    predict,
    product,
    prototype_log_density,
    sample,
)
from paper_lib.rng import generator


@dataclass(frozen=True)
class Config:
    """Settings of the checks.

    Attributes:
        num_classes: colours of the urn, classes of the prototypes, 1 to 100.
        concentration: initial Dirichlet parameter of every class; the paper's is 0.78.
        num_urns: urns that are simulated.
        num_labels: balls drawn from each urn before the last.
        dims: dimensions of the Gaussian integrals.
        num_draws: Monte Carlo draws of each integral.
        noise_var: variance of an embedding about its prototype; the paper's is 0.05.
        precision: initial precision of a prototype.
        embedding_dim: dimension of the embeddings.
        num_points: embeddings in the check of the updates.
        batch_sizes: batches in which they arrive.
        shared: numbers of points that share one prototype, for the swap.
        seed: of every random number.
    """

    num_classes: int = 5
    concentration: float = 0.78
    num_urns: int = 300_000
    num_labels: int = 3
    dims: tuple[int, ...] = (1, 2, 4, 8, 16)
    num_draws: int = 100_000
    noise_var: float = 0.05
    precision: float = 1.0
    embedding_dim: int = 16
    num_points: int = 512
    batch_sizes: tuple[int, ...] = (1, 7, 64, 512)
    shared: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_urns", "num_labels", "embedding_dim", "num_points"):
            within(name, getattr(self, name), 1)
        for name in ("dims", "batch_sizes", "shared"):
            within(name, min(getattr(self, name), default=0), 1)
        within("num_classes", self.num_classes, 1, 100)
        within("num_draws", self.num_draws, 2)
        for name in ("concentration", "noise_var", "precision"):
            within(name, getattr(self, name), 0, above=True)


class Result(NamedTuple):
    """What ``run`` found.

    Attributes:
        urn: per class: ``label, closed_form, monte_carlo, se``, the probability of the next label after ``num_labels``
            labels, all of the last class; ``se`` is that of the share if the closed form is right.
        integral: per dimension: ``dim, closed_form, monte_carlo, se``, logs of the integral of the product; ``se`` is
            that of the log.
        updates: per batch size: ``batch_size, difference``, the largest in any natural parameter, relative to the
            largest parameter.
        swap: per number of points of one class: ``num_points, exact, product``, nats a point.
    """

    urn: pd.DataFrame
    integral: pd.DataFrame
    updates: pd.DataFrame
    swap: pd.DataFrame


def run(config: Config) -> Result:
    """All four checks."""
    return Result(urn(config), integral(config), updates(config), swap(config))


def findings(result: Result) -> str:
    """How the checks came out, in Markdown."""

    def farthest(table: pd.DataFrame) -> float:
        return float(((table.monte_carlo - table.closed_form).abs() / table.se.clip(lower=1e-12)).max())

    last, worst = result.swap.iloc[-1], result.updates.difference.max()
    return (
        "In this run:\n\n"
        f"- the urns differ from the closed form by at most {farthest(result.urn):.1f} standard errors, the integrals "
        f"by at most {farthest(result.integral):.1f};\n"
        f"- batches of {', '.join(map(str, result.updates.batch_size))} points end "
        f"{'within 1e-12' if worst < 1e-12 else f'{worst:.1g}'} (relative) of one pass over all points;\n"
        f"- for {last.num_points:g} points of one class the exact integral is {last.exact:.1f} nats a point, the "
        f"product of one-point integrals {last['product']:.1f}."
    )


def numbers(result: Result) -> dict[str, float | str]:
    """What the chapter's prose cites: how many points share a prototype at most, and nats a point for so many."""
    last = result.swap.iloc[-1]
    nats = {name: round(float(last[name]), 6) for name in ("exact", "product")}
    return {"num_shared": f"{last.num_points:g}", **nats}


def urn(config: Config) -> pd.DataFrame:
    """Share of each colour in the draw after ``num_labels`` balls of the last colour, and the closed form.

    All colours begin alike, so an urn whose first balls share another colour counts with the two colours exchanged.
    """
    rng = np.random.default_rng([config.seed, 1])
    balls = np.full((config.num_urns, config.num_classes), config.concentration)
    draws = []
    for _ in range(config.num_labels + 1):
        threshold = rng.random((config.num_urns, 1)) * balls.sum(1, keepdims=True)
        draws.append((threshold > balls.cumsum(1)).sum(1).clip(max=config.num_classes - 1))
        balls[np.arange(config.num_urns), draws[-1]] += 1
    last = config.num_classes - 1
    kept = np.all(np.array(draws[:-1]) == draws[0], axis=0)
    if not kept.any():
        raise ValueError(f"num_urns={config.num_urns} are too few: none drew one class {config.num_labels} times")
    first, then = draws[0][kept], draws[-1][kept]
    then = np.where(then == first, last, np.where(then == last, first, then))
    counts = torch.zeros(config.num_classes, dtype=torch.float64)
    counts[last] = config.num_labels
    posterior = condition_dirichlet(torch.full_like(counts, config.concentration), counts)
    expected = dirichlet_log_predictive(posterior).exp().numpy()
    return pd.DataFrame(
        {
            "label": np.arange(config.num_classes),
            "closed_form": expected,
            "monte_carlo": np.bincount(then, minlength=config.num_classes) / len(then),
            "se": np.sqrt(expected * (1 - expected) / len(then)),
        }
    )


def integral(config: Config) -> pd.DataFrame:
    """The log of the integral of N(x; a, A) N(x; b, B): draws from the first, averaged under the second."""
    rows = []
    for dim in config.dims:
        rng = generator(config.seed, "integral", dim)
        left, right = _gaussian(dim, rng), _gaussian(dim, rng)
        log_weight = log_density(right, sample(left, config.num_draws, rng))
        log_mean = log_weight.logsumexp(0) - math.log(config.num_draws)
        relative_se = (log_weight - log_mean).exp().std() / math.sqrt(config.num_draws)
        rows.append((dim, product(left, right)[1].item(), log_mean.item(), relative_se.item()))
    return pd.DataFrame(rows, columns=["dim", "closed_form", "monte_carlo", "se"])


def updates(config: Config) -> pd.DataFrame:
    """Natural parameters after batches of each size, in an order of their own, against one pass over the points."""
    rng = generator(config.seed, "updates")
    prior = Prototypes(
        torch.full((config.num_classes,), config.precision, dtype=torch.float64),
        torch.randn(config.num_classes, config.embedding_dim, generator=rng, dtype=torch.float64),
    )
    labels = torch.randint(config.num_classes, (config.num_points,), generator=rng)
    z = torch.randn(config.num_points, config.embedding_dim, generator=rng, dtype=torch.float64)
    one_hot = torch.nn.functional.one_hot(labels, config.num_classes).double()
    batch = condition_prototypes(prior, *class_sums(z, one_hot), config.noise_var)
    rows = []
    for size in config.batch_sizes:
        state = prior
        for part in torch.randperm(config.num_points, generator=rng).split(size):
            state = condition_prototypes(state, *class_sums(z[part], one_hot[part]), config.noise_var)
        difference = max(((s - b).abs().max() / b.abs().max()).item() for s, b in zip(state, batch, strict=True))
        rows.append((size, difference))
    return pd.DataFrame(rows, columns=["batch_size", "difference"])


def swap(config: Config) -> pd.DataFrame:
    """Log predictive of points that share a prototype: one integral of all, and the product of one integral each."""
    rng = generator(config.seed, "swap")
    unit = torch.eye(config.embedding_dim, dtype=torch.float64)
    prototype = sample(Gaussian(0 * unit[0], unit / config.precision), 1, rng)
    z = prototype + sample(Gaussian(0 * unit[0], config.noise_var * unit), max(config.shared), rng)
    prior = Prototypes(
        torch.full((1,), config.precision, dtype=torch.float64), torch.zeros(1, config.embedding_dim).double()
    )
    one_each = prototype_log_density(prior, z, config.noise_var)[:, 0]
    chain, state = [], prior
    for point in z:
        chain.append(prototype_log_density(state, point[None], config.noise_var)[0, 0])
        state = condition_prototypes(state, torch.ones(1).double(), point[None], config.noise_var)
    exact, apart = torch.stack(chain).cumsum(0), one_each.cumsum(0)
    rows = [(n, exact[n - 1].item() / n, apart[n - 1].item() / n) for n in sorted(set(config.shared))]
    return pd.DataFrame(rows, columns=["num_points", "exact", "product"])


def joint_log_density(z: Tensor, precision: float, noise_var: float) -> float:
    """Log density of points ``(n, dim)`` that share a prototype with mean 0, from their joint covariance.

    Their coordinates are independent, and one coordinate of all points has covariance
    ``noise_var * I + 1 1' / precision``.
    """
    n = len(z)
    unit = torch.eye(n, dtype=z.dtype)
    prior = Gaussian(z.new_zeros(1), z.new_full((1, 1), 1 / precision))
    return log_density(predict(prior, z.new_ones(n, 1), noise_var * unit), z.mT).sum().item()


def _gaussian(dim: int, rng: torch.Generator) -> Gaussian:
    """A Gaussian of unit scale with correlated coordinates, near the origin."""
    root = torch.randn(dim, 2 * dim, generator=rng, dtype=torch.float64) / math.sqrt(2 * dim)
    mean = torch.randn(dim, generator=rng, dtype=torch.float64) / (2 * math.sqrt(dim))
    return Gaussian(mean, root @ root.mT + 0.5 * torch.eye(dim, dtype=torch.float64))
