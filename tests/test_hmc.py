"""The sampler against orbits with known ends, moments in closed form, released trajectories, and itself in pieces."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from paper_lib import training
from paper_lib.inference import gaussian, hmc, network_density, warmup
from paper_lib.inference.gaussian import Gaussian
from paper_lib.inference.hmc import HMC, Point, Sampler
from paper_lib.inference.regression import condition_line
from paper_lib.networks import MLP

GOLDEN = Path(__file__).parent / "data" / "hamiltorch_leapfrog.npz"
QUICK = HMC(step_size=0.3, num_leapfrog=7, num_warmup=40, num_draws=30, thin=2)


def normal(mean: torch.Tensor, precision: torch.Tensor) -> hmc.LogDensity:
    """A Gaussian of full precision."""

    def log_density(theta):
        offset = theta - mean
        slope = -offset @ precision
        return 0.5 * (offset * slope).sum(-1, dtype=torch.float64), slope

    return log_density


def standard(dim: int, dtype=torch.float64) -> hmc.LogDensity:
    return normal(torch.zeros(dim, dtype=dtype), torch.eye(dim, dtype=dtype))


def by_autograd(log_prob) -> hmc.LogDensity:
    """A density whose gradient autograd takes."""

    def log_density(theta):
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            value = log_prob(leaf)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach().to(torch.float64), gradient

    return log_density


def point(target, position) -> Point:
    return Point(position, *target(position))


def starts(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def follow(target, position, momentum, step_size, num_steps, inverse_mass=1.0):
    one = torch.ones((), dtype=position.dtype)
    return hmc.leapfrog(target, point(target, position), momentum, step_size * one, inverse_mass * one, num_steps)


def energy(at: Point, momentum):
    return 0.5 * momentum.square().sum(-1) - at.log_density


def test_free_fall_ends_where_a_parabola_does():
    def fall(theta):
        return -9.81 * theta.sum(-1, dtype=torch.float64), torch.full_like(theta, -9.81)

    position, momentum = starts(2, 3, 4), starts(2, 3, 4, seed=1)
    end, speed = follow(fall, position, momentum, 0.1, 20, inverse_mass=0.5)
    torch.testing.assert_close(end.position, position + 0.5 * momentum * 2 - 0.5 * 0.5 * 9.81 * 2**2)
    torch.testing.assert_close(speed, momentum - 9.81 * 2)


def test_oscillator_follows_its_circle():
    position, momentum = starts(1, 2, 3), starts(1, 2, 3, seed=1)
    end, speed = follow(standard(3), position, momentum, 1e-3, 1500)
    torch.testing.assert_close(end.position, position * math.cos(1.5) + momentum * math.sin(1.5), atol=1e-6, rtol=0)
    torch.testing.assert_close(speed, momentum * math.cos(1.5) - position * math.sin(1.5), atol=1e-6, rtol=0)


def quartic(theta):
    return -0.25 * theta.pow(4).sum(-1, dtype=torch.float64), -theta.pow(3)


def test_a_flipped_momentum_leads_back():
    position, momentum = starts(1, 5, 3), starts(1, 5, 3, seed=1)
    end, speed = follow(quartic, position, momentum, 0.1, 25)
    back, flipped = follow(quartic, end.position, -speed, 0.1, 25)
    assert (end.position - position).abs().max() > 0.1
    torch.testing.assert_close(back.position, position, atol=1e-11, rtol=0)
    torch.testing.assert_close(-flipped, momentum, atol=1e-11, rtol=0)


def test_energy_error_falls_with_the_square_of_the_step():
    position, momentum = starts(1, 50, 3), starts(1, 50, 3, seed=1)
    errors = []
    for num_steps in (20, 40, 80):
        end, speed = follow(quartic, position, momentum, 1 / num_steps, num_steps)
        error = energy(end, speed) - energy(point(quartic, position), momentum)
        errors.append(float(error.square().mean().sqrt()))
    assert 3.8 < errors[0] / errors[1] < 4.2 and 3.9 < errors[1] / errors[2] < 4.1


def golden_prior(stored, kind):
    if kind == "gauss":
        return network_density.gaussian_prior(10.0)
    weights, means, covariances = (torch.from_numpy(stored[f"gmm_{k}"]) for k in ("weights", "means", "covariances"))
    mixture = MixtureSameFamily(Categorical(weights), MultivariateNormal(means, covariances))
    return by_autograd(mixture.log_prob)


def our_order() -> torch.Tensor:
    """Where each parameter of ``MLP`` lies in PyTorch's order, which has weights as (out, in)."""
    place, at = [], 0
    for i, o in ((2, 10), (10, 10), (10, 2)):
        place += [torch.arange(at, at + i * o).view(o, i).T.flatten(), torch.arange(at + i * o, at + i * o + o)]
        at += i * o + o
    return torch.cat(place)


@pytest.mark.parametrize("kind", ["gauss", "gmm"])
@pytest.mark.parametrize(("num_steps", "step_size"), [(20, 1e-3), (7, 1e-2)])
def test_hamiltorch_trajectories(kind, num_steps, step_size):
    with np.load(GOLDEN) as file:
        stored = dict(file)
    ours = our_order()
    x, y, theta, momentum = (torch.from_numpy(stored[name]) for name in ("x", "y", "theta", "momentum"))
    prior, back = golden_prior(stored, kind), ours.argsort()

    def prior_in_our_order(position):
        log_prob, gradient = prior(position[..., back])
        return log_prob, gradient[..., ours]

    target = hmc.product(network_density.likelihood(MLP((2,), (10, 10), 2), x, y), prior_in_our_order)
    start, kick = theta[None, :, ours], momentum[None, :, ours]
    end, last = follow(target, start, kick, step_size, num_steps)

    def expect(got, name):
        wanted = stored[f"{kind}_L{num_steps}_{name}"]
        np.testing.assert_allclose(got[0].numpy(), wanted, rtol=0, atol=1e-10 * max(1, np.abs(wanted).max()))

    begin = point(target, start)
    expect(begin.gradient[..., back], "grad_start")
    expect(begin.log_density, "logp_start")
    expect(energy(begin, kick), "energy_start")
    expect(end.position[..., back], "theta")
    expect(last[..., back], "momentum")
    expect(end.log_density, "logp_end")
    expect(energy(end, last), "energy_end")


COV = torch.tensor([[4.0, 1.8, 0.0], [1.8, 1.0, 0.1], [0.0, 0.1, 0.25]], dtype=torch.float64)


@pytest.mark.parametrize(
    "config",
    [
        HMC(step_size=0.25, num_leapfrog=8, num_warmup=100, num_draws=400, thin=1),
        HMC(step_size=0.01, num_leapfrog=8, num_warmup=500, num_draws=400, thin=1, adapt_step=True, adapt_mass=True),
        HMC(step_size=2.0, num_leapfrog=8, num_warmup=200, num_draws=400, thin=1, adapt_step=True),
    ],
    ids=["fixed", "step and masses adapted", "step adapted"],
)
def test_moments_of_a_correlated_gaussian(config):
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    target = normal(mean, torch.linalg.inv(COV))
    state = hmc.sample(config, mean + 2 * starts(2, 100, 3), target, seeds=[0, 1])
    for draws in state.draws.flatten(1, 2):
        torch.testing.assert_close(draws.mean(0), mean, atol=0.06, rtol=0)
        torch.testing.assert_close(draws.T.cov(), COV, atol=0.12, rtol=0)
    if config.adapt_mass:
        torch.testing.assert_close(state.inverse_mass, COV.diagonal().expand(2, 1, 3), rtol=0.2, atol=0)


@pytest.mark.parametrize("acceptance", [0.65, 0.9])
def test_the_step_adapts_to_the_acceptance_asked_for(acceptance):
    config = HMC(1e-3, 5, 400, num_draws=300, thin=1, adapt_step=True, target_acceptance=acceptance)
    report = hmc.info(config, hmc.sample(config, starts(2, 20, 30), standard(30), seeds=[0, 1]))
    assert (report.acceptance_rate.mean(-1) - acceptance).abs().max() < 0.05
    assert (report.step_size == report.step_size[:, :1]).all() and report.step_size[0, 0] != report.step_size[1, 0]


def test_the_acceptance_rate_tends_to_1_as_the_step_tends_to_0():
    """On trajectories of one length; what is rejected falls with the square of the step, as the energy error does."""
    rejected = []
    for num_steps in (2, 4, 8, 16, 200):
        config = HMC(1 / num_steps, num_steps, num_warmup=20, num_draws=100, thin=1)
        state = hmc.sample(config, starts(1, 100, 10), quartic, seeds=[0])
        rejected.append(1 - float(state.trace.acceptance.mean()))  # by probabilities, which vary less than counts
    assert rejected[0] > 0.1 and rejected[-1] < 1e-4
    assert all(coarse > 3 * fine for coarse, fine in pairwise(rejected))
    assert hmc.info(config, state).acceptance_rate.mean() > 0.999


def test_posterior_of_a_conjugate_regression():
    phi, noise_precision = starts(20, 3, seed=2), 4.0
    y = phi @ torch.tensor([1.0, -1.0, 0.3], dtype=torch.float64) + 0.5 * starts(20, seed=3)
    prior = Gaussian(torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64) / 2)
    exact, _ = condition_line(prior, phi, y, noise_precision)

    def fit(theta):
        residual = y - theta @ phi.T
        return -0.5 * noise_precision * residual.square().sum(-1), noise_precision * residual @ phi

    # A trajectory is less than half a period of every direction: after half a period or a whole one, a chain is as far
    # from the mean as before, and the spread is for ever that of the starting points, which are draws.
    config = HMC(step_size=0.08, num_leapfrog=3, num_warmup=50, num_draws=500, thin=1)
    target = hmc.product(fit, network_density.gaussian_prior(2.0))
    begin = gaussian.sample(exact, 100, torch.Generator().manual_seed(4))[None]
    draws = hmc.sample(config, begin, target, seeds=[0]).draws.flatten(0, 2)
    torch.testing.assert_close(draws.mean(0), exact.mean, atol=5e-3, rtol=0)
    torch.testing.assert_close(draws.T.cov(), exact.cov, atol=1e-3, rtol=0)


def test_a_density_of_nothing_but_nan_on_half_the_space():
    def half(theta):
        value, slope = standard(1)(theta)
        outside = theta[..., 0] <= 0
        return value.masked_fill(outside, torch.nan), slope.masked_fill(outside[..., None], torch.nan)

    config = HMC(step_size=0.3, num_leapfrog=4, num_warmup=50, num_draws=400, thin=1)
    state = hmc.sample(config, starts(1, 200, 1).abs() + 0.01, half, seeds=[0])
    draws = state.draws.flatten()
    assert draws.min() > 0
    assert abs(float(draws.mean()) - math.sqrt(2 / math.pi)) < 0.01
    assert abs(float(draws.square().mean()) - 1) < 0.03
    assert int(state.divergent[..., 1].sum()) > 1000
    lost = state.trace.energy_error.isnan()
    assert int(lost.sum()) == int(state.divergent.sum())
    assert (state.trace.acceptance[lost] == 0).all()
    assert state.current.gradient.isfinite().all()


def test_what_diverges_is_rejected_and_counted():
    config = HMC(step_size=1e3, num_leapfrog=10, num_warmup=3, num_draws=7, thin=1)
    state = hmc.sample(config, starts(1, 4, 2), standard(2), seeds=[0])
    assert state.divergent.tolist() == [[[3, 7]] * 4]
    assert (state.draws == state.draws[:, :, :1]).all()
    assert hmc.info(config, state).acceptance_rate.tolist() == [[0.0] * 4]


def wall(theta):
    """Flat up to 1, impossible beyond."""
    beyond = theta[..., 0].abs() > 1
    return torch.zeros_like(theta[..., 0], dtype=torch.float64).masked_fill(beyond, -torch.inf), torch.zeros_like(theta)


@pytest.mark.parametrize("burn_reject", ["stay", "restart"])
def test_rejections_in_the_warm_up(burn_reject):
    config = HMC(1.0, 1, num_warmup=60, num_draws=60, thin=1, burn_reject=burn_reject)
    start = torch.full((1, 8, 1), 0.25, dtype=torch.float64)
    sampler = Sampler(config, hmc.init(config, start, wall), wall, seeds=[0])
    paths, accepted = [start[0, :, 0]], []
    for _ in range(config.num_iterations):
        before = sampler.state.accepted.sum(-1)[0].clone()
        paths.append(sampler.advance(1).current.position[0, :, 0].clone())
        accepted.append(sampler.state.accepted.sum(-1)[0] > before)
    path, accepted = torch.stack(paths), torch.stack(accepted)
    assert 20 < int((~accepted).sum()) / 8 < 80
    moved_after = torch.zeros(8, dtype=torch.bool)
    for step, ok in enumerate(accepted):
        moved_after |= ok & (step >= config.num_warmup)
        back = ~moved_after if burn_reject == "restart" else torch.zeros_like(ok)
        expected = torch.where(back, start[0, :, 0], path[step])
        assert (path[step + 1] == expected)[~ok].all()
        assert (path[step + 1] != path[step])[ok].all()
    np.testing.assert_array_equal(sampler.state.draws[0, :, :, 0].T, path[61:])


def test_draws_are_every_so_manieth_state_after_the_warm_up():
    whole = HMC(0.3, 3, num_warmup=10, num_draws=24, thin=1)
    thinned = HMC(0.3, 3, num_warmup=10, num_draws=6, thin=4)
    started = HMC(0.3, 3, num_warmup=10, num_draws=7, thin=4, include_init=True)
    position = starts(2, 3, 2)
    every, fourth, first = (hmc.sample(c, position, standard(2), [3, 4]).draws for c in (whole, thinned, started))
    assert torch.equal(fourth, every[:, :, 3::4])
    assert torch.equal(first[:, :, 0], position) and torch.equal(first[:, :, 1:], fourth)


@pytest.mark.parametrize("adapt", [{}, {"adapt_step": True, "adapt_mass": True}], ids=["fixed", "adapted"])
@pytest.mark.parametrize("burn_reject", ["stay", "restart"])
def test_pieces_make_the_whole(adapt, burn_reject):
    config = HMC(0.5, 4, num_warmup=60, num_draws=20, thin=3, burn_reject=burn_reject, **adapt)
    position = starts(2, 3, 2, dtype=torch.float32)
    target = standard(2, torch.float32)
    whole = hmc.sample(config, position, target, [0, 1], ("task", 1))
    state = hmc.init(config, position, target)
    for piece in (1, 31, 0, 2, 50, 1000):
        before = [t.clone() for t in hmc._tensors(state)]
        later = Sampler(config, state, target, [0, 1], ("task", 1)).advance(piece)
        after = hmc._tensors(state)
        assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, after, strict=True))
        state = later
    for one, other in zip(hmc._tensors(whole), hmc._tensors(state), strict=True):
        assert torch.equal(one.nan_to_num(7), other.nan_to_num(7))
    assert int(state.iteration) == config.num_iterations and not state.draws.isnan().any()


def test_a_chain_does_the_same_whatever_runs_beside_it():
    config = HMC(0.5, 4, num_warmup=40, num_draws=20, thin=2, adapt_step=True, adapt_mass=True)
    position = starts(3, 4, 5)
    three = hmc.sample(config, position, standard(5), [5, 6, 7])
    alone = hmc.sample(config, position[1:2], standard(5), [6])
    # Adaptation adds up over chains, in an order that depends on the length on some processors.
    torch.testing.assert_close(three.draws[1:2], alone.draws, rtol=0, atol=1e-12)
    fixed = HMC(0.5, 4, num_warmup=40, num_draws=20, thin=2)
    both = hmc.sample(fixed, position, standard(5), [5, 6, 7])
    assert torch.equal(both.draws[:, :2], hmc.sample(fixed, position[:, :2], standard(5), [5, 6, 7]).draws)
    same_start = position[:1, :1].expand(2, 2, 5)
    draws = hmc.sample(fixed, same_start, standard(5), [0, 1]).draws.flatten(0, 1)
    other = hmc.sample(fixed, same_start, standard(5), [0, 1], ("task", 1)).draws.flatten(0, 1)
    assert len({float(d[-1, 0]) for d in (*draws, *other)}) == 8


def test_warm_up_and_sampling_are_counted_apart():
    state = hmc.sample(QUICK, starts(1, 5, 3), standard(3), seeds=[0])
    report = hmc.info(QUICK, state)
    taken = state.trace.energy_error <= 0
    assert (state.accepted[..., 0] >= taken[..., :40].sum(-1)).all() and (state.accepted[..., 0] <= 40).all()
    torch.testing.assert_close(report.acceptance_rate[0], state.accepted[0, :, 1] / 60.0, check_dtype=False)
    torch.testing.assert_close(
        state.trace.acceptance, (-state.trace.energy_error).exp().clamp(max=1), atol=1e-6, rtol=1e-5
    )
    last = standard(3)(state.draws[:, :, -1])[0]
    torch.testing.assert_close(state.trace.log_density[..., -1], last, check_dtype=False)
    assert hmc.info(QUICK, hmc.init(QUICK, starts(1, 5, 3), standard(3))).acceptance_rate.isnan().all()


def test_windows_of_the_warm_up():
    flags = warmup.plan(1000)
    ends = (flags[:, 2].nonzero().flatten() + 1).tolist()
    assert ends == [100, 150, 250, 450, 950]  # Stan's schedule for a thousand iterations
    assert flags[75:950, 1].all() and not flags[:75, 1].any() and not flags[950:, 1].any()
    assert flags[:, 3].tolist() == [0] * 999 + [1]
    assert warmup.plan(0).shape == (0, 4)


def test_a_start_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match=r"position: at the start of 1 of 6 chains .* chain 2 of row 1"):
        position = starts(2, 3, 2)
        position[1, 2, 0] = torch.inf
        hmc.init(QUICK, position, standard(2))


def test_a_target_of_another_kind_is_refused():
    def single(theta):
        return -0.5 * theta.square().sum(-1), -theta

    with pytest.raises(ValueError, match="float32"):
        hmc.init(QUICK, starts(1, 2, 3, dtype=torch.float32), single)
    with pytest.raises(ValueError, match=r"\(seed, chain, dim\)"):
        hmc.init(QUICK, starts(2, 3), standard(3))
    with pytest.raises(ValueError, match="3 seeds do not fit a state of 2"):
        Sampler(QUICK, hmc.init(QUICK, starts(2, 3, 1), standard(1)), standard(1), [0, 1, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_draws": 0}, "num_draws=0"),
        ({"step_size": 0.0}, "step_size=0.0"),
        ({"burn_reject": "restrt"}, "did you mean 'restart'"),
        ({"adapt_step": True, "num_warmup": 5}, "num_warmup=5 is too short"),
        ({"adapt_mass": True}, "set adapt_step"),
        ({"include_init": True, "num_draws": 1}, "num_draws=1"),
    ],
)
def test_settings_that_cannot_run(changes, message):
    with pytest.raises(ValueError, match=message):
        HMC(**changes)


def test_a_step_that_rejects_everything_is_named():
    config = HMC(step_size=30.0, num_leapfrog=3, num_warmup=10, num_draws=40, thin=1)
    with pytest.warns(UserWarning, match=r"step_size=30.0: .* seeds \[4\], .* from 30 to 30") as caught:
        sampler = Sampler(config, hmc.init(config, starts(1, 2, 2), standard(2)), standard(2), [4])
        for _ in range(5):
            sampler.advance(10)
    assert len(caught) == 1
    adapted = HMC(30.0, 3, num_warmup=100, num_draws=40, thin=1, adapt_step=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = hmc.sample(adapted, starts(1, 2, 2), standard(2), [4])
    assert hmc.info(adapted, state).acceptance_rate.min() > 0.5


def test_a_tape_longer_than_any_before_is_taken_whole():
    lengths = []
    stepper = training.Stepper(lambda x: lengths.append(float(x)), [torch.zeros(1)])
    stepper((torch.arange(2),))
    stepper((torch.arange(5),))
    assert lengths == [0, 1, 0, 1, 2, 3, 4]


def test_pinned_run():
    """Twenty iterations; a change here is a change of numbers, and VERSION of every method that samples moves."""
    x, y = starts(30, 2, dtype=torch.float32), torch.arange(30) % 2
    target = hmc.product(network_density.likelihood(MLP((2,), (3,), 2), x, y), network_density.gaussian_prior(10.0))
    config = HMC(0.05, 5, num_warmup=10, num_draws=10, thin=1)
    state = hmc.sample(config, torch.zeros(2, 2, 17), target, [0, 1])
    summary = [float(v) for v in (state.draws.mean(), state.draws.square().mean(), state.trace.log_density.mean())]
    np.testing.assert_allclose(summary, PINNED, rtol=1e-4)


PINNED = (-0.03462924435734749, 0.10064701735973358, -25.57801055908203)
