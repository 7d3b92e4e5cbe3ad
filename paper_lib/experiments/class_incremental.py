"""Tables 1 and 2: class-incremental learning, every row of the paper beside the runs that reproduce it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from paper_lib import metrics, paper, sweep, tables
from paper_lib.experiments import release_audit, vcl_split_mnist
from paper_lib.rows import CIFARS, MNISTS, shown_in
from paper_lib.rows import ROWS as ALL_ROWS
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, Printed, holds

SCENARIO = "class_incremental"
ROWS = shown_in("tables")
"""Rows of the tables."""

LIVE = Selection(scenario=SCENARIO, rows=("sgd", "vcl_single_head", "vcl_coreset", "replay", "protocl", "joint"))
"""What the chapter runs unless its parameters say otherwise."""

DROPPING = tuple(
    Selection(
        *("split_cifar10", SCENARIO, "paper"),
        seeds=(0, 1, 2),
        rows=("fromp",),
        changes={"num_tasks": 2, "train_sizes": (1000, 1000), "epochs": 20, "batch_size": 64, "dropout": dropout},
    )
    for dropout in (True, False)
)
"""Whether FROMP's network may drop units on the current task alone: two tasks of 1,000 points."""

FEW_PASSES = tuple(paper.paper_scale(d, "sfsvi", scenario=SCENARIO, seeds=3, epochs=3) for d in MNISTS)
"""S-FSVI with its authors' settings but for the passes that its calibrated row has."""

FEW_EPOCHS = {d: next(one for one in paper.REDUCED if one.dataset == d and "protocl" in one.rows) for d in CIFARS}
"""Runs with an eighth of the epochs, by stream of CIFAR."""

CALLED_CIFAR100 = ("split_cifar100", "split_cifar10_100")
"""The stream of the paper's text, and the one that its code calls so."""

AUTHORS = (
    Printed("FROMP's README", "fromp_multi_head", "split_mnist", 99.3, 0.0),
    Printed("S-FSVI's README", "sfsvi_multi_head", "split_mnist", 99.54, 0.04),
    Printed("S-FSVI's README", "sfsvi_multi_head", "split_fmnist", 99.05, 0.03),
    Printed("S-FSVI's README", "sfsvi_no_coreset", "split_mnist", 20.15, 0.52),
)
"""What the authors of the baselines report of their own code (team-approx-bayes/fromp, timrudner/S-FSVI), and their ±:
final accuracy with a head a task, and of S-FSVI with one head and no coreset. It checks ours, and is none of the
paper's numbers."""

WITH_HEADS = ("fromp_multi_head", "sfsvi_multi_head")
_OF_AUTHORS = {
    (p.row, p.dataset): paper.paper_scale(
        *(p.dataset, p.row),
        scenario="task_incremental" if p.row in WITH_HEADS else SCENARIO,
        seeds=3 if p.row.startswith("fromp") else 1,
    )
    for p in AUTHORS
}
"""The runs that are held against each of them."""

SHOWN_SETTINGS = (
    *("hidden", "epochs", "batch_size", "learning_rate", "dropout", "weight_decay", "num_samples"),
    *("label_smoothing", "replay_weight", "class_prior", "evidence_mode", "forget"),
)
"""Settings that the chapter shows; all of them stand in ``results/*.json``."""


def stored(dataset: str) -> pd.DataFrame:
    """The stored class-incremental runs of every row on a data set, or what stands in for them (``paper.REDUCED``)."""
    return paper.stored(dataset, ROWS)


def comparison(dataset: str) -> pd.DataFrame:
    """A column of Table 1 or 2 beside the stored runs: see ``tables.comparison``; what is short of any row is told."""
    table = stored(dataset)
    found = tables.comparison(table, paper.printed(dataset), ROWS)
    for name in found.index[(found["words"] == "") & (found["n"] > 0)]:
        method, _ = ALL_ROWS[name].build(dataset, "paper", {})
        epochs = tables.epochs_of(table[table["row"] == name])
        full = getattr(method, "epochs", None)  # a method need not have any
        few = tables.shortfall(int(found.n[name]), epochs, None if full is None else float(np.mean(full)))
        found.loc[name, "words"] = f"reduced: {', '.join(few)}" if few else ""
    return found


def shown_settings(dataset: str) -> pd.DataFrame:
    """What the stored runs of a data set were made with, as a chapter shows it."""
    found = tables.settings(stored(dataset), SHOWN_SETTINGS).rename(index=paper.label).rename_axis(index="method")
    words = {"hidden": lambda v: "-".join(map(str, v)), "batch_size": lambda v: "all" if pd.isna(v) else f"{v:.0f}"}
    for name in found.columns.drop(["pixels", "memory"]):
        found[name] = found[name].map(words.get(name, _word))
    return found.rename(columns=lambda name: name.replace("_", " "))


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):  # a rate for each layer
        return ", ".join(dict.fromkeys(map(_word, value)))
    return value if isinstance(value, str) else "–" if pd.isna(value) else f"{value:g}"


def source(dataset: str) -> str:
    """What recomputes a data set's table: the rows in full, then what stands in for the others."""
    table = stored(dataset)
    if table.empty:
        return "not run yet"
    full = table[table["changes"] == ""]
    told = [tables.source(full).splitlines()[0]] if len(full) else []
    short = paper.standing_in(dataset, set(table["row"]) - set(full["row"]))
    return "\n".join([*told, *(f"`{tables.command(one)}`" for one in short), tables.provenance_in_words(table)])


def numbers() -> dict[str, float | str]:
    """What the chapter's prose cites: percent of stored runs, and the verdicts."""
    cited: dict[str, float | str] = {}
    for dataset, short in (("split_mnist", ""), ("split_fmnist", "_fmnist")):
        table = stored(dataset)
        for row, other in (("protocl", "sfsvi"), ("protocl_calibrated", "sfsvi_calibrated")):
            gap = tables.paired(table, row, other)
            cited[f"{row}_over_{other}_{dataset}"] = paper.interval(gap) if gap else "not run yet"
        gained = tables.paired(table, "sfsvi_calibrated", "sfsvi")
        cited[f"gained_sfsvi{short}"] = f"{gained.mean:.1f}" if gained else "not run yet"
        (few,) = (one for one in FEW_PASSES if one.dataset == dataset)
        ended = tables.by_seed(sweep.stored(few)).get("sfsvi")
        cited[f"final_sfsvi_few{short}"] = "not run yet" if ended is None else f"{ended.mean():.1f}"
        nll = comparison(dataset).nll
        cited |= {f"nll_{row}{short}": round(float(nll[row]), 4) for row in ("sfsvi", "sfsvi_calibrated")}
        cited |= tables.numbers(table, ROWS, short)
        final = tables.by_seed(table)
        cited |= {f"n_{row}{short}": str(len(final.get(row, ()))) for row in ("sfsvi", "fromp_random")}
    for dataset in CIFARS:
        short = dataset.removeprefix("split")
        cited |= tables.numbers(stored(dataset), ROWS, short)
        few = FEW_EPOCHS[dataset]
        cited |= tables.numbers(sweep.stored(few), few.rows, f"{short}_short")
    ends = [cited.get(f"final_{row}_cifar100", np.nan) for row in ("sfsvi", "protocl", "replay")]
    cited["spread_cifar100"] = round(float(np.ptp(ends)), 4)
    for dataset, short in (("split_mnist", "_short"), ("split_fmnist", "_short_fmnist")):
        reduced = [one for one in paper.REDUCED if one.dataset == dataset and "hibnn" in one.rows]
        cited |= tables.numbers(sweep.stored(reduced), ("hibnn",), short)
    cited |= release_audit.head_numbers()
    of_two = sweep.stored(DROPPING)
    for on, name in ((True, "with"), (False, "without")):
        found = _learned_with_dropout(of_two).get(on, pd.Series([np.nan]))
        cited[f"fromp_{name}_dropout"] = round(float(found.mean()), 4)
    cifar = tables.matrices(stored("split_cifar10")).get("fromp")
    later = 100 * float(np.diagonal(cifar[0])[1:].max()) if cifar is not None else np.nan
    cited["fromp_later_cifar10"] = later
    cifar_seconds = comparison("split_cifar10").seconds
    for row in ("sfsvi", "protocl"):
        cited[f"minutes_{row}_cifar10"] = round(float(cifar_seconds[row]) / 60, 2)
    seconds = comparison("split_mnist").seconds
    learned = tables.matrices(stored("split_mnist")).get("vcl_single_head")
    cited["vcl_second_task"] = 100 * float(learned[:, 1, 1].mean()) if learned is not None else np.nan
    cited |= {f"seconds_{row}": f"{seconds[row]:.0f} s" for row in ("sfsvi", "sfsvi_calibrated")}
    cited["times_slower"] = f"{seconds['sfsvi'] / seconds['protocl_paper_epochs']:.0f} times"
    for row in ("vcl_single_head", "vcl_coreset", "protocl", "sfsvi"):
        cited[f"verdict_{row}"] = paper.verdict(f"{paper.label(row)} on Split-MNIST")
    cited["verdict_ranking"] = paper.verdict("ranking")
    for p in AUTHORS:
        final = tables.by_seed(sweep.stored(_OF_AUTHORS[p.row, p.dataset])).get(p.row)
        cited[f"{p.row}_{p.dataset}"] = "not run yet" if final is None else f"{final.mean():.1f} %"
    logs = vcl_split_mnist.beside_public_logs(stored("split_mnist"))
    return cited | {f"log_{row}": round(float(x), 4) for row, x in logs["log, triangle mean"].items()}


def _needs(*rows: str, datasets: tuple[str, ...] = MNISTS) -> tuple[Selection, ...]:
    return tuple(paper.paper_scale(d, *rows, scenario=SCENARIO) for d in datasets)


def _of(table: pd.DataFrame, dataset: str, score: str) -> dict[str, pd.Series]:
    return tables.by_seed(table[table.dataset == dataset], score)


def _last_task_alone(table: pd.DataFrame) -> Judgement:
    final = [_of(table, d, "final_accuracy")["vcl_single_head"].mean() for d in MNISTS]
    return holds(max(final) <= 20, f"final accuracy {final[0]:.1f} and {final[1]:.1f} %; one task of five is 20 %")


def _not_all_learned(table: pd.DataFrame) -> Judgement:
    mnist, fmnist = (tables.matrices(table[table.dataset == d])["vcl_single_head"] for d in MNISTS)
    second, last = 100 * mnist[:, 1, 1].mean(), 100 * fmnist[:, 4, 4].mean()
    below = all(
        _of(table, p.dataset, "triangle_mean")["vcl_single_head"].mean() < p.value
        for p in paper.PRINTED
        if p.row == "vcl_single_head"
    )
    return holds(
        below and second < 90 and last < 90,
        f"just after learning it: task 2 of Split-MNIST {second:.0f} %, task 5 of Split-FMNIST {last:.0f} %",
    )


def _coresets(table: pd.DataFrame) -> Judgement:
    shares, words = [], []
    for dataset in MNISTS:
        mine = {row: s.mean() for row, s in _of(table, dataset, "final_accuracy").items()}
        shares += [40 < mine["vcl_coreset"] < 0.7 * mine["replay"], mine["vcl_coreset_k_centre"] < mine["vcl_coreset"]]
        words.append(
            f"{paper.LABELS[dataset]}: random {mine['vcl_coreset']:.1f}, "
            f"k-centre {mine['vcl_coreset_k_centre']:.1f}, replay {mine['replay']:.1f} %"
        )
    return holds(all(shares), "; ".join(words))


def _uninformative(table: pd.DataFrame) -> Judgement:
    near = []
    for p in paper.PRINTED:
        if p.row == "vcl_coreset":
            gaps = [
                abs(p.value - _of(table, p.dataset, s)["vcl_coreset"].mean())
                for s in ("triangle_mean", "final_accuracy")
            ]
            near.append(max(gaps) < p.margin and p.margin > tables.LARGEST_SE)
    return holds(all(near), f"largest possible standard error {tables.LARGEST_SE:.1f} points; printed 18.56 and 16.96")


def _logs(table: pd.DataFrame) -> Judgement:
    logs = vcl_split_mnist.beside_public_logs(table[table.dataset == "split_mnist"])
    triangle = tables.by_seed(table[table.dataset == "split_mnist"], "triangle_mean")
    below = all(triangle[row].min() > logs["log, triangle mean"][row] for row in logs.index)
    return holds(
        below, "; ".join(f"{paper.label(row)}: log {logs['log, triangle mean'][row]:.1f} %" for row in logs.index)
    )


def _replay_wins(table: pd.DataFrame) -> Judgement:
    order, words = [], []
    for dataset in MNISTS:
        mine = {row: s.mean() for row, s in _of(table, dataset, "final_accuracy").items()}
        order.append(mine["protocl"] < mine["replay"] < mine["joint"])
        words.append(
            f"{paper.LABELS[dataset]}: ProtoCL {mine['protocl']:.1f}, replay {mine['replay']:.1f}, "
            f"joint {mine['joint']:.1f} %"
        )
    return holds(all(order), "; ".join(words))


def _functions_over_prototypes(table: pd.DataFrame) -> Judgement:
    found = {row: tables.paired(table, "sfsvi", row) for row in ("protocl", "protocl_as_published")}
    words = (f"over {paper.label(row)} {paper.interval(f)} points" for row, f in found.items())
    n = min(f.n for f in found.values())
    return holds(all(f.lower > 0 for f in found.values()), f"on the same {n} seeds (95 %): {'; '.join(words)}")


def _same_budget(table: pd.DataFrame) -> Judgement:
    gaps = {d: tables.paired(table[table.dataset == d], "protocl_calibrated", "sfsvi_calibrated") for d in MNISTS}
    words = (f"{paper.LABELS[d]} {paper.interval(gap)}" for d, gap in gaps.items())
    mnist, fmnist = gaps.values()
    return holds(
        mnist.upper < 0 < fmnist.lower, f"ProtoCL less S-FSVI, points (95 %, n = {mnist.n}): {', '.join(words)}"
    )


def _fewer_passes(table: pd.DataFrame) -> Judgement:
    gains = {
        (row, d): tables.paired(table[table.dataset == d], f"{row}_calibrated", row)
        for row in ("sfsvi", "fromp")
        for d in MNISTS
    }
    words = (f"{paper.label(row)} on {paper.LABELS[d]} {paper.interval(gain)}" for (row, d), gain in gains.items())
    return holds(all(gain.lower > 0 for gain in gains.values()), f"points gained (95 %): {'; '.join(words)}")


def _passes_alone(table: pd.DataFrame) -> Judgement:
    lost, words = [], []
    for d in MNISTS:
        (short,) = (one for one in FEW_PASSES if one.dataset == d)
        few, full = (tables.by_seed(tables.of(table, one))["sfsvi"] for one in (short, replace(short, changes={})))
        lost.append((full - few).dropna())
        words.append(f"{paper.LABELS[d]} {few.mean():.1f} % against {full[few.index].mean():.1f} %")
    n = min(map(len, lost))
    return holds(all((one > 0).all() for one in lost), f"on the same {n} seeds, each lower: {'; '.join(words)}")


def _fromp_is_a_triangle_mean(table: pd.DataFrame) -> Judgement:
    (printed,) = (p for p in paper.printed("split_mnist") if p.row == "fromp")
    final, triangle = (
        metrics.summarise(tables.by_seed(table, score)["fromp"]) for score in ("final_accuracy", "triangle_mean")
    )
    met = abs(triangle.mean - printed.value) <= 2 * triangle.se and final.mean < printed.value - 5
    return holds(met, f"printed {printed.value:.2f}; triangle mean {triangle.mean:.1f}, final {final.mean:.1f} %")


def _fromp_misses(table: pd.DataFrame) -> Judgement:
    (printed,) = (p for p in paper.printed("split_fmnist") if p.row == "fromp")
    scores = [tables.by_seed(table, s) for s in ("final_accuracy", "triangle_mean")]
    authors, at_random = ([float(by[row].mean()) for by in scores] for row in ("fromp", "fromp_random"))
    apart = max(authors) < printed.value - 5 and min(at_random) > printed.value + 5
    chosen = {"its authors' points": authors, "random ones": at_random}
    words = (f"{final:.1f} / {triangle:.1f} % with {points}" for points, (final, triangle) in chosen.items())
    return holds(apart, f"printed {printed.value:.2f}; final / triangle mean {', '.join(words)}")


def _sfsvi_on_clothes(table: pd.DataFrame) -> Judgement:
    (printed,) = (p for p in paper.printed("split_fmnist") if p.row == "sfsvi")
    scores = tables.by_seed(table), tables.by_seed(table, "triangle_mean")
    final, triangle = (float(by["sfsvi"].mean()) for by in scores)
    near = abs(triangle - printed.value) <= 1 and final < printed.value - 2
    numbers = f"triangle mean {triangle:.1f}, final {final:.1f} % (n = {len(scores[0]['sfsvi'])})"
    return holds(near, f"printed {printed.value:.2f}; {numbers}")


def _as_its_authors(table: pd.DataFrame, rows: tuple[str, ...], points: float | None = None) -> Judgement:
    """Whether rows end within so many points, or else twice the ±, of what their authors report."""
    near, words = [], []
    for p in (p for p in AUTHORS if p.row in rows):
        final = _of(table, p.dataset, "final_accuracy")[p.row]
        near.append(abs(final.mean() - p.value) <= (points or 2 * p.margin))
        name = f"{paper.label(p.row)} on {paper.LABELS[p.dataset]}"
        words.append(f"{name} {final.mean():.2f} % (n = {len(final)}), reported {p.value:.2f}")
    return holds(all(near), "; ".join(words))


def _learned_with_dropout(table: pd.DataFrame) -> dict[bool, pd.Series]:
    """Percent of task 2 just after learning it, by seed, with and without dropout on the current task."""
    just_after = table[(table["metric"] == "accuracy") & (table["task_trained"] == 2) & (table["task_tested"] == 2)]
    parts = {one.changes["dropout"]: tables.of(just_after, one) for one in DROPPING}
    return {dropout: 100 * part.set_index("seed")["value"] for dropout, part in parts.items()}


def _hibnn_is_below(table: pd.DataFrame) -> Judgement:
    (printed,) = (p for p in paper.printed("split_mnist") if p.row == "hibnn")
    final, triangle = (
        metrics.summarise(tables.by_seed(table, s)["hibnn"]) for s in ("final_accuracy", "triangle_mean")
    )
    words = f"final accuracy {final.mean:.1f} ± {final.sd:.1f}, triangle mean {triangle.mean:.1f} % (n = {final.n})"
    most = max(final.mean + 2 * final.se, triangle.mean + 2 * triangle.se)
    return holds(most < printed.value - 20, f"printed {printed.value:.2f}; {words}")


def _which_stream(table: pd.DataFrame) -> Judgement:
    (printed,) = (p for p in paper.printed("split_cifar100") if p.row == "protocl")
    scores = ("final_accuracy", "triangle_mean")
    own, codes = ([_of(table, d, s)["protocl"].mean() for s in scores] for d in CALLED_CIFAR100)
    words = f"printed {printed.value:.2f}; final / triangle mean {own[0]:.1f} / {own[1]:.1f} %, code's stream "
    return holds(max(own) < max(codes) < printed.value - printed.margin, f"{words}{codes[0]:.1f} / {codes[1]:.1f} %")


def _more_epochs(table: pd.DataFrame) -> Judgement:
    """Of ProtoCL and replay, all epochs less an eighth: final accuracy, points, and NLL after the last task."""
    gained, surer, words = [], [], []
    for dataset, few in FEW_EPOCHS.items():
        for row in ("protocl", "replay"):
            full, short = (tables.of(table, replace(few, rows=(row,), changes=c)) for c in ({}, few.changes))
            accuracy, nll = (
                (tables.by_seed(full, *score)[row] - tables.by_seed(short, *score)[row]).mean()
                for score in (("final_accuracy",), ("final_accuracy", "nll"))
            )
            gained.append(accuracy)
            surer.append(nll)
            words.append(f"{paper.label(row)} on {paper.LABELS[dataset]} {accuracy:+.1f} ({nll:+.1f})")
    return holds(max(gained) < 2 and min(surer) > 1, f"points (nats): {'; '.join(words)}")


def _dropping(table: pd.DataFrame) -> Judgement:
    found = _learned_with_dropout(table)
    words = (
        f"{'with' if dropout else 'without'} {', '.join(f'{share:.1f}' for share in found[dropout])}"
        for dropout in (True, False)
    )
    more = (found[False] - found[True]).dropna()
    return holds(more.min() > 0 and more.mean() > 10, f"percent of task 2, a number a seed: {'; '.join(words)}")


_claim = partial(Claim, exhibit="Table 1", chapter="class_incremental")

CLAIMS = (
    _claim(
        says="Without a coreset VCL ends knowing its last task at most.",
        judge=_last_task_alone,
        needs=_needs("vcl_single_head"),
    ),
    _claim(
        says="Its triangle means are below the printed ones: not every task is learned.",
        judge=_not_all_learned,
        needs=_needs("vcl_single_head"),
    ),
    _claim(
        says="The public code's logged runs of VCL have lower triangle means than all our seeds.",
        judge=_logs,
        needs=_needs("vcl_single_head", "vcl_coreset", datasets=("split_mnist",)),
    ),
    _claim(
        says="VCL with a coreset ends far below replay of as many points; k centres help less.",
        judge=_coresets,
        needs=_needs("vcl_coreset", "vcl_coreset_k_centre", "replay"),
    ),
    _claim(
        says="Read as a tolerance, VCL's printed ± with a coreset rejects neither metric; it is no standard error.",
        judge=_uninformative,
        needs=_needs("vcl_coreset"),
    ),
    _claim(
        says="Both tuned for accuracy, replay of the same memory ends above ProtoCL.",
        judge=_replay_wins,
        needs=_needs("protocl", "replay", "joint"),
    ),
    _claim(
        says="With its authors' points FROMP's number on Split-MNIST is near our triangle mean, not our final one.",
        judge=_fromp_is_a_triangle_mean,
        needs=_needs("fromp", datasets=("split_mnist",)),
    ),
    _claim(
        says="On Split-FMNIST FROMP is below its printed number with its authors' points, above it with random ones.",
        judge=_fromp_misses,
        needs=_needs("fromp", "fromp_random", datasets=("split_fmnist",)),
    ),
    _claim(
        says="On Split-MNIST S-FSVI ends above ProtoCL in final accuracy.",
        judge=_functions_over_prototypes,
        needs=_needs("sfsvi", "protocl", "protocl_as_published", datasets=("split_mnist",)),
    ),
    _claim(
        says="On Split-FMNIST the triangle mean of S-FSVI is within a point of its number.",
        judge=_sfsvi_on_clothes,
        needs=_needs("sfsvi", datasets=("split_fmnist",)),
    ),
    _claim(
        says="With one budget of trials for each S-FSVI ends above ProtoCL on Split-MNIST, below it on Split-FMNIST.",
        judge=_same_budget,
        needs=_needs("protocl_calibrated", "sfsvi_calibrated"),
    ),
    _claim(
        says="So chosen, S-FSVI and FROMP end above their references' settings on both sets.",
        judge=_fewer_passes,
        needs=_needs("sfsvi", "sfsvi_calibrated", "fromp", "fromp_calibrated"),
    ),
    _claim(
        says="Three passes with its authors' other settings end lower than their eighty.",
        judge=_passes_alone,
        needs=(*FEW_PASSES, *_needs("sfsvi")),
    ),
    _claim(
        says="With 100 epochs HIBNN is more than 20 points below its printed number on Split-MNIST, by both metrics.",
        judge=_hibnn_is_below,
        needs=tuple(one for one in paper.REDUCED if one.dataset == "split_mnist" and "hibnn" in one.rows),
    ),
    _claim(
        exhibit="authors' code",
        says="With a head a task FROMP and S-FSVI end within 0.3 points of what their authors report.",
        judge=partial(_as_its_authors, rows=WITH_HEADS, points=0.3),
        needs=tuple(one for (row, _), one in _OF_AUTHORS.items() if row in WITH_HEADS),
    ),
    _claim(
        exhibit="authors' code",
        says="Without a coreset S-FSVI ends within twice the ± of what its authors report.",
        judge=partial(_as_its_authors, rows=("sfsvi_no_coreset",)),
        needs=(_OF_AUTHORS["sfsvi_no_coreset", "split_mnist"],),
    ),
    _claim(
        exhibit="Table 2",
        says="With one seed ProtoCL is below its number on both streams called Split-CIFAR100, less so on the code's.",
        judge=_which_stream,
        needs=tuple(replace(FEW_EPOCHS[d], rows=("protocl",), changes={}) for d in CALLED_CIFAR100),
    ),
    _claim(
        exhibit="Table 2",
        says="With one seed 80 epochs, not 10, gain ProtoCL and replay less than two points and add over a nat of NLL.",
        judge=_more_epochs,
        needs=tuple(
            replace(few, rows=("protocl", "replay"), changes=changes)
            for few in FEW_EPOCHS.values()
            for changes in ({}, few.changes)
        ),
    ),
    _claim(
        exhibit="Table 2",
        says="With dropout on the current task alone FROMP's CifarNet learns less of a second task, with every seed.",
        judge=_dropping,
        needs=DROPPING,
    ),
)
"""What the chapter says about stored runs."""
