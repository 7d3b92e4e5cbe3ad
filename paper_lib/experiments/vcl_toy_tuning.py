"""The choice of VCL's settings on the toy sets, on validation data: none are published.

Every combination of a small grid is trained on nine tenths of a toy set's training data, with one head and with a head
a task, and compared by P_T on the last tenth, averaged over the two. ``rows.py`` states the winner and a test compares
the two.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd

from paper_lib import sweep, tables
from paper_lib.rows import TOYS
from paper_lib.sweep import Selection

SEEDS = (100, 101)
"""Other than those of the runs that are reported."""

GRID = {"learning_rate": (3e-3, 1e-2, 3e-2), "restart": (True, False)}
"""What is tuned, at the reported number of epochs. A task begins at the last posterior (Nguyen et al.) or, with
``restart``, afresh (Swaroop et al.); the first one begins at maximum likelihood either way."""

TRIALS = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
ROWS = ("vcl_single_head", "vcl_multi_head")
DATASETS = TOYS


def selection(dataset: str, trial: int) -> Selection:
    """Both rows with the settings of a trial."""
    return Selection(dataset, None, "paper", "validation", SEEDS, rows=ROWS, changes=TRIALS[trial])


def ranking(dataset: str) -> pd.DataFrame:
    """The stored trials on a data set, best first.

    Returns:
        ``trial``, a column a setting, P_T with one head and with a head a task, their mean ``score``, percent, and
        ``n`` seeds.
    """
    lines = []
    for trial, settings in enumerate(TRIALS):
        found = tables.by_seed(sweep.stored(selection(dataset, trial)))
        scores: dict[str, Any] = {row: found[row].mean() for row in ROWS}
        lines.append(
            {"trial": trial, **settings, **scores, "score": sum(scores.values()) / 2, "n": len(found[ROWS[0]])}
        )
    return pd.DataFrame(lines).sort_values("score", ascending=False, kind="stable", ignore_index=True)


def best(dataset: str) -> dict[str, Any]:
    """The winning settings."""
    return TRIALS[int(ranking(dataset).trial[0])]
