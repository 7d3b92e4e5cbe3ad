"""The metrics (App. B) on a small stream, with both of the bounds that they are read against."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, paper, sweep, tables
from paper_lib.sweep import Selection
from paper_lib.tables import LARGEST_SE, Claim, Judgement, holds

LIVE = Selection(scenario="class_incremental", rows=("sgd", "replay", "joint", "single_task"))
"""A learner that keeps nothing, one with a small memory, and the multi-task and the single-task bound."""

BY_HAND = ((1, np.nan, np.nan), (0.5, 1, np.nan), (0, 0.5, 1))
"""A learner that loses half of a task with every task that follows."""


def scores(a: NDArray) -> pd.DataFrame:
    """``P_k``, ``F_k`` and the triangle mean of one matrix, after each task."""
    a = np.asarray(a, dtype=float)
    tasks = range(1, len(a) + 1)
    return pd.DataFrame(
        {
            "P_k": metrics.average_accuracy(a),
            "F_k": metrics.forgetting(a),
            "triangle mean": [metrics.triangle_mean(a[:k, :k]) for k in tasks],
        },
        index=pd.Index(tasks, name="tasks learned, k"),
    ).round(3)


def identified() -> pd.DataFrame:
    """The accuracy that gives each printed number as a triangle mean under complete forgetting, and its P_5.

    Returns:
        Columns ``printed``, ``just learned``, ``triangle mean`` and ``final accuracy``, percent.
    """
    unit, lines = metrics.complete_forgetting(1.0, 5), {}
    for p in paper.PRINTED:
        if p.row in ("vcl_single_head", "protocl_no_memory"):
            learned = p.value / unit.triangle_mean
            score = metrics.complete_forgetting(learned, 5)
            lines[f"{paper.label(p.row)}, {paper.LABELS[p.dataset]}"] = (p.value, learned, score[1], score[0])
    columns = ["printed", "just learned", "triangle mean", "final accuracy"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns).round(2).rename_axis(index="printed row")


def impossible_margins() -> dict[str, float]:
    """Printed ± that are larger than a standard error of ten accuracies can be, percentage points."""
    return {
        f"{paper.label(p.row)}, {paper.LABELS[p.dataset]}": p.margin for p in paper.PRINTED if p.margin > LARGEST_SE
    }


def largest_standard_error(num_seeds: int = 10, num_tries: int = 20_000, seed: int = 0) -> tuple[float, float]:
    """The largest standard error of accuracies between 0 and 100, by bound and by search.

    The sample variance is largest with half of the accuracies at either end: a convex function of each.

    Args:
        num_seeds: accuracies.
        num_tries: random sets of accuracies, half of them at the ends only.
        seed: of the search.

    Returns:
        The bound, and the largest found.
    """
    ends = 100.0 * (np.arange(num_seeds) % 2)
    rng = np.random.default_rng(seed)
    tries = 100 * rng.random((num_tries, num_seeds))
    tries[::2] = 100 * (tries[::2] > 50)
    found = tries.std(1, ddof=1).max() / np.sqrt(num_seeds)
    return float(ends.std(ddof=1) / np.sqrt(num_seeds)), float(found)


# --- what the chapter says

SGD = paper.paper_scale("split_mnist", "sgd", scenario="class_incremental")


def numbers() -> dict[str, float]:
    """What the chapter's prose cites, percent."""
    return tables.numbers(sweep.stored(SGD), ("sgd",)) | {"largest_se": round(LARGEST_SE, 4)}


def _sgd(table: pd.DataFrame) -> Judgement:
    found = tables.numbers(table, ("sgd",))
    complete = metrics.complete_forgetting(tables.by_seed(table, "learning_accuracy")["sgd"].mean(), 5)
    near = abs(complete.final_accuracy - found["final_sgd"]) < 0.2
    near &= abs(complete.triangle_mean - found["triangle_sgd"]) < 0.2
    return holds(near, f"final accuracy {found['final_sgd']:.2f} %, triangle mean {found['triangle_sgd']:.2f} %")


def _triangle(_: pd.DataFrame) -> Judgement:
    unit, printed = metrics.complete_forgetting(1.0, 5), identified().printed
    final, triangle = printed / unit.final_accuracy, printed / unit.triangle_mean
    others = min(p.value for p in paper.PRINTED if p.row == "hibnn") / unit.triangle_mean
    return holds(
        bool(final.min() > 100 and triangle.min() > 98 and triangle.max() < 100 and others > 100),
        f"accuracy asked for: {final.min():.0f} to {final.max():.0f} % if final accuracies, {triangle.min():.1f} to "
        f"{triangle.max():.1f} % if triangle means; of HIBNN's more than {others:.0f} %",
    )


def _margins(_: pd.DataFrame) -> Judgement:
    bound, found = largest_standard_error()
    margins = impossible_margins().values()
    return holds(
        0.99 * bound < found <= bound and len(margins) == 3,
        f"bound {bound:.2f}, largest of 20,000 random sets {found:.2f}; printed {', '.join(map(str, margins))}",
    )


CLAIMS = (
    Claim(
        exhibit="App. B",
        says="SGD on Split-MNIST ends as a learner does that knows its last task alone.",
        chapter="metrics",
        judge=_sgd,
        needs=(SGD,),
    ),
    Claim(
        exhibit="Table 1",
        says="VCL's two numbers printed without a coreset and ProtoCL's without memory fit the triangle mean alone.",
        chapter="metrics",
        judge=_triangle,
    ),
    Claim(
        exhibit="Table 1",
        says="Three printed ± are larger than any standard error of ten accuracies.",
        chapter="metrics",
        judge=_margins,
    ),
)
"""What the chapter says about stored runs and printed numbers."""
