"""What the releases of ProtoCL and HIBNN do, where that is not what the text says, one choice at a time.

Choices of method are settings: ``FACTORS`` changes one of ProtoCL's at a time. Two choices of evaluation cannot be a
method's own predictions, for they see what a prediction must not. ProtoCL's release learns from the labels of the
points that it is scored on. HIBNN's release chooses a head once for the whole test set of a task, so the grouping of
the test points tells that they share a task; and what counts there as correct is a share of single draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from paper_lib import paper, runs, sweep, tables
from paper_lib.checks import one_of
from paper_lib.data.stream import Stream, Task, make_stream
from paper_lib.files import whole_file
from paper_lib.methods.hibnn import HIBNN, choose
from paper_lib.methods.hibnn import State as HIBNNState
from paper_lib.methods.protocl import Evidence, ProtoCL, observe
from paper_lib.methods.protocl import State as ProtoCLState
from paper_lib.rows import BLUE, GREEN, GREY, MNISTS, ROWS, VERMILION
from paper_lib.sweep import Selection
from paper_lib.tables import Claim, Judgement, holds

ROW, SCENARIO, SEEDS = "protocl", "class_incremental", range(3)
CORRECTED, MEMORY = "as corrected", "one memory, shared out anew"
DROPOUT, JOINT = "dropout stays on in predictions", "the joint predictive is maximised"
REPEATS, AFTER = "memory is not repeated", "posterior after the encoder's step"
ANEW = "prototypes found anew after training"
COLOURS = {"–": GREEN, "code": VERMILION, "text": BLUE, "neither": GREY}
MEANING = {
    GREEN: "as corrected",
    VERMILION: "a choice of the code",
    BLUE: "a choice of the text",
    GREY: "a choice of neither",
}
"""What the colours of ``found`` say."""

PUBLISHED = ROWS["protocl_as_published"].settings["split_mnist"]

FACTORS: dict[str, tuple[str, Mapping[str, Any]]] = {
    CORRECTED: ("–", {}),
    "a posterior for each place in a batch": ("code", {"posterior": "per_slot"}),
    DROPOUT: ("code", {"predict_with_dropout": True}),
    "prior concentration fixed, as in code": (
        "code",
        {n: PUBLISHED[n] for n in ("learn_concentration", "alpha_init")},
    ),
    MEMORY: ("code", {}),  # the number of points is the data set's
    "partial batches are left out": ("code", {"drop_partial_batches": True}),
    REPEATS: ("text", {"oversample": False}),
    JOINT: ("text", {"loss": "joint"}),
    AFTER: ("text", {"evidence_after_step": True}),
    ANEW: ("neither", {"evidence_mode": "recompute_final"}),
}
"""Choices in words, who makes them, and the settings that they change."""

LIVE = Selection(scenario=SCENARIO, rows=(ROW,), changes={"dropout": 0.2})
"""What the chapter runs unless its parameters say otherwise: with dropout on digits too, where ``protocl`` has none."""

HEAD_ROWS = ("hibnn", "hibnn_as_published")
REDUCED_HEADS = tuple(one for one in paper.REDUCED if set(one.rows) <= set(HEAD_ROWS))
HEAD_SELECTIONS = (*(paper.paper_scale(d, *HEAD_ROWS, scenario=SCENARIO) for d in MNISTS), *REDUCED_HEADS)
"""HIBNN's runs at the paper's scale, and those that stand in for them."""
HEAD_COMMAND = 'python -c "from paper_lib.experiments import release_audit as r; r.write_heads()"'
"""What chooses heads for the runs that the run store keeps, and writes how that ends."""
RULES, ENTROPIES = ("task", "point"), ("expected", "predictive")


# --- ProtoCL, one choice at a time


def selection(factor: str, live: Selection | None = None) -> Selection:
    """The runs of a factor, on Split-MNIST at the paper's scale unless a live selection says otherwise."""
    base = paper.paper_scale("split_mnist", ROW, scenario=SCENARIO, seeds=len(SEEDS)) if live is None else live
    changes = {**base.changes, **FACTORS[factor][1]}
    if factor == MEMORY:
        changes["memory_total"] = sweep.jobs(base)[0].method.memory_per_task * sweep.num_tasks(base)
        changes.pop("memory_per_task", None)
    return replace(base, changes=changes)


def selections() -> list[Selection]:
    """All runs of the chapter at the paper's scale, but those of ``CORRECTED``, which are Table 1's."""
    return [selection(factor) for factor in FACTORS if factor != CORRECTED]


def found(tables_of: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A line a factor that has runs, with a list of the ``final`` accuracies of all seeds; none without ``CORRECTED``.

    Beside it: ``by``, who makes the choice; ``mean``, ``sd``, ``triangle`` and ``triangle sd``, percent; the mean
    ``change`` against ``CORRECTED`` on the same seeds with its standard error, ``change se``; and ``colour``.
    """
    if tables_of[CORRECTED].empty:
        return pd.DataFrame()
    lines, base = {}, tables.by_seed(tables_of[CORRECTED])[ROW]
    for factor, table in tables_of.items():
        if table.empty:
            continue
        final, triangle = (tables.by_seed(table, s)[ROW] for s in ("final_accuracy", "triangle_mean"))
        by = FACTORS[factor][0]
        lines[factor] = {"by": by, "final": final.tolist(), "mean": final.mean(), "sd": final.std()}
        change = (final - base).dropna()
        lines[factor] |= {"triangle": triangle.mean(), "triangle sd": triangle.std()}
        lines[factor] |= {"change": change.mean(), "change se": change.sem()}
        lines[factor]["colour"] = COLOURS[by]
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(index="choice")


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """``found`` as the chapter shows it."""
    if frame.empty:
        return frame
    pairs = {"final accuracy ± sd": ("mean", "sd"), "triangle mean ± sd": ("triangle", "triangle sd")}
    columns = {
        name: [tables.plus_minus(m, s, 1) for m, s in zip(frame[mean], frame[sd], strict=True)]
        for name, (mean, sd) in pairs.items()
    }
    change = [
        "–" if name == CORRECTED else f"{mean:+.1f}" if se != se else f"{mean:+.1f} ± {se:.1f}"
        for name, mean, se in zip(frame.index, frame.change, frame["change se"], strict=True)
    ]
    return pd.DataFrame({"made in": frame.by, **columns, "change ± se": change}, index=frame.index)


def run(live: Selection) -> pd.DataFrame:
    """``found`` of live runs."""
    one_of("rows", ",".join(live.rows), (ROW,))
    return found({factor: sweep.run(selection(factor, live)) for factor in FACTORS})


def stored() -> pd.DataFrame:
    """``found`` of the stored runs, the seeds that all of them share."""
    parts = {factor: sweep.stored(selection(factor)) for factor in FACTORS}
    return found({factor: part[part.seed.isin(SEEDS)] for factor, part in parts.items()})


def source() -> str:
    """What recomputes the chapter's table, as it says it below."""
    return "\n".join(f"`{tables.command(one)}`" for one in selections())


def numbers() -> dict[str, float | str]:
    """What the chapter's prose cites: percent and points of stored runs."""
    frame = stored()
    changed = frame.drop(index=CORRECTED)
    worst, code = changed.change.idxmin(), changed[changed.by == "code"].change.idxmin()
    cited = {"worst": worst, "worst_change": changed.change[worst], "worst_code": code}
    cited |= {
        "num_choices": str(len(FACTORS) - 1),
        "worst_code_change": changed.change[code],
        "joint_final": frame["mean"][JOINT],
    }
    cited |= {
        f"{name}_change": changed.change[f]
        for name, f in zip(
            ("dropout", "memory", "repeats", "after", "anew"), (DROPOUT, MEMORY, REPEATS, AFTER, ANEW), strict=True
        )
    }
    cited = {name: value if isinstance(value, str) else round(float(value), 4) for name, value in cited.items()}
    return cited | head_numbers()


def head_numbers() -> dict[str, str]:
    """Final accuracies of HIBNN's runs that stand in for full ones, by how a head is chosen, and their seeds."""
    cited: dict[str, str] = {}
    table, (epochs,) = stored_heads(), {one.changes["epochs"] for one in REDUCED_HEADS}
    for dataset in MNISTS:
        own = (
            table[(table.dataset == dataset) & (table.epochs == epochs) & (table["row"] == "hibnn")]
            if len(table)
            else table
        )
        for rule, entropy, name in (*((rule, "predictive", rule) for rule in RULES), ("task", "expected", "code")):
            found = own[(own.rule == rule) & (own.entropy == entropy)].accuracy if len(own) else ()
            cited[f"head_{name}_{dataset}"] = f"{100 * found.mean():.1f} %" if len(found) else "not run yet"
        cited[f"heads_{dataset}"] = str(own.seed.nunique() if len(own) else 0)
    return cited


# --- ProtoCL, scored while it learns from the labels


def learned(live: Selection) -> tuple[ProtoCL, ProtoCLState, Stream]:
    """The first row of a selection after all tasks."""
    job = sweep.jobs(live)[0]
    stream = make_stream(**job.stream)
    state = job.method.init(stream.spec, live.seeds, live.device)
    for task in stream.train:
        state = job.method.learn(state, task.to(live.device)).state
    return job.method, state, stream


def learning_from_test(method: ProtoCL, state: ProtoCLState, groups: Sequence[Task]) -> pd.DataFrame:
    """Accuracy if the posterior takes in the labels of every test batch once it is scored, as the release does.

    Args:
        method: configuration.
        state: after the tasks of ``groups``.
        groups: test points of one task each, in the order in which they are scored.

    Returns:
        A line a seed and group: ``seed, task_tested, accuracy, accuracy_learning``, and ``share`` of the test labels in
        all that the posterior has counted at the end.
    """
    evidence, lines = state.predictive_evidence, []
    before = evidence.counts.flatten(1).sum(1)
    with torch.no_grad():
        for group in groups:
            pure = method.predict(state, group.x).argmax(-1) == group.y
            hits = []
            for x, y in zip(group.x.split(method.batch_size), group.y.split(method.batch_size), strict=True):
                leaking = state._replace(predictive_evidence=evidence)
                hits.append(method.predict(leaking, x).argmax(-1) == y)
                evidence, before = _with_labels(method, state, evidence, x, y), method.forget * before
            scores = (pure.float().mean(-1), torch.cat(hits, -1).float().mean(-1))
            for at, seed in enumerate(state.seeds):
                lines.append((seed, group.index + 1, *(float(s[at]) for s in scores)))
    table = pd.DataFrame(lines, columns=["seed", "task_tested", "accuracy", "accuracy_learning"])
    share = 1 - before / evidence.counts.flatten(1).sum(1)
    return table.assign(share=table.seed.map(dict(zip(state.seeds, share.tolist(), strict=True))))


def shown_learning(table: pd.DataFrame) -> pd.DataFrame:
    """Percent over seeds, a line a task and one of their mean, as the chapter shows it."""
    mean = 100 * table.drop(columns="seed").groupby("task_tested").mean()
    mean.index = mean.index.map("task {}".format)
    mean.loc["all tasks"] = mean.mean()
    names = {
        "accuracy": "accuracy",
        "accuracy_learning": "accuracy, labels taken in",
        "share": "share of labels counted",
    }
    return mean.rename(columns=names).rename_axis(index="tested on")


def _with_labels(
    method: ProtoCL, state: ProtoCLState, evidence: Evidence, x: torch.Tensor, y: torch.Tensor
) -> Evidence:
    """The evidence after a batch; with a posterior a place, places beyond the batch see nothing."""
    z = method.encoder(state.spec)(state.params, state.spec.scale(x))
    one_hot = F.one_hot(y, state.spec.num_units).float().expand(len(state.seeds), -1, -1)
    if evidence.counts.dim() == 3:
        missing = (0, 0, 0, method.batch_size - len(y))
        z, one_hot = F.pad(z, missing), F.pad(one_hot, missing)
    return observe(evidence, z, one_hot, method.forget)


# --- HIBNN, a head for a group or for a point


def head_selection(method: HIBNN, state: HIBNNState, groups: Sequence[Task]) -> pd.DataFrame:
    """Accuracy by how the head is chosen; the release has ``task``, ``expected`` and ``accuracy_of_draws``.

    Args:
        method: configuration.
        state: after the tasks of ``groups``, and maybe further ones.
        groups: test points of one task each.

    Returns:
        A line for each rule (one head a ``task``, or a ``point``), entropy, seed and group, with the columns ``rule,
        entropy, seed, task_tested, accuracy, accuracy_of_draws, own_head``: the last is the share of points that the
        head of their task is chosen for, and the last but one the mean accuracy of single draws.

    Raises:
        ValueError: the stream names tasks, so no head is chosen.
    """
    if state.spec.scenario == "task_incremental":
        raise ValueError("scenario='task_incremental' names the task of a point, and no head is chosen")
    lines = []
    for group in groups:
        found, labels = method.by_head(state, group.x), group.y[None, :, None]
        for rule in RULES:
            for entropy in ENTROPIES:
                score = found.uncertainty(entropy)
                if rule == "task":
                    score = score.mean(1, keepdim=True).expand_as(score)
                head = score.argmin(-1)
                hits = choose(found.log_prob, head).argmax(-1) == group.y
                votes = choose(found.votes, head).take_along_dim(labels, dim=-1).squeeze(-1)
                shares = torch.stack([hits.float(), votes, (head == group.index).float()]).mean(-1).T
                lines += [
                    (rule, entropy, seed, group.index + 1, *numbers)
                    for seed, numbers in zip(state.seeds, shares.tolist(), strict=True)
                ]
    columns = ["rule", "entropy", "seed", "task_tested", "accuracy", "accuracy_of_draws", "own_head"]
    return pd.DataFrame(lines, columns=columns)


def heads(chosen: Selection) -> pd.DataFrame:
    """``head_selection`` after the last task of those runs that the run store keeps, with their row and data set."""
    parts = []
    for job in sweep.jobs(chosen):
        stream = make_stream(**job.stream)
        for seed in chosen.seeds:
            kept = runs.kept(job, seed)
            if kept:
                last = max(kept, key=lambda name: int(name.rsplit("/", 1)[1]))
                state = job.method.restored(stream.spec, seed, torch.from_numpy(kept[last]), stream.spec.num_tasks)
                table = head_selection(job.method, state, stream.held_out)
                told = {"row": job.row, "dataset": chosen.dataset, "epochs": job.method.epochs, "key": runs.key(job)}
                parts.append(table.assign(**told))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def write_heads() -> None:
    """Write ``heads`` of ``HEAD_SELECTIONS``; what was written of runs that the run store does not keep stays."""
    found = [part for one in HEAD_SELECTIONS if not (part := heads(one)).empty]
    if not found:
        raise FileNotFoundError(f"no run of HIBNN at the paper's scale in {runs.folder()}")
    table, old = pd.concat(found), stored_heads()
    if not old.empty:
        table = pd.concat([old, table]).drop_duplicates(["key", "seed", "task_tested", "rule", "entropy"], keep="last")
    with whole_file(_heads_path()) as file:
        table.to_csv(file, sep="\t", index=False, float_format="%.6g")


def stored_heads() -> pd.DataFrame:
    """What ``write_heads`` wrote of runs whose rows are set as they are today."""
    if not _heads_path().exists():
        return pd.DataFrame()
    jobs = [job for one in HEAD_SELECTIONS for job in sweep.jobs(one)]
    current = {key for job in jobs for key, run in runs.provenance(job.table).items() if job.matches(run["identity"])}
    table = pd.read_csv(_heads_path(), sep="\t")
    return table[table.key.isin(current)]


def _heads_path() -> Path:
    return runs.RESULTS / "hibnn_heads.tsv"


def run_heads(live: Selection) -> pd.DataFrame:
    """``heads`` of live runs on the data of the chapter's selection, for its first seed."""
    chosen = replace(live, rows=HEAD_ROWS, seeds=live.seeds[:1], changes={})
    sweep.run(chosen)
    return heads(chosen)


def shown_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Percent over tasks and n seeds, a line a setting and rule: final accuracy, that of single draws, own heads."""
    if table.empty:
        return table
    words = {"task": "one a task", "point": "one a point"}
    datasets, lengths = (table[name].nunique() > 1 for name in ("dataset", "epochs"))
    seeds = table.groupby("key").seed.transform("nunique")
    names = [
        paper.label(row) + f" on {paper.LABELS[dataset]}" * datasets + f", {epochs} epochs" * lengths + f" (n = {n})"
        for row, dataset, epochs, n in zip(table["row"], table["dataset"], table["epochs"], seeds, strict=True)
    ]
    named = table.assign(row=names, head=table["rule"].map(words))
    scores = {"accuracy": "final accuracy", "accuracy_of_draws": "accuracy of single draws", "own_head": "own head"}
    mean = 100 * named.groupby(["row", "head", "entropy"], sort=False)[list(scores)].mean().rename(columns=scores)
    flat = mean.round(1).reset_index()
    flat["head"] += ", by the " + flat.pop("entropy") + " entropy"
    return flat.set_index("row")


# --- what is claimed


OF_THE_CODE = [factor for factor, (by, _) in FACTORS.items() if by in ("–", "code")]
"""What is corrected, and each of the code's choices."""


def _dropout_costs(table: pd.DataFrame) -> Judgement:
    final = {factor: tables.by_seed(tables.of(table, selection(factor)))[ROW] for factor in OF_THE_CODE}
    base = final.pop(CORRECTED)
    moved = {factor: float((mine - base).dropna().mean()) for factor, mine in final.items()}
    words = (f"{factor}: {x:+.1f}" for factor, x in sorted(moved.items(), key=lambda item: item[1]))
    return holds([f for f, x in moved.items() if x < -1] == [DROPOUT], "; ".join(words) + " points")


def _below_the_printed(table: pd.DataFrame) -> Judgement:
    (printed,) = (p.value for p in paper.printed("split_mnist") if p.row == ROW)
    parts = table.groupby("changes", observed=True)
    best = max(float(tables.by_seed(part)[ROW].mean()) for _, part in parts)
    return holds(best < printed, f"at most {best:.1f} % for the printed {printed:.2f}")


def _collapses(table: pd.DataFrame) -> Judgement:
    final = float(tables.by_seed(table)[ROW].mean())
    return holds(final < 15, f"final accuracy {final:.1f} %, chance is 10")


CLAIMS = tuple(
    Claim(
        exhibit=exhibit,
        says=says,
        chapter="release_audit",
        judge=judge,
        needs=needs,
    )
    for says, exhibit, judge, needs in (
        (
            "Of the code's choices, dropout in predictions alone costs more than a point.",
            *("Table 1", _dropout_costs, tuple(map(selection, OF_THE_CODE))),
        ),
        (
            "With none of the code's choices does the final accuracy reach the printed one.",
            *("Table 1", _below_the_printed, tuple(map(selection, OF_THE_CODE))),
        ),
        (
            "With the joint predictive as the loss no class can be told from another.",
            *("Eq. 17, App. F", _collapses, (selection(JOINT),)),
        ),
    )
)
"""What the chapter says about stored runs."""
