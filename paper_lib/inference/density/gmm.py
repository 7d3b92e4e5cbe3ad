r"""Gaussian mixtures as priors: log density, its gradient and draws, for stacked seeds.

A component is kept as the whitening factor :math:`A_k = L_k^{-1}` of its covariance :math:`L_k L_k^\top`, so that

.. math::
   y_k = A_k (\theta - \mu_k), \qquad
   \log p(\theta) = \operatorname{logsumexp}_k \big(\log w_k + \log |A_k| - \tfrac12 y_k^\top y_k\big) + \text{const},
   \qquad \nabla \log p = -\sum_k r_k A_k^\top y_k

are products of matrices. Differences :math:`\theta - \mu_k` are formed before the product and squares are summed in
float64; so with float32 factors the log density keeps a relative error below 1e-6, and the density that float32 factors
describe is itself fixed, whatever evaluates it.

In the hundreds of dimensions of a network nearly every component is irrelevant at nearly every point, which is cheap to
prove. Any rows of :math:`A_k` give a lower bound of :math:`y_k^\top y_k`. With the ``NUM_STEEP`` rows of largest norm a
component whose bound lies ``MARGIN`` below the density of another is left out: all of them together would change the
density by a factor of 1 + K exp(-40), less than rounding in float64. What is left is a few (component, point) pairs,
whitened component by component. That asks which they are, so it is for CPUs; a GPU computes all components, in shapes
that a CUDA graph can replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib.inference.gaussian import LOG_2PI, cholesky

NUM_STEEP = 16
"""Rows of each whitening factor that bound a component's distance."""

MARGIN = 40.0
"""Nats below another component at which one is left out."""

ROWS_AT_ONCE = 512
"""Points whose distances from a component are computed at a time where no slopes are asked for."""


class GMM(NamedTuple):
    """A mixture of full-covariance Gaussians a seed, padded to the largest number of components.

    Attributes:
        log_weight: ``(seed, component)`` float64, minus infinity for padding.
        log_det: of the whitening factors, ``(seed, component)`` float64.
        mean: ``(seed, component, dim)``.
        whitening: inverses of the covariances' lower Cholesky factors, ``(seed, component, dim, dim)``.
        steep: the rows of each whitening factor that have the largest norm, ``(seed, component * row, dim)``.
        steep_mean: those rows times their means, ``(seed, component * row)``.
    """

    log_weight: Tensor
    log_det: Tensor
    mean: Tensor
    whitening: Tensor
    steep: Tensor
    steep_mean: Tensor

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log density ``(seed, chain)`` float64 at ``theta`` ``(seed, chain, dim)``."""
        theta = theta.to(self.mean.dtype)
        if theta.is_cuda or self.mean.shape[1] == 1:
            return _all_components(self, theta)[1].logsumexp(-1)
        pairs = relevant(self, theta, slopes=False)
        return pairs.joint(theta, self.mean.shape[1]).logsumexp(-1)

    def log_prob_and_grad(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log density ``(seed, chain)`` float64, and its gradient of the shape and dtype of ``theta``.

        A point with entries that are not finite gets NaN, and no other point sees it.

        Args:
            theta: ``(seed, chain, dim)``.
        """
        if theta.is_cuda or self.mean.shape[1] == 1:
            return self.all_log_prob_and_grad(theta)
        x = theta.to(self.mean.dtype)
        pairs = relevant(self, x)
        log_prob = pairs.joint(x, self.mean.shape[1]).logsumexp(-1)
        weight = (pairs.log_joint - log_prob.flatten()[pairs.row]).exp().to(x.dtype)
        grad = torch.zeros_like(x).flatten(0, 1)
        grad.index_add_(0, pairs.row, pairs.slope * weight[:, None], alpha=-1)
        return log_prob, grad.view_as(x).to(theta.dtype)

    def all_log_prob_and_grad(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The same with every component at every point, in shapes that do not depend on the numbers."""
        num_seeds, num_components, dim = self.mean.shape
        white, joint = _all_components(self, theta.to(self.mean.dtype))
        log_prob = joint.logsumexp(-1)
        weight = (joint - log_prob[..., None]).exp().to(white.dtype)
        pulled = white.view(num_seeds, num_components, dim, -1) * weight.mT[:, :, None]
        grad = torch.bmm(self.whitening.flatten(1, 2).mT, pulled.flatten(1, 2)).mT
        return log_prob, grad.neg().to(theta.dtype)

    def sample(self, num_draws: int, streams: Sequence[torch.Generator]) -> Tensor:
        """Independent draws ``(seed, draw, dim)``, from one generator a seed."""
        dim, draws = self.mean.shape[-1], []
        for seed, stream in enumerate(streams):
            at = stream.device
            chosen = torch.multinomial(self.log_weight[seed].exp().to(at), num_draws, True, generator=stream)
            noise = torch.randn((num_draws, dim), generator=stream, dtype=self.mean.dtype, device=at)
            chosen, noise = chosen.to(self.mean.device), noise.to(self.mean.device)
            drawn = torch.empty_like(noise)
            for component in chosen.unique().tolist():
                rows = (chosen == component).nonzero().flatten()
                factor = self.whitening[seed, component]
                drawn[rows] = torch.linalg.solve_triangular(factor, noise[rows].mT, upper=False).mT
            draws.append(drawn + self.mean[seed, chosen])
        return torch.stack(draws)

    def to(self, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> GMM:
        """The mixture with means and factors in another precision, or elsewhere; weights stay float64."""
        rest = (leaf.to(device=device, dtype=dtype or leaf.dtype) for leaf in self[2:])
        return GMM(self.log_weight.to(device), self.log_det.to(device), *rest)


def from_covariances(log_weight: Tensor, mean: Tensor, cov: Tensor) -> GMM:
    """A mixture from its covariances.

    Args:
        log_weight: ``(seed, component)``.
        mean: ``(seed, component, dim)``.
        cov: ``(seed, component, dim, dim)``, symmetric positive definite.

    Raises:
        ValueError: for a covariance that is singular or indefinite.
    """
    scale = cholesky("covariance of a component", cov)
    unit = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device).expand_as(scale)
    whitening = torch.linalg.solve_triangular(scale, unit, upper=False)
    log_det = -scale.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return _with_bounds(log_weight.double(), log_det.double(), mean, whitening)


def isotropic(num_seeds: int, dim: int, precision: float, dtype=torch.float64, device="cpu") -> GMM:
    """One component of mean zero and covariance 1/precision a seed: the prior of the first task."""
    mean = torch.zeros((num_seeds, 1, dim), dtype=dtype, device=device)
    cov = torch.eye(dim, dtype=dtype, device=device).expand(num_seeds, 1, dim, dim) / precision
    return from_covariances(mean[..., 0], mean, cov)


def stack(mixtures: Sequence[GMM]) -> GMM:
    """Seeds side by side, padded to the largest number of components by standard normals of weight zero."""
    most = max(m.mean.shape[1] for m in mixtures)
    padded = []
    for m in mixtures:
        num_seeds, missing, dim = m.mean.shape[0], most - m.mean.shape[1], m.mean.shape[-1]
        unit = torch.eye(dim, dtype=m.mean.dtype, device=m.mean.device).expand(num_seeds, missing, dim, dim)
        parts = (
            torch.cat([m.log_weight, m.log_weight.new_full((num_seeds, missing), -torch.inf)], 1),
            torch.cat([m.log_det, m.log_det.new_zeros((num_seeds, missing))], 1),
            torch.cat([m.mean, m.mean.new_zeros((num_seeds, missing, dim))], 1),
            torch.cat([m.whitening, unit], 1),
        )
        padded.append(_with_bounds(*parts))
    return GMM(*(torch.cat(leaves) for leaves in zip(*padded, strict=True)))


class Pairs(NamedTuple):
    """The components that matter at each point, sorted by component.

    Attributes:
        component: ``(pair,)`` counted over all seeds.
        row: the point, ``(pair,)`` counted over all seeds.
        slope: gradient of the halved squared distance, :math:`A_k^\\top y_k`, ``(pair, dim)``, or ``(pair, 0)`` where
            only densities are asked for.
        log_joint: log density of component and point together ``(pair,)`` float64.
    """

    component: Tensor
    row: Tensor
    slope: Tensor
    log_joint: Tensor

    def joint(self, x: Tensor, num_components: int) -> Tensor:
        """``log_joint`` at its places, ``(seed, chain, component)``, minus infinity elsewhere."""
        out = self.log_joint.new_full((x.shape[0] * x.shape[1], num_components), -torch.inf)
        out[self.row, self.component % num_components] = self.log_joint
        return out.view(x.shape[0], x.shape[1], num_components)


def relevant(gmm: GMM, x: Tensor, slopes: bool = True) -> Pairs:
    """The (component, point) pairs that are within ``MARGIN`` of the largest at each point ``x`` ``(seed, n, dim)``.

    Args:
        gmm: the mixture.
        x: points.
        slopes: are computed too; they are half of the work.
    """
    num_seeds, n, dim = x.shape
    num_components = gmm.mean.shape[1]
    steep = torch.baddbmm(gmm.steep_mean[:, None], x, gmm.steep.mT, beta=-1).view(num_seeds, n, num_components, -1)
    log_norm = gmm.log_weight + gmm.log_det - 0.5 * dim * LOG_2PI
    bound = (log_norm[:, None] - 0.5 * steep.square().sum(-1)).flatten(0, 1)
    first = bound.argmax(-1)
    rows = torch.arange(num_seeds * n, device=x.device)
    offset = rows.div(n, rounding_mode="floor") * num_components
    best = _measure(gmm, x, log_norm, first + offset, rows, slopes)
    level = torch.empty_like(bound[:, 0]).index_copy_(0, best.row, best.log_joint) - MARGIN
    bound.scatter_(1, first[:, None], -torch.inf)
    row, component = (bound > level[:, None]).nonzero(as_tuple=True)
    if len(row) == 0:
        return best
    rest = _measure(gmm, x, log_norm, component + offset[row], row, slopes)
    both = Pairs(*(torch.cat(leaves) for leaves in zip(best, rest, strict=True)))
    order = both.component.argsort()
    return Pairs(*(leaf[order] for leaf in both))


def _measure(gmm: GMM, x: Tensor, log_norm: Tensor, component: Tensor, row: Tensor, slopes: bool) -> Pairs:
    """Distances and their slopes, component by component: a factor is used twice while it is in the cache."""
    component, order = component.sort()
    row = row[order]
    points, means, factors = x.flatten(0, 1), gmm.mean.flatten(0, 1), gmm.whitening.flatten(0, 1)
    values, counts = (t.tolist() for t in component.unique_consecutive(return_counts=True))
    if slopes:
        difference = points[row] - means[component]
        white, slope = torch.empty_like(difference), torch.empty_like(difference)
        with _one_thread(enabled=len(row) < 8 * len(values)):
            for k, d, y, s in zip(values, *(t.split(counts) for t in (difference, white, slope)), strict=True):
                torch.mm(d, factors[k].mT, out=y)
                torch.mm(y, factors[k], out=s)
        square = white.square().sum(-1, dtype=torch.float64)
    else:
        # Densities alone are asked for of thousands of points, whose differences would not stay in the cache.
        slope, squares = points.new_empty(len(row), 0), []
        for k, rows in zip(values, row.split(counts), strict=True):
            for some in rows.split(ROWS_AT_ONCE):
                white = (points[some] - means[k]) @ factors[k].mT
                squares.append(white.square().sum(-1, dtype=torch.float64))
        square = torch.cat(squares)
    return Pairs(component, row, slope, log_norm.flatten()[component] - 0.5 * square)


@contextmanager
def _one_thread(enabled: bool) -> Iterator[None]:
    """Products with a handful of points are over before a second thread has woken up for them."""
    num_threads = torch.get_num_threads()
    if not enabled or num_threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _all_components(gmm: GMM, x: Tensor) -> tuple[Tensor, Tensor]:
    """Whitened differences ``(seed * component, dim, chain)`` and log joint densities ``(seed, chain, component)``."""
    num_seeds, num_components, dim = gmm.mean.shape
    difference = (x.mT[:, None] - gmm.mean[..., None]).flatten(0, 1)
    white = torch.bmm(gmm.whitening.flatten(0, 1), difference)
    square = white.square().sum(1, dtype=torch.float64).view(num_seeds, num_components, -1)
    log_norm = gmm.log_weight + gmm.log_det - 0.5 * dim * LOG_2PI
    return white, (log_norm[..., None] - 0.5 * square).mT


def _with_bounds(log_weight: Tensor, log_det: Tensor, mean: Tensor, whitening: Tensor) -> GMM:
    dim = mean.shape[-1]
    # A checkpoint has no strides: in one layout, a restored mixture computes the same to the last bit.
    mean, whitening = mean.contiguous(), whitening.contiguous()
    top = whitening.square().sum(-1).topk(min(NUM_STEEP, dim), dim=-1).indices
    steep = whitening.gather(2, top[..., None].expand(*top.shape, dim))
    steep_mean = (steep @ mean[..., None])[..., 0]
    return GMM(log_weight, log_det, mean, whitening, steep.flatten(1, 2).contiguous(), steep_mean.flatten(1))
