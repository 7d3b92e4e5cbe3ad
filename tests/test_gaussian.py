"""Gaussian steps against scipy, information form, Monte Carlo and quadrature, to dimension 500 and condition 1e12."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from paper_lib.inference.gaussian import (
    Gaussian,
    Prototypes,
    cholesky,
    class_sums,
    condition_dirichlet,
    condition_on,
    condition_prototypes,
    dirichlet_log_predictive,
    log_density,
    predict,
    product,
    prototype_log_density,
    sample,
)
from paper_lib.rng import generator

F64 = torch.float64


def normal(g, *shape):
    return torch.randn(*shape, generator=g, dtype=F64)


def random_cov(g, dim, condition=10.0):
    """A rotated covariance with eigenvalues spread evenly in the logarithm from 1 down to 1 / condition."""
    rotation = torch.linalg.qr(normal(g, dim, dim)).Q
    scaled = rotation * torch.logspace(0, -math.log10(condition), dim, dtype=F64).sqrt()
    cov = scaled @ scaled.mT
    return 0.5 * (cov + cov.mT)


def assert_covariance(cov):
    assert torch.equal(cov, cov.mT)
    np.linalg.cholesky(cov.numpy())


SIZES = st.one_of(st.integers(1, 12), st.sampled_from([50, 200, 500]))


@settings(deadline=None, max_examples=25, derandomize=True)
@given(dim=SIZES, num_y=st.integers(1, 30), log_condition=st.integers(0, 12), log_noise=st.integers(-12, 2))
def test_steps_keep_symmetry_and_definiteness(dim, num_y, log_condition, log_noise):
    g = generator(0, "keeps", dim, num_y, log_condition, log_noise + 12)
    prior = Gaussian(normal(g, dim), random_cov(g, dim, 10.0**log_condition))
    matrix = normal(g, num_y, dim) / math.sqrt(dim * num_y)
    noise_cov = 10.0**log_noise * random_cov(g, num_y)
    posterior, log_likelihood = condition_on(prior, normal(g, num_y), matrix, noise_cov)
    assert_covariance(posterior.cov)
    assert torch.isfinite(log_likelihood) and torch.isfinite(posterior.mean).all()
    assert posterior.cov.trace() <= prior.cov.trace() * (1 + 1e-12)  # data never make a Gaussian less certain
    assert_covariance(predict(posterior, 0.9 * torch.eye(dim, dtype=F64), 1e-12 * torch.eye(dim, dtype=F64)).cov)


@settings(deadline=None, max_examples=12, derandomize=True)
@given(dim=st.sampled_from([1, 2, 7, 60, 500]), num_y=st.sampled_from([1, 3, 40]))
def test_condition_on_equals_the_information_form(dim, num_y):
    g = generator(1, "information", dim, num_y)
    prior = Gaussian(normal(g, dim), random_cov(g, dim))
    matrix, noise_cov, y = normal(g, num_y, dim), random_cov(g, num_y), normal(g, num_y)
    posterior, log_likelihood = condition_on(prior, y, matrix, noise_cov)
    m, p, h, r = (v.numpy() for v in (*prior, matrix, noise_cov))
    precision = np.linalg.inv(p) + h.T @ np.linalg.solve(r, h)
    mean = np.linalg.solve(precision, np.linalg.solve(p, m) + h.T @ np.linalg.solve(r, y.numpy()))
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-10)
    np.testing.assert_allclose(posterior.cov, np.linalg.inv(precision), atol=1e-10)
    evidence = stats.multivariate_normal(h @ m, h @ p @ h.T + r).logpdf(y.numpy())
    assert log_likelihood.item() == pytest.approx(evidence, rel=1e-9)


def test_one_observation_at_a_time_equals_all_at_once_when_ill_conditioned():
    g = generator(2, "sequence")
    prior = Gaussian(normal(g, 6), random_cov(g, 6, 1e8))
    matrix, y = normal(g, 9, 6), normal(g, 9)
    batch, batch_evidence = condition_on(prior, y, matrix, 1e-3 * torch.eye(9, dtype=F64))
    state, evidence = prior, 0.0
    for row, value in zip(matrix, y, strict=True):
        state, one = condition_on(state, value[None], row[None], torch.full((1, 1), 1e-3, dtype=F64))
        evidence += one
    torch.testing.assert_close(state.mean, batch.mean, atol=1e-10, rtol=0)
    torch.testing.assert_close(state.cov, batch.cov, atol=1e-10, rtol=0)
    assert evidence.item() == pytest.approx(batch_evidence.item(), rel=1e-10)


def test_leading_axes_broadcast():
    g = generator(3, "batch")
    prior = Gaussian(normal(g, 4, 1, 3), torch.stack([random_cov(g, 3) for _ in range(4)])[:, None])
    matrix, y, noise_cov = normal(g, 5, 2, 3), normal(g, 4, 5, 2), random_cov(g, 2)
    posterior, log_likelihood = condition_on(prior, y, matrix, noise_cov)
    assert posterior.cov.shape == (4, 5, 3, 3) and log_likelihood.shape == (4, 5)
    one, one_likelihood = condition_on(Gaussian(prior.mean[2, 0], prior.cov[2, 0]), y[2, 3], matrix[3], noise_cov)
    torch.testing.assert_close(posterior.mean[2, 3], one.mean)
    torch.testing.assert_close(posterior.cov[2, 3], one.cov)
    torch.testing.assert_close(log_likelihood[2, 3], one_likelihood)


def test_predict_and_sample_agree_with_draws():
    g = generator(4, "draws")
    prior = Gaussian(normal(g, 3), random_cov(g, 3))
    matrix, noise_cov = normal(g, 2, 3), random_cov(g, 2)
    pushed = predict(prior, matrix, noise_cov)
    noise = sample(Gaussian(torch.zeros(2, dtype=F64), noise_cov), 200_000, g)
    draws = sample(prior, 200_000, g) @ matrix.mT + noise
    standard_error = (pushed.cov.diagonal() / 200_000).sqrt()
    assert ((draws.mean(0) - pushed.mean).abs() < 5 * standard_error).all()
    torch.testing.assert_close(torch.cov(draws.mT), pushed.cov, atol=0.02 * pushed.cov.max().item(), rtol=0)


def test_predict_marginalises_what_condition_on_observes():
    """The chain rule: p(y) p(w | y) = p(w) p(y | w) at any point."""
    g = generator(5, "chain rule")
    prior = Gaussian(normal(g, 4), random_cov(g, 4, 1e3))
    matrix, noise_cov, y, w = normal(g, 2, 4), random_cov(g, 2), normal(g, 2), normal(g, 4)
    posterior, log_likelihood = condition_on(prior, y, matrix, noise_cov)
    torch.testing.assert_close(log_likelihood, log_density(predict(prior, matrix, noise_cov), y))
    right = log_density(prior, w) + log_density(Gaussian(matrix @ w, noise_cov), y)
    torch.testing.assert_close(log_likelihood + log_density(posterior, w), right)


def test_log_density_equals_scipy():
    g = generator(6, "density")
    gaussian, x = Gaussian(normal(g, 5), random_cov(g, 5, 1e6)), normal(g, 7, 5)
    expected = stats.multivariate_normal(gaussian.mean.numpy(), gaussian.cov.numpy()).logpdf(x.numpy())
    np.testing.assert_allclose(log_density(gaussian, x), expected, rtol=1e-8)


def test_product_against_quadrature():
    left, right = (
        Gaussian(torch.tensor([m], dtype=F64), torch.tensor([[v]], dtype=F64)) for m, v in [(0.3, 0.5), (-1, 2)]
    )
    result, log_normaliser = product(left, right)

    def integrand(x, power):
        at = [stats.norm(g.mean.item(), g.cov.item() ** 0.5).pdf(x) for g in (left, right)]
        return x**power * at[0] * at[1]

    mass, first, second = (integrate.quad(integrand, -20, 20, args=(k,), epsabs=1e-13)[0] for k in range(3))
    assert log_normaliser.exp().item() == pytest.approx(mass, rel=1e-9)
    assert result.mean.item() == pytest.approx(first / mass, rel=1e-9)
    assert result.cov.item() == pytest.approx(second / mass - (first / mass) ** 2, rel=1e-9)


def test_gradients_pass_through_condition_on():
    g = generator(7, "grad")
    cov, matrix, y = random_cov(g, 3), normal(g, 2, 3), normal(g, 2)

    def evidence(mean, observed):
        posterior, log_likelihood = condition_on(Gaussian(mean, cov), observed, matrix, torch.eye(2, dtype=F64))
        return posterior.mean, log_likelihood

    assert torch.autograd.gradcheck(evidence, (normal(g, 3).requires_grad_(), y.requires_grad_()))


EYE = torch.eye(2, dtype=F64)
ZERO = torch.zeros(2, dtype=F64)
ROW = torch.ones(1, 2, dtype=F64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: condition_on(Gaussian(ZERO, torch.ones(2, 2, dtype=F64)), ZERO[:1], ROW),
            "prior.cov.*eigenvalues from",
        ),
        (lambda: condition_on(Gaussian(ZERO, -EYE), ZERO[:1], ROW), "prior.cov.*not positive definite"),
        (
            lambda: log_density(Gaussian(ZERO, EYE + torch.tensor([[0, 1.0], [0, 0]])), ZERO),
            "gaussian.cov.*not symmetric",
        ),
        (lambda: log_density(Gaussian(ZERO, EYE * math.nan), ZERO), "gaussian.cov has entries that are not finite"),
        (lambda: predict(Gaussian(ZERO + math.inf, EYE), EYE, EYE), "prior.mean has entries that are not finite"),
        (lambda: predict(Gaussian(torch.zeros(3, dtype=F64), EYE), EYE, EYE), r"prior.cov has shape \(2, 2\).*3, 3"),
        (
            lambda: predict(Gaussian(ZERO, EYE), torch.ones(1, 3, dtype=F64), EYE),
            r"matrix has shape \(1, 3\).*dim_out, 2",
        ),
        (lambda: predict(Gaussian(ZERO, EYE), ROW, EYE), r"noise_cov has shape \(2, 2\); expected \(..., 1, 1\)"),
        (lambda: condition_on(Gaussian(ZERO, EYE), ZERO, ROW), r"y of shape \(2,\) does not fit"),
        (lambda: condition_on(Gaussian(ZERO, EYE), ZERO[:0], ROW[:0]), "y is empty"),
        (lambda: condition_on(Gaussian(ZERO[:0], EYE[:0, :0]), ZERO, ROW), "dim >= 1"),
        (lambda: condition_on(Gaussian(ZERO, EYE), ZERO, EYE, 0 * EYE), "noise_cov.*not positive definite"),
        (lambda: product(Gaussian(ZERO, EYE), Gaussian(ZERO, torch.ones(2, 2, dtype=F64))), "noise_cov.*eigenvalues"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dim", [2, 30, 500])
def test_rank_deficiency_is_found_whatever_the_units(dim):
    g = generator(8, "rank", dim)
    thin = normal(g, dim, dim - 1)
    units = torch.logspace(-6, 6, dim, dtype=F64)
    with pytest.raises(ValueError, match="not positive definite"):
        cholesky("cov", units[:, None] * (thin @ thin.mT) * units)
    cholesky("cov", units[:, None] * random_cov(g, dim) * units)  # regular, though its condition number is 1e25


def prototypes_and_labels(dtype=F64, seeds=3, n=40, classes=4, dim=5):
    g = generator(9, "prototypes")
    prototypes = Prototypes(normal(g, seeds, classes).exp().to(dtype), normal(g, seeds, classes, dim).to(dtype))
    labels = torch.randint(classes, (seeds, n), generator=g)
    z = (normal(g, seeds, n, dim) * 0.3 + labels[..., None]).to(dtype)
    return prototypes, z, labels, torch.nn.functional.one_hot(labels, classes).to(dtype)


def test_prototypes_equal_full_gaussian_conditioning():
    prototypes, z, labels, one_hot = prototypes_and_labels()
    updated = condition_prototypes(prototypes, *class_sums(z, one_hot), 0.05)
    unit = torch.eye(5, dtype=F64)
    for seed in range(3):
        for c in range(4):
            mine = z[seed, labels[seed] == c]
            precision = prototypes.precision[seed, c]
            state = Gaussian(prototypes.precision_mean[seed, c] / precision, unit / precision)
            for point in mine:
                state, _ = condition_on(state, point, unit, 0.05 * unit)
            torch.testing.assert_close(updated.precision_mean[seed, c] / updated.precision[seed, c], state.mean)
            torch.testing.assert_close(unit / updated.precision[seed, c], state.cov)


@pytest.mark.parametrize("spread", [1.0, 1e3])
@pytest.mark.parametrize("norm", [100.0, 300.0, 1000.0])
def test_prototype_densities_in_float32_are_those_in_float64_far_from_the_origin(norm, spread):
    """Whether all classes are far out together or each for itself."""
    g = generator(12, "far")
    directions = torch.nn.functional.normalize(torch.randn(11, 250, generator=g, dtype=torch.float64))
    means = norm * directions[:1] + min(spread, norm) * directions[1:]
    z = (means[:, None] + math.sqrt(0.05) * torch.randn(10, 20, 250, generator=g, dtype=torch.float64)).flatten(0, 1)
    precision = torch.full((10,), 1e3, dtype=torch.float64)
    z, precision_mean, precision = z.float(), (precision[:, None] * means).float(), precision.float()
    found = prototype_log_density(Prototypes(precision, precision_mean), z, 0.05)
    variance, centres = 0.05 + 1 / precision.double(), precision_mean.double() / precision.double()[:, None]
    expected = torch.distributions.Normal(centres, variance.sqrt()[:, None]).log_prob(z.double()[:, None]).sum(-1)
    own = torch.arange(200), torch.arange(10).repeat_interleave(20)
    torch.testing.assert_close(found[own].double(), expected[own], atol=2e-3, rtol=0)
    torch.testing.assert_close(found.double().log_softmax(-1), expected.log_softmax(-1), atol=2e-3, rtol=1e-5)


def test_prototype_densities_have_a_gradient_at_the_prototype():
    z = torch.zeros(1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        prototype_log_density(Prototypes(torch.ones(2), torch.zeros(2, 3)), z, 1.0).sum(), z
    )
    assert torch.equal(gradient, torch.zeros(1, 3))


def test_prototypes_do_not_depend_on_order_or_batches():
    prototypes, z, _, one_hot = prototypes_and_labels()
    batch = condition_prototypes(prototypes, *class_sums(z, one_hot), 0.05)
    order = torch.randperm(40, generator=generator(10, "order", 0, 0))
    state = prototypes
    for part in order.split(7):
        state = condition_prototypes(state, *class_sums(z[:, part], one_hot[:, part]), 0.05)
    torch.testing.assert_close(state, batch, atol=1e-10, rtol=1e-12)
    nothing = condition_prototypes(prototypes, *class_sums(z[:, :0], one_hot[:, :0]), 0.05)
    torch.testing.assert_close(nothing, prototypes, atol=0, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-11), (torch.float32, 1e-3)])
def test_prototype_density_equals_the_predictive_of_the_full_gaussian(dtype, tolerance):
    prototypes, z, _, _ = prototypes_and_labels(dtype)
    result = prototype_log_density(prototypes, z, 0.05)
    assert result.shape == (3, 40, 4) and result.dtype == dtype
    precision, shift = prototypes.precision.double(), prototypes.precision_mean.double()
    unit = torch.eye(5, dtype=F64)
    belief = Gaussian(shift / precision[..., None], unit / precision[..., None, None])
    predictive = predict(belief, unit, 0.05 * unit)
    expected = log_density(Gaussian(predictive.mean[:, None], predictive.cov[:, None]), z[:, :, None].double())
    torch.testing.assert_close(result.double(), expected, atol=tolerance, rtol=tolerance)


def test_certain_prototypes_are_a_linear_softmax_classifier():
    prototypes, z, _, _ = prototypes_and_labels()
    mean = prototypes.precision_mean
    certain = Prototypes(torch.full_like(prototypes.precision, 1e12), 1e12 * mean)
    weight, bias = mean / 0.05, -mean.square().sum(-1) / 0.1
    linear = torch.einsum("rnd,rcd->rnc", z, weight) + bias[:, None]
    torch.testing.assert_close(
        prototype_log_density(certain, z, 0.05).softmax(-1), linear.softmax(-1), atol=1e-7, rtol=0
    )


def test_a_tensor_of_noise_has_a_value_a_seed():
    prototypes, z, _, one_hot = prototypes_and_labels()
    noise_var = torch.tensor([0.05, 0.2, 1.0], dtype=F64)
    together = condition_prototypes(prototypes, *class_sums(z, one_hot), noise_var[:, None])
    density = prototype_log_density(together, z, noise_var[:, None])
    for seed, value in enumerate(noise_var.tolist()):
        one = Prototypes(*(leaf[seed] for leaf in prototypes))
        alone = condition_prototypes(one, *class_sums(z[seed], one_hot[seed]), value)
        torch.testing.assert_close(Prototypes(*(leaf[seed] for leaf in together)), alone)
        torch.testing.assert_close(density[seed], prototype_log_density(alone, z[seed], value))


def test_one_posterior_a_batch_slot_is_the_same_functions_with_one_more_axis():
    prototypes, z, _, one_hot = prototypes_and_labels()
    slots = Prototypes(*(leaf[:, None].expand(-1, 40, *leaf.shape[1:]) for leaf in prototypes))
    torch.testing.assert_close(
        prototype_log_density(slots, z[:, :, None], 0.05)[:, :, 0], prototype_log_density(prototypes, z, 0.05)
    )
    updated = condition_prototypes(slots, *class_sums(z[:, :, None], one_hot[:, :, None]), 0.05)
    shared = condition_prototypes(prototypes, *class_sums(z[:, 6:7], one_hot[:, 6:7]), 0.05)
    torch.testing.assert_close(Prototypes(*(leaf[:, 6] for leaf in updated)), shared)


def test_dirichlet_predictive_equals_polya_urn():
    """Draw a ball, return it with another of its colour: after the draws, the next follows the predictive."""
    rng = np.random.default_rng(0)
    start, num = np.array([0.78, 2.0, 1.0]), 60_000
    weights, drawn = np.tile(start, (num, 1)), []
    for _ in range(3):
        colour = (rng.random((num, 1)) * weights.sum(1, keepdims=True) > weights.cumsum(1)).sum(1)
        drawn.append(colour)
        weights[np.arange(num), colour] += 1
    seen = (drawn[0] == 0) & (drawn[1] == 2)
    share = np.bincount(drawn[2][seen], minlength=3) / seen.sum()
    posterior = condition_dirichlet(torch.tensor(start), torch.tensor([1.0, 0.0, 1.0]))
    expected = dirichlet_log_predictive(posterior).exp().numpy()
    assert (np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / seen.sum())).all()
