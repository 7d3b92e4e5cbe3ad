"""Densities against scipy, torch.distributions, autograd, scikit-learn, Monte Carlo, quadrature and hamiltorch."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.mixture import GaussianMixture
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from paper_lib import driver, rng
from paper_lib.inference import density
from paper_lib.inference.density import em, flow, gmm

F64 = torch.float64
GOLDEN = Path(__file__).parent / "data" / "hamiltorch_leapfrog.npz"


def normal(g, *shape):
    return torch.randn(*shape, generator=g, dtype=F64)


def covariances(g, *shape, condition=100.0):
    """Rotated covariances with eigenvalues from 1 down to 1 / condition."""
    dim = shape[-1]
    rotation = torch.linalg.qr(normal(g, *shape, dim)).Q
    cov = (rotation * torch.logspace(0, -math.log10(condition), dim, dtype=F64)) @ rotation.mT
    return 0.5 * (cov + cov.mT)


def parts(num_components=4, dim=5, spread=2.0, seed=0):
    """Weights, means and covariances of one mixture."""
    g = rng.generator(seed, "mixture", num_components, dim)
    weight = torch.rand(num_components, generator=g, dtype=F64) + 0.2
    return weight / weight.sum(), spread * normal(g, num_components, dim), covariances(g, num_components, dim)


def mixture(*args, **kwargs):
    weight, mean, cov = parts(*args, **kwargs)
    return gmm.from_covariances(weight.log()[None], mean[None], cov[None])


def reference(weight, mean, cov):
    return MixtureSameFamily(Categorical(weight), MultivariateNormal(mean, cov))


def streams(num_seeds, *path):
    return rng.generators(range(num_seeds), *path)


def draws_of(one, num_chains, num_draws, *path):
    """Independent draws in the shape of chains, ``(1, chain, draw, dim)``."""
    return one.sample(num_chains * num_draws, streams(1, *path)).view(1, num_chains, num_draws, -1)


# Log density and gradient


@pytest.mark.parametrize(("num_components", "dim", "spread"), [(1, 3, 1.0), (4, 5, 2.0), (9, 24, 0.3), (9, 24, 30.0)])
def test_log_density_and_gradient_are_those_of_scipy_and_autograd(num_components, dim, spread):
    weight, mean, cov = parts(num_components, dim, spread)
    one, x = mixture(num_components, dim, spread), 3 * normal(rng.generator(1, "x"), 1, 40, dim)
    log_prob, grad = one.log_prob_and_grad(x)
    each = [stats.multivariate_normal(m, c).logpdf(x[0]) for m, c in zip(mean.numpy(), cov.numpy(), strict=True)]
    expected = torch.tensor(np.stack([np.atleast_1d(e) for e in each])).T + weight.log()
    torch.testing.assert_close(log_prob[0], expected.logsumexp(-1), rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(one.log_prob(x), log_prob, rtol=1e-14, atol=0.0)
    leaf = x.clone().requires_grad_()
    reference(weight, mean, cov).log_prob(leaf).sum().backward()
    torch.testing.assert_close(grad, leaf.grad, rtol=1e-10, atol=1e-9)


def test_leaving_components_out_changes_nothing():
    one, x = mixture(30, 20, 1.0), normal(rng.generator(2, "x"), 1, 50, 20)
    pairs = gmm.relevant(one, x)
    assert len(pairs.row) < 0.5 * 30 * 50
    for found, expected in zip(one.log_prob_and_grad(x), one.all_log_prob_and_grad(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-12)


def test_float32_keeps_the_log_density_to_1e_6():
    one = mixture(10, 162, 1.0)
    x = one.sample(30, streams(1, "float32")).float()
    log_prob, grad = one.log_prob_and_grad(x.double())
    rough, rough_grad = one.to(torch.float32).log_prob_and_grad(x)
    assert rough.dtype == F64 and rough_grad.dtype == torch.float32
    torch.testing.assert_close(rough, log_prob, rtol=1e-6, atol=0.0)
    assert (rough_grad - grad).norm() < 1e-5 * grad.norm()


def test_a_point_that_is_not_finite_spoils_no_other():
    one, x = mixture(6, 8, 1.0), normal(rng.generator(3, "x"), 1, 12, 8)
    alone = one.log_prob_and_grad(x)
    x = x.clone()
    x[0, 3, 2], x[0, 7, 0] = torch.nan, torch.inf
    both = one.log_prob_and_grad(x)
    kept = [i for i in range(12) if i not in (3, 7)]
    assert not both[0][0, [3, 7]].isfinite().any()
    for found, expected in zip(both, alone, strict=True):
        torch.testing.assert_close(found[:, kept], expected[:, kept], rtol=1e-12, atol=1e-12)


def test_padding_and_neighbouring_seeds_change_nothing():
    several = [mixture(k, 6, 2.0, seed=k) for k in (1, 5, 3)]
    x = normal(rng.generator(4, "x"), 3, 10, 6)
    together = gmm.stack(several)
    assert together.mean.shape == (3, 5, 6)
    for call in (together.log_prob_and_grad, together.all_log_prob_and_grad):
        log_prob, grad = call(x)
        for s, one in enumerate(several):
            expected = one.log_prob_and_grad(x[s : s + 1])
            torch.testing.assert_close(log_prob[s : s + 1], expected[0], rtol=1e-13, atol=1e-12)
            torch.testing.assert_close(grad[s : s + 1], expected[1], rtol=1e-12, atol=1e-12)
    drawn = together.sample(7, streams(3, "draws"))
    for s, one in enumerate(several):
        torch.testing.assert_close(drawn[s : s + 1], one.sample(7, [streams(3, "draws")[s]]), rtol=0.0, atol=1e-12)


def test_draws_have_the_mixtures_moments():
    weight, mean, cov = parts(3, 4)
    drawn = mixture(3, 4).sample(200_000, streams(1, "moments"))[0]
    expected = weight @ mean
    centred = mean - expected
    expected_cov = (weight[:, None, None] * (cov + centred[:, :, None] * centred[:, None])).sum(0)
    sd = expected_cov.diagonal().sqrt()
    assert ((drawn.mean(0) - expected).abs() < 5 * sd / math.sqrt(200_000)).all()
    assert ((drawn.T.cov() - expected_cov).abs() < 0.02 * sd[:, None] * sd).all()


def test_isotropic_is_the_normal_prior():
    x = normal(rng.generator(5, "x"), 2, 3, 6)
    expected = stats.norm(0, math.sqrt(0.1)).logpdf(x).sum(-1)
    for settings in (density.GMMSettings(), density.FlowSettings(), density.FlowSettings(kind="spline")):
        if isinstance(settings, density.FlowSettings):
            pytest.importorskip("zuko")
        log_prob, grad = density.isotropic(settings, 2, 6, 10.0).log_prob_and_grad(x)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-12)
        torch.testing.assert_close(grad, -10 * x)


# hamiltorch


def golden_log_likelihood(theta, x, y):
    total = []
    for flat in theta:
        h, at = x, 0
        for i, o in pairwise((2, 10, 10, 2)):
            weight, bias = flat[at : at + i * o].view(o, i), flat[at + i * o : at + (i + 1) * o]
            h, at = h @ weight.T + bias, at + (i + 1) * o
            h = h.relu() if at < len(flat) else h
        total.append(h.log_softmax(-1)[torch.arange(len(y)), y].sum())
    return torch.stack(total)


@pytest.mark.parametrize(("num_steps", "step_size"), [(20, 1e-3), (7, 1e-2)])
def test_trajectories_under_the_mixture_prior_are_hamiltorchs(num_steps, step_size):
    golden = {name: torch.tensor(values) for name, values in np.load(GOLDEN).items()}
    prior = gmm.from_covariances(*(golden[f"gmm_{n}"][None] for n in ("weights", "means", "covariances")))
    prior = prior._replace(log_weight=golden["gmm_weights"].log()[None])

    def target(theta):
        log_prob, grad = prior.log_prob_and_grad(theta[None])
        leaf = theta.clone().requires_grad_()
        log_likelihood = golden_log_likelihood(leaf, golden["x"], golden["y"])
        (slope,) = torch.autograd.grad(log_likelihood.sum(), leaf)
        return log_prob[0] + log_likelihood.detach(), grad[0] + slope

    name = f"gmm_L{num_steps}_"
    theta, momentum = golden["theta"], golden["momentum"]
    log_prob, grad = target(theta)
    torch.testing.assert_close(log_prob, golden[name + "logp_start"], rtol=1e-12, atol=0.0)
    torch.testing.assert_close(grad, golden[name + "grad_start"], rtol=1e-9, atol=1e-9)
    for _ in range(num_steps):
        momentum = momentum + 0.5 * step_size * grad
        theta = theta + step_size * momentum
        log_prob, grad = target(theta)
        momentum = momentum + 0.5 * step_size * grad
    torch.testing.assert_close(theta, golden[name + "theta"], rtol=0.0, atol=1e-10)
    torch.testing.assert_close(momentum, golden[name + "momentum"], rtol=0.0, atol=1e-10)
    torch.testing.assert_close(log_prob, golden[name + "logp_end"], rtol=1e-12, atol=0.0)


# Expectation-maximisation


@pytest.mark.parametrize(("covariance", "theirs"), [("full", "full"), ("diagonal", "diag"), ("tied", "tied")])
def test_em_ends_where_scikit_learn_does(covariance, theirs):
    x = mixture(4, 5, 1.0).sample(600, streams(1, "em"))[0]
    start = mixture(4, 5, 1.0, seed=1).mean[0] * 0.5
    label = torch.cdist(x, start).argmin(-1)
    order = label.argsort(stable=True)
    hard = em.Memberships(label[order], order, torch.ones(600, dtype=F64))
    ours, _ = em.fit_from(x, hard, covariance, "floor", 25, 0.0)
    reached = GaussianMixture(4, covariance_type=theirs, tol=0.0, max_iter=1)
    one_hot = torch.nn.functional.one_hot(label, 4).double().numpy()
    reached._initialize(x.numpy(), one_hot)
    for _ in range(24):
        _, log_resp = reached._e_step(x.numpy())
        reached._m_step(x.numpy(), log_resp)
    assert float(ours.log_prob(x[None]).mean()) == pytest.approx(reached.score(x.numpy()), rel=1e-9)
    torch.testing.assert_close(ours.mean[0], torch.tensor(reached.means_), rtol=1e-7, atol=1e-7)


def test_one_component_is_the_gaussian_of_the_sample_moments():
    draws = normal(rng.generator(6, "draws"), 1, 4, 50, 3) @ normal(rng.generator(6, "mix"), 3, 3)
    settings = density.GMMSettings(max_components=1, regularisation="floor")
    one, info = density.fit(draws, settings, streams(1, "fit"))
    rows = draws.flatten(0, 2)
    expected = MultivariateNormal(rows.mean(0), rows.T.cov(correction=0) + 1e-6 * torch.eye(3, dtype=F64))
    x = normal(rng.generator(7, "x"), 1, 5, 3)
    torch.testing.assert_close(one.log_prob(x), expected.log_prob(x), rtol=1e-10, atol=1e-10)
    assert int(info["num_components"]) == 1 and torch.equal(info["held_out"], info["held_out_gaussian"])


@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_a_known_mixture_is_found_with_its_number_of_components(covariance):
    g = rng.generator(8, "known")
    mean = 3 * normal(g, 3, 8)
    cov = covariances(g, 1, 8).expand(3, 8, 8)
    log_weight = torch.tensor([0.5, 0.3, 0.2], dtype=F64).log()
    truth = gmm.from_covariances(log_weight[None], mean[None], cov[None])
    draws = draws_of(truth, 8, 400, "known")
    one, info = density.fit(draws, density.GMMSettings(covariance=covariance, max_components=20), streams(1, "fit"))
    assert int(info["num_components"]) == 3
    order = one.log_weight[0].argsort(descending=True)
    torch.testing.assert_close(one.log_weight[0, order].exp(), log_weight.exp(), rtol=0.0, atol=0.03)
    torch.testing.assert_close(one.mean[0, order], mean, rtol=0.0, atol=0.15)
    fresh = truth.sample(5000, streams(1, "fresh"))
    assert float((truth.log_prob(fresh) - one.log_prob(fresh)).mean()) < 0.08
    assert info["held_out"] > info["held_out_gaussian"]


def stuck_chains(num_chains=8, num_draws=200, dim=6):
    """Chains that each stay in a place of their own, as slow chains do."""
    g = rng.generator(9, "stuck")
    return normal(g, 1, num_chains, 1, dim) + 0.05 * normal(g, 1, num_chains, num_draws, dim)


def test_held_out_chains_see_what_held_out_rows_do_not():
    """Rows of the same chains make a component a chain look right; a chain that was not seen does not lie in it."""
    chosen = {}
    for holdout in ("rows", "chains"):
        _, info = density.fit(stuck_chains(), density.GMMSettings(holdout=holdout), streams(1, "fit"))
        chosen[holdout] = int(info["num_components"])
    assert chosen["rows"] >= 7 and chosen["chains"] <= 2


def test_memberships_are_bayes_rule_in_the_order_of_the_rows():
    """The shrinkage cuts folds from rows in their order, so that a fold holds whole stretches of chains."""
    g = rng.generator(11, "memberships")
    mixture = gmm.from_covariances(
        torch.tensor([[0.2, 0.3, 0.5]], dtype=F64).log(), normal(g, 1, 3, 6), covariances(g, 3, 6)[None]
    )
    rows = normal(g, 4000, 6)
    members, mean = em.expect(mixture, rows)
    cov = torch.linalg.inv(mixture.whitening[0].mT @ mixture.whitening[0])
    each = torch.distributions.MultivariateNormal(mixture.mean[0], cov).log_prob(rows[:, None]) + mixture.log_weight
    share = torch.zeros(4000, 3, dtype=F64)
    share[members.row, members.component] = members.weight
    torch.testing.assert_close(share, each.softmax(-1), rtol=1e-9, atol=em.LEAST_WEIGHT)
    assert mean == pytest.approx(float(each.logsumexp(-1).mean()), rel=1e-12)
    assert (members.component.diff() >= 0).all()
    for k in range(3):
        own = members.row[members.component == k]
        assert len(own) > 1000 and (own.diff() > 0).all()


def test_the_ladder_is_the_releases_and_ends_after_two_falls():
    assert tuple(np.unique(np.geomspace(1, 500, 20).astype(int))) == em.LADDER
    _, info = density.fit(stuck_chains(), density.GMMSettings(), streams(1, "fit"))
    curve = info["curve"][0]
    tried = curve[~curve.isnan()]
    falls = (tried[1:] <= tried[:-1]).tolist()
    assert falls[-2:] == [True, True] and [True, True] not in [falls[i : i + 2] for i in range(len(falls) - 2)]


def test_seeds_are_fitted_alone():
    draws = torch.cat([stuck_chains(), draws_of(mixture(3, 6, 3.0), 8, 200, "other")])
    both, info = density.fit(draws, density.GMMSettings(max_components=5), streams(2, "fit"))
    x = normal(rng.generator(10, "x"), 2, 4, 6)
    for s in range(2):
        alone, own = density.fit(draws[s : s + 1], density.GMMSettings(max_components=5), streams(2, "fit")[s : s + 1])
        torch.testing.assert_close(both.log_prob(x)[s], alone.log_prob(x[s : s + 1])[0], rtol=1e-12, atol=0.0)
        assert int(own["num_components"]) == int(info["num_components"][s])


def test_shrinkage_finds_eigenvalues_that_few_rows_hide():
    """Thirty rows in 24 dimensions: the sample covariance excludes what other draws do, shrinkage does not."""
    truth = mixture(1, 24, 0.0)
    rows, fresh = truth.sample(30, streams(1, "few"))[0], truth.sample(2000, streams(1, "fresh"))
    loss = {}
    for regularisation in ("floor", "shrinkage"):
        one, _ = em.fit_from(rows, em.alone(rows), "full", regularisation, 1, 0.0)
        loss[regularisation] = float((truth.log_prob(fresh) - one.log_prob(fresh)).mean())
    assert 0 < 4 * loss["shrinkage"] < loss["floor"]


@pytest.mark.parametrize("covariance", ["full", "diagonal", "tied"])
def test_no_component_collapses_on_rows_that_are_all_the_same(covariance):
    g = rng.generator(11, "collapse")
    spots = normal(g, 3, 5)
    rows = torch.cat([normal(g, 300, 5), *(spot.expand(100, 5) for spot in spots)])
    label = torch.cat([torch.zeros(300, dtype=torch.int64), torch.arange(1, 4).repeat_interleave(100)])
    members = em.Memberships(label, torch.arange(600), torch.ones(600, dtype=F64))
    one, _ = em.fit_from(rows, members, covariance, "shrinkage", 20, 1e-3)
    narrowest = 1 / torch.linalg.matrix_norm(one.whitening[0], 2)
    assert (narrowest > 0.01).all(), narrowest
    one, _ = em.fit_from(rows, members, "full", "floor", 20, 1e-3)
    assert (1 / torch.linalg.matrix_norm(one.whitening[0], 2)).min() < 2e-3


# The border


@pytest.mark.parametrize(
    ("draws", "settings", "message"),
    [
        (torch.zeros(1, 4, 0, 3), density.GMMSettings(), r"draws have shape \(1, 4, 0, 3\).*each at least 1"),
        (torch.zeros(10, 3), density.GMMSettings(), r"\(10, 3\); a density is fitted to \(seed, chain, draw, dim\)"),
        (
            torch.zeros(1, 1, 9, 3),
            density.GMMSettings(),
            "num_chains=1: holdout='chains' keeps chains from the fit; give 2",
        ),
        (torch.zeros(1, 4, 9, 3), density.GMMSettings(max_rows=3), "max_rows=3 is less than one draw of each of 4"),
        (
            torch.zeros(1, 4, 9, 3),
            density.GMMSettings(holdout="rows", final_rows=3750),
            "final_rows=3750 is more than the 27 rows that are not held out",
        ),
    ],
)
def test_what_cannot_be_fitted_is_said(draws, settings, message):
    with pytest.raises(ValueError, match=message):
        density.fit(draws, settings, streams(len(draws), "fit"))


def test_draws_that_are_not_finite_are_named():
    draws = stuck_chains()
    draws[0, 5, 7, 2] = torch.nan
    with pytest.raises(ValueError, match=r"1 of 1600 draws are not finite \(seed 0 chain 5\)"):
        density.fit(draws, density.GMMSettings(), streams(1, "fit"))


@pytest.mark.parametrize(
    ("name", "value"), [("covariance", "spherical"), ("holdout", "row"), ("max_components", 0), ("regularisation", "")]
)
def test_settings_say_what_is_allowed(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r} is not"):
        density.GMMSettings(**{name: value})


def test_a_weight_that_never_moves_is_told_and_survived():
    draws = stuck_chains().clone()
    draws[..., 2] = 0.7
    with pytest.warns(UserWarning, match=r"1 of 6 weights never move \(the first is 2\).*0\.001"):
        one, _ = density.fit(draws, density.GMMSettings(max_components=3), streams(1, "fit"))
    drawn = one.sample(500, streams(1, "draws"))[0, :, 2]
    assert (drawn - 0.7).abs().max() < 0.01 and 5e-4 < drawn.std() < 2e-3


def test_repeated_rows_are_told_and_end_the_ladder():
    draws = normal(rng.generator(12, "few"), 1, 4, 3, 5).repeat_interleave(50, 2)
    settings = density.GMMSettings(holdout="rows", tolerance=1e-2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one, _ = density.fit(draws, settings, streams(1, "fit"))
    messages = [str(w.message) for w in caught]
    assert any("600 rows hold only 12 different ones" in m and "regularisation='shrinkage'" in m for m in messages)
    assert any(
        "max_components=500, but 450 rows are not 13 different ones; the ladder ended at 9" in m for m in messages
    )
    assert one.log_prob(draws[:, 0]).isfinite().all()


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ((0.96, 0.97, 2.0, 2.0), "ok"),
        ((0.97, 0.96, 2.0, 1.0), "ok"),
        ((0.959, 0.97, 2.0, 1.0), "density failed"),
        ((0.97, 0.97, 1.0, 2.0), "density failed"),
        ((0.97, 0.97, math.nan, 2.0), "density failed"),
    ],
)
def test_a_density_counts_by_accuracy_and_held_out_likelihood(numbers, verdict):
    accuracy, of_hmc, held_out, of_a_gaussian = numbers
    assert density.passes(accuracy - of_hmc, held_out - of_a_gaussian) == (verdict == "ok")


def test_a_checkpoint_keeps_a_density(tmp_path):
    pytest.importorskip("zuko")
    x = normal(rng.generator(13, "x"), 1, 3, 4)
    for one in (mixture(3, 4), density.isotropic(density.FlowSettings(), 1, 4, 10.0)):
        tensors = dict(driver.named_tensors(one))
        assert all(t.shape[0] == 1 for t in tensors.values())
        again = driver._rebuilt(one, {name: torch.from_numpy(t.numpy().copy()) for name, t in tensors.items()})
        assert torch.equal(again.log_prob(x), one.log_prob(x))


# Flows


def trained(kind, dim=2, **changes):
    pytest.importorskip("zuko")
    draws = draws_of(mixture(3, dim, 1.5), 8, 100, "flow")
    settings = density.FlowSettings(kind=kind, **{"epochs": 30, "learning_rate": 5e-3, "batch_size": 64, **changes})
    return density.fit(draws, settings, streams(1, "flow"))


@pytest.mark.parametrize("kind", ["realnvp", "spline"])
def test_flow_is_inverted_and_its_log_determinant_is_that_of_the_jacobian(kind):
    one = trained(kind, dim=5, epochs=5)[0].to(F64)
    network = flow._network(one.settings, 5, F64, torch.device("cpu"))
    params = [p[0] for p in one.params]
    z = normal(rng.generator(14, "z"), 4, 5)
    x = flow._call(network, params, z, inverse=True)

    def forward(point):
        for coupling in network.couplings:
            point = coupling(point)[0]
        return point

    with torch.no_grad():
        for p, own in zip(params, network.parameters(), strict=True):
            own.copy_(p)
    torch.testing.assert_close(forward(x), z, rtol=0.0, atol=1e-5)
    jacobian = torch.stack([torch.autograd.functional.jacobian(forward, row) for row in x])
    expected = stats.norm.logpdf(z).sum(-1) + torch.linalg.slogdet(jacobian).logabsdet.numpy()
    np.testing.assert_allclose(flow._call(network, params, x).detach(), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["realnvp", "spline"])
def test_flow_density_integrates_to_one_and_learns(kind):
    one, info = trained(kind)
    grid = torch.linspace(-12, 12, 321, dtype=F64)
    points = torch.cartesian_prod(grid, grid)[None]
    total = float(one.log_prob(points).exp().sum()) * float(grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1, abs=0.01)
    assert info["held_out"] > info["held_out_gaussian"]


@pytest.mark.parametrize("kind", ["realnvp", "spline"])
def test_flow_gradient_is_that_of_differences(kind):
    """Of two seeds whose networks differ, with halves of two and three weights; the log density is zuko's."""
    pytest.importorskip("zuko")
    draws = torch.cat([draws_of(mixture(3, 5, 1.5, seed=s), 8, 100, "flow", s) for s in range(2)])
    settings = density.FlowSettings(kind=kind, hidden=(12, 8, 10), epochs=3, learning_rate=5e-3, batch_size=64)
    one = density.fit(draws, settings, streams(2, "flow"))[0].to(F64)
    x = normal(rng.generator(15, "x"), 2, 6, 5)
    log_prob, grad = one.log_prob_and_grad(x)
    network = flow._network(settings, 5, F64, torch.device("cpu"))
    for s in range(2):
        expected = flow._call(network, [p[s] for p in one.params], (x[s] - one.loc[s]) / one.scale[s])
        torch.testing.assert_close(log_prob[s], expected - one.scale[s].log().sum(), rtol=1e-12, atol=1e-12)
    for j in range(5):
        step = torch.zeros(5, dtype=F64)
        step[j] = 1e-6
        slope = (one.log_prob(x + step) - one.log_prob(x - step)) / 2e-6
        torch.testing.assert_close(grad[..., j], slope, rtol=1e-5, atol=1e-6)


def test_flow_seeds_are_independent_and_draws_follow_the_density():
    pytest.importorskip("zuko")
    draws = torch.cat([draws_of(mixture(2, 3, 1.0, seed=s), 4, 100, "flow", s) for s in range(2)])
    settings = density.FlowSettings(epochs=3, learning_rate=5e-3, batch_size=64)
    both, _ = density.fit(draws, settings, streams(2, "flow"))
    alone, _ = density.fit(draws[1:], settings, streams(2, "flow")[1:])
    for p, q in zip(both.params, alone.params, strict=True):  # one product holds all seeds: equal but for rounding
        torch.testing.assert_close(p[1], q[0], rtol=1e-4, atol=1e-5)
    found, expected = both.log_prob(draws[:, 0])[1], alone.log_prob(draws[1:, 0])[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    drawn = both.sample(20_000, streams(2, "draws"))
    assert torch.equal(both.sample(20_000, streams(2, "draws")), drawn)
    # E[q0 / q] over draws of q is 1 for any density q0 that q covers: here a narrow normal at the draws' mean.
    for s in range(2):
        centre = drawn[s].double().mean(0)
        log_ratio = (
            stats.multivariate_normal(centre, 0.1 * np.eye(3)).logpdf(drawn[s]) - both.log_prob(drawn)[s].numpy()
        )
        assert np.exp(log_ratio).mean() == pytest.approx(1, abs=0.1)


def test_published_training_keeps_the_last_finite_parameters():
    """The release's learning rate of 0.1 is kept as an option, and a run that diverges ends in words, not in NaN."""
    pytest.importorskip("zuko")
    settings = density.published_flow(epochs=2, max_rows=200)
    assert (settings.learning_rate, settings.batch_size, settings.patience) == (0.1, 32, None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the flow's held-out likelihood is")
        one, info = density.fit(draws_of(mixture(3, 6, 3.0), 2, 100, "flow"), settings, streams(1, "flow"))
    assert all(p.isfinite().all() for p in one.params) and int(info["epochs"][0]) <= 2
