"""The steps of Section 5: only the corrected formulas agree with simulation and with integration."""

import numpy as np
import torch
from scipy import optimize

from paper_lib.analysis import filter_derivation as fd
from paper_lib.rng import generator


def test_simulated_transitions_have_the_corrected_variance():
    table = fd.transitions()
    assert ((table.corrected - table.simulated).abs() < 4 * table.se).all()
    assert ((table.printed - table.simulated).abs() > 20 * table.se).all()


def test_optimum_by_slope_solves_the_equation_of_each_weight():
    hessian = torch.tensor([[2.0, 1.0], [1.0, 4.0]]).double()
    theta = torch.tensor([[3.0, -8.0], [1.0, 2.0]]).double()
    torch.testing.assert_close(
        fd.optimum_by_slope(hessian, theta), torch.tensor([[4.0, -0.75], [-1.0, -0.25]]).double()
    )


def test_optimum_by_slope_is_where_an_optimiser_of_each_weight_ends():
    g = generator(0, "quadratic")
    root, theta = (torch.randn(n, 5, generator=g, dtype=torch.float64) for n in (5, 1))
    hessian = root @ root.mT + 0.1 * torch.eye(5, dtype=torch.float64)

    def loss(value, i):
        moved = theta[0].clone()
        moved[i] = value
        return (0.5 * moved @ hessian @ moved).item()

    found = [optimize.minimize_scalar(loss, args=(i,), tol=1e-12).x for i in range(5)]
    np.testing.assert_allclose(fd.optimum_by_slope(hessian, theta)[0], found, atol=1e-6)


def test_only_the_corrected_variance_without_data_stays_with_the_simulation():
    table = fd.variance_without_data()
    np.testing.assert_allclose(table.corrected, table.simulated, rtol=0.1)
    assert table.printed.iloc[-1] > 100 * table.limit.iloc[-1] > 90 * table.corrected.iloc[-1]


def test_lemma_1_is_bayes_rule_of_the_linearised_network():
    routes = dict(tuple(fd.lemma_1().groupby("route")))
    lemma, exact = routes["lemma"], routes["linearised, by integration"]
    for name in ("mean", "sd"):
        np.testing.assert_allclose(lemma[name], exact[name], atol=1e-6)
    off = routes["printed target"]["mean"].to_numpy() - exact["mean"].to_numpy()
    assert np.abs(off).max() > 5 * exact.sd.max() and np.abs(off).mean() > 1
