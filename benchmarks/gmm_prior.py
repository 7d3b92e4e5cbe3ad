"""What the log density and gradient of a mixture prior cost a chain, beside PyTorch's own mixture with autograd.

    python benchmarks/gmm_prior.py [--threads 2] [--components 50] [--repeats 30]

Ten seeds of twenty chains on the 162 weights of the 2-10-10-2 network, each seed with its own full-covariance mixture;
chains are draws of it. ``all components`` is what a GPU runs, ``relevant ones`` what a CPU does. Values are of the
fastest repeat; ``times ours`` is the ratio to the float32 row of our own. Errors are relative to the density in
float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

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
        rough, theta32 = exact.to(torch.float32), theta.float()
        expected = exact.log_prob_and_grad(theta32.double())
        rows: dict[str, tuple[Callable[[], tuple[Tensor, Tensor]], int]] = {
            "relevant ones, float32": (lambda f=rough, x=theta32: f.log_prob_and_grad(x), arguments.repeats),
            "relevant ones, float64": (lambda f=exact, x=theta: f.log_prob_and_grad(x), arguments.repeats),
            "all components, float32": (lambda f=rough, x=theta32: f.all_log_prob_and_grad(x), arguments.repeats),
            "MixtureSameFamily, float32": (lambda f=theirs, x=theta32: by_autograd(f, x), 2),
        }
        print(f"\nmeans {spread:g} apart in each weight")
        print(f"{'':<28}{'us a chain':>12}{'times ours':>12}{'log density':>14}{'gradient':>12}")
        first = None
        for name, (call, repeats) in rows.items():
            log_prob, grad = (t.double() for t in call())
            errors = (
                float(((log_prob - expected[0]) / expected[0]).abs().max()),
                float((grad - expected[1]).norm() / expected[1].norm()),
            )
            taken = 1e6 * seconds(call, repeats) / (NUM_SEEDS * NUM_CHAINS)
            first = first or taken
            print(f"{name:<28}{taken:>12.1f}{taken / first:>12.2f}{errors[0]:>14.1e}{errors[1]:>12.1e}")


if __name__ == "__main__":
    main()
