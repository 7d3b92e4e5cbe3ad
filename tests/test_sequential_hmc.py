"""The recursion: HMC, a density, HMC; against quadrature, the prior itself, and networks by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from paper_lib import rng, runs
from paper_lib.data.stream import Spec, Task, make_stream
from paper_lib.experiments import hmc_draws
from paper_lib.inference import density as densities
from paper_lib.inference import hmc
from paper_lib.inference.gaussian import Gaussian
from paper_lib.inference.regression import condition_line
from paper_lib.methods.sequential_hmc import SequentialHMC, log_probs
from paper_lib.networks import MLP
from paper_lib.rows import ROWS

TINY = SequentialHMC(hidden=(3,), num_chains=4, num_warmup=30, num_draws=10, thin=5, num_leapfrog=3, max_components=2)
LINEAR = SequentialHMC(
    hidden=(), num_chains=20, num_warmup=100, num_draws=100, thin=1, num_leapfrog=8, step_size=0.1, adapt=True,
    density="gaussian", prior_precision=1.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def pan():
    return make_stream("toy_pan", "domain_incremental", toy_points=8)


def learned(method, stream, seeds=(0,), num_tasks=2):
    """The state after every task, and what was told of it."""
    states, told = [method.init(stream.spec, seeds, "cpu")], []
    for task in stream.train[:num_tasks]:
        found = method.learn(states[-1], task)
        states.append(found.state)
        told.append(found)
    return states, told


@pytest.mark.parametrize("recursion", ["density", "exact", "joint"])
def test_predictions_are_distributions_and_the_record_says_how_sampling_went(pan, recursion):
    method = replace(TINY, recursion=recursion)
    states, told = learned(method, pan, (0, 5))
    for state in states:  # before the first task as well
        log_prob = method.predict(state, pan.held_out[0].x)
        assert log_prob.shape == (2, 160, 2)
        torch.testing.assert_close(log_prob.exp().sum(-1), torch.ones(2, 160, dtype=torch.float64))
    names = {"acceptance_rate", "warmup_acceptance_rate", "step_size", "divergent", "accuracy"}
    names |= {f"{what}_{of}" for what in ("rhat", "ess", "converged") for of in ("log_density", "probe")}
    fitted = {"density_accuracy", "held_out", "held_out_gaussian", "num_components"}
    for found in told:
        assert set(found.info) == names | (fitted if recursion == "density" else set())
        assert all(value.shape == (2,) for value in found.info.values())
        assert found.kept["draws"].shape == (2, 4, 10, 17) and found.kept["probes"].shape == (2, 4, 10, 16)
        assert found.kept["log_density"].shape == (2, 4, 80) and not found.kept["draws"].isnan().any()
    assert (states[2].data.size == 0) == (recursion == "density")  # the recursion keeps no data


def test_the_gate_and_the_accuracy_are_of_the_kept_draws(pan):
    (_, state), (found,) = learned(TINY, pan, num_tasks=1)
    task, draws = pan.train[0], found.kept["draws"][0]
    by_hand = torch.stack([forward(TINY, pan.spec, theta, task.x) for theta in draws.flatten(0, 1)]).softmax(-1)
    torch.testing.assert_close(
        found.kept["probes"][0].flatten(0, 1), by_hand[:, :, 1].float(), rtol=1e-4, atol=1e-6
    )  # as many points as probes
    assert float(found.info["accuracy"]) == pytest.approx((by_hand.mean(0).argmax(-1) == task.y).double().mean())
    at_draws = found.kept["log_density"][0, :, 30:][:, 4::5]
    prior = torch.distributions.Normal(0, 0.1**0.5)
    for chain, draw in ((0, 0), (3, 9)):
        theta = draws[chain, draw].double()
        log_lik = forward(TINY, pan.spec, theta, task.x).log_softmax(-1)[range(len(task.y)), task.y].sum()
        assert float(log_lik + prior.log_prob(theta).sum()) == pytest.approx(float(at_draws[chain, draw]), rel=1e-5)
    assert state.draws.shape == (1, 40, 17)


def forward(method, spec, theta, x):
    """A network's outputs by loops over its layers, float64."""
    h, theta = spec.scale(x).double(), theta.double()
    widths = (2, *method.hidden, 2)
    for layer, (i, o) in enumerate(pairwise(widths)):
        weight, bias, theta = theta[: i * o].view(i, o), theta[i * o : i * o + o], theta[i * o + o :]
        h = h @ weight + bias
        h = h.relu() if layer < len(method.hidden) else h
    return h


@pytest.mark.parametrize(("average", "eval_chains"), [("probability", "all"), ("logit", "last"), ("logit", "all")])
def test_a_prediction_averages_probabilities_of_all_chains_or_logits_of_the_last_as_published(
    pan, average, eval_chains
):
    method = replace(TINY, average=average, eval_chains=eval_chains, num_predict=7)
    (_, state), (found,) = learned(method, pan, num_tasks=1)
    x, draws = pan.held_out[0].x, found.kept["draws"][0]
    pool = draws[-1] if eval_chains == "last" else draws.flatten(0, 1)
    chosen = pool[np.linspace(0, len(pool) - 1, 7).round().astype(int)]
    torch.testing.assert_close(state.draws[0], chosen)
    logits = torch.stack([forward(method, pan.spec, theta, x) for theta in chosen])
    expected = logits.softmax(-1).mean(0).log() if average == "probability" else logits.mean(0).log_softmax(-1)
    torch.testing.assert_close(method.predict(state, x)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("density", ["gmm", pytest.param("realnvp", marks=pytest.mark.slow)])
def test_a_task_goes_on_from_any_state_that_it_reported(pan, density):
    method = replace(TINY, num_warmup=60, density=density, hidden=())  # 110 iterations: two reports
    (_, before), _ = learned(method, pan, (1, 4), 1)
    reported = []

    def report(state, fraction):
        reported.append((fraction, copied(state)))

    whole = method.learn(before, pan.train[1], report)
    fractions = [f for f, _ in reported]  # two of sampling, and one after each seed's fit or each epoch of all seeds'
    assert fractions == sorted(set(fractions)) and fractions[0] > 0 and fractions[-1] == 1
    assert len(fractions) == 4 if density == "gmm" else len(fractions) > 4
    for at in (0, 2):
        again = method.learn(reported[at][1], pan.train[1])
        for one, other in zip(leaves(whole.state), leaves(again.state), strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
        assert all(torch.equal(whole.info[n].nan_to_num(), again.info[n].nan_to_num()) for n in whole.info)


def leaves(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else []


def copied(tree):
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(copied, tree))
    return tree


@pytest.mark.filterwarnings("ignore:.*chains stand still")  # the second task's, after so short a warm-up
def test_a_seed_does_the_same_whatever_runs_beside_it(pan):
    method = replace(TINY, num_warmup=20, num_draws=10, thin=1, adapt=True)
    (*_, alone), _ = learned(method, pan, (7,))
    (*_, beside), _ = learned(method, pan, (2, 7))
    torch.testing.assert_close(
        alone.draws[0], beside.draws[1], rtol=1e-2, atol=2e-3
    )  # to rounding, which 60 gradients amplify
    assert not torch.allclose(beside.draws[0], beside.draws[1], atol=0.1)


def test_a_flow_holds_out_what_the_row_says():
    assert replace(TINY, density="realnvp", holdout="rows").fit_settings().holdout == "rows"
    assert replace(TINY, density="realnvp", flow_training="release").fit_settings().holdout == "rows"
    assert replace(TINY, density="realnvp").fit_settings().holdout == "chains"


# --- what is sampled


def test_a_task_without_data_reproduces_the_prior(pan):
    # A trajectory of a quarter of the prior's period (its sd times pi / 2), from where a draw is nearly independent of
    # the last. An adapted step can come near the whole period, after which every chain is where it was.
    method = replace(LINEAR, prior_precision=10.0, adapt=False, step_size=0.1**0.5 * np.pi / 2 / LINEAR.num_leapfrog)
    task = Task(0, torch.empty(0, 2), torch.empty(0, dtype=torch.int64))
    state = method.init(pan.spec, (0,), "cpu")
    for index in range(2):  # the second time the prior is the fitted Gaussian
        state, info, kept = method.learn(state, replace(task, index=index))
        draws = kept["draws"][0].double().flatten(0, 1)
        assert float(draws.mean(0).abs().max()) < 0.05
        np.testing.assert_allclose(draws.var(0), 0.1, rtol=0.25)
        assert info["ess_log_density"] > 200


@pytest.fixture(scope="module")
def regression():
    """Two tasks of a logistic regression in the plane."""
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(2, 60, 2, generator=stream)
    x[1] += 1.0
    y = (torch.rand(2, 60, generator=stream) < (1.5 * x[..., 0] - x[..., 1] + 0.3).sigmoid()).long()
    spec = Spec("toy_pan", "domain_incremental", (2,), ((0, 1),) * 2, (("a", "b"),) * 2, (0.0, 0.0), (1.0, 1.0))
    return spec, [Task(t, x[t], y[t]) for t in range(2)]


def by_quadrature(tasks):
    """Mean and sd of the difference of the two classes' weights and biases under all data: a normal of variance 2."""
    axes = [np.linspace(-2, 3.5, 45), np.linspace(-4, 1.5, 45), np.linspace(-2, 2.5, 45)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    log_p = -(grid**2).sum(-1) / 4
    for task in tasks:
        score = grid[:, :2] @ task.x.numpy().T.astype(float) + grid[:, 2:]
        log_p -= np.logaddexp(0, np.where(task.y.numpy() == 1, -score, score)).sum(-1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    return mean, np.sqrt(p @ (grid - mean) ** 2)


@pytest.mark.parametrize(
    ("recursion", "tolerance"), [("exact", 0.12), ("joint", 0.12), ("density", 0.3)]
)  # of an sd; a Gaussian is not quite the posterior of a logistic regression
def test_the_recursion_with_a_near_gaussian_posterior_is_the_posterior_of_all_data(regression, recursion, tolerance):
    spec, tasks = regression
    method = replace(LINEAR, recursion=recursion)
    state = method.init(spec, (0,), "cpu")
    for task in tasks:
        state, _, kept = method.learn(state, task)
    theta = kept["draws"][0].double().flatten(0, 1)
    weight, bias = theta[:, :4].view(-1, 2, 2), theta[:, 4:]
    found = torch.cat([weight[..., 1] - weight[..., 0], bias[:, 1:] - bias[:, :1]], -1).numpy()
    mean, sd = by_quadrature(tasks)
    assert (np.abs(found.mean(0) - mean) < tolerance * sd).all()
    np.testing.assert_allclose(found.std(0), sd, rtol=0.15)
    alone, _ = by_quadrature(tasks[1:])
    assert (np.abs(alone - mean) > 0.5 * sd).any()  # the first task is in it


def test_the_recursion_with_a_gaussian_posterior_is_the_posterior_of_all_data_but_for_the_error_of_draws():
    """Linear regression in two tasks: a Gaussian fitted to the draws of the first is the prior of the second."""
    stream = torch.Generator().manual_seed(0)
    phi, noise = (torch.randn(2, 26, *shape, generator=stream, dtype=torch.float64) for shape in ((3,), ()))
    phi[1] += torch.tensor([0.5, -0.25, 0.0])
    y = phi @ torch.tensor([1.0, -1.0, 0.3], dtype=torch.float64) + noise
    unit = torch.eye(3, dtype=torch.float64)
    exact, _ = condition_line(Gaussian(torch.zeros(3, dtype=torch.float64), unit), phi.flatten(0, 1), y.flatten(), 1.0)

    # With so many points a trajectory is about a quarter of a period of every direction, where draws forget fastest.
    settings, config = densities.GMMSettings(max_components=1), hmc.HMC(0.05, 5, 100, num_draws=400, thin=1)
    density = densities.isotropic(settings, 1, 3, precision=1.0)
    for task in range(2):

        def likelihood(theta, phi=phi[task], y=y[task]):
            residual = y - theta @ phi.T
            return -0.5 * residual.square().sum(-1), residual @ phi

        start = density.sample(50, rng.generators((0,), "start", task))
        target = hmc.product(likelihood, density.log_prob_and_grad)
        draws = hmc.sample(config, start, target, (0,), ("task", task)).draws
        density, _ = densities.fit(draws, settings, rng.generators((0,), "density", task))
    scale = torch.linalg.cholesky(exact.cov)
    off = torch.linalg.solve_triangular(scale, (density.mean[0, 0] - exact.mean)[:, None], upper=False)
    whitening = density.whitening[0, 0] @ scale
    assert off.abs().max() < 0.05  # of an sd
    torch.testing.assert_close(torch.linalg.inv(whitening.mT @ whitening), unit, atol=0.1, rtol=0)


# --- the release's switches


def test_the_published_row_has_the_release_s_values():
    method, stream = ROWS["hmc_as_published"].build("toy_pan", "paper", {})
    assert stream == {"toy_points": 80}
    settings = {"num_warmup": 1001, "num_draws": 800, "thin": 5, "burn_reject": "restart", "include_init": True}
    assert method.sampler() == hmc.HMC(step_size=1e-3, num_leapfrog=20, **settings)
    assert method.sampler().num_iterations == 4996  # of 5,000: the last four lie after the last draw that it keeps
    assert method.fit_settings() == densities.GMMSettings(
        regularisation="floor", max_components=50, holdout="rows", final_rows=3750
    )
    assert (method.start, method.average, method.eval_chains) == ("shared_net", "logit", "last")
    assert (method.num_chains, method.hidden, method.prior_precision) == (20, (10, 10), 10.0)
    text = ROWS["hmc"].build("toy_pan", "paper", {})[0]
    assert text.sampler() == hmc.HMC() and text.num_warmup + text.num_draws * text.thin == 11_000


def test_chains_start_at_one_network_on_every_task_as_published_or_at_draws_of_the_prior(pan):
    shared = replace(TINY, start="shared_net", include_init=True)
    _, told = learned(shared, pan, (3,))
    starts = [found.kept["draws"][0, :, 0] for found in told]
    network = torch.cat([p[0].flatten() for p in MLP((2,), (3,), 2).init((3,), "cpu")])
    for start in starts:
        assert torch.equal(start, network.expand(4, -1))

    states, told = learned(replace(TINY, include_init=True), pan, (3,))
    first, second = (found.kept["draws"][0, :, 0] for found in told)
    assert torch.equal(first, states[0].draws[0]) and first.unique(dim=0).shape[0] == 4
    drawn = states[1].prior.sample(4, rng.generators((3,), "start", 1))[0]
    torch.testing.assert_close(second, drawn.float())

    states, told = learned(replace(TINY, include_init=True, recursion="exact"), pan, (3,))
    assert torch.equal(told[1].kept["draws"][:, :, 0], states[1].sampler.current.position)
    _, told = learned(replace(TINY, include_init=True, recursion="joint"), pan, (3,))
    assert torch.equal(told[0].kept["draws"][0, :, 0], first)
    assert not torch.allclose(told[1].kept["draws"][0, :, 0], first, atol=0.1)


def test_a_rejection_in_the_warm_up_restarts_a_chain_as_published(pan):
    """A step so large that nothing is accepted leaves every draw at the start."""
    stuck = replace(TINY, step_size=1e3, burn_reject="restart", start="shared_net")
    with pytest.warns(UserWarning):
        _, (found,) = learned(replace(stuck, recursion="exact"), pan, num_tasks=1)
    assert found.kept["draws"][0].flatten(0, 1).unique(dim=0).shape[0] == 1
    moves = {}
    for burn_reject in ("stay", "restart"):
        method = replace(TINY, step_size=0.3, num_warmup=60, recursion="exact", burn_reject=burn_reject)
        _, (found,) = learned(method, pan, num_tasks=1)
        moves[burn_reject] = found.kept["log_density"][0, :, :60]
    at_start = {how: (trace[:, 1:] == trace[:, :1]).sum() for how, trace in moves.items()}
    assert found.info["warmup_acceptance_rate"] < 0.99
    assert torch.equal(moves["stay"][:, 0], moves["restart"][:, 0])
    assert not torch.equal(moves["stay"], moves["restart"]) and at_start["restart"] >= at_start["stay"]


# --- what is kept for figures


def test_a_row_without_draws_of_seed_0_is_left_out_of_the_arrays(tmp_path, monkeypatch):
    """The surface and the networks of a figure are seed 0's, its traces those of any seed."""
    draws = torch.randn(5, 2, 12, 162, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    seeds = {1}
    monkeypatch.setattr(hmc_draws, "draws_of", lambda job, seed: list(draws) if seed in seeds else [])
    assert hmc_draws.write(("toy_pan",), ("hmc",)) == [] and not list(tmp_path.iterdir())
    seeds.add(0)
    assert hmc_draws.write(("toy_pan",), ("hmc",)) == ["hmc on toy_pan"]
    assert len(hmc_draws.stored("toy_pan", "hmc")[1].accuracy) == 2


# --- numbers that stay


def test_pinned(pan):
    """Twenty iterations of two tasks; numbers that move are a new VERSION."""
    method = replace(TINY, num_warmup=10, num_draws=10, thin=1, step_size=0.02)
    _, told = learned(method, pan, (0,))
    ends = [float(found.kept["log_density"][0, 0, -1]) for found in told]
    assert ends == pytest.approx(PINNED["log_density"], rel=1e-4)
    assert [float(found.kept["draws"][0, -1, -1, 0]) for found in told] == pytest.approx(PINNED["weight"], rel=1e-3)
    assert [float(found.info["held_out"]) for found in told] == pytest.approx(PINNED["held_out"], rel=1e-3)
    assert SequentialHMC.VERSION == 2


PINNED = {
    "log_density": [-11.1397886, -10.0919018],
    "weight": [-0.0335196555, 0.0613561682],
    "held_out": [-45.9731188, -54.0494340],
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recursion": "exakt"}, r"recursion='exakt' is not one of .*did you mean 'exact'"),
        ({"density": "gauss"}, r"density='gauss' is not one of .*gaussian"),
        ({"start": "posterior"}, "start='posterior'"),
        ({"burn_reject": "reset"}, r"burn_reject='reset' is not one of .*restart"),
        ({"holdout": "row"}, r"holdout='row' is not one of .*did you mean 'rows'"),
        ({"covariance": "diag"}, "covariance='diag'"),
        ({"num_draws": 4}, "num_draws=4 is not at least 8"),
        ({"num_draws": 8, "include_init": True}, "num_draws=8 is not at least 9"),
        ({"num_chains": 1}, r"num_chains=1: holdout='chains'.*2 or more"),
        ({"final_rows": 10**6}, "final_rows=1000000 is more than the .* rows that are not held out"),
        ({"num_chains": 0}, "num_chains=0 is not at least 1"),
        ({"prior_precision": 0.0}, "prior_precision=0.0 is not above 0"),
        ({"step_size": -1.0}, "step_size=-1.0 is not above 0"),
        ({"hidden": (10, 0)}, "hidden=0 is not at least 1"),
        ({"adapt": True, "num_warmup": 5}, "num_warmup=5 is too short to adapt in"),
        ({"max_components": 0}, "max_components=0 is not at least 1"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **settings)


def test_one_chain_is_enough_for_the_controls_and_a_stream_with_named_tasks_is_refused():
    assert replace(TINY, num_chains=1, recursion="joint").num_chains == 1
    spec = make_stream("toy_pan", "task_incremental", toy_points=8).spec
    with pytest.raises(ValueError, match=r"task_incremental.*one head; use domain_incremental"):
        TINY.init(spec, (0,), "cpu")


def test_networks_from_draws_are_the_networks():
    network = MLP((2,), (3,), 2)
    draws, x = torch.randn(5, 17), torch.randn(4, 2)
    spec = Spec("toy_pan", "domain_incremental", (2,), ((0, 1),) * 2, (("a", "b"),) * 2, (0.0, 0.0), (1.0, 1.0))
    expected = torch.stack([forward(TINY, spec, theta, x).log_softmax(-1) for theta in draws])
    torch.testing.assert_close(log_probs(network, draws, x).double(), expected, rtol=1e-4, atol=1e-5)
