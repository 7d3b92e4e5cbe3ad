"""Figure 1: what a posterior handed from task to task remembers, with one head and with many.

The figure mixes scenarios: networks with one head are trained domain-incrementally, networks with a head a task
task-incrementally. So each row takes the scenario that its heads can serve, and takes the first of them unless the
selection names another.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, paper, sweep, tables
from paper_lib.rows import HEAD_A_TASK, ROWS, TOYS, shown_in
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

LIVE = Selection(rows=("sgd_single_head", "vcl_single_head", "sgd_multi_head", "vcl_multi_head", "joint_unit"))
"""What the chapter runs unless its parameters say otherwise."""

BOUNDS = ("joint_unit", "single_task")
TOY_ROWS = ("sgd_single_head", "vcl_single_head", "sgd_multi_head", "vcl_multi_head", *BOUNDS)


def by_heads(curves: dict[str, NDArray]) -> dict[str, dict[str, NDArray]]:
    """Curves of Figure 1 in two groups, rows with one head and rows with a head a task, the bounds in both."""
    many = {row: c for row, c in curves.items() if ROWS[row].scenarios == HEAD_A_TASK}
    bounds = {row: c for row, c in curves.items() if row in BOUNDS}
    one = {row: c for row, c in curves.items() if row not in many and row not in bounds}
    return {"one head": one | bounds, "a head a task": many | bounds}


def stored(dataset: str) -> pd.DataFrame:
    """The stored runs at paper scale of a data set in each row's own scenario, as in Figure 1."""
    return sweep.stored_at_paper_scale(dataset, shown_in("figure_1"))


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """Each row of a table of one data set, percent: final accuracy, triangle mean, forgetting, learning accuracy."""
    found = tables.summary(table).set_index("row")
    return found.reindex([row for row in ROWS if row in found.index])


def shown_scores(table: pd.DataFrame) -> pd.DataFrame:
    """What a chapter folds away below a table of ``scores``: forgetting, learning accuracy, NLL, ECE and seeds."""
    found = scores(table)
    columns = {
        "scenario": found.scenario.str.replace("_", "-"),
        "forgetting": found.forgetting,
        "when learned": found.learning_accuracy,
        **{"NLL": found.nll, "ECE": found.ece, "n": found.n},
    }
    return pd.DataFrame(columns).rename(index=paper.label).rename_axis(index="method")


COMPARED = (
    ("vcl_single_head", "sgd_single_head", "one head: VCL over SGD"),
    ("vcl_single_head", "sgd_single_head_long", "one head: VCL over SGD, equal steps"),
    ("joint_unit", "vcl_single_head", "joint over VCL with one head"),
    ("vcl_multi_head", "vcl_single_head", "VCL: a head a task over one"),
    ("sgd_multi_head", "sgd_single_head", "SGD: a head a task over one"),
    ("sgd_multi_head_long", "sgd_single_head_long", "SGD: a head a task over one, equal steps"),
    ("vcl_multi_head", "sgd_multi_head", "a head a task: VCL over SGD"),
    ("vcl_multi_head", "sgd_multi_head_long", "a head a task: VCL over SGD, equal steps"),
    ("vcl_multi_head_reference", "sgd_multi_head_reference", "full batches: VCL over SGD"),
    ("vcl_multi_head_reference", "vcl_multi_head", "VCL: full batches over 256 points"),
    ("sgd_multi_head_reference", "sgd_multi_head_long", "SGD: full batches over 256 points"),
)
"""What Figure 1 compares: a row, the row that it is held against, and the comparison in words."""


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Differences in percentage points, paired over common seeds, for what a table's rows allow.

    Returns:
        A line a comparison: ``final`` and ``triangle``, the mean differences of final accuracy and triangle mean, each
        with its 95 % interval ``low`` to ``high``, and ``n`` seeds.
    """
    lines = {}
    for row, other, words in COMPARED:
        found = {s: tables.paired(table, row, other, s) for s in ("final_accuracy", "triangle_mean")}
        if None not in found.values():
            line = {}
            for name, f in zip(("final", "triangle"), found.values(), strict=True):
                line |= {name: f.mean, f"{name} low": f.lower, f"{name} high": f.upper}
            lines[words] = line | {"n": f.n}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(index="comparison")


def shown_differences() -> pd.DataFrame:
    """The differences of all stored runs, points with their 95 % intervals, as a chapter shows them."""
    lines = []
    for dataset in ("split_mnist", *TOYS):
        for words, line in differences(stored(dataset)).iterrows():
            final, triangle = _words(line), _words(line, "triangle")
            lines.append((words, paper.LABELS[dataset], final, triangle, int(line["n"])))
    columns = ["comparison", "data", "final accuracy", "triangle mean", "n"]
    return pd.DataFrame(lines, columns=columns).set_index("comparison")


PUBLIC_LOGS = {
    ("vcl_single_head", "class_incremental"): (
        (100.00,),
        (0.00, 55.93),
        (0.00, 0.00, 52.40),
        (0.00, 0.00, 0.00, 99.80),
        (0.00, 0.00, 0.00, 0.00, 70.75),
    ),
    ("vcl_coreset", "class_incremental"): (
        (99.95,),
        (94.70, 51.96),
        (0.00, 0.00, 98.45),
        (0.00, 0.00, 46.85, 92.80),
        (48.84, 0.00, 0.00, 41.54, 88.45),
    ),
    ("vcl_multi_head_reference", "task_incremental"): (
        (99.95,),
        (99.91, 97.70),
        (99.91, 97.36, 99.31),
        (99.91, 95.54, 99.20, 99.55),
        (99.72, 96.18, 98.72, 98.74, 98.03),
    ),
}
"""Accuracies on Split-MNIST, percent, task trained by task tested, of one run each of the public S-FSVI code's VCL with
layers of 256. Source: ``slurm-10487_9.out`` (seed 12), ``_13`` (seed 5, coresets of 200) and ``_11`` (seed 4) under
``notebooks/runs/reproduce_main_results_3`` of timrudner/S-FSVI, commit c27ee47."""


def beside_public_logs(table: pd.DataFrame) -> pd.DataFrame:
    """Stored runs on Split-MNIST beside the logged runs of the public code, percent.

    Returns:
        A line a row that has both, in the log's scenario: final accuracy, triangle mean and accuracy when learned, mean
        over seeds and the log's; the ``lowest`` and ``highest`` seed's final accuracy; and ``n`` seeds.
    """
    lines = {}
    for (row, scenario), log in PUBLIC_LOGS.items():
        part = table[(table["row"] == row) & (table["scenario"] == scenario) & (table["dataset"] == "split_mnist")]
        if part.empty:
            continue
        a = 100 * tables.matrices_of(part)[1]
        theirs = np.zeros((len(log), len(log)))
        theirs[np.tril_indices(len(log))] = np.concatenate(log)
        line = {}
        for name in ("final_accuracy", "triangle_mean", "learning_accuracy"):
            words = name.replace("_", " ")
            line |= {words: tables.SCORES[name](a).mean(), f"log, {words}": float(tables.SCORES[name](theirs))}
        final = metrics.final_accuracy(a)
        lines[row] = line | {"lowest": final.min(), "highest": final.max(), "n": len(a)}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(index="row")


def numbers() -> dict[str, float | str]:
    """What the chapter's prose cites: percent and percentage points of stored runs, and the verdicts."""
    table = stored("split_mnist")
    cited = tables.numbers(table, ("vcl_single_head", "sgd_single_head_long", *BOUNDS, *shown_in("figure_1")[3:8]))
    found = differences(table)
    for name, words in {
        "one_head": "one head: VCL over SGD, equal steps",
        "joint_over_vcl": "joint over VCL with one head",
        "heads_vcl": "VCL: a head a task over one",
        "heads_sgd": "SGD: a head a task over one, equal steps",
        "long": "a head a task: VCL over SGD, equal steps",
        "full": "full batches: VCL over SGD",
        "batches_vcl": "VCL: full batches over 256 points",
        "batches_sgd": "SGD: full batches over 256 points",
    }.items():
        line = found.loc[words].drop("n")
        cited |= {f"{name}_{column.replace(' ', '_')}": round(float(x), 4) for column, x in line.items()}
    for dataset in TOYS:
        lines = differences(stored(dataset))["final"]
        cited[f"{dataset}_one_head"] = round(float(lines["one head: VCL over SGD"]), 4)
        cited[f"{dataset}_joint_over_vcl"] = round(float(lines["joint over VCL with one head"]), 4)
        cited[f"{dataset}_heads_lead"] = round(float(lines["a head a task: VCL over SGD"]), 4)
        cited[f"{dataset}_heads_sgd"] = round(float(lines["SGD: a head a task over one"]), 4)
    return cited | {f"verdict_{name.replace(' ', '_')}": paper.verdict(name) for name in ("one head", "a head a task")}


# --- what the chapter says about stored runs

RUN = tuple(r for r in shown_in("figure_1") if r not in ("vcl_ddm", "vcl_improved"))
MNIST = (paper.paper_scale("split_mnist", *RUN),)
TOY = tuple(paper.paper_scale(d, *TOY_ROWS) for d in TOYS)


def _words(line: pd.Series, score: str = "final") -> str:
    return f"{line[score]:+.1f} ({line[f'{score} low']:+.1f} to {line[f'{score} high']:+.1f})"


def _barely(table: pd.DataFrame) -> Judgement:
    found = differences(table)
    lines = found.loc[["one head: VCL over SGD", "one head: VCL over SGD, equal steps"]]
    condition = (lines["final low"] < 0).all() and lines["final high"].max() < 3
    condition &= (lines["triangle low"] > 0).all() and lines["triangle high"].max() < 3
    condition &= found["final low"]["joint over VCL with one head"] > 30
    final, triangle = (_words(lines.iloc[1], s) for s in ("final", "triangle"))
    return holds(bool(condition), f"equal steps, points: final accuracy {final}, triangle mean {triangle}")


def _heads_help_both(table: pd.DataFrame) -> Judgement:
    found = differences(table)
    lines = [found.loc[w] for w in ("VCL: a head a task over one", "SGD: a head a task over one, equal steps")]
    return holds(
        min(line["final low"] for line in lines) > 20,
        f"final accuracy, points: VCL {_words(lines[0])}, SGD {_words(lines[1])}",
    )


def _equal_steps(table: pd.DataFrame) -> Judgement:
    found = differences(table)
    long, full = found.loc["a head a task: VCL over SGD, equal steps"], found.loc["full batches: VCL over SGD"]
    condition = long["final"] < 0 < long["final high"] and full["final low"] < 0 < full["final"]
    condition &= long["triangle low"] < 0 < long["triangle high"] and full["triangle low"] > 0
    return holds(
        bool(condition), f"final accuracy, points: 5,000 steps {_words(long)}, 100 full-batch steps {_words(full)}"
    )


def _few_steps(table: pd.DataFrame) -> Judgement:
    found = differences(table)
    lines = [found.loc[f"{name}: full batches over 256 points"] for name in ("VCL", "SGD")]
    return holds(
        min(line["final low"] for line in lines) > 0,
        f"final accuracy, points: VCL {_words(lines[0])}, SGD {_words(lines[1])}",
    )


def _first_task(table: pd.DataFrame) -> Judgement:
    first = {row: 100 * a[..., 0].mean(0) for row, a in tables.matrices(table).items()}
    vcl, sgd = first["vcl_multi_head_reference"], first["sgd_multi_head_reference"]
    return holds(
        vcl.min() > 99 and sgd.min() < 85 < sgd[-1] < 95,
        f"first task, lowest over the run: VCL {vcl.min():.1f}, SGD {sgd.min():.1f} %, which ends at {sgd[-1]:.1f}",
    )


def _near_log(table: pd.DataFrame) -> Judgement:
    line = beside_public_logs(table).loc["vcl_multi_head_reference"]
    theirs = line["log, final accuracy"]
    return holds(
        line["final accuracy"] < theirs < line.highest,
        f"final accuracy {line['final accuracy']:.1f} ({line.lowest:.1f} to {line.highest:.1f}), log {theirs:.1f} %",
    )


def _toys(table: pd.DataFrame) -> Judgement:
    found = {d: differences(table[table["dataset"] == d]) for d in TOYS}
    one = {d: f.loc["one head: VCL over SGD"] for d, f in found.items()}
    condition = all(
        one[d]["final low"] > 0
        and one[d]["final high"] < f["final low"]["joint over VCL with one head"]
        and f["final low"]["VCL: a head a task over one"] > 10
        for d, f in found.items()
    )
    return holds(condition, "; ".join(f"{paper.LABELS[d]}: {_words(line)} points" for d, line in one.items()))


def _sgd_heads_on_toys(table: pd.DataFrame) -> Judgement:
    found = {d: differences(table[table["dataset"] == d]).loc["SGD: a head a task over one"] for d in TOYS}
    return holds(
        found["toy_pan"]["final low"] < 0 < found["toy_gaussians"]["final low"],
        "; ".join(f"{paper.LABELS[d]}: {_words(line)} points" for d, line in found.items()),
    )


CLAIMS = tuple(
    Claim(
        exhibit="Figure 1",
        says=says,
        chapter="vcl_split_mnist",
        judge=judge,
        needs=needs,
    )
    for says, judge, needs in (
        ("With one head VCL remembers barely more than SGD.", _barely, MNIST),
        ("A head a task helps SGD as it helps VCL.", _heads_help_both, MNIST),
        ("At equal steps and a head a task, VCL is not clearly ahead of SGD in final accuracy.", _equal_steps, MNIST),
        ("A hundred full-batch steps forget less than five thousand steps of 256 points.", _few_steps, MNIST),
        ("In those hundred steps VCL keeps the first task, and SGD loses a part and regains some.", _first_task, MNIST),
        ("The public code's logged run lies above our mean and within the range of our seeds.", _near_log, MNIST),
        (
            "On both toy sets VCL with one head ends above SGD, by a small part of what joint training has more.",
            _toys,
            TOY,
        ),
        ("A head a task helps SGD clearly on the circle only.", _sgd_heads_on_toys, TOY),
    )
)
