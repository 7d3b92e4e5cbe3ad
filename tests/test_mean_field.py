"""Mean-field networks against closed forms, Monte Carlo and finite differences."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import distributions as D

from paper_lib.inference import mean_field
from paper_lib.inference.gaussian import Gaussian, condition_on
from paper_lib.inference.mean_field import MeanField, Sampler
from paper_lib.networks import MLP, CifarNet

WIDTHS = (5, 7, 6, 3)


def random_network(seed, num_seeds=2, widths=WIDTHS, log_var=-2.0):
    draws = torch.Generator().manual_seed(seed)
    shapes = [(num_seeds, *s) for i, o in pairwise(widths) for s in ((i, o), (1, o))]
    mean = tuple(torch.randn(s, generator=draws, dtype=torch.float64) for s in shapes)
    return MeanField(mean, tuple(log_var + 0.5 * torch.randn(m.shape, generator=draws, dtype=m.dtype) for m in mean))


def network_of(widths):
    return MLP(widths[:1], widths[1:-1], widths[-1])


def drawing_weights(widths, num_samples):
    """A sampler like ``local_samples`` and the shapes of its noise."""
    network = network_of(widths)
    return partial(mean_field.weight_samples, network), mean_field.weight_noise_shapes(network.shapes, num_samples)


def single(mean, var):
    return MeanField((torch.tensor([[[mean]]]),), (torch.tensor([[[math.log(var)]]]),))


def test_kl_of_one_weight():
    assert mean_field.kl(single(1.0, 0.25), single(0.0, 1.0)).item() == pytest.approx(0.8181, abs=5e-5)


def test_kl_of_a_distribution_with_itself_is_exactly_zero():
    q = random_network(0)
    assert torch.equal(mean_field.kl(q, q), torch.zeros(2, dtype=torch.float64))


def test_kl_agrees_with_torch_distributions():
    q, p = random_network(0), random_network(1)
    expected = sum(
        D.kl_divergence(D.Normal(m, (v / 2).exp()), D.Normal(m0, (v0 / 2).exp())).flatten(1).sum(1)
        for m, v, m0, v0 in zip(*q, *p, strict=True)
    )
    torch.testing.assert_close(mean_field.kl(q, p), expected)


@pytest.mark.parametrize("per_point", [True, False])
def test_local_samples_of_one_layer_have_the_moments_of_weight_samples(per_point):
    widths, num_samples = (5, 3), 100_000
    q = random_network(2, 1, widths)
    var = [v.exp() for v in q.log_var]
    draws = torch.Generator().manual_seed(3)
    x = torch.randn((1, 4, 5), generator=draws, dtype=torch.float64)
    shapes = mean_field.local_noise_shapes(widths, num_samples, 4 if per_point else 1)
    noise = [torch.randn((1, *s), generator=draws, dtype=torch.float64) for s in shapes]
    local = mean_field.local_samples(q.mean, var, x, noise)[0]
    weight = q.mean[0] + var[0].sqrt() * torch.randn((num_samples, 5, 3), generator=draws, dtype=torch.float64)
    bias = q.mean[1] + var[1].sqrt() * torch.randn((num_samples, 1, 3), generator=draws, dtype=torch.float64)
    drawn = x @ weight + bias
    sd = drawn.std(0)
    assert ((local.mean(0) - drawn.mean(0)).abs() < 5 * sd * math.sqrt(2 / num_samples)).all()
    torch.testing.assert_close(local.var(0), drawn.var(0), rtol=5 * math.sqrt(4 / num_samples), atol=0.0)


def test_outputs_of_a_point_have_one_distribution_under_weight_samples_and_local_samples():
    # Given a point's inputs to a layer, its pre-activations are independent Gaussians under both; only different points
    # are correlated under one and not under the other.
    widths, num_samples = (5, 7, 3), 100_000
    q = random_network(4, 1, widths)
    var = [v.exp() for v in q.log_var]
    draws = torch.Generator().manual_seed(5)
    x = torch.randn((1, 3, 5), generator=draws, dtype=torch.float64)

    def sampled(sample, shapes):
        return sample(q.mean, var, x, [torch.randn((1, *s), generator=draws, dtype=torch.float64) for s in shapes])[0]

    local = sampled(mean_field.local_samples, mean_field.local_noise_shapes(widths, num_samples, 3))
    weight = sampled(*drawing_weights(widths, num_samples))
    standard_error = math.sqrt(2 / num_samples) * weight.std(0)
    assert ((local.mean(0) - weight.mean(0)).abs() < 5 * standard_error).all()
    torch.testing.assert_close(local.var(0), weight.var(0), rtol=0.04, atol=0.0)
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    gap = (local.quantile(levels, 0) - weight.quantile(levels, 0)).abs()
    # A 5 % quantile of n normals has a standard error of 2.1 sd / sqrt(n); the difference of two, 0.0095 sd here.
    assert (gap < 0.045 * weight.std(0)).all()


def test_factors_multiply_hidden_units_after_the_rectifier():
    q, draws = random_network(13), torch.Generator().manual_seed(14)
    x = torch.randn((2, 4, 5), generator=draws, dtype=torch.float64)
    noise = [torch.randn((2, 3, 4, w), generator=draws, dtype=torch.float64) for w in WIDTHS[1:]]
    # Of one sample and of all, of either sign.
    factors = [torch.randn((2, s, 4, w), generator=draws, dtype=torch.float64) for s, w in ((1, 7), (3, 6))]

    def sampled(mean, var, factors=None):
        return mean_field.local_samples(mean, var, x, noise, factors)

    var = [v.exp() for v in q.log_var]
    found = sampled(q.mean, var, factors)
    for seed in range(2):
        for sample in range(3):
            h = x[seed]
            for layer, e in enumerate(noise):
                (w, b), (w_var, b_var) = ((of[2 * layer][seed], of[2 * layer + 1][seed]) for of in (q.mean, var))
                h = h @ w + b + (h.square() @ w_var + b_var + mean_field.VAR_FLOOR).sqrt() * e[seed, sample]
                if layer < 2:
                    h = h.relu() * factors[layer][seed, min(sample, factors[layer].shape[1] - 1)]
            torch.testing.assert_close(found[seed, sample], h)
    assert torch.equal(sampled(q.mean, var, [torch.ones_like(f) for f in factors]), sampled(q.mean, var))
    leaves = [t.clone().requires_grad_() for t in (*q.mean, *var, *factors)]
    assert torch.autograd.gradcheck(lambda *p: sampled(p[:6], p[6:12], p[12:]), leaves)


def test_weight_samples_are_networks_of_the_drawn_weights():
    q, draws = random_network(6), torch.Generator().manual_seed(7)
    x = torch.randn((2, 4, 5), generator=draws, dtype=torch.float64)
    network = network_of(WIDTHS)
    shapes = mean_field.weight_noise_shapes(network.shapes, 3)
    noise = [torch.randn((2, *s), generator=draws, dtype=torch.float64) for s in shapes]
    outputs = mean_field.weight_samples(network, q.mean, [v.exp() for v in q.log_var], x, noise)
    noise = [e.view(2, 3, -1, o) for e, o in zip(noise, WIDTHS[1:], strict=True)]
    for seed in range(2):
        for sample in range(3):
            h = x[seed]
            for layer, e in enumerate(noise):
                weight, bias = 2 * layer, 2 * layer + 1
                sd = [(q.log_var[at][seed] / 2).exp() for at in (weight, bias)]
                w = q.mean[weight][seed] + sd[0] * e[seed, sample, :-1]
                b = q.mean[bias][seed] + sd[1] * e[seed, sample, -1:]
                h = h @ w + b
                h = h.clamp_min(0) if layer < 2 else h
            torch.testing.assert_close(outputs[seed, sample], h)


def test_weight_samples_of_a_convolutional_network_are_that_network_with_drawn_weights():
    network, draws = CifarNet(3), torch.Generator().manual_seed(12)
    mean = network.init((0, 1), "cpu")
    var = [torch.rand(m.shape, generator=draws) * 1e-3 for m in mean]
    assert [tuple(m.shape[1:]) for m in mean] == network.shapes
    sampler = Sampler(network, 2, 4, "weight")
    noise = torch.randn(2, sampler.size, generator=draws)
    x = torch.randn(2, 4, 3, 32, 32, generator=draws)
    outputs = sampler(mean, var, x, noise)
    assert outputs.shape == (2, 2, 4, 3) and not sampler.per_point
    for seed in range(2):
        # Layer by layer, both samples of a layer together, weights before biases.
        rest, drawn = noise[seed], [[], []]
        for at in range(0, len(mean), 2):
            count = sum(mean[i][0].numel() for i in (at, at + 1))
            for sample, row in enumerate(rest[: 2 * count].view(2, count)):
                weight = mean[at][0].numel()
                for i, e in ((at, row[:weight]), (at + 1, row[weight:])):
                    drawn[sample].append(mean[i][seed] + var[i][seed].sqrt() * e.view(mean[i][seed].shape))
            rest = rest[2 * count :]
        for sample, params in enumerate(drawn):
            expected = network([p[None] for p in params], x[seed])[0]
            torch.testing.assert_close(outputs[seed, sample], expected)
    shared = mean_field.weight_samples(network, mean, var, x[0], [torch.zeros(2, 2, s) for _, s in sampler.shapes])
    torch.testing.assert_close(shared[:, 0], network(mean, x[0]))


def objective(q, p, num_points, x, y, sample, noise):
    """The bound written plainly, to be differentiated by differences."""
    logits = sample(q.mean, [v.exp() for v in q.log_var], x, noise)
    log_prob = D.Categorical(logits=logits).log_prob(y[:, None]).mean((1, 2))
    return -log_prob + mean_field.kl(q, p) / num_points


@pytest.mark.parametrize("name", ["local", "shared", "weight"])
def test_gradient_of_the_bound_is_that_of_finite_differences(name):
    q, p, draws = random_network(8), random_network(9), torch.Generator().manual_seed(10)
    x = torch.randn((2, 4, 5), generator=draws, dtype=torch.float64)
    y = torch.randint(0, 3, (2, 4), generator=draws)
    if name == "weight":
        sample, shapes = drawing_weights(WIDTHS, 3)
    else:
        sample = mean_field.local_samples
        shapes = mean_field.local_noise_shapes(WIDTHS, 3, 4 if name == "local" else 1)
    noise = [torch.randn((2, *s), generator=draws, dtype=torch.float64) for s in shapes]

    def expected_nll(mean, var):
        return -D.Categorical(logits=sample(mean, var, x, noise)).log_prob(y[:, None]).mean((1, 2))

    out = MeanField(*(tuple(torch.empty_like(t) for t in group) for group in q))
    mean_field.nelbo_gradient(q, p, 50.0, [expected_nll], out)
    for _ in range(5):
        direction = [tuple(torch.randn(t.shape, generator=draws, dtype=t.dtype) for t in group) for group in q]
        ends = []
        for h in (1e-6, -1e-6):
            moved = MeanField(
                *(tuple(t + h * d for t, d in zip(*pair, strict=True)) for pair in zip(q, direction, strict=True))
            )
            ends.append(objective(moved, p, 50.0, x, y, sample, noise))
        expected = (ends[0] - ends[1]) / 2e-6
        found = sum(
            (g * d).flatten(1).sum(1) for pair in zip(out, direction, strict=True) for g, d in zip(*pair, strict=True)
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def fit_regression(x, y, noise_var, p, steps=1000):
    """The mean-field optimum of linear regression, by gradient descent on the bound with its exact likelihood."""
    q = MeanField(*(tuple(t.clone() for t in group) for group in p))
    out = MeanField(*(tuple(torch.empty_like(t) for t in group) for group in q))

    def expected_nll(mean, var):
        m, v = mean_field.moments(x, *mean, *var)
        return 0.5 * ((y - m).square() + v).sum((1, 2)) / noise_var / x.shape[1]

    for _ in range(steps):
        mean_field.nelbo_gradient(q, p, x.shape[1], [expected_nll], out)
        for group, gradient, step_size in zip(q, out, (0.1, 2.0), strict=True):
            for t, g in zip(group, gradient, strict=True):
                t.sub_(step_size * g)
    return q


def regression_data(design):
    """Features whose columns, with the constant one of the bias, are orthogonal or not."""
    draws = torch.Generator().manual_seed(11)
    raw = torch.randn((24, 3), generator=draws, dtype=torch.float64)
    if design == "orthogonal":
        ones = torch.ones((24, 1), dtype=torch.float64)
        raw = torch.linalg.qr(torch.cat([ones, raw], 1)).Q[:, 1:] * torch.tensor([3.0, 4.0, 5.0])
    else:
        raw[:, 1] = 0.9 * raw[:, 0] + 0.3 * raw[:, 1]
    y = raw @ torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64) + 0.7
    return raw, y + 0.5 * torch.randn(24, generator=draws, dtype=torch.float64)


def exact_posterior(x, y, noise_var, prior_var=1.0):
    phi = torch.cat([x, torch.ones((len(x), 1), dtype=x.dtype)], 1)
    unit = torch.eye(4, dtype=x.dtype)
    prior = Gaussian(torch.zeros(4, dtype=x.dtype), prior_var * unit)
    return condition_on(prior, y, phi, noise_var * torch.eye(len(x), dtype=x.dtype))[0]


def unit_prior():
    zeros = (torch.zeros(1, 3, 1, dtype=torch.float64), torch.zeros(1, 1, 1, dtype=torch.float64))
    return MeanField(zeros, tuple(z.clone() for z in zeros))


def flat(group):
    return torch.cat([t.flatten() for t in group])


def test_mean_field_optimum_of_orthogonal_regression_is_the_exact_posterior():
    x, y = regression_data("orthogonal")
    q = fit_regression(x[None], y[None, :, None], 0.25, unit_prior())
    exact = exact_posterior(x, y, 0.25)
    torch.testing.assert_close(flat(q.mean), exact.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(flat(q.log_var).exp(), exact.cov.diagonal(), rtol=1e-6, atol=1e-8)


def test_two_steps_of_orthogonal_regression_are_one_over_all_points():
    x, y = regression_data("orthogonal")
    both = torch.cat([x, x]), torch.cat([y, 0.5 - y])
    q = unit_prior()
    for part in (slice(0, 24), slice(24, 48)):
        q = fit_regression(both[0][None, part], both[1][None, part, None], 0.25, q)
    exact = exact_posterior(*both, 0.25)
    torch.testing.assert_close(flat(q.mean), exact.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(flat(q.log_var).exp(), exact.cov.diagonal(), rtol=1e-6, atol=1e-8)


def test_mean_field_keeps_the_mean_and_the_diagonal_precision_of_correlated_regression():
    x, y = regression_data("correlated")
    q = fit_regression(x[None], y[None, :, None], 0.25, unit_prior(), steps=4000)
    exact = exact_posterior(x, y, 0.25)
    torch.testing.assert_close(flat(q.mean), exact.mean, rtol=1e-5, atol=1e-7)
    precision = flat(q.log_var).neg().exp()
    torch.testing.assert_close(precision[:3], 1 + x.square().sum(0) / 0.25, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(precision, torch.linalg.inv(exact.cov).diagonal(), rtol=1e-6, atol=0.0)
    assert (1 / precision < exact.cov.diagonal()).all()
