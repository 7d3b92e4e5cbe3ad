r"""What a continual learner knows, from its accuracy matrix and from its log-probabilities.

Source: Kessler et al. 2023, App. B. An accuracy matrix ``a`` is ``(..., task_trained, task_tested)``: entry ``(k, j)``
is the accuracy on task ``j`` after training on task ``k``. Only the triangle ``j <= k`` is read; above it entries are
NaN, for those tasks have not been seen. Leading axes, such as seeds, are kept.

``average_accuracy`` and ``forgetting`` are the paper's :math:`P_k` and :math:`F_k`; ``final_accuracy`` is its main
metric :math:`P_T`. ``triangle_mean`` is no metric of the text, but some rows of its Table 1 look like one, so both are
reported. The multi-task bound is the final accuracy of joint training, the single-task bound the learning accuracy of a
learner that starts afresh at each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


def average_accuracy(a: ArrayLike) -> NDArray:
    """Mean accuracy on the tasks so far, after each task.

    Source: Kessler et al. 2023, App. B, eq:metrics:av_performance.

    Args:
        a: accuracy matrix ``(..., task_trained, task_tested)``.

    Returns:
        ``P_k``, ``(..., task_trained)``.

    Raises:
        ValueError: the matrix is not square, or an entry on or below the diagonal is NaN.

    >>> average_accuracy([[1, np.nan, np.nan], [0.5, 1, np.nan], [0, 0.5, 1]])
    array([1.  , 0.75, 0.5 ])
    """
    a = _triangle(a)
    return a.sum(-1) / np.arange(1, a.shape[-1] + 1)


def final_accuracy(a: ArrayLike) -> NDArray:
    """Mean accuracy on all tasks after the last one, ``P_T`` ``(...,)``."""
    return average_accuracy(a)[..., -1]


def forgetting(a: ArrayLike) -> NDArray:
    """Mean loss of accuracy on earlier tasks since each was learned, after each task.

    Source: Kessler et al. 2023, App. B, eq:metrics:forgetting.

    Args:
        a: accuracy matrix ``(..., task_trained, task_tested)``.

    Returns:
        ``F_k``, ``(..., task_trained)``; NaN after the first task, when there is nothing yet to forget.

    Raises:
        ValueError: as ``average_accuracy``.

    >>> forgetting([[1, np.nan, np.nan], [0.5, 1, np.nan], [0, 0.5, 1]])
    array([ nan, 0.5 , 0.75])
    """
    a = _triangle(a)
    num_tasks = a.shape[-1]
    when_learned = np.diagonal(a, axis1=-2, axis2=-1)
    lost = np.tril(when_learned[..., None, :] - a, k=-1).sum(-1)
    earlier = np.arange(num_tasks)
    return lost / np.where(earlier > 0, earlier, np.nan)


def networks_kept(a: ArrayLike) -> NDArray:
    """The accuracy matrix of a learner that keeps each task's own network, from that of one network trained afresh.

    On a task that it has met, such a learner scores for ever what it scored when the task was learned: the single-task
    bound (App. B).

    >>> networks_kept([[0.9, np.nan], [0.0, 0.8]])
    array([[0.9, nan],
           [0.9, 0.8]])
    """
    a = _square(a)
    a = _triangle(np.where(np.eye(a.shape[-1], dtype=bool), a, 0.0))  # what lies below the diagonal is not used
    when_learned = np.diagonal(a, axis1=-2, axis2=-1)
    return np.where(np.tri(a.shape[-1], dtype=bool), when_learned[..., None, :], np.nan)


def triangle_mean(a: ArrayLike) -> NDArray:
    """Mean over all entries on and below the diagonal, ``(...,)``: what a nan-mean of the whole matrix gives.

    >>> float(6 * triangle_mean([[1, np.nan, np.nan], [0.5, 1, np.nan], [0, 0.5, 1]]))
    4.0
    """
    a = _triangle(a)
    num_tasks = a.shape[-1]
    return a.sum((-2, -1)) / (num_tasks * (num_tasks + 1) / 2)


def learning_accuracy(a: ArrayLike) -> NDArray:
    """Mean accuracy on each task right after it was learned, ``(...,)``; only the diagonal is read."""
    diagonal = np.diagonal(_square(a), axis1=-2, axis2=-1)
    if np.isnan(diagonal).any():
        raise ValueError(f"accuracy matrix has NaN on its diagonal ({np.isnan(diagonal).sum()} entries)")
    return diagonal.mean(-1)


class CompleteForgetting(NamedTuple):
    """The scores of a learner that only knows its last task.

    Attributes:
        final_accuracy: ``P_T``.
        triangle_mean: mean over the triangle.
    """

    final_accuracy: float
    triangle_mean: float


def complete_forgetting(a_single: float, num_tasks: int) -> CompleteForgetting:
    """Scores of a learner with accuracy ``a_single`` on the task just learned and zero on all before.

    Of ``T (T + 1) / 2`` entries ``T`` are ``a_single``. So with five tasks a triangle mean of 33 % is what is left when
    all is forgotten.

    >>> [f"{score:.3f}" for score in complete_forgetting(0.99, 5)]
    ['0.198', '0.330']
    """
    if num_tasks < 1:
        raise ValueError(f"num_tasks={num_tasks!r} is not at least 1")
    return CompleteForgetting(a_single / num_tasks, num_tasks * a_single / (num_tasks * (num_tasks + 1) / 2))


def _square(a: ArrayLike) -> NDArray:
    a = np.asarray(a, dtype=np.float64)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.shape[-1] == 0:
        raise ValueError(f"accuracy matrix has shape {a.shape}, not (..., task_trained, task_tested), square")
    return a


def _triangle(a: ArrayLike) -> NDArray:
    """The matrix with zeros above the diagonal, checked."""
    a = _square(a)
    seen = np.tri(a.shape[-1], dtype=bool)
    missing = np.argwhere(np.isnan(a) & seen)
    if len(missing):
        *lead, k, j = (int(i) for i in missing[0])
        where = f" of matrix {tuple(lead)}" if lead else ""
        raise ValueError(
            f"accuracy after task {k} on task {j}{where} (from 0) is NaN; only entries above the diagonal may be"
        )
    return np.where(seen, a, 0.0)


def accuracy(log_probs: Tensor, y: Tensor) -> Tensor:
    """Share of points whose most probable unit is their label.

    Args:
        log_probs: log-probabilities ``(seed, n, unit)``; minus infinity for units that do not compete.
        y: labels ``(n,)`` int64.

    Returns:
        ``(seed,)`` float64, NaN where a seed's log-probabilities are NaN (a network that diverged).

    Raises:
        ValueError: shapes do not agree, or there are no points.
    """
    diverged = _check_log_probs(log_probs, y)
    return (log_probs.argmax(-1) == y).double().mean(-1).masked_fill(diverged, np.nan)


def negative_log_likelihood(log_probs: Tensor, y: Tensor) -> Tensor:
    """Mean over points of minus the label's log-probability, in nats: arguments and errors as ``accuracy``.

    Infinite where a label has probability zero. Log-probabilities that do not sum to one are an error.
    """
    _check_log_probs(log_probs, y, normalised=True)
    return -log_probs.gather(-1, y.expand(len(log_probs), -1)[..., None])[..., 0].double().mean(-1)


def expected_calibration_error(log_probs: Tensor, y: Tensor, num_bins: int = 15) -> Tensor:
    r"""Mean gap between confidence and accuracy over bins of confidence.

    Source: Guo et al. 2017, Eq. 3: :math:`\sum_b (n_b / n) |acc_b - conf_b|` with bins :math:`((b - 1) / B, b / B]`. As
    :math:`n_b acc_b` and :math:`n_b conf_b` are sums, one sum a bin of (right or wrong - confidence) is enough.

    Args:
        log_probs: log-probabilities ``(seed, n, unit)``; minus infinity for units that do not compete.
        y: labels ``(n,)`` int64.
        num_bins: bins of equal width on [0, 1].

    Returns:
        ``(seed,)`` float64, NaN as ``accuracy``.

    Raises:
        ValueError: as ``negative_log_likelihood``, or ``num_bins`` is not at least 1.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins={num_bins!r} is not at least 1")
    diverged = _check_log_probs(log_probs, y, normalised=True)
    log_confidence, predicted = log_probs.masked_fill(diverged[:, None, None], 0.0).max(-1)
    confidence = log_confidence.double().exp().clamp(max=1.0)
    gap = (predicted == y).double() - confidence
    bins = (confidence * num_bins).ceil().long() - 1
    error = gap.new_zeros(len(gap), num_bins).scatter_add_(1, bins, gap).abs().sum(-1) / len(y)
    return error.masked_fill(diverged, np.nan)


def _check_log_probs(log_probs: Tensor, y: Tensor, normalised: bool = False) -> Tensor:
    """Which seeds have diverged, ``(seed,)``; the others are checked."""
    if log_probs.ndim != 3 or y.ndim != 1 or log_probs.shape[1] != len(y) or len(y) == 0:
        raise ValueError(
            f"log_probs {tuple(log_probs.shape)} and y {tuple(y.shape)} are not (seed, n, unit) and (n,) with n > 0"
        )
    diverged = log_probs.isnan().flatten(1).any(1)
    if normalised and not diverged.all():
        total = log_probs[~diverged].exp().sum(-1)
        worst = total.flatten()[(total - 1).abs().argmax()].item()
        if not abs(worst - 1) < 1e-2:
            raise ValueError(f"log_probs are not normalised: the probabilities of a point sum to {worst:.4g}, not 1")
    return diverged


class Summary(NamedTuple):
    """Mean and spread over seeds.

    Attributes:
        mean: over seeds.
        sd: standard deviation over seeds (divided by ``n - 1``); NaN for one seed.
        se: standard error of the mean, ``sd / sqrt(n)``; NaN for one seed.
        n: number of seeds.
    """

    mean: float
    sd: float
    se: float
    n: int


def summarise(values: ArrayLike) -> Summary:
    """Mean, sd, se and n of one value a seed.

    >>> summarise([0.25, 0.75, 0.25, 0.75]).mean, summarise([0.5])
    (0.5, Summary(mean=0.5, sd=nan, se=nan, n=1))
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"values have shape {values.shape}, not (seed,) with at least one seed")
    n = len(values)
    sd = float(values.std(ddof=1)) if n > 1 else float("nan")
    return Summary(float(values.mean()), sd, sd / n**0.5, n)


class PairedDifference(NamedTuple):
    """Differences seed by seed, with the 95 % interval of Student's t.

    Attributes:
        mean: mean of ``a - b``.
        sd: standard deviation of the differences over seeds.
        se: standard error of the mean.
        n: number of seeds.
        lower: lower end of the interval for the mean; NaN for one seed.
        upper: upper end of it.
    """

    mean: float
    sd: float
    se: float
    n: int
    lower: float
    upper: float


def paired_difference(a: ArrayLike | Mapping[int, float], b: ArrayLike | Mapping[int, float]) -> PairedDifference:
    """How much ``a`` is above ``b`` when both are measured on the same seeds.

    Args:
        a: a value a seed: a mapping (or pandas Series) from seed to value, or ``(seed,)``.
        b: the same seeds; mappings are matched by seed, arrays by place.

    Raises:
        ValueError: the seeds differ.
    """
    from scipy import special  # heavy, and needed nowhere else

    if hasattr(a, "keys") and hasattr(b, "keys"):
        seeds, others = list(a.keys()), list(b.keys())
        if sorted(seeds) != sorted(others):
            raise ValueError(f"not the same seeds: {sorted(seeds)} and {sorted(others)}")
        a, b = [a[seed] for seed in seeds], [b[seed] for seed in seeds]
    a, b = (np.asarray(values, dtype=np.float64) for values in (a, b))
    if a.shape != b.shape:
        raise ValueError(f"not the same seeds: {a.shape} values and {b.shape}")
    mean, sd, se, n = summarise(a - b)
    half = float(special.stdtrit(n - 1, 0.975)) * se
    return PairedDifference(mean, sd, se, n, mean - half, mean + half)
