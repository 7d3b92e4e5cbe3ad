"""What the log density and gradient of a mixture prior cost a chain, beside PyTorch's own mixture with autograd.

    python benchmarks/gmm_prior.py [--threads 2] [--components 50] [--repeats 30]

Ten seeds of twenty chains on the 162 weights of the 2-10-10-2 network, each seed with its own full-covariance mixture;
chains are draws of it. ``all components`` is what a GPU runs, ``relevant ones`` what a CPU does, and ``one chain`` is
a sampler without batches. Values are of the fastest repeat; ``times ours`` is the ratio to the float32 row of our own.
Errors are relative to the density in float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from paper_lib import rng
from paper_lib.inference.density import GMM, gmm

NUM_SEEDS, NUM_CHAINS, DIM = 10, 20, 162


def mixture(num_components: int, spread: float) -> tuple[GMM, MixtureSameFamily]:
    """A mixture with standard deviations from 0.01 to 0.3 in random directions, ours and PyTorch's."""
    g = rng.generator(0, "benchmark")
    shape = (NUM_SEEDS, num_components, DIM)
    rotation = torch.linalg.qr(torch.randn((*shape, DIM), generator=g, dtype=torch.float64)).Q
    cov = (rotation * torch.logspace(-4, -1, DIM, dtype=torch.float64)) @ rotation.mT
    cov = 0.5 * (cov + cov.mT)
    mean = spread * torch.randn(shape, generator=g, dtype=torch.float64)
    weight = torch.full(shape[:2], 1 / num_components, dtype=torch.float64)
    single = [t.float() for t in (weight, mean, cov)]
    theirs = MixtureSameFamily(Categorical(single[0]), MultivariateNormal(*single[1:], validate_args=False))
    return gmm.from_covariances(weight.log(), mean, cov), theirs


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Of the fastest call."""
    call()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def by_autograd(density: MixtureSameFamily, theta: Tensor) -> tuple[Tensor, Tensor]:
    """As a sampler that takes any log density has it: chains first, so that the mixture broadcasts over them."""
    leaf = theta.transpose(0, 1).clone().requires_grad_()
    log_prob = density.log_prob(leaf)
    (grad,) = torch.autograd.grad(log_prob.sum(), leaf)
    return log_prob.detach().T, grad.transpose(0, 1)


def _like(found: Sequence[Tensor], expected: Sequence[Tensor]) -> list[Tensor]:
    """What is expected of as many seeds and chains as were computed."""
    return [e[: f.shape[0], : f.shape[1]] for f, e in zip(found, expected, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--components", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"{arguments.threads} threads, {torch.backends.cpu.get_cpu_capability()}, {arguments.components} components, "
        f"{NUM_SEEDS} x {NUM_CHAINS} chains"
    )
    for spread in (0.3, 0.03):
        exact, theirs = mixture(arguments.components, spread)
        theta = exact.sample(NUM_CHAINS, rng.generators(range(NUM_SEEDS), "chains"))
        rough, single = exact.to(torch.float32), theta.float()
        theta = single.double()
        normals = theirs.component_distribution
        alone = MixtureSameFamily(
            Categorical(theirs.mixture_distribution.probs[0]),
            MultivariateNormal(normals.loc[0], scale_tril=normals.scale_tril[0], validate_args=False),
        )
        expected = exact.log_prob_and_grad(theta)
        many, all_chains = arguments.repeats, NUM_SEEDS * NUM_CHAINS
        rows: dict[str, tuple[Callable[[], tuple[Tensor, Tensor]], int, int]] = {
            "relevant ones, float32": (partial(rough.log_prob_and_grad, single), many, all_chains),
            "relevant ones, float64": (partial(exact.log_prob_and_grad, theta), many, all_chains),
            "all components, float32": (partial(rough.all_log_prob_and_grad, single), many, all_chains),
            "MixtureSameFamily, float32": (partial(by_autograd, theirs, single), 3, all_chains),
            "the same, one chain": (partial(by_autograd, alone, single[:1, :1]), many, 1),
        }
        print(f"\nmeans {spread:g} apart in each weight")
        print(f"{'':<28}{'us a chain':>12}{'times ours':>12}{'log density':>14}{'gradient':>12}")
        first = None
        for name, (call, repeats, num) in rows.items():
            found = [t.double() for t in call()]
            errors = [float((f - e).norm() / e.norm()) for f, e in zip(found, _like(found, expected), strict=True)]
            taken = 1e6 * seconds(call, repeats) / num
            first = first or taken
            print(f"{name:<28}{taken:>12.1f}{taken / first:>12.2f}{errors[0]:>14.1e}{errors[1]:>12.1e}")


if __name__ == "__main__":
    main()
