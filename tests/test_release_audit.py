"""The audit: learning from the labels that are scored, by a loop over points, and choices one at a time."""

import re
from dataclasses import replace

import nbformat
import notebooks
import pandas as pd
import pytest
import torch

from paper_lib import runs, sweep
from paper_lib.data.stream import make_stream
from paper_lib.experiments import release_audit
from paper_lib.methods.protocl import ProtoCL
from paper_lib.sweep import Selection


@pytest.fixture(scope="module")
def stream():
    return make_stream("split_digits", "class_incremental", train_sizes=(40,) * 5)


@pytest.mark.parametrize(("posterior", "forget"), [("shared", 1.0), ("per_slot", 1.0), ("shared", 0.9)])
def test_the_posterior_has_seen_the_labels_scored_before_and_no_others(stream, posterior, forget):
    settings = {"hidden": (16,), "embedding_dim": 4, "epochs": 1, "batch_size": 16, "memory_per_task": 10}
    method = ProtoCL(**settings, posterior=posterior, forget=forget)
    state = method.init(stream.spec, (0, 5), "cpu")
    for task in stream.train[:2]:
        state = method.learn(state, task).state
    groups = stream.held_out[:2]
    table = release_audit.learning_from_test(method, state, groups).set_index(["seed", "task_tested"])

    counts, sums = (e.clone() for e in state.predictive_evidence)
    seen, scored = float(counts[0].sum()), 0.0
    for group in groups:
        hits = []
        for start in range(0, len(group.y), 16):
            x, y = group.x[start : start + 16], group.y[start : start + 16]
            now = state._replace(predictive_evidence=state.evidence._replace(counts=counts, sums=sums))
            hits.append(method.predict(now, x).argmax(-1) == y)
            z = method.encoder(stream.spec)(state.params, stream.spec.scale(x)).detach()
            counts, sums = counts * forget, sums * forget
            seen, scored = seen * forget, scored * forget + len(y)
            for i, label in enumerate(y.tolist()):
                at = (slice(None), i, label) if posterior == "per_slot" else (slice(None), label)
                counts[at] += 1
                sums[at] += z[:, i]
        accuracy = torch.cat(hits, -1).double().mean(-1)
        for at, seed in enumerate((0, 5)):
            line = table.loc[seed, group.index + 1]
            assert line.accuracy_learning == pytest.approx(float(accuracy[at]))
            assert line.accuracy == pytest.approx(
                float((method.predict(state, group.x)[at].argmax(-1) == group.y).double().mean())
            )
    assert table.share.loc[0].iloc[0] == pytest.approx(scored / (scored + seen), rel=1e-5)


def test_a_choice_changes_its_settings_alone_and_memory_is_as_large_in_all():
    live = replace(release_audit.LIVE, seeds=(0,))
    base = sweep.jobs(release_audit.selection(release_audit.CORRECTED, live))[0].method
    for factor, (_, changes) in release_audit.FACTORS.items():
        method = sweep.jobs(release_audit.selection(factor, live))[0].method
        expected = dict(changes) or ({"memory_total": 250} if factor == release_audit.MEMORY else {})
        differs = {n for n in vars(method) if getattr(method, n) != getattr(base, n)}
        assert differs == set(expected)
        assert all(getattr(method, n) == value for n, value in expected.items())


def test_choices_are_held_against_the_corrected_row_or_nothing():
    tables_of = {factor: pd.DataFrame() for factor in release_audit.FACTORS}
    runs_of = sweep.stored(release_audit.selection(release_audit.CORRECTED))
    alone = release_audit.found(tables_of | {release_audit.CORRECTED: runs_of, release_audit.MEMORY: runs_of})
    assert alone.index.tolist() == [release_audit.CORRECTED, release_audit.MEMORY] and (alone.change == 0).all()
    without = release_audit.found(tables_of | {release_audit.MEMORY: runs_of})
    assert without.empty and release_audit.shown(without).empty


def test_a_kept_posterior_predicts_as_its_run_did(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    chosen = Selection("split_digits", "class_incremental", seeds=(0, 4), rows=("hibnn",),
                       changes={"epochs": 2, "likelihood_epochs": 2})  # fmt: skip
    scores = sweep.run(chosen)
    table = release_audit.heads(chosen)
    point = table[(table.rule == "point") & (table.entropy == "predictive")].set_index(["seed", "task_tested"])
    last = scores[(scores.task_trained == 5) & (scores.metric == "accuracy")].set_index(["seed", "task_tested"])
    torch.testing.assert_close(
        torch.tensor(point.accuracy.to_numpy()), torch.tensor(last.value[point.index].to_numpy()), rtol=0, atol=1e-6
    )
    assert set(table.rule) == {"task", "point"} and set(table["row"]) == {"hibnn"}


def test_heads_are_written_beside_their_runs_and_go_with_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    short = {"epochs": 2, "likelihood_epochs": 2}
    ways = [
        Selection("split_digits", "class_incremental", "paper", seeds=(0, 4), rows=("hibnn",), changes=changes)
        for changes in (short, short | {"temperature": 0.5})
    ]
    monkeypatch.setattr(release_audit, "HEAD_SELECTIONS", ways)
    with pytest.raises(FileNotFoundError, match="no run of HIBNN"):
        release_audit.write_heads()
    for one in ways:
        sweep.run(one)
        release_audit.write_heads()
        release_audit.write_heads()  # nothing twice
        runs.tabulate()
    found = release_audit.stored_heads()
    assert len(found) == 2 * 2 * 5 * 4 and found.key.nunique() == 2
    torch.testing.assert_close(
        torch.tensor(found[found.key == found.key.iloc[0]].accuracy.to_numpy()),
        torch.tensor(release_audit.heads(ways[0]).accuracy.to_numpy()),
        rtol=0,
        atol=1e-5,
    )
    monkeypatch.setattr(release_audit, "HEAD_SELECTIONS", ways[:1])
    assert release_audit.stored_heads().key.nunique() == 1


@pytest.mark.slow
def test_the_stored_table_of_the_quick_run_is_what_it_gives(tmp_path, monkeypatch):
    """Within three points: a processor of another kind moves a seed, so nbval passes this table over."""
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    found = release_audit.run(release_audit.LIVE)
    cells = nbformat.read(notebooks.NOTEBOOKS / "release_audit.ipynb", as_version=4).cells
    (cell,) = [c for c in cells if "nbval-ignore-output" in c.metadata.get("tags", ())]
    for choice, mean in found["mean"].items():
        (line,) = [x for x in cell.outputs[0].data["text/plain"].splitlines() if x.strip().startswith(choice)]
        assert float(re.search(r"([\d.]+) ±", line)[1]) == pytest.approx(mean, abs=3), choice
