"""The numbers in the closed-form chapters' answers, computed again and looked up in the chapter's text."""

from __future__ import annotations

import re
from dataclasses import replace

import notebooks
import numpy as np
import pytest

from paper_lib.analysis import errata, misspecification, protocl_derivation, scenarios, weight_filter


def said(name: str, *phrases: str) -> None:
    """Fail unless a chapter says each phrase, wherever its lines break."""
    source = (notebooks.NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"^# ", "", source, flags=re.MULTILINE))
    for phrase in phrases:
        assert phrase in text, phrase


def first_task(**changes: object) -> dict[str, tuple[float, float]]:
    """Squared error on task 1 before and after task 2, by model."""
    config = misspecification.Config(**changes)
    scores = misspecification.run(config).scores.query("task_tested == 1 and metric == 'mse'")
    mean = scores.groupby(["model", "task_trained"]).value.mean()
    return {model: (mean[model, 1], mean[model, 2]) for model in misspecification.MODELS}


def held_lines(num_seeds: int) -> list[tuple[float, float]]:
    """Intercept and slope of the line after each task, with a prior of variance 0.001; means over data sets."""
    held, means = misspecification.Config(prior_var=0.001), []
    for seed in range(num_seeds):
        curves = misspecification.run(replace(held, seeds=(seed,), num_restarts=1, num_iterations=1)).curves
        means.append([c.mean[[120, 220]] for c in curves if c.model == "line"])  # at x = 0 and x = 1
    return [(at_0, at_1 - at_0) for at_0, at_1 in np.mean(means, axis=0)]


def test_scenarios():
    def sds(**changes: object) -> str:
        last = scenarios.recursion(scenarios.Config(**changes)).sequential.cov[-1]
        return " and ".join(f"{sd:.3f}" for sd in last.diagonal().sqrt().tolist())

    said("scenarios", f"fall from {sds()} to {sds(noise_precision=100.0)}")
    many, five = (scenarios.recursion(scenarios.Config(**c)) for c in ({"num_tasks": 50, "num_points": 1}, {}))
    assert many.batch_log_evidence == pytest.approx(five.batch_log_evidence)
    said("scenarios", f"({five.log_evidence.sum():.2f} nats)")


def test_misspecification():
    cited = misspecification.numbers(misspecification.run(misspecification.Config()).scores)
    assert (cited["line_before"], cited["line_after"]) == pytest.approx(first_task()["line"])
    said("misspecification", "rises from {glue:text}`line_before:.3f` to {glue:text}`line_after:.3f`")
    said("misspecification", f"tends to 0.010 + 1/12 = {0.01 + 1 / 12:.3f}")
    one = first_task(num_experts=1)
    for model in ("mixture", "experts"):
        assert one[model][1] == pytest.approx(one["line"][1], abs=0.001)
    noisy = first_task(noise_precision=1.0)["line"]
    said("misspecification", f"goes from {noisy[0]:.2f} to {noisy[1]:.2f}")
    held = first_task(prior_var=0.001)["line"]
    said("misspecification", f"is {held[0]:.3f} before task 2 and {held[1]:.3f} after it")
    (intercept, slope), (_, end) = held_lines(5)
    said("misspecification", f"reach {intercept:.2f} but holds the slope near {slope:.1f}")
    assert abs(end) < 0.05


def test_protocl_derivation():
    def gap(**changes: float) -> float:
        last = protocl_derivation.swap(protocl_derivation.Config(**changes)).iloc[-1]
        return last.exact - last["product"]

    result = protocl_derivation.run(protocl_derivation.Config(num_urns=1000, num_draws=100))
    last, cited = result.swap.iloc[-1], protocl_derivation.numbers(result)
    assert cited.pop("num_shared") == "64"
    assert cited == pytest.approx({"exact": last.exact, "product": last["product"]}, abs=1e-6)
    assert last.exact - last["product"] == pytest.approx(gap())
    said("protocl_derivation", "{glue:text}`product:.1f` nats a point; the exact integral is {glue:text}`exact:.1f`")
    said("protocl_derivation", f"from {gap():.0f} nats a point to {gap(noise_var=1.0):.0f}.")
    said("protocl_derivation", f"from {gap():.0f} to {gap(precision=100.0):.1f} nats a point")
    configs = [protocl_derivation.Config(concentration=c) for c in (100.0, 0.78)]
    fourth = [protocl_derivation.urn(config).closed_form.iloc[-1] for config in configs]
    said(
        "protocl_derivation", f"{fourth[0]:.3f}, hardly more than 1/5", f"With 0.78 the probability is {fourth[1]:.3f}"
    )


def test_errata():
    def numbers(point: str, **changes: float) -> list[str]:
        checks = errata.shown(errata.run(errata.Config(**changes)).checks).set_index("quantity")
        return next(list(row) for name, row in checks.iterrows() if name.startswith(point))

    slow, single, few = numbers("M1", reversion=0.01), numbers("M1", num_steps=1), numbers("M2", num_draws=100)
    said("errata", f"printed variance is {float(slow[0]):.1f} and the corrected one {float(slow[1]):.1f}")
    said("errata", f"The corrected one, {single[1]}. The printed one is {single[0]}")
    said("errata", f"M2 gives {few[2]} by simulation, for {few[1]} corrected and {few[0]} printed")
    said("errata", f"which is {0.99**-4:.2f} here and {0.8**-4:.2f} at $h = 0.2$")


def test_task_imbalance():
    def equal(**changes: float) -> tuple[list[float], list[float]]:
        result = weight_filter.run(weight_filter.Config(**changes))
        return [list(table[table.ratio == 1].error) for table in (result.pairs, result.drifting)]

    said("task_imbalance", f"moves {100 * weight_filter.one_weight((50,), 10).error.iloc[-1]:.0f} % of the way")
    drifting = weight_filter.run(weight_filter.Config()).drifting
    said("task_imbalance", f"levels off near {drifting.error[drifting.num_first == 250].iloc[-1]:.2f} and not at 1")
    ends = {
        (update, axis): weight_filter.two_weights(60, update, 50, 10, from_axis=axis).set_index("ratio").error[[1, 10]]
        for update in weight_filter.UPDATES
        for axis in (0.0, 20.0, 45.0)
    }
    alone, dropped = (ends[update, 20.0] for update in ("Lemma 1", "independent"))
    said("task_imbalance", f"is then {alone[1]:.2f} at equal sizes and {alone[10]:.2f} with a tenfold task 2")
    said("task_imbalance", f"it is {dropped[1]:.2f} and {dropped[10]:.2f}")
    said("task_imbalance", f"imbalance adds {dropped[10] - dropped[1]:.2f} to {alone[10] - alone[1]:.2f}")
    for (update, axis), error in ends.items():
        assert update != "full" or error.max() < 0.001
        assert update == "full" or axis > 0 or error.max() < 0.01
        assert update == "full" or axis < 45 or error[10] < error[1]
    (_, full, independent, lemma), _ = equal(degrees=30.0)
    assert full < 0.001
    said("task_imbalance", f"the error is {independent:.2f}, as for one weight, and {lemma:.2f} by Lemma 1")
    fast = equal(eta_var=0.1)[1]
    said("task_imbalance", f"its error is {min(fast):.2f} to {max(fast):.2f}")
