"""Figure A2: as ``hmc_sequential``, on ten blobs on a circle, which a classifier can tell apart without error."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from paper_lib import paper, tables
from paper_lib.experiments import hmc_sequential
from paper_lib.experiments.hmc_sequential import reported
from paper_lib.inference import density
from paper_lib.tables import Claim, Judgement, holds

LIVE = replace(hmc_sequential.LIVE, dataset="toy_gaussians")
"""What the chapter runs unless its parameters say otherwise."""

ADAPTED, EXACT = "hmc_adapted", "hmc_exact"


def _counts_and_forgets(table: pd.DataFrame) -> Judgement:
    """With one sampler: densities that are right on the task just learned, and what is left of the earlier tasks."""
    names = ("density_accuracy", "accuracy", "held_out", "held_out_gaussian")
    fitted = reported(table[table["row"] == ADAPTED], *names)
    gap, gain = fitted.density_accuracy - fitted.accuracy, fitted.held_out - fitted.held_out_gaussian
    good = density.passes(gap, gain).sum()
    by = tables.matrices(table)
    early = {row: 100 * by[row][:, -1, :-1].mean() for row in (ADAPTED, EXACT)}
    words = f"{good} of {len(fitted)} densities count; earlier tasks at the end {early[ADAPTED]:.1f} %"
    return holds(
        good > 0.8 * len(fitted) and early[ADAPTED] < 55 and early[EXACT] > 99,
        f"{words}, with nothing fitted {early[EXACT]:.1f} %",
    )


def _at_once(table: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Percent left of task 1 after task 2, where chains pass: under a mixture that counts, and with nothing fitted."""
    fitted = hmc_sequential.densities(table[table["row"] == ADAPTED])
    counts = set(fitted.seed[(fitted.task == 1) & (fitted.verdict == "ok")])
    sound = table[(table["row"] != ADAPTED) | table.seed.isin(counts)]
    lost, left = (hmc_sequential.earlier_tasks(sound, row, 2) for row in (ADAPTED, EXACT))
    return lost, left


def numbers() -> dict[str, str]:
    """What the chapter's prose cites beside ``hmc_sequential.numbers``, as words."""
    table = hmc_sequential.stored("toy_gaussians")
    cited = {"exact_gates": hmc_sequential.gates_by_task(table[table["row"] == EXACT])}
    cited["unlearned"] = hmc_sequential.unlearned_by_task(table[table["row"] == "hmc_as_published"])
    cited["at_once"] = CLAIMS[-1].judged().ours
    for name, found in zip(("lost", "left"), _at_once(table), strict=True):
        cited[f"{name}_at_once"] = hmc_sequential.of_seeds(found, paper.SEEDS, digits=0)
    return cited


def _lost_at_once(table: pd.DataFrame) -> Judgement:
    """After task 2, of seeds whose mixture counts and whose chains pass: what is left of task 1."""
    lost, left = _at_once(table)
    words = f"a GMM that counts: at most {max(lost, default=math.nan):.1f} % ({len(lost)} of {paper.SEEDS} seeds pass)"
    words += f"; nothing fitted: at least {min(left, default=math.nan):.1f} % ({len(left)} pass)"
    return holds(
        min(len(lost), len(left)) > paper.SEEDS / 2 and max(lost) < 55 and min(left) > 99,
        f"task 1 after task 2: {words}",
    )


_LOST = "With step and masses adapted most mixtures count, and what earlier tasks taught is lost all the same."

CLAIMS = (
    *hmc_sequential.claims_of("toy_gaussians", "toy_gaussians", "Figure A2"),
    Claim(
        exhibit="Figure A2",
        says=_LOST,
        chapter="toy_gaussians",
        judge=_counts_and_forgets,
        needs=(paper.paper_scale("toy_gaussians", ADAPTED, EXACT),),
    ),
    Claim(
        exhibit="Figure A2",
        says="Where the first mixture counts and the chains under it pass their gates, task 1 falls to chance at once.",
        chapter="toy_gaussians",
        judge=_lost_at_once,
        needs=(paper.paper_scale("toy_gaussians", ADAPTED, EXACT),),
    ),
)
"""What the chapter says about stored runs."""
