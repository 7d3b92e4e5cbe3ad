"""Draws of the original sampler beside ours, where it is installed; what does not need it always runs.

Two things differ in its version 0.4.1: a rejection right after the warm-up, before the first acceptance, restarts the
chain at its starting point (its fork in the paper's release does so on all rejections of the warm-up as well); and its
random numbers come from torch's global generator, a chain's momentum and uniform number in turn.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paper_lib import rng
from paper_lib.inference import hmc, network_density, reference_hmc
from paper_lib.inference.hmc import HMC, Sampler
from paper_lib.networks import MLP

needs_original = pytest.mark.skipif(
    importlib.util.find_spec("hamiltorch") is None, reason="hamiltorch is not installed (extra 'hamiltorch')"
)


def posterior():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    likelihood = network_density.likelihood(MLP((2,), (10, 10), 2), x, (x[:, 0] * x[:, 1] > 0).long())
    return hmc.product(likelihood, network_density.gaussian_prior(10.0))


class Known(torch.autograd.Function):
    """The log density of one chain with the gradient that the target gives."""

    @staticmethod
    def forward(ctx, theta, target):
        log_density, gradient = target(theta[None, None])
        ctx.save_for_backward(gradient[0, 0])
        return log_density[0, 0]

    @staticmethod
    def backward(ctx, slope):
        return slope.to(ctx.saved_tensors[0].dtype) * ctx.saved_tensors[0], None


def sample(config: HMC, position, target, seeds):
    """A run of the original as ``hmc.sample``: draws ``(seed, chain, draw, dim)`` and the share accepted."""
    original = reference_hmc.load()
    draws, rates = [], []
    for seed, row in zip(seeds, position, strict=True):
        for chain, start in enumerate(row):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(rng.generator(seed, "momentum", chain, 0).initial_seed())
                recorded, rate = original.sample(
                    lambda theta: Known.apply(theta, target),
                    start,
                    num_samples=config.num_iterations,
                    num_steps_per_sample=config.num_leapfrog,
                    step_size=config.step_size,
                    burn=config.num_warmup - 1,  # it records iterations after this one, and the start before them
                    debug=2,
                    verbose=False,
                )
            skipped = 0 if config.include_init else config.thin
            draws.append(torch.stack(recorded)[skipped :: config.thin])
            rates.append(rate)
    shape = position.shape[:2]
    return torch.stack(draws).unflatten(0, shape), torch.tensor(rates, dtype=torch.float64).view(shape)


def in_its_order(sampler: Sampler, seeds, num_chains: int, dim: int) -> None:
    """Let a sampler take its random numbers as hamiltorch does: a momentum, then a uniform number, of one generator."""
    length = sampler.config.num_iterations
    momentum = torch.empty(length, len(seeds), num_chains, dim, dtype=torch.float64)
    uniform = torch.empty(length, len(seeds), num_chains, dtype=torch.float64)
    for row, seed in enumerate(seeds):
        for chain in range(num_chains):
            stream = rng.generator(seed, "momentum", chain, 0)
            for step in range(length):
                momentum[step, row, chain].copy_(torch.randn(dim, generator=stream, dtype=torch.float64))
                uniform[step, row, chain] = torch.rand(1, generator=stream)
    sampler._draw = lambda block: (momentum[block * 32 :], uniform[block * 32 :].log())


@needs_original
@pytest.mark.filterwarnings("ignore")  # the original's own
@pytest.mark.parametrize("step_size", [0.02, 0.06])
@pytest.mark.parametrize(("thin", "include_init"), [(1, False), (4, True)])
def test_same_random_numbers_give_the_same_draws(step_size, thin, include_init):
    config = HMC(step_size, 20, num_warmup=0, num_draws=60 // thin, thin=thin, include_init=include_init)
    seeds, start = [0, 1], 0.3 * torch.randn(2, 2, 162, generator=rng.generator(0, "start"), dtype=torch.float64)
    draws, rates = sample(config, start, posterior(), seeds)
    sampler = Sampler(config, hmc.init(config, start, posterior()), posterior(), seeds)
    in_its_order(sampler, seeds, 2, 162)
    state = sampler.advance(config.num_iterations)
    report = hmc.info(config, state)
    difference = float((draws - state.draws).abs().max())
    print(
        f"\nhamiltorch {reference_hmc.load().__version__}: step {step_size}, 20 leapfrog steps, "
        f"{config.num_iterations} iterations of 4 chains, thinned by {thin}: acceptance {float(rates.mean()):.3f}, "
        f"ours {float(report.acceptance_rate.mean()):.3f}; draws differ by at most {difference:.1e}"
    )
    assert draws.shape == state.draws.shape
    torch.testing.assert_close(rates, report.acceptance_rate, atol=1e-12, rtol=0)
    assert 0.2 < rates.mean() < 0.999
    assert difference < 1e-8


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hamiltorch", None)
    with pytest.raises(ModuleNotFoundError, match=r"paper-lib\[hamiltorch\]"):
        reference_hmc.load()


def test_its_import_leaves_all_generators_as_they_were(monkeypatch, tmp_path):
    (tmp_path / "hamiltorch.py").write_text(
        "import random, time, numpy, torch\nfor s in (random.seed, numpy.random.seed, torch.manual_seed):\n    s(7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hamiltorch", raising=False)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    reference_hmc.load()
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    monkeypatch.delitem(sys.modules, "hamiltorch")


def test_what_it_is_asked_for(monkeypatch):
    """Its warm-up and thinning in our terms: recorded are the start and every iteration after ``burn``."""

    def stand_in(log_prob, start, num_samples, num_steps_per_sample, step_size, burn, debug, verbose):
        theta = start.clone().requires_grad_()
        log_prob(theta).backward()
        assert torch.equal(theta.grad, -start)
        return [start, *[torch.full_like(start, n) for n in range(num_samples) if n > burn]], 0.5

    monkeypatch.setattr(reference_hmc, "load", lambda: SimpleNamespace(sample=stand_in))
    position, prior = torch.ones(1, 2, 3, dtype=torch.float64), network_density.gaussian_prior(1.0)
    for include_init, kept in ((False, [12, 15, 18, 21]), (True, [1, 12, 15, 18])):
        config = HMC(0.1, 2, num_warmup=10, num_draws=4, thin=3, include_init=include_init)
        draws, rates = sample(config, position, prior, [0])
        assert draws[0, :, :, 0].tolist() == [kept] * 2 and rates.tolist() == [[0.5] * 2]
