"""What the paper claims: every printed number, figure, table, equation and sentence that this book holds against runs.

Source: Kessler et al. 2023. Numbers are percent; each ± is called a standard error over ten seeds. What metric a number
is of is not printed, so each is held against final accuracy and triangle mean.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from paper_lib import metrics, sweep, tables
from paper_lib.checks import one_of
from paper_lib.data.stream import LABELS
from paper_lib.rows import CIFARS, MNISTS, ROWS, TOYS
from paper_lib.sweep import Selection
from paper_lib.tables import SEEDS, Claim, Judgement, Printed

PRINTED = (
    Printed("Table 1", "vcl_single_head", "split_mnist", 33.01, 0.08),
    Printed("Table 1", "vcl_single_head", "split_fmnist", 32.77, 1.25),
    Printed("Table 1", "vcl_coreset", "split_mnist", 52.98, 18.56),
    Printed("Table 1", "vcl_coreset", "split_fmnist", 61.12, 16.96),
    Printed("Table 1", "hibnn", "split_mnist", 85.50, 3.20, 1000),
    Printed("Table 1", "hibnn", "split_fmnist", 43.70, 20.21, 1000),
    Printed("Table 1", "fromp", "split_mnist", 84.40, 0.00),
    Printed("Table 1", "fromp", "split_fmnist", 68.54, 0.00),
    Printed("Table 1", "sfsvi", "split_mnist", 92.94, 0.17),
    Printed("Table 1", "sfsvi", "split_fmnist", 80.55, 0.41),
    Printed("Table 1", "protocl", "split_mnist", 93.73, 1.05, 50),
    Printed("Table 1", "protocl", "split_fmnist", 82.73, 1.70, 50),
    Printed("Table 2", "fromp", "split_cifar10", 48.92, 10.86, 80),
    Printed("Table 2", "sfsvi", "split_cifar10", 50.85, 3.87, 80),
    Printed("Table 2", "protocl", "split_cifar10", 55.81, 2.10, 80),
    Printed("Table 2", "sfsvi", "split_cifar100", 20.04, 2.37, 65),
    Printed("Table 2", "protocl", "split_cifar100", 23.96, 1.34, 80),
    Printed("Sec. 7, text", "protocl_no_memory", "split_mnist", 33.25, 0.15, 50),
)


def paper_scale(dataset: str, *rows: str, scenario: str | None = None, seeds: int = SEEDS, **changes: Any) -> Selection:
    """Rows on a data set at the paper's scale, and its ten seeds unless fewer are named.

    Args:
        dataset: stream.
        rows: their names.
        scenario: that of all rows; None for the own of each.
        seeds: how many, from 0.
        changes: settings in which the rows differ from the paper's scale.
    """
    return Selection(dataset, scenario, "paper", seeds=tuple(range(seeds)), rows=rows, changes=changes)


REDUCED = tuple(
    paper_scale(dataset, *rows, scenario="class_incremental", seeds=seeds, **changes)
    for dataset, rows, seeds, changes in (
        *((d, ("protocl", "protocl_calibrated", "replay", "joint"), 1, {"epochs": 10}) for d in CIFARS),
        ("split_cifar10", ("fromp",), 1, {"epochs": 10}),
        ("split_cifar10", ("sfsvi",), 1, {"epochs": (25, *[6] * 4)}),
        ("split_cifar100", ("sfsvi",), 1, {"epochs": (25, *[6] * 9)}),
        *(
            (d, (row,), seeds, {"epochs": 100, "learning_rate": 1e-2, "decay": 0.248})
            for row, seeds in (("hibnn", 10), ("hibnn_as_published", 3))
            for d in MNISTS
        ),
    )
)
"""What stands in for a row as long as it has no runs in full.

On CIFAR an eighth of the epochs. Of HIBNN a tenth, at ten times the learning rate, whose decay is as much faster: the
divergence of the weights pulls on log variances by about a learning rate a step, and without that compensation it still
fell as fast as at first. That was seen with two layers of 200 on a seed of Split-MNIST, whose test score was seen too;
rate and decay were then chosen by the objective on training data.
"""

SECONDS = {
    ("fromp", "split_cifar10"): (1425, 28),
    ("sfsvi", "split_cifar10"): (44434, 91),
    ("protocl", "split_cifar10"): (384, 6),
    ("sfsvi", "split_cifar100"): (37355, 1135),
    ("protocl", "split_cifar100"): (1425, 28),
}
"""Table 2's training times in seconds and their ±, on an RTX 3090. Two cells are alike to the digit."""

VARIANTS = {
    "protocl": ("protocl_as_published", "protocl_paper_epochs"),
    "protocl_no_memory": ("protocl_no_memory_paper_epochs",),
    "hibnn": ("hibnn_as_published",),
}
"""Rows that stand for a printed row too."""


def label(row: str) -> str:
    """A row as a chapter calls it."""
    return ROWS[row].style.label


def printed(dataset: str) -> list[Printed]:
    """The numbers that the paper prints on a data set, once for each row of ours that stands for them."""
    own = [p for p in PRINTED if p.dataset == dataset]
    return own + [p._replace(row=variant) for p in own for variant in _variants(p)]


def _variants(p: Printed) -> list[str]:
    """Rows other than its own that stand for a printed number, with settings of their own on its data set."""
    there = [name for name in VARIANTS.get(p.row, ()) if p.dataset in ROWS[name].settings]
    plain = ROWS[p.row].build(p.dataset, "paper", {})
    return [name for name in there if ROWS[name].build(p.dataset, "paper", {}) != plain]


def verdict(name: str) -> str:
    """Today's verdict on a claim of the inventory, by its name."""
    named = {claim.name: claim for claim in reversed(claims())}
    return named[one_of("claim", name, named)].judged().verdict


def stored(dataset: str, rows: Sequence[str]) -> pd.DataFrame:
    """The stored class-incremental runs of some rows at the paper's scale, or else what stands in for them."""
    full = sweep.stored_at_paper_scale(dataset, rows, "class_incremental")
    missing = [row for row in rows if row not in set(full["row"])]
    parts = [part for part in (full, sweep.stored(standing_in(dataset, missing))) if not part.empty]
    return pd.concat(parts, ignore_index=True) if parts else full


def standing_in(dataset: str, rows: Collection[str]) -> list[Selection]:
    """Of what stands in for a data set's runs, those rows that have been run."""
    own = [one for one in REDUCED if one.dataset == dataset]
    there = set(sweep.stored(own)["row"]) & set(rows)
    return [replace(one, rows=found) for one in own if (found := tuple(row for row in one.rows if row in there))]


def _number(p: Printed) -> Claim:
    """A printed number, judged by the rows that stand for it: by the best verdict that one of them earns."""
    rows = [p.row, *_variants(p)]

    def judge(table: pd.DataFrame) -> Judgement:
        lines = tables.comparison(table, printed(p.dataset), rows)
        lines = lines[lines.verdict != "open"]
        if lines.empty:
            return Judgement("open", "not run")
        off = lines[["final", "triangle"]].sub(p.value).abs().min(axis=1)
        best = min(lines.index, key=lambda name: (tables.VERDICTS.index(lines.verdict[name]), off[name]))
        line = lines.loc[best]
        numbers = f"{line.final:.2f} / {line.triangle:.2f} (n = {line.n:.0f})"
        numbers += "; ± 0.00 taken as printed (R3)" * (p.margin == 0)
        return Judgement(line.verdict, f"{numbers}; {line.words}" + (f" ({label(best)})" if best != p.row else ""))

    name = f"{label(p.row)} on {LABELS[p.dataset]}"
    says = f"{name}: {p.value:.2f} ± {p.margin:.2f} %"
    chapter = "protocl" if p.row.startswith("protocl") else "class_incremental"
    return Claim(
        name=name,
        exhibit=p.exhibit,
        says=says,
        chapter=chapter,
        judge=judge,
        needs=tuple(_there(p.dataset, rows)),
    )


def _there(dataset: str, rows: Sequence[str]) -> Sequence[Selection]:
    """Of rows at the paper's scale those that have been run, be it one seed, or what stands in for all of them."""
    full = paper_scale(dataset, *rows, scenario="class_incremental")
    there = sweep.stored(full)
    if there.empty:
        return standing_in(dataset, rows) or (full,)
    ran, seeds = set(there["row"]), tuple(sorted(set(there.seed)))
    return (replace(full, rows=tuple(r for r in rows if r in ran), seeds=seeds if len(seeds) == 1 else full.seeds),)


def _all_there(dataset: str, rows: Sequence[str]) -> Sequence[Selection]:
    """Rows at the paper's scale if all of them have been run, or else what stands in for them."""
    for needs in (_there(dataset, rows), standing_in(dataset, rows)):
        if {row for one in needs for row in one.rows} == set(rows):
            return needs
    return (paper_scale(dataset, *rows, scenario="class_incremental"),)


def interval(found: metrics.PairedDifference) -> str:
    """A paired difference and its 95 % interval, in points."""
    return f"{found.mean:+.1f} ({found.lower:+.1f} to {found.upper:+.1f})"


def _one_head(table: pd.DataFrame) -> Judgement:
    final, triangle = (
        tables.paired(table, "vcl_single_head", "sgd_single_head_long", s) for s in ("final_accuracy", "triangle_mean")
    )
    numbers = (
        f"VCL over SGD at equal steps, points (95 %, n = {final.n}): final accuracy {interval(final)}, "
        f"triangle mean {interval(triangle)}"
    )
    if max(final.upper, triangle.upper) >= 5 or max(final.lower, triangle.lower) <= 0:
        return Judgement("not reproduced", numbers)
    return Judgement("reproduced" if final.lower > 0 else "with a caveat", numbers)


def _many_heads(table: pd.DataFrame) -> Judgement:
    vcl = tables.paired(table, "vcl_multi_head", "vcl_single_head")
    sgd = tables.paired(table, "sgd_multi_head_long", "sgd_single_head_long")
    numbers = (
        f"final accuracy gained by a head a task, points (95 %, n = {vcl.n}): VCL {interval(vcl)}, SGD {interval(sgd)}"
    )
    return Judgement("reproduced" if vcl.lower > 0 else "not reproduced", numbers)


RANKED = ("protocl", "protocl_paper_epochs")
"""ProtoCL as the paper has it, which is held against S-FSVI on Table 1's data."""
BESIDE = ("protocl_calibrated", "sfsvi_calibrated")
"""Shown beside them, and no part of the verdict: both with one budget of trials of our own."""


def _ranking(table: pd.DataFrame) -> Judgement:
    """Whether a row of ProtoCL is on par with or better than S-FSVI on both sets: its interval reaches 0 or more."""
    parts = dict(iter(table.groupby("dataset", observed=True)))
    pairs = {**dict.fromkeys(RANKED, "sfsvi"), BESIDE[0]: BESIDE[1]}
    found = {row: {d: tables.paired(part, row, other) for d, part in parts.items()} for row, other in pairs.items()}
    words = (
        f"{label(row)}{' (over S-FSVI, calibrated)' * (row in BESIDE)} "
        + ", ".join(f"{LABELS[d]} {interval(f)}" for d, f in by.items())
        for row, by in found.items()
    )
    numbers = f"final accuracy over S-FSVI's: {'; '.join(words)}"
    if (fewest := min(f.n for by in found.values() for f in by.values())) < SEEDS:
        return Judgement("not comparable", f"reduced: {fewest} seeds; {numbers}")
    good = any(all(f.upper >= 0 for f in found[row].values()) for row in RANKED)
    return Judgement("reproduced" if good else "not reproduced", numbers)


def _ranking_on_cifar(table: pd.DataFrame) -> Judgement:
    """Whether ProtoCL is better than S-FSVI on Split-CIFAR10 and Split-CIFAR100, on the paper's metric."""
    words, better, fewest = [], [], SEEDS
    for dataset, part in table.groupby("dataset", observed=True):
        final = tables.by_seed(part)
        gains = (final["protocl"] - final["sfsvi"]).dropna()
        found = tables.paired(part, "protocl", "sfsvi")
        better.append(found is not None and found.lower > 0)
        fewest = min(fewest, len(gains))
        of = " with an eighth of the epochs" * bool((part["changes"] != "").any())
        words.append(f"{LABELS[dataset]}{of}: {interval(found) if found else f'{gains.mean():+.1f}'}")
    numbers = f"ProtoCL, the text's settings, over S-FSVI, final accuracy: {'; '.join(words)}"
    if fewest < SEEDS:
        return Judgement("not comparable", f"reduced: {fewest} seed{'s' * (fewest > 1)}; {numbers}")
    return Judgement("reproduced" if all(better) else "not reproduced", numbers)


def _memory_or_prototypes(table: pd.DataFrame) -> Judgement:
    """Whether the memory keeps accuracy, and Bayesian prototypes alone do not."""
    mine, bare = "protocl_paper_epochs", "protocl_no_memory_paper_epochs"
    without, plain = (tables.paired(table, *pair) for pair in ((mine, bare), ("replay", mine)))
    none = tables.by_seed(table)[bare].mean()
    numbers = (
        f"ProtoCL without memory {none:.1f} %; points gained (95 %, n = {without.n}) by its memory "
        f"{interval(without)}, by plain replay of the same memory over ProtoCL {interval(plain)}"
    )
    return Judgement("reproduced" if without.lower > 0 and none < 100 / 3 else "not reproduced", numbers)


def _joint_objective(table: pd.DataFrame) -> Judgement:
    """Whether an encoder that maximises the joint predictive, as Algorithm 1 says, learns to tell classes apart."""
    final = tables.by_seed(table)["protocl"]
    numbers = f"final accuracy {final.mean():.1f} % on Split-MNIST (n = {len(final)})"
    if final.max() < 100 / 5:
        return Judgement("not reproduced", f"{numbers}: all classes are drawn together")
    return Judgement("with a caveat", numbers)


def _imbalance(table: pd.DataFrame) -> Judgement:
    from paper_lib.experiments import task_imbalance

    effect = task_imbalance.effect_of_ratio(task_imbalance.by_design(table, "paper")).set_index(["row", "design"])
    lines = {row: effect.loc[row, task_imbalance.SAME_UPDATES] for row in ("sgd", "vcl")}
    changes = (
        f"{row.upper()} {100 * line.above:+.1f} ({100 * line.above_low:+.1f} to {100 * line.above_high:+.1f})"
        for row, line in lines.items()
    )
    # The paper argues from assumptions that no network here meets, and has no such run to reproduce.
    verdict = "with a caveat" if lines["vcl"].above_low > 0 else "not comparable"
    return Judgement(
        verdict,
        "change of forgetting at equal updates from equal sizes to a tenfold task 2, points (95 %, n = "
        f"{lines['sgd'].n:.0f}): {', '.join(changes)}",
    )


def _closed_form(exhibit: str, name: str, says: str, verdict: str, ours: str, chapter: str, tested: str) -> Claim:
    return Claim(
        name=name,
        exhibit=exhibit,
        says=says,
        chapter=chapter,
        judge=lambda _: Judgement(verdict, ours),
        tested=tested,
    )


def _imbalance_selections() -> tuple[Selection, ...]:
    from paper_lib.experiments import task_imbalance

    return tuple(task_imbalance.selections(task_imbalance.PAPER))


TIMED = {"split_cifar10": "protocl", "split_mnist": "protocl_paper_epochs"}
"""Data set to ProtoCL with the paper's epochs, to be timed beside S-FSVI; the paper prints times of the first."""


def seconds_beside_sfsvi(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Seconds a seed of S-FSVI and of ProtoCL with the paper's epochs, by data set."""
    found = {}
    for dataset, row in TIMED.items():
        seconds = tables.comparison(table[table["dataset"] == dataset], (), (row, "sfsvi")).seconds
        found[dataset] = float(seconds["sfsvi"]), float(seconds[row])
    return found


def _seconds(table: pd.DataFrame) -> Judgement:
    """Whether ProtoCL with the paper's epochs trains more than twice as fast as S-FSVI, here without a GPU."""
    found = seconds_beside_sfsvi(table)
    words = (
        f"on {LABELS[dataset]} S-FSVI {other:.0f} s a seed, ProtoCL {mine:.0f} s, a factor of {other / mine:.2g}"
        for dataset, (other, mine) in found.items()
    )
    printed = SECONDS["sfsvi", "split_cifar10"][0] / SECONDS["protocl", "split_cifar10"][0]
    numbers = f"without a GPU: {'; '.join(words)} (ProtoCL's seeds ran together there)"
    numbers += f"; printed for Split-CIFAR10 on a GPU: a factor of {printed:.0f}"
    other, mine = found["split_cifar10"]
    if (seeds := int(tables.by_seed(table[table["dataset"] == "split_cifar10"])["sfsvi"].size)) < SEEDS:
        return Judgement("not comparable", f"reduced: {seeds} seed{'s' * (seeds > 1)} of Split-CIFAR10; {numbers}")
    # Neither the paper's implementations nor its machine: never more than with a caveat.
    return Judgement("with a caveat" if other > 2 * mine else "not reproduced", numbers)


def _training_time() -> Claim:
    needs = tuple(
        paper_scale(dataset, row, "sfsvi", scenario="class_incremental", seeds=seeds)
        for (dataset, row), seeds in zip(TIMED.items(), (1, SEEDS), strict=True)
    )
    says = "ProtoCL trains a lot faster than S-FSVI"
    return Claim(
        name="training time",
        exhibit="Table 2",
        says=says,
        chapter="class_incremental",
        judge=_seconds,
        needs=needs,
    )


def _memory() -> Claim:
    from paper_lib.experiments import protocl_memory as memory

    says = "accuracy by the size of the memory; it should grow with it, which no sentence says"
    return Claim(
        name="memory",
        exhibit="Figures 7, A7",
        says=says,
        chapter="protocl_memory",
        judge=memory.judge_figure,
        needs=memory.needs("protocl", datasets=("split_mnist",)),
    )


def _dirichlet() -> Claim:
    from paper_lib.experiments import protocl_dirichlet as dirichlet

    says = "all classes end roughly equally likely"
    needs = tuple(map(dirichlet.selection, (dirichlet.PUBLISHED, dirichlet.CORRECTED)))
    return Claim(
        name="Dirichlet parameters",
        exhibit="Figure A8",
        says=says,
        chapter="protocl_dirichlet",
        judge=dirichlet.judge_figure,
        needs=needs,
    )


def _hmc() -> list[Claim]:
    from paper_lib.experiments import hmc_diagnostics as diagnostics
    from paper_lib.experiments import hmc_sequential as hmc

    forgets = "HMC with a GMM of the posterior forgets, and less is kept than by multi-head VCL"
    needs = (paper_scale("toy_pan", "hmc", "hmc_joint", "vcl_multi_head"),)
    joint = "joint HMC on Pan's toy set has accuracy 1.0"
    flow = "RealNVP depends on the seed, its draws are not accurate on the current task, and as a prior it is unstable"
    released = (diagnostics.flow_selection("as released"),)
    return [
        Claim(
            name="HMC on Pan's set",
            exhibit="Figure 3",
            says=forgets,
            chapter="hmc_sequential",
            judge=hmc.judge_figure,
            needs=needs,
        ),
        Claim(
            name="HMC as published",
            exhibit="Figure 3",
            says="the same with the released settings",
            chapter="hmc_sequential",
            judge=partial(hmc.judge_figure, row="hmc_as_published"),
            needs=(paper_scale("toy_pan", "hmc_as_published", "hmc_joint", "vcl_multi_head"),),
        ),
        Claim(
            name="HMC and one head",
            exhibit="Sec. 3, text",
            says="HMC is not much better than VCL with one head",
            chapter="hmc_sequential",
            judge=hmc.judge_one_head,
            needs=tuple(paper_scale(d, "hmc", "vcl_single_head", **hmc.SAME_POINTS[d]) for d in TOYS),
        ),
        Claim(
            name="heads",
            exhibit="Sec. 3, text",
            says="heads keep what was learned, and not the propagated posterior",
            chapter="hmc_sequential",
            judge=hmc.judge_heads,
            needs=tuple(paper_scale(d, *hmc.WITH_HEADS, **hmc.SAME_POINTS[d]) for d in TOYS),
        ),
        Claim(
            name="source of error",
            exhibit="Sec. 3, 8, text",
            says="the source of error is the density estimation",
            chapter="why_hmc_forgets",
            judge=hmc.judge_blame,
            needs=tuple(paper_scale(d, "hmc_adapted", *hmc.CONTROLS) for d in TOYS),
        ),
        Claim(
            name="joint HMC",
            exhibit="Sec. 3, text",
            says=joint,
            chapter="hmc_sequential",
            judge=hmc.judge_joint,
            needs=(paper_scale("toy_pan", "hmc_joint"),),
        ),
        Claim(
            name="RealNVP",
            exhibit="Sec. 3, text",
            says=flow,
            chapter="hmc_diagnostics",
            judge=diagnostics.judge_flow,
            needs=released,
        ),
    ]


def _hmc_appendices() -> list[Claim]:
    from paper_lib.experiments import hmc_sequential as hmc

    circle, chapter = "toy_gaussians", "hmc_diagnostics"
    needs = (paper_scale(circle, "hmc", "hmc_joint", "vcl_multi_head", **hmc.SAME_POINTS[circle]),)
    both = tuple(paper_scale(dataset, "hmc") for dataset in TOYS)
    draws = "draws of every fitted GMM are as accurate on the current task as HMC's"
    modes = "every fitted GMM has several modes"
    by_rule = {dataset: (paper_scale(dataset, "hmc", "hmc_as_published"),) for dataset in TOYS}
    return [
        Claim(
            name="toy Gaussians",
            exhibit="Figure A2",
            says="as Figure 3 on blobs on a circle",
            chapter=circle,
            judge=hmc.judge_figure,
            needs=needs,
        ),
        Claim(
            name="joint HMC on the circle",
            exhibit="App. C",
            says="multi-task training on the toy Gaussians has accuracy 1.0",
            chapter=circle,
            judge=hmc.judge_joint,
            needs=(paper_scale(circle, "hmc_joint"),),
        ),
        *(
            Claim(
                name=f"{name}, {exhibit}",
                exhibit=exhibit,
                says=says,
                chapter=chapter,
                judge=judge,
                needs=by_rule[dataset],
            )
            for exhibit, dataset in (("Figure A3", circle), ("Figure A5", "toy_pan"))
            for name, says, judge in (
                ("draws", draws, hmc.judge_densities),
                ("components", modes, hmc.judge_components),
            )
        ),
        Claim(
            name="convergence",
            exhibit="Figures A4, A6",
            says="the HMC chains have converged",
            chapter=chapter,
            judge=hmc.judge_gates,
            needs=both,
        ),
    ]


def claims() -> list[Claim]:
    """The inventory: every figure, table, equation and sentence that is held against something, in order."""
    from paper_lib.experiments import release_audit

    figure_1 = paper_scale(
        *("split_mnist", "sgd_single_head_long", "vcl_single_head", "sgd_multi_head_long", "vcl_multi_head")
    )
    kept = ("protocl_paper_epochs", "protocl_no_memory_paper_epochs", "replay")
    on_cifar = tuple(s for d in ("split_cifar10", "split_cifar100") for s in _all_there(d, ("protocl", "sfsvi")))
    rows_of_table_1 = tuple(paper_scale(d, *RANKED, *BESIDE, "sfsvi", scenario="class_incremental") for d in MNISTS)
    return [
        *SECTIONS_2,
        Claim(
            name="one head",
            exhibit="Figure 1",
            says="with one head VCL barely performs better than SGD",
            chapter="vcl_split_mnist",
            judge=_one_head,
            needs=(figure_1,),
        ),
        Claim(
            name="a head a task",
            exhibit="Figure 1",
            says="with a head a task VCL performs better",
            chapter="vcl_split_mnist",
            judge=_many_heads,
            needs=(figure_1,),
        ),
        *_hmc(),
        *SECTIONS_4_5,
        Claim(
            name="imbalance in networks",
            exhibit="Sec. 5",
            says="under assumptions, more data for the current task makes a Bayesian network forget; here without them",
            chapter="task_imbalance",
            judge=_imbalance,
            needs=_imbalance_selections(),
        ),
        *SECTION_7,
        *map(_number, PRINTED),
        Claim(
            name="memory or prototypes",
            exhibit="Sec. 7, text",
            says="the memory is what prevents forgetting, not the sequential inference over prototypes",
            chapter="protocl",
            judge=_memory_or_prototypes,
            needs=(paper_scale("split_mnist", *kept, scenario="class_incremental"),),
        ),
        Claim(
            name="objective of training",
            exhibit="Algorithm 1",
            says="the encoder is trained by maximising p(z, y)",
            chapter="release_audit",
            judge=_joint_objective,
            needs=(release_audit.selection(release_audit.JOINT),),
        ),
        Claim(
            name="ranking",
            exhibit="Sec. 7, text",
            says="on Table 1's data ProtoCL is on par with or better than S-FSVI",
            chapter="class_incremental",
            judge=_ranking,
            needs=rows_of_table_1,
        ),
        Claim(
            name="ranking on CIFAR",
            exhibit="Sec. 7, text",
            says="on larger benchmarks ProtoCL has better results than S-FSVI",
            chapter="class_incremental",
            judge=_ranking_on_cifar,
            needs=on_cifar,
        ),
        _training_time(),
        _memory(),
        *APPENDICES,
        _dirichlet(),
        *_hmc_appendices(),
    ]


SECTIONS_2 = (
    _closed_form(
        exhibit="Eq. 1-5",
        name="recursive Bayes",
        says="the posterior after one task is the prior of the next, and gives the joint posterior",
        verdict="reproduced",
        ours="in sequence as in one batch, to 1e-9",
        chapter="scenarios",
        tested="tests/test_regression.py",
    ),
    _closed_form(
        exhibit="Eq. 6",
        name="variational objective",
        says="VCL maximises its objective",
        verdict="with a caveat",
        ours="printed as the maximum of what is minimised (M6)",
        chapter="errata",
        tested="tests/test_errata.py",
    ),
    _closed_form(
        exhibit="Figure 2",
        name="posterior propagation",
        says="sketch: sample, fit a density, hand it on",
        verdict="reproduced",
        ours="redrawn",
        chapter="scenarios",
        tested="tests/test_schematics.py",
    ),
)
SECTIONS_4_5 = (
    _closed_form(
        exhibit="Figure 4",
        name="misspecification",
        says="exact inference in a misspecified model can forget",
        verdict="reproduced",
        ours="with many points the line tends to slope 0, intercept 1/2, and an excess error of 1/12 on both tasks",
        chapter="misspecification",
        tested="tests/test_misspecification.py",
    ),
    _closed_form(
        exhibit="Sec. 4",
        name="a better model",
        says="a mixture of linear regressors is a better model of both tasks",
        verdict="with a caveat",
        ours="as named it forgets less than the line by log likelihood and more by squared error; if each line also "
        "owns a region of inputs, it keeps both tasks by either",
        chapter="misspecification",
        tested="tests/test_misspecification.py",
    ),
    _closed_form(
        exhibit="Figures 5, A9",
        name="filtering model",
        says="sketch: graphical model of filtering",
        verdict="reproduced",
        ours="redrawn",
        chapter="task_imbalance",
        tested="tests/test_schematics.py",
    ),
    _closed_form(
        exhibit="Sec. 5, App. G",
        name="coordinate optimum and transition",
        says="the optimum of a weight moves as an Ornstein-Uhlenbeck step",
        verdict="with a caveat",
        ours="two printed variances are corrected (M1, M2)",
        chapter="task_imbalance",
        tested="tests/test_kalman.py",
    ),
    _closed_form(
        exhibit="Lemma 1",
        name="filter update",
        says="posterior mean and variance of one weight given the others",
        verdict="with a caveat",
        ours="holds with the linearised target (M3)",
        chapter="task_imbalance",
        tested="tests/test_kalman.py",
    ),
    _closed_form(
        exhibit="Sec. 5",
        name="imbalance of one weight",
        says="under assumptions, earlier tasks can be forgotten if there is more data for the current one",
        verdict="with a caveat",
        ours="exact for one weight whose best value stays, if the output depends on it equally at every point; if it "
        "drifts, the number of new points counts, not the share",
        chapter="task_imbalance",
        tested="tests/test_weight_filter.py",
    ),
)
SECTION_7 = (
    _closed_form(
        exhibit="Figure 6",
        name="ProtoCL",
        says="sketch of the model",
        verdict="reproduced",
        ours="redrawn",
        chapter="protocl_derivation",
        tested="tests/test_schematics.py",
    ),
    _closed_form(
        exhibit="Eq. 14-16, App. F",
        name="prototype updates",
        says="conjugate updates of prototypes and label frequencies",
        verdict="with a caveat",
        ours="equal to the batch posterior and to Monte Carlo; App. F misprints two densities on the way (M7)",
        chapter="protocl_derivation",
        tested="tests/test_gaussian.py",
    ),
    _closed_form(
        exhibit="Eq. 17, App. F",
        name="objective",
        says="the integral over a shared prototype is a product over points",
        verdict="not reproduced",
        ours="exact for a single labelled point only (M4)",
        chapter="protocl_derivation",
        tested="tests/test_protocl_derivation.py",
    ),
    _closed_form(
        exhibit="Sec. 7, App. F",
        name="label probabilities",
        says="p(y) is the Dirichlet posterior's mean",
        verdict="reproduced",
        ours="as drawn from an urn",
        chapter="protocl_derivation",
        tested="tests/test_protocl.py",
    ),
    _closed_form(
        exhibit="Algorithm 1",
        name="order of steps",
        says="alternate a gradient step and a conjugate update",
        verdict="with a caveat",
        ours="with the released code's loss and order of steps",
        chapter="protocl",
        tested="tests/test_protocl.py",
    ),
)
APPENDICES = (
    _closed_form(
        exhibit="Figure A1",
        name="scenarios",
        says="task-, domain- and class-incremental learning",
        verdict="reproduced",
        ours="redrawn on digits",
        chapter="scenarios",
        tested="tests/test_scenarios.py",
    ),
    _closed_form(
        exhibit="Sec. 4, App. B",
        name="metrics",
        says="average performance and forgetting",
        verdict="with a caveat",
        ours="a mean in App. B, printed as a sum in Sec. 4 (M5)",
        chapter="metrics",
        tested="tests/test_metrics.py",
    ),
)
