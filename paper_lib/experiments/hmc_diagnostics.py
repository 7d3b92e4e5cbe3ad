"""Appendices D and E: have the chains converged, and do draws of the fitted densities predict as HMC's do?"""

from __future__ import annotations

import pandas as pd

from paper_lib import paper, sweep, tables
from paper_lib.experiments import hmc_sequential
from paper_lib.experiments.hmc_sequential import HANDED_ON, SAMPLED, densities, gates, listed
from paper_lib.rows import TOYS
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

LIVE = sweep.replace(hmc_sequential.LIVE, rows=("hmc", "hmc_exact"))
"""What the chapter runs unless its parameters say otherwise."""

OF_ALL = ("accuracy", "ess_log_density", "rhat_log_density", "ess_probe", "rhat_probe", "acceptance_rate", "divergent")
COLUMNS = ["acceptance", "R-hat", "ESS", "gate passed", "density counts"]
OF_DENSITIES = ("density_accuracy", "num_components")


def told(table: pd.DataFrame) -> pd.DataFrame:
    """A line a row, seed and task with ``OF_ALL`` and, where a density was fitted, ``OF_DENSITIES``, NaN elsewhere."""
    every = hmc_sequential.told(table, *OF_ALL)
    fitted = hmc_sequential.told(table, *OF_DENSITIES[:1])
    components = tables.by_task(table, "num_components").rename(columns={"value": "num_components"})
    keys = ["row", "seed", "task"]
    return every.merge(fitted, "left", keys).merge(components, "left", keys)


def stored(dataset: str) -> pd.DataFrame:
    """The stored runs of HMC on a data set at the paper's scale."""
    return sweep.at_paper_scale(dataset, SAMPLED)


def shown(dataset: str) -> pd.DataFrame:
    """A line a row: medians over seeds and tasks, how many pass the gate, and how many densities count."""
    table = stored(dataset)
    lines, gate, fitted = told(table), gates(table), densities(table)
    found = {}
    for row in SAMPLED:
        if row not in gate.index:
            found[paper.label(row)] = dict.fromkeys(COLUMNS, "–") | {"gate passed": "not run yet"}
            continue
        part, own = lines[lines["row"] == row], fitted[fitted["row"] == row]
        found[paper.label(row)] = {
            "acceptance": f"{part.acceptance_rate.median():.3f}",
            "R-hat": f"{part.rhat_log_density.median():.2f} / {part.rhat_probe.median():.2f}",
            "ESS": f"{part.ess_log_density.median():.0f} / {part.ess_probe.median():.0f}",
            "gate passed": f"{gate.passed[row]} of {gate.n[row]}",
            "density counts": f"{(own.verdict == 'ok').sum()} of {len(own)}" if row in HANDED_ON else "–",
        }
    return pd.DataFrame.from_dict(found, orient="index", columns=COLUMNS).rename_axis(index="method")


def shown_densities(dataset: str) -> pd.DataFrame:
    """By row and task: accuracy of HMC's draws and of the density's on the task just learned, percent; components."""
    lines = told(stored(dataset)).dropna(subset=["density_accuracy"])
    by = lines.groupby(["row", "task"], observed=True)
    found = pd.DataFrame(
        {
            "HMC's draws": 100 * by.accuracy.median(),
            "the density's draws": 100 * by.density_accuracy.median(),
            "components, median": by.num_components.median(),
            "n": by.seed.nunique(),
        }
    )
    return found.rename(index=paper.label, level="row").rename_axis(index=["method", "task"])


def numbers() -> dict[str, str]:
    """What the chapter's prose cites of both sets, as words, also where nothing has been run yet."""
    cited = {}
    for dataset in TOYS:
        table = stored(dataset)
        fitted, gate = densities(table), gates(table)
        for row in SAMPLED:
            own = fitted[fitted["row"] == row]
            passed = f"{gate.passed[row]} of {gate.n[row]}" if row in gate.index else "not run yet"
            cited[f"{dataset}_{row}_gate"] = passed
            cited[f"{dataset}_{row}_counts"] = f"{(own.verdict == 'ok').sum()} of {len(own)}" if len(own) else passed
        there = [row for row in HANDED_ON if row in gate.index]
        cited[f"{dataset}_counts"] = listed({row: cited[f"{dataset}_{row}_counts"] for row in there})
    return cited


def _at_chance(table: pd.DataFrame) -> Judgement:
    lines = told(table[table["row"] == "hmc"])
    first = lines[lines.task == 1]
    gap = 100 * (first.accuracy - first.density_accuracy).median()
    return holds(
        gap > 10, f"accuracy on task 1 lost from HMC's draws to the mixture's: {gap:.0f} points, median over seeds"
    )


def _slow(table: pd.DataFrame) -> Judgement:
    lines = told(table)
    rate = {row: part.acceptance_rate.median() for row, part in lines.groupby("row", observed=True)}
    ess = {row: part.ess_log_density.median() for row, part in lines.groupby("row", observed=True)}
    condition = rate["hmc"] > 0.95 and ess["hmc"] / 11_000 < ess["hmc_adapted"] / 3000
    words = (
        f"acceptance {rate['hmc']:.3f} and {rate['hmc_adapted']:.3f}, ESS {ess['hmc']:.0f} and {ess['hmc_adapted']:.0f}"
    )
    return holds(condition, f"the paper's step and an adapted one: {words}, of 11,000 and 3,000 iterations a chain")


def _selection(*rows: str) -> tuple[Selection, ...]:
    return (Selection("toy_pan", None, "paper", seeds=tuple(range(paper.SEEDS)), rows=rows),)


CLAIMS = tuple(
    Claim(says, "Figures A3, A5", says, "hmc_diagnostics", judge, needs)
    for says, judge, needs in (
        (
            "On Pan's set draws of the mixture are far less accurate on the first task than HMC's draws.",
            _at_chance,
            _selection("hmc"),
        ),
        (
            "At the paper's step nearly everything is accepted, and an iteration is worth less than with adaptation.",
            _slow,
            _selection("hmc", "hmc_adapted"),
        ),
    )
)
"""What the chapter says about stored runs."""
