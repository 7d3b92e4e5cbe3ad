"""Figure 7: final accuracy and triangle mean against the size of the memory, of ProtoCL and of replay beside it.

The figure counts the whole buffer, shared by all tasks, and the text keeps 200 points a task: 1,000 in all. So a total
of M is M / T points kept of each of T tasks here (``memory_per_task``), and at 1,000 the runs are those of Table 1. The
release shares M among the tasks so far (``memory_total``), which replay has not, and which ends with the same buffer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from paper_lib import metrics, paper, sweep, tables
from paper_lib.checks import ParameterError, some_of, within
from paper_lib.rows import MNISTS, row
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

SCENARIO, ROWS, SEEDS = "class_incremental", ("protocl", "replay"), 5
TOTALS = (0, 50, 100, 200, 500, 1000, 2000, 5000)
"""Points of memory in all after the last task."""

LIVE = Selection(scenario=SCENARIO, rows=ROWS)
"""What the chapter runs unless its parameters say otherwise, at each of ``Sizes.totals``."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the live run.

    Attributes:
        totals: points of memory in all, each a multiple of the number of tasks.
    """

    totals: tuple[int, ...] = (0, 10, 50, 250)

    def __post_init__(self):
        if not self.totals or len(set(self.totals)) < len(self.totals):
            raise ValueError(f"totals={self.totals!r} is empty or has a number twice; give each once, such as 0,50,250")
        for total in self.totals:
            within("totals", total, 0)


def selection(name: str, total: int, live: Selection) -> Selection:
    """A row with a memory of a size: a row as it is where it has that memory already."""
    if name == "protocl" and total == 0:
        return replace(live, rows=("protocl_no_memory",))
    each = total // sweep.num_tasks(live)
    usual = row(name).build(live.dataset, live.preset, {})[0].memory_per_task
    changes = {} if each == usual else {"memory_per_task": each}
    return replace(live, rows=(name,), changes={**live.changes, **changes})


def paper_rows(dataset: str) -> Selection:
    """The selection that the curve of a data set is made from."""
    return paper.paper_scale(dataset, *ROWS, scenario=SCENARIO, seeds=SEEDS)


def selections(live: Selection | None = None, totals: Iterable[int] = TOTALS) -> list[Selection]:
    """All runs of a live selection, or of the curves at the paper's scale."""
    bases = [paper_rows(dataset) for dataset in MNISTS] if live is None else [live]
    for name in ("memory_per_task", "memory_total"):
        if live is not None and name in live.changes:
            raise ValueError(f"{name}={live.changes[name]!r} is what totals sets here; leave it out")
    return [selection(name, total, base) for base in bases for name in base.rows for total in totals]


def curve(live: Selection, totals: Iterable[int], found: Callable[[Selection], pd.DataFrame]) -> pd.DataFrame:
    """A line a row, size and seed that has runs.

    Args:
        live: rows and seeds.
        totals: sizes.
        found: ``sweep.run``, ``sweep.stored`` or ``tables.of`` a table.

    Returns:
        ``row``, ``total``, ``seed``; ``final`` and ``triangle``, percent; ``nll`` after the last task, nats.
    """
    parts = []
    for name in live.rows:
        for total in totals:
            one = selection(name, total, live)
            table = found(one)
            table = table[table.seed.isin(one.seeds)]
            if table.empty:
                continue
            scores = {
                "final": tables.by_seed(table),
                "triangle": tables.by_seed(table, "triangle_mean"),
                "nll": tables.by_seed(table, metric="nll"),
            }
            lines = pd.DataFrame({score: by[one.rows[0]] for score, by in scores.items()})
            parts.append(lines.rename_axis("seed").reset_index().assign(row=name, total=total))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


COLUMNS = ["seed", "final", "triangle", "nll", "row", "total"]


def run(live: Selection, sizes: Sizes | None = None) -> pd.DataFrame:
    """``curve`` of a live selection.

    Raises:
        ParameterError: a row has no memory to vary, or a size is no multiple of the number of tasks.
    """
    try:
        some_of("rows", live.rows, ROWS)
    except ValueError as error:
        raise ParameterError(error) from error
    sizes, num_tasks = sizes or Sizes(), sweep.num_tasks(live)
    for total in sizes.totals:
        if total % num_tasks:
            raise ParameterError(f"totals={total} is no multiple of {num_tasks}, the tasks of {live.dataset}")
    return curve(live, sizes.totals, sweep.run)


def stored(dataset: str) -> pd.DataFrame:
    """``curve`` of the stored runs of a data set."""
    return curve(paper_rows(dataset), TOTALS, sweep.stored)


def shown(dataset: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The chapter's table of a data set, with a line for every size, and what it folds away."""
    lines = stored(dataset)
    by = {key: part for key, part in lines.groupby(["row", "total"])}
    main, more = {}, {}
    for total in TOTALS:
        main[total], more[total] = {}, {}
        for score, words in (("final", "final accuracy"), ("triangle", "triangle mean")):
            for name in ROWS:
                part = by.get((name, total))
                cell = "not run" if part is None else tables.plus_minus(part[score].mean(), part[score].std(), 1)
                main[total][f"{words}, {paper.label(name)}"] = cell
        for name in ROWS:
            part = by.get((name, total))
            label = paper.label(name)
            more[total] |= {f"NLL, {label}": math.nan if part is None else part.nll.mean()}
            more[total] |= {f"n, {label}": 0 if part is None else len(part)}
        against = paired(lines, total)
        more[total]["ProtoCL minus replay, final accuracy, paired"] = (
            "–" if against is None else f"{against.mean:+.1f} ± {against.se:.1f} (se)"
        )
    name = f"memory, {paper.LABELS[dataset]}"
    return tuple(pd.DataFrame.from_dict(f, orient="index").rename_axis(name) for f in (main, more))


def panels() -> dict[str, pd.DataFrame]:
    """Panels of ``plots.memory_curves`` of the stored runs."""
    return {paper.LABELS[dataset]: stored(dataset) for dataset in MNISTS}


def printed() -> dict[str, dict[int, tuple[float, float]]]:
    """What the paper prints without memory and with 200 points a task, by data set and size."""
    sizes = {"protocl_no_memory": 0, "protocl": 1000}
    found = {paper.LABELS[dataset]: {} for dataset in MNISTS}
    for p in paper.PRINTED:
        if p.dataset in MNISTS and p.row in sizes:
            found[paper.LABELS[p.dataset]][sizes[p.row]] = (p.value, p.margin)
    return found


def source(dataset: str) -> str:
    """What recomputes a data set's curve, as the chapter says it below its table."""
    every = selections(paper_rows(dataset))
    there = [table[table.seed.isin(one.seeds)] for one in every if not (table := sweep.stored(one)).empty]
    provenance = [tables.provenance_in_words(pd.concat(there))] if there else []
    return "\n".join([f"`{tables.command(one)}`" for one in every] + provenance)


def paired(lines: pd.DataFrame, total: int, score: str = "final") -> metrics.PairedDifference | None:
    """How much ProtoCL is above replay with a memory of a size, points; None with fewer than two common seeds."""
    by = lines[lines.total == total].pivot(index="seed", columns="row", values=score)
    both = by.dropna() if set(ROWS) <= set(by) else by[:0]
    return metrics.paired_difference(both.protocl, both.replay) if len(both) > 1 else None


def numbers() -> dict[str, str]:
    """What the chapter's prose cites, as words, also where nothing has been run yet: ``final_ROW_TOTAL`` and so on."""
    cited = {}
    for dataset, short in zip(MNISTS, ("", "_fmnist"), strict=True):
        lines = stored(dataset)
        for name in ROWS:
            for total in TOTALS:
                part = lines[(lines["row"] == name) & (lines.total == total)]
                for score in ("final", "triangle"):
                    mean = "not run yet" if part.empty else f"{part[score].mean():.1f} %"
                    cited[f"{score}_{name}_{total}{short}"] = mean
    return cited | {"verdict": paper.verdict("memory")}


# --- what is claimed


def judge_figure(table: pd.DataFrame) -> Judgement:
    """Whether ProtoCL's final accuracy grows with the memory: no size is below the one before by more than chance.

    With fewer epochs than the paper's that is a caveat.
    """
    lines = curve(paper_rows("split_mnist"), TOTALS, partial(tables.of, table))
    final = lines[lines["row"] == "protocl"].pivot(index="seed", columns="total", values="final")[list(TOTALS)]
    steps = [metrics.paired_difference(final[b], final[a]) for a, b in itertools.pairwise(TOTALS)]
    grows = all(step.upper > 0 for step in steps) and sum(step.lower > 0 for step in steps) > len(steps) / 2
    words = ", ".join(f"{final[total].mean():.1f}" for total in TOTALS)
    numbers = f"final accuracy {words} % with {', '.join(map(str, TOTALS))} points (n = {len(final)})"
    if not grows:
        return Judgement("not reproduced", numbers)
    asked = next(p.epochs for p in paper.printed("split_mnist") if p.row == "protocl")
    epochs = tables.epochs_of(table)
    if epochs and epochs < asked:
        return Judgement("with a caveat", f"{numbers}; {epochs:g} of {asked} epochs")
    return Judgement("reproduced", numbers)


def needs(*names: str, totals: Iterable[int] = TOTALS, datasets: Iterable[str] = MNISTS) -> tuple[Selection, ...]:
    """Runs at the paper's scale that a claim is judged by."""
    return tuple(selection(name, total, paper_rows(d)) for d in datasets for name in names for total in totals)


def _final(table: pd.DataFrame, name: str, totals: Iterable[int]) -> list[float]:
    """Mean final accuracy of a row on Split-MNIST with memories of some sizes."""
    found = curve(paper_rows("split_mnist"), totals, partial(tables.of, table))
    by = found[found["row"] == name].groupby("total").final.mean()
    return [float(by[total]) for total in totals]


def _printed(table: pd.DataFrame) -> Judgement:
    lines = curve(paper_rows("split_mnist"), (0, 1000), partial(tables.of, table))
    mine, within, words = lines[lines["row"] == "protocl"], [], []
    for total, (value, margin) in printed()[paper.LABELS["split_mnist"]].items():
        found = metrics.summarise(mine[mine.total == total].triangle)
        within.append(abs(found.mean - value) <= margin + 2 * found.se)
        words.append(f"{found.mean:.2f} for {value:.2f} ± {margin:.2f} with {total:,} points")
    return holds(all(within), f"triangle mean: {', '.join(words)}")


def _few_points(table: pd.DataFrame) -> Judgement:
    none, few, many = _final(table, "protocl", (0, 100, 1000))
    share = (few - none) / (many - none) if many > none else math.nan
    return holds(
        0.5 < share < 0.9, f"final accuracy {none:.1f}, {few:.1f}, {many:.1f} %: {100 * share:.0f} % of the way"
    )


def _more_points(table: pd.DataFrame) -> Judgement:
    none, usual, many = _final(table, "protocl", (0, 1000, 5000))
    gain, before = many - usual, usual - none
    return holds(
        0 < gain < before / 10, f"final accuracy {usual:.1f} and {many:.1f} %; the first 1,000: {before:+.1f} points"
    )


def _few_on_clothes(table: pd.DataFrame) -> Judgement:
    found = curve(paper_rows("split_fmnist"), (50, 5000), partial(tables.of, table))
    few, many = (paired(found, total) for total in (50, 5000))
    words = ", ".join(f"{paper.interval(one)} with {total:,}" for one, total in ((few, 50), (many, 5000)))
    return holds(few.upper < -5 and many.lower > -1, f"final accuracy of ProtoCL less replay's, points: {words}")


CLAIMS = tuple(
    Claim(
        exhibit="Figure 7",
        says=says,
        chapter="protocl_memory",
        judge=judge,
        needs=needs(*rows, totals=totals, datasets=(dataset,)),
    )
    for says, judge, rows, totals, dataset in (
        (
            "The printed numbers without memory and with 1,000 points are ProtoCL's triangle means, within their ±.",
            *(_printed, ("protocl",), (0, 1000), "split_mnist"),
        ),
        (
            "Twenty points a task bring ProtoCL more than half of the way from none to 200 a task.",
            *(_few_points, ("protocl",), (0, 100, 1000), "split_mnist"),
        ),
        (
            "A memory five times as large adds less than a tenth of what the first 1,000 points add.",
            *(_more_points, ("protocl",), (0, 1000, 5000), "split_mnist"),
        ),
        (
            "On Split-FMNIST ProtoCL is more than five points below replay with 50 points, and not with 5,000.",
            *(_few_on_clothes, ROWS, (50, 5000), "split_fmnist"),
        ),
    )
)
"""What the chapter says about stored runs."""
