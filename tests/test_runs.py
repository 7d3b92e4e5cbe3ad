"""The run store: when a seed is run again, what a record must hold, and how tables merge."""

import dataclasses
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from paper_lib import driver, metrics, runs
from paper_lib.methods.replay import Replay

METHOD = Replay(hidden=(4,), epochs=2, batch_size=128, memory_per_task=5)
JOB = runs.Job("made_up", 1, "replay", METHOD, {"dataset": "split_digits"}, "paper")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv(runs.FOLDER_VARIABLE, str(tmp_path / "runs"))
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "results")
    return tmp_path


@pytest.fixture
def stacks(monkeypatch):
    """The seeds of every run that the driver is asked for."""
    asked, run = [], driver.run

    def counted(method, stream, seeds, *arguments, **options):
        asked.append(tuple(seeds))
        return run(method, stream, seeds, *arguments, **options)

    monkeypatch.setattr(driver, "run", counted)
    return asked


def records():
    return sorted(runs.folder().glob("*/*/seed*.json"))


def keys(job):
    return set(runs.execute([job], (0,)).key)


class Bumped(Replay):
    """The same configuration with numbers that have moved."""

    VERSION = Replay.VERSION + 1


Bumped.__name__ = "Replay"


def test_what_determines_numbers_changes_the_key_and_what_does_not_keeps_it():
    changed = {
        "as it is": JOB,
        "configuration": replace(JOB, method=replace(METHOD, learning_rate=2e-3)),
        "method's version": replace(JOB, method=Bumped(**dataclasses.asdict(METHOD))),
        "experiment's version": replace(JOB, version=2),
        "stream": replace(JOB, stream={"dataset": "split_digits", "scenario": "domain_incremental"}),
    }
    found = {name: keys(job) for name, job in changed.items()}
    assert all(len(k) == 1 for k in found.values())
    assert len(set.union(*found.values())) == len(changed)
    same = runs.execute([JOB], (1, 2)), runs.execute([replace(JOB, preset="quick", label="other")], (0,))
    assert all(set(table.key) == found["as it is"] for table in same)
    assert JOB.identity("one digest") != JOB.identity("another")


def test_the_data_are_part_of_the_key(monkeypatch):
    before, make = keys(JOB), runs.make_stream
    monkeypatch.setattr(runs, "make_stream", lambda **kw: replace(make(**kw), digest="of other pixels"))
    assert keys(JOB).isdisjoint(before)


def test_only_seeds_without_a_record_are_run(stacks):
    first = runs.execute([JOB], (2, 0))
    again = runs.execute([JOB], (2, 0))
    assert stacks == [(0, 2)]
    pd.testing.assert_frame_equal(first, again)
    more = runs.execute([JOB], (0, 1, 2, 3))
    assert stacks == [(0, 2), (1, 3)]
    assert sorted(more.seed.unique()) == [0, 1, 2, 3]
    pd.testing.assert_frame_equal(more[more.seed == 2].reset_index(drop=True), first[first.seed == 2], check_like=True)
    assert sorted(p.name for p in records()[0].parent.iterdir()) == [f"seed{s}.json" for s in range(4)]


def test_a_seed_has_the_same_record_whatever_runs_beside_it(folders, monkeypatch):
    together = runs.execute([JOB], (0, 1))
    monkeypatch.setenv(runs.FOLDER_VARIABLE, str(folders / "alone"))
    alone = runs.execute([JOB], (1,))
    np.testing.assert_allclose(together[together.seed == 1].value, alone.value, rtol=1e-5)


def test_a_tidy_table_holds_the_scores_of_the_triangle_with_tasks_from_one():
    table = runs.execute([JOB], (0,))
    assert list(table.columns) == runs.COLUMNS
    assert len(table) == len(driver.SCORES) * 15
    assert (table.task_tested <= table.task_trained).all() and set(table.task_trained) == {1, 2, 3, 4, 5}
    record = runs.read(records()[0])
    chosen = table[(table.metric == "nll") & (table.task_trained == 3) & (table.task_tested == 2)]
    assert chosen.value.item() == record["scores"]["nll"][2][1]
    assert record["scores"]["nll"][1][2] is None
    assert len(record["info"]["loss"]) == 5 and len(record["info"]["loss"][0]) == 2
    assert {"commit", "dirty", "device", "torch", "peak_memory_bytes", "finished"} <= set(record["provenance"])


def test_a_kill_between_two_records_loses_no_seed(monkeypatch, stacks):
    """The seeds whose record was not written yet come from the checkpoint, and it does not stay behind."""
    write = runs.write_whole

    def killed(path, text):
        if path.name == "seed1.json":
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(runs, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        runs.execute([JOB], (0, 1, 2))
    monkeypatch.setattr(runs, "write_whole", write)
    place = records()[0].parent
    assert sorted(p.name for p in place.iterdir()) == ["seed0.json", "seeds0-2.npz"]
    (place / "seeds0-2.npz.1.part").write_text("half of a checkpoint")
    (place / "seed2.json.1.part").write_text("half of a record")
    monkeypatch.setattr(Replay, "learn", None)  # all tasks are learned
    runs.execute([JOB], (0, 1, 2))
    assert stacks == [(0, 1, 2), (0, 1, 2)]
    assert sorted(p.name for p in place.iterdir()) == ["seed0.json", "seed1.json", "seed2.json"]


@pytest.mark.parametrize(
    ("seeds", "name"), [((4,), "seeds4.npz"), ((2, 0, 1, 7), "seeds0-2,7.npz"), (range(500), "seeds0-499.npz")]
)
def test_a_checkpoint_is_found_again_by_its_seeds(folders, seeds, name):
    stack, path = runs._stack(folders, seeds)
    assert stack == tuple(sorted(seeds)) == runs._seeds_of(path) and path.name == name
    path.touch()
    assert runs._stack(folders, tuple(seeds)) == (stack, path)
    other, elsewhere = runs._stack(folders, (*seeds, 1000)[1:])  # not all of its seeds are asked for, or not it alone
    assert elsewhere != path and 1000 in other


@pytest.mark.parametrize("content", [b"", b'{"seed": 0', b"\xff\xfe\x00", b"[]", b'{"seed": 0}'])
def test_a_damaged_record_is_an_error_that_says_how_to_go_on(content):
    runs.execute([JOB], (0,))
    records()[0].write_bytes(content)
    with pytest.raises(ValueError, match=r"seed0\.json is not a run record .*remove it and run again"):
        runs.execute([JOB], (0,))


def test_a_table_that_is_not_there_is_an_error_that_names_those_that_are():
    runs.RESULTS.mkdir()
    (runs.RESULTS / "protocl.csv").touch()
    with pytest.raises(FileNotFoundError, match=r"made_up\.csv is not there; stored tables: protocl"):
        runs.stored("made_up")
    with pytest.raises(FileNotFoundError, match="no record of experiment 'made_up'"):
        runs.tabulate("made_up")


def test_tabulating_drops_the_seeds_of_another_key_and_keeps_all_other_rows(folders, monkeypatch):
    runs.execute([JOB], (0, 1))
    path = runs.tabulate("made_up")
    first = runs.stored("made_up")
    assert path == runs.RESULTS / "made_up.csv" and set(first.seed) == {0, 1}
    # On another machine without the first records: seed 1 anew with another key, which must not be averaged with the
    # old seed 0, and another row.
    monkeypatch.setenv(runs.FOLDER_VARIABLE, str(folders / "elsewhere"))
    changed = replace(JOB, version=2)
    runs.execute([changed, replace(JOB, label="sgd", method=replace(METHOD, memory_per_task=0))], (1,))
    runs.tabulate("made_up")
    merged = runs.stored("made_up")
    count = len(driver.SCORES) * 15
    assert merged.groupby(["method", "seed"]).size().to_dict() == {
        ("replay", 1): count,
        ("sgd", 1): count,
    }
    (new_key,) = set(merged[(merged.method == "replay") & (merged.seed == 1)].key)
    assert new_key == runs.read(next(p for p in records() if "replay" in str(p)))["key"] != first.key.iloc[0]
    sources = json.loads((runs.RESULTS / "made_up.json").read_text())
    assert set(sources) == set(merged.key)
    # Made again with nothing new, the files are the same byte for byte.
    before = [p.read_bytes() for p in sorted(runs.RESULTS.iterdir())]
    runs.tabulate("made_up")
    assert [p.read_bytes() for p in sorted(runs.RESULTS.iterdir())] == before
    _, matrices = metrics.accuracy_matrices(merged[merged.method == "sgd"])
    record = runs.read(next(p for p in records() if "sgd" in str(p)))
    np.testing.assert_allclose(matrices[0], np.array(record["scores"]["accuracy"], float), rtol=1e-5)


def test_tabulating_adds_seeds_of_the_same_key_to_those_that_are_there(folders, monkeypatch):
    runs.execute([JOB], (0, 1))
    runs.tabulate("made_up")
    first = runs.stored("made_up")
    monkeypatch.setenv(runs.FOLDER_VARIABLE, str(folders / "elsewhere"))
    runs.execute([JOB], (2,))
    runs.tabulate("made_up")
    merged = runs.stored("made_up")
    assert set(merged.seed) == {0, 1, 2} and merged.key.nunique() == 1
    pd.testing.assert_frame_equal(merged[merged.seed < 2].reset_index(drop=True), first.reset_index(drop=True))


def test_quick_runs_stay_out_of_the_table():
    runs.execute([replace(JOB, preset="quick")], (0,))
    with pytest.raises(FileNotFoundError, match=r"no record .* quick runs left out; experiments with records: made_up"):
        runs.tabulate("made_up")
    runs.execute([replace(JOB, label="sgd", method=replace(METHOD, memory_per_task=0))], (0,))
    runs.tabulate("made_up")
    assert set(runs.stored("made_up").method) == {"sgd"}


def test_every_setting_of_a_sweep_is_tabulated(folders, monkeypatch):
    sweep = [replace(JOB, preset="paper+overrides", method=replace(METHOD, learning_rate=r)) for r in (1e-3, 1e-2)]
    runs.execute([*sweep, JOB], (0, 1))
    runs.tabulate("made_up")
    monkeypatch.setenv(runs.FOLDER_VARIABLE, str(folders / "elsewhere"))
    runs.execute(sweep[:1], (2,))
    runs.tabulate("made_up")
    table = runs.stored("made_up")
    # The first of the sweep has the key of the plain row, and so its records; it stands as a row of its own.
    count = table.groupby(["preset", "key"]).seed.nunique()
    assert sorted(count["paper+overrides"]) == [2, 3] and list(count["paper"]) == [2]


def test_a_record_made_in_a_quick_look_is_tabulated_once_the_paper_preset_asks_for_it(stacks):
    runs.execute([replace(JOB, preset="quick")], (0, 1))
    runs.execute([JOB], (0,))
    assert stacks == [(0, 1)]
    runs.tabulate("made_up")
    table = runs.stored("made_up")
    assert set(table.seed) == {0} and set(table.preset) == {"paper"}


def test_seeds_that_draw_their_own_points_make_one_row():
    for seed in (0, 1):
        runs.execute([replace(JOB, stream={**JOB.stream, "train_sizes": (50,) * 5, "train_seed": seed})], (seed,))
    runs.tabulate("made_up")
    table = runs.stored("made_up")
    assert set(table.seed) == {0, 1} and table.key.nunique() == 2


def test_the_commit_is_the_one_that_the_run_began_at(monkeypatch):
    commits = iter(["before", "after"])
    monkeypatch.setattr(runs, "_checkout", lambda: {"commit": next(commits), "dirty": False})
    runs.execute([JOB], (0,))
    (path,) = records()
    assert runs.read(path)["provenance"]["commit"] == "before"


def test_of_two_records_of_a_seed_the_later_one_is_tabulated(monkeypatch):
    for version, hour in ((2, 10), (1, 12)):
        moment = SimpleNamespace(
            gmtime=lambda: None, strftime=lambda *_, hour=hour: f"2026-01-01T{hour}:00:00Z", perf_counter=lambda: 0.0
        )
        monkeypatch.setattr(runs, "time", moment)
        runs.execute([replace(JOB, version=version)], (0,))
    runs.tabulate("made_up")
    assert set(runs.stored("made_up").key) == keys(JOB)


def test_a_kill_while_writing_leaves_the_old_file(folders, monkeypatch):
    path = folders / "table.csv"
    runs.write_whole(path, "old")
    monkeypatch.setattr(runs.os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runs.write_whole(path, "new and longer")
    assert path.read_text() == "old"
