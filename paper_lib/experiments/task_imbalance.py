r"""Does a larger second task make a learner forget the first? In closed form, in the weight filter, and in networks.

In networks the stream is the first two tasks of a data set with one head for both, and three designs tell apart what a
ratio of sizes mixes up (``run``):

- ``larger task 2, same passes``: n_1 stays, n_2 grows, and with it the number of updates, as it does in practice.
- ``larger task 2, same updates``: n_1 stays, n_2 grows, the number of updates does not.
- ``smaller task 1, same updates``: n_2 stays, n_1 shrinks. A prior that stands for fewer points should give way.

Where both tasks have the same size the three are one run. Every seed draws its own points of each task, a smaller
choice inside the larger ones, so runs of a seed are paired.

The other functions are exact: what one or two weights remember of a task after the next, and the steps of Section 5
and Appendix G beside a simulation or a numerical integral.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from paper_lib import runs
from paper_lib.checks import one_of, some_of
from paper_lib.data.stream import DATASETS, Spec, Task
from paper_lib.inference.gaussian import Gaussian, condition_on
from paper_lib.inference.kalman import (
    WeightBelief,
    condition_weights,
    linearise,
    predict_weights,
    stationary_var,
    transition_var,
    weight_targets,
)
from paper_lib.methods import Learned, Method, State, unreported
from paper_lib.methods.replay import joint, sgd
from paper_lib.methods.vcl import VCL
from paper_lib.metrics import paired_difference
from paper_lib.rng import generator

VERSION = 1
ROWS = ("sgd", "vcl", "joint")
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

    def learn(self, state: State, task: Task, report: Callable[[State, float], None] = unreported) -> Learned:
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


# --- one weight and two, in closed form

TARGETS = (1.0, -1.0)
"""What a point of task 1 and one of task 2 are observed to be, before noise."""


def one_weight(
    num_first: Sequence[int],
    max_ratio: float,
    reversion: float = 0.0,
    eta_var: float = 0.0,
    noise_var: float = 1.0,
    prior_var: float = 1e6,
) -> pd.DataFrame:
    """What a weight that is observed directly remembers of task 1 while points of task 2 come in.

    Source: Kessler et al. 2023, Lemma 1. The posterior mean is linear in the targets, so a task's share in it is the
    mean for targets that are 1 in that task and 0 in the other. The noise is left at its mean, zero.

    Args:
        num_first: numbers of points of task 1, each a curve.
        max_ratio: points of task 2 come in until they are so many times those of task 1.
        reversion: Ornstein-Uhlenbeck speed h.
        eta_var: variance of its step.
        noise_var: variance of an observation.
        prior_var: variance before any data, about 0.

    Returns:
        Columns ``num_first, num_second, ratio, share_1, share_2, error``; ``error`` is the distance of the mean from
        the target of task 1 over the distance of the two targets.
    """
    one = torch.ones((), dtype=torch.float64)

    def step(belief: WeightBelief, target: Tensor) -> WeightBelief:
        return condition_weights(predict_weights(belief, reversion, eta_var), one, target, noise_var)

    in_task = torch.eye(2, dtype=torch.float64)
    belief = WeightBelief(torch.zeros(2, dtype=torch.float64), torch.full((2,), prior_var, dtype=torch.float64))
    starts = {}
    for number in range(1, max(num_first) + 1):
        belief = step(belief, in_task[0])
        starts[number] = belief
    belief = WeightBelief(*(torch.stack(leaf) for leaf in zip(*(starts[n] for n in num_first), strict=True)))
    rows = []
    for number in range(round(max_ratio * max(num_first)) + 1):
        if number:
            belief = step(belief, in_task[1])
        for n, (share_1, share_2) in zip(num_first, belief.mean.tolist(), strict=True):
            if number <= max_ratio * n:
                mean = share_1 * TARGETS[0] + share_2 * TARGETS[1]
                error = abs(mean - TARGETS[0]) / abs(TARGETS[0] - TARGETS[1])
                rows.append((n, number, number / n, share_1, share_2, error))
    return pd.DataFrame(rows, columns=["num_first", "num_second", "ratio", "share_1", "share_2", "error"])


def two_weights(
    degrees: float,
    covariance: str,
    num_first: int,
    max_ratio: float,
    noise_var: float = 1.0,
    prior_var: float = 100.0,
) -> pd.DataFrame:
    """What two weights remember of task 1, if the tasks read them out along different directions.

    Args:
        degrees: angle between the gradients of the two tasks, both of length 1.
        covariance: ``full``, or ``independent``: after each point the weights are taken as uncorrelated.
        num_first: points of task 1.
        max_ratio: points of task 2 come in until they are so many times those of task 1.
        noise_var: variance of an observation.
        prior_var: variance of each weight before any data, about 0.

    Returns:
        Columns ``num_second, ratio, error``, ``error`` as ``one_weight``'s for the output of task 1.
    """
    one_of("covariance", covariance, ("full", "independent"))
    angles = torch.deg2rad(torch.tensor([20.0, 20.0 + degrees], dtype=torch.float64))
    gradients = torch.stack([angles.cos(), angles.sin()], dim=1)
    state = Gaussian(torch.zeros(2, dtype=torch.float64), prior_var * torch.eye(2, dtype=torch.float64))
    noise = noise_var * torch.eye(1, dtype=torch.float64)
    rows = []
    for number in range(1, round((1 + max_ratio) * num_first) + 1):
        task = int(number > num_first)
        state, _ = condition_on(state, torch.tensor([TARGETS[task]]).double(), gradients[task : task + 1], noise)
        if covariance == "independent":
            state = Gaussian(state.mean, state.cov.diagonal().diag())
        if number >= num_first:
            second = number - num_first
            error = abs(float(gradients[0] @ state.mean) - TARGETS[0]) / abs(TARGETS[0] - TARGETS[1])
            rows.append((second, second / num_first, error))
    return pd.DataFrame(rows, columns=["num_second", "ratio", "error"])


# --- the steps of Section 5 and Appendix G, each beside another route


def transitions(
    num_weights: int = 5, reversion: float = 0.2, eta_var: float = 0.3, num_draws: int = 20_000, seed: int = 0
) -> pd.DataFrame:
    """Variance of the step of each weight's optimum: both formulas, and a simulation.

    Source: Kessler et al. 2023, eq:transition_dynamics. Weights of a random quadratic loss take one Ornstein-Uhlenbeck
    step. The optimum of each, before and after, is where autograd's slope is zero, so no formula for it is used.

    Returns:
        Columns ``weight, corrected, printed, simulated, se``.
    """
    g = generator(seed, "transitions")
    root, theta = (torch.randn(n, num_weights, generator=g, dtype=torch.float64) for n in (num_weights, 1))
    hessian = root @ root.mT + 0.1 * torch.eye(num_weights, dtype=torch.float64)
    noise = torch.randn(num_draws, num_weights, generator=g, dtype=torch.float64)
    moved = (1 - reversion) * theta + eta_var**0.5 * noise
    steps = optimum_by_slope(hessian, moved) - (1 - reversion) * optimum_by_slope(hessian, theta)
    squares = steps.square()  # the step's mean is zero
    return pd.DataFrame(
        {
            "weight": np.arange(1, num_weights + 1),
            "corrected": transition_var(hessian, eta_var),
            "printed": transition_var(hessian, eta_var, "printed"),
            "simulated": squares.mean(0),
            "se": squares.std(0) / num_draws**0.5,
        }
    )


def optimum_by_slope(hessian: Tensor, theta: Tensor) -> Tensor:
    """For each weight where autograd's slope of ``-theta' H theta / 2`` is zero, the others held ``(..., weight)``.

    The slope along a coordinate is a line, so two of its values say where it is zero.
    """

    def slope(points: Tensor, i: int) -> Tensor:
        points = points.detach().requires_grad_()
        loss = -0.5 * torch.einsum("...i,ij,...j->", points, hessian, points)
        return torch.autograd.grad(loss, points)[0][..., i]

    optima = []
    for i in range(theta.shape[-1]):
        at = theta.expand(2, *theta.shape).clone()
        at[0, ..., i], at[1, ..., i] = 0.0, 1.0
        low, high = slope(at, i)
        optima.append(low / (low - high))
    return torch.stack(optima, dim=-1)


def variance_without_data(
    reversion: float = 0.05, eta_var: float = 0.1, num_steps: int = 60, num_draws: int = 4000, seed: int = 0
) -> pd.DataFrame:
    """Prior variance of a weight over steps without data, by the corrected and the printed exponent and simulated.

    Source: Kessler et al. 2023, App. G, the prior variance of the next step.

    Returns:
        Columns ``step, corrected, printed, simulated, limit``; all begin at variance 1.
    """
    g = generator(seed, "variance without data")
    start = WeightBelief(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    corrected = printed = start
    weights = torch.randn(num_draws, generator=g, dtype=torch.float64)
    limit = stationary_var(reversion, eta_var)
    rows = []
    for number in range(num_steps + 1):
        rows.append((number, float(corrected.var), float(printed.var), float(weights.var()), limit))
        corrected = predict_weights(corrected, reversion, eta_var)
        printed = predict_weights(printed, reversion, eta_var, "printed")
        noise = torch.randn(num_draws, generator=g, dtype=torch.float64)
        weights = (1 - reversion) * weights + eta_var**0.5 * noise
    return pd.DataFrame(rows, columns=["step", "corrected", "printed", "simulated", "limit"])


def lemma_1(
    num_steps: int = 25, reversion: float = 0.05, eta_var: float = 0.02, noise_var: float = 0.05, seed: int = 0
) -> pd.DataFrame:
    """One weight of a 2-4-1 tanh network followed over observations, by Lemma 1 and by numerical integration.

    Source: Kessler et al. 2023, eq:bnn_kf_mean_app and eq:bnn_kf_variance_app. All other weights are known. The numbers
    come from Bayes' rule and the transition on a grid of the weight's values, once with the network linearised at
    theta_0 = 0.5 as the lemma does and once with the network itself.

    Returns:
        Columns ``route, time, mean, sd, truth``; routes ``lemma``, ``printed target`` (y where the linearisation asks
        for y less its constant), ``linearised, by integration`` and ``network, by integration``.
    """
    g = generator(seed, "lemma 1")
    theta = torch.randn(17, generator=g, dtype=torch.float64)
    x = torch.randn(num_steps, 2, generator=g, dtype=torch.float64)
    which, grid = 0, torch.linspace(-4, 4, 1601, dtype=torch.float64)
    theta[which] = 0.5

    def network(weights: Tensor, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(inputs @ weights[:8].reshape(2, 4) + weights[8:12])
        return hidden @ weights[12:16] + weights[16]

    def with_weight(value: Tensor) -> Tensor:
        return torch.cat([theta[:which], value[None], theta[which + 1 :]])

    outputs = torch.vmap(lambda value: network(with_weight(value), x))(grid).mT
    truth, y = [torch.tensor(1.0, dtype=torch.float64)], []
    for x_t in x:
        step, noise = torch.randn(2, generator=g, dtype=torch.float64)
        truth.append((1 - reversion) * truth[-1] + eta_var**0.5 * step)
        y.append(network(with_weight(truth[-1]), x_t) + noise_var**0.5 * noise)
    y = torch.stack(y)

    lin = linearise(network, theta, x)
    gradient = lin.gradient[:, which]
    targets = weight_targets(lin, y)[:, which]
    found = {
        "lemma": _filtered(gradient, targets, reversion, eta_var, noise_var),
        "printed target": _filtered(gradient, y, reversion, eta_var, noise_var),
        "linearised, by integration": _integrated(
            grid, lin.value[:, None] + gradient[:, None] * (grid - theta[which]), y, reversion, eta_var, noise_var
        ),
        "network, by integration": _integrated(grid, outputs, y, reversion, eta_var, noise_var),
    }
    tables = [
        pd.DataFrame({"time": np.arange(1, num_steps + 1), "mean": mean, "sd": var.sqrt(), "truth": truth[1:]}).assign(
            route=route
        )
        for route, (mean, var) in found.items()
    ]
    return pd.concat(tables, ignore_index=True).astype({"truth": float})


def _filtered(
    gradient: Tensor, targets: Tensor, reversion: float, eta_var: float, noise_var: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance after each observation by Lemma 1, from a standard normal."""
    belief = WeightBelief(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    beliefs = []
    for g, target in zip(gradient, targets, strict=True):
        belief = condition_weights(predict_weights(belief, reversion, eta_var), g, target, noise_var)
        beliefs.append(belief)
    return tuple(torch.cat(leaf) for leaf in zip(*beliefs, strict=True))


def _integrated(
    grid: Tensor, outputs: Tensor, y: Tensor, reversion: float, eta_var: float, noise_var: float
) -> tuple[Tensor, Tensor]:
    """The same by sums over a grid of the weight's values; ``outputs`` ``(time, grid)``."""
    transition = (-(grid[:, None] - (1 - reversion) * grid).square() / (2 * eta_var)).softmax(0)
    weight = (-grid.square() / 2).softmax(0)
    moments = []
    for output, y_t in zip(outputs, y, strict=True):
        log_likelihood = -(y_t - output).square() / (2 * noise_var)
        weight = (log_likelihood + (transition @ weight).log()).softmax(0)
        mean = weight @ grid
        moments.append((mean, weight @ (grid - mean).square()))
    return tuple(torch.stack(leaf) for leaf in zip(*moments, strict=True))
