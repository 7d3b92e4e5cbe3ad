"""From stored runs to what a chapter shows: matrices, summaries, comparisons with the paper, paired tests, verdicts.

Every function takes a tidy table (``runs.COLUMNS``), live or stored. Seeds that diverged are counted and left out of
every mean. Percent throughout; P_T is the paper's metric, the final accuracy, and stands beside the triangle mean,
which several printed numbers turned out to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper_lib import metrics, runs, sweep
from paper_lib.data.stream import LABELS
from paper_lib.rows import ROWS
from paper_lib.sweep import Selection

SCORES: dict[str, Callable[[NDArray], NDArray]] = {
    "final_accuracy": metrics.final_accuracy,
    "triangle_mean": metrics.triangle_mean,
    "forgetting": lambda a: metrics.forgetting(a)[..., -1],
    "learning_accuracy": metrics.learning_accuracy,
}
"""Scores of accuracy matrices, one number a seed."""

SEEDS = 10
"""The paper's."""

LARGEST_SE = 50 / math.sqrt(SEEDS - 1)
"""The largest standard error of ten accuracies between 0 and 100 %: half of them at either end. A larger ± is none."""


def matrices_of(table: pd.DataFrame, metric: str = "accuracy") -> tuple[NDArray, NDArray]:
    """The matrices of one row's runs.

    Args:
        table: of one row and setting.
        metric: which values.

    Returns:
        seeds ``(seed,)`` and ``(seed, task_trained, task_tested)``, NaN where there is no value.

    Raises:
        ValueError: there is no such metric, or a seed has two values in one place.
    """
    lines = table[table["metric"] == metric]
    if lines.empty:
        raise ValueError(f"no rows of metric={metric!r}; there are {sorted(table['metric'].unique())}")
    place = ["seed", "task_trained", "task_tested"]
    twice = lines[lines.duplicated(place)]
    if len(twice):
        raise ValueError(f"two values of {metric} for {dict(twice.iloc[0][place])}: the rows are of several settings")
    seeds, tasks = np.unique(lines["seed"]), np.unique(lines[["task_trained", "task_tested"]])
    found = np.full((len(seeds), len(tasks), len(tasks)), np.nan)
    at = tuple(np.searchsorted(known, lines[name]) for name, known in zip(place, (seeds, tasks, tasks), strict=True))
    found[at] = lines["value"]
    return seeds, found


def _learned(table: pd.DataFrame, metric: str) -> tuple[NDArray, NDArray]:
    """As ``matrices_of`` without the seeds that diverged, and with a network a task kept as it was."""
    seeds, a = matrices_of(table, metric)
    whole = ~np.isnan(a[:, np.tri(a.shape[-1], dtype=bool)]).any(1)
    seeds, a = seeds[whole], a[whole]
    return seeds, metrics.networks_kept(a) if table["row"].iloc[0] == "single_task" and len(a) else a


def matrices(table: pd.DataFrame, metric: str = "accuracy") -> dict[str, NDArray]:
    """Matrices ``(seed, task_trained, task_tested)`` of every row of a table of one setting, in the order of ``ROWS``.

    The row ``single_task`` is that of a learner which keeps each task's network: see ``metrics.networks_kept``.
    """
    found = {str(name): _learned(part, metric)[1] for name, part in table.groupby("row", observed=True)}
    return {name: found[name] for name in ROWS if name in found}


def by_task(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """What a method reported of each task as one number, such as an acceptance rate.

    Returns:
        Columns ``row, seed, task, value``; without lines where nothing of that name was reported.
    """
    mine = table[table["metric"] == f"info: {name}"]
    return (
        mine[["row", "seed", "task_trained", "value"]].rename(columns={"task_trained": "task"}).reset_index(drop=True)
    )


def curves(table: pd.DataFrame) -> dict[str, NDArray]:
    """Average accuracy ``P_k`` over the tasks so far, ``(seed, task)``, of every row of a table of one setting."""
    return {name: metrics.average_accuracy(a) for name, a in matrices(table).items()}


def by_seed(table: pd.DataFrame, score: str = "final_accuracy", metric: str = "accuracy") -> dict[str, pd.Series]:
    """One number a seed for every row of a table of one setting, percent for accuracies."""
    found = {}
    for name, part in table.groupby("row", observed=True):
        seeds, a = _learned(part, metric)
        found[str(name)] = pd.Series((100 if metric == "accuracy" else 1) * SCORES[score](a), index=seeds)
    return {name: found[name] for name in ROWS if name in found}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Scores over seeds of every row and setting; unlike settings, keys among them, are never averaged.

    Returns:
        A line a row and setting: those of ``runs.NAMES``, a column a score of ``mean``, ``sd`` in percent, NLL and ECE
        after the last task, ``n`` seeds and how many more ``diverged``, all ``seeds`` as a command line has them, and
        the ``key`` of the runs in the table's provenance, empty where each seed has one of its own.
    """
    lines = []
    # a seed that draws its own training points has a key of its own, and those of a row are one setting
    drawn = table[table["changes"].str.contains("train_sizes=")]
    own_data = {k for k, part in drawn.groupby("key", observed=True) if part.seed.nunique() == 1}
    by = [*runs.NAMES, table["key"].where(~table["key"].isin(own_data), "")]
    for group, part in table.groupby(by, sort=False, dropna=False, observed=True):
        if part.duplicated(["seed", "task_trained", "task_tested", "metric"]).any():
            split = [one for _, one in part.groupby("key", observed=True)]
        else:
            split = [part]
        for one in split:
            line = dict(zip(runs.NAMES, group, strict=False))
            _, a = _learned(one, "accuracy")
            for name, score in SCORES.items():
                found = _summarised(a, score)
                line |= {name: found.mean, f"{name} sd": found.sd}
            line |= _at_the_end(one) | {"n": len(a), "diverged": one.seed.nunique() - len(a)}
            keys = one.key.unique()
            lines.append(line | {"seeds": in_short(one.seed), "key": keys[0] if len(keys) == 1 else ""})
    return pd.DataFrame(lines)


def _summarised(a: NDArray, score: Callable[[NDArray], NDArray]) -> metrics.Summary:
    """A score of accuracy matrices over seeds, percent; not numbers where there is no seed."""
    return metrics.summarise(100 * score(a)) if len(a) else metrics.Summary(*[math.nan] * 3, 0)


def _at_the_end(part: pd.DataFrame) -> dict[str, float]:
    """Mean NLL and ECE after the last task, of what has them."""
    there = {name: _learned(part, name)[1] for name in ("nll", "ece") if (part.metric == name).any()}
    return {name: float(metrics.final_accuracy(a).mean()) for name, a in there.items() if len(a)}


# --- beside the paper


class Printed(NamedTuple):
    """A number that the paper prints.

    Attributes:
        exhibit: such as ``Table 1``.
        row: the row that it belongs to.
        dataset: stream.
        value: percent.
        margin: the printed ±, percentage points.
        epochs: of a task, the paper's if it says, or the public code's: the mean, where the first task has more.
    """

    exhibit: str
    row: str
    dataset: str
    value: float
    margin: float
    epochs: int | None = None


class Judgement(NamedTuple):
    """A verdict and the numbers behind it.

    Attributes:
        verdict: one of ``VERDICTS`` of what the paper says, ``holds`` or ``fails`` of what a chapter says; empty where
            there is nothing to judge.
        ours: the numbers, in words.
    """

    verdict: str
    ours: str


VERDICTS = ("reproduced", "with a caveat", "not reproduced", "not comparable", "open")


def comparison(
    table: pd.DataFrame, printed: Iterable[Printed], rows: Sequence[str], num_seeds: int = SEEDS
) -> pd.DataFrame:
    """The paper's numbers beside stored runs of one data set.

    Args:
        table: runs at the paper's scale of one data set and scenario.
        printed: the paper's numbers on it.
        rows: in the order of the table; one with neither a printed number nor runs is left out.
        num_seeds: seeds of the paper.

    Returns:
        A line a row: ``paper`` and its ``margin``; ``triangle`` and ``final`` with ``sd`` and ``se``; ``n`` seeds,
        ``diverged`` ones, ``z`` of both: the gap in standard errors of the difference with the margin read as a
        standard deviation over the paper's seeds; ``verdict`` and its ``words`` (``judge_number``); NLL and ECE after
        the last task; seconds of training a seed and the most memory that a stack held.
    """
    numbers, lines = {p.row: p for p in printed}, {}
    found = {str(name): part for name, part in table.groupby("row", observed=True)}
    for name in (name for name in rows if name in found or name in numbers):
        paper = numbers.get(name, Printed("", name, "", math.nan, math.nan))
        line: dict[str, Any] = {"paper": paper.value, "margin": paper.margin, "n": 0, "diverged": 0}
        if name in found:
            part = found[name]
            _, a = _learned(part, "accuracy")
            triangle, final = (_summarised(a, SCORES[s]) for s in ("triangle_mean", "final_accuracy"))
            for word, s in (("triangle", triangle), ("final", final)):
                z = _z(paper, s, num_seeds)
                line |= {word: s.mean, f"{word} sd": s.sd, f"{word} se": s.se, f"{word} z": z}
            line |= {"n": len(a), "diverged": part.seed.nunique() - len(a)} | costs(part) | _at_the_end(part)
            judged = judge_number(paper, triangle, final, epochs_of(part), num_seeds)
        else:
            judged = Judgement("open", "not run")
        lines[name] = line | {"verdict": judged.verdict, "words": judged.ours}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(index="row")


def _z(paper: Printed, found: metrics.Summary, num_seeds: int) -> float:
    """The gap in standard errors of the difference, the paper's ± read as a standard deviation over its seeds."""
    return (found.mean - paper.value) / np.hypot(paper.margin / math.sqrt(num_seeds), found.se)


def shortfall(n: int, epochs: float | None, full: float | None, num_seeds: int = SEEDS) -> list[str]:
    """What runs lack, in words: seeds, and epochs of a task, where both numbers are known.

    >>> shortfall(1, 10, 80), shortfall(10, None, 80)
    (['1 seed', '10 of 80 epochs'], [])
    """
    words = [f"{n} seed{'s' * (n > 1)}"] * (n < num_seeds)
    if full and epochs is not None and epochs < full:
        words.append(f"{epochs:g} of {full:g} epochs")
    return words


def judge_number(
    paper: Printed, triangle: metrics.Summary, final: metrics.Summary, epochs: float | None, num_seeds: int = SEEDS
) -> Judgement:
    """Whether runs reproduce a printed number, by both readings of its ± and of its metric.

    Within the printed ± (the lenient reading): the gap is at most the ± plus two of our standard errors. By ``z`` (the
    strict one): the ± is taken as a standard deviation over the paper's seeds, and the gap is at most two standard
    errors of the difference. ``reproduced`` asks for both, as the final accuracy that the paper defines; with a caveat
    if only one of them holds, or only as a triangle mean. Fewer seeds or epochs than the paper's, or a ± that can be no
    standard error, are ``not comparable``.
    """
    if math.isnan(paper.value):
        return Judgement("", "")
    reduced = shortfall(final.n, epochs, paper.epochs, num_seeds)
    if paper.margin > LARGEST_SE:  # whatever is run
        return Judgement("not comparable", "uninformative ±" + f" ({', '.join(reduced)})" * bool(reduced))
    if reduced:
        return Judgement("not comparable", f"reduced: {', '.join(reduced)}")
    readings = [("", final), (" as a triangle mean", triangle)]
    words = []
    for name, s in readings:
        z = _z(paper, s, num_seeds)
        within = abs(s.mean - paper.value) <= paper.margin + 2 * s.se
        if within and abs(z) <= 2:
            return Judgement("with a caveat" if name else "reproduced", f"reproduced{name}")
        words += [f"within ±{name}, z {z:+.1f}"] if within else []
    if words:
        return Judgement("with a caveat", words[0])
    return Judgement("not reproduced", "below" if final.mean < paper.value else "above")


def plus_minus(mean: float, spread: float, digits: int = 2) -> str:
    """A mean with its spread as a table shows it; without it where there is none, as of one seed.

    >>> plus_minus(91.426, 0.5), plus_minus(91.426, math.nan, 1), plus_minus(math.nan, math.nan)
    ('91.43 ± 0.50', '91.4', '–')
    """
    if math.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if not math.isnan(spread) else "")


def side_by_side(lines: pd.DataFrame, label: Callable[[str], str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``comparison`` as a chapter shows it: at most five columns, and all other numbers.

    Args:
        lines: of ``comparison``; what the paper prints is left out where that is nothing, and so are verdicts.
        label: a row's name as the reader knows it.
    """

    def column(name: str, spread: str) -> list[str]:
        there = lines.reindex(columns=[name, spread])
        return [plus_minus(mean, sd) for mean, sd in there.itertuples(index=False)]

    names = pd.Index([label(name) for name in lines.index], name="method")
    shown = {
        "paper ±": column("paper", "margin"),
        "triangle mean ± sd": column("triangle", "triangle sd"),
        "final accuracy ± sd": column("final", "final sd"),
        "verdict": lines.words.where(lines.words != "", "–").tolist(),
    }
    if lines["paper"].isna().all():
        del shown["paper ±"]
    if (lines["words"] == "").all():
        del shown["verdict"]
    rest = {
        **{"final se": "final se", "final z": "final z", "triangle se": "triangle se", "triangle z": "triangle z"},
        **{"nll": "NLL", "ece": "ECE", "seconds": "s a seed", "memory": "GB", "n": "n", "diverged": "diverged"},
    }
    more = lines.reindex(columns=list(rest)).rename(columns=rest).set_index(names)
    return pd.DataFrame(shown, index=names), more[more["n"] > 0]


def numbers(table: pd.DataFrame, rows: Iterable[str], suffix: str = "") -> dict[str, float]:
    """What prose cites of a table of one setting: ``final_ROW`` and ``triangle_ROW``, percent, without rows not run."""
    scores = {"final": by_seed(table), "triangle": by_seed(table, "triangle_mean")}
    return {
        f"{word}_{row}{suffix}": round(float(found[row].mean()), 4)
        for word, found in scores.items()
        for row in rows
        if row in found
    }


def epochs_of(table: pd.DataFrame) -> float | None:
    """Epochs of a task in a row's runs, the mean over tasks, out of their stored identity; None without epochs."""
    found = [source["identity"]["method"][2].get("epochs") for source in runs.provenance_of(table).values()]
    return min((float(np.mean(epochs)) for epochs in found if epochs is not None), default=None)


def _made(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Every stack of seeds that stored lines come from."""
    return [run for source in runs.provenance_of(table).values() for run in source["runs"]]


def costs(table: pd.DataFrame) -> dict[str, float]:
    """Seconds of training and scoring a seed, and the most memory of a stack in GB, out of the provenance."""
    made = _made(table)
    if not made:
        return {"seconds": math.nan, "memory": math.nan}
    seconds = sum(r["seconds"] for r in made) / sum(len(r["seeds"]) for r in made)
    return {"seconds": seconds, "memory": max(r["peak_memory_bytes"] or 0 for r in made) / 1e9}


def settings(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """What a table's rows were run with, out of their provenance: ``pixels``, ``memory``, and settings by name."""
    lines = {}
    for name, part in table.groupby("row", observed=True):
        identity = next(iter(runs.provenance_of(part).values()))["identity"]
        own, scaling = identity["method"][2], identity["stream"].get("scaling", "standard")
        kept, total = own.get("coreset_per_task", own.get("memory_per_task", 0)), own.get("memory_total")
        memory = f"{total} in all" if total else "all" if kept is None else f"{kept} a task" if kept else "none"
        pixels = "[0, 1]" if scaling == "unit" else "standardised"
        lines[name] = {"pixels": pixels, "memory": memory} | {n: own[n] for n in names if n in own}
    found = pd.DataFrame.from_dict(lines, orient="index").rename_axis(index="row")
    return found.reindex([name for name in ROWS if name in lines])


def of(table: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    """The runs of a selection of one row, in a table of several settings such as a claim is judged by."""
    (job,) = sweep.jobs(selection)
    return table[(table["row"] == job.row) & (table.dataset == selection.dataset) & (table.changes == job.changes)]


def paired(table: pd.DataFrame, row: str, other: str, score: str = "final_accuracy") -> metrics.PairedDifference | None:
    """How much a row is above another on their common seeds, percentage points; None with fewer than two of them."""
    values = by_seed(table[table["row"].isin((row, other))], score)
    if row not in values or other not in values:
        return None
    common = values[row].index.intersection(values[other].index)
    return metrics.paired_difference(values[row][common], values[other][common]) if len(common) > 1 else None


# --- statements about stored results


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement about stored results: one of the paper, or one that a chapter makes.

    Attributes:
        exhibit: where the paper makes it, or the chapter's section.
        says: the statement, in our words.
        chapter: the notebook that shows it.
        judge: takes the stored table to a verdict and the numbers behind it.
        needs: whose stored runs it is judged by; none for what is checked in closed form.
        tested: the test that holds it, for what is checked in closed form.
        name: unique in its chapter, by which others find it; empty where nothing looks for it.
    """

    exhibit: str
    says: str
    chapter: str
    judge: Callable[[pd.DataFrame], Judgement]
    needs: tuple[Selection, ...] = ()
    tested: str = ""
    name: str = ""

    def judged(self) -> Judgement:
        """The verdict of today's stored runs; ``open`` where a needed row has none."""
        table = sweep.stored(self.needs)
        lacking = [words for words, n, _ in self._seeds(table) if not n]
        if lacking:
            return Judgement("open", f"not run: {', '.join(lacking)}")
        if alone := [words for words, n, asked in self._seeds(table) if n < 2 <= asked]:
            return Judgement("open", f"one seed: {', '.join(alone)}")
        if apart := _without_common_seeds(table):
            return Judgement("open", f"rows without two seeds in common on {', '.join(LABELS[d] for d in apart)}")
        return self.judge(table)

    def fewer(self) -> str:
        """Which needed rows have fewer seeds than are asked for, in words; empty if none has."""
        few = [f"{words} {n} of {asked}" for words, n, asked in self._seeds(sweep.stored(self.needs)) if n < asked]
        return f"fewer seeds: {', '.join(few)}" if few else ""

    def _seeds(self, table: pd.DataFrame) -> list[tuple[str, int, int]]:
        """Each needed row in words, with the seeds that it has and those that are asked for."""
        names = ["row", "dataset", "changes"]
        counts = table.groupby(names, observed=True)["seed"].nunique()
        asked: dict[tuple[str, str, str], set[int]] = {}  # a chapter's design has a selection a seed
        for one in self.needs:
            for job in sweep.jobs(one):
                asked.setdefault((job.row, one.dataset, job.changes), set()).update(one.seeds)
        return [(self._words(*key), int(counts.get(key, 0)), len(seeds)) for key, seeds in asked.items()]

    @staticmethod
    def _words(row: str, dataset: str, changes: str) -> str:
        return f"{ROWS[row].style.label} on {LABELS[dataset]}" + f" with {changes}" * bool(changes)

    def command(self) -> str:
        """What recomputes it."""
        return "\n".join(map(command, self.needs))


def _without_common_seeds(table: pd.DataFrame) -> list[str]:
    """Data sets on which rows that have several seeds have fewer than two in common: no pairs can be made there."""
    seeds = table.groupby(["dataset", "row", "changes"], observed=True)["seed"].agg(set)
    several = seeds[seeds.map(len) > 1].groupby("dataset", observed=True)
    return [dataset for dataset, sets in several if len(set.intersection(*sets)) < 2]


def in_short(seeds: Iterable[int]) -> str:
    """Seeds as a command line has them.

    >>> in_short([0, 1, 2]), in_short([3, 1])
    ('0:3', '1,3')
    """
    each = sorted({int(seed) for seed in seeds})
    return f"{each[0]}:{each[-1] + 1}" if each == list(range(each[0], each[-1] + 1)) else ",".join(map(str, each))


def command(selection: Selection) -> str:
    """The command line that runs a selection.

    >>> command(Selection("split_mnist", "class_incremental", "paper", seeds=tuple(range(10)), rows=("sgd", "joint")))
    'paper-lib run dataset=split_mnist scenario=class_incremental preset=paper seeds=0:10 rows=sgd,joint'
    """
    words = {
        **{"dataset": selection.dataset, "scenario": selection.scenario, "preset": selection.preset},
        **{"split": None if selection.split == "test" else selection.split, "seeds": in_short(selection.seeds)},
        **{"rows": ",".join(selection.rows)},
    }
    told = [f"{name}={value}" for name, value in words.items() if value is not None]
    return " ".join(["paper-lib run", *told, *runs.written(selection.changes, with_seed=True).split()])


def source(table: pd.DataFrame) -> str:
    """What recomputes a stored table of one data set, and how its runs came about, as a chapter says it below."""
    if table.empty:
        return "not run yet"
    told = {name: sorted(table[name].unique()) for name in ("dataset", "scenario", "preset", "split", "seed")}
    (dataset,), (preset,), (split,) = (told[name] for name in ("dataset", "preset", "split"))
    scenario = told["scenario"][0] if len(told["scenario"]) == 1 else None  # several: each row's own
    rows = tuple(name for name in ROWS if name in set(table["row"]))
    selection = Selection(dataset, scenario, preset, split, tuple(map(int, told["seed"])), rows=rows)
    return f"`{command(selection)}`\n{provenance_in_words(table)}"


def provenance_in_words(table: pd.DataFrame) -> str:
    """Where stored runs of one data set come from, in words: seeds, commits, machine, library, days.

    Commits of a checkout with changes that were not committed are marked with a +.
    """
    made = _made(table)
    if not made:
        return "no provenance"
    counts = sorted(set(table.groupby("row", observed=True)["seed"].nunique()))
    days = sorted({r["finished"][:10] for r in made})
    commits = sorted({(r["commit"] or "unknown")[:7] + "+" * (r["dirty"] is not False) for r in made})
    devices = sorted({f"{r['device']}{f', {p}' if (p := r.get('precision')) == 'bfloat16' else ''}" for r in made})
    torches = sorted({r["torch"] for r in made})
    return "; ".join(
        (
            f"{' or '.join(map(str, counts))} seed{'s' if counts[-1] > 1 else ''} a row",
            f"commits {', '.join(commits)}",
            " and ".join(devices),
            f"torch {' and '.join(torches)}",
            days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        )
    )


def verdicts(claims: Iterable[Claim]) -> pd.DataFrame:
    """Statements with their numbers and verdicts, as a chapter shows them."""
    lines = []
    for claim in claims:
        verdict, numbers = claim.judged()
        few = claim.fewer() if verdict != "open" else ""
        lines.append((claim.says, f"{numbers}; {few}" if few else numbers, verdict))
    return pd.DataFrame(lines, columns=["statement", "stored runs", "verdict"]).set_index("statement")


def holds(condition: bool, numbers: str) -> Judgement:
    """A chapter's own statement about stored results: it holds, or the chapter is wrong."""
    return Judgement("holds" if condition else "fails", numbers)
