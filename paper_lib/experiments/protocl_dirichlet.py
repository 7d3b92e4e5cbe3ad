"""Figure A8: the Dirichlet's parameters of each class over training, as published and corrected.

They are a prior plus the labels shown so far, and the embedding has no part in them but for a learned prior, of a few
points among thousands. So the curves of the rows of Table 1 are counted from the order of their points (``counted``),
without training, in seconds; ``write`` keeps them in ``results/dirichlet_split_mnist.npz``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from paper_lib import driver, metrics, paper, rng, runs, sweep, tables, training
from paper_lib import memory as mem
from paper_lib.data.stream import NUM_TASKS, Stream, make_stream
from paper_lib.files import whole_file
from paper_lib.methods.protocl import ProtoCL
from paper_lib.rows import ROWS
from paper_lib.runs import Job
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

SCENARIO, DATASET = "class_incremental", "split_mnist"
LIVE = Selection(scenario=SCENARIO, rows=("protocl_as_published", "protocl"))
"""What the chapter runs unless its parameters say otherwise."""

PUBLISHED, CORRECTED = "as published", "corrected"
WAYS: dict[str, tuple[str, Mapping[str, Any]]] = {
    PUBLISHED: ("protocl_as_published", {}),
    CORRECTED: ("protocl", {}),
    "corrected, no decay": ("protocl", {"forget": 1.0}),
    "plain union (Alg. 1)": ("protocl", {"forget": 1.0, "oversample": False}),
}
"""Ways to count, with their rows and what is changed in them."""
UNION = list(WAYS)[-1]

ROUGHLY = 1.5
"""Shares are roughly equal here if the largest is at most so many times the smallest. The digits' own differ by 1.2."""
POINTS = 12_000
"""Training points of a task of Split-MNIST, about."""


def selection(way: str) -> Selection:
    """The runs of a way to count at the paper's scale."""
    row, changes = WAYS[way]
    return paper.paper_scale(DATASET, row, scenario=SCENARIO, **changes)


def trace(job: Job, seed: int) -> NDArray | None:
    """The parameters of a seed's run after each epoch of each task, ``(epoch, class)``, all tasks in a row.

    None where the run store has none: there is no record, or one from before curves were kept.
    """
    kept = runs.kept(job, seed)
    parts = (kept.get(f"concentration/{task}") for task in itertools.count())
    parts = list(itertools.takewhile(lambda part: part is not None, parts))
    return np.concatenate(parts) if parts else None


def run(live: Selection) -> dict[str, NDArray]:
    """Panels of ``plots.concentrations`` of a live selection: a row's label to ``(seed, epoch, class)``.

    Raises:
        ValueError: a row has no Dirichlet.
    """
    for job in sweep.jobs(live):
        if not isinstance(job.method, ProtoCL):
            raise ValueError(f"rows={job.row} counts no classes; rows of ProtoCL do")
    sweep.run(live)
    panels = {}
    for job in sweep.jobs(live):
        found = [trace(job, seed) for seed in live.seeds]
        if any(one is None for one in found):
            again = driver.run(job.method, make_stream(**job.stream), live.seeds, live.device)
            found = np.concatenate([kept["concentration"] for kept in again.kept], axis=1)
        panels[ROWS[job.row].style.label] = np.stack(list(found))
    return panels


# --- at the paper's scale


def counted(method: ProtoCL, stream: Stream, seeds: Sequence[int]) -> NDArray:
    """The parameters ``(seed, epoch, class)`` that runs have after each epoch, by their labels alone.

    Points come in the order of the runs and memory holds what it holds there; a learned prior stays where it begins.
    """
    spec, state = stream.spec, method.init(stream.spec, seeds, "cpu")
    counts, curve = torch.zeros(len(seeds), spec.num_units, dtype=torch.float64), []
    for task in stream.train:
        pool = mem.pool(task, state.memory, len(seeds), method.oversample)
        num_draws = pool.draws.shape[1]
        for epoch in range(method.epochs):
            order = rng.permutations(num_draws, rng.generators(seeds, "order", task.index, epoch))
            batch_size = min(method.batch_size, num_draws)
            index, weight = training.minibatches(pool.draws.gather(1, order), batch_size, method.drop_partial_batches)
            shown = (one_hot(pool.y[index], spec.num_units) * weight[..., None]).sum(-2)  # (step, seed, class)
            left = method.forget ** torch.arange(len(index) - 1, -1, -1, dtype=torch.float64)
            counts = method.forget ** len(index) * counts + (left[:, None, None] * shown).sum(0)
            curve.append(method.alpha_init + counts)
        state = state._replace(memory=method.remember(state, task))
    return torch.stack(curve, dim=1).numpy()


def write() -> None:
    """Count the curves of every way, and write them with the settings that they are of."""
    arrays = {}
    for way in WAYS:
        one = selection(way)
        (job,) = sweep.jobs(one)
        alpha = counted(job.method, make_stream(**job.stream), one.seeds)
        arrays |= {f"{way}/alpha": alpha.astype(np.float32), f"{way}/identity": np.array(json.dumps(job.identity("")))}
    with whole_file(_path(), "wb") as file:
        np.savez_compressed(file, **arrays)


def stored() -> dict[str, NDArray]:
    """What ``write`` kept, ``(seed, epoch, class)`` a way; none of a way whose row has other settings today."""
    if not _path().exists():
        return {}
    found = {}
    with np.load(_path(), allow_pickle=False) as arrays:
        for way in WAYS:
            (job,) = sweep.jobs(selection(way))
            if f"{way}/alpha" in arrays and job.matches(json.loads(str(arrays[f"{way}/identity"]))):
                found[way] = arrays[f"{way}/alpha"].astype(float)
    return found


def drawn() -> dict[str, NDArray]:
    """Panels of ``plots.concentrations`` of the stored curves, without the one that only repeats another's shares."""
    return {way: alpha for way, alpha in stored().items() if way != "corrected, no decay"}


def _path():
    return runs.RESULTS / f"dirichlet_{DATASET}.npz"


def shares(alpha: NDArray) -> NDArray:
    """The probability of each class by its parameters, ``(..., class)``."""
    return alpha / alpha.sum(-1, keepdims=True)


def spread(alpha: NDArray) -> metrics.Summary:
    """Over seeds, how many times the smallest class share the largest is after the last task; 1 if all are equal."""
    last = alpha[:, -1]
    return metrics.summarise(last.max(-1) / last.min(-1))


def by_counting(method: ProtoCL, points: float = POINTS, num_tasks: int = 5) -> NDArray:
    """Shares of the tasks ``(task,)`` after the last one, if every task has as many points, by arithmetic.

    While a task is learned, its points are counted once an epoch, and those in memory as often as they are repeated:
    until old and new are about 1:1, or once in a plain union. A step multiplies earlier counts by ``forget``.

    >>> by_counting(ProtoCL(memory_per_task=200)).round(3).tolist()
    [0.343, 0.231, 0.176, 0.139, 0.111]
    """
    counts = np.zeros(num_tasks)
    for task in range(num_tasks):
        kept = method.memory_per_task if method.memory_total is None else method.memory_total // max(1, task)
        repeats = max(1, points // max(1, kept * task)) if method.oversample else 1
        epoch = np.where(np.arange(num_tasks) < task, repeats * kept, 0.0)
        epoch[task] = points
        steps, forget = method.epochs * epoch.sum() / method.batch_size, method.forget
        weight = steps if forget == 1 else (1 - forget**steps) / (1 - forget)
        counts = forget**steps * counts + weight * method.batch_size * epoch / epoch.sum()
    return counts / counts.sum()


def shown() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The chapter's table, a line a way, and the share of every class that it folds away, percent."""
    found, main, more = stored(), {}, {}
    for way in WAYS:
        (job,) = sweep.jobs(selection(way))
        counted = by_counting(job.method)
        main[way] = dict.fromkeys(("largest and smallest share (%)", "their ratio ± se"), "not run")
        main[way] |= {"ratio by counting": f"{counted.max() / counted.min():.1f}", "roughly equal": "open"}
        more[way] = {f"class {c}": math.nan for c in range(10)}
        if way in found:
            last, ratio = 100 * shares(found[way][:, -1]).mean(0), spread(found[way])
            main[way] |= {"largest and smallest share (%)": f"{last.max():.1f} and {last.min():.1f}"}
            main[way] |= {"their ratio ± se": f"{ratio.mean:.2f} ± {ratio.se:.2f}"}
            main[way] |= {"roughly equal": "yes" if ratio.mean <= ROUGHLY else "no"}
            more[way] = {f"class {c}": share for c, share in enumerate(last)}
    return tuple(pd.DataFrame.from_dict(f, orient="index").rename_axis("what counts") for f in (main, more))


COMMAND = 'python -c "from paper_lib.experiments import protocl_dirichlet as d; d.write()"'
"""What counts the labels again and writes the stored counts."""


def source() -> str:
    """What recomputes the chapter's table, and the runs that its first two lines are of, as it says it below."""
    runs_of = (tables.command(selection(way)) for way in (PUBLISHED, CORRECTED))
    return "\n".join(
        [
            f"`{COMMAND}`",
            "counts the labels of these runs, in order, and trains nothing:",
            *(f"`{command}`" for command in runs_of),
        ]
    )


def numbers() -> dict[str, str]:
    """What the chapter's prose cites, as words, also where nothing has been run yet."""
    found, cited = stored(), {}
    for way, name in zip(WAYS, ("published", "corrected", "unforgotten", "union"), strict=True):
        there = found.get(way)
        cited[f"ratio_{name}"] = "not run yet" if there is None else f"{spread(there).mean:.1f}"
        last = None if there is None else 100 * shares(there[:, -1]).mean(0)
        for task, at in (("first", slice(0, 2)), ("last", slice(-2, None))):
            cited[f"{task}_{name}"] = "not run yet" if last is None else f"{last[at].mean():.1f} %"
        nats = None if there is None else math.log(spread(there).mean)
        cited[f"nats_{name}"] = "not run yet" if nats is None else f"{nats:.1f} nats"
    cited["own_ratio"] = f"{_own_ratio(found[UNION]):.1f}" if UNION in found else "not run yet"
    return cited | {"verdict": paper.verdict("Dirichlet parameters")}


def _own_ratio(alpha: NDArray) -> float:
    """How many points the largest class has for one of the smallest: by what its own task adds to the counts."""
    before = np.concatenate([np.zeros_like(alpha[:, :1]), alpha], axis=1)[0]
    num_tasks = NUM_TASKS[DATASET]
    ends = np.arange(num_tasks + 1) * alpha.shape[1] // num_tasks
    task = np.arange(alpha.shape[-1]) * num_tasks // alpha.shape[-1]
    own = before[ends[task + 1], np.arange(len(task))] - before[ends[task], np.arange(len(task))]
    return float(own.max() / own.min())


# --- what is claimed


def judge_figure(_: pd.DataFrame) -> Judgement:
    """Whether the shares end roughly equal: as published, as corrected, and as Algorithm 1 unites task and memory."""
    found = stored()
    ways = (PUBLISHED, CORRECTED, UNION)
    if not found.keys() >= set(ways):
        return Judgement("open", "curves not written")
    ratios = {way: spread(found[way]) for way in ways}
    words = (f"{way} {r.mean:.2f} ± {r.se:.2f} (se, n = {r.n})" for way, r in ratios.items())
    equal = [r.mean <= ROUGHLY for r in ratios.values()]
    verdict = "reproduced" if all(equal) else "with a caveat" if any(equal) else "not reproduced"
    if verdict == "with a caveat":
        which = "; ".join(way for way, holds in zip(ways, equal, strict=True) if holds)
        words = (*words, f"holds for {which} alone")
    return Judgement(
        verdict, f"largest share over smallest: {'; '.join(words)}; up to {ROUGHLY:g} counts as roughly equal"
    )


def _found(judge: Callable[[Mapping[str, NDArray]], Judgement], ways: Iterable[str]) -> Callable:
    """A judgement of the stored curves of some ways to count; ``open`` where one of them has none."""

    def judged(_: pd.DataFrame) -> Judgement:
        found = stored()
        lacking = [way for way in ways if way not in found]
        if lacking:
            return Judgement("open", f"curves not written: {', '.join(lacking)}")
        return judge({way: found[way] for way in ways})

    return judged


def _first_over_last(alpha: NDArray) -> metrics.Summary:
    last = alpha[:, -1]
    return metrics.summarise(last[:, :2].mean(-1) / last[:, -2:].mean(-1))


def _early(found: Mapping[str, NDArray]) -> Judgement:
    ratio = _first_over_last(found[PUBLISHED])
    return holds(
        2.5 < ratio.mean < 3.5 and spread(found[PUBLISHED]).mean > ROUGHLY,
        f"as published, classes of the first task over those of the last: {ratio.mean:.2f} ± {ratio.sd:.2f} (sd)",
    )


def _late(found: Mapping[str, NDArray]) -> Judgement:
    last = 100 * shares(found[CORRECTED][:, -1]).mean(0)
    return holds(
        last[-2:].min() > 2 * last[:-2].max(), f"{last[-2:].mean():.1f} % each, the others {last[:-2].mean():.1f} %"
    )


def _union(found: Mapping[str, NDArray]) -> Judgement:
    ratios = {way: spread(alpha) for way, alpha in found.items()}
    equal = [way for way, ratio in ratios.items() if ratio.mean + 2 * ratio.se <= ROUGHLY]
    words = "; ".join(f"{way}: {ratio.mean:.2f}" for way, ratio in ratios.items())
    return holds(equal == [UNION], f"largest share over smallest, {words}")


def _arithmetic(found: Mapping[str, NDArray]) -> Judgement:
    gaps = {}
    for way, alpha in found.items():
        (job,) = sweep.jobs(selection(way))
        pairs = shares(alpha[:, -1]).mean(0).reshape(NUM_TASKS[DATASET], -1).sum(-1)
        gaps[way] = 100 * np.abs(pairs - by_counting(job.method)).max()
    words = "; ".join(f"{way}: {gap:.1f}" for way, gap in gaps.items())
    return holds(max(gaps.values()) < 2, f"largest gap of a task's share, points: {words}")


CLAIMS = tuple(
    Claim(
        exhibit="Figure A8",
        says=says,
        chapter="protocl_dirichlet",
        judge=_found(judge, ways),
    )
    for says, judge, ways in (
        (
            "As published, the first task's classes end about three times as likely as the last one's.",
            _early,
            (PUBLISHED,),
        ),
        ("With the tuned decay of counts the last two classes are by far the likeliest.", _late, (CORRECTED,)),
        ("Of these ways only the plain union of Algorithm 1 ends with roughly equal classes.", _union, tuple(WAYS)),
        (
            "Counting how often an epoch shows each task predicts its share within two percentage points.",
            _arithmetic,
            tuple(WAYS),
        ),
    )
)
"""What the chapter says about stored runs."""
