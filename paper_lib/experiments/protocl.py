"""ProtoCL's rows of Tables 1 and 2, with plain replay and the joint bound beside them.

``protocl`` is the corrected method with settings chosen on validation data (``experiments/protocl_tuning.py``), the
number of epochs among them; ``protocl_paper_epochs`` the best with the paper's epochs; ``protocl_as_published`` the
release's configuration; ``protocl_no_memory`` the corrected method without replay; ``replay`` the same memory without
prototypes; ``joint`` training on all tasks so far; ``sgd`` training on the current task alone.
"""

from __future__ import annotations

import math

import pandas as pd

from paper_lib import paper, sweep, tables
from paper_lib.rows import MNISTS
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

SCENARIO = "class_incremental"
ROWS = ("protocl", "protocl_paper_epochs", "protocl_as_published", "protocl_no_memory", "replay", "joint", "sgd")
LIVE = Selection(scenario=SCENARIO, rows=("protocl", "replay", "joint", "sgd"))
"""What the chapter runs unless its parameters say otherwise."""

TARGETS = {
    "split_mnist": {"triangle_mean": 94.0, "final_accuracy": 92.5},
    "split_fmnist": {"triangle_mean": 82.7, "final_accuracy": 79.5},
}
"""What this reproduction set out to reach with the corrected method, percent, written down before it was run."""


def stored(dataset: str) -> pd.DataFrame:
    """The stored class-incremental runs of a data set at the paper's scale."""
    return sweep.at_paper_scale(dataset, ROWS, SCENARIO)


def comparison(dataset: str) -> pd.DataFrame:
    """The paper's numbers beside the stored runs at paper scale: see ``tables.comparison``."""
    return tables.comparison(stored(dataset), [p for p in paper.printed(dataset) if p.row in ROWS], ROWS)


def targets(dataset: str) -> pd.DataFrame:
    """What the corrected method set out to reach and reached, alone and against replay seed by seed, percent.

    Returns:
        ``target``, ``reached``, ``n`` seeds, and ``met``: ``yes``, ``no``, or ``open`` with too few seeds.
    """
    table, lines = stored(dataset), []
    for score, least in TARGETS[dataset].items():
        mine = tables.by_seed(table, score).get("protocl", pd.Series(dtype=float))
        lines.append((score.replace("_", " "), f"at least {least}", least, mine.mean(), len(mine)))
    against = tables.paired(table, "protocl", "replay")
    if against:
        least = -2 * against.se
        lines.append(("final accuracy minus replay's", f"at least {least:.2f} (2 se)", least, against.mean, against.n))
    return pd.DataFrame(
        [
            {"what": what, "target": text, "reached": reached, "n": n}
            | {"met": "open" if n < paper.SEEDS or math.isnan(reached) else "yes" if reached >= least else "no"}
            for what, text, least, reached, n in lines
        ]
    ).set_index("what")


NEEDS = tuple(Selection(d, SCENARIO, "paper", seeds=tuple(range(paper.SEEDS)), rows=LIVE.rows) for d in MNISTS)
PUBLISHED = ("protocl_paper_epochs", "protocl_as_published")


def _replay_wins(table: pd.DataFrame) -> Judgement:
    found = {d: tables.paired(table[table.dataset == d], "replay", "protocl") for d in MNISTS}
    words = (f"{paper.DATASETS[d]}: {f.mean:+.1f} ({f.lower:+.1f} to {f.upper:+.1f}) points" for d, f in found.items())
    return holds(all(f.lower > 0 for f in found.values()), "; ".join(words))


def _triangle_means(table: pd.DataFrame) -> Judgement:
    lines = [tables.comparison(table[table.dataset == d], paper.printed(d), PUBLISHED) for d in MNISTS]
    within = all((abs(part.triangle - part.paper) <= part.margin + 2 * part["triangle se"]).all() for part in lines)
    short = all((part["final z"] < -5).all() for part in lines)
    words = (f"{part.triangle.iloc[1]:.1f} against {part.paper.iloc[1]:.1f}" for part in lines)
    return holds(within and short, f"as published, triangle mean: {', '.join(words)} %; final accuracies z below -5")


def _no_memory(table: pd.DataFrame) -> Judgement:
    final = tables.by_seed(table)["protocl_no_memory"].mean()
    triangle = tables.by_seed(table, "triangle_mean")["protocl_no_memory"].mean()
    return holds(
        final < 20.5 and abs(triangle - 33.25) < 1, f"final accuracy {final:.1f}, triangle mean {triangle:.2f} %"
    )


CLAIMS = tuple(
    Claim(says, "Table 1", says, "protocl", judge, needs)
    for says, judge, needs in (
        (
            "The printed numbers are met, within their ±, as triangle means and not as final accuracies.",
            _triangle_means,
            tuple(sweep.replace(s, rows=PUBLISHED) for s in NEEDS),
        ),
        (
            "Without memory nothing is remembered, and the triangle mean is near the printed 33.25.",
            _no_memory,
            (sweep.replace(NEEDS[0], rows=("protocl_no_memory",)),),
        ),
        ("Replay of the same memory without prototypes remembers more.", _replay_wins, NEEDS),
    )
)
"""What the chapter says about stored runs."""
