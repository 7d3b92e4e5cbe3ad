"""ProtoCL's rows of Tables 1 and 2, with plain replay and the joint bound beside them.

The rows of a run: ``protocl`` is the corrected method with settings chosen on validation data
(``experiments/protocl_tuning.py``), the number of epochs among them; ``protocl_paper_epochs`` the best with the
paper's epochs; ``protocl_as_published`` the release's configuration; ``protocl_no_memory`` the corrected method
without replay; ``replay`` the same memory and tuning budget without prototypes; ``joint`` training on all tasks so far;
``sgd`` training on the current task alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, runs
from paper_lib.checks import one_of, some_of
from paper_lib.data.stream import DATASETS, EVAL_SPLITS, SCENARIOS
from paper_lib.methods import Method
from paper_lib.methods.protocl import ProtoCL, as_published
from paper_lib.methods.replay import Replay, joint, sgd

VERSION = 1
ROWS = (
    *("protocl", "protocl_paper_epochs", "protocl_as_published", "protocl_no_memory"),
    *("replay", "joint", "sgd"),
)
PRESETS = ("quick", "paper")

CIFAR_REPLAY = {"network": "cifarnet", "hidden": (), "epochs": 80}
CIFAR_PROTOCL = CIFAR_REPLAY | {"embedding_dim": 32, "batch_size": 128, "learning_rate": 1e-3}
"""On every CIFAR stream the paper's four convolutions, two linear layers, and epochs."""

TUNED: dict[str, dict[str, dict[str, Any]]] = {
    "protocl": {
        "split_mnist": {
            "batch_size": 64,
            "epochs": 6,
            "learning_rate": 0.0001,
            "dropout": 0.2,
            "weight_decay": 0.001,
            "oversample": True,
            "replay_weight": 4.0,
            "forget": 0.999,
            "evidence_mode": "cumulative",
            "class_prior": "counts",
        },
        "split_fmnist": {
            "batch_size": 128,
            "epochs": 6,
            "learning_rate": 0.0001,
            "dropout": 0.2,
            "weight_decay": 0.0,
            "oversample": True,
            "replay_weight": 4.0,
            "forget": 1.0,
            "evidence_mode": "cumulative",
            "class_prior": "counts",
        },
    },
    "protocl_paper_epochs": {
        "split_mnist": {
            "batch_size": 64,
            "epochs": 50,
            "learning_rate": 0.0001,
            "dropout": 0.2,
            "weight_decay": 0.0001,
            "oversample": True,
            "replay_weight": 1.0,
            "forget": 1.0,
            "evidence_mode": "cumulative",
            "class_prior": "uniform",
        },
        "split_fmnist": {
            "batch_size": 128,
            "epochs": 50,
            "learning_rate": 3e-05,
            "dropout": 0.2,
            "weight_decay": 0.0001,
            "oversample": True,
            "replay_weight": 4.0,
            "forget": 1.0,
            "evidence_mode": "recompute_final",
            "class_prior": "uniform",
        },
    },
    "replay": {
        "split_mnist": {
            "batch_size": 64,
            "epochs": 25,
            "learning_rate": 0.0003,
            "dropout": 0.5,
            "weight_decay": 0.0001,
            "oversample": False,
            "replay_weight": 60.0,
        },
        "split_fmnist": {
            "batch_size": 128,
            "epochs": 25,
            "learning_rate": 0.0003,
            "dropout": 0.5,
            "weight_decay": 0.0001,
            "oversample": False,
            "replay_weight": 60.0,
        },
    },
}
"""What the stored trials chose on Split-MNIST and Split-FMNIST, of all and of those with the paper's epochs."""

DIGITS = {"epochs": 50, "memory_per_task": 50}
PROTOCL: dict[str, dict[str, Any]] = {
    "split_digits": DIGITS | {"hidden": (64,), "embedding_dim": 32, "learning_rate": 1e-3},
    **TUNED["protocl"],
    **dict.fromkeys(("split_cifar10", "split_cifar100", "split_cifar10_100"), CIFAR_PROTOCL),
}
"""ProtoCL's settings of each data set where they differ from the method's."""

REPLAY: dict[str, dict[str, Any]] = {
    "split_digits": DIGITS | {"hidden": (64, 32), "batch_size": 64},
    **TUNED["replay"],
    **dict.fromkeys(("split_cifar10", "split_cifar100", "split_cifar10_100"), CIFAR_REPLAY),
}
"""Replay's settings, likewise; the bounds share its network and batches."""

BOUND_EPOCHS = {"split_digits": 50, "split_mnist": 10, "split_fmnist": 10}
"""Epochs of the joint bound and of SGD; 80 on CIFAR."""

QUICK_EPOCHS = {"split_digits": 20}
"""Epochs of the quick preset; one on every other data set."""


@dataclass(frozen=True)
class Config:
    """Parameters of the notebook and of ``paper-lib run protocl``.

    Attributes:
        dataset: stream of tasks.
        scenario: which units compete, and whether the task is named at test time.
        preset: ``quick`` for a look (seconds on digits), ``paper`` for the size of the paper.
        seeds: seeds that advance together.
        device: ``cpu`` or ``cuda:0``.
        methods: rows to run.
        eval_split: ``test``, or ``validation``: a tenth of the training data, then left out of training.
        epochs: passes over each task; None for the preset's.
        batch_size: points a step; None for the preset's.
        learning_rate: of Adam; None for the preset's.
        weight_decay: L2 term added to the gradient; None for the preset's.
        dropout: rate of dropout; None for the preset's.
        memory_per_task: points kept of each task; None for the preset's.
        evidence_mode: what ProtoCL predicts with; None for the preset's.
        class_prior: ProtoCL's p(y) in predictions; None for the preset's.
        forget: what ProtoCL multiplies its evidence by in every step; None for the preset's.
    """

    dataset: str = "split_digits"
    scenario: str = "class_incremental"
    preset: str = "quick"
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "cpu"
    methods: tuple[str, ...] = ("protocl", "replay", "joint")
    eval_split: str = "test"
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    memory_per_task: int | None = None
    evidence_mode: Literal["cumulative", "recompute_final", "recompute_each_epoch"] | None = None
    class_prior: Literal["counts", "uniform"] | None = None
    forget: float | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, [d for d in DATASETS if d in PROTOCL])
        one_of("scenario", self.scenario, SCENARIOS)
        one_of("preset", self.preset, PRESETS)
        one_of("eval_split", self.eval_split, EVAL_SPLITS)
        some_of("methods", self.methods, ROWS)
        for name in self.methods:
            method(name, self)  # raises for a setting that cannot be


OVERRIDES = tuple(name for name, field in Config.__dataclass_fields__.items() if field.default is None)
"""Fields that replace a preset's value."""


def method(row: str, config: Config) -> Method:
    """The configured method of a row."""
    base = PROTOCL if row.startswith("protocl") else REPLAY
    settings = TUNED.get(row, base).get(config.dataset, base[config.dataset])
    if row == "protocl_as_published":
        chosen: Method = as_published(config.dataset)
    elif row.startswith("protocl"):
        chosen = ProtoCL(**settings)
    else:
        if row in ("joint", "sgd"):
            settings = {k: v for k, v in settings.items() if k in ("hidden", "network", "batch_size")}
            settings["epochs"] = BOUND_EPOCHS.get(config.dataset, 80)
        chosen = {"joint": joint, "sgd": sgd}.get(row, Replay)(**settings)
    changes: dict[str, Any] = {
        name: value for name in OVERRIDES if (value := getattr(config, name)) is not None and hasattr(chosen, name)
    }
    if row in ("joint", "sgd", "protocl_no_memory"):
        changes.pop("memory_per_task", None)
    if config.preset == "quick":
        changes.setdefault("epochs", QUICK_EPOCHS.get(config.dataset, 1))
    if row == "protocl_no_memory":
        changes["memory_per_task"] = 0
    return replace(chosen, **changes)


def jobs(config: Config) -> list[runs.Job]:
    """One job a row."""
    stream = {"dataset": config.dataset, "scenario": config.scenario, "eval_split": config.eval_split}
    held_back = {"validation_fraction": 0.1} if config.eval_split == "validation" else {}
    overridden = any(getattr(config, name) is not None for name in OVERRIDES)
    preset = f"{config.preset}+overrides" if overridden else config.preset
    published = {"validation_fraction": 1 / 6 if config.dataset in ("split_mnist", "split_fmnist") else 0.2}
    return [
        runs.Job(
            "protocl",
            VERSION,
            row,
            method(row, config),
            stream | (published if row == "protocl_as_published" else held_back),
            preset if config.eval_split == "test" else f"{preset}, validation",
        )
        for row in config.methods
    ]


def run(config: Config) -> pd.DataFrame:
    """Scores of every row, seed and pair of tasks, as a tidy table."""
    return runs.execute(jobs(config), config.seeds, config.device)


PAPER = {
    ("protocl", "split_mnist"): (93.73, 1.05),
    ("protocl", "split_fmnist"): (82.73, 1.70),
    ("protocl_as_published", "split_mnist"): (93.73, 1.05),
    ("protocl_as_published", "split_fmnist"): (82.73, 1.70),
    ("protocl_paper_epochs", "split_mnist"): (93.73, 1.05),
    ("protocl_paper_epochs", "split_fmnist"): (82.73, 1.70),
    ("protocl_no_memory", "split_mnist"): (33.25, 0.15),
    ("protocl", "split_cifar10"): (55.81, 2.10),
    ("protocl", "split_cifar100"): (23.96, 1.34),
}
"""Kessler et al. 2023, Tables 1 and 2 and Sec. 6, percent; a second number is called a standard error over 10 seeds."""

PAPER_SEEDS = 10

TARGETS = {
    "split_mnist": {"triangle_mean": 94.0, "final_accuracy": 92.5},
    "split_fmnist": {"triangle_mean": 82.7, "final_accuracy": 79.5},
}
"""What this reproduction set out to reach with the corrected method, percent, written down before it was run."""


def matrices(table: pd.DataFrame) -> dict[str, NDArray]:
    """Accuracy matrices ``(seed, task_trained, task_tested)`` of every row of a table of one data set."""
    found = metrics.matrices_by_method(table)
    return {row: found[row] for row in ROWS if row in found}


def curves(table: pd.DataFrame) -> dict[str, NDArray]:
    """Average accuracy ``P_k`` over the tasks so far, ``(seed, task)``, of every row of a table of one data set."""
    return {row: metrics.average_accuracy(a) for row, a in matrices(table).items()}


def paper_scale(dataset: str) -> pd.DataFrame:
    """The stored class-incremental runs of a data set with the paper's epochs and seeds."""
    stored = runs.stored("protocl")
    chosen = (stored.dataset == dataset) & (stored.preset == "paper") & (stored.scenario == "class_incremental")
    return stored[chosen]


def comparison(dataset: str) -> pd.DataFrame:
    """The paper's numbers beside the stored runs at paper scale, as ``metrics.beside_paper`` shows them."""
    printed = {row: numbers for (row, name), numbers in PAPER.items() if name == dataset}
    return metrics.beside_paper(paper_scale(dataset), printed, ROWS, PAPER_SEEDS, fewer_epochs(dataset))


def fewer_epochs(dataset: str) -> set[str]:
    """Rows with a printed number that are trained for fewer epochs than the paper's, because tuning chose them."""
    paper, config = 80 if "cifar" in dataset else 50, Config(dataset=dataset, preset="paper")
    return {row for row, name in PAPER if name == dataset and method(row, config).epochs < paper}


def targets(dataset: str) -> pd.DataFrame:
    """What the corrected method set out to reach and reached, alone and against replay seed by seed, percent.

    Returns:
        ``target``, ``reached``, ``n`` seeds, and ``met``: ``yes``, ``no``, or ``open`` with too few seeds.
    """
    table = paper_scale(dataset)
    seeds, matrices = metrics.accuracy_matrices(table[table.method == "protocl"])
    scores = {"triangle_mean": metrics.triangle_mean, "final_accuracy": metrics.final_accuracy}
    lines = [
        (name, f">= {value}", value, 100 * scores[name](matrices).mean(), len(seeds))
        for name, value in TARGETS[dataset].items()
    ]
    if "replay" in set(table.method):
        replayed, of_replay = metrics.accuracy_matrices(table[table.method == "replay"])
        common = np.intersect1d(seeds, replayed)
        pair = ((seeds, matrices), (replayed, of_replay))
        paired = metrics.paired_difference(*(metrics.final_accuracy(a[np.isin(own, common)]) for own, a in pair))
        margin = -200 * paired.se
        lines.append(("final_accuracy minus replay's", f">= {margin:.2f} (2 se)", margin, 100 * paired.mean, paired.n))
    return pd.DataFrame(
        [
            {
                **{"what": what, "target": text, "reached": reached, "n": n},
                "met": "open" if n < PAPER_SEEDS else "yes" if reached >= least else "no",
            }
            for what, text, least, reached, n in lines
        ]
    ).set_index("what")
