"""What the log density and gradient of a RealNVP prior cost a chain: by hand, and by autograd through zuko's networks.

    python benchmarks/flow_prior.py [--threads 2] [--repeats 30]

Ten seeds of twenty chains on the 162 weights of the 2-10-10-2 network, each seed with its own flow of four couplings
and networks of 100 and 100 units, float32. Values are of the fastest repeat. Errors are relative to float64.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from gmm_prior import DIM, NUM_CHAINS, NUM_SEEDS, seconds
from torch import Tensor

from paper_lib import rng
from paper_lib.inference.density import Flow, FlowSettings, flow


def random_flow() -> Flow:
    """A flow a seed, somewhat away from the identity."""
    one = flow.isotropic(FlowSettings(), NUM_SEEDS, DIM, 10.0)
    stream = rng.generator(0, "benchmark")
    params = (p + 0.05 * torch.randn(p.shape, generator=stream, dtype=p.dtype) for p in one.params)
    return one._replace(params=tuple(params))


def by_autograd(one: Flow, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Through zuko's networks, stacked by ``torch.vmap``, as for a flow without a gradient of its own."""
    network = flow._network(one.settings, DIM, one.loc.dtype, one.loc.device)
    leaf = theta.clone().requires_grad_()
    x = (leaf - one.loc[:, None]) / one.scale[:, None]
    log_prob = torch.vmap(partial(flow._call, network))(one.params, x) - one.scale.log().sum(-1)[:, None]
    return log_prob.detach(), torch.autograd.grad(log_prob.sum(), leaf)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    exact = random_flow()
    theta = exact.sample(NUM_CHAINS, rng.generators(range(NUM_SEEDS), "chains"))
    expected, rough = exact.log_prob_and_grad(theta), exact.to(torch.float32)
    calls = {"by hand": rough.log_prob_and_grad, "autograd, zuko": partial(by_autograd, rough)}
    print(f"{arguments.threads} threads, {torch.backends.cpu.get_cpu_capability()}, {NUM_SEEDS} x {NUM_CHAINS} chains")
    print(f"{'':<16}{'us a chain':>12}{'times ours':>12}{'log density':>14}{'gradient':>12}")
    first = None
    for name, call in calls.items():
        found = call(theta.float())
        errors = [float((f - e).norm() / e.norm()) for f, e in zip(found, expected, strict=True)]
        taken = 1e6 * seconds(partial(call, theta.float()), arguments.repeats) / (NUM_SEEDS * NUM_CHAINS)
        first = first or taken
        print(f"{name:<16}{taken:>12.1f}{taken / first:>12.2f}{errors[0]:>14.1e}{errors[1]:>12.1e}")


if __name__ == "__main__":
    main()
