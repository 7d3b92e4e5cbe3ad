"""The toy sets against their published description, and the best possible accuracy by integration on a grid."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from paper_lib.data import toy


def grid_accuracy(blobs: toy.Blobs, low: float, high: float, step: float) -> float:
    """The integral of the larger joint density of class and point, by the midpoint rule."""
    axis = np.arange(low, high, step) + step / 2
    joint = 0.0
    for task in range(5):
        along = [
            [norm.pdf(axis, float(blobs.centre[task, c, d]), float(blobs.sd[task, c, d])) for d in range(2)]
            for c in range(2)
        ]
        joint = joint + 0.1 * np.stack([np.outer(*pair) for pair in along])
    assert joint.sum() * step**2 == pytest.approx(1.0, abs=1e-6)
    return float(joint.max(0).sum() * step**2)


@pytest.mark.parametrize("blobs, low, high", [(toy.pan(), -1.5, 3.5), (toy.gaussians(), -3.5, 3.5)])
def test_best_accuracy_agrees_with_integration(blobs, low, high):
    assert toy.bayes_accuracy(blobs) == pytest.approx(grid_accuracy(blobs, low, high, 0.01), abs=2e-4)


def test_best_accuracies_known_beforehand():
    assert toy.bayes_accuracy(toy.pan(), num_draws=100_000) == pytest.approx(0.9976, abs=1e-4)
    assert toy.bayes_accuracy(toy.gaussians()) == pytest.approx(1.0, abs=1e-4)


def test_of_two_blobs_the_best_accuracy_is_the_normal_distribution_function():
    # Unit variance, centres two apart: the boundary is half-way and each side errs with probability Phi(-1).
    blobs = toy.Blobs(torch.tensor([[[0.0, 0.0], [2.0, 0.0]]]).double(), torch.ones(1, 2, 2).double())
    assert toy.bayes_accuracy(blobs, num_draws=200_000) == pytest.approx(norm.cdf(1.0), abs=1e-3)


def test_the_gaussians_lie_on_a_circle_in_turn():
    centre = toy.gaussians().centre.view(10, 2)
    np.testing.assert_allclose(centre.norm(dim=1), 2.0)
    np.testing.assert_allclose(centre[0], [2.0, 0.0])
    neighbours = (centre * centre.roll(-1, 0)).sum(1) / 4  # cosine of the angle to the next
    np.testing.assert_allclose(neighbours, np.cos(np.radians(36.0)))
    np.testing.assert_allclose(centre[5], [-2.0, 0.0], atol=1e-12)


def test_pan_is_stored_task_by_task():
    blobs = toy.pan()
    assert blobs.centre[1].tolist() == [[0.6, 0.9], [0.7, 0.45]]
    assert blobs.sd[4].tolist() == [[0.05, 0.16], [0.05, 0.22]]


@pytest.mark.parametrize("blobs", [toy.pan(), toy.gaussians()])
def test_points_have_the_moments_of_their_blob(blobs):
    x, blob = toy.sample(blobs, 4000, seed=1, split="train")
    assert x.dtype == torch.float32 and blob.bincount().tolist() == [4000] * 10
    for k in range(10):
        mine, centre, sd = x[blob == k].double(), blobs.centre.view(10, 2)[k], blobs.sd.view(10, 2)[k]
        assert (((mine.mean(0) - centre) / sd).abs() < 5 / 4000**0.5).all()
        assert ((mine.std(0) / sd - 1).abs() < 5 / (2 * 4000) ** 0.5).all()
        assert abs(np.corrcoef(mine.T)[0, 1]) < 5 / 4000**0.5


def test_points_depend_on_seed_and_split_alone():
    def draw(seed, split):
        return toy.sample(toy.pan(), 20, seed, split)[0]

    before = draw(0, "train")
    torch.manual_seed(99)
    assert torch.equal(before, draw(0, "train"))
    assert not torch.isclose(before, draw(1, "train")).any()
    assert not torch.isclose(before, draw(0, "test")).any()


def test_blobs_draw_independent_noise():
    blobs = toy.pan()
    x, _ = toy.sample(blobs, 50, seed=0, split="train")
    noise = (x.double().view(5, 2, 50, 2) - blobs.centre[:, :, None]) / blobs.sd[:, :, None]
    assert len(noise.view(10, -1).round(decimals=3).unique(dim=0)) == 10
