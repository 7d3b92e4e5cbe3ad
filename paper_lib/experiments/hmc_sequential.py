"""Figure 3 and Figure A2: does a posterior that is sampled and handed on as a fitted density remember?

A row samples each task under the density fitted to the last one's draws; two controls have all data so far instead
(``hmc_exact``, which goes on from the last draws, and ``hmc_joint``, which begins afresh). What a density loses is told
apart from what the recursion loses: a density *counts* if its draws are as accurate on the task just learned as HMC's
(``inference.density.passes``); where it does not, the run says nothing about sequential Bayes. Nor does a density whose
draws agree with HMC's on a task that HMC has not learned: such tasks are left out of the count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from paper_lib import metrics, paper, sweep, tables
from paper_lib.data import toy
from paper_lib.inference import density
from paper_lib.inference.diagnostics import MAX_RHAT, MIN_ESS
from paper_lib.rows import ROWS, TOYS, shown_in
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

SAMPLED = shown_in("hmc")
CONTROLS = ("hmc_exact", "hmc_joint")
HANDED_ON = tuple(name for name in SAMPLED if name not in CONTROLS)
BESIDE = ("sgd_single_head", "vcl_single_head", "sgd_multi_head", "vcl_multi_head", "joint_unit")
"""Stored rows that Figure 3 shows beside HMC."""

WITH_HEADS = ("vcl_single_head", "vcl_multi_head", "sgd_multi_head")
"""Rows that tell what heads keep from what the posterior keeps."""

FIGURE = ("hmc", "hmc_as_published", *CONTROLS, "sgd_single_head", "vcl_single_head", "vcl_multi_head")
"""What Figure 3 shows here, from the stored runs."""

LIVE = Selection("toy_pan", seeds=(0, 1), rows=("hmc", *CONTROLS))
"""What the chapter runs unless its parameters say otherwise."""

BLOBS = {"toy_pan": toy.pan, "toy_gaussians": toy.gaussians}
POINT = 0.01
"""A point of accuracy, within which things are called equal here."""
GATE_COLUMNS = [f"{w}{m}, {of}" for of in ("log density", "probabilities") for w, m in
                (("", "R-hat"), ("worst ", "R-hat"), ("", "ESS"), ("least ", "ESS"))] + ["passed", "n"]  # fmt: skip
_GATED = ("converged_log_density", "converged_probe")
STUCK = 0.01
"""Acceptance rate below which chains stand still."""
MUCH = 5.0
"""Points from which on a gain is noticeable."""
LEARNED = 75.0
"""Percent of points that HMC's draws must have right for a task to be learned, half way from chance to all."""
SAME_POINTS = {"toy_pan": {}, "toy_gaussians": {"toy_points": 80}}
"""With these changes the rows beside HMC, too, learn from 80 points a blob; on Pan et al.'s set they do so anyway."""
FAILED, NOT_LEARNED = "density failed", "tasks not learned"


def stored(dataset: str) -> pd.DataFrame:
    """The stored runs at the paper's scale, of HMC and of what is shown beside it."""
    return sweep.stored(selection(dataset))


def source(dataset: str) -> str:
    """What recomputes ``stored``, as a chapter says it below its table."""
    return f"`{tables.command(selection(dataset))}`\n{tables.provenance_in_words(stored(dataset))}"


def selection(dataset: str) -> Selection:
    """HMC's rows and those shown beside them, at the paper's scale and with as many points."""
    rows = tuple(name for name in ROWS if name in (*SAMPLED, *BESIDE))
    return paper.paper_scale(dataset, *rows, **SAME_POINTS[dataset])


def bayes_accuracy(dataset: str) -> float:
    """Percent that the best classifier of all five tasks reaches, which knows the blobs and not the task."""
    return 100 * toy.bayes_accuracy(BLOBS[dataset]())


def bayes_accuracies() -> dict[str, float]:
    """``bayes_accuracy`` by a data set's name as chapters have it."""
    return {paper.LABELS[dataset]: bayes_accuracy(dataset) for dataset in TOYS}


# --- may a run be believed?


def reported(table: pd.DataFrame, *names: str) -> pd.DataFrame:
    """What HMC reported, a line a row, seed and task that has the first name, and a column a name, or NaN."""
    parts = [tables.by_task(table, name).set_index(["row", "seed", "task"]).value.rename(name) for name in names]
    return pd.concat(parts, axis=1).dropna(subset=names[0]).reset_index()


def densities(table: pd.DataFrame) -> pd.DataFrame:
    """Whether each fitted density counts: columns ``row, seed, task, accuracy_gap, held_out_gain, verdict``.

    The verdict is ``ok`` or ``FAILED`` by ``density.passes``, or ``NOT_LEARNED`` where HMC's own draws are wrong on
    the task.
    """
    lines = reported(table, "density_accuracy", "accuracy", "held_out", "held_out_gaussian")
    gap, gain = lines.density_accuracy - lines.accuracy, lines.held_out - lines.held_out_gaussian
    verdict = np.where(density.passes(gap, gain), "ok", FAILED)
    verdict = np.where(100 * lines.accuracy < LEARNED, NOT_LEARNED, verdict)
    return lines[["row", "seed", "task"]].assign(accuracy_gap=gap, held_out_gain=gain, verdict=verdict)


def counting(fitted: pd.DataFrame, row: str) -> str:
    """How many of a row's ``densities`` on learned tasks count, in words; empty where it has none."""
    own = fitted.verdict[fitted["row"] == row]
    learned = own[own != NOT_LEARNED]
    empty = f" ({len(own) - len(learned)} not learned)" if len(learned) < len(own) else ""
    return f"{(learned == 'ok').sum()} of {len(learned)}{empty}" if len(own) else ""


def gates(table: pd.DataFrame) -> pd.DataFrame:
    """Convergence of every row's chains, over seeds and tasks.

    Returns:
        Per row the median and worst R-hat, the median and least ESS, of log density and of predictive probabilities
        (``probe``), not numbers where a chain stood still; ``passed`` and ``n``, seeds times tasks.
    """
    names = [f"{what}_{of}" for what in ("converged", "rhat", "ess") for of in ("log_density", "probe")]
    lines, found = reported(table, *names), {}
    for row, part in lines.groupby("row", observed=True):
        line = {}
        for of, short in (("log_density", "log density"), ("probe", "probabilities")):
            line |= {
                f"R-hat, {short}": part[f"rhat_{of}"].median(),
                f"worst R-hat, {short}": part[f"rhat_{of}"].max(skipna=False),
            }
            line |= {
                f"ESS, {short}": part[f"ess_{of}"].median(),
                f"least ESS, {short}": part[f"ess_{of}"].min(skipna=False),
            }
        found[str(row)] = line | {"passed": int(_pass(part).sum()), "n": len(part)}
    return pd.DataFrame.from_dict({name: found[name] for name in ROWS if name in found}, orient="index")


def passed(table: pd.DataFrame) -> pd.DataFrame:
    """Whether the chains of each run pass the gate: columns ``row, seed, task, passed``."""
    lines = reported(table, *_GATED)
    return lines.assign(passed=_pass(lines))


def gates_by_task(table: pd.DataFrame) -> str:
    """How many seeds of one row pass the gate, task by task, in words."""
    gate = passed(table).groupby("task").passed
    return _counts(gate.sum(), gate.size()) if len(table) else "not run yet"


def unlearned_by_task(table: pd.DataFrame) -> str:
    """With how many seeds of one row HMC's own draws have not learned a task, task by task, in words."""
    unlearned = densities(table)
    unlearned = (unlearned.verdict == NOT_LEARNED).groupby(unlearned.task)
    return _counts(unlearned.sum(), unlearned.size()) if len(table) else "not run yet"


def _counts(found: pd.Series, seeds: pd.Series) -> str:
    return ", ".join(f"{count:.0f}" for count in found) + f" of {seeds.max()}"


def _pass(lines: pd.DataFrame) -> pd.Series:
    return lines[list(_GATED)].astype(bool).all(axis=1)


def stuck(table: pd.DataFrame) -> pd.DataFrame:
    """Where chains stood still: columns ``row, seed, task, acceptance_rate, stuck``."""
    lines = reported(table, "acceptance_rate")
    return lines.assign(stuck=lines.acceptance_rate < STUCK)


def notes(table: pd.DataFrame) -> dict[str, str]:
    """What stands beside a row's curve: how often chains stood still, densities failed, and chains converged."""
    words: dict[str, list[str]] = {}
    still, fitted = stuck(table), densities(table)
    learned = fitted[fitted.verdict != NOT_LEARNED]
    for name, lines, bad in (
        ("stuck", still, still.stuck),
        ("unlearned", fitted, fitted.verdict == NOT_LEARNED),
        (FAILED, learned, learned.verdict == FAILED),
    ):
        for row, part in bad.groupby(lines["row"], observed=True):
            if part.any() or name == FAILED:
                words.setdefault(str(row), []).append(f"{name} {part.sum()} of {len(part)}")
    for row, line in gates(table).iterrows():
        words.setdefault(str(row), []).append(f"converged {line.passed:.0f} of {line.n:.0f}")
    return {row: ", ".join(parts) for row, parts in words.items()}


def verdict(table: pd.DataFrame, row: str) -> str:
    """What a row's runs show: it fails by its sampler or density, forgets, or remembers as all data at once does."""
    final = tables.by_seed(table)
    if row not in final:
        return "not run yet"
    if failed := failure(table[table["row"] == row]):
        return failed
    if "hmc_joint" not in final:
        return "joint HMC not run yet"
    gap = final["hmc_joint"].mean() - final[row].mean()
    return "remembers" if gap <= 100 * POINT else f"forgets, {gap:.0f} points below joint HMC"


def failure(table: pd.DataFrame) -> str:
    """Why a row's runs say nothing about the recursion: the sampler, a task that is not learned, or the density.

    Chains stand still in half of the runs or more; half of the seeds or more have not learned some task; or half of the
    densities or more fail on learned tasks.
    """
    still, fitted = stuck(table).stuck, densities(table)
    if len(still) and still.mean() >= 0.5:
        return "sampler stuck"
    if len(fitted) and (fitted.verdict == NOT_LEARNED).groupby(fitted.task).mean().max() >= 0.5:
        return NOT_LEARNED
    learned = fitted.verdict[fitted.verdict != NOT_LEARNED]
    return FAILED if len(learned) and (learned == FAILED).mean() >= 0.5 else ""


def shown(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A chapter's table of stored runs, a line for rows that are still to be run too, and the numbers folded away."""
    there = [name for name in (*SAMPLED, *BESIDE) if name in set(table["row"])]
    columns, more = tables.side_by_side(tables.comparison(table, (), there), paper.label)
    gate = gates(table)
    columns["converged"] = [f"{gate.passed[r]} of {gate.n[r]}" if r in gate.index else "–" for r in there]
    columns["verdict"] = [verdict(table, row) + _few(table, (row,)) if row in SAMPLED else "–" for row in there]
    missing = [paper.label(row) for row in SAMPLED if row not in there]
    empty = pd.DataFrame("–", index=pd.Index(missing, name="method"), columns=columns.columns)
    return pd.concat([columns, empty.assign(verdict="not run yet")]), more


def earlier_tasks(table: pd.DataFrame, row: str, task: int) -> list[float]:
    """What is left of the earlier tasks just after a task, in runs that can be trusted so far.

    Returns:
        Percent right on the earlier tasks, for each seed whose chains passed every gate up to this task.
    """
    own, each = table[table["row"] == row], passed(table)
    gate = each[(each["row"] == row) & (each.task <= task)].groupby("seed").passed.all()
    earlier = own[(own.metric == "accuracy") & (own.task_trained == task) & (own.task_tested < task)]
    return (100 * earlier.groupby("seed").value.mean()[gate.index[gate]]).tolist()


def kept(table: pd.DataFrame, row: str, task: int) -> str:
    """``earlier_tasks`` in words."""
    return of_seeds(earlier_tasks(table, row, task), table[table["row"] == row].seed.nunique())


def of_seeds(found: Sequence[float], num_seeds: int, digits: int = 1) -> str:
    """The range of percents of some of a row's seeds, in words."""
    ends = dict.fromkeys(f"{x:.{digits}f}" for x in (min(found), max(found))) if found else {}
    return f"{' to '.join(ends) or '–'} % ({len(found)} of {num_seeds} seeds)"


def shown_gates(table: pd.DataFrame) -> pd.DataFrame:
    """``gates`` as a chapter shows it; nothing where nothing has been run."""
    found = gates(table).reindex(columns=GATE_COLUMNS).rename(index=paper.label).rename_axis(index="method")
    return found.rename(columns={"passed": "gates passed", "n": "gates (seeds × tasks)"})


def numbers(dataset: str) -> dict[str, str]:
    """What the chapters' answers cite, as words, also where nothing has been run yet."""
    table, cited = stored(dataset), {"bayes": f"{bayes_accuracy(dataset):.1f} %"}
    final, gate, fitted = tables.by_seed(table), gates(table), densities(table)
    each = passed(table)
    last = each[each.task == each.task.max()]
    for row in (*SAMPLED, *BESIDE):
        seeds = final.get(row)
        cited[row] = "not run yet" if seeds is None else f"{seeds.mean():.1f} % (n = {len(seeds)})"
        if row in SAMPLED:
            cited[f"{row}_verdict"] = verdict(table, row)
            cited[f"{row}_gate"] = f"{gate.passed[row]} of {gate.n[row]}" if row in gate.index else "not run yet"
            cited[f"{row}_counts"] = counting(fitted, row) or "not run yet"
            own = last[last["row"] == row]
            cited[f"{row}_gate_last"] = f"{own.passed.sum()} of {len(own)}" if len(own) else "not run yet"
    for row in HANDED_ON:
        cited |= _draws(table[table["row"] == row], row)
    for row, other in (("hmc", "sgd_single_head"), ("hmc", "vcl_single_head"), ("vcl_multi_head", "sgd_multi_head")):
        found = tables.paired(table, row, other)
        cited[f"{row}_over_{other}"] = paper.interval(found) if found else "not run yet"
    for row, task in (("hmc_gaussian", 3), ("hmc_adapted", 2), ("hmc_exact", 2), ("hmc_exact", 3)):
        cited[f"{row}_kept_{task}"] = kept(table, row, task) if row in final else "not run yet"
    cited["handed_on"] = listed({row: f"{cited[row]}, {cited[f'{row}_verdict']}" for row in HANDED_ON if row in final})
    return cited


def listed(words: dict[str, str]) -> str:
    """Words of each row that has some."""
    return "; ".join(f"{paper.label(row)}: {said}" for row, said in words.items()) or "not run yet"


def _draws(table: pd.DataFrame, row: str) -> dict[str, str]:
    """How often draws of HMC and of the density are right on the task just learned, and components, in words."""
    lines = reported(table, "density_accuracy", "accuracy", "num_components")
    names = ("draws_right", "density_right", "draws_least", "components", "single")
    if lines.empty:
        return {f"{row}_{name}": "not run yet" for name in names}
    by_task = 100 * lines.groupby("task")[["accuracy", "density_accuracy"]].mean()
    count = lines.num_components.median()
    ends = {name: dict.fromkeys((f"{by.min():.0f}", f"{by.max():.0f}")) for name, by in by_task.items()}
    words = {name: f"{' to '.join(two)} %" for name, two in ends.items()}
    found = (words["accuracy"], words["density_accuracy"], f"{by_task.accuracy.min():.0f} %")
    is_mixture = not math.isnan(count)  # a flow has no components
    counted = f"{count:.0f} component{'s' if count > 1 else ''}" if is_mixture else "–"
    single = f"{(lines.num_components == 1).sum()} of {len(lines)}" if is_mixture else "–"
    return {f"{row}_{name}": word for name, word in zip(names, (*found, counted, single), strict=True)}


# --- what the paper and the chapters say


def _mean(table: pd.DataFrame, row: str) -> float:
    return float(tables.by_seed(table)[row].mean())


def _few(table: pd.DataFrame, rows: tuple[str, ...]) -> str:
    """Words where some row has fewer seeds than the paper; by data set, if there are several."""
    by = table[table["row"].isin(rows)].groupby(["dataset", "row"], observed=True).seed.nunique()
    n = by.groupby(level="dataset", observed=True).min()
    if len(n) and n.min() >= paper.SEEDS:
        return ""
    if n.nunique() < 2:
        return f" ({n.min() if len(n) else 0} seeds run)"
    return f" ({', '.join(f'{seeds} seeds on {paper.LABELS[dataset]}' for dataset, seeds in n.items())})"


def judge_figure(table: pd.DataFrame, row: str = "hmc") -> Judgement:
    """Whether HMC with a fitted density ends below multi-head VCL, and whether that counts."""
    hmc, vcl, words = _mean(table, row), _mean(table, "vcl_multi_head"), verdict(table, row)
    count = tables.by_task(table[table["row"] == row], "num_components").value
    of = " (one component in every fit)" if len(count) and (count == 1).all() else ""
    ours = f"{paper.label(row)} {hmc:.1f} %{of}, VCL a head a task {vcl:.1f} %; {words}"
    if few := _few(table, (row, "vcl_multi_head")):
        return Judgement("open", ours + few)
    if hmc >= vcl:
        return Judgement("not reproduced", ours)
    if words.startswith("remembers"):
        return Judgement("not reproduced", ours)
    return Judgement("reproduced" if words.startswith("forgets") else "with a caveat", ours)


def judge_joint(table: pd.DataFrame) -> Judgement:
    """Whether joint HMC has the printed accuracy of 1.0 to a hundredth: Section 4 calls it perfect on all tasks."""
    final = metrics.summarise(tables.by_seed(table)["hmc_joint"])
    best = bayes_accuracy(str(table["dataset"].iloc[0]))
    ours = f"joint HMC {final.mean:.2f} % (sd {final.sd:.2f}, n = {final.n}); the best classifier has {best:.1f} %"
    if few := _few(table, ("hmc_joint",)):
        return Judgement("open", ours + few)
    return Judgement("reproduced" if final.mean >= 99.5 else "not reproduced", ours)


RULES = {"hmc": "whole chains held out, the paper's step", "hmc_as_published": "as published"}
"""The rows that Figures A3 and A5 are held against. Their samplers and the floors of their variances differ too."""


def judge_densities(table: pd.DataFrame) -> Judgement:
    """Whether draws of the mixture are as accurate as HMC's on tasks that these know, in either of two rows."""
    fitted, words, shares = densities(table), [], []
    for row, rule in RULES.items():
        own = fitted[fitted["row"] == row]
        gap = own.accuracy_gap[own.verdict != NOT_LEARNED]
        near, left = (gap.abs() <= POINT + 1e-12).sum(), len(own) - len(gap)
        out = f" ({left} more not learned)" if left else ""
        words.append(f"{rule}: {near} of {len(gap)} learned tasks{out}, median gap {100 * gap.median():+.1f} points")
        shares.append(near / len(gap) if len(gap) else 0.0)
    return _of_all(f"within a point, {'; '.join(words)}", shares, table)


def judge_components(table: pd.DataFrame) -> Judgement:
    """Whether every mixture has more than one component, as it must have to have several modes."""
    words, shares = [], []
    for row, rule in RULES.items():
        count = tables.by_task(table[table["row"] == row], "num_components").value
        words.append(f"{rule}: {(count > 1).sum()} of {len(count)}, median {count.median():.0f}")
        shares.append((count > 1).mean())
    return _of_all(f"more than one component (modes were not counted), {'; '.join(words)}", shares, table)


def _of_all(ours: str, shares: Sequence[float], table: pd.DataFrame) -> Judgement:
    """The verdict on what the paper says of every fit, from the share of which it holds in each row."""
    ours += _few(table, ("hmc_as_published",))
    if _few(table, ("hmc",)):
        return Judgement("open", ours)
    if min(shares) > 0.9:
        return Judgement("reproduced", ours)
    return Judgement("with a caveat" if max(shares) > 0.5 else "not reproduced", ours)


def judge_one_head(table: pd.DataFrame) -> Judgement:
    """Whether HMC with a mixture is at most ``MUCH`` better than VCL with one head; its densities must count."""
    gains, failed = {}, []
    for dataset, part in table.groupby("dataset", observed=True):
        gains[dataset] = tables.paired(part, "hmc", "vcl_single_head")
        failed += [words] if (words := failure(part[part["row"] == "hmc"])) else []
    words = "; ".join(f"{paper.LABELS[d]}: {paper.interval(gain)}" for d, gain in gains.items())
    ours = f"HMC with a GMM over VCL, points (95 %): {words}" + f"; {failed[0]}" * bool(failed)
    if max(gain.upper for gain in gains.values()) > MUCH:
        return Judgement("not reproduced", ours)
    return Judgement("with a caveat" if failed else "reproduced", ours)


def judge_heads(table: pd.DataFrame) -> Judgement:
    """Whether heads keep what was learned (VCL gains by them) and not the posterior (it is no better than SGD then)."""
    words, heads, posterior = [], [], []
    for dataset, part in table.groupby("dataset", observed=True):
        by_heads, over_sgd = (
            tables.paired(part, "vcl_multi_head", row) for row in ("vcl_single_head", "sgd_multi_head")
        )
        heads.append(by_heads.lower > 0)
        posterior.append(over_sgd.lower > 0)
        words.append(f"{paper.LABELS[dataset]}: {paper.interval(by_heads)}, over SGD {paper.interval(over_sgd)}")
    ours = f"VCL with a head a task over one head, and over SGD with heads, points (95 %): {'; '.join(words)}"
    if not all(heads):
        return Judgement("not reproduced", ours)
    return Judgement("with a caveat" if any(posterior) else "reproduced", ours)


def judge_blame(table: pd.DataFrame) -> Judgement:
    """Whether what is lost is lost with the density: the same sampler with nothing fitted equals joint HMC.

    Chains that fail the gate under the density are a caveat: its error and the sampler's cannot be told apart.
    """
    words, kept, lost = [], [], []
    for dataset, part in table.groupby("dataset", observed=True):
        exact, fitted = (_mean(part, row) - _mean(part, "hmc_joint") for row in ("hmc_exact", "hmc_adapted"))
        kept.append(abs(exact) <= 100 * POINT)
        lost.append(fitted < -100 * POINT)
        words.append(f"{paper.LABELS[dataset]} {exact:+.2f} and {fitted:+.1f}")
    line = gates(table).loc["hmc_adapted"]
    ours = (
        f"points from joint HMC, nothing fitted and a GMM handed on, both adapted: {'; '.join(words)}; under the GMM "
        f"{line.passed:.0f} of {line.n:.0f} gates were passed"
    )
    if not (all(kept) and all(lost)):
        return Judgement("not reproduced", ours)
    return Judgement("reproduced" if line.passed / line.n > 0.9 else "with a caveat", ours)


def judge_gates(table: pd.DataFrame) -> Judgement:
    """Whether the chains of the paper's settings pass the gate."""
    line = gates(table).loc["hmc"]
    ours = (
        f"{line.passed:.0f} of {line.n:.0f} gates (seed and task) are passed, R-hat {MAX_RHAT:g} and ESS {MIN_ESS:g}; "
        f"median R-hat of log density {line['R-hat, log density']:.2f}, of probabilities "
        f"{line['R-hat, probabilities']:.2f}"
    )
    if few := _few(table, ("hmc",)):
        return Judgement("open", ours + few)
    share = line.passed / line.n
    return Judgement("reproduced" if share > 0.9 else "with a caveat" if share > 0.5 else "not reproduced", ours)


def _equal(table: pd.DataFrame) -> Judgement:
    curves = {row: c.mean(0) for row, c in tables.curves(table).items()}
    gap = 100 * (curves["hmc_exact"] - curves["hmc_joint"])
    return holds(abs(gap).max() <= 1, f"largest difference after a task {gap[abs(gap).argmax()]:+.2f} points")


def _lost(table: pd.DataFrame) -> Judgement:
    joint, rows = _mean(table, "hmc_joint"), [row for row in HANDED_ON if row in set(table["row"])]
    gaps = {row: joint - _mean(table, row) for row in rows}
    words = (f"{paper.label(row)}: {gap:.0f}" for row, gap in gaps.items())
    return holds(min(gaps.values()) > 10, f"points below joint HMC: {'; '.join(words)}")


def _sampled_and_lost(table: pd.DataFrame) -> Judgement:
    """All chains pass up to task 3, under a Gaussian and with nothing fitted; the earlier tasks go with the one."""
    lost, left = (earlier_tasks(table, row, 3) for row in ("hmc_gaussian", "hmc_exact"))
    words = (f"{paper.label(row)}: {kept(table, row, 3)}" for row in ("hmc_gaussian", "hmc_exact"))
    all_pass = min(len(lost), len(left)) >= paper.SEEDS
    return holds(all_pass and max(lost) < 55 and min(left) > 95, f"tasks 1 and 2 after task 3: {'; '.join(words)}")


def claims_of(dataset: str, chapter: str, exhibit: str) -> tuple[Claim, ...]:
    """What the chapter of a data set says about stored runs."""
    name = paper.LABELS[dataset]
    return tuple(
        Claim(
            exhibit=exhibit,
            says=says,
            chapter=chapter,
            judge=judge,
            needs=(paper.paper_scale(dataset, *rows),),
        )
        for says, judge, rows in (
            (f"On {name} the exact recursion and joint HMC agree within a point after every task.", _equal, CONTROLS),
            (
                f"On {name} HMC that hands on a fitted density ends more than ten points below joint HMC, at the "
                "paper's step and at an adapted one.",
                _lost,
                ("hmc", "hmc_adapted", "hmc_joint"),
            ),
        )
    )


CLAIMS = (
    *claims_of("toy_pan", "hmc_sequential", "Figure 3"),
    Claim(
        exhibit="Figure 3",
        says="On Pan's set chains under one Gaussian pass every gate up to task 3, and the earlier tasks are lost; "
        "with nothing fitted chains pass too, and the tasks are kept.",
        chapter="hmc_sequential",
        judge=_sampled_and_lost,
        needs=(paper.paper_scale("toy_pan", "hmc_gaussian", "hmc_exact"),),
    ),
)
