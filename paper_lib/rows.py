"""What can be run: every row of every figure and table, as data.

A ``Row`` says how its method is made, with which settings on which data set, what the quick preset changes, which
scenarios it serves and how it is drawn. A new method is its file in ``methods/`` and one entry here: the tables, the
figures, the scoreboard and the plans find it by its name.

Where the paper or a public code gives settings, they stand here as such; those that were chosen on validation data are
held against the stored trials by tests. No code was released for VCL's rows: their settings are those of VCL in the
public S-FSVI code (Rudner et al. 2022) on the paper's network with the paper's coresets, pixels in [0, 1]. That code
draws weights, from normals cut off at two standard deviations, and starts at a truncated normal; here outputs of layers
are drawn (``sampling``) and the start is uniform, but in the rows named ``_reference``.
Rows of SGD named ``_long`` and ``_reference`` take the epochs and batches of VCL's rows with the same heads, so that
both are also compared at as many steps. ``_reference`` takes all of a task's points a step, a hundred steps, and begins
at larger weights, as that code does with a head a task; five of its seeds together take 1.8 GB.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, get_type_hints

from paper_lib.checks import near_match, one_of
from paper_lib.data.stream import DATASETS, make_stream
from paper_lib.methods import Method
from paper_lib.methods.fromp import FROMP
from paper_lib.methods.hibnn import HIBNN
from paper_lib.methods.protocl import ProtoCL
from paper_lib.methods.replay import Replay, joint, sgd, single_task
from paper_lib.methods.sequential_hmc import SequentialHMC
from paper_lib.methods.sfsvi import SFSVI
from paper_lib.methods.vcl import VCL, ddm, improved

Settings = Mapping[str, Any]

STREAM_OPTIONS = {
    name: hint
    for name, hint in get_type_hints(make_stream).items()
    if name not in ("dataset", "scenario", "eval_split", "return")
}
"""Settings that go to the stream and not to the method, with their types."""


class Style(NamedTuple):
    """How a row is drawn; no two rows are drawn alike.

    Attributes:
        label: its name in figures and tables.
        colour: of line and marker.
        marker: or None.
        line: matplotlib's line style.
    """

    label: str
    colour: str
    marker: str | None
    line: str


@dataclass(frozen=True)
class Row:
    """A line of a figure or table.

    Attributes:
        name: as tables and parameters call it.
        make: builds the method from settings; what a ``partial`` fixes defines the row and cannot be changed.
        settings: data set to the complete settings there, of the method and of its stream.
        quick: data set to what the quick preset changes.
        scenarios: those that it serves, its own first.
        style: how it is drawn.
        stream: options of ``make_stream`` on every data set.
        exhibits: where it is shown: ``tables`` (Tables 1 and 2), ``figure_1``, ``toys`` and so on.
    """

    name: str
    make: Callable[..., Method]
    settings: Mapping[str, Settings]
    quick: Mapping[str, Settings]
    scenarios: tuple[str, ...]
    style: Style
    stream: Settings = field(default_factory=dict)
    exhibits: tuple[str, ...] = ("tables",)

    @cached_property
    def takes(self) -> dict[str, Any]:
        """Settings that can be changed, of the method and of its stream, with their types."""
        made, fixed = (self.make.func, self.make.keywords) if isinstance(self.make, partial) else (self.make, {})
        hints = get_type_hints(made)
        own = {f.name: hints[f.name] for f in dataclasses.fields(made) if f.init and f.name not in fixed}
        return own | STREAM_OPTIONS

    def build(self, dataset: str, preset: str, changes: Settings) -> tuple[Method, dict[str, Any]]:
        """The configured method, and the options of its stream.

        Args:
            dataset: one of ``settings``.
            preset: ``quick`` or ``paper``.
            changes: settings to replace; those that the row does not take are left out.

        Raises:
            ValueError: the row is not there on this data set, or a setting cannot be.
        """
        if dataset not in self.settings:
            raise ValueError(
                f"row {self.name!r} has no settings on dataset={dataset!r}; it has {', '.join(self.settings)}"
            )
        chosen = dict(self.settings[dataset])
        if preset == "quick":
            chosen |= self.quick.get(dataset, {})
        plain = dict(chosen)
        chosen |= {name: value for name, value in changes.items() if name in self.takes}
        stream = dict(self.stream) | {name: chosen.pop(name) for name in STREAM_OPTIONS if name in chosen}
        made = self.make(**chosen)
        if getattr(made, "memory_total", None) is None:
            return made, stream
        if made.memory_per_task != plain.get("memory_per_task", type(made).memory_per_task):
            raise ValueError(
                f"memory_per_task={made.memory_per_task!r} plays no part in row {self.name!r} beside "
                f"memory_total={made.memory_total!r}, the points of all tasks together; change that instead"
            )
        return made, stream


def on(datasets: Iterable[str], **settings: Any) -> dict[str, Settings]:
    """The same settings on several data sets."""
    return {name: settings for name in datasets}


def plus(base: Mapping[str, Settings], more: Mapping[str, Settings] | None = None, **everywhere: Any) -> dict:
    """Settings with further ones, a data set or everywhere."""
    return {name: {**own, **everywhere, **(more or {}).get(name, {})} for name, own in base.items()}


def less(base: Mapping[str, Settings], setting: str) -> dict[str, Settings]:
    """Settings without one, which a row fixes."""
    return {data: {name: value for name, value in own.items() if name != setting} for data, own in base.items()}


ONE_HEAD, HEAD_A_TASK = ("domain_incremental", "class_incremental"), ("task_incremental",)
ANY, CLASSES_FIRST = (*ONE_HEAD, *HEAD_A_TASK), ("class_incremental", "domain_incremental", "task_incremental")

MNISTS = ("split_mnist", "split_fmnist")
CIFARS = ("split_cifar10", "split_cifar100", "split_cifar10_100")
TOYS = ("toy_pan", "toy_gaussians")
UNIT = {"scaling": "unit"}

# Okabe and Ito's palette.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#777777"

# --- plain networks with pixels in [0, 1], as VCL sees them

PLAIN = {
    "split_digits": {"hidden": (64,), "epochs": 20, "batch_size": 32},
    **on(MNISTS, epochs=10),
    "toy_pan": {"hidden": (10, 10), "epochs": 200, "learning_rate": 1e-2},
    "toy_gaussians": {"hidden": (10, 10), "epochs": 50, "learning_rate": 1e-2},
}
"""SGD and the bounds: Adam at 1e-3, batches of 128 and 10 epochs where nothing else is said."""
PLAIN_QUICK = {"toy_pan": {"epochs": 50}}

# --- VCL

DIGITS_VCL = {"epochs": 30, "batch_size": 64, "learning_rate": 1e-2, "num_samples": 2, "num_samples_predict": 20}
TOY_VCL = {"hidden": (10, 10), "batch_size": None, "learning_rate": 3e-2, "num_samples": 3}
VCL_SETTINGS = {
    "split_digits": {"hidden": (64,), **DIGITS_VCL},
    **on(MNISTS),
    "toy_pan": {**TOY_VCL, "epochs": 1000, "restart": False},
    "toy_gaussians": {**TOY_VCL, "epochs": 500, "restart": True},
}
"""The reference's settings are VCL's defaults. The toys' learning rate and where a task starts were chosen on
validation data (``experiments/vcl_toy_tuning.py``)."""
VCL_QUICK = {**on(MNISTS, epochs=2), "toy_pan": {"epochs": 200}, "toy_gaussians": {"epochs": 100}}
CORESETS = {
    "split_digits": {"coreset_per_task": 50},
    **on(MNISTS, coreset_per_task=200),
    **on(TOYS, coreset_per_task=40),
}
WIDTHS = {"split_digits": {"hidden": (64,)}, **on(MNISTS), **on(TOYS, hidden=(10, 10))}
RECIPE_QUICK = {"split_digits": {"epochs": 30}, **VCL_QUICK}
FULL_BATCHES = {"batch_size": None, "likelihood_init": "truncated_normal"}


def _at_the_steps_of(vcl: Mapping[str, Settings]) -> dict[str, Settings]:
    """SGD's settings with the epochs and batches of a row of VCL."""
    made = {name: VCL(**settings) for name, settings in vcl.items()}
    return plus(PLAIN, {name: {"epochs": m.epochs, "batch_size": m.batch_size} for name, m in made.items()})


# --- ProtoCL and replay, standardised pixels

MNIST_SIZES = {"split_mnist": {"batch_size": 64}, "split_fmnist": {"batch_size": 128}}
"""The release's batch sizes, which are not tuned."""
DIGITS_MEMORY = {"epochs": 50, "memory_per_task": 50}
CIFAR_REPLAY = {"network": "cifarnet", "hidden": (), "epochs": 80}
CIFAR_PROTOCL = CIFAR_REPLAY | {"embedding_dim": 32, "batch_size": 128, "learning_rate": 1e-3}
"""On every CIFAR stream the paper's four convolutions, two linear layers, and epochs."""

PROTOCL = {
    "split_digits": DIGITS_MEMORY | {"hidden": (64,), "embedding_dim": 32, "learning_rate": 1e-3},
    **plus(
        MNIST_SIZES,
        {"split_mnist": {"forget": 0.999, "weight_decay": 1e-3}, "split_fmnist": {"forget": 1.0, "weight_decay": 0.0}},
        **{"epochs": 6, "learning_rate": 1e-4, "dropout": 0.2, "oversample": True, "replay_weight": 4.0},
        **{"evidence_mode": "cumulative", "class_prior": "counts"},
    ),
    **on(CIFARS, **CIFAR_PROTOCL),
}
"""On the MLP's data sets what the stored trials chose on validation data (``experiments/protocl_tuning.py``)."""
PROTOCL_PAPER_EPOCHS = plus(
    MNIST_SIZES,
    {
        "split_mnist": {"learning_rate": 1e-4, "replay_weight": 1.0, "evidence_mode": "cumulative"},
        "split_fmnist": {"learning_rate": 3e-5, "replay_weight": 4.0, "evidence_mode": "recompute_final"},
    },
    **{"epochs": 50, "dropout": 0.2, "weight_decay": 1e-4, "oversample": True},
    **{"forget": 1.0, "class_prior": "uniform"},
)
"""What they chose among those with the paper's epochs."""
REPLAY = {
    "split_digits": DIGITS_MEMORY | {"hidden": (64, 32), "batch_size": 64},
    **plus(
        MNIST_SIZES,
        **{"epochs": 25, "learning_rate": 3e-4, "dropout": 0.5, "weight_decay": 1e-4},
        **{"oversample": False, "replay_weight": 60.0},
    ),
    **on(CIFARS, **CIFAR_REPLAY),
}
"""What they chose for replay of the same memory, with as large a budget but for ProtoCL's further trials."""
PROTOCL_CALIBRATED = plus(
    MNIST_SIZES,
    **{"epochs": 6, "learning_rate": 1e-4, "dropout": (0.2, 0.2, 0.2), "weight_decay": 1e-3, "label_smoothing": 0.1},
    **{"oversample": True, "replay_weight": 16.0, "noise_var": 0.05, "learn_noise_var": False},
    **{"evidence_mode": "cumulative", "class_prior": "counts", "forget": 0.999},
)
REPLAY_CALIBRATED = plus(
    MNIST_SIZES,
    {
        "split_mnist": {"epochs": 6, "learning_rate": 2e-4, "label_smoothing": 0.05}
        | {"oversample": True, "replay_weight": 16.0},
        "split_fmnist": {"epochs": 12, "learning_rate": 1e-4, "label_smoothing": 0.1}
        | {"oversample": False, "replay_weight": 64.0},
    },
    **{"dropout": 0.2, "weight_decay": 0.0},
)
JOINT_CALIBRATED = plus(MNIST_SIZES, epochs=20, learning_rate=3e-4, dropout=0.3)
"""What calibration chose by accuracy and likelihood (``experiments/calibration.py``). Elsewhere labels of
ProtoCL and replay are smoothed, joint training on digits has its dropout, and nothing else is changed."""
BOUNDS = {
    "split_digits": {"hidden": (64, 32), "batch_size": 64, "epochs": 50},
    **plus(MNIST_SIZES, epochs=10),
    **on(CIFARS, **CIFAR_REPLAY),
}
"""The bounds beside them share their network and batches."""
CIFAR_LOOK = {
    "split_cifar10": {"train_sizes": (400,) * 5, "test_sizes": (100,) * 5},
    **on(CIFARS[1:], train_sizes=(400,) * 5, test_sizes=(100,) * 5, num_tasks=5),
}
"""What the quick preset takes of CIFAR's streams, as many points of each class."""
QUICK_SEEDS = dict.fromkeys(CIFARS, (0,))
"""Seeds of the quick preset, where they are fewer than a chapter's own."""
MEMORY_QUICK = {
    "split_digits": {"epochs": 20},
    **on(MNISTS, epochs=1),
    **plus(CIFAR_LOOK, epochs=2, batch_size=32),
}
PUBLISHED = plus(
    {
        "split_digits": {"hidden": (256,), "embedding_dim": 128, "batch_size": 64, "learning_rate": 1e-4},
        "split_mnist": {"hidden": (256,), "batch_size": 64, "dropout": 0.1, "weight_decay": 1e-4},
        "split_fmnist": {"hidden": (256,), "batch_size": 128, "weight_decay": 1e-2},
        "split_cifar10": {"network": "cifarnet", "embedding_dim": 32, "batch_size": 128, "learning_rate": 1e-3},
        "split_cifar10_100": {"network": "cifarnet", "embedding_dim": 250, "batch_size": 32, "learning_rate": 1e-3}
        | {"epochs": 200},
    },
    {
        **on(("split_digits", "split_cifar10", "split_cifar10_100"), validation_fraction=0.2),
        **on(MNISTS, validation_fraction=1 / 6),
    },
    **{"posterior": "per_slot", "memory_total": 1000, "predict_with_dropout": True, "drop_partial_batches": True},
    **{"learn_concentration": False, "alpha_init": 2.181472265498201},
)
"""The release's configuration (its README and code), which trains on what its fixed split leaves, but for updates on
evaluation labels. ``alpha_init`` is exp(0.78), as its parameter is a logarithm. The release has none for digits; theirs
is that of Split-MNIST without dropout and weight decay."""

# --- HIBNN, pixels in [0, 1]

HIBNN_SETTINGS = {
    "split_digits": {
        **{"hidden": (64,), "prior": "ibp", "epochs": 60, "likelihood_epochs": 20, "batch_size": 64},
        **{"learning_rate": 1e-2, "num_samples": 2, "num_masks": 4, "num_samples_predict": 20},
    },
    **on(MNISTS, hidden=(100,), prior="ibp"),
}
"""The reference's, its network of one hidden layer too: the paper says two layers of 200 of all baselines, no other
setting of HIBNN, and that is what was tried first (``paper.REDUCED``). The divergence of masks is that of
``mask_kl="structured"``, and every point has noise of its own."""
HIBNN_QUICK = on(MNISTS, epochs=1, likelihood_epochs=1)

# --- FROMP and S-FSVI, pixels in [0, 1]

FROMP_SETTINGS = {
    "split_digits": {"hidden": (64,), "epochs": 20, "learning_rate": 1e-3, "memory_per_task": 50},
    **on(MNISTS),
    **on(CIFARS, **{"network": "cifarnet", "hidden": (), "epochs": 80, "batch_size": 256, "learning_rate": 1e-3},
         prior_precision=1e-4, clip=100.0),
}  # fmt: skip
"""On the MLP's data sets the public class-incremental runs' (Scannell et al.) on the paper's network and memory, with
the points of Pan et al.; on CIFAR those of Pan et al.'s task-incremental runs."""
FROMP_HEADS = {
    "split_digits": FROMP_SETTINGS["split_digits"] | {"memory_per_task": 20},
    **on(MNISTS, hidden=(256, 256), epochs=15, batch_size=128, memory_per_task=40),
}
"""Pan et al.'s Split-MNIST runs with a head a task."""
SFSVI_SETTINGS = {
    "split_digits": {"hidden": (64,), "epochs": 40, "batch_size": 32, "learning_rate": 2e-3, "coreset_per_task": 50},
    **on(MNISTS),
    **{
        name: {
            **{"network": "cifarnet", "hidden": (), "batch_size": 512, "epochs": (200, *[50] * (tasks - 1))},
            **{"learning_rate": (5e-4, *[3e-4] * (tasks - 1)), "num_context": (10, 200, *[50] * (tasks - 2))},
            **{"prior_var": 0.03, "divergence_weight": "normalized", "context": "colours"},
        }
        for name, tasks in (("split_cifar10", 5), ("split_cifar100", 10), ("split_cifar10_100", 10))
    },
}
"""Rudner et al.'s, but for what ``methods/sfsvi.py`` says and that predictions average probabilities: on the MLP's data
sets of Split-MNIST with one head, on CIFAR of Split-CIFAR with a head a task."""
SFSVI_HEADS = {
    "split_digits": SFSVI_SETTINGS["split_digits"] | {"coreset_per_task": 20, "num_context": 20},
    **on(MNISTS, epochs=60, coreset_per_task=40),
}
FROMP_CALIBRATED = {
    "split_digits": FROMP_SETTINGS["split_digits"] | {"selection": "random", "temperature": 100.0}
} | plus(
    {
        "split_mnist": {"learning_rate": 1e-3, "temperature": 100.0, "prior_precision": 1e-3},
        "split_fmnist": {"learning_rate": 3e-4, "temperature": 10.0, "prior_precision": 1e-4},
    },
    **{"epochs": 3, "clip": 0.1, "selection": "random"},
)
SFSVI_CALIBRATED = {"split_digits": SFSVI_SETTINGS["split_digits"] | {"divergence_weight": "normalized"}} | on(
    MNISTS,
    **{"learning_rate": 5e-4, "epochs": 3, "num_context": 10, "prior_var": 1e-3, "divergence_weight": "normalized"},
    **{"init_log_var": (-10.0, -8.0), "carry_moments": True},
)
HIBNN_CALIBRATED = {"split_digits": HIBNN_SETTINGS["split_digits"] | {"stick_prior": (20.0, 1.0)}} | plus(
    {name: HIBNN_SETTINGS[name] for name in MNISTS},
    {
        "split_mnist": {"learning_rate": 1e-2, "epochs": 3, "likelihood_epochs": 6, "prior_var": 0.1},
        "split_fmnist": {"learning_rate": 1e-3, "epochs": 12, "likelihood_epochs": 12, "prior_var": 0.7},
    },
    **{"batch_size": 512, "init_log_var": -6.0, "stick_prior": (20.0, 1.0)},
)
"""What each baseline's trials with replay's budget chose (``experiments/calibration.py``); on digits a choice or two
of theirs alone."""
FUNCTION_QUICK = {
    "split_digits": {},
    **on(MNISTS, epochs=1),
    "split_cifar10": CIFAR_LOOK["split_cifar10"] | {"epochs": 1},
    **on(CIFARS[1:], train_sizes=(400,) * 10, test_sizes=(100,) * 10, epochs=1),
}

# --- HMC on the toys: 80 points a blob, 20 chains

HMC_TEXT = on(TOYS, toy_points=80)
"""The paper's text: 1,000 iterations of warm-up and 10,000 more, of which we keep every tenth draw."""
HMC_ADAPTED = plus(HMC_TEXT, adapt=True, step_size=1e-2, num_draws=500, thin=4)
"""Step size and masses adapt in the warm-up; 2,000 iterations more then move further than the paper's 10,000."""
HMC_PUBLISHED = plus(
    HMC_TEXT,
    **{"num_warmup": 1001, "num_draws": 800, "thin": 5, "burn_reject": "restart", "include_init": True},
    **{"start": "shared_net", "regularisation": "floor", "holdout": "rows", "final_rows": 3750},
    **{"max_components": 50, "average": "logit", "eval_chains": "last"},
)
"""The release's command: 5,000 iterations. It tries up to 500 components, for days; here the ladder ends at 50. On the
circle it deals 400 points a blob, a random half of them to each chain; here all rows have 80."""
HMC_LOOK = {"toy_points": 40, "num_chains": 4, "num_warmup": 120, "num_draws": 40, "thin": 2, "num_leapfrog": 10}
HMC_QUICK = on(TOYS, **HMC_LOOK, max_components=5, adapt=True, step_size=1e-2)
"""Half the points and a few hundred iterations, which move only if they adapt."""
HMC_QUICK_PUBLISHED = on(TOYS, **HMC_LOOK, max_components=5, final_rows=50)

# --- two tasks of unlike size: a hidden layer of 100 units, 600 steps a task, set in experiments/task_imbalance.py

TWO_TASKS = {"num_tasks": 2}
OF_UNLIKE_SIZE = tuple(name for name in DATASETS if name not in TOYS)  # a toy's task has 160 points
IMBALANCE = on(OF_UNLIKE_SIZE, hidden=(100,), batch_size=50, learning_rate=1e-3)
IMBALANCE_QUICK = on(OF_UNLIKE_SIZE, hidden=(64,), batch_size=10, learning_rate=2e-3)
IMBALANCE_VCL = {"num_samples": 1, "num_samples_predict": 10, "likelihood_start": False}


PLAIN_ROW = partial(Row, settings=PLAIN, quick=PLAIN_QUICK, stream=UNIT, exhibits=("figure_1",))
MEMORY_ROW = partial(Row, quick=MEMORY_QUICK, scenarios=CLASSES_FIRST)
WITHOUT_CORESET = partial(VCL, coreset_per_task=0)


def _sgd_and_vcl() -> Iterable[Row]:
    plain, without = PLAIN_ROW, WITHOUT_CORESET
    vcl = partial(Row, settings=VCL_SETTINGS, quick=VCL_QUICK, stream=UNIT)
    long, reference = VCL_SETTINGS, plus(VCL_SETTINGS, **FULL_BATCHES)
    yield plain("sgd_single_head", sgd, scenarios=ONE_HEAD, style=Style("SGD, one head", ORANGE, "o", "-"))
    yield plain(
        "sgd_single_head_long",
        sgd,
        settings=_at_the_steps_of(long),
        quick=RECIPE_QUICK,
        scenarios=ONE_HEAD,
        style=Style("SGD, one head, VCL's steps", VERMILION, "o", "-"),
    )
    yield vcl(
        "vcl_single_head",
        without,
        scenarios=ONE_HEAD,
        style=Style("VCL, one head", BLUE, "o", "-"),
        exhibits=("tables", "figure_1"),
    )
    yield vcl(
        "vcl_coreset",
        VCL,
        settings=plus(VCL_SETTINGS, CORESETS),
        scenarios=ANY,
        style=Style("VCL, random coreset", BLUE, "D", "-."),
    )
    yield vcl(
        "vcl_coreset_k_centre",
        partial(VCL, coreset_selection="k_centre"),
        settings=plus(VCL_SETTINGS, CORESETS),
        scenarios=ANY,
        style=Style("VCL, k-centre coreset", BLUE, "^", ":"),
    )
    yield plain("sgd_multi_head", sgd, scenarios=HEAD_A_TASK, style=Style("SGD, a head a task", ORANGE, "s", "--"))
    yield plain(
        "sgd_multi_head_long",
        sgd,
        settings=_at_the_steps_of(long),
        quick=RECIPE_QUICK,
        scenarios=HEAD_A_TASK,
        style=Style("SGD, a head a task, VCL's steps", VERMILION, "s", "--"),
    )
    yield plain(
        "sgd_multi_head_reference",
        sgd,
        settings=_at_the_steps_of(reference),
        quick=RECIPE_QUICK,
        scenarios=HEAD_A_TASK,
        style=Style("SGD, a head a task, full batches", PURPLE, "D", "--"),
    )
    yield vcl(
        "vcl_multi_head",
        without,
        scenarios=HEAD_A_TASK,
        style=Style("VCL, a head a task", BLUE, "s", "--"),
        exhibits=("figure_1",),
    )
    yield vcl(
        "vcl_multi_head_reference",
        without,
        settings=reference,
        scenarios=HEAD_A_TASK,
        style=Style("VCL, a head a task, full batches", SKY, "v", "--"),
        exhibits=("figure_1",),
    )
    for name, recipe, label, colour, marker in (
        ("vcl_ddm", ddm, "VCL, Nguyen et al.'s recipe", SKY, "D"),
        ("vcl_improved", improved, "VCL, Swaroop et al.'s recipe", PURPLE, "o"),
    ):
        own = dataclasses.asdict(recipe())
        yield vcl(
            name,
            VCL,
            settings={data: own | dict(width) for data, width in WIDTHS.items()},
            quick=RECIPE_QUICK | on(TOYS, epochs=100),
            scenarios=HEAD_A_TASK,
            style=Style(label, colour, marker, "--"),
            exhibits=("figure_1",),
        )


def _hibnn_fromp_and_sfsvi() -> Iterable[Row]:
    buffet = partial(Row, settings=HIBNN_SETTINGS, quick=HIBNN_QUICK, scenarios=CLASSES_FIRST, stream=UNIT)
    yield buffet("hibnn", HIBNN, style=Style("HIBNN", SKY, "P", "-"))
    yield buffet(
        "hibnn_as_published",
        partial(HIBNN, concrete_loc="log_pi", mask_kl="over_n", beta_per_point=True, head_entropy="expected"),
        style=Style("HIBNN as published", SKY, "X", ":"),
    )  # but for the first prior: the release's Beta(5, 1) is in fact Beta(5.02, 1.32), behind a softplus
    yield buffet("hibnn_calibrated", HIBNN, settings=HIBNN_CALIBRATED, style=Style("HIBNN, calibrated", SKY, "*", "--"))
    function = partial(Row, quick=FUNCTION_QUICK, stream=UNIT, scenarios=CLASSES_FIRST)
    yield function("fromp", FROMP, FROMP_SETTINGS, style=Style("FROMP", ORANGE, "^", "-"))
    yield function(
        "fromp_random",
        partial(FROMP, selection="random"),
        FROMP_SETTINGS,
        style=Style("FROMP, random points", ORANGE, "v", ":"),
    )
    yield function("fromp_calibrated", FROMP, FROMP_CALIBRATED, style=Style("FROMP, calibrated", ORANGE, "*", "--"))
    yield function("sfsvi", SFSVI, SFSVI_SETTINGS, style=Style("S-FSVI", PURPLE, "^", "-"))
    yield function("sfsvi_calibrated", SFSVI, SFSVI_CALIBRATED, style=Style("S-FSVI, calibrated", PURPLE, "*", "--"))
    yield function(
        "sfsvi_no_coreset",
        partial(SFSVI, coreset_per_task=0),
        plus(less(SFSVI_SETTINGS, "coreset_per_task"), prior_var=100.0),
        style=Style("S-FSVI without a coreset", PURPLE, "v", ":"),
    )
    yield function(
        "fromp_multi_head",
        FROMP,
        FROMP_HEADS,
        scenarios=HEAD_A_TASK,
        style=Style("FROMP, a head a task", ORANGE, "^", "--"),
        exhibits=("heads",),
    )
    yield function(
        "sfsvi_multi_head",
        SFSVI,
        SFSVI_HEADS,
        scenarios=HEAD_A_TASK,
        style=Style("S-FSVI, a head a task", PURPLE, "^", "--"),
        exhibits=("heads",),
    )


def _protocl_and_replay() -> Iterable[Row]:
    memory = MEMORY_ROW
    yield memory("protocl", ProtoCL, PROTOCL, style=Style("ProtoCL", GREEN, "o", "-"))
    yield memory(
        "protocl_paper_epochs",
        ProtoCL,
        PROTOCL | PROTOCL_PAPER_EPOCHS,
        style=Style("ProtoCL, the paper's epochs", GREEN, "p", ":"),
    )
    yield memory(
        "protocl_calibrated",
        ProtoCL,
        plus(PROTOCL, label_smoothing=0.1) | PROTOCL_CALIBRATED,
        style=Style("ProtoCL, calibrated", GREEN, "*", "--"),
    )
    yield memory("protocl_as_published", ProtoCL, PUBLISHED, style=Style("ProtoCL as published", GREEN, "s", "-."))
    forgetful = partial(memory, make=partial(ProtoCL, memory_per_task=0, memory_total=None))
    yield forgetful(
        "protocl_no_memory",
        settings=less(PROTOCL, "memory_per_task"),
        style=Style("ProtoCL without memory", GREEN, "v", ":"),
    )
    yield forgetful(
        "protocl_no_memory_paper_epochs",
        settings=less(PROTOCL | PROTOCL_PAPER_EPOCHS, "memory_per_task"),
        style=Style("ProtoCL without memory, the paper's epochs", GREEN, "^", ":"),
    )
    yield memory("replay", Replay, REPLAY, style=Style("replay", VERMILION, "D", "-"))
    yield memory(
        "replay_calibrated",
        Replay,
        plus(REPLAY, label_smoothing=0.1) | REPLAY_CALIBRATED,
        style=Style("replay, calibrated", VERMILION, "*", "--"),
    )


def _bounds() -> Iterable[Row]:
    plain, memory = PLAIN_ROW, MEMORY_ROW
    yield memory(
        "joint_calibrated",
        joint,
        {
            "split_digits": BOUNDS["split_digits"] | {"dropout": JOINT_CALIBRATED["split_mnist"]["dropout"]},
            **JOINT_CALIBRATED,
        },
        style=Style("joint training, calibrated", BLACK, "*", "--"),
    )
    yield memory("joint", joint, BOUNDS, style=Style("joint training", BLACK, None, "--"))
    yield plain(
        "joint_unit",
        joint,
        scenarios=ANY,
        style=Style("joint training, inputs not standardised", BLACK, "x", "--"),
    )
    yield plain("single_task", single_task, scenarios=ANY, style=Style("a network a task", GREY, None, "-."))


def _hmc() -> Iterable[Row]:
    hmc = partial(Row, quick=HMC_QUICK, scenarios=("domain_incremental",), exhibits=("hmc",))
    for name, make, settings, style in (
        ("hmc", SequentialHMC, HMC_TEXT, Style("HMC, a GMM handed on", VERMILION, "o", "-")),
        ("hmc_adapted", SequentialHMC, HMC_ADAPTED, Style("HMC, adapted, a GMM handed on", VERMILION, "D", "--")),
        (
            *("hmc_gaussian", partial(SequentialHMC, density="gaussian"), HMC_ADAPTED),
            Style("HMC, adapted, a Gaussian handed on", PURPLE, "v", "--"),
        ),
        (
            *("hmc_realnvp", partial(SequentialHMC, density="realnvp"), HMC_ADAPTED),
            Style("HMC, adapted, a RealNVP handed on", SKY, "^", "--"),
        ),
        (
            "hmc_exact",
            partial(SequentialHMC, recursion="exact"),
            HMC_ADAPTED,
            Style("HMC, exact recursion", GREEN, "s", "-"),
        ),
        ("hmc_joint", partial(SequentialHMC, recursion="joint"), HMC_ADAPTED, Style("joint HMC", BLACK, "+", "--")),
    ):
        yield hmc(name, make, settings, style=style)
    yield hmc(
        "hmc_as_published",
        SequentialHMC,
        HMC_PUBLISHED,
        quick=HMC_QUICK_PUBLISHED,
        style=Style("HMC as published", VERMILION, "s", ":"),
    )


def _two_tasks() -> Iterable[Row]:
    two = partial(
        Row,
        settings=IMBALANCE,
        quick=IMBALANCE_QUICK,
        scenarios=ONE_HEAD,
        stream=TWO_TASKS,
        exhibits=("task_imbalance",),
    )
    yield two("imbalance_sgd", sgd, style=Style("SGD", VERMILION, "o", "-"))
    yield two(
        "imbalance_vcl",
        WITHOUT_CORESET,
        settings=plus(IMBALANCE, learning_rate=1e-2, **IMBALANCE_VCL),
        quick=plus(IMBALANCE_QUICK, learning_rate=2e-2),
        style=Style("VCL", BLUE, "s", "-"),
    )
    yield two("imbalance_joint", joint, style=Style("joint, both tasks at once", BLACK, "^", "-"))


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        MEMORY_ROW("sgd", sgd, BOUNDS, style=Style("SGD, no memory", GREY, None, ":")),
        *_sgd_and_vcl(),
        *_hibnn_fromp_and_sfsvi(),
        *_protocl_and_replay(),
        *_bounds(),
        *_hmc(),
        *_two_tasks(),
    )
}
"""All rows by name, in the order of the paper's tables: bounds outermost."""


def row(name: str) -> Row:
    """The row of a name, or an error with a near match."""
    return ROWS[one_of("rows", name, ROWS)]


def shown_in(exhibit: str) -> tuple[str, ...]:
    """Names of the rows that an exhibit shows, in order."""
    return tuple(name for name, one in ROWS.items() if exhibit in one.exhibits)


def takers(setting: str) -> list[str]:
    """Rows that take a setting.

    Raises:
        ValueError: none does; the message has a near match.
    """
    found = [name for name, one in ROWS.items() if setting in one.takes]
    if not found:
        known = sorted({name for one in ROWS.values() for name in one.takes})
        raise ValueError(f"there is no setting {setting!r}{near_match(setting, known)}")
    return found
