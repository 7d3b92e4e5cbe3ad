"""Figure 1 and Table 1's VCL rows: what a posterior handed from task to task remembers, with one head and with many.

The figure mixes scenarios: networks with one head are trained domain-incrementally, networks with a head a task
task-incrementally. Table 1 is class-incremental. So each row knows the scenarios that its heads can serve, and takes
the first of them unless the configuration names another.

No code was released for these rows. Settings are those of VCL in the public S-FSVI code (Rudner et al. 2022) on the
paper's network with the paper's coresets, and pixels are in [0, 1] as there. Rows take batches of 256, about five
thousand steps a task on Split-MNIST, and begin as PyTorch's layers do, but ``vcl_multi_head_reference``: as that code's
run with a head a task on Split-MNIST it takes all of a task's points a step, a hundred steps, and begins at larger
weights; five of its seeds together take 1.8 GB, so ten are best run in two pieces. ``vcl_ddm`` and ``vcl_improved`` are
the recipes of Nguyen et al. and Swaroop et al. with their own networks. SGD takes ten epochs a task on Split-MNIST; its
rows ``_long`` and ``_reference`` take the epochs and batches of VCL's rows with these heads, so that SGD and VCL are
also compared at as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, runs
from paper_lib.checks import one_of, some_of, within
from paper_lib.data.stream import SCENARIOS
from paper_lib.methods import Method
from paper_lib.methods.replay import joint, sgd, single_task
from paper_lib.methods.vcl import VCL, ddm, improved

VERSION = 1
PRESETS = ("quick", "paper")
NUM_SEEDS = 10
"""Seeds of the paper's figures and table."""

ONE_HEAD, HEAD_A_TASK = ("domain_incremental", "class_incremental"), ("task_incremental",)
LAYOUTS = {
    "sgd_single_head": ONE_HEAD,
    "sgd_single_head_long": ONE_HEAD,
    "vcl_single_head": ONE_HEAD,
    "vcl_coreset": (*ONE_HEAD, *HEAD_A_TASK),
    "vcl_coreset_k_centre": (*ONE_HEAD, *HEAD_A_TASK),
    "sgd_multi_head": HEAD_A_TASK,
    "sgd_multi_head_long": HEAD_A_TASK,
    "sgd_multi_head_reference": HEAD_A_TASK,
    "vcl_multi_head": HEAD_A_TASK,
    "vcl_multi_head_reference": HEAD_A_TASK,
    "vcl_ddm": HEAD_A_TASK,
    "vcl_improved": HEAD_A_TASK,
    "single_task": (*ONE_HEAD, *HEAD_A_TASK),
    "joint": (*ONE_HEAD, *HEAD_A_TASK),
}
"""Rows, and the scenarios that each serves, its own in Figure 1 first. Coresets and bounds go with the heads that their
scenario asks for."""
ROWS = tuple(LAYOUTS)
BOUNDS = ("single_task", "joint")
SAME_STEPS = {
    "sgd_single_head_long": "vcl_single_head",
    "sgd_multi_head_long": "vcl_multi_head",
    "sgd_multi_head_reference": "vcl_multi_head_reference",
}
"""Rows of SGD that take the epochs and batches of a row of VCL."""
RECIPES = {"vcl_ddm": ddm, "vcl_improved": improved}

DATASETS = {
    "split_digits": {"hidden": (64,)},
    "split_mnist": {},
    "split_fmnist": {},
    "toy_pan": {"hidden": (10, 10)},
    "toy_gaussians": {"hidden": (10, 10)},
}
"""Widths where they are not the paper's two layers of 200."""

DIGITS_VCL = {"epochs": 30, "batch_size": 64, "learning_rate": 1e-2, "num_samples": 2, "num_samples_predict": 20}
TOY_VCL = {"batch_size": None, "learning_rate": 3e-2, "num_samples": 3, "coreset_per_task": 40}
VCL_SETTINGS: dict[str, dict[str, Any]] = {
    "split_digits": {**DIGITS_VCL, "coreset_per_task": 50},
    "toy_pan": {**TOY_VCL, "epochs": 1000, "restart": False},
    "toy_gaussians": {**TOY_VCL, "epochs": 500, "restart": True},
}
"""VCL's settings where they differ from the reference's, its defaults. Coresets hold 200 points elsewhere. The toys'
learning rate and where a task starts are chosen on validation data (``experiments/vcl_toy_tuning.py``)."""

SGD_SETTINGS: dict[str, dict[str, Any]] = {
    "split_digits": {"epochs": 20, "batch_size": 32},
    "toy_pan": {"epochs": 200, "learning_rate": 1e-2},
    "toy_gaussians": {"epochs": 50, "learning_rate": 1e-2},
}
"""Settings of SGD and of the bounds where they differ from Adam at 1e-3, batches of 128 and 10 epochs."""

QUICK_EPOCHS = {"vcl": {"split_digits": 30, "toy_pan": 200, "toy_gaussians": 100}, "sgd": {"split_digits": 20}}
"""Epochs of the quick preset; elsewhere 2 for VCL, and for SGD and the bounds what the paper preset has, up to 50."""


@dataclass(frozen=True)
class Config:
    """Parameters of the notebook and of ``paper-lib run vcl_split_mnist``.

    Attributes:
        dataset: stream of tasks.
        scenario: which units compete, and whether the task is named; None for each row's own in Figure 1.
        preset: ``quick`` for a look (seconds on digits), ``paper`` for the reference's epochs.
        seeds: seeds that advance together.
        device: ``cpu`` or ``cuda:0``.
        methods: rows to run.
        epochs: passes over each task; None for the preset's.
        batch_size: points a step; None for the preset's.
        learning_rate: of Adam; None for the preset's.
        coreset_per_task: points that the rows with a coreset keep of each task; None for the preset's.
    """

    dataset: str = "split_digits"
    scenario: str | None = None
    preset: str = "quick"
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "cpu"
    methods: tuple[str, ...] = ("sgd_single_head", "vcl_single_head", "sgd_multi_head", "vcl_multi_head", "joint")
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    coreset_per_task: int | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, DATASETS)
        one_of("preset", self.preset, PRESETS)
        some_of("methods", self.methods, ROWS)
        if self.scenario is not None:
            one_of("scenario", self.scenario, SCENARIOS)
        if self.dataset.startswith("toy") and self.scenario == "class_incremental":
            raise ValueError(
                f"scenario='class_incremental' cannot be served by dataset={self.dataset!r}, whose tasks share two "
                "classes; use domain_incremental or task_incremental"
            )
        for row in self.methods:
            if self.scenario not in (None, *LAYOUTS[row]):
                why = (
                    "a head a task, and the scenario does not name the task"
                    if LAYOUTS[row] == HEAD_A_TASK
                    else "one head, and the scenario asks for one a task"
                )
                serving = ", ".join(r for r in ROWS if self.scenario in LAYOUTS[r])
                raise ValueError(
                    f"scenario={self.scenario!r} cannot be served by {row!r}: it has {why}; {row} serves "
                    f"{' or '.join(LAYOUTS[row])}, and {self.scenario} is served by {serving}"
                )
        if self.coreset_per_task is not None:
            kept = [row for row in self.methods if _keeps(row)]
            if not kept:
                there = ", ".join(filter(_keeps, ROWS))
                raise ValueError(
                    f"coreset_per_task={self.coreset_per_task} changes no row of {', '.join(self.methods)}; rows with "
                    f"a coreset are {there}"
                )
            within("coreset_per_task", self.coreset_per_task, 0 if all(row in RECIPES for row in kept) else 1)
        for row in self.methods:
            method(row, self)  # raises for a setting that cannot be


def _keeps(row: str) -> bool:
    """Whether a row keeps a coreset."""
    return row in RECIPES or row.startswith("vcl_coreset")


OVERRIDES = ("epochs", "batch_size", "learning_rate", "coreset_per_task")
"""Fields that replace a preset's value."""


def method(row: str, config: Config) -> Method:
    """The configured method of a row."""
    dataset = config.dataset
    changes = {name: value for name in OVERRIDES if (value := getattr(config, name)) is not None}
    if not _keeps(row):
        changes.pop("coreset_per_task", None)
    quick = QUICK_EPOCHS["vcl"].get(dataset, 2)
    if row in RECIPES:
        chosen: Method = RECIPES[row](**DATASETS[dataset])
    elif row.startswith("vcl"):
        settings = {"coreset_per_task": 200, **DATASETS[dataset], **VCL_SETTINGS.get(dataset, {})}
        if row == "vcl_coreset_k_centre":
            settings["coreset_selection"] = "k_centre"
        if row == "vcl_multi_head_reference":
            settings |= {"batch_size": None, "likelihood_init": "truncated_normal"}
        chosen = VCL(**settings if _keeps(row) else settings | {"coreset_per_task": 0})
    else:
        make = {"joint": joint, "single_task": single_task}.get(row, sgd)
        chosen = make(**DATASETS[dataset], **SGD_SETTINGS.get(dataset, {}))
        if row in SAME_STEPS:
            like = method(SAME_STEPS[row], Config(dataset, preset="paper"))
            chosen = replace(chosen, epochs=like.epochs, batch_size=like.batch_size)
        else:
            quick = QUICK_EPOCHS["sgd"].get(dataset, min(chosen.epochs, 50))
    if config.preset == "quick":
        changes.setdefault("epochs", quick)
    return replace(chosen, **changes)


def jobs(config: Config) -> list[runs.Job]:
    """One job a row."""
    plain, chosen = replace(config, **dict.fromkeys(OVERRIDES)), []
    for row in config.methods:
        stream = {"dataset": config.dataset, "scenario": config.scenario or LAYOUTS[row][0], "scaling": "unit"}
        mine = method(row, config)
        preset = config.preset if mine == method(row, plain) else f"{config.preset}+overrides"
        chosen.append(runs.Job("vcl_split_mnist", VERSION, row, mine, stream, preset))
    return chosen


def run(config: Config) -> pd.DataFrame:
    """Scores of every row, seed and pair of tasks, as a tidy table."""
    return runs.execute(jobs(config), config.seeds, config.device)


def matrices(table: pd.DataFrame) -> dict[str, NDArray]:
    """Accuracy matrices ``(seed, task_trained, task_tested)`` of every row of a table of one data set."""
    found = metrics.matrices_by_method(table)
    return {row: found[row] for row in ROWS if row in found}


def curves(table: pd.DataFrame) -> dict[str, NDArray]:
    """Average accuracy ``P_k`` over the tasks so far, ``(seed, task)``, of every row of a table of one data set."""
    return {row: metrics.average_accuracy(a) for row, a in matrices(table).items()}


def by_heads(curves: dict[str, NDArray]) -> dict[str, dict[str, NDArray]]:
    """Curves of Figure 1 in two groups, rows with one head and rows with a head a task, the bounds in both."""
    many = {row: c for row, c in curves.items() if LAYOUTS[row] == HEAD_A_TASK}
    bounds = {row: c for row, c in curves.items() if row in BOUNDS}
    one = {row: c for row, c in curves.items() if row not in many and row not in bounds}
    return {"one head": one | bounds, "a head a task": many | bounds}


def stored(dataset: str) -> pd.DataFrame:
    """The stored runs at paper scale of a data set in each row's own scenario, as in Figure 1; none where none are."""
    try:
        table = runs.stored("vcl_split_mnist")
    except FileNotFoundError:
        return pd.DataFrame(columns=runs.COLUMNS)
    own = table.method.map({row: served[0] for row, served in LAYOUTS.items()})
    return table[(table.dataset == dataset) & (table.preset == "paper") & (table.scenario == own)]


def class_incremental(seeds: Sequence[int], device: str = "cpu") -> dict[str, NDArray]:
    """Accuracy matrices of the quick class-incremental runs on digits, with one head and of the joint bound."""
    methods = ("sgd_single_head", "vcl_single_head", "joint")
    return matrices(run(Config(scenario="class_incremental", methods=methods, seeds=tuple(seeds), device=device)))


def by_dataset(summary: Callable[[pd.DataFrame], pd.DataFrame], datasets: Sequence[str]) -> pd.DataFrame:
    """A summary (``scores`` or ``statements``) of the stored runs of several data sets, of those that have any."""
    parts = {name: summary(stored(name)) for name in datasets}
    parts = {name: part for name, part in parts.items() if not part.empty}
    return pd.concat(parts, names=["dataset"]) if parts else pd.DataFrame()


SCORES = {"P_T": metrics.final_accuracy, "triangle": metrics.triangle_mean, "learned": metrics.learning_accuracy}
"""Columns of the tables below: scores of accuracy matrices, one a seed."""


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """Each row of a table of one data set, percent.

    Returns:
        A line a row: ``mean``, ``sd`` and ``se`` of the final accuracy ``P_T``, mean and sd of the ``triangle`` mean;
        final forgetting ``F_T`` and ``learned``, the accuracy on a task just learned; ``n`` seeds; ``scale``, ``paper``
        or ``reduced`` (fewer seeds or epochs); and ``scenario``.
    """
    scenario = dict(zip(table.method, table.scenario, strict=True))
    full = set(table[table.preset == "paper"].method)
    lines = {}
    for row, a in matrices(table).items():
        final, triangle, learned = (metrics.summarise(100 * score(a)) for score in SCORES.values())
        lost = metrics.summarise(100 * metrics.forgetting(a)[..., -1])
        lines[row] = {
            **{("P_T", "mean"): final.mean, ("P_T", "sd"): final.sd, ("P_T", "se"): final.se},
            **{("triangle", "mean"): triangle.mean, ("triangle", "sd"): triangle.sd},
            **{("F_T", ""): lost.mean, ("learned", ""): learned.mean, ("n", ""): final.n},
            ("scale", ""): "paper" if row in full and final.n >= NUM_SEEDS else "reduced",
            ("scenario", ""): scenario[row].removesuffix("_incremental"),
        }
    return _two_levels(lines, "method")


def _two_levels(lines: dict[str, dict[tuple[str, str], object]], index: str) -> pd.DataFrame:
    """A table of lines whose columns have two levels; without any if there are no lines."""
    table = pd.DataFrame.from_dict(lines, orient="index").rename_axis(index=index)
    return table.set_axis(pd.MultiIndex.from_tuples(table.columns), axis=1) if lines else table


STATEMENTS = (
    ("vcl_single_head", "sgd_single_head", "one head: VCL over SGD"),
    ("vcl_single_head", "sgd_single_head_long", "one head: VCL over SGD, as long"),
    ("joint", "vcl_single_head", "joint over VCL with one head"),
    ("vcl_multi_head", "vcl_single_head", "VCL: a head a task over one"),
    ("sgd_multi_head", "sgd_single_head", "SGD: a head a task over one"),
    ("vcl_multi_head", "sgd_multi_head", "a head a task: VCL over SGD"),
    ("vcl_multi_head", "sgd_multi_head_long", "a head a task: VCL over SGD, as long"),
    ("vcl_multi_head_reference", "sgd_multi_head_reference", "reference: VCL over SGD"),
    ("vcl_multi_head_reference", "vcl_multi_head", "VCL: reference over 256 a batch"),
    ("sgd_multi_head_reference", "sgd_multi_head_long", "SGD: reference over 256 a batch"),
)
"""What Figure 1 compares: a row, the row that it is held against, and the comparison in words."""


def statements(table: pd.DataFrame) -> pd.DataFrame:
    """Differences in percentage points, paired over common seeds, for what a table's rows allow.

    Returns:
        A line a comparison: under ``P_T`` and ``triangle``, for the final accuracy and the triangle mean, the ``mean``
        difference and its 95 % interval from ``lower`` to ``upper``; and ``n`` seeds.
    """
    compared = ("P_T", "triangle")
    values: dict[tuple[str, str], dict[int, float]] = {}
    for row, part in table.groupby("method"):
        seeds, a = metrics.accuracy_matrices(part)
        for name in compared:
            values[row, name] = dict(zip(seeds, 100 * SCORES[name](a), strict=True))
    lines = {}
    for row, other, words in STATEMENTS:
        common = values.get((row, "P_T"), {}).keys() & values.get((other, "P_T"), {}).keys()
        if len(common) > 1:
            lines[words] = line = {}
            for name in compared:
                paired = metrics.paired_difference(*({s: values[r, name][s] for s in common} for r in (row, other)))
                line |= {(name, "mean"): paired.mean, (name, "lower"): paired.lower, (name, "upper"): paired.upper}
            line["n", ""] = len(common)
    return _two_levels(lines, "comparison")


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
        A line a row that has both, in the log's scenario: the final accuracy ``P_T``, the ``triangle`` mean and
        ``learned``, the accuracy on a task just learned, each with the ``mean`` over seeds and the logged run's value,
        ``log``, and ``P_T`` with the ``lowest`` and ``highest`` seed's; and ``n`` seeds.
    """
    lines = {}
    table = table[(table.dataset == "split_mnist") & (table.preset == "paper")]
    for (row, scenario), log in PUBLIC_LOGS.items():
        part = table[(table.method == row) & (table.scenario == scenario)]
        if part.empty:
            continue
        a = 100 * metrics.accuracy_matrices(part)[1]
        theirs = np.zeros((len(log), len(log)))
        theirs[np.tril_indices(len(log))] = np.concatenate(log)
        lines[row] = line = {}
        for name, score in SCORES.items():
            ours = score(a)
            line[name, "mean"] = ours.mean()
            if name == "P_T":
                line |= {(name, "lowest"): ours.min(), (name, "highest"): ours.max()}
            line[name, "log"] = float(score(theirs))
        line["n", ""] = len(a)
    return _two_levels(lines, "method")


PAPER = {
    ("vcl_single_head", "split_mnist"): (33.01, 0.08),
    ("vcl_single_head", "split_fmnist"): (32.77, 1.25),
    ("vcl_coreset", "split_mnist"): (52.98, 18.56),
    ("vcl_coreset", "split_fmnist"): (61.12, 16.96),
}
"""Kessler et al. 2023, Table 1, percent; the second number is called a standard error over 10 seeds."""
