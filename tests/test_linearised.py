"""Linearised networks against Jacobians formed in float64, which the module never forms."""

import pytest
import torch
from torch.func import jacrev

from paper_lib.inference import linearised
from paper_lib.networks import MLP, CifarNet


def drawn(network, seed=0, num_seeds=1):
    params = network.init(range(num_seeds), "cpu", torch.float64)
    draws = torch.Generator().manual_seed(seed)
    var = tuple(torch.rand(p.shape, generator=draws, dtype=p.dtype) + 0.1 for p in params)
    return params, var, draws


def jacobian(network, params, x, function=lambda f: f):
    """``(n, k, parameter)`` of a function of one seed's outputs."""
    parts = jacrev(lambda p: function(network(p, x)[0]))(params)
    return torch.cat([j.flatten(2) for j in parts], dim=-1)


def flat(tree):
    return torch.cat([p.flatten() for p in tree])


MLPS = [MLP((5,), (), 4), MLP((5,), (7,), 4), MLP((5,), (7, 6), 4), MLP((5,), (7, 6, 8), 4)]


@pytest.mark.parametrize("network", MLPS, ids=lambda n: str(n.widths))
def test_output_variances_are_the_diagonal_of_the_jacobians_products(network):
    params, var, draws = drawn(network, num_seeds=2)
    x = torch.randn(2, 9, 5, generator=draws, dtype=torch.float64)
    mean, variance = linearised.output_moments(params, var, x)
    some = torch.stack([torch.randperm(4, generator=draws)[:2] for _ in range(9)])
    mean_of_some, variance_of_some = linearised.output_moments(params, var, x, some)
    for seed in range(2):
        one = tuple(p[seed : seed + 1] for p in params)
        expected = (jacobian(network, one, x[seed]).square() * flat(v[seed] for v in var)).sum(-1)
        torch.testing.assert_close(variance[seed], expected)
        torch.testing.assert_close(mean[seed], network(one, x[seed])[0])
        torch.testing.assert_close(variance_of_some[seed], expected.gather(1, some))
        torch.testing.assert_close(mean_of_some[seed], mean[seed].gather(1, some))


@pytest.mark.parametrize("network", MLPS, ids=lambda n: str(n.widths))
def test_gradients_of_the_moments_are_those_of_finite_differences(network):
    params, var, draws = drawn(network)
    x = torch.randn(1, 3, 5, generator=draws, dtype=torch.float64)
    some = torch.tensor([[0, 3], [1, 0], [2, 3]])
    leaves = [p.clone().requires_grad_() for p in (*params, *var)]
    half = len(params)
    for units in (None, some):
        assert torch.autograd.gradcheck(
            lambda *p, units=units: linearised.output_moments(p[:half], p[half:], x, units), leaves
        )


def test_one_layer_is_exactly_linear():
    network = MLP((5,), (), 4)
    params, var, draws = drawn(network)
    x = torch.randn(1, 6, 5, generator=draws, dtype=torch.float64)
    mean, variance = linearised.output_moments(params, var, x)
    w, b = (
        p + v.sqrt() * torch.randn((100_000, *p.shape[1:]), generator=draws, dtype=p.dtype)
        for p, v in zip(params, var, strict=True)
    )
    f = torch.baddbmm(b, x.expand(100_000, -1, -1), w)
    torch.testing.assert_close(f.mean(0), mean[0], atol=0.03, rtol=0.0)
    torch.testing.assert_close(f.var(0), variance[0], atol=0.0, rtol=0.03)


def test_roots_of_the_softmax_hessian():
    f = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    roots = linearised.softmax_roots(f, [1, 2, 4])
    hessian = torch.einsum("kni,knj->nij", roots, roots)
    for point, found in zip(f, hessian, strict=True):
        expected = torch.autograd.functional.hessian(lambda v: v[[1, 2, 4]].logsumexp(0), point)
        torch.testing.assert_close(found, expected)


NETWORKS = [*((n, 6) for n in MLPS), (CifarNet(3), 3)]


@pytest.mark.parametrize("floats", [linearised.FLOATS_AT_ONCE, 1], ids=["all rows", "row by row"])
@pytest.mark.parametrize(("network", "num_points"), NETWORKS, ids=lambda n: type(n).__name__)
def test_kernel_and_curvature_are_products_of_the_jacobian(network, num_points, floats, monkeypatch):
    monkeypatch.setattr(linearised, "FLOATS_AT_ONCE", floats)
    monkeypatch.setattr(linearised, "VECTORS_AT_ONCE", 2)
    monkeypatch.setattr(linearised, "IMAGES_AT_ONCE", 2)
    params, var, draws = drawn(network)
    shape = getattr(network, "input_shape", (3, 32, 32))
    x = torch.rand(num_points, *shape, generator=draws, dtype=torch.float64)

    def gradients_of_probabilities(f):
        p = f.softmax(-1)
        return (torch.diag_embed(p) - p[..., None] * p[:, None]).transpose(0, 1)

    found = linearised.kernel(network, params, var, x, gradients_of_probabilities)
    g = jacobian(network, params, x, lambda f: f.softmax(-1))
    torch.testing.assert_close(found, torch.einsum("nkp,p,mkp->knm", g, flat(var), g))

    for units in (None, [0, 2]):
        curvature = linearised.diagonal_ggn(network, params, x, units)
        j = jacobian(network, params, x)[:, slice(None) if units is None else units]
        p = network(params, x)[0][:, slice(None) if units is None else units].softmax(-1)
        hessian = torch.diag_embed(p) - p[..., None] * p[:, None]
        torch.testing.assert_close(flat(curvature), torch.einsum("nkp,nkl,nlp->p", j, hessian, j))


def test_the_linear_softmax_models_curvature_in_closed_form():
    network = MLP((5,), (), 3)
    params, _, draws = drawn(network, num_seeds=2)
    x = torch.randn(20, 5, generator=draws, dtype=torch.float64)
    p = network(params, x).softmax(-1)
    weight, bias = linearised.diagonal_ggn(network, params, x)
    torch.testing.assert_close(weight, torch.einsum("ni,sno->sio", x.square(), p * (1 - p)))
    torch.testing.assert_close(bias[:, 0], (p * (1 - p)).sum(1))


def test_inputs_of_the_last_layer():
    network = CifarNet(3)
    params, _, draws = drawn(network, num_seeds=2)
    x = torch.rand(4, 3, 32, 32, generator=draws, dtype=torch.float64)
    masks = [m.double()[0] for m in network.draw_masks([draws, draws], 1, 4)]
    features = network.features(params, x, masks)
    torch.testing.assert_close(torch.baddbmm(params[-1], features, params[-2]), network(params, x, masks))
