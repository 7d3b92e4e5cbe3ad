"""Exact inference in a wrong model forgets: a line through two tasks that lie on two lines (Figure 4).

Task 1 is y = x + 1 on [-1, 0) and task 2 is y = -x + 1 on [0, 1], with Gaussian noise. One Bayesian line is updated
from task to task without any approximation. Two mixtures are handed on by variational inference: the mixture of linear
regressors that the paper names, whose weights are the same at every input, and linear experts, each of which also owns
a region of inputs. Performance is measured on points of the same distribution that were not used to fit.

Known limits of the line, for many points: slope 0, intercept 1/2, and an error on either task of 1/12 above the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Distribution

from paper_lib.checks import within
from paper_lib.inference.gaussian import Gaussian
from paper_lib.inference.regression import (
    LinearExperts,
    condition_experts,
    condition_line,
    init_experts,
    line_features,
    predict_experts,
    predict_line,
)
from paper_lib.rng import generator

EXCESS_LIMIT = 1 / 12
"""Excess squared error of the line for both tasks, on each, for many points: the variance of x on an interval of 1."""

UNBOUNDED = 1e-9
"""Precision of an expert's inputs with which its region has no bounds: Bishop 2006, Sec. 14.5.1."""

MODELS = ("line", "mixture", "experts")
"""What is updated from task to task."""

SOURCE = "`papermill notebooks/misspecification.ipynb out.ipynb`\n`python -m pytest tests/test_misspecification.py`"
"""What recomputes the chapter's table, and what holds its claims."""


@dataclass(frozen=True)
class Config:
    """Settings; the paper states none of them.

    Attributes:
        num_points: training points of each task.
        noise_precision: beta, one over the variance of the noise.
        prior_var: variance of the prior on intercept and slope, whose mean is 0.
        num_experts: lines in either mixture.
        x_precision: one over the variance of an expert's inputs; 12 is that of a task's inputs.
        num_restarts: random starts of a mixture's variational inference, of which the best is kept.
        num_iterations: of coordinate ascent from each start.
        num_test: points of each task that performance is measured on.
        seeds: data sets, each with its own points and noise.
    """

    num_points: int = 50
    noise_precision: float = 100.0
    prior_var: float = 1.0
    num_experts: int = 3
    x_precision: float = 12.0
    num_restarts: int = 10
    num_iterations: int = 60
    num_test: int = 2000
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        for name in ("num_points", "num_experts", "num_restarts", "num_iterations", "num_test"):
            within(name, getattr(self, name), 1)
        for name in ("noise_precision", "prior_var", "x_precision"):
            within(name, getattr(self, name), 0, above=True)


class Curve(NamedTuple):
    """A predictive distribution along x.

    Attributes:
        model: one of ``MODELS``.
        task_trained: last task seen, from 1.
        x: ``(grid,)``.
        mean: ``(grid,)``.
        sd: ``(grid,)``, noise included.
    """

    model: str
    task_trained: int
    x: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


class Result(NamedTuple):
    """What ``run`` found.

    Attributes:
        scores: one row a seed, model, task_trained, task_tested and metric (``log_likelihood`` or ``mse``, both means
            over test points); model ``single_task`` is a line fitted to the tested task alone.
        curves: predictive distributions of the first seed.
        data: the first seed's training points of each task, ``x`` and ``y``.
    """

    scores: pd.DataFrame
    curves: tuple[Curve, ...]
    data: tuple[tuple[np.ndarray, np.ndarray], ...]


def change_point_task(
    index: int, num_points: int, noise_precision: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Points of task 0 (y = x + 1 on [-1, 0)) or task 1 (y = -x + 1 on [0, 1]), ``x`` and ``y`` ``(n,)``."""
    x = torch.rand(num_points, generator=rng, dtype=torch.float64) - (1 - index)
    noise = torch.randn(num_points, generator=rng, dtype=torch.float64) / math.sqrt(noise_precision)
    return x, 1 - x.abs() + noise


def run(config: Config) -> Result:
    """Update every model over the two tasks and test each on both, for every seed."""
    rows, curves, data = [], [], []
    grid = torch.linspace(-1.2, 1.2, 241, dtype=torch.float64)
    for seed in config.seeds:
        train, test = (
            [
                change_point_task(task, n, config.noise_precision, generator(seed, "change point", name, task))
                for task in range(2)
            ]
            for name, n in (("train", config.num_points), ("test", config.num_test))
        )
        line = _prior(config)
        regions = _regions(config)
        mixtures = dict.fromkeys(regions, init_experts(line, config.num_experts))
        for trained, (x, y) in enumerate(train):
            line, _ = condition_line(line, line_features(x), y, config.noise_precision)
            for name, prior in mixtures.items():
                known, search = (regions[name], config.noise_precision), (config.num_restarts, config.num_iterations)
                mixtures[name], _ = condition_experts(prior, x, y, *known, generator(seed, "experts", trained), *search)
            alone, _ = condition_line(_prior(config), line_features(x), y, config.noise_precision)
            for tested, (x_test, y_test) in enumerate(test):
                at = _predict(config, line, mixtures, x_test)
                if tested == trained:
                    at["single_task"] = predict_line(alone, line_features(x_test), config.noise_precision)
                rows += [
                    (seed, model, trained + 1, tested + 1, metric, value)
                    for model, predictive in at.items()
                    for metric, value in _score(predictive, y_test).items()
                ]
            if seed == config.seeds[0]:
                data.append((x.numpy(), y.numpy()))
                curves += [
                    Curve(model, trained + 1, grid.numpy(), p.mean.numpy(), p.variance.sqrt().numpy())
                    for model, p in _predict(config, line, mixtures, grid).items()
                ]
    columns = ["seed", "model", "task_trained", "task_tested", "metric", "value"]
    return Result(pd.DataFrame(rows, columns=columns), tuple(curves), tuple(data))


def summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """P_2 and the forgetting of task 1, by seed, model and metric.

    Source: Kessler et al. 2023, eq:metrics:av_performance and eq:metrics:forgetting. Performance is the log likelihood
    or minus the squared error, so that higher is better for both and forgetting is positive.

    Returns:
        Columns ``seed, model, metric, average_performance, forgetting``.
    """
    kept = scores[scores.model != "single_task"]
    sign = np.where(kept.metric == "mse", -1.0, 1.0)
    wide = kept.assign(value=sign * kept.value).pivot_table(
        index=["seed", "model", "metric"], columns=["task_trained", "task_tested"], values="value"
    )
    average = (wide[2, 1] + wide[2, 2]) / 2
    return pd.DataFrame({"average_performance": average, "forgetting": wide[1, 1] - wide[2, 1]}).reset_index()


def on_task_1(scores: pd.DataFrame) -> pd.DataFrame:
    """Each model's scores on task 1 before and after task 2, and how much worse they became; means over data sets.

    Returns:
        Columns ``before, after, forgetting``, indexed by ``metric`` and ``model``.
    """
    first = scores[(scores.task_tested == 1) & (scores.model != "single_task")]
    by = first.groupby(["metric", "model", "task_trained"]).value.mean().unstack()
    sign = np.where(by.index.get_level_values("metric") == "mse", 1.0, -1.0)
    return pd.DataFrame({"before": by[1], "after": by[2], "forgetting": sign * (by[2] - by[1])})


def shown(scores: pd.DataFrame) -> pd.DataFrame:
    """``on_task_1`` to be read, with the spread of forgetting over data sets and the performance on both tasks."""
    by, lines = on_task_1(scores), {}
    each = summarise(scores).groupby(["metric", "model"])
    spread, both = each.forgetting.std(), each.average_performance.mean()
    for metric, name, digits in (("mse", "squared error", 3), ("log_likelihood", "log likelihood (nats a point)", 2)):
        for model in MODELS:
            values = by.loc[metric, model].round(digits) + 0.0  # no minus before a zero
            before, after, lost = (f"{value:.{digits}f}" for value in values)
            sd = spread[metric, model]
            average = both[metric, model] * (-1 if metric == "mse" else 1)
            lines[f"{model}, {name}"] = [
                *(before, after, lost if math.isnan(sd) else f"{lost} ± {sd:.{digits}f}"),
                f"{average:.{digits}f}",
            ]
    columns = ["after task 1", "after task 2", "forgetting ± sd", "both tasks (P_2)"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis(index="on task 1")


def numbers(scores: pd.DataFrame) -> dict[str, float]:
    """What the chapter's prose cites of ``on_task_1``: ``MODEL_COLUMN``, and ``MODEL_nats`` forgotten a point.

    Rounded, as the last digits are the processor's.
    """
    by = on_task_1(scores)
    cited = {f"{model}_{name}": value for model in MODELS for name, value in by.loc["mse", model].items()}
    cited |= {f"{model}_nats": by.forgetting["log_likelihood", model] for model in MODELS}
    return {name: float(f"{value:.10g}") for name, value in cited.items()}


def excess_error(config: Config, num_points: tuple[int, ...], noise_precisions: tuple[float, ...]) -> pd.DataFrame:
    """The line's error on task 1 above the noise, before and after task 2, against the points of a task.

    Test error is integrated over x exactly: with intercept error a and slope error b on [-1, 0) it is
    a^2 - a b + b^2 / 3.

    Every noise level has the same inputs and the same standard noise, scaled.

    Returns:
        Columns ``seed, noise_precision, num_points, task_trained, excess_mse``.
    """
    rows = []
    for seed in config.seeds:
        for precision in noise_precisions:
            for n in num_points:
                line = _prior(config)
                for task in range(2):
                    rng = generator(seed, "excess", task, n)
                    x, y = change_point_task(task, n, precision, rng)
                    line, _ = condition_line(line, line_features(x), y, precision)
                    a, b = (line.mean - 1).tolist()
                    rows.append((seed, precision, n, task + 1, a * a - a * b + b * b / 3))
    return pd.DataFrame(rows, columns=["seed", "noise_precision", "num_points", "task_trained", "excess_mse"])


def _prior(config: Config) -> Gaussian:
    return Gaussian(torch.zeros(2, dtype=torch.float64), config.prior_var * torch.eye(2, dtype=torch.float64))


def _regions(config: Config) -> dict[str, float]:
    """Precision of an expert's inputs in either mixture."""
    return {"mixture": UNBOUNDED, "experts": config.x_precision}


def _predict(config: Config, line: Gaussian, mixtures: dict[str, LinearExperts], x: Tensor) -> dict[str, Distribution]:
    found = {"line": predict_line(line, line_features(x), config.noise_precision)}
    for name, x_precision in _regions(config).items():
        found[name] = predict_experts(mixtures[name], x, x_precision, config.noise_precision)
    return found


def _score(predictive: Distribution, y: Tensor) -> dict[str, float]:
    return {
        "log_likelihood": predictive.log_prob(y).mean().item(),
        "mse": (predictive.mean - y).square().mean().item(),
    }
