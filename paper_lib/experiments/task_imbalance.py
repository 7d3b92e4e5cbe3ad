r"""Does a larger second task make a network forget the first?

The stream is the first two tasks of a data set with one head for both, and three designs tell apart what a ratio of
sizes mixes up:

- ``larger task 2, same passes``: n_1 stays, n_2 grows, and with it the number of updates, as it does in practice.
- ``larger task 2, same updates``: n_1 stays, n_2 grows, the number of updates does not.
- ``smaller task 1, same updates``: n_2 stays, n_1 shrinks. A prior that stands for fewer points should give way.

Where both tasks have the same size the three are one run. Every seed draws its own points of each task, a smaller
choice inside the larger ones, so runs of a seed are paired. The paper has no experiment here: all settings are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from paper_lib import paper, runs, sweep, tables
from paper_lib.checks import one_of
from paper_lib.data.stream import TooFewPoints
from paper_lib.metrics import PairedDifference, paired_difference
from paper_lib.rows import ROWS as ROWS_BY_NAME
from paper_lib.rows import shown_in
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

ROWS = shown_in("task_imbalance")
SAME_PASSES, SAME_UPDATES, SMALLER_FIRST = DESIGNS = (
    "larger task 2, same passes",
    "larger task 2, same updates",
    "smaller task 1, same updates",
)
LIVE = Selection(scenario="domain_incremental", seeds=(0, 1), rows=ROWS)
PAPER = paper.paper_scale("split_mnist", *ROWS, scenario="domain_incremental", seeds=5)
"""What is stored under ``results/``."""


class Design(NamedTuple):
    """What a preset fixes.

    Attributes:
        num_points: training points of a task that keeps its size.
        ratios: of the sizes, n_2 / n_1.
        num_updates: gradient steps on a task whose updates are fixed.
        batch_size: points a step, that of the rows.
    """

    num_points: int
    ratios: tuple[float, ...]
    num_updates: int
    batch_size: int


PRESETS = {"quick": Design(50, (0.2, 1.0, 5.0), 100, 10), "paper": Design(1000, (0.1, 0.3, 1.0, 3.0, 10.0), 600, 50)}


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


def cells(preset: str) -> list[Cell]:
    """Every design at every ratio.

    >>> [cell.sizes for cell in cells("quick")][:3]
    [(50, 10), (50, 10), (250, 50)]
    """
    p, found = PRESETS[one_of("preset", preset, PRESETS)], []
    for ratio in p.ratios:
        grown, shrunk = (p.num_points, round(ratio * p.num_points)), (round(p.num_points / ratio), p.num_points)
        passes = max(1, round(ratio * p.num_updates))
        found += [
            Cell(SAME_PASSES, ratio, grown, (p.num_updates, passes)),
            Cell(SAME_UPDATES, ratio, grown, (p.num_updates, p.num_updates)),
            Cell(SMALLER_FIRST, ratio, shrunk, (p.num_updates, p.num_updates)),
        ]
    return found


def changes(row: str, cell: Cell, preset: str) -> dict[str, tuple[int, int]]:
    """Sizes and epochs of both tasks, such that each task gets the cell's updates.

    The joint network takes as many steps on both tasks together as the others take on two tasks of fixed updates.
    """
    p, sizes, updates = PRESETS[preset], cell.sizes, cell.updates
    if row == "imbalance_joint":
        sizes, updates = (sizes[0], sum(sizes)), (p.num_updates, 2 * p.num_updates)
    epochs = tuple(max(1, round(u / -(-n // p.batch_size))) for n, u in zip(sizes, updates, strict=True))
    return {"train_sizes": cell.sizes, "epochs": epochs}


def selections(selection: Selection) -> Iterator[Selection]:
    """One selection a row, distinct cell and seed: each seed has its own points.

    Raises:
        ValueError: for changes, since the design sets what changes.
    """
    if selection.changes:
        told = runs.written(selection.changes)
        raise ValueError(f"{told}: task_imbalance sets sizes and epochs by its design and takes no other settings")
    for seed in selection.seeds:
        for row in selection.rows:
            distinct = {
                runs.written(own): own for c in cells(selection.preset) for own in [changes(row, c, selection.preset)]
            }
            for own in distinct.values():
                yield replace(selection, seeds=(seed,), rows=(row,), changes=own | {"train_seed": seed})


def run(selection: Selection) -> pd.DataFrame:
    """Scores of every row, cell, seed and pair of tasks, as a tidy table.

    Raises:
        ValueError: the data set has smaller tasks than the preset's designs.
    """
    try:
        return sweep.run(selections(selection))
    except TooFewPoints as error:
        most = max(size for cell in cells(selection.preset) for size in cell.sizes)
        asked = f"preset={selection.preset!r} has tasks of up to {most:,} points"
        raise ValueError(f"{asked}, too many for dataset={selection.dataset!r}: {error}") from None


def stored() -> pd.DataFrame:
    """The stored runs at full size."""
    return sweep.stored(selections(PAPER))


def by_design(table: pd.DataFrame, preset: str) -> pd.DataFrame:
    """Scores of each run in each design that it belongs to.

    Args:
        table: of ``run`` or ``stored``.
        preset: its preset.

    Returns:
        Columns ``row, design, ratio, seed, before, task_1, task_2, forgetting``: the accuracy on task 1 after task 1,
        those on both tasks after task 2, and ``before - task_1``.
    """
    mine = table[table["metric"] == "accuracy"]
    mine = mine.assign(pair=mine.task_trained.astype(str) + mine.task_tested.astype(str))
    wide = mine.pivot(index=["row", "changes", "seed"], columns="pair", values="value")
    known, found = set(wide.index.droplevel("seed")), []
    for row in mine["row"].unique():
        for cell in cells(preset):
            own = (row, runs.written(changes(row, cell, preset)))
            if own in known:
                scores = wide.loc[own].reset_index()
                found.append(scores.assign(row=row.removeprefix("imbalance_"), design=cell.design, ratio=cell.ratio))
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


def effect_in_words(effect: pd.DataFrame) -> pd.DataFrame:
    """``effect_of_ratio`` to be read, in points: a row a method and design, changes with their intervals."""
    points = effect.set_index(["row", "design"]).mul(100)
    names = [f"{ROWS_BY_NAME[f'imbalance_{row}'].style.label}, {design}" for row, design in points.index]
    shown = pd.DataFrame({"method and design": names})
    shown["equal sizes"] = [tables.plus_minus(r.equal_sizes, r.equal_sizes_sd, 1) for r in points.itertuples()]
    for name, end in (("ratio 0.1 to 1", "below"), ("ratio 1 to 10", "above")):
        columns = points[[end, f"{end}_low", f"{end}_high"]].itertuples(index=False, name=None)
        shown[name] = [f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, low, high in columns]
    return shown


NEEDS = tuple(selections(PAPER))


def _changes_of(table: pd.DataFrame) -> pd.DataFrame:
    return effect_of_ratio(by_design(table, "paper")).set_index(["row", "design"]) * 100


def _told(line: pd.Series, side: str) -> str:
    return f"{line[side]:+.1f} ({line[f'{side}_low']:+.1f} to {line[f'{side}_high']:+.1f})"


def _same_passes(table: pd.DataFrame) -> Judgement:
    line = _changes_of(table).loc["sgd", SAME_PASSES]
    return holds(line.below_low > 9, f"SGD, from a tenth to equal sizes: {_told(line, 'below')} points")


def _same_updates(table: pd.DataFrame) -> Judgement:
    found = _changes_of(table)
    lines = {row: found.loc[row, SAME_UPDATES] for row in ("sgd", "vcl")}
    inside = all(line.below_low < 0 < line.below_high for line in lines.values())
    return holds(inside, "; ".join(f"{row.upper()} {_told(line, 'below')} points" for row, line in lines.items()))


def _tenfold(table: pd.DataFrame) -> Judgement:
    line = _changes_of(table).loc["sgd", SAME_UPDATES]
    return holds(line.above_high < -3, f"SGD, from equal sizes to tenfold: {_told(line, 'above')} points")


def _smaller_first(table: pd.DataFrame) -> Judgement:
    line = _changes_of(table).loc["sgd", SMALLER_FIRST]
    ends = line[["below_low", "below_high", "above_low", "above_high"]]
    return holds(ends.abs().max() < 3, f"SGD: {_told(line, 'below')} and {_told(line, 'above')} points")


def _balanced(table: pd.DataFrame) -> Judgement:
    found = _cited(table)
    return holds(
        found["joint_most"] < 1.5 and min(found["equal_sgd"], found["equal_vcl"]) > 20,
        f"equal sizes: SGD {found['equal_sgd']:.0f}, VCL {found['equal_vcl']:.0f} points; joint at most "
        f"{found['joint_most']:.1f}, in any design at any ratio",
    )


def _rises(table: pd.DataFrame) -> Judgement:
    lines = _changes_of(table).loc[
        [(row, design) for row in ("sgd", "vcl") for design in (SAME_UPDATES, SMALLER_FIRST)]
    ]
    lows = lines[["below_low", "above_low"]]
    return holds(
        lows.max().max() <= 0,
        f"the lower ends of the intervals: {lows.min().min():+.1f} to {lows.max().max():+.1f} points",
    )


def _largest_rise(table: pd.DataFrame) -> Judgement:
    """Of a shrinking task 1, over all pairs of ratios: no pair was chosen before the runs were seen.

    Nothing in SGD knows the size of task 1, so its pairs show what a search over pairs finds by chance.
    """
    largest, words = {}, []
    for row, changes in _pairs(table).items():
        (low, high), largest[row] = max(changes.items(), key=lambda found: found[1].lower)
        rises, falls = sum(c.lower > 0 for c in changes.values()), sum(c.upper < 0 for c in changes.values())
        words.append(
            f"{row.upper()} rises in {rises} and falls in {falls} of {len(changes)} pairs, most from ratio {low:g} to "
            f"{high:g}, {paper.interval(largest[row])} points"
        )
    return holds(largest["vcl"].lower > max(0, largest["sgd"].upper), "; ".join(words))


def _whole_range(table: pd.DataFrame) -> Judgement:
    change = _pairs(table)["vcl"][PRESETS["paper"].ratios[0], PRESETS["paper"].ratios[-1]]
    return holds(change.lower < 0 < change.upper, f"VCL, from a tenth to tenfold: {paper.interval(change)} points")


def _pairs(table: pd.DataFrame) -> dict[str, dict[tuple[float, float], PairedDifference]]:
    """Of VCL and SGD: how forgetting changes between any two ratios as task 1 shrinks, in points."""
    scores = by_design(table, "paper")
    scores = scores[scores.design == SMALLER_FIRST].pivot(index=["row", "seed"], columns="ratio", values="forgetting")
    found = {}
    for row in ("vcl", "sgd"):
        by = 100 * scores.loc[row]
        found[row] = {(a, b): paired_difference(by[b], by[a]) for a in by.columns for b in by.columns if a < b}
    return found


def _passes_over_updates(table: pd.DataFrame) -> Judgement:
    """How much more the change from the smallest to equal sizes is at equal passes; equal sizes are one run in both."""
    scores = by_design(table, "paper")
    first = scores[scores.ratio == scores.ratio.min()].pivot(
        index=["row", "seed"], columns="design", values="forgetting"
    )
    first = 100 * first
    more = {row: paired_difference(first.loc[row][SAME_UPDATES], first.loc[row][SAME_PASSES]) for row in ("sgd", "vcl")}
    told = (f"{row.upper()} {paper.interval(m)}" for row, m in more.items())
    return holds(more["sgd"].lower > 0 > more["vcl"].lower, f"points: {'; '.join(told)}")


def _joint_rises(table: pd.DataFrame) -> Judgement:
    lines = _changes_of(table).loc["joint"]
    told = "; ".join(f"{design}: {_told(line, 'above')}" for design, line in lines.iterrows())
    return holds(
        bool((lines.above_low > 0).all() and lines.above.max() < 2), f"from equal sizes to tenfold, points: {told}"
    )


def _cited(table: pd.DataFrame) -> dict[str, float]:
    """Points of forgetting: at equal sizes, SGD's change to a tenfold task 2, and joint training's most and rises."""
    mean = 100 * by_design(table, "paper").groupby(["row", "design", "ratio"]).forgetting.mean()
    changes = _changes_of(table).above
    rises = changes["joint"]
    whole = _pairs(table)["vcl"][PRESETS["paper"].ratios[0], PRESETS["paper"].ratios[-1]]
    cited = {
        **{f"whole_{name}": getattr(whole, name) for name in ("mean", "lower", "upper")},
        **{f"equal_{row}": mean[row, SAME_UPDATES, 1.0] for row in ("sgd", "vcl")},
        "change_sgd": changes["sgd", SAME_UPDATES],
        "joint_most": mean["joint"].max(),
        **{"joint_rise_least": rises.min(), "joint_rise_most": rises.max()},
    }
    return {name: round(float(points), 6) for name, points in cited.items()}


def numbers() -> dict[str, float]:
    """What the chapter's prose cites of the stored runs."""
    return _cited(stored())


def command() -> str:
    """What runs every cell of the stored designs."""
    seeds = f"{PAPER.seeds[0]}:{PAPER.seeds[-1] + 1}"
    return f"paper-lib run task_imbalance dataset={PAPER.dataset} preset={PAPER.preset} seeds={seeds}"


def source() -> str:
    """What recomputes the chapter's table, and how its runs came about."""
    return f"`{command()}`\n{tables.provenance_in_words(stored())}"


CLAIMS = tuple(
    Claim(
        exhibit="Sec. 5",
        says=says,
        chapter="task_imbalance",
        judge=judge,
        needs=NEEDS,
    )
    for says, judge in (
        ("Where a small task 2 also brings few updates, a larger one makes SGD forget more.", _same_passes),
        ("At equal updates the same change is not shown: its interval contains 0.", _same_updates),
        ("At equal updates a tenfold task 2 makes SGD forget less.", _tenfold),
        ("Shrinking task 1 hardly moves SGD's forgetting.", _smaller_first),
        (
            "A tenth of the points with few updates forgets less than with all updates: shown for SGD, not for VCL.",
            _passes_over_updates,
        ),
        (
            "With equal updates, or with a smaller task 1, neither change of the table is a rise of SGD's or VCL's "
            "forgetting whose interval excludes 0.",
            _rises,
        ),
        ("As task 1 shrinks VCL forgets more between some ratios, by more than SGD between any.", _largest_rise),
        ("Over the whole range of sizes of task 1 no rise of VCL's forgetting is shown.", _whole_range),
        ("Balanced tasks already cost more than a fifth, and one network fitted to both keeps almost all.", _balanced),
        ("Joint training forgets a little more as task 2 outweighs task 1.", _joint_rises),
    )
)
"""What the chapter says about stored runs."""
