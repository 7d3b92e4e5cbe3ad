"""Streams: what is dealt, to whom, under which labels, and what stays untouched."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from paper_lib.data import stream, vision
from paper_lib.data.stream import DATASETS, SCENARIOS, Spec, make_stream

DEALT = [
    (dataset, scenario)
    for dataset in DATASETS
    for scenario in SCENARIOS
    if not (dataset.startswith("toy") and scenario == "class_incremental")
]
RAW = {
    "split_mnist": "mnist",
    "split_fmnist": "fashion-mnist",
    "split_cifar10": "cifar-10",
    "split_cifar100": "cifar-100",
}


def fake_set(name: str) -> vision.VisionData:
    """A small set in which every image names its class, its place, its split and its set."""
    size = (1, 4, 4) if "mnist" in name else (3, 4, 4)
    classes = 100 if name == "cifar-100" else 10

    def split(per_class: int, which: int):
        y = torch.arange(classes).repeat(per_class)
        y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(which))]
        place = torch.arange(len(y))
        x = torch.zeros(len(y), *size, dtype=torch.uint8)
        x[:, 0, 0] = torch.stack([y, place % 256, place // 256, torch.full_like(y, which)], dim=1).to(torch.uint8)
        x[:, 0, 1, 0] = len(name)
        return x, y

    return vision.VisionData(*split(10, 0), *split(2, 1), tuple(f"{name} {c}" for c in range(classes)))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "load", fake_set)


def rows(tasks) -> Counter:
    """Every input as a hashable row, counted."""
    return Counter(tuple(row) for task in tasks for row in task.x.flatten(1).tolist())


@pytest.mark.parametrize("dataset, scenario", DEALT)
def test_tasks_are_disjoint_and_cover_their_classes(fakes, dataset, scenario):
    made = make_stream(dataset, scenario)
    spec = made.spec
    assert [task.index for task in made.train] == [task.index for task in made.held_out] == list(range(spec.num_tasks))
    for task, held_out, units, names in zip(made.train, made.held_out, spec.task_units, spec.class_names, strict=True):
        assert task.y.unique().tolist() == held_out.y.unique().tolist() == list(units)
        assert task.y.dtype == torch.int64 and task.x.shape[1:] == spec.input_shape
        assert len(names) == len(units)
    assert max(rows(made.train).values()) == 1
    assert not rows(made.train) & rows(made.held_out)
    if dataset == "split_cifar10_100":
        assert sum(len(task.y) for task in made.train) == 100 + 900
    elif dataset in RAW:
        raw = fake_set(RAW[dataset])
        assert rows(made.train) == Counter(tuple(row) for row in raw.x_train.flatten(1).tolist())
        assert rows(made.held_out) == Counter(tuple(row) for row in raw.x_test.flatten(1).tolist())


@pytest.mark.parametrize("dataset, scenario", DEALT)
def test_labels_mean_what_the_scenario_says(fakes, dataset, scenario):
    spec = make_stream(dataset, scenario).spec
    per_task = 10 if "100" in dataset else 2
    num_tasks = 10 if "100" in dataset else 5
    assert spec.num_tasks == num_tasks
    if scenario == "domain_incremental":
        assert spec.task_units == (tuple(range(per_task)),) * num_tasks
    else:
        assert [u for units in spec.task_units for u in units] == list(range(per_task * num_tasks))
    assert spec.num_units == (per_task if scenario == "domain_incremental" else per_task * num_tasks)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_image_carries_the_label_and_name_of_its_class(fakes, scenario):
    for dataset, offset in (("split_mnist", 0), ("split_cifar100", 0), ("split_cifar10_100", 10)):
        made = make_stream(dataset, scenario)
        for task, names, units in zip(made.train, made.spec.class_names, made.spec.task_units, strict=True):
            pixel = task.x[:, 0, 0, 0].long()  # the class inside its raw set, which the image names
            carried = [names[units.index(u)] for u in task.y.tolist()]
            assert [int(name.split()[1]) for name in carried] == pixel.tolist()
            if scenario != "domain_incremental":
                second_set = carried[0].startswith("cifar-100") and offset
                assert torch.equal(task.y, pixel + (offset if second_set else 0))


@pytest.mark.parametrize(
    ("mean", "sd", "message"),
    [
        ((0.1, 0.2, 0.3), (1.0, 1.0, 1.0), r"digits: mean=.* has 3 entries for 1 channels"),
        ((0.1,), (0.0,), r"mean=\(0.1,\) and sd=\(0.0,\) must be finite and equally many, sd positive"),
        ((float("nan"),), (1.0,), "must be finite"),
        ((0.1,), (1.0, 1.0), "equally many"),
    ],
)
def test_a_scaling_that_does_not_fit_is_refused(mean, sd, message, monkeypatch):
    deals = stream._DEALS
    with pytest.raises(ValueError, match=message):
        monkeypatch.setitem(deals, "split_digits", replace(deals["split_digits"], mean=mean, sd=sd))
        make_stream("split_digits")


def test_the_released_split_cifar100_begins_with_cifar10_and_ends_with_class_89(fakes):
    names = make_stream("split_cifar10_100").spec.class_names
    assert names[0][0] == "cifar-10 0" and names[1][0] == "cifar-100 0" and names[-1][-1] == "cifar-100 89"
    assert make_stream("split_cifar100").spec.class_names[-1][-1] == "cifar-100 99"


# --- validation


@pytest.mark.parametrize("dataset", ["split_digits", "split_mnist", "split_cifar10_100", "toy_pan"])
def test_validation_points_come_from_training_alone_and_leave_it(fakes, dataset):
    scenario = "domain_incremental"
    whole = make_stream(dataset, scenario)
    tuned = make_stream(dataset, scenario, eval_split="validation", validation_fraction=0.2)
    final = make_stream(dataset, scenario, eval_split="test", validation_fraction=0.2)
    assert rows(tuned.train) + rows(tuned.held_out) == rows(whole.train)
    assert rows(final.train) == rows(tuned.train)
    assert rows(final.held_out) == rows(whole.held_out)
    for task, aside in zip(whole.train, tuned.held_out, strict=True):
        assert torch.equal(aside.y.bincount(), (0.2 * task.y.bincount()).round().long())


def test_validation_points_depend_on_their_seed_alone():
    def aside(scenario="class_incremental", seed=0, fraction=0.1):
        made = make_stream(
            "split_digits", scenario, eval_split="validation", validation_fraction=fraction, validation_seed=seed
        )
        return [task.x for task in made.held_out]

    first = aside()
    torch.manual_seed(123)
    assert all(map(torch.equal, first, aside()))
    assert all(map(torch.equal, first, aside("domain_incremental")))
    assert not any(map(torch.equal, first, aside(seed=1)))
    # A larger share contains the smaller one.
    assert all(
        set(map(tuple, a.flatten(1).tolist())) < set(map(tuple, b.flatten(1).tolist()))
        for a, b in zip(first, aside(fraction=0.3), strict=True)
    )


# --- fewer tasks and fewer points


def test_first_tasks_are_those_of_the_whole_stream(fakes):
    whole, short = make_stream("split_mnist"), make_stream("split_mnist", num_tasks=2)
    assert short.spec.task_units == ((0, 1), (2, 3)) and short.spec.class_names == whole.spec.class_names[:2]
    for side in ("train", "held_out"):
        for one, other in zip(getattr(short, side), getattr(whole, side)[:2], strict=True):
            assert torch.equal(one.x, other.x) and torch.equal(one.y, other.y)


def test_kept_training_points_are_balanced_nested_and_chosen_by_their_seed_alone():
    def kept(sizes, seed=0, scenario="domain_incremental"):
        return make_stream("split_digits", scenario, num_tasks=2, train_sizes=sizes, train_seed=seed)

    whole = make_stream("split_digits", "domain_incremental", num_tasks=2)
    made = kept((51, None))
    assert made.train[0].y.bincount().tolist() == [26, 25]
    assert torch.equal(made.train[1].x, whole.train[1].x)
    assert rows(made.train[:1]) <= rows(whole.train[:1])
    assert rows(made.held_out) == rows(whole.held_out)
    torch.manual_seed(123)
    assert rows(kept((20, 30)).train[:1]) < rows(made.train[:1]) == rows(kept((51, 30)).train[:1])
    assert rows(kept((51, None), scenario="class_incremental").train) == rows(made.train)
    assert rows(kept((51, None), seed=1).train[:1]) != rows(made.train[:1])
    assert made.digest != kept((51, None), seed=1).digest != whole.digest


def test_kept_points_leave_validation_as_it_is():
    settings = {"eval_split": "validation", "validation_fraction": 0.2, "num_tasks": 1}
    whole, few = (make_stream("split_digits", **settings, train_sizes=sizes) for sizes in (None, (20,)))
    assert rows(few.held_out) == rows(whole.held_out)
    assert rows(few.train) < rows(whole.train)


def test_tested_points_are_balanced_and_the_same_in_every_scenario_and_run():
    def tested(sizes, scenario="class_incremental", **options):
        return make_stream("split_digits", scenario, num_tasks=2, test_sizes=sizes, **options)

    whole, few = tested(None), tested((21, None))
    assert few.held_out[0].y.bincount().tolist() == [11, 10]
    assert rows(few.held_out[:1]) < rows(whole.held_out[:1]) and rows(few.held_out[1:]) == rows(whole.held_out[1:])
    assert rows(few.train) == rows(whole.train) and few.digest != whole.digest
    assert rows(tested((21, None), "domain_incremental", train_sizes=(9, 9), train_seed=3).held_out) == rows(
        few.held_out
    )
    aside = {"eval_split": "validation", "validation_fraction": 0.2}
    assert rows(tested((20, 20), **aside).held_out) < rows(tested(None, **aside).held_out)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [("split_digits", "validation_seed"), ("toy_pan", "train_seed"), ("split_digits", "toy_seed")],
)
def test_a_seed_that_would_change_nothing_is_refused(dataset, name):
    with pytest.raises(ValueError, match=f"{name}=3 is for .*here it would change nothing"):
        make_stream(dataset, "task_incremental", **{name: 3})
    with pytest.raises(ValueError, match=f"{name}=-1 is not at least 0"):
        make_stream(dataset, "task_incremental", **{name: -1})


# --- scaling


@pytest.mark.parametrize("dataset", ["split_mnist", "split_cifar10", "toy_gaussians"])
@pytest.mark.parametrize("scaling", ["standard", "unit"])
def test_scale_subtracts_the_mean_and_divides_by_the_sd_of_each_channel(fakes, dataset, scaling):
    made = make_stream(dataset, "domain_incremental", scaling=scaling)
    x = made.train[0].x[:5]
    unit = x.numpy().astype(np.float64) / (255 if x.dtype == torch.uint8 else 1)
    channels = range(x.shape[1])
    expected = np.stack([(unit[:, c] - made.spec.pixel_mean[c]) / made.spec.pixel_sd[c] for c in channels], axis=1)
    scaled = made.spec.scale(x)
    assert scaled.dtype == torch.float32
    np.testing.assert_allclose(scaled.numpy(), expected, rtol=1e-5, atol=1e-5)
    if scaling == "unit" or dataset.startswith("toy"):
        np.testing.assert_allclose(scaled.numpy(), unit, rtol=1e-6)


def test_scale_keeps_stored_pixels_and_double_precision():
    spec = make_stream("split_digits").spec
    x = make_stream("split_digits").train[0].x
    before = x.clone()
    spec.scale(x)
    assert torch.equal(x, before) and x.dtype == torch.uint8
    double = x.double() / 255
    assert spec.scale(double).dtype == torch.float64
    torch.testing.assert_close(spec.scale(double).float(), spec.scale(x))


def test_standard_digits_have_zero_mean_and_unit_variance():
    made = make_stream("split_digits")
    x = made.spec.scale(torch.cat([task.x for task in made.train])).double()
    assert float(x.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(x.std()) == pytest.approx(1.0, abs=1e-3)


# --- digest


def test_the_digest_tells_streams_apart_and_nothing_else():
    options = [
        {},
        {"scenario": "domain_incremental"},
        {"scenario": "task_incremental"},
        {"scaling": "unit"},
        {"validation_fraction": 0.1},
        {"validation_fraction": 0.1, "validation_seed": 1},
        {"validation_fraction": 0.1, "eval_split": "validation"},
    ]
    digests = [make_stream("split_digits", **option).digest for option in options]
    assert digests == [make_stream("split_digits", **option).digest for option in options]
    assert len(set(digests)) == len(options)
    toys = [
        make_stream("toy_pan", "domain_incremental", toy_seed=s, toy_points=n).digest
        for s in (0, 1)
        for n in (None, 90)
    ]
    assert len(set(toys)) == 4


def test_one_pixel_changes_the_digest(monkeypatch):
    monkeypatch.setattr(vision, "load", fake_set)
    before = make_stream("split_mnist").digest

    def changed(name):
        data = fake_set(name)
        data.x_test[7, 0, 3, 3] = 1
        return data

    monkeypatch.setattr(vision, "load", changed)
    assert make_stream("split_mnist").digest != before


# --- toys


def test_toy_sizes_are_the_released_ones_unless_asked():
    pan, circle = (make_stream(name, "domain_incremental") for name in ("toy_pan", "toy_gaussians"))
    assert [len(task.y) for task in (*pan.train, *pan.held_out)] == [160] * 10
    assert [len(task.y) for task in circle.train] == [1600] * 5
    assert [len(task.y) for task in circle.held_out] == [400] * 5
    assert pan.spec.input_shape == (2,) and pan.train[0].x.dtype == torch.float32
    many = make_stream("toy_pan", "domain_incremental", toy_points=2000)
    assert many.train[2].y.bincount().tolist() == [2000, 2000]


def test_toy_class_one_is_the_second_blob_of_its_task():
    task = make_stream("toy_gaussians", "domain_incremental").train[1]  # blobs 2 and 3, at 72 and 108 degrees
    for unit, degrees in ((0, 72), (1, 108)):
        expected = 2 * np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        np.testing.assert_allclose(task.x[task.y == unit].mean(0), expected, atol=0.03)


# --- refusing


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"dataset": "split_minst"}, "did you mean 'split_mnist'"),
        ({"scenario": "class-incremental"}, "did you mean 'class_incremental'"),
        ({"eval_split": "val"}, "test, validation"),
        ({"scaling": "standart"}, "did you mean 'standard'"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0"),
        ({"validation_fraction": -0.1}, "validation_fraction=-0.1"),
        ({"validation_fraction": float("nan")}, "validation_fraction=nan"),
        ({"validation_fraction": 0.001}, "sets aside 0 of the 143 points of class 0 of digits"),
        ({"validation_fraction": 0.999}, "both sides need at least one"),
        ({"eval_split": "validation"}, "give validation_fraction"),
        ({"dataset": "toy_pan"}, "all its tasks share the same two classes"),
        ({"toy_points": 80}, "toy_points=80 is for toy_pan, toy_gaussians"),
        ({"dataset": "toy_pan", "scenario": "domain_incremental", "toy_points": 0}, "toy_points=0"),
        ({"num_tasks": 0}, "num_tasks=0 is not from 1 to 5, the tasks of split_digits"),
        ({"num_tasks": 6}, "num_tasks=6"),
        ({"train_sizes": (10, 10)}, "2 entries for a stream of 5 tasks"),
        ({"test_sizes": (10, 10)}, "test_sizes=.* has 2 entries for a stream of 5 tasks"),
        ({"test_sizes": (1000,), "num_tasks": 1}, "test_sizes holds 1000, so 500 points of class 0 of digits"),
        ({"train_sizes": (1,), "num_tasks": 1}, "holds 1, fewer points than the 2 classes"),
        ({"train_sizes": (1000,), "num_tasks": 1}, "500 points of class 0 of digits, which has 143"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_stream(**{"dataset": "split_digits", **arguments})


def test_domain_incremental_needs_equal_tasks():
    with pytest.raises(ValueError, match=r"same number of classes in every task, here \[2, 3\]"):
        stream._units([2, 3], "domain_incremental")
    assert stream._units([2, 3], "task_incremental") == ((0, 1), (2, 3, 4))


def test_overlapping_or_empty_tasks_are_found():
    y = torch.tensor([0, 1, 2, 0])
    with pytest.raises(ValueError, match="exactly once"):
        stream._points([("set", range(0, 2)), ("set", range(1, 3))], {"set": y})
    with pytest.raises(ValueError, match="no point"):
        stream._points([("set", range(0, 2)), ("set", range(2, 4))], {"set": y})


def test_a_missing_set_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPER_LIB_DATA", str(tmp_path))
    with pytest.raises(vision.DataError, match="paper-lib data fetch fashion-mnist"):
        make_stream("split_fmnist")


# --- the real thing


def real(dataset: str, **options) -> stream.Stream:
    try:
        return make_stream(dataset, **options)
    except vision.Missing as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.mark.real_data
@pytest.mark.parametrize(
    "dataset, train, test",
    [
        ("split_mnist", [12665, 12089, 11263, 12183, 11800], [2115, 2042, 1874, 1986, 1983]),
        ("split_fmnist", [12000] * 5, [2000] * 5),
        ("split_cifar10", [10000] * 5, [2000] * 5),
        ("split_cifar100", [5000] * 10, [1000] * 10),
        ("split_cifar10_100", [50000] + [5000] * 9, [10000] + [1000] * 9),
    ],
)
def test_real_streams_have_the_published_counts_and_scaling(dataset, train, test):
    made = real(dataset)
    assert [len(task.y) for task in made.train] == train
    assert [len(task.y) for task in made.held_out] == test
    if dataset == "split_fmnist":
        assert made.spec.class_names[4] == ("Bag", "Ankle boot")
        assert made.spec.pixel_mean == made.spec.pixel_sd == (0.5,)
        return  # its standard scaling is by round numbers
    n, total, square = 0, 0.0, 0.0
    for task in made.train:
        for x in task.x.split(5000):
            scaled = made.spec.scale(x).double()
            total, square = total + scaled.sum((0, 2, 3)), square + (scaled**2).sum((0, 2, 3))
            n += scaled[:, 0].numel()
    np.testing.assert_allclose(total / n, 0.0, atol=1e-3)
    np.testing.assert_allclose((square / n - (total / n) ** 2) ** 0.5, 1.0, atol=1e-3)


@pytest.mark.real_data
def test_real_class_names_match_their_images():
    """CIFAR's names come from its own file: in natural order they are the known ones."""
    assert real("split_cifar10").spec.class_names[0] == ("airplane", "automobile")
    assert real("split_cifar100").spec.class_names[9][-1] == "worm"


def test_spec_counts_inputs_and_units():
    spec = make_stream("split_digits").spec
    assert (spec.num_inputs, spec.num_units, spec.num_tasks) == (64, 10, 5)
    assert isinstance(spec, Spec) and replace(spec, task_units=((0, 1), (0, 1))).num_units == 2
