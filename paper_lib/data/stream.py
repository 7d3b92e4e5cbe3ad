"""Streams of tasks: what a continual-learning method sees, in which order, and what it is asked afterwards.

A data set's classes are dealt to tasks in their natural order. The scenario says which output unit a class owns and
whether the task is named at test time (van de Ven and Tolias 2019; Kessler et al. 2023, App. A):

- ``task_incremental``: a unit a class; the task is named, so only its own units compete (a multi-head network).
- ``domain_incremental``: unit = position of the class inside its task; every task shares those units.
- ``class_incremental``: a unit a class; the task is not named, so all units compete.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from paper_lib.checks import one_of, within
from paper_lib.data import toy, vision
from paper_lib.rng import generator

SCENARIOS = ("task_incremental", "domain_incremental", "class_incremental")


class TooFewPoints(ValueError):
    """A task is asked to keep more points of a class than there are."""


@dataclass(frozen=True)
class Spec:
    """What a method may know before it sees data.

    Attributes:
        dataset: name of the stream, such as ``split_mnist``.
        scenario: one of ``SCENARIOS``.
        input_shape: shape of one input, ``(channels, height, width)`` for images and ``(dim,)`` for toys.
        task_units: for each task the output units that its labels use.
        class_names: for each task the names of its classes, in the order of its units.
        pixel_mean: per channel (or per dimension), subtracted from inputs in [0, 1].
        pixel_sd: per channel (or per dimension), divides after the subtraction.
    """

    dataset: str
    scenario: str
    input_shape: tuple[int, ...]
    task_units: tuple[tuple[int, ...], ...]
    class_names: tuple[tuple[str, ...], ...]
    pixel_mean: tuple[float, ...]
    pixel_sd: tuple[float, ...]

    @property
    def num_tasks(self) -> int:
        return len(self.task_units)

    @property
    def num_units(self) -> int:
        """Width of the output layer."""
        return 1 + max(max(units) for units in self.task_units)

    @property
    def num_inputs(self) -> int:
        """Entries of one flattened input."""
        return int(torch.Size(self.input_shape).numel())

    def competing_units(self) -> Tensor:
        """Which units compete with each unit for a point, bool ``(unit, unit)``.

        All of them, but in the task-incremental scenario only those of a task that owns the unit: a softmax over them
        is a head of its own.
        """
        if self.scenario != "task_incremental":
            return torch.ones((self.num_units, self.num_units), dtype=torch.bool)
        owners = torch.stack([self.task_mask(t) for t in range(self.num_tasks)])
        return (owners[:, :, None] & owners[:, None, :]).any(0)

    def units(self, task_id: int | None) -> list[int]:
        """Output units that a task trains and predicts: its own where it is named, else all.

        Raises:
            ValueError: it is to be named and is not.
        """
        if task_id is None and self.scenario == "task_incremental":
            raise ValueError("task_id=None: in the task_incremental scenario a prediction needs its task")
        return list(self.task_units[task_id] if self.scenario == "task_incremental" else range(self.num_units))

    def places(self, units: Sequence[int]) -> Tensor:
        """Where each output unit is among some ``units``, ``(unit,)``; zero for those that are not."""
        places = torch.zeros(self.num_units, dtype=torch.int64)
        places[list(units)] = torch.arange(len(units))
        return places

    def task_mask(self, task_id: int | None) -> Tensor:
        """``units`` as a mask, bool ``(unit,)``."""
        mask = torch.zeros(self.num_units, dtype=torch.bool)
        mask[self.units(task_id)] = True
        return mask

    def scale(self, x: Tensor) -> Tensor:
        """Standardised float32 inputs from stored ones (uint8 pixels or floats).

        Args:
            x: ``(..., *input_shape)``; uint8 is read as 255ths.

        Returns:
            ``(..., *input_shape)``, float32 (float64 stays float64).
        """
        return self.scaler(x.device)(x)

    def scaler(self, device: str | torch.device) -> Callable[[Tensor], Tensor]:
        """``scale`` with its constants on the device already, for steps that may copy nothing there."""
        tail = (-1,) + (1,) * (len(self.input_shape) - 1)
        byte_mean, byte_factor = (torch.tensor(v, device=device).view(tail) for v in self._affine(255.0))
        mean, factor = (torch.tensor(v, device=device, dtype=torch.float64).view(tail) for v in self._affine(1.0))

        def scale(x: Tensor) -> Tensor:
            if x.dtype == torch.uint8:
                return x.float().sub_(byte_mean).mul_(byte_factor)
            return ((x - mean) * factor).to(x.dtype)

        return scale

    def _affine(self, white: float) -> tuple[list[float], list[float]]:
        return [white * m for m in self.pixel_mean], [1.0 / (white * s) for s in self.pixel_sd]


@dataclass(frozen=True)
class Task:
    """One task's inputs and labels.

    Attributes:
        index: position in the stream, from 0.
        x: ``(n, *input_shape)``, uint8 pixels or floats.
        y: ``(n,)`` int64, the output unit of each point.
    """

    index: int
    x: Tensor
    y: Tensor

    def to(self, device: str | torch.device) -> Task:
        return Task(self.index, self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Stream:
    """Tasks in order, with what evaluates each.

    Attributes:
        spec: what a method may know before it sees data.
        train: training data of each task.
        held_out: the data that each task is evaluated on (test or validation).
        digest: SHA-256 over specification, training and held-out data.
    """

    spec: Spec
    train: tuple[Task, ...]
    held_out: tuple[Task, ...]
    digest: str


@dataclass(frozen=True)
class _Deal:
    """How a stream is dealt: for each task the raw set and its classes; and the scaling called standard.

    A set that is no publisher's file has a reader of its own, and it is then the only one of its stream.
    """

    label: str
    tasks: tuple[tuple[str, range], ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    read: Callable[[], vision.VisionData] | None = None

    def __post_init__(self) -> None:
        finite = all(math.isfinite(m) and 0 < s < math.inf for m, s in zip(self.mean, self.sd, strict=False))
        if not finite or len(self.mean) != len(self.sd):
            raise ValueError(
                f"{self.label}: mean={self.mean} and sd={self.sd} must be finite and equally many, sd positive"
            )


def _in_turn(source: str, num_tasks: int, num_classes: int) -> tuple[tuple[str, range], ...]:
    return tuple((source, range(num_classes * t, num_classes * (t + 1))) for t in range(num_tasks))


# Means and standard deviations are of the training pixels that a stream uses, over 255, each channel by itself; those
# of Fashion-MNIST are the round numbers of the released code (its pixels have mean 0.286 and sd 0.353).
_DEALS = {
    "split_digits": _Deal("digits", _in_turn("digits", 5, 2), (0.3052,), (0.3760,), vision.digits),
    "split_mnist": _Deal("Split-MNIST", _in_turn("mnist", 5, 2), (0.1307,), (0.3081,)),
    "split_fmnist": _Deal("Split-FMNIST", _in_turn("fashion-mnist", 5, 2), (0.5,), (0.5,)),
    "split_cifar10": _Deal(
        "Split-CIFAR10", _in_turn("cifar-10", 5, 2), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    ),
    "split_cifar100": _Deal(
        "Split-CIFAR100", _in_turn("cifar-100", 10, 10), (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    ),
    # The released code's "Split CIFAR-100": CIFAR-10 is the first task, and classes 90 to 99 are left out.
    "split_cifar10_100": _Deal(
        "CIFAR-10, then 90 classes of CIFAR-100",
        (("cifar-10", range(10)), *_in_turn("cifar-100", 9, 10)),
        (0.5003, 0.4851, 0.4440),
        (0.2565, 0.2496, 0.2685),
    ),
    "toy_pan": _Deal("Pan et al.'s toy set", _in_turn("toy_pan", 5, 2), (0.0, 0.0), (1.0, 1.0)),
    "toy_gaussians": _Deal("the toy Gaussians", _in_turn("toy_gaussians", 5, 2), (0.0, 0.0), (1.0, 1.0)),
}
DATASETS = tuple(_DEALS)
LABELS = {name: deal.label for name, deal in _DEALS.items()}
"""Data sets as a chapter calls them."""
NUM_TASKS = {name: len(deal.tasks) for name, deal in _DEALS.items()}
"""Tasks of each stream, where nothing else is asked for."""
EVAL_SPLITS = ("test", "validation")
SCALINGS = ("standard", "unit")

# Blobs, training points and test points a blob. The released code draws 80 a blob of Pan's set, FROMP's code 2,000.
_TOYS = {"toy_pan": (toy.pan, 80, 80), "toy_gaussians": (toy.gaussians, 800, 200)}


def make_stream(
    dataset: str,
    scenario: str = "class_incremental",
    *,
    eval_split: str = "test",
    validation_fraction: float = 0.0,
    validation_seed: int = 0,
    scaling: str = "standard",
    toy_points: int | None = None,
    toy_seed: int = 0,
    num_tasks: int | None = None,
    train_sizes: tuple[int | None, ...] | None = None,
    train_seed: int = 0,
    test_sizes: tuple[int | None, ...] | None = None,
) -> Stream:
    """The stream of a data set in a scenario.

    Source: Kessler et al. 2023, App. A (scenarios) and Sec. 7 (data sets).

    Args:
        dataset: one of ``DATASETS``.
        scenario: one of ``SCENARIOS``.
        eval_split: what tasks are evaluated on, ``test`` or ``validation``.
        validation_fraction: share of each class's training points that is set aside for validation. It is taken out of
            training whichever split is evaluated, so that tuning and the final run train on the same points.
        validation_seed: chooses those points; a run's seeds have no part in it.
        scaling: ``standard`` (zero mean and unit variance as each data set's users do it) or ``unit`` (pixels in
            [0, 1]); toys are never scaled.
        toy_points: training points a blob of a toy set; None for the set's own number (80 or 800).
        toy_seed: of the draws of a toy set.
        num_tasks: how many of the data set's tasks the stream has, from the first; None for all.
        train_sizes: for each task the training points that it keeps, as many of one class as of another (the first
            classes have one more where it does not divide), None for all of them. Test and validation stay whole.
        train_seed: chooses those points; of one seed, a smaller choice is part of every larger one.
        test_sizes: for each task the points that it is evaluated on, balanced as those of ``train_sizes`` are and the
            same in every run, None for all of them.

    Raises:
        ValueError: a name or number that is not allowed, or a scenario that the data set cannot serve.
        DataError: the publisher's files are missing or wrong.

    >>> stream = make_stream("split_digits", "domain_incremental")
    >>> stream.spec.num_tasks, stream.spec.num_units, stream.spec.class_names[1]
    (5, 2, ('2', '3'))
    """
    deal = _DEALS[one_of("dataset", dataset, DATASETS)]
    one_of("scenario", scenario, SCENARIOS)
    one_of("eval_split", eval_split, EVAL_SPLITS)
    one_of("scaling", scaling, SCALINGS)
    if not 0.0 <= validation_fraction < 1.0:
        raise ValueError(f"validation_fraction={validation_fraction!r} is not at least 0 and below 1")
    if eval_split == "validation" and validation_fraction == 0.0:
        raise ValueError("eval_split='validation' needs points set aside: give validation_fraction, such as 0.1")
    if dataset in _TOYS and scenario == "class_incremental":
        raise ValueError(
            f"scenario='class_incremental' makes no sense for {dataset}: all its tasks share the same two classes; "
            "use domain_incremental or task_incremental"
        )
    if toy_points is not None and toy_points < 1:
        raise ValueError(f"toy_points={toy_points!r} is not at least 1")
    if toy_points is not None and dataset not in _TOYS:
        raise ValueError(f"toy_points={toy_points!r} is for {', '.join(_TOYS)}; {dataset} has its points given")
    for name, value, used, purpose in (
        ("validation_seed", validation_seed, validation_fraction > 0, "a part set aside (validation_fraction)"),
        ("train_seed", train_seed, train_sizes is not None, "fewer points (train_sizes)"),
        ("toy_seed", toy_seed, dataset in _TOYS, f"{' and '.join(_TOYS)}, which are drawn"),
    ):
        within(name, value, 0)
        if value and not used:
            raise ValueError(f"{name}={value!r} is for {purpose}; here it would change nothing")
    if num_tasks is not None and not 1 <= num_tasks <= len(deal.tasks):
        raise ValueError(f"num_tasks={num_tasks!r} is not from 1 to {len(deal.tasks)}, the tasks of {dataset}")
    tasks = deal.tasks[:num_tasks]
    sizes, tested = (
        _of_tasks(*pair, len(tasks)) for pair in (("train_sizes", train_sizes), ("test_sizes", test_sizes))
    )

    raw = {source: _raw(deal, source, toy_points, toy_seed) for source in dict.fromkeys(s for s, _ in tasks)}
    units = _units([len(classes) for _, classes in tasks], scenario)
    train_points = _points(tasks, {source: data.y_train for source, data in raw.items()})
    test_points = _points(tasks, {source: data.y_test for source, data in raw.items()})
    train, held_out = [], []
    for index, (source, classes) in enumerate(tasks):
        data = raw[source]
        kept, aside = _set_aside(
            train_points[index], data.y_train, classes, validation_fraction, validation_seed, source
        )
        kept = _keep("train_sizes", kept, data.y_train, classes, sizes[index], (train_seed, "train", source))
        to_unit = units[index][0] - classes.start
        train.append(Task(index, data.x_train[kept], data.y_train[kept] + to_unit))
        if eval_split == "validation":
            x, y, chosen = data.x_train, data.y_train, aside
        else:
            x, y, chosen = data.x_test, data.y_test, test_points[index]
        chosen = _keep("test_sizes", chosen, y, classes, tested[index], (0, "held out", eval_split, source))
        held_out.append(Task(index, x[chosen], y[chosen] + to_unit))
    standard = scaling == "standard"
    if len(deal.mean) != (channels := train[0].x.shape[1]):
        raise ValueError(f"{deal.label}: mean={deal.mean} has {len(deal.mean)} entries for {channels} channels")
    spec = Spec(
        dataset=dataset,
        scenario=scenario,
        input_shape=tuple(train[0].x.shape[1:]),
        task_units=units,
        class_names=tuple(tuple(raw[source].class_names[c] for c in classes) for source, classes in tasks),
        pixel_mean=deal.mean if standard else (0.0,) * len(deal.mean),
        pixel_sd=deal.sd if standard else (1.0,) * len(deal.sd),
    )
    return Stream(spec, tuple(train), tuple(held_out), _digest(spec, train, held_out))


def serves(dataset: str, scenario: str) -> bool:
    """Whether a data set has a scenario: a toy's tasks share their classes, and shared units ask for equal tasks.

    >>> serves("toy_pan", "class_incremental"), serves("split_mnist", "class_incremental")
    (False, True)
    """
    if scenario == "domain_incremental":
        return len({len(classes) for _, classes in _DEALS[dataset].tasks}) == 1
    return not (scenario == "class_incremental" and dataset in _TOYS)


def _raw(deal: _Deal, source: str, toy_points: int | None, toy_seed: int) -> vision.VisionData:
    """Inputs, classes and class names of a set, undealt."""
    if source in _TOYS:
        blobs, num_train, num_test = _TOYS[source]
        num_train = num_train if toy_points is None else toy_points
        names = tuple(f"class {blob % 2} of task {blob // 2 + 1}" for blob in range(10))
        train, test = (toy.sample(blobs(), n, toy_seed, s) for n, s in ((num_train, "train"), (num_test, "test")))
        return vision.VisionData(*train, *test, names)
    return deal.read() if deal.read else vision.load(source)


def _units(sizes: list[int], scenario: str) -> tuple[tuple[int, ...], ...]:
    """The output units of each task, from the tasks' numbers of classes.

    >>> _units([2, 2], "class_incremental"), _units([2, 2], "domain_incremental")
    (((0, 1), (2, 3)), ((0, 1), (0, 1)))
    >>> _units([10, 2], "domain_incremental")
    Traceback (most recent call last):
    ...
    ValueError: scenario='domain_incremental' needs the same number of classes in every task, here [10, 2]
    """
    if scenario == "domain_incremental":
        if len(set(sizes)) > 1:
            raise ValueError(f"scenario={scenario!r} needs the same number of classes in every task, here {sizes}")
        return tuple(tuple(range(size)) for size in sizes)
    starts = [sum(sizes[:t]) for t in range(len(sizes))]
    return tuple(tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True))


def _points(tasks: Sequence[tuple[str, range]], labels: Mapping[str, Tensor]) -> list[Tensor]:
    """Indices of each task's points in its raw set: disjoint, and covering the dealt classes.

    Args:
        tasks: for each task the raw set and its classes, consecutive numbers.
        labels: classes of the points of each raw set.
    """
    points = [((labels[s] >= c.start) & (labels[s] < c.stop)).nonzero().squeeze(1) for s, c in tasks]
    for source, y in labels.items():
        mine = [index for index, (s, _) in zip(points, tasks, strict=True) if s == source]
        dealt = torch.tensor(sorted({label for s, c in tasks if s == source for label in c}))
        times = torch.bincount(torch.cat(mine), minlength=len(y))
        if not torch.equal(times, torch.isin(y, dealt).long()):
            raise ValueError(f"the tasks do not deal each point of {source} exactly once")
        if not torch.equal(y.unique()[torch.isin(y.unique(), dealt)], dealt):
            raise ValueError(f"a class dealt to a task has no point in {source}")
    return points


def _set_aside(
    points: Tensor, y: Tensor, classes: range, fraction: float, seed: int, source: str
) -> tuple[Tensor, Tensor]:
    """Points kept for training and points set aside, the share of each class rounded, both in their stored order.

    The choice depends on the seed, the raw set and the class alone: it is the same in every scenario.
    """
    if fraction == 0.0:
        return points, points[:0]
    aside = []
    for label in classes:
        mine = points[y[points] == label]
        number = round(fraction * len(mine))
        if not 0 < number < len(mine):
            raise ValueError(
                f"validation_fraction={fraction!r} sets aside {number} of the {len(mine)} points of class {label} of "
                f"{source}; both sides need at least one"
            )
        aside.append(mine[torch.randperm(len(mine), generator=generator(seed, "validation", source, label))[:number]])
    chosen = torch.isin(points, torch.cat(aside))
    return points[~chosen], points[chosen]


def _of_tasks(name: str, sizes: Sequence[int | None] | None, num_tasks: int) -> tuple[int | None, ...]:
    if sizes is not None and len(sizes) != num_tasks:
        raise ValueError(f"{name}={sizes!r} has {len(sizes)} entries for a stream of {num_tasks} tasks")
    return (None,) * num_tasks if sizes is None else tuple(sizes)


def _keep(
    name: str, points: Tensor, y: Tensor, classes: range, size: int | None, address: tuple[int | str, ...]
) -> Tensor:
    """The ``size`` points that a task keeps, balanced over classes and in their stored order; all of them if None."""
    if size is None:
        return points
    if size < len(classes):
        raise ValueError(f"{name} holds {size!r}, fewer points than the {len(classes)} classes of a task")
    kept = []
    for place, label in enumerate(classes):
        mine = points[y[points] == label]
        number = size // len(classes) + (place < size % len(classes))
        if number > len(mine):
            raise TooFewPoints(
                f"{name} holds {size}, so {number} points of class {label} of {address[-1]}, which has {len(mine)}"
            )
        kept.append(mine[torch.randperm(len(mine), generator=generator(*address, label))[:number]])
    return points[torch.isin(points, torch.cat(kept))]


def _digest(spec: Spec, train: Sequence[Task], held_out: Sequence[Task]) -> str:
    sha = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode())
    for task in (*train, *held_out):
        for array in (task.x, task.y):
            sha.update(f"{array.dtype} {tuple(array.shape)};".encode())
            sha.update(array.contiguous().numpy())
    return sha.hexdigest()
