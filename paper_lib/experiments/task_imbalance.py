"""Does a larger second task make a network forget the first? ``analysis.weight_filter`` has the closed forms.

The stream is the first two tasks of a data set with one head for both, and three designs tell apart what a ratio of
sizes mixes up:

- ``larger task 2, same passes``: n_1 stays, n_2 grows, and with it the number of updates, as it does in practice.
- ``larger task 2, same updates``: n_1 stays, n_2 grows, the number of updates does not.
- ``smaller task 1, same updates``: n_2 stays, n_1 shrinks. A prior that stands for fewer points should give way.

Where both tasks have the same size the three are one run. Every seed draws its own points of each task, a smaller
choice inside the larger ones, so runs of a seed are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from paper_lib import runs
from paper_lib.checks import one_of, some_of
from paper_lib.data.stream import DATASETS, Spec, Task
from paper_lib.methods import Method, State, unreported
from paper_lib.methods.replay import joint, sgd
from paper_lib.methods.vcl import VCL
from paper_lib.metrics import paired_difference

VERSION = 1
ROWS = ("sgd", "vcl", "joint")
NAMES = {"sgd": "SGD", "vcl": "VCL", "joint": "joint"}
PRESETS = ("quick", "paper")
SCENARIOS = ("domain_incremental", "class_incremental")
SAME_PASSES, SAME_UPDATES, SMALLER_FIRST = DESIGNS = (
    "larger task 2, same passes",
    "larger task 2, same updates",
    "smaller task 1, same updates",
)


class Settings(NamedTuple):
    """What a preset fixes.

    Attributes:
        num_points: training points of a task that keeps its size.
        ratios: of the sizes, n_2 / n_1.
        num_updates: gradient steps on a task whose updates are fixed.
        batch_size: points a step.
        hidden: widths of the hidden layers.
        learning_rate: of Adam, by method.
        num_samples: Monte Carlo draws of VCL in training.
    """

    num_points: int
    ratios: tuple[float, ...]
    num_updates: int
    batch_size: int
    hidden: tuple[int, ...]
    learning_rate: dict[str, float]
    num_samples: int


SETTINGS = {
    "quick": Settings(50, (0.2, 1.0, 5.0), 100, 10, (64,), {"sgd": 2e-3, "joint": 2e-3, "vcl": 2e-2}, 1),
    "paper": Settings(1000, (0.1, 0.3, 1.0, 3.0, 10.0), 600, 50, (100,), {"sgd": 1e-3, "joint": 1e-3, "vcl": 1e-2}, 1),
}
"""Settings of the presets; the paper has no experiment here, so all of them are ours."""


@dataclass(frozen=True)
class Config:
    """Parameters of the notebook and of ``paper-lib run task_imbalance``.

    Attributes:
        dataset: stream whose first two tasks are learned.
        scenario: ``domain_incremental`` (both tasks share two outputs) or ``class_incremental``.
        preset: ``quick`` for a look (seconds on digits), ``paper`` for five ratios on a thousand points.
        seeds: each with its own points, initialisation and order.
        device: ``cpu`` or ``cuda:0``.
        methods: rows to run; ``joint`` is one network fitted to both tasks at once.
        num_points: training points of the task that keeps its size; None for the preset's.
        ratios: sizes n_2 / n_1; None for the preset's.
        num_updates: gradient steps on a task; None for the preset's.
    """

    dataset: str = "split_digits"
    scenario: str = "domain_incremental"
    preset: str = "quick"
    seeds: tuple[int, ...] = (0, 1)
    device: str = "cpu"
    methods: tuple[str, ...] = ROWS
    num_points: int | None = None
    ratios: tuple[float, ...] | None = None
    num_updates: int | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, DATASETS)
        one_of("scenario", self.scenario, SCENARIOS)
        one_of("preset", self.preset, PRESETS)
        some_of("methods", self.methods, ROWS)
        for name in ("num_points", "num_updates"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r} is not at least 1")
        if self.ratios is not None and not all(0 < ratio < float("inf") for ratio in self.ratios):
            raise ValueError(f"ratios={self.ratios!r} must be positive and finite")


PAPER = Config(dataset="split_mnist", preset="paper", seeds=(0, 1, 2, 3, 4))
"""What is stored under ``results/``."""

OVERRIDES = ("num_points", "ratios", "num_updates")
"""Fields that replace a preset's value."""


class Cell(NamedTuple):
    """A point of a design.

    Attributes:
        design: one of ``DESIGNS``.
        ratio: n_2 / n_1.
        sizes: training points of both tasks.
        updates: gradient steps on both tasks.
    """

    design: str
    ratio: float
    sizes: tuple[int, int]
    updates: tuple[int, int]


@dataclass(frozen=True)
class EpochsByTask:
    """A method with its own number of epochs for each task.

    Attributes:
        method: the method, whose ``epochs`` is replaced.
        epochs: passes over each task.
        of: name and version of the method.
    """

    method: Any
    epochs: tuple[int, ...]
    of: tuple[str, int] = field(init=False)

    VERSION: ClassVar[int] = 1

    def __post_init__(self):
        object.__setattr__(self, "of", (type(self.method).__name__, self.method.VERSION))

    def init(self, spec: Spec, seeds: Sequence[int], device: str | torch.device) -> State:
        return self.method.init(spec, seeds, device)

    def learn(
        self, state: State, task: Task, report: Callable[[State, float], None] = unreported
    ) -> tuple[State, dict[str, Tensor]]:
        return replace(self.method, epochs=self.epochs[task.index]).learn(state, task, report)

    def predict(self, state: State, x: Tensor, task_id: int | None = None) -> Tensor:
        return self.method.predict(state, x, task_id)


def settings(config: Config) -> Settings:
    """The preset's settings with the configuration's overrides."""
    changes = {name: getattr(config, name) for name in OVERRIDES if getattr(config, name) is not None}
    return SETTINGS[config.preset]._replace(**changes)


def cells(config: Config) -> list[Cell]:
    """Every design at every ratio.

    >>> [cell.sizes for cell in cells(Config(ratios=(0.5, 2.0)))]
    [(50, 25), (50, 25), (100, 50), (50, 100), (50, 100), (25, 50)]
    """
    s, found = settings(config), []
    for ratio in s.ratios:
        grown, shrunk = (s.num_points, round(ratio * s.num_points)), (round(s.num_points / ratio), s.num_points)
        passes = max(1, round(ratio * s.num_updates))
        found += [
            Cell(SAME_PASSES, ratio, grown, (s.num_updates, passes)),
            Cell(SAME_UPDATES, ratio, grown, (s.num_updates, s.num_updates)),
            Cell(SMALLER_FIRST, ratio, shrunk, (s.num_updates, s.num_updates)),
        ]
    return found


def label(row: str, cell: Cell) -> str:
    """Name of a run: the row, both sizes and, where the row heeds them, the updates on task 2."""
    return "-".join(map(str, (row, *cell.sizes, *(() if row == "joint" else cell.updates[1:]))))


def method(row: str, cell: Cell, config: Config) -> Method:
    """The configured method of a row, its epochs such that each task gets the cell's updates.

    The joint network takes as many steps on both tasks together as the others take on two tasks of fixed updates.
    """
    s = settings(config)
    common = {"hidden": s.hidden, "batch_size": s.batch_size, "learning_rate": s.learning_rate[row]}
    sizes, updates = cell.sizes, cell.updates
    if row == "vcl":
        chosen: Method = VCL(**common, num_samples=s.num_samples, num_samples_predict=10, likelihood_start=False)
    elif row == "sgd":
        chosen = sgd(**common)
    else:
        chosen, sizes, updates = joint(**common), (sizes[0], sum(sizes)), (s.num_updates, 2 * s.num_updates)
    epochs = tuple(max(1, round(u / -(-n // s.batch_size))) for n, u in zip(sizes, updates, strict=True))
    return EpochsByTask(chosen, epochs)


def preset(config: Config) -> str:
    """Name under which a configuration's runs are tabulated."""
    overridden = any(getattr(config, name) is not None for name in OVERRIDES)
    return f"{config.preset}+overrides" if overridden else config.preset


def jobs(config: Config, seed: int) -> list[runs.Job]:
    """One job a row and distinct cell, on a seed's own points."""
    stream = {"dataset": config.dataset, "scenario": config.scenario, "num_tasks": 2, "train_seed": seed}
    distinct = {label(row, cell): (row, cell) for row in config.methods for cell in cells(config)}
    return [
        runs.Job(
            "task_imbalance",
            VERSION,
            name,
            method(row, cell, config),
            stream | {"train_sizes": cell.sizes},
            preset(config),
        )
        for name, (row, cell) in distinct.items()
    ]


def run(config: Config) -> pd.DataFrame:
    """Scores of every row, cell, seed and pair of tasks, as a tidy table."""
    return pd.concat(
        [runs.execute(jobs(config, seed), (seed,), config.device) for seed in config.seeds], ignore_index=True
    )


def by_design(table: pd.DataFrame, config: Config, metric: str = "accuracy") -> pd.DataFrame:
    """Scores of each run in each design that it belongs to.

    Args:
        table: of ``run``, or stored.
        config: its configuration; a run in the table of another configuration is left out.
        metric: which scores.

    Returns:
        Columns ``row, design, ratio, seed, before, task_1, task_2, forgetting``: the score on task 1 after task 1,
        those on both tasks after task 2, and ``before - task_1``.

    Raises:
        ValueError: no run of the configuration is in the table.
    """
    wanted = {"metric": metric, "dataset": config.dataset, "scenario": config.scenario, "preset": preset(config)}
    mine = table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    mine = mine.assign(pair=mine.task_trained.astype(str) + mine.task_tested.astype(str))
    wide = mine.pivot(index=["method", "seed"], columns="pair", values="value")
    known, found = set(wide.index.get_level_values("method")), []
    for row in config.methods:
        for cell in cells(config):
            if label(row, cell) in known:
                scores = wide.loc[label(row, cell)].reset_index()
                found.append(scores.assign(row=row, design=cell.design, ratio=cell.ratio))
    if not found:
        raise ValueError(f"the table has no run on {config.dataset} in {config.scenario} of preset {preset(config)}")
    renamed = pd.concat(found, ignore_index=True).rename(columns={"11": "before", "21": "task_1", "22": "task_2"})
    renamed["forgetting"] = renamed.before - renamed.task_1
    return renamed[["row", "design", "ratio", "seed", "before", "task_1", "task_2", "forgetting"]]


def effect_of_ratio(scores: pd.DataFrame) -> pd.DataFrame:
    """How forgetting changes from the smallest ratio of sizes to equal sizes, and from there to the largest.

    Args:
        scores: of ``by_design``, with a ratio of 1.

    Returns:
        Columns ``row, design, equal_sizes, equal_sizes_sd`` (forgetting at ratio 1) and for both ends ``below`` and
        ``above`` the mean change towards larger ratios, its 95 % interval over seeds ``_low, _high``, and ``n``.
    """
    rows = []
    for (row, design), mine in scores.groupby(["row", "design"], sort=False):
        by = mine.pivot(index="seed", columns="ratio", values="forgetting")
        low, high = by.columns.min(), by.columns.max()
        below, above = paired_difference(by[1.0], by[low]), paired_difference(by[high], by[1.0])
        changes = [value for change in (below, above) for value in (change.mean, change.lower, change.upper)]
        rows.append((row, design, by[1.0].mean(), by[1.0].std(), *changes, below.n))
    columns = ["below", "below_low", "below_high", "above", "above_low", "above_high", "n"]
    return pd.DataFrame(rows, columns=["row", "design", "equal_sizes", "equal_sizes_sd", *columns])


def effect_in_words(effect: pd.DataFrame) -> pd.DataFrame:
    """``effect_of_ratio`` to be read, in points: a row a method and design, changes with their intervals."""
    points = effect.set_index(["row", "design"]).mul(100)
    shown = pd.DataFrame({"method and design": [f"{NAMES[row]}, {design}" for row, design in points.index]})
    shown["equal sizes"] = [f"{r.equal_sizes:.1f} ± {r.equal_sizes_sd:.1f}" for r in points.itertuples()]
    for name, end in (("smallest to equal", "below"), ("equal to largest", "above")):
        columns = points[[end, f"{end}_low", f"{end}_high"]].itertuples(index=False, name=None)
        shown[name] = [f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, low, high in columns]
    return shown
