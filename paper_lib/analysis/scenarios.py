"""The three scenarios (App. A), what each head layout can serve, and Bayes' rule from task to task (Sec. 2.2).

A stream's labels are output units. A layout of heads serves a scenario if it needs no task identity that the scenario
withholds and gives the classes that must be told apart units of their own.

Recursive Bayes is shown on linear regression, where every posterior is exact: task by task it must end where one pass
over all data ends, and the evidences of the tasks, each given the tasks before, must multiply to that of all data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from paper_lib.checks import one_of, within
from paper_lib.data import vision
from paper_lib.data.stream import SCENARIOS, Spec, make_stream
from paper_lib.inference.gaussian import Gaussian
from paper_lib.inference.regression import condition_line, line_features
from paper_lib.rng import generator

STREAMS = ("auto", "split_digits", "split_mnist", "split_fmnist", "split_cifar10")
LAYOUTS = {
    "one head, units shared by the tasks": "domain_incremental",
    "one head, a unit a class": "class_incremental",
    "a head a task": "task_incremental",
}
"""Layouts of output units, and the scenario whose streams number their labels so."""


@dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        dataset: images to show; ``auto`` is CIFAR-10 as in the paper, or digits where its files are not there.
        num_examples: images shown of each class, 1 to 10.
        num_tasks: tasks of the regression.
        num_points: points of each of its tasks.
        noise_precision: one over the variance of the regression's noise.
        seed: of its data.
    """

    dataset: str = "auto"
    num_examples: int = 3
    num_tasks: int = 5
    num_points: int = 10
    noise_precision: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("dataset", self.dataset, STREAMS)
        within("num_examples", self.num_examples, 1, 10)
        within("num_tasks", self.num_tasks, 1)
        within("num_points", self.num_points, 1)
        within("noise_precision", self.noise_precision, 0, above=True)


class Examples(NamedTuple):
    """What the figure of the scenarios shows.

    Attributes:
        images: ``(task, class, example, height, width)``, or with colours last, of the first two tasks.
        names: of their classes.
        labels: ``(scenario, task, class)``, what is to be predicted.
        titles: the scenarios.
        identified: whether each names the task at test time.
    """

    images: np.ndarray
    names: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[tuple[int, ...], ...], ...]
    titles: tuple[str, ...]
    identified: tuple[bool, ...]


class Recursion(NamedTuple):
    """Linear regression, task by task and all at once.

    Attributes:
        sequential: belief about intercept and slope before the first task and after each, mean ``(task + 1, 2)`` and
            covariance ``(task + 1, 2, 2)``.
        batch: belief after all tasks at once, ``(2,)`` and ``(2, 2)``.
        log_evidence: of each task given the tasks before ``(task,)``, nats.
        batch_log_evidence: of all data at once.
        truth: intercept and slope that made the data ``(2,)``.
    """

    sequential: Gaussian
    batch: Gaussian
    log_evidence: np.ndarray
    batch_log_evidence: float
    truth: np.ndarray


class Result(NamedTuple):
    """What ``run`` found."""

    examples: Examples
    heads: pd.DataFrame
    layouts: pd.DataFrame
    recursion: Recursion


def run(config: Config) -> Result:
    """Example images, both tables and the regression."""
    specs = {scenario: make_stream("split_digits", scenario).spec for scenario in SCENARIOS}
    return Result(examples(config), heads(specs), layouts(specs), recursion(config))


def examples(config: Config) -> Examples:
    """The first images of each class of two tasks, with their labels in each scenario."""
    dataset = config.dataset
    if dataset == "auto":
        there = all(row.state == "present" for row in vision.status("cifar-10"))
        dataset = "split_cifar10" if there else "split_digits"
    stream = make_stream(dataset, "class_incremental")
    units, names = stream.spec.task_units[:2], stream.spec.class_names[:2]
    images = torch.stack(
        [
            torch.stack([task.x[task.y == unit][: config.num_examples] for unit in mine])
            for task, mine in zip(stream.train, units, strict=False)
        ]
    )
    images = images.squeeze(3) if stream.spec.input_shape[0] == 1 else images.movedim(3, -1)
    # A head of its own numbers its classes from 0, as does the shared head; only a unit a class tells tasks apart.
    places = tuple(tuple(range(len(mine))) for mine in units)
    return Examples(
        images.numpy(),
        names,
        tuple(units if scenario == "class_incremental" else places for scenario in SCENARIOS),
        tuple(map(_title, SCENARIOS)),
        tuple(scenario == "task_incremental" for scenario in SCENARIOS),
    )


def heads(specs: dict[str, Spec]) -> pd.DataFrame:
    """For each scenario its output units and how many of them compete for a point.

    Args:
        specs: of one data set in each scenario.
    """
    rows = []
    for scenario, spec in specs.items():
        competing = spec.competing_units()
        most = int(competing.sum(1).max())
        rows.append((_title(scenario), spec.num_units, len(competing.unique(dim=0)), most, f"{100 / most:.0f} %"))
    return pd.DataFrame(rows, columns=["scenario", "output units", "heads", "units a head", "chance"])


def layouts(specs: dict[str, Spec]) -> pd.DataFrame:
    """Which layout of heads (row) can serve which scenario (column), or why it cannot.

    Args:
        specs: of one data set in each scenario.
    """
    rows = [
        (layout, *(refusal(specs[made_for], scenario) or "yes" for scenario in SCENARIOS))
        for layout, made_for in LAYOUTS.items()
    ]
    return pd.DataFrame(rows, columns=["layout", *map(_title, SCENARIOS)])


def refusal(layout: Spec, scenario: str) -> str:
    """Why a layout of heads cannot serve a scenario; empty if it can.

    Args:
        layout: its units by task and which of them compete.
        scenario: what is asked.
    """
    if not layout.competing_units().all() and scenario != "task_incremental":
        return "no, needs the task"
    # Asked for the class itself, two classes on one unit are lost; within a task, or for the class's position in it,
    # it is enough that the classes of each task differ.
    if scenario == "class_incremental":
        classes = [unit for units in layout.task_units for unit in units]
        if len(set(classes)) < len(classes):
            return "no, classes share units"
    return ""


def recursion(config: Config) -> Recursion:
    """Regression on tasks that lie on one line, each from its own stretch of x, in sequence and at once."""
    f64 = torch.float64
    truth = torch.tensor([0.5, -1.0], dtype=f64)
    rng = generator(config.seed, "recursion")
    x = torch.linspace(-2, 2, config.num_tasks * config.num_points, dtype=f64).view(config.num_tasks, -1)
    noise = torch.randn(x.shape, generator=rng, dtype=f64) / math.sqrt(config.noise_precision)
    y = line_features(x) @ truth + noise
    prior = Gaussian(torch.zeros(2, dtype=f64), torch.eye(2, dtype=f64))
    beliefs, evidences = [prior], []
    for x_t, y_t in zip(x, y, strict=True):
        belief, evidence = condition_line(beliefs[-1], line_features(x_t), y_t, config.noise_precision)
        beliefs.append(belief)
        evidences.append(evidence.item())
    batch, batch_evidence = condition_line(prior, line_features(x.flatten()), y.flatten(), config.noise_precision)
    sequential = Gaussian(*(torch.stack(leaf) for leaf in zip(*beliefs, strict=True)))
    return Recursion(sequential, batch, np.array(evidences), batch_evidence.item(), truth.numpy())


def findings(recursion: Recursion) -> str:
    """How far the recursion ends from the batch posterior, in Markdown."""
    mean, cov = (leaf[-1] for leaf in recursion.sequential)
    total, at_once = recursion.log_evidence.sum(), recursion.batch_log_evidence
    gap = max(
        float((mean - recursion.batch.mean).abs().max()),
        float((cov - recursion.batch.cov).abs().max()),
        abs(total - at_once) / max(1.0, abs(at_once)),
    )
    return (
        f"In this run ({len(recursion.log_evidence)} tasks in sequence) the last posterior has intercept {mean[0]:.3f} "
        f"and slope {mean[1]:.3f}, and the log evidences of the tasks add up to {total:.2f} nats. Means, covariances "
        f"and the sum of log evidences differ from those of all data at once by "
        f"{'less than 1e-9' if gap < 1e-9 else f'{gap:.1g}'}."
    )


def _title(scenario: str) -> str:
    return scenario.replace("_", "-")
