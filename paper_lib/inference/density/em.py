r"""Fitting Gaussian mixtures to draws: expectation-maximisation on a ladder of component numbers.

The ladder starts at one Gaussian and climbs by splitting: the component with the largest sum of squares is cut at its
mean, across its widest axis, until there are enough; then EM runs from there. So each rung starts from the fit before
and no rung needs a random start. A rung is scored by the mean log density of rows held out of all fits, and the climb
ends after two falls in a row. The release starts each number of components afresh from five k-means instead.

A component of a few hundred rows in 162 dimensions has a sample covariance whose narrow directions are several times
too narrow, which is ruinous for a density that becomes a prior: what it excludes never comes back. ``floor`` adds a
constant to the variances, 1e-6 in the release, which makes matrices invertible and little else. ``shrinkage`` keeps the
sample's eigenvectors :math:`u_j` and asks for the eigenvalues that are most likely for other draws, which are
:math:`d_j = u_j^\top \Sigma u_j` with the true :math:`\Sigma` (Ledoit and Wolf 2012). They are measured by
cross-validation (Bartz 2016): eigenvectors of all folds but one, their variances in the one left out, averaged over the
folds by rank. Folds are contiguous in the order of chains and draws, so that a fold is whole chains where a component
has several, and autocorrelated draws do not pass for independent ones. Linear shrinkage towards the diagonal with
Ledoit and Wolf's (2004) intensity was tried first; it minimises squared error, for which narrow directions hardly
count, and its held-out likelihood was below that of the bare sample covariance. All of this happens in units of the
standard deviations within components, so it does not depend on the scales of weights. Last, a tenth of a pseudo-row
with those standard deviations and no correlation is added to each component, so that none collapses, not even on rows
that are all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from paper_lib.inference.density import gmm
from paper_lib.inference.density.gmm import GMM
from paper_lib.inference.gaussian import symmetrise

LADDER = (1, 2, 3, 5, 7, 9, 13, 18, 26, 36, 50, 70, 97, 135, 187, 259, 360, 500)
"""The release's numbers of components."""

FLOOR = 1e-6
"""What ``floor`` adds to every variance, and the least variance of a weight that does not vary at all."""

TOLERANCE = {"floor": 1e-3, "shrinkage": 2e-2}
"""Gain of the mean log density of a row, in nats, below which EM stops: with ``floor`` the release's. On the draws of
one seed of joint HMC ``shrinkage`` gave the held-out likelihood of a thousandth within 0.02 nats, of some 70, in three
fifths of the time."""

NUM_FOLDS = 4
"""Of the cross-validation inside ``shrinkage``."""

PSEUDO_ROWS = 0.1
"""Weight of what ``shrinkage`` adds to a component."""

PAIRS_AT_ONCE = 100_000
"""Rows times components that an E step takes at a time."""

LEAST_WEIGHT = 1e-9
"""Membership below which a row does not enter a component. In many dimensions most rows have one or two above."""


class Memberships(NamedTuple):
    """Which component each row comes from, where that is not as good as certainly no.

    Attributes:
        component: ``(pair,)``, sorted.
        row: ``(pair,)``, ascending within a component, so that folds are contiguous in chains and draws.
        weight: probability of the component given the row ``(pair,)``.
    """

    component: Tensor
    row: Tensor
    weight: Tensor


def expect(mixture: GMM, x: Tensor) -> tuple[Memberships, float]:
    """The E step: memberships of rows ``(n, dim)`` in a mixture of one seed, and their mean log density."""
    num_components, parts, total = mixture.mean.shape[1], [], 0.0
    start = 0
    for rows in x.split(max(1, PAIRS_AT_ONCE // num_components)):
        pairs = gmm.relevant(mixture, rows[None], slopes=False)
        log_prob = pairs.joint(rows[None], num_components)[0].logsumexp(-1)
        weight = (pairs.log_joint - log_prob[pairs.row]).exp()
        there = weight >= LEAST_WEIGHT
        parts.append(Memberships(pairs.component[there], pairs.row[there] + start, weight[there]))
        total += float(log_prob.sum())
        start += len(rows)
    together = Memberships(*(torch.cat(leaves) for leaves in zip(*parts, strict=True)))
    order = (together.component * len(x) + together.row).argsort()
    return Memberships(*(leaf[order] for leaf in together)), total / len(x)


def maximise(x: Tensor, members: Memberships, covariance: str, regularisation: str) -> GMM:
    """The M step: weights, means and regularised covariances of one seed's mixture."""
    num_components, dim = int(members.component[-1]) + 1, x.shape[-1]
    num_folds = NUM_FOLDS if regularisation == "shrinkage" else 1
    tiny = 10 * torch.finfo(x.dtype).eps
    sizes = torch.bincount(members.component, minlength=num_components).tolist()
    mean = x.new_zeros(num_components, dim)
    count, first = x.new_zeros(num_components, num_folds), x.new_zeros(num_components, num_folds, dim)
    second = x.new_zeros(num_components, num_folds, dim, dim)
    for k, (row, weight) in enumerate(zip(members.row.split(sizes), members.weight.split(sizes), strict=True)):
        part = x[row]
        mean[k] = weight @ part / (weight.sum() + tiny)
        part = part - mean[k]
        for fold, (p, w) in enumerate(zip(part.tensor_split(num_folds), weight.tensor_split(num_folds), strict=True)):
            count[k, fold], first[k, fold] = w.sum(), w @ p
            torch.mm(p.mT * w, p, out=second[k, fold])
    log_weight = (count.sum(1) + tiny).log() - (count.sum() + num_components * tiny).log()
    if covariance == "tied":
        count, first, second = (t.sum(0, keepdim=True) for t in (count, first, second))
    if covariance == "diagonal":
        second = torch.diag_embed(second.diagonal(dim1=-2, dim2=-1))
    if regularisation == "floor":
        unit = torch.eye(dim, dtype=x.dtype, device=x.device)
        cov = second[:, 0] / (count + tiny)[..., None] + FLOOR * unit
    else:
        within = second.diagonal(dim1=-2, dim2=-1).sum((0, 1)) / len(x)
        least = within.clamp_min(FLOOR)
        sd = least.sqrt()
        outer = sd[:, None] * sd
        cov = _shrunk(count, first / sd, second / outer, covariance == "diagonal") * outer
        cov = cov + torch.diag(least - within)
    cov = symmetrise(cov.expand(num_components, dim, dim))
    return gmm.from_covariances(log_weight[None], mean[None], cov[None])


def _shrunk(count: Tensor, first: Tensor, second: Tensor, diagonal: bool) -> Tensor:
    """Covariances ``(component, dim, dim)`` whose eigenvalues are measured on rows that the eigenvectors have not seen.

    Args:
        count: weight of each component's rows in each fold, ``(component, fold)``.
        first: sum of the rows less the component's mean, ``(component, fold, dim)``.
        second: sum of their outer products, ``(component, fold, dim, dim)``.
        diagonal: variances alone are asked for; nothing is rotated.
    """
    n = count.sum(1)[:, None, None]
    unit = torch.eye(second.shape[-1], dtype=second.dtype, device=second.device)
    scatter = second.sum(1)
    if not diagonal:
        left = (count.sum(1, keepdim=True) - count)[..., None, None].clamp_min(1e-12)
        shift = -first / left[..., 0]
        rest = (scatter[:, None] - second) / left - shift[..., :, None] * shift[..., None, :]
        axes = torch.linalg.eigh(rest).eigenvectors
        across = first[..., :, None] * shift[..., None, :]
        tested = second - across - across.mT + count[..., None, None] * shift[..., :, None] * shift[..., None, :]
        spread = (axes * (tested @ axes)).sum(-2).sum(1)
        own = torch.linalg.eigh(scatter).eigenvectors
        scatter = (own * spread[:, None]) @ own.mT
    return (scatter + PSEUDO_ROWS * unit) / (n + PSEUDO_ROWS)


def fit_from(
    x: Tensor, members: Memberships, covariance: str, regularisation: str, num_iterations: int, tolerance: float
) -> tuple[GMM, Memberships]:
    """EM from given memberships, until the mean log density of a row gains less than ``tolerance``.

    Shrinkage does not maximise the likelihood of the rows it is fitted to, so there the gain can be negative, and EM
    ends as well. A component that is left with less than half a row is dropped.
    """
    before = -torch.inf
    for _ in range(num_iterations):
        mixture = maximise(x, _without_empty(members), covariance, regularisation)
        members, now = expect(mixture, x)
        if now - before < tolerance:
            break
        before = now
    return mixture, members


def _without_empty(members: Memberships) -> Memberships:
    count = torch.bincount(members.component, weights=members.weight)
    kept = count >= 0.5
    number = kept.cumsum(0) - 1
    pairs = kept[members.component]
    return Memberships(number[members.component[pairs]], members.row[pairs], members.weight[pairs])


def alone(x: Tensor) -> Memberships:
    """All rows in one component."""
    row = torch.arange(len(x), device=x.device)
    return Memberships(torch.zeros_like(row), row, torch.ones_like(x[:, 0]))


def split(x: Tensor, members: Memberships, num_components: int) -> Memberships | None:
    """Hard memberships in more components, or None if there are not as many distinct rows.

    The component with the largest sum of squares, in units of the weights' standard deviations, is cut at its mean
    across its widest axis, again and again.
    """
    sd = x.std(0, correction=0)
    scaled = x / torch.where(sd > 0, sd, 1.0)
    members = _without_empty(members)
    num_before = int(members.component[-1]) + 1
    best = x.new_zeros(len(x), num_before)
    best[members.row, members.component] = members.weight
    label = best.argmax(-1)
    clusters = [(label == k).nonzero().flatten() for k in range(num_before)]
    squares = [_sum_of_squares(scaled[rows]) for rows in clusters]
    while len(clusters) < num_components:
        largest = max(range(len(clusters)), key=squares.__getitem__)
        rows = clusters[largest]
        if squares[largest] <= 1e-12 * len(x):
            return None
        centred = scaled[rows] - scaled[rows].mean(0)
        axis = torch.linalg.eigh(centred.mT @ centred).eigenvectors[:, -1]
        above = centred @ axis > 0
        for at, part in ((largest, rows[above]), (len(clusters), rows[~above])):
            clusters[at:at + 1], squares[at:at + 1] = [part], [_sum_of_squares(scaled[part])]  # fmt: skip
    sizes = torch.tensor([len(rows) for rows in clusters], device=x.device)
    component = torch.arange(num_components, device=x.device).repeat_interleave(sizes)
    row = torch.cat(clusters)
    return Memberships(component, row, torch.ones_like(x[:, 0])[row])


def _sum_of_squares(x: Tensor) -> float:
    return float((x - x.mean(0)).square().sum()) if len(x) else 0.0
