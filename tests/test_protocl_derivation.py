"""The derivation's checks agree with the closed forms, and would notice if they did not."""

import numpy as np
import pytest
import torch

from paper_lib.analysis.protocl_derivation import Config, joint_log_density, run
from paper_lib.inference.gaussian import (
    Prototypes,
    condition_dirichlet,
    condition_prototypes,
    dirichlet_log_predictive,
    prototype_log_density,
)
from paper_lib.rng import generator


@pytest.fixture(scope="module")
def result():
    return run(Config(num_draws=40_000))


@pytest.mark.parametrize("check", ["urn", "integral"])
def test_monte_carlo_agrees_with_the_closed_form(result, check):
    table = getattr(result, check)
    assert (np.abs(table.monte_carlo - table.closed_form) < 4 * table.se).all()
    assert (table.se < 0.05 * np.abs(table.closed_form)).all()  # sharp enough to refuse a wrong one


def test_batches_end_where_one_pass_ends(result):
    assert (result.updates.difference < 1e-12).all()


def test_swap_is_exact_for_one_point_alone(result):
    first, rest = result.swap.iloc[0], result.swap.iloc[1:]
    assert first.exact == pytest.approx(first["product"], rel=1e-12)
    assert (rest.exact > rest["product"] + 1).all()


def test_chain_rule_gives_the_joint_density():
    g = generator(0, "joint")
    z = torch.randn(6, 3, generator=g, dtype=torch.float64)
    state, chain = Prototypes(torch.tensor([0.7]).double(), torch.zeros(1, 3).double()), 0.0
    for point in z:
        chain += prototype_log_density(state, point[None], 0.05).item()
        state = condition_prototypes(state, torch.ones(1).double(), point[None], 0.05)
    precision = torch.tensor([0.7]).double().item()
    assert chain == pytest.approx(joint_log_density(z, precision, 0.05), rel=1e-9)


def test_labels_of_two_classes_share_their_probabilities():
    """M4: already for one point of each of two classes the product over labels is not their joint probability."""
    alpha = torch.tensor([0.5, 1.0, 2.0]).double()
    first = dirichlet_log_predictive(alpha)
    second = dirichlet_log_predictive(condition_dirichlet(alpha, torch.tensor([1.0, 0.0, 0.0]).double()))
    joint = (first[0] + second[1]).exp().item()
    drawn = np.random.default_rng(0).dirichlet(alpha.numpy(), 200_000)
    assert joint == pytest.approx(0.5 * 1.0 / (3.5 * 4.5))
    assert joint == pytest.approx((drawn[:, 0] * drawn[:, 1]).mean(), rel=0.02)
    assert (first[0] + first[1]).exp().item() > 1.2 * joint


@pytest.mark.parametrize("bad", [{"num_classes": 0}, {"dims": ()}, {"noise_var": 0.0}])
def test_settings_without_meaning_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Config(**bad)


def test_too_few_urns_are_named():
    with pytest.raises(ValueError, match="num_urns=2 are too few"):
        run(Config(num_urns=2, num_classes=50))
