"""Hand-written gradients against autograd, sums against torch's own losses, compiled against eager."""

from __future__ import annotations

import pytest
import torch
import torch._inductor
import torch.nn.functional as F

from paper_lib import networks
from paper_lib.inference import hmc
from paper_lib.inference import network_density as density
from paper_lib.networks import MLP


def problem(network: MLP, num_chains: int, num_points: int, seeds: int = 1, dtype=torch.float64, shared: bool = True):
    generator = torch.Generator().manual_seed(0)
    lead = () if shared else (seeds,)
    x = torch.randn(*lead, num_points, *network.input_shape, generator=generator, dtype=dtype)
    y = torch.randint(network.num_outputs, (*lead, num_points), generator=generator)
    size = networks.flatten(network.init([0], "cpu")).shape[1]
    return x, y, torch.randn(seeds, num_chains, size, generator=generator, dtype=dtype)


def by_network(network: MLP, x, y, theta):
    """Log-likelihood through the network itself and torch's cross-entropy, ``(chain,)``."""
    params = networks.unflatten(theta, network.init(range(len(theta)), "cpu", theta.dtype))
    logits = network(params, x)
    labels = y.expand(len(theta), -1)
    return -F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape).sum(1)


@pytest.mark.parametrize(
    "network",
    [MLP((2,), (10, 10), 2), MLP((1, 2, 2), (7,), 5), MLP((3,), (), 4), MLP((2,), (4, 5, 6), 3)],
    ids=lambda network: "-".join(map(str, network.widths)),
)
@pytest.mark.parametrize("shared", [True, False], ids=["shared data", "data of each seed"])
def test_likelihood_and_gradient(network, shared):
    x, y, theta = problem(network, 4, 23, seeds=3, shared=shared)
    value, gradient = density.likelihood(network, x, y)(theta)
    theta.requires_grad_()
    data = [(x, y) if shared else (x[s], y[s]) for s in range(3)]
    wanted = torch.stack([by_network(network, *both, theta[s]) for s, both in enumerate(data)])
    torch.testing.assert_close(value, wanted.detach(), rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted.sum(), theta)[0], rtol=1e-10, atol=1e-10)


def test_large_logits_neither_overflow_nor_lose_the_sum():
    network = MLP((2,), (10, 10), 2)
    x, y, theta = problem(network, 3, 50)
    value, gradient = density.likelihood(network, x.float(), y)(30 * theta.float())
    exact, exact_gradient = density.likelihood(network, x, y)(30 * theta)
    assert value.dtype == torch.float64 and exact.min() < -1e5
    torch.testing.assert_close(value, exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-3, atol=1e-2 * float(exact_gradient.std()))


def test_no_data_leave_the_prior():
    network = MLP((2,), (3,), 2)
    likelihood = density.likelihood(network, torch.empty(0, 2), torch.empty(0, dtype=torch.int64))
    value, gradient = likelihood(torch.randn(1, 2, 17))
    assert value.tolist() == [[0, 0]] and value.dtype == torch.float64
    assert torch.equal(gradient, torch.zeros(1, 2, 17))


def test_gaussian_prior():
    theta = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    value, gradient = density.gaussian_prior(10.0)(theta)
    wanted = torch.distributions.Normal(*torch.tensor([0.0, 10**-0.5], dtype=torch.float64)).log_prob(theta).sum(-1)
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted.sum(), theta)[0])


def posterior(network, x, y):
    return hmc.product(density.likelihood(network, x, y), density.gaussian_prior(10.0))


@pytest.mark.filterwarnings("ignore")  # what the compiler warns of is its own affair
def test_compiled_equals_eager():
    network = MLP((2,), (4,), 2)
    x, y, theta = problem(network, 6, 40, seeds=2, dtype=torch.float32)
    target = posterior(network, x, y)
    compiled = density.Compiled(target)
    with torch.no_grad():
        pairs = list(zip(compiled(theta), target(theta), strict=True))
        pairs += zip(compiled(theta[:1]), target(theta[:1]), strict=True)  # another shape
    if compiled.backend == "eager":
        pytest.skip(f"no compiler: {compiled.reason}")
    for got, wanted in pairs:
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)
        assert got.dtype == wanted.dtype


def test_without_a_compiler_it_runs_and_says_so(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no C++ compiler\nwas found")

    monkeypatch.setattr(torch._inductor, "compile", broken)
    network = MLP((2,), (4,), 2)
    x, y, theta = problem(network, 2, 5)
    target = posterior(network, x, y)
    compiled = density.Compiled(target)
    assert compiled.backend == "compiled" and compiled.reason == ""
    assert torch.equal(compiled(theta)[1], target(theta)[1])
    assert compiled.backend == "eager"
    assert compiled.reason == "RuntimeError: no C++ compiler"
    with pytest.raises(RuntimeError, match="split"):  # not blamed on the compiler
        density.Compiled(target)(theta[..., :3])
    assert density.Compiled(target, "eager").backend == "eager"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: density.likelihood(MLP((2,), (3,), 2), torch.zeros(4, 3), torch.zeros(4)), r"x of shape \(4, 3\)"),
        (lambda: density.likelihood(MLP((2,), (3,), 2), torch.zeros(4, 2), torch.zeros(5)), r"y of shape \(5,\)"),
        (lambda: density.likelihood(MLP((2,), (3,), 2, (0.1,)), torch.zeros(4, 2), torch.zeros(4)), "dropout"),
        (lambda: density.gaussian_prior(0.0), "precision=0.0"),
        (lambda: density.Compiled(density.gaussian_prior(1.0), "compile"), "did you mean 'compiled'"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
