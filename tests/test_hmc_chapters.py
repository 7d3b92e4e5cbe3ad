"""The chapters about HMC: what they judge, what they draw from kept draws, and their live cells with other values."""

from __future__ import annotations

import ast
import os
import re
import shutil

import jupytext
import notebooks
import numpy as np
import pandas as pd
import pytest
import torch
from bs4 import BeautifulSoup
from papermill.inspection import _infer_parameters

from paper_lib import interactive_chain, paper, plots_sampling, runs, sweep, tables
from paper_lib.checks import ParameterError
from paper_lib.data.stream import make_stream
from paper_lib.experiments import hmc_diagnostics, hmc_draws, hmc_sequential, toy_gaussians, why_hmc_forgets
from paper_lib.methods.sequential_hmc import log_probs
from paper_lib.networks import MLP
from paper_lib.notebook import INJECTED
from paper_lib.rows import ROWS, shown_in
from paper_lib.sweep import Selection

pytestmark = pytest.mark.filterwarnings("ignore:seed:UserWarning", "ignore:.*stuck:UserWarning")
CHAPTERS = ("hmc_sequential", "toy_gaussians", "hmc_diagnostics", "why_hmc_forgets")


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """A run store of its own, and a quick preset that takes no time."""
    monkeypatch.setenv("PAPER_LIB_RUNS", os.fspath(tmp_path / "runs"))
    for row in shown_in("hmc"):
        for settings in ROWS[row].quick.values():
            for name, value in {"num_warmup": 20, "num_leapfrog": 2, "num_draws": 10, "toy_points": 5}.items():
                monkeypatch.setitem(settings, name, value)
            monkeypatch.setitem(settings, "final_rows" if row == "hmc_as_published" else "thin", 20)
            monkeypatch.setitem(settings, "thin", 1)


# --- what is judged


def table(row, final, gap=0.0, gain=0.0, passed=1.0, seeds=10, dataset="toy_pan"):
    """Stored runs of a row: accuracy 1 on every task but the first after the last, density draws a gap away."""
    lines = []
    for seed in range(seeds):
        for trained in range(1, 6):
            for tested in range(1, trained + 1):
                value = 1.0 if trained < 5 or tested > 1 else 5 * final - 4
                lines.append((seed, trained, tested, "accuracy", value))
            told = {
                "accuracy": 0.98,
                "converged_log_density": passed,
                "converged_probe": passed,
                "acceptance_rate": 0.9,
            }
            told |= {"rhat_log_density": 1.005, "rhat_probe": 1.004, "ess_log_density": 500.0, "ess_probe": 450.0}
            if row not in hmc_sequential.CONTROLS and row in shown_in("hmc"):
                told |= {"density_accuracy": 0.98 + gap, "held_out": 5.0 + gain, "held_out_gaussian": 5.0}
            if row in shown_in("hmc"):
                lines += [(seed, trained, trained, f"info: {name}", value) for name, value in told.items()]
    frame = pd.DataFrame(lines, columns=["seed", "task_trained", "task_tested", "metric", "value"])
    names = {"row": row, "dataset": dataset, "scenario": "domain_incremental", "split": "test", "preset": "paper"}
    return frame.assign(**names, changes="", key=row)[runs.COLUMNS]


def together(*parts):
    return pd.concat(parts, ignore_index=True)


def test_a_row_whose_densities_fail_is_never_said_to_forget():
    joint, forgets = table("hmc_joint", 0.97), table("hmc", 0.85)
    assert hmc_sequential.verdict(together(joint, forgets), "hmc").startswith("forgets, 12 points")
    assert hmc_sequential.verdict(together(joint, table("hmc", 0.85, gap=-0.5)), "hmc") == "density failed"
    assert hmc_sequential.verdict(together(joint, table("hmc", 0.85, gap=0.02)), "hmc") == "density failed"
    assert hmc_sequential.verdict(together(joint, table("hmc", 0.85, gain=-1.0)), "hmc") == "density failed"
    assert hmc_sequential.verdict(together(joint, table("hmc", 0.965)), "hmc") == "remembers"
    assert hmc_sequential.verdict(joint, "hmc") == "not run yet"
    notes = hmc_sequential.notes(together(joint, table("hmc", 0.85, gap=-0.5, passed=0.0)))
    assert notes == {"hmc_joint": "converged 50 of 50", "hmc": "density failed 50 of 50, converged 0 of 50"}
    shown, _ = hmc_sequential.shown(together(joint, table("hmc", 0.85, gap=-0.5)))
    assert list(shown.columns) == ["triangle mean ± sd", "final accuracy ± sd", "converged", "verdict"]
    verdicts = dict(zip(shown.index, shown.verdict, strict=True))
    assert [verdicts[ROWS[row].style.label] for row in ("hmc", "hmc_joint")] == ["density failed", "remembers"]
    assert len(verdicts) == len(shown_in("hmc")) and list(verdicts.values()).count("not run yet") == 5


def test_a_density_that_agrees_at_chance_does_not_count():
    """Tasks that HMC's own draws have not learned are left out; a task that half of the seeds lack is told first."""
    joint, row = table("hmc_joint", 0.97), table("hmc", 0.85)
    own = row.metric.isin(["info: accuracy", "info: density_accuracy"])

    def unlearned(seeds, task=5):
        there = own & row.seed.isin(seeds) & (row.task_trained == task)
        return row.assign(value=row.value.mask(there, 0.5))

    few, many = unlearned(range(4)), unlearned(range(5))
    fitted = hmc_sequential.densities(few)
    assert (fitted.verdict == "tasks not learned").sum() == 4 and (fitted.verdict == "ok").sum() == 46
    assert hmc_sequential.counting(fitted, "hmc") == "46 of 46 (4 not learned)"
    assert hmc_sequential.verdict(together(joint, few), "hmc").startswith("forgets, 12 points")
    assert hmc_sequential.verdict(together(joint, many), "hmc") == "tasks not learned"
    assert hmc_sequential.notes(few)["hmc"] == "unlearned 4 of 50, density failed 0 of 46, converged 50 of 50"
    found = hmc_sequential.judge_densities(few.assign(row="hmc_as_published"))
    assert "as published: 46 of 46 learned tasks" in found.ours


def test_a_sampler_that_stands_still_is_told_before_its_density():
    still = table("hmc", 0.6, gap=-0.5)
    still.loc[still.metric == "info: acceptance_rate", "value"] = 0.0
    still.loc[still.metric.str.startswith("info: rhat"), "value"] = np.nan
    both = together(table("hmc_joint", 0.97), still)
    assert hmc_sequential.verdict(both, "hmc") == "sampler stuck"
    assert hmc_sequential.notes(still) == {"hmc": "stuck 50 of 50, density failed 50 of 50, converged 50 of 50"}
    assert hmc_sequential.gates(still)["worst R-hat, log density"].isna().all()
    found = why_hmc_forgets.found({"as published": still.assign(row="hmc_as_published")})
    assert found.verdict.tolist() == ["sampler stuck"]


def test_figure_3_and_the_gates_are_judged_by_what_is_stored():
    vcl = table("vcl_multi_head", 0.9)
    judged = hmc_sequential.judge_figure
    assert judged(together(table("hmc", 0.85), table("hmc_joint", 0.97), vcl)).verdict == "reproduced"
    assert judged(together(table("hmc", 0.85, -0.5), table("hmc_joint", 0.97), vcl)).verdict == "with a caveat"
    assert judged(together(table("hmc", 0.95), table("hmc_joint", 0.97), vcl)).verdict == "not reproduced"
    few = judged(together(table("hmc", 0.85, seeds=3), table("hmc_joint", 0.97), vcl))
    assert few.verdict == "open" and "(3 seeds run)" in few.ours
    for final, verdict in ((0.97, "not reproduced"), (0.994, "not reproduced"), (0.996, "reproduced")):
        found = hmc_sequential.judge_joint(table("hmc_joint", final))
        assert found.verdict == verdict and "99.8" in found.ours
    for gaps, verdict in (
        ((0.0, 0.0), "reproduced"),
        ((0.0, -0.3), "with a caveat"),
        ((-0.3, 0.0), "with a caveat"),
        ((0.011, -0.3), "not reproduced"),
    ):
        both = together(*(table(row, 0.9, gap) for row, gap in zip(hmc_sequential.RULES, gaps, strict=True)))
        assert hmc_sequential.judge_densities(both).verdict == verdict
    for passed, verdict in ((1.0, "reproduced"), (0.0, "not reproduced")):
        assert hmc_sequential.judge_gates(table("hmc", 0.9, passed=passed)).verdict == verdict


def flow(**found):
    """Stored runs of RealNVP on two tasks, ten seeds; a value, or one a seed, of what HMC and the fit report."""
    told = {
        **{"accuracy": 0.98, "density_accuracy": 0.98, "held_out": -75.0 + 0.1 * np.arange(10)},
        **{"held_out_gaussian": -70.0 + 0.1 * np.arange(10), "acceptance_rate": 0.8, "divergent": 0.0, "epochs": 9.0},
    } | found
    frame = table("hmc_realnvp", 0.6).query("task_trained <= 2 and not metric.str.startswith('info')")
    lines = [
        (seed, task, task, f"info: {name}", value)
        for name, values in told.items()
        for seed, value in enumerate(np.broadcast_to(values, 10))
        for task in (1, 2)
    ]
    told = pd.DataFrame(lines, columns=["seed", "task_trained", "task_tested", "metric", "value"])
    told = told.assign(**{name: frame[name].iloc[0] for name in runs.COLUMNS if name not in told})
    return together(frame, told[runs.COLUMNS])


def test_realnvp_is_judged_by_seeds_draws_and_the_chains_under_it():
    judge = hmc_diagnostics.judge_flow
    wild, wrong = {"held_out": -800.0 - 500 * np.arange(10)}, {"density_accuracy": 0.7}
    assert judge(flow()).verdict == "not reproduced"
    assert judge(flow(**wild)).verdict == judge(flow(**wild, **wrong)).verdict == "with a caveat"
    for unstable in ({"acceptance_rate": 0.001}, {"divergent": [400.0] * 5 + [0.0] * 5}):
        assert judge(flow(**wild, **wrong, **unstable)).verdict == "reproduced"
    assert judge(flow(**wild, **wrong, divergent=[400.0] * 4 + [0.0] * 6)).verdict == "with a caveat"
    steady, no_better = (claim.judge for claim in hmc_diagnostics.CLAIMS[2:4])
    assert steady(flow()).verdict == no_better(flow()).verdict == "holds"
    assert steady(flow(**wild)).verdict == "fails" and no_better(flow(held_out=-69.0)).verdict == "fails"


def test_flows_that_have_not_been_run_are_told_as_such(monkeypatch):
    monkeypatch.setattr(sweep, "stored", lambda _: flow().iloc[:0])
    assert (hmc_diagnostics.shown_flows() == "not run yet").all(axis=None)
    monkeypatch.setattr(sweep, "stored", lambda _: flow())
    shown = hmc_diagnostics.shown_flows()
    assert shown.iloc[0].tolist() == ["-5 nats", "98 %", "98 %", "80 %"]
    assert plots_sampling.flows(hmc_diagnostics.flows()).axes and plots_sampling.flows({}).axes


def test_statements_hold_or_fail_by_what_is_stored():
    equal, lost, _ = (claim.judge for claim in hmc_sequential.CLAIMS)
    assert equal(together(table("hmc_exact", 0.97), table("hmc_joint", 0.975))).verdict == "holds"
    assert equal(together(table("hmc_exact", 0.95), table("hmc_joint", 0.97))).verdict == "fails"
    assert lost(together(table("hmc", 0.85), table("hmc_joint", 0.97))).verdict == "holds"
    assert lost(together(table("hmc", 0.9), table("hmc_joint", 0.97))).verdict == "fails"
    assert {claim.chapter for claim in toy_gaussians.CLAIMS} == {"toy_gaussians"}


def forgets_at_once(row, after, **changes):
    """Stored runs that have ``after`` of every earlier task from task 2 on."""
    found = table(row, 1.0, **changes)
    earlier = (found.metric == "accuracy") & (found.task_tested < found.task_trained)
    return found.assign(value=found.value.mask(earlier, after))


def test_only_runs_whose_chains_and_densities_are_sound_tell_what_a_density_loses():
    lost, left = forgets_at_once("hmc_gaussian", 0.5), table("hmc_exact", 0.97)
    assert hmc_sequential.earlier_tasks(lost, "hmc_gaussian", 3) == [50.0] * 10
    late = lost.metric.str.startswith("info: converged") & (lost.task_trained == 3) & (lost.seed == 7)
    unsure = lost.assign(value=lost.value.mask(late, 0.0))
    assert len(hmc_sequential.earlier_tasks(unsure, "hmc_gaussian", 2)) == 10
    assert len(hmc_sequential.earlier_tasks(unsure, "hmc_gaussian", 3)) == 9
    assert hmc_sequential.kept(unsure, "hmc_gaussian", 3) == "50.0 % (9 of 10 seeds)"
    assert hmc_sequential.kept(table("hmc_gaussian", 0.9, passed=0.0), "hmc_gaussian", 3) == "– % (0 of 10 seeds)"
    judged = hmc_sequential.CLAIMS[-1].judge
    assert judged(together(lost, left)).verdict == "holds"
    assert judged(together(unsure, left)).verdict == "fails"
    assert judged(together(table("hmc_gaussian", 0.9), left)).verdict == "fails"
    assert judged(together(lost, forgets_at_once("hmc_exact", 0.9))).verdict == "fails"
    judged = toy_gaussians.CLAIMS[-1].judge
    gmm = forgets_at_once("hmc_adapted", 0.5)
    assert judged(together(gmm, left)).verdict == "holds"
    assert judged(together(forgets_at_once("hmc_adapted", 0.5, gap=-0.2), left)).verdict == "fails"
    assert judged(together(forgets_at_once("hmc_adapted", 0.5, passed=0.0), left)).verdict == "fails"
    assert judged(together(forgets_at_once("hmc_adapted", 0.9), left)).verdict == "fails"


def test_factors_are_judged_against_the_exact_recursion():
    parts = {
        "as published": table("hmc_as_published", 0.84, gap=-0.2, seeds=3),
        "covariances shrunk": table("hmc_as_published", 0.9, seeds=3),
        "a Gaussian handed on": table("hmc_as_published", 0.975, seeds=3),
    }
    exact = table("hmc_as_published", 0.98, seeds=3)
    fitted = exact.metric.isin([f"info: {n}" for n in ("density_accuracy", "held_out", "held_out_gaussian")])
    found = why_hmc_forgets.found(parts | {"nothing fitted (exact)": exact[~fitted]})
    assert found.verdict.tolist() == ["density failed", "forgets: 8 points below exact", "remembers", "remembers"]
    shown, more = why_hmc_forgets.shown(found)
    assert shown["densities failed"][list(found.index)].tolist() == ["15 of 15", "0 of 15", "0 of 15", "–"]
    assert set(more.n[list(found.index)]) == {3} and len(shown) == len(why_hmc_forgets.FACTORS)
    assert (shown.verdict == "not run yet").sum() == len(shown) - 4
    plots_sampling.factors(found, why_hmc_forgets.MEANING).draw_without_rendering()
    assert more[why_hmc_forgets.BESIDE][list(found.index)].str.startswith(("–", "+6.0 (", "+13.5 (", "+14.0 (")).all()
    many = {"800 points a blob": table("hmc_as_published", 0.9, seeds=3), "nothing fitted (exact)": exact[~fitted]}
    assert why_hmc_forgets.found(many).verdict.iloc[0] == "forgets: 8 points below exact with 80 points a blob"
    assert why_hmc_forgets.found({"as published": exact.iloc[:0]}).empty


def test_a_change_is_held_against_as_published_seed_by_seed():
    published = table("hmc_as_published", 0.8, seeds=4)
    own = (published.metric == "accuracy") & (published.task_trained == 5) & (published.task_tested == 1)
    published = published.assign(value=published.value - own * 0.05 * published.seed)  # 0, 1, 2, 3 points of the mean
    change = table("hmc_as_published", 0.9, seeds=4)
    parts = {"as published": published[published.seed != 1], "covariances shrunk": change[change.seed != 0]}
    found = why_hmc_forgets._less_published(why_hmc_forgets.found(parts), "covariances shrunk")
    assert found.n == 2 and found.mean == pytest.approx(10 + 2.5)  # seeds 2 and 3
    one = why_hmc_forgets.found(parts | {"covariances shrunk": change[change.seed == 2]})
    assert why_hmc_forgets._interval(one, "covariances shrunk") == "–"
    assert why_hmc_forgets._interval(one, "as published") == "–"


def test_a_setting_that_does_not_even_learn_task_1_is_no_evidence_against_its_density():
    exact = table("hmc_as_published", 0.98, seeds=3)
    fitted = exact.metric.isin([f"info: {n}" for n in ("density_accuracy", "held_out", "held_out_gaussian")])
    held = {"nothing fitted (exact)": exact[~fitted], "all corrected, exact": exact[~fitted]}
    stuck = table("hmc_as_published", 0.6, seeds=3)
    stuck.loc[(stuck.metric == "accuracy") & (stuck.task_tested == 1), "value"] = 0.5
    parts = held | {"as published": table("hmc_as_published", 0.84, seeds=3), "prior precision 100": stuck}
    words = why_hmc_forgets._to_blame(why_hmc_forgets.found(parts))
    assert "fitted density (1 were run) end more than ten points below those" in words and words.endswith("nothing (2)")


def test_every_factor_changes_one_thing_and_all_are_planned():
    assert set(why_hmc_forgets.DIFFERENCES) <= set(why_hmc_forgets.FACTORS)
    one = {name: change for name, change in why_hmc_forgets.FACTORS.items() if not name.startswith(("all", "as"))}
    jobs = {name: sweep.jobs(why_hmc_forgets.selection(name))[0] for name in why_hmc_forgets.FACTORS}
    assert len({str(job.identity("data")) for job in jobs.values()}) == len(jobs)
    together_with = {frozenset(("adapt", "step_size")), frozenset(("average", "eval_chains"))}
    together_with |= {frozenset(("burn_reject", "final_rows"))}  # the crossing of two changes
    assert all(len(change) == 1 or frozenset(change) in together_with for change in one.values())
    assert jobs["as published"].changes == "" and jobs["nothing fitted (exact)"].changes == "recursion=exact"
    for factor in (
        "burn_reject",
        "final_rows",
        "adapt",
        "density",
        "prior_precision",
        "toy_points",
        "holdout",
        "start",
    ):
        assert any(factor in change for change in one.values()), factor
    first, *others = why_hmc_forgets.source().split("\n")
    command = "`paper-lib run dataset=toy_pan preset=paper seeds=0:{} rows=hmc_as_published"
    assert first == f"as published: {command.format(10)}`" and len(others) == len(why_hmc_forgets.FACTORS) - 1
    assert all(f": {command.format(3)} " in line for line in others)


def test_without_runs_every_number_is_words(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    found = [hmc_sequential.numbers("toy_pan"), hmc_diagnostics.numbers(), why_hmc_forgets.numbers()]
    assert all(isinstance(value, str) and value for numbers in found for value in numbers.values())
    assert hmc_sequential.numbers("toy_pan")["hmc"] == "not run yet"
    assert hmc_draws.stored("toy_pan", "hmc") is None and hmc_draws.stored_traces("toy_pan", ("hmc",)) == {}
    for figure in (
        plots_sampling.factors(why_hmc_forgets.stored(), why_hmc_forgets.MEANING),
        plots_sampling.traces({}),
        plots_sampling.surfaces(*hmc_draws.after_all_tasks("toy_pan", ("hmc",))),
        plots_sampling.diagnostics(hmc_diagnostics.reported_by_task(hmc_diagnostics.stored("toy_pan")), 1.01, 400),
    ):
        assert [text.get_text() for text in figure.axes[0].texts] == ["not run yet"]


# --- kept draws


SELECTION = Selection("toy_pan", seeds=(3,), rows=("hmc_gaussian", "hmc_joint"))


def test_surfaces_and_traces_are_those_of_the_draws():
    sweep.run(SELECTION)
    job = sweep.jobs(SELECTION)[1]
    stream, draws = make_stream(**job.stream), hmc_draws.draws_of(job, 3)
    assert len(draws) == 5 and draws[0].shape == (4, 10, 162)
    found = hmc_draws.surface(job, 3)
    inputs = torch.tensor([[found.x[7], found.y[31]]])
    p = torch.stack([network(theta)(inputs).softmax(-1)[0, 1] for theta in draws[4].flatten(0, 1)])
    assert found.mean[4, 31, 7] == pytest.approx(float(p.mean()), abs=1e-5)
    assert found.sd[4, 31, 7] == pytest.approx(float(p.std()), abs=1e-5)
    traces = hmc_draws.traces(job, (3, 99))  # the run store has no seed 99
    assert traces.accuracy.shape == traces.nll.shape == (1, 5, 10) and traces.num_draws.tolist() == list(range(1, 11))
    test, ends = stream.held_out[2], []
    for chain in draws[2]:
        mean = torch.stack([network(theta)(test.x).softmax(-1) for theta in chain]).mean(0)
        ends.append(float(-mean[range(len(test.y)), test.y].log().mean()))
    assert min(abs(end - traces.nll[0, 2, -1]) for end in ends) < 1e-5
    assert (
        hmc_draws.draws_of(job, 99) == [] and hmc_draws.surface(job, 99) is None and hmc_draws.traces(job, ()) is None
    )


def network(theta):
    """The network of one draw as torch modules."""
    layers = [torch.nn.Linear(i, o) for i, o in ((2, 10), (10, 10), (10, 2))]
    with torch.no_grad():
        for layer in layers:
            i, o = layer.in_features, layer.out_features
            layer.weight.copy_(theta[: i * o].view(i, o).T)
            layer.bias.copy_(theta[i * o : i * o + o])
            theta = theta[i * o + o :]
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]).requires_grad_(False)


def test_arrays_at_the_paper_s_scale_are_written_small_and_found_again_by_their_settings(tmp_path, monkeypatch):
    sweep.run(SELECTION)
    job = sweep.jobs(SELECTION)[1]
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(hmc_draws, "_job", lambda dataset, row: job)
    monkeypatch.setattr(hmc_draws.paper, "SEEDS", 4)
    surface = hmc_draws.surface(job, 3)
    monkeypatch.setattr(hmc_draws, "surface", lambda one, seed: surface)
    monkeypatch.setattr(hmc_draws, "chain", lambda one, seed, chain=hmc_draws.chain: chain(one, 3))
    assert hmc_draws.write(("toy_pan",), ("hmc_joint",)) == ["hmc_joint on toy_pan"]
    assert (tmp_path / "hmc_toy_pan.npz").stat().st_size < 300_000  # times seven rows: below 2 MB
    again, traces, chain = hmc_draws.stored("toy_pan", "hmc_joint")
    np.testing.assert_allclose(again.mean, surface.mean, atol=1e-3)
    assert traces.accuracy.shape == (1, 5, 10) and chain.weights.shape == (10, 162) and chain.widths == (2, 10, 10, 2)
    plots_sampling.surfaces(*hmc_draws.after_all_tasks("toy_pan", ("hmc_joint",))).draw_without_rendering()
    hmc_draws.write(("toy_pan",), ("hmc_exact",))
    for row in ("hmc_joint", "hmc_exact"):  # what was written of the one stays when the other is written
        np.testing.assert_array_equal(hmc_draws.stored("toy_pan", row)[2].weights, chain.weights)
    other = sweep.jobs(SELECTION)[0]
    monkeypatch.setattr(hmc_draws, "_job", lambda dataset, row: other)
    assert hmc_draws.stored("toy_pan", "hmc_joint") is None  # it has other settings today


# --- a chain to walk through


def chain_card():
    stream = torch.Generator().manual_seed(0)
    weights = torch.randn(5, 162, generator=stream).numpy()
    x = torch.randn(30, 2, generator=stream).numpy()
    return weights, x, (x[:, 0] > 0).astype(int)


def test_the_card_s_networks_are_the_method_s_and_its_regions_are_theirs():
    weights, x, y = chain_card()
    ours = log_probs(MLP((2,), (10, 10), 2), torch.from_numpy(weights), torch.from_numpy(x))[..., 1].exp()
    np.testing.assert_allclose(interactive_chain.network(weights, (2, 10, 10, 2), x), ours, atol=1e-5)
    p = np.random.default_rng(0).random(interactive_chain.CELLS**2)
    path = interactive_chain.region(p)
    runs_of_cells = re.findall(r"h([\d.]+)v9h-", path)
    assert sum(map(float, runs_of_cells)) == pytest.approx((p > 0.5).sum() * 8.75)
    card = interactive_chain.walk(weights, (2, 10, 10, 2), x, y)
    assert card.html == interactive_chain.walk(weights, (2, 10, 10, 2), x, y).html
    assert not re.search(r"https?:|src=|@import", card.html) and len(card.html) < 200_000
    page = BeautifulSoup(card.html, "html.parser")
    assert len(page.select("svg[role=img]")) == 2 and all(p["aria-label"] for p in page.select("svg[role=img]"))
    assert page.select_one("label input[name=draw]")["max"] == "5" and page.select_one("output").get_text()


@pytest.mark.slow
@pytest.mark.browser
def test_the_slider_s_script_says_what_python_says(tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="no browser test: the Python package playwright is missing")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("no browser test: no Chromium is installed")
    weights, x, y = chain_card()
    page_file = tmp_path / "card.html"
    page_file.write_text(
        "<!doctype html><meta charset=utf-8>" + interactive_chain.walk(weights, (2, 10, 10, 2), x, y).html
    )
    weights, x = weights.astype(float).round(3), x.astype(float).round(3)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_file.as_uri())
        for draw in range(5):
            words = interactive_chain.in_words(weights, (2, 10, 10, 2), x, y, draw)
            assert page.locator("output").inner_text() == BeautifulSoup(words, "html.parser").get_text()
            page.locator("[name=draw]").focus()
            page.keyboard.press("ArrowRight")
        browser.close()
    assert complaints == []


# --- chapters


TAKEN = {
    "hmc_sequential": [
        {},
        {"rows": list(shown_in("hmc")), "seeds": "0:2"},
        {"rows": ["hmc_realnvp"], "dataset": "toy_gaussians"},
        {"rows": "vcl_single_head,hmc_exact", "toy_points": 3},
        {"num_chains": 2, "num_draws": 12, "prior_precision": "1", "step_size": 0.1},
    ],
    "toy_gaussians": [{}, {"dataset": "toy_pan", "rows": ["hmc_gaussian"]}, {"num_chains": 3, "seeds": [5]}],
    "hmc_diagnostics": [
        {},
        {"rows": ["hmc_as_published"], "thin": 2},
        {"rows": ["hmc_joint"], "num_leapfrog": 1, "seeds": "1:3"},
        {"dataset": "toy_gaussians", "num_draws": 9, "prior_precision": 100.0},
    ],
    "why_hmc_forgets": [{}, {"dataset": "toy_gaussians"}, {"num_chains": 3, "num_draws": 12, "max_components": 1}],
}
REFUSED = {
    "hmc_sequential": [
        ({"rows": ["sgd_single_head"], "num_chains": 2}, "num_chains=2 changes no row of sgd_single_head"),
        ({"rows": ["hmc_jont"]}, r"did you mean 'hmc_joint'\?"),
        ({"dataset": "split_digits"}, "row 'hmc' has no settings on dataset='split_digits'"),
        ({"num_chains": 1}, "num_chains=1: holdout='chains'"),
        ({"num_draws": 3}, "num_draws=3 is not at least 8"),
        ({"prior_precison": 3}, r"did you mean 'prior_precision'\?"),
    ],
    "toy_gaussians": [({"seeds": "-1"}, "is negative")],
    "hmc_diagnostics": [({"thin": 0}, "thin=0 is not at least 1")],
    "why_hmc_forgets": [({"max_components": 0}, "max_components=0 is not at least 1")],
}


def live_cells(chapter):
    """The code cells before the stored results."""
    notebook = jupytext.read(notebooks.NOTEBOOKS / f"{chapter}.py")
    at = next(i for i, cell in enumerate(notebook.cells) if "## At the paper's scale" in cell.source)
    return [cell for cell in notebook.cells[:at] if cell.cell_type == "code"]


def run_live(chapter, values):
    """What the live cells show if papermill injects these values."""
    injected = INJECTED + "\n".join(f"{name} = {value!r}" for name, value in values.items())
    namespace, shown = {"In": []}, []
    for cell in live_cells(chapter):
        tagged = "parameters" in cell.metadata.get("tags", ())
        for source in [cell.source, injected] if tagged else [cell.source]:
            *body, last = ast.parse(source).body
            namespace["In"].append(source)
            if isinstance(last, ast.Expr):
                exec(compile(ast.Module(body, []), chapter, "exec"), namespace)
                shown.append(eval(compile(ast.Expression(last.value), chapter, "eval"), namespace))
            else:
                exec(compile(ast.Module([*body, last], []), chapter, "exec"), namespace)
    return shown


@pytest.mark.parametrize(("chapter", "values"), [(c, values) for c in CHAPTERS for values in TAKEN[c]])
def test_a_documented_value_gives_figures(chapter, values):
    shown = run_live(chapter, {"seeds": 0} | values)
    assert len(shown) == {"hmc_sequential": 4, "toy_gaussians": 3, "hmc_diagnostics": 2, "why_hmc_forgets": 1}[chapter]
    for one in shown:
        if hasattr(one, "draw_without_rendering"):
            one.draw_without_rendering()
            assert one.axes
        else:
            assert "<svg" in one._repr_html_()


@pytest.mark.parametrize(("chapter", "values", "message"), [(c, *case) for c in CHAPTERS for case in REFUSED[c]])
def test_what_cannot_be_run_is_refused_in_one_line(chapter, values, message):
    with pytest.raises(ParameterError, match=message) as error:
        run_live(chapter, {"seeds": 0} | values)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nothing_stored_depends_on_a_parameter_and_nothing_is_asserted(chapter):
    notebook = jupytext.read(notebooks.NOTEBOOKS / f"{chapter}.py")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    live = {cell.source for cell in live_cells(chapter)}
    (parameters,) = (cell for cell in code if "parameters" in cell.metadata.get("tags", ()))
    names = {n.id for n in ast.walk(ast.parse(parameters.source)) if isinstance(n, ast.Name)} | {"selection", "table"}
    for cell in code:
        tree = list(ast.walk(ast.parse(cell.source)))
        assert set(cell.metadata.tags) in ({"parameters"}, {"hide-input"})
        assert not any(isinstance(node, ast.Assert) for node in tree)
        if cell.source not in live:
            assert not {n.id for n in tree if isinstance(n, ast.Name)} & names, cell.source


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_papermill_tells_the_type_of_every_parameter(chapter):
    notebook = jupytext.read(notebooks.NOTEBOOKS / f"{chapter}.py")
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])  # papermill expects them, as it reads notebooks alone
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata["tags"])
    found = _infer_parameters(notebook, name="python3", language="python")
    assert [p.name for p in found] == [line.split(":")[0] for line in cell.source.splitlines()]
    assert "None" not in {p.inferred_type_name for p in found} and all(p.help for p in found)


def test_rows_without_draws_have_no_surface():
    with pytest.raises(ValueError, match=r"rows=sgd_single_head keep no draws; rows that do are hmc"):
        hmc_draws.sampled(Selection("toy_pan", rows=("sgd_single_head",)))


def test_toy_sets_are_drawn_with_what_is_at_best_possible():
    figure = plots_sampling.toy_sets({"a": hmc_draws.points("toy_pan", 9)}, {"a": 99.76})
    assert "at best 99.8 %" in figure.axes[0].get_title()
    assert sum(len(line.get_xdata()) for line in figure.axes[0].lines) == 90
    best = hmc_sequential.bayes_accuracies()
    assert [round(value, 1) for value in best.values()] == [99.8, 100.0]


def test_curves_say_in_their_labels_what_to_distrust():
    both = together(table("hmc_joint", 0.97), table("hmc", 0.85, gap=-0.5))
    figure = plots_sampling.accuracy(tables.curves(both), hmc_sequential.notes(both), 99.76)
    figure.draw_without_rendering()
    words = " ".join(text.get_text() for text in figure.legends[0].texts)
    assert "density failed 50 of 50" in words and "converged 50 of 50" in words and "all tasks, 99.8 %" in words
    two = {"hmc": np.array([[0.9, 0.865], [0.9, 0.725]])}  # its whisker ends at 69.6 %
    ax = plots_sampling.accuracy(two, {}, 99.76).axes[0]
    assert ax.get_ylim()[0] <= 100 * (two["hmc"].mean(0) - two["hmc"].std(0, ddof=1)).min()


def test_every_change_is_told_in_one_group_but_for_those_that_the_prose_names():
    groups = {factor: why_hmc_forgets._group(factor) for factor in why_hmc_forgets.FACTORS}
    assert [factor for factor, group in groups.items() if group is None] == ["as published", why_hmc_forgets.EXACT[0]]
    assert set(groups.values()) - {None} == {*why_hmc_forgets.GROUPS, "corrected"}


@pytest.mark.parametrize("dataset", hmc_sequential.TOYS)
def test_hmc_and_what_is_shown_beside_it_learn_from_as_many_points(dataset):
    command, _ = hmc_sequential.source(dataset).splitlines()
    shown = sweep.jobs(hmc_sequential.selection(dataset))
    assert {sum(len(task.y) for task in make_stream(**job.stream).train) for job in shown} == {5 * 2 * 80}
    assert {*hmc_sequential.SAMPLED, *hmc_sequential.BESIDE} == {job.row for job in shown}
    assert f"rows={','.join(job.row for job in shown)}" in command
    held = [claim for claim in paper.claims() if "hmc" in {row for one in claim.needs for row in one.rows}]
    of_claims = [job for claim in held for one in claim.needs for job in sweep.jobs(one) if one.dataset == dataset]
    assert {sum(len(task.y) for task in make_stream(**job.stream).train) for job in of_claims} == {5 * 2 * 80}
