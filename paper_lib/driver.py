"""Runs a method over a stream: the loop over tasks, evaluation on every task so far, timing, checkpoints, resuming."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from paper_lib import metrics
from paper_lib.data.stream import Stream
from paper_lib.files import whole_file
from paper_lib.methods import Method, State
from paper_lib.progress import Progress

SCORES = {
    "accuracy": metrics.accuracy,
    "nll": metrics.negative_log_likelihood,
    "ece": metrics.expected_calibration_error,
}
"""What is stored for every pair of a task trained and a task tested."""

COPY_SECONDS = 5.0
"""Time between copies of a state in training, of which an interrupt saves the last."""


class Outcome(NamedTuple):
    """What a run over a stream measured.

    Attributes:
        scores: name to ``(seed, task_trained, task_tested)``, NaN above the diagonal and where a seed has diverged;
            infinite where a label has probability zero.
        info: what ``learn`` reported, name to one ``(seed, ...)`` array a task.
        kept: the arrays of ``learn`` that outlive the run, for each task a mapping from name to ``(seed, ...)``.
        seconds: wall time of training each task, ``(task,)``, all seeds together; NaN of a
            task that a run was resumed in or before.
        elapsed: wall time of it all, of a resumed run that up to its checkpoint included.
    """

    scores: dict[str, np.ndarray]
    info: dict[str, list[np.ndarray]]
    kept: list[dict[str, np.ndarray]]
    seconds: np.ndarray
    elapsed: float = 0.0

    @property
    def diverged(self) -> np.ndarray:
        """For each seed the task (from 0) after which its predictions were no numbers first; -1 for never."""
        lost = np.isnan(self.scores["accuracy"]) & np.tri(len(self.seconds), dtype=bool)
        lost = lost.any(-1)
        return np.where(lost.any(-1), lost.argmax(-1), -1)


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Adam's moments of units without data decay into denormals, with which a CPU is ten times slower.

    Torch sets this for the calling thread, and OpenMP's threads are born with what it has then.
    """
    before = bool(torch.full((), 1e-40, dtype=torch.float32).mul(1.0) == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@_flushed_denormals()
def run(
    method: Method,
    stream: Stream,
    seeds: Sequence[int],
    device: str | torch.device = "cpu",
    *,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 60.0,
    label: str = "",
) -> Outcome:
    """Train on each task in turn and evaluate on every task so far.

    Args:
        method: configuration of a method.
        stream: its tasks.
        seeds: distinct non-negative integers that advance together.
        device: where tensors live.
        checkpoint: file to save to and to go on from; none is written without it. What a task keeps is written once,
            to a file beside it (``kept_path``). Both are removed at the end by the caller.
        checkpoint_seconds: time between saves inside a task.
        label: names the run where its progress is told.

    Returns:
        The outcome. A resumed run has the numbers of an uninterrupted one. A seed that diverges is part of it to the
        end, and changes nothing in the others.

    Raises:
        KeyboardInterrupt: after the last state that was copied is saved, at most seconds old.
        ValueError: what the method gives back has not the shape that its contract says.
    """
    spec, num_tasks = stream.spec, stream.spec.num_tasks
    state = method.init(spec, seeds, device)
    named_tensors(state)  # raises now, and not at the first checkpoint, where it cannot be saved
    shape = (len(seeds), num_tasks, num_tasks)
    outcome = Outcome({name: np.full(shape, np.nan) for name in SCORES}, {}, [], np.full(num_tasks, np.nan))
    first, resumed = 0, False
    identity = f"{method!r} on {stream.digest}, seeds {tuple(seeds)}"
    if checkpoint is not None and checkpoint.exists():
        first, state, outcome = load(checkpoint, state, device, identity)
        resumed = True
    began = time.perf_counter() - outcome.elapsed
    unsaved: tuple[int, State] | None = None  # what an interrupt saves, where it is newer than the checkpoint

    def timed() -> Outcome:
        return outcome._replace(elapsed=time.perf_counter() - began)

    held_out = [task.to(device) for task in stream.held_out]
    with Progress(label, num_tasks, first, sizes=[len(task.y) for task in stream.train]) as progress:
        try:
            for task in stream.train[first:]:
                started = saved = copied = time.perf_counter()

                def report(running: State, fraction: float, task=task) -> None:
                    nonlocal saved, copied, unsaved
                    progress.show(task.index + fraction)
                    now = time.perf_counter()
                    if checkpoint is None or fraction >= 1:
                        return
                    if now - saved >= checkpoint_seconds:
                        save(checkpoint, task.index, running, timed(), identity)
                        saved = copied = time.perf_counter()
                        unsaved = None
                    elif now - copied >= COPY_SECONDS:  # what is reported shares memory with what trains on
                        copies = {name: leaf.detach().clone() for name, leaf in named_tensors(running)}
                        unsaved = task.index, _rebuilt(running, copies)
                        copied = time.perf_counter()

                state, info, kept = method.learn(state, task.to(device), report)
                _check_seeds_first({"info": info, "kept": kept}, len(seeds))
                if torch.device(device).type == "cuda":
                    torch.cuda.synchronize(device)
                outcome.seconds[task.index] = np.nan if resumed else time.perf_counter() - started
                resumed = False
                for tested in held_out[: task.index + 1]:
                    task_id = tested.index if spec.scenario == "task_incremental" else None
                    log_probs = predict(method, state, tested.x, task_id)
                    if log_probs.shape != (asked := (len(seeds), len(tested.y), spec.num_units)):
                        found = tuple(log_probs.shape)
                        raise ValueError(f"predict gave log-probabilities {found}; (seed, n, unit) is {asked} here")
                    for name, score in SCORES.items():
                        outcome.scores[name][:, task.index, tested.index] = score(log_probs, tested.y).cpu().numpy()
                    progress.show(task.index + 1)
                for name, value in info.items():
                    outcome.info.setdefault(name, []).append(value.detach().cpu().numpy())
                outcome.kept.append({name: value.detach().cpu().numpy() for name, value in kept.items()})
                if checkpoint is not None:
                    if outcome.kept[-1]:
                        _write(kept_path(checkpoint, task.index), {"identity": np.array(identity), **outcome.kept[-1]})
                    save(checkpoint, task.index + 1, state, timed(), identity)
                    unsaved = None
        except KeyboardInterrupt:
            if unsaved is not None:
                save(checkpoint, *unsaved, timed(), identity)
            raise
    return timed()


def predict(method: Method, state: State, x: Tensor, task_id: int | None = None, chunk: int = 4096) -> Tensor:
    """Log-probabilities ``(seed, n, unit)``, computed ``chunk`` points at a time."""
    with torch.inference_mode():
        return torch.cat([method.predict(state, part, task_id) for part in x.split(chunk)], dim=1)


def _check_seeds_first(given: Mapping[str, Mapping[str, Tensor]], num_seeds: int) -> None:
    """Refuse what would be stored as another seed's, before anything of it is saved."""
    for what, arrays in given.items():
        for name, value in arrays.items():
            if (shape := tuple(np.shape(value)))[:1] != (num_seeds,):
                raise ValueError(
                    f"learn gave {what} {name!r} of shape {shape}; its first axis must be {num_seeds} seeds"
                )


def kept_path(checkpoint: Path, task: int) -> Path:
    """Where what ``learn`` keeps of a task lies while its run goes on: ``NAME.npz.taskT`` beside ``NAME.npz``."""
    return checkpoint.with_name(f"{checkpoint.name}.task{task}")


def save(path: Path, next_task: int, state: State, outcome: Outcome, identity: str) -> None:
    """Write a checkpoint of the run that ``identity`` names; what past tasks keep has files of its own already."""
    arrays = {f"state/{name}": leaf.detach().cpu().numpy() for name, leaf in named_tensors(state)}
    arrays |= {f"scores/{name}": value for name, value in outcome.scores.items()}
    arrays |= {f"info/{name}/{t}": v for name, values in outcome.info.items() for t, v in enumerate(values[:next_task])}
    arrays |= {"identity": np.array(identity), "next_task": np.array(next_task)}
    arrays |= {"seconds": outcome.seconds, "elapsed": np.array(outcome.elapsed)}
    arrays["kept"] = np.array([t for t, kept in enumerate(outcome.kept[:next_task]) if kept], dtype=np.int64)
    _write(path, arrays)


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays in one piece."""
    with whole_file(path, "wb") as file:
        np.savez(file, **arrays)


def load(path: Path, template: State, device: str | torch.device, identity: str) -> tuple[int, State, Outcome]:
    """Read a checkpoint: the next task, the state in the template's structure, and the outcome so far.

    Raises:
        ValueError: if the file is not a checkpoint of the run that ``identity`` names.
    """
    try:
        arrays = _read(path, identity)
        next_task, seconds, elapsed = int(arrays["next_task"]), arrays["seconds"], float(arrays["elapsed"])
        scores = {name: arrays[f"scores/{name}"] for name in SCORES}
        kept = [_read(kept_path(path, t), identity) if t in arrays["kept"] else {} for t in range(next_task)]
        tensors = {name: torch.from_numpy(arrays[f"state/{name}"]) for name, _ in named_tensors(template)}
    except Exception as error:  # of what readers of damaged files say, nothing helps
        why = error if isinstance(error, OtherRun | OSError) else "it is damaged, or of other code"
        raise ValueError(f"{path} is not a checkpoint of this run ({why}); remove it to start afresh") from error
    on_cpu = {name for name, leaf in named_tensors(template) if leaf.device.type == "cpu"}
    tensors = {name: t if name in on_cpu else t.to(device) for name, t in tensors.items()}
    info: dict[str, list[np.ndarray]] = {}
    for key in sorted((k for k in arrays if k.startswith("info/")), key=lambda k: int(k.rsplit("/", 1)[1])):
        info.setdefault(key.split("/")[1], []).append(arrays[key])
    return next_task, _rebuilt(template, tensors), Outcome(scores, info, kept, seconds, elapsed)


class OtherRun(ValueError):
    """A file is of another run than the one that is asked for."""


def _read(path: Path, identity: str) -> dict[str, np.ndarray]:
    """The arrays of a file that belongs to the run named ``identity``."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        arrays = dict(stored)
    found = str(arrays.pop("identity"))
    if found != identity:
        raise OtherRun(f"it is of {found}, not of {identity}")
    return arrays


def named_tensors(tree: Any, name: str = "") -> list[tuple[str, Tensor]]:
    """The tensors of a state with their places in it; what else it holds is what ``init`` was given, and frozen.

    Raises:
        TypeError: it holds something that a checkpoint cannot give back.
    """
    if isinstance(tree, Tensor):
        return [(name, tree)]
    if isinstance(tree, tuple):
        names = getattr(tree, "_fields", range(len(tree)))
        return [pair for key, child in zip(names, tree, strict=True) for pair in named_tensors(child, f"{name}.{key}")]
    frozen = is_dataclass(tree) and type(tree).__dataclass_params__.frozen  # the spec, settings
    if frozen or (isinstance(tree, int) and name.startswith(".seeds")):
        return []
    raise TypeError(
        f"a state holds tensors in tuples, frozen settings and its seeds; at {name or 'its root'} it has {tree!r}"
    )


def _rebuilt(tree: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    if isinstance(tree, Tensor):
        return tensors[name]
    if isinstance(tree, tuple):
        names = getattr(tree, "_fields", range(len(tree)))
        children = [_rebuilt(child, tensors, f"{name}.{key}") for key, child in zip(names, tree, strict=True)]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    return tree
