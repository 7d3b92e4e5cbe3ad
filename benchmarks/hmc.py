"""What a gradient of Hamiltonian Monte Carlo costs a chain: ours, hamiltorch and BlackJAX, in turn, in one run.

    python benchmarks/hmc.py [--threads 2] [--rounds 10] [--points 160]

All sample the posterior of a 2-10-10-2 ReLU classifier with prior N(0, 1/10) in float32, trajectories of 20 leapfrog
steps, and a whole sampler is timed, momenta and acceptance included: seconds / (iterations x 20 x chains). hamiltorch
runs one chain, as it does; BlackJAX runs a compiled scan over its vmapped kernel. A package that is not installed is
left out. The process keeps to so many processors, which binds all of them alike. Times are the least over rounds, by
the clock and of the processors; the latter changes less with other work on the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise

NUM_LEAPFROG, STEP_SIZE, PRECISION, WIDTHS = 20, 1e-3, 10.0, (2, 10, 10, 2)
CHAINS = (20, 200)

Contestant = tuple[int, Callable[[], None]]
"""Gradients times chains of one call, and the call."""


def ours(backend: str, x, y, num_chains: int) -> tuple[Contestant, str]:
    """One tape of trajectories; ten seeds where there are ten chains for each. Also what backend was in use."""
    import torch

    from paper_lib.inference import hmc, network_density
    from paper_lib.networks import MLP

    seeds = range(max(1, num_chains // 20))
    network = MLP(WIDTHS[:1], WIDTHS[1:-1], WIDTHS[-1])
    likelihood = network_density.likelihood(network, x, y)
    density = hmc.product(likelihood, network_density.gaussian_prior(PRECISION))
    target = network_density.Compiled(density, backend)
    num_iterations = 32 if backend == "compiled" else 8
    config = hmc.HMC(STEP_SIZE, NUM_LEAPFROG, 0, num_draws=1_000, thin=10)
    start = 0.3 * torch.randn(len(seeds), num_chains // len(seeds), 162)
    sampler = hmc.Sampler(config, hmc.init(config, start, target), target, seeds)
    reason = f" ({target.reason})" if target.reason else ""
    return (
        num_iterations * NUM_LEAPFROG * num_chains,
        lambda: sampler.advance(num_iterations),
    ), target.backend + reason


def hamiltorch(x, y) -> Contestant:
    """One chain of the original, as its users run it: ``sample_model`` on PyTorch modules."""
    import torch
    from torch import nn

    from paper_lib.inference import reference_hmc

    original = reference_hmc.load()
    layers = [layer for i, o in pairwise(WIDTHS) for layer in (nn.Linear(i, o), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    precisions = torch.full((len(list(model.parameters())),), PRECISION)
    start, num_iterations = 0.3 * torch.randn(162), 4

    def run():
        original.sample_model(
            *(model, x, y, start),
            num_samples=num_iterations,
            num_steps_per_sample=NUM_LEAPFROG,
            step_size=STEP_SIZE,
            burn=-1,
            tau_list=precisions,
            verbose=False,
        )

    return num_iterations * NUM_LEAPFROG, run


def blackjax(x, y, num_chains: int) -> Contestant:
    """Its HMC kernel, vmapped over chains, scanned over iterations, compiled."""
    import blackjax as package
    import jax
    import jax.numpy as jnp

    inputs, labels, num_iterations = jnp.asarray(x.numpy()), jnp.asarray(y.numpy()), 8

    def log_density(theta):
        at, h = 0, inputs
        for layer, (i, o) in enumerate(pairwise(WIDTHS)):
            h = h @ theta[at : at + i * o].reshape(i, o) + theta[at + i * o : at + i * o + o]
            h = jax.nn.relu(h) if layer < 2 else h
            at += i * o + o
        log_prob = jax.nn.log_softmax(h)[jnp.arange(len(labels)), labels].sum()
        return log_prob - 0.5 * PRECISION * jnp.square(theta).sum()

    kernel = package.hmc(log_density, STEP_SIZE, jnp.ones(162), NUM_LEAPFROG)

    @jax.jit
    def run(state, key):
        def step(state, key):
            state, _ = jax.vmap(kernel.step)(jax.random.split(key, num_chains), state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, num_iterations))

    state = jax.vmap(kernel.init)(0.3 * jax.random.normal(jax.random.key(0), (num_chains, 162)))

    def call():
        jax.block_until_ready(run(state, jax.random.key(1)))

    return num_iterations * NUM_LEAPFROG * num_chains, call


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--points", type=int, default=160)
    arguments = parser.parse_args()
    threads = arguments.threads
    if not 1 <= threads <= os.cpu_count() or arguments.rounds < 1 or arguments.points < 1:
        parser.error(f"--threads must be from 1 to {os.cpu_count()}, --rounds and --points at least 1")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "JAX_PLATFORMS": "cpu"}
    import torch  # after the environment that it reads

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    x = torch.randn(arguments.points, 2)
    y = (x[:, 0] * x[:, 1] > 0).long()

    contestants: dict[tuple[str, int], Contestant] = {}
    for num_chains in CHAINS:
        for backend in ("compiled", "eager"):
            contestant, used = ours(backend, x, y, num_chains)
            contestants["ours, " + used, num_chains] = contestant
    for name, make, chains in (
        ("hamiltorch", lambda n: hamiltorch(x, y), (1,)),
        ("blackjax", lambda n: blackjax(x, y, n), CHAINS),
    ):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and left out", file=sys.stderr)
            continue
        contestants |= {(name, n): make(n) for n in chains}

    clock, processors = ({key: float("inf") for key in contestants} for _ in range(2))
    for turn in range(arguments.rounds + 1):  # the first compiles and does not count
        for key, (gradients, call) in contestants.items():
            started, worked = time.perf_counter(), time.process_time()
            call()
            if turn:
                worked, started = time.process_time() - worked, time.perf_counter() - started
                clock[key] = min(clock[key], 1e6 * started / gradients)
                processors[key] = min(processors[key], 1e6 * worked / gradients)

    print(f"{processor()}, {torch.backends.cpu.get_cpu_capability()}, {threads} of {os.cpu_count()} processors")
    print(
        f"torch {torch.__version__}, {arguments.points} points, {NUM_LEAPFROG} leapfrog steps, microseconds a chain and"
    )
    print(f"gradient, least of {arguments.rounds} rounds; ratios to ours, compiled, of as many chains")
    print(f"{'':<22}{'chains':>8}{'clock':>10}{'processors':>12}{'ratio, clock':>16}{'ratio, processors':>20}")
    first = {n: next(key for key in contestants if key[1] == n and key[0].startswith("ours")) for n in CHAINS}
    for (name, chains), elapsed in clock.items():
        used = processors[name, chains]
        beside = [first[n] for n in CHAINS if chains in (1, n)]
        pairs = ((elapsed, clock), (used, processors))
        ratios = [" / ".join(f"{t / times[key]:.1f}" for key in beside) for t, times in pairs]
        print(f"{name:<22}{chains:>8}{elapsed:>10.2f}{used:>12.2f}{ratios[0]:>16}{ratios[1]:>20}")


if __name__ == "__main__":
    main()
