"""Which of the release's choices makes the recursion forget: one factor at a time from ``hmc_as_published``.

Five tasks of Pan's set, three seeds a change and ten as published. Each change is one setting; ``all corrected`` makes
those of the sampler and of the fit together, and then hands on a mixture, a Gaussian, a RealNVP, or nothing fitted
(``exact``). With the release's start, one network on every task, nothing fitted is joint HMC afresh on each task.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from paper_lib import paper, sweep, tables
from paper_lib.checks import one_of
from paper_lib.experiments.hmc_sequential import (
    FAILED,
    LEARNED,
    NOT_LEARNED,
    POINT,
    counting,
    densities,
    failure,
    gates,
    gates_by_task,
    reported,
    unlearned_by_task,
)
from paper_lib.metrics import PairedDifference, paired_difference
from paper_lib.rows import GREEN, GREY, VERMILION
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

ROW, DATASET, SEEDS = "hmc_as_published", "toy_pan", 3
PUBLISHED, BESIDE = "as published", "against as published (95 %)"

COLUMNS = ("final accuracy ± sd", "densities failed", "converged", "verdict")
CHANCE = 0.51
"""Accuracy on two classes below which nothing is known."""

KEPT = 90.0
"""Percent: without a density, a final accuracy of more is remembering."""

CORRECTED = {
    **{"burn_reject": "stay", "include_init": False, "start": "prior", "adapt": True, "step_size": 1e-2},
    **{"regularisation": "shrinkage", "final_rows": 12_000, "average": "probability", "eval_chains": "all"},
}
"""The sampler and the fit as corrected, but for what components are chosen on."""

FACTORS: dict[str, Mapping[str, Any]] = {
    PUBLISHED: {},
    "a rejection in the warm-up stays": {"burn_reject": "stay"},
    "no starting point among the draws": {"include_init": False},
    "chains start at draws of the prior": {"start": "prior"},
    "step size and masses adapt": {"adapt": True, "step_size": 1e-2},
    "fit to 12,000 rows, not 3,750": {"final_rows": 12_000},
    "a rejection stays, fit to 12,000 rows": {"burn_reject": "stay", "final_rows": 12_000},
    "covariances shrunk": {"regularisation": "shrinkage"},
    "components chosen on whole chains": {"holdout": "chains"},
    "prediction by all chains": {"average": "probability", "eval_chains": "all"},
    "prior precision 1": {"prior_precision": 1.0},
    "prior precision 100": {"prior_precision": 100.0},
    "800 points a blob": {"toy_points": 800},
    "a Gaussian handed on": {"density": "gaussian"},
    "a RealNVP handed on": {"density": "realnvp"},
    "nothing fitted (exact)": {"recursion": "exact"},
    "all corrected, a GMM": CORRECTED,
    "all corrected, a GMM chosen on chains": CORRECTED | {"holdout": "chains"},
    "all corrected, a Gaussian": CORRECTED | {"density": "gaussian"},
    "all corrected, a RealNVP": CORRECTED | {"density": "realnvp"},
    "all corrected, exact": CORRECTED | {"recursion": "exact"},
}
"""Changes in words, with the settings that they change."""

DIFFERENCES = (
    *("a rejection in the warm-up stays", "no starting point among the draws", "chains start at draws of the prior"),
    *("components chosen on whole chains", "fit to 12,000 rows, not 3,750", "covariances shrunk"),
    "prediction by all chains",
)
"""The changes that correct one thing in which the release differs from the text."""

LEARNING = (
    *("step size and masses adapt", "covariances shrunk", "components chosen on whole chains"),
    "800 points a blob",
)
"""The changes under which later tasks are learned beneath a mixture, by task in the chapter."""

GROUPS = {
    "sampler": ("burn_reject", "include_init", "start", "adapt"),
    "fit": ("final_rows", "regularisation", "holdout", "density"),
    "rest": ("average", "prior_precision", "toy_points"),
}
"""Settings as the chapter's prose takes their changes together; all that is corrected at once is ``corrected``."""

EXACT = ("nothing fitted (exact)", "all corrected, exact")
"""The changes that hand on no density."""

LIVE = Selection(DATASET, seeds=(0,), rows=(ROW,))
LIVE_FACTORS = (PUBLISHED, "step size and masses adapt", "all corrected, a Gaussian", "all corrected, exact")
"""What the chapter runs unless its parameters say otherwise."""


def selection(factor: str, live: Selection | None = None) -> Selection:
    """The runs of a factor, at the paper's scale unless a live selection says otherwise, which fits to all its rows."""
    if live is None:
        seeds = SEEDS if FACTORS[factor] else paper.SEEDS  # as published it is Figure 3's row
        return paper.paper_scale(DATASET, ROW, seeds=seeds, **FACTORS[factor])
    changes = {name: None if name == "final_rows" else value for name, value in FACTORS[factor].items()}
    return replace(live, changes={**live.changes, **changes})


def selections() -> list[Selection]:
    """All runs of the chapter at the paper's scale."""
    return [selection(factor) for factor in FACTORS]


def source() -> str:
    """What recomputes the chapter's table, as it says it below."""
    return "\n".join(f"{factor}: `{tables.command(selection(factor))}`" for factor in FACTORS)


def found(tables_of: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A line a factor that has runs.

    Returns:
        ``final`` percents of each of ``seeds``, ``mean``, ``sd`` and ``triangle``; ``learned``, accuracy on tasks just
        learned, and ``first`` on task 1; ``failed`` of ``fitted`` densities on tasks that HMC has learned;
        ``passed`` of ``chains`` gates; ``failure`` of sampler or density; ``verdict`` in words, and ``colour`` by it.
    """
    lines = {}
    for factor, table in tables_of.items():
        if table.empty:
            continue
        final, triangle = (tables.by_seed(table, s)[ROW] for s in ("final_accuracy", "triangle_mean"))
        fitted, gate = densities(table), gates(table).loc[ROW]
        lines[factor] = {"final": final.tolist(), "seeds": final.index.tolist()}
        lines[factor] |= {"mean": final.mean(), "sd": final.std(), "triangle": triangle.mean()}
        verdicts = fitted.verdict[fitted.verdict != NOT_LEARNED]
        lines[factor] |= {"failed": int((verdicts == FAILED).sum()), "fitted": len(verdicts)}
        lines[factor]["learned"] = tables.by_seed(table, "learning_accuracy")[ROW].mean()
        lines[factor]["first"] = 100 * tables.matrices(table)[ROW][:, 0, 0].mean()
        lines[factor] |= {"passed": int(gate.passed), "chains": int(gate.n), "n": len(final), "failure": failure(table)}
    frame = pd.DataFrame.from_dict(lines, orient="index")
    if frame.empty:
        return frame
    best = frame["mean"][[name for name in frame.index if name.endswith(("exact", "(exact)"))]].max()
    words = [_verdict(line, best) for line in frame.itertuples()]
    return frame.assign(verdict=words, colour=[_colour(word) for word in words]).rename_axis(index="change")


def stored() -> pd.DataFrame:
    """``found`` of the stored runs."""
    return found({factor: sweep.stored(selection(factor)) for factor in FACTORS})


def run(live: Selection, factors: tuple[str, ...] = LIVE_FACTORS) -> pd.DataFrame:
    """``found`` of live runs. Chains that stand still are reported by the verdict, and warned of no more."""
    one_of("rows", ",".join(live.rows), (ROW,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return found({factor: sweep.run(selection(factor, live)) for factor in factors})


def _verdict(line: Any, best: float) -> str:
    """What a change does, in plain words; ``best`` is the final accuracy when nothing is fitted."""
    if line.failure:
        return line.failure
    if line.learned < LEARNED:
        return "not learned: the sampler is to blame"
    if not line.fitted:
        return "remembers" if line.mean >= KEPT else "forgets with nothing fitted"
    if pd.isna(best):
        return "exact recursion not run yet"
    if best - line.mean <= 100 * POINT:
        return "remembers"
    points = " with 80 points a blob" if "toy_points" in FACTORS[line.Index] else ""
    return f"forgets: {best - line.mean:.0f} points below exact{points}"


MEANING = {
    GREEN: "remembers",
    VERMILION: "forgets, though densities count",
    GREY: "not learned, chains stuck or densities failed",
}
"""What the colours of ``found`` say."""


def _colour(verdict: str) -> str:
    return GREEN if verdict == "remembers" else VERMILION if verdict.startswith("forgets") else GREY


def shown(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The chapter's table, with a line for factors that are still to be run too, and what it folds away."""
    lines, more = {}, {}
    for factor in FACTORS:
        lines[factor] = dict.fromkeys(COLUMNS, "–") | {"verdict": "not run yet"}
        more[factor] = {"triangle mean": math.nan, "when learned": math.nan, BESIDE: "–", "n": 0}
    for line in frame.itertuples():
        lines[line.Index] = {
            "final accuracy ± sd": tables.plus_minus(line.mean, line.sd, 1),
            "densities failed": f"{line.failed} of {line.fitted}" if line.fitted else "–",
            "converged": f"{line.passed} of {line.chains}",
            "verdict": line.verdict,
        }
        more[line.Index] = {"triangle mean": line.triangle, "when learned": line.learned, "n": line.n}
        more[line.Index] |= {BESIDE: _interval(frame, line.Index)}
    return tuple(pd.DataFrame.from_dict(f, orient="index").rename_axis(index="change") for f in (lines, more))


def _less_published(frame: pd.DataFrame, factor: str) -> PairedDifference | None:
    """A change less as published in points, on the seeds of both; None with fewer than two."""
    if factor == PUBLISHED or PUBLISHED not in frame.index:
        return None
    mine, published = (pd.Series(frame.final[name], frame.seeds[name]) for name in (factor, PUBLISHED))
    both = mine.index.intersection(published.index)
    return paired_difference(mine[both], published[both]) if len(both) > 1 else None


def _interval(frame: pd.DataFrame, factor: str) -> str:
    """``_less_published`` with its 95 % interval, in words."""
    found = _less_published(frame, factor)
    return paper.interval(found) if found else "–"


def numbers() -> dict[str, str]:
    """What the chapter's prose cites, as words, also where nothing has been run yet."""
    frame, cited = stored(), {}
    for factor in FACTORS:
        there = factor in frame.index
        name = _cited(factor)
        cited[name] = f"{frame['mean'][factor]:.1f} %" if there else "not run yet"
        cited[f"{name}_verdict"] = frame.verdict[factor] if there else "not run yet"
    for group in (*GROUPS, "corrected"):
        there = [
            f"{f.removeprefix('all corrected, ')} {frame['mean'][f]:.1f} % ({frame.verdict[f]})"
            for f in FACTORS
            if f in frame.index and _group(f) == group
        ]
        cited[f"group_{group}"] = "; ".join(there) or "not run yet"
    one = frame.loc["all corrected, a Gaussian"] if "all corrected, a Gaussian" in frame.index else None
    cited["gaussian_gates"] = "not run yet" if one is None else f"{one.passed} of {one.chains}"
    cited["gaussian_gates_by_task"] = gates_by_task(sweep.stored(selection("all corrected, a Gaussian")))
    cited |= _of_densities()
    cited["to_blame"] = _to_blame(frame) if all(claim.judged().verdict == "holds" for claim in CLAIMS) else "open"
    cited["verdict"] = paper.verdict("source of error")
    missing = [factor for factor in FACTORS if factor not in frame.index]
    cited["not_run"] = "; ".join(missing) or "nothing"
    run, alone = len(FACTORS) - len(missing), [factor for factor in DIFFERENCES if factor in frame.index]
    cited["coverage"] = (
        f"{run} of {len(FACTORS)} settings have been run, and {len(alone)} of {len(DIFFERENCES)} differences between "
        "code and text changed alone"
    )
    cited["differences"] = str(len(DIFFERENCES))
    cited["alone"] = "; ".join(f"{factor} {_interval(frame, factor)}" for factor in alone) or "not run yet"
    cited["highest_alone"] = f"{max(map(max, frame.final[alone])):.1f} %" if alone else "not run yet"
    less = {factor: _less_published(frame, factor) for factor in alone}
    apart = [factor for factor, change in less.items() if change and not change.lower <= 0 <= change.upper]
    cited["apart"] = "; ".join(apart) or "none of them"
    for factor in LEARNING:
        cited[f"{_cited(factor)}_draws"] = _draws_by_task(factor)
    return cited


def _to_blame(frame: pd.DataFrame) -> str:
    """How far settings that learn task 1 and hand on a density end below those that do not, in words."""
    exact = frame.index.str.endswith(("exact", "(exact)"))
    handed_on = ~exact & (frame["first"] >= LEARNED)
    if frame["mean"][handed_on].max() < frame["mean"][exact].min() - 10:
        return (
            f"all settings that learn task 1 and hand on a fitted density ({handed_on.sum()} were run) end more than "
            f"ten points below those that keep all data and fit nothing ({exact.sum()})"
        )
    return "some settings that hand on a density end as high as those that keep all data and fit nothing"


def _of_densities() -> dict[str, str]:
    """As published: seeds at chance or below on every task, those that have not learned a task, and accuracy of HMC's
    draws on the last; with ``_of_the_mixture``."""
    published = sweep.stored(selection(PUBLISHED))
    if published.empty:
        names = ("published_chance", "published_unlearned", "published_last")
        return dict.fromkeys(names, "not run yet") | _of_the_mixture()
    after = tables.matrices(published)[ROW][:, -1]
    last = tables.by_task(published, "accuracy").query("task == 5").value.mean()
    told_of = {"published_chance": f"{(after < CHANCE).all(1).sum()} of {len(after)}"}
    told_of["published_unlearned"] = unlearned_by_task(published)
    told_of["published_last"] = f"{100 * last:.0f} %"
    return told_of | _of_the_mixture()


def _draws_by_task(factor: str) -> str:
    """How often HMC's own draws are right on each task just learned, percent."""
    lines = reported(sweep.stored(selection(factor)), "accuracy")
    if lines.empty:
        return "not run yet"
    return ", ".join(f"{100 * x:.0f}" for x in lines.groupby("task").accuracy.mean()) + " %"


def _of_the_mixture() -> dict[str, str]:
    """Of the corrected mixture: components, how often its draws and HMC's are right, whether it and its chains pass."""
    table = sweep.stored(selection("all corrected, a GMM"))
    lines = reported(table, "density_accuracy", "accuracy", "num_components")
    if lines.empty:
        names = ("components", "right", "hmc_right", "counts", "gates")
        return dict.fromkeys((f"gmm_{name}" for name in names), "not run yet")
    right = 100 * lines.groupby("task")[["density_accuracy", "accuracy"]].mean()
    found = {"gmm_components": f"{lines.num_components.min():.0f} to {lines.num_components.max():.0f}"}
    found["gmm_right"] = ", ".join(f"{x:.0f}" for x in right.density_accuracy) + " %"
    found["gmm_counts"] = counting(densities(table), ROW)
    found["gmm_gates"] = gates_by_task(table)
    return found | {"gmm_hmc_right": f"{right.accuracy.min():.0f} to {right.accuracy.max():.0f} %"}


def _group(factor: str) -> str | None:
    """The group of ``GROUPS`` that a change belongs to; none of what changes nothing or fits nothing."""
    if factor.startswith("all corrected"):
        return "corrected"
    return next((group for group, names in GROUPS.items() if set(names) & set(FACTORS[factor])), None)


def _cited(factor: str) -> str:
    return factor.replace(",", "").replace("(", "").replace(")", "").replace(" ", "_")


def _none_remembers(factors: tuple[str, ...], table: pd.DataFrame) -> Judgement:
    """No seed of a difference changed alone comes near those of the exact recursion, named first."""
    final = {factor: tables.by_seed(tables.of(table, selection(factor)))[ROW] for factor in factors}
    without = final.pop(factors[0]).min()
    best = max(final, key=lambda factor: final[factor].max())
    words = f"highest seed {final[best].max():.1f} ({best}); lowest with nothing fitted {without:.1f} %"
    return holds(without - final[best].max() > 10, words)


def _ends(table: pd.DataFrame, factors: Iterable[str]) -> list[float]:
    """Mean final accuracy of each factor, percent."""
    return [float(tables.by_seed(tables.of(table, selection(factor)))[ROW].mean()) for factor in factors]


def _density_is_to_blame(factors: tuple[str, str], table: pd.DataFrame) -> Judgement:
    """Nothing else changed, the exact recursion, named second, remembers what a fitted density loses."""
    without, with_data = _ends(table, factors)
    words = f"final accuracy: nothing fitted {with_data:.1f}, a density handed on {without:.1f} %"
    return holds(with_data >= KEPT and with_data - without > 10, words)


def _sampler_alone(factors: tuple[str, str], table: pd.DataFrame) -> Judgement:
    """With nothing fitted, the published sampler ends where the corrected one, named second, does."""
    published, corrected = _ends(table, factors)
    words = f"final accuracy: published {published:.1f}, corrected {corrected:.1f} %"
    return holds(min(published, corrected) >= KEPT and abs(published - corrected) <= 100 * POINT, words)


def _mixture_no_better(factors: tuple[str, str], table: pd.DataFrame) -> Judgement:
    """With all corrected, a mixture, named second, ends less than five points above a Gaussian, which has forgotten."""
    one, many = _ends(table, factors)
    return holds(many - one < 5 and one < LEARNED, f"final accuracy: a Gaussian {one:.1f}, a mixture {many:.1f} %")


CLAIMS = tuple(
    Claim(
        exhibit="Figure 3",
        says=says,
        chapter="why_hmc_forgets",
        judge=partial(judge, factors),
        needs=tuple(map(selection, factors)),
    )
    for says, judge, factors in (
        (
            "The release's sampler holds all tasks with all their data and nothing fitted, and not with its mixture.",
            *(_density_is_to_blame, (PUBLISHED, "nothing fitted (exact)")),
        ),
        (
            "With all corrected, too, all tasks are held with all data and nothing fitted, and not with a Gaussian.",
            *(_density_is_to_blame, ("all corrected, a Gaussian", "all corrected, exact")),
        ),
        (
            "With nothing fitted the published sampler ends within a point of the corrected one.",
            *(_sampler_alone, EXACT),
        ),
        (
            "With all corrected, a mixture of up to 50 components ends less than five points above a Gaussian.",
            *(_mixture_no_better, ("all corrected, a Gaussian", "all corrected, a GMM")),
        ),
        (
            "No difference from the text, changed alone, makes any seed end near where nothing fitted ends.",
            *(_none_remembers, ("nothing fitted (exact)", *DIFFERENCES)),
        ),
    )
)
"""What the chapter says about stored runs."""
