"""What the kept draws of HMC show: decision surfaces and their spread, accuracy against draws, single networks.

Live figures take the draws out of the run store. Those at the paper's scale are boiled down to a few arrays,
``results/hmc_DATASET.npz``, which ``write`` makes out of the run store.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper_lib import interactive_chain, paper, rng, runs, sweep
from paper_lib.data.stream import Stream, make_stream
from paper_lib.files import whole_file
from paper_lib.interactive import Card
from paper_lib.methods.sequential_hmc import log_probs
from paper_lib.networks import MLP
from paper_lib.rows import ROWS, TOYS, shown_in
from paper_lib.runs import Job
from paper_lib.sweep import Selection

SIZE, NUM_DRAWS, NUM_POINTS, NUM_NETWORKS = 40, 200, 30, 40
"""Cells of a surface along each axis, draws that it averages over, points of a trace, networks of a chain shown."""


class Surface(NamedTuple):
    """Probability of class 1 over the plane after each task.

    Attributes:
        x: middles of cells ``(w,)``.
        y: the same upwards ``(h,)``.
        mean: over draws ``(task, h, w)``.
        sd: over draws, the spread of the posterior.
    """

    x: NDArray
    y: NDArray
    mean: NDArray
    sd: NDArray


class Traces(NamedTuple):
    """Prediction on the test points of a task by the first draws of a chain, a chain a seed drawn at random.

    Attributes:
        num_draws: ``(point,)``.
        accuracy: ``(seed, task, point)``.
        nll: nats a point.
    """

    num_draws: NDArray
    accuracy: NDArray
    nll: NDArray


class Chain(NamedTuple):
    """Networks of one chain, evenly from its draws.

    Attributes:
        weights: ``(draw, parameter)``.
        widths: inputs, hidden layers, outputs.
    """

    weights: NDArray
    widths: tuple[int, ...]


def draws_of(job: Job, seed: int) -> list[Tensor]:
    """The draws ``(chain, draw, parameter)`` of a seed after each task; none where the run store has none."""
    kept = runs.kept(job, seed)
    found = (kept.get(f"draws/{task}") for task in itertools.count())
    return [torch.from_numpy(d) for d in itertools.takewhile(lambda d: d is not None, found)]


def points(dataset: str, toy_points: int | None = None) -> list[tuple[NDArray, NDArray]]:
    """Training inputs ``(n, 2)`` and labels of each task of a toy set."""
    stream = make_stream(dataset, "domain_incremental", toy_points=toy_points)
    return [(task.x.numpy(), task.y.numpy()) for task in stream.train]


def surface(job: Job, seed: int) -> Surface | None:
    """The surface of a seed's posterior after each task; None where the run store has no draws of it."""
    stream, after = make_stream(**job.stream), draws_of(job, seed)
    if not after:
        return None
    inputs = torch.cat([task.x for task in stream.train])
    low, high = inputs.amin(0) - 0.3, inputs.amax(0) + 0.3
    x, y = (low[i] + (high[i] - low[i]) * (torch.arange(SIZE) + 0.5) / SIZE for i in range(2))
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).view(-1, 2)
    network, mean, sd = _network(job, stream), [], []
    for draws in after:
        p = log_probs(network, _evenly(draws.flatten(0, 1), NUM_DRAWS), stream.spec.scale(grid))[..., 1].exp()
        mean.append(p.mean(0).view(SIZE, SIZE))
        sd.append(p.std(0).view(SIZE, SIZE))
    return Surface(x.numpy(), y.numpy(), torch.stack(mean).numpy(), torch.stack(sd).numpy())


def traces(job: Job, seeds: Sequence[int]) -> Traces | None:
    """Accuracy and NLL against draws, of those seeds that the run store has."""
    stream, network = make_stream(**job.stream), None
    accuracy, nll = [], []
    for seed in seeds:
        after = draws_of(job, seed)
        if not after:
            continue
        network = network or _network(job, stream)
        chain = int(torch.randint(len(after[0]), (), generator=rng.generator(seed, "shown chain")))
        counts = _counts(after[0].shape[1])
        lines = [_trace(network, d[chain], stream, t, counts) for t, d in enumerate(after)]
        accuracy.append([line[0] for line in lines])
        nll.append([line[1] for line in lines])
    return Traces(counts, np.array(accuracy), np.array(nll)) if accuracy else None


def chain(job: Job, seed: int) -> Chain | None:
    """Networks of the first chain after the last task."""
    after = draws_of(job, seed)
    widths = (2, *job.method.hidden, 2)
    return Chain(_evenly(after[-1][0], NUM_NETWORKS).numpy(), widths) if after else None


# --- as a chapter shows it


def sampled(selection: Selection) -> list[Job]:
    """The jobs of a selection that keep draws.

    Raises:
        ValueError: there are none.
    """
    found = [job for job in sweep.jobs(selection) if job.row in shown_in("hmc")]
    if not found:
        raise ValueError(
            f"rows={','.join(selection.rows)} keep no draws; rows that do are {', '.join(shown_in('hmc'))}"
        )
    return found


def after_each_task(selection: Selection) -> tuple[dict[str, tuple], list[tuple[NDArray, NDArray]]]:
    """Panels of ``plots_sampling.surfaces`` for the first row and seed of a live selection, and the points."""
    job = sampled(selection)[0]
    found = surface(job, selection.seeds[0])
    panels = {
        f"after task {t + 1}": (found.x, found.y, found.mean[t], found.sd[t], t + 1) for t in range(len(found.mean))
    }
    return panels, points(selection.dataset, job.stream.get("toy_points"))


def after_all_tasks(dataset: str, rows: Iterable[str]) -> tuple[dict[str, tuple], list[tuple[NDArray, NDArray]]]:
    """The same after the last task, of rows at the paper's scale whose arrays are there."""
    found = {row: stored(dataset, row) for row in rows}
    panels = {
        ROWS[row].style.label: (s.x, s.y, s.mean[-1], s.sd[-1], len(s.mean))
        for row, (s, *_) in ((row, one) for row, one in found.items() if one is not None)
    }
    return panels, points(dataset, 80)


def walk(selection: Selection) -> Card:
    """A slider through the draws of the last row of a live selection, after its last task, over all tasks' points."""
    job = sampled(selection)[-1]
    found, data = chain(job, selection.seeds[0]), points(selection.dataset, job.stream.get("toy_points"))
    x, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    return interactive_chain.walk(found.weights, found.widths, x, y)


def live_traces(selection: Selection) -> dict[str, Traces]:
    """Panels of ``plots_sampling.traces`` for the first two sampled rows of a live selection."""
    return {ROWS[job.row].style.label: traces(job, selection.seeds) for job in sampled(selection)[:2]}


def stored_traces(dataset: str, rows: Iterable[str]) -> dict[str, Traces]:
    """The same of rows at the paper's scale whose arrays are there."""
    found = {ROWS[row].style.label: stored(dataset, row) for row in rows}
    return {name: one[1] for name, one in found.items() if one is not None}


def _network(job: Job, stream: Stream) -> MLP:
    return MLP(stream.spec.input_shape, job.method.hidden, stream.spec.num_units)


def _evenly(draws: Tensor, number: int) -> Tensor:
    return draws[torch.linspace(0, len(draws) - 1, min(number, len(draws))).round().long()]


def _counts(num_draws: int) -> NDArray:
    """Numbers of draws at even distances of their logarithm."""
    return np.unique(np.geomspace(1, num_draws, NUM_POINTS).round().astype(int))


def _trace(network: MLP, draws: Tensor, stream: Stream, task: int, counts: NDArray) -> tuple[list[float], list[float]]:
    """Accuracy and NLL on a task's test points by the first ``counts`` draws of a chain."""
    test = stream.held_out[task]
    p = log_probs(network, draws, stream.spec.scale(test.x)).double().exp().cumsum(0)[counts - 1]
    p = p / torch.from_numpy(counts)[:, None, None]
    right = p[:, torch.arange(len(test.y)), test.y]
    return (p.argmax(-1) == test.y).double().mean(-1).tolist(), (-right.log().mean(-1)).tolist()


# --- at the paper's scale


def write(datasets: Iterable[str] = TOYS, rows: Iterable[str] = shown_in("hmc")) -> list[str]:
    """Write ``results/hmc_DATASET.npz`` out of the run store, of the rows that have runs there; says which.

    A row without draws of seed 0, whose surface and networks are shown, is left out. What was written of other rows
    stays.
    """
    written = []
    for dataset in datasets:
        arrays, path = {}, runs.RESULTS / f"hmc_{dataset}.npz"
        for row in rows:
            job = _job(dataset, row)
            first = surface(job, 0)
            if first is not None:
                found = traces(job, range(paper.SEEDS))
                arrays |= {f"{row}/{name}": v.astype(np.float32) for name, v in found._asdict().items()}
                arrays |= {f"{row}/surface {n}": v.astype(np.float16) for n, v in first._asdict().items()}
                arrays[f"{row}/weights"] = chain(job, 0).weights
                arrays[f"{row}/identity"] = np.array(json.dumps(job.identity("")))
                written.append(f"{row} on {dataset}")
        if arrays:
            if path.exists():
                with np.load(path, allow_pickle=False) as old:
                    new = {name.split("/")[0] for name in arrays}
                    arrays |= {name: old[name] for name in old if name.split("/")[0] not in new}
            with whole_file(path, "wb") as file:
                np.savez_compressed(file, **arrays)
    return written


def stored(dataset: str, row: str) -> tuple[Surface, Traces, Chain] | None:
    """What ``write`` kept of a row; None where there is nothing, or where the row has other settings today."""
    path, job = runs.RESULTS / f"hmc_{dataset}.npz", _job(dataset, row)
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        if f"{row}/identity" not in arrays or not job.matches(json.loads(str(arrays[f"{row}/identity"]))):
            return None
        own = {name.removeprefix(f"{row}/"): arrays[name] for name in arrays.files if name.startswith(f"{row}/")}
    surfaces = Surface(*(own[f"surface {name}"].astype(float) for name in Surface._fields))
    widths = (2, *job.method.hidden, 2)
    return surfaces, Traces(*(own[name] for name in Traces._fields)), Chain(own["weights"], widths)


def _job(dataset: str, row: str) -> Job:
    return sweep.jobs(Selection(dataset, None, "paper", rows=(row,)))[0]
