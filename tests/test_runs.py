"""The run store: when a seed is run again, what a record must hold, and how tables merge."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from paper_lib import driver, files, runs, tables
from paper_lib.methods.replay import Replay

METHOD = Replay(hidden=(4,), epochs=2, batch_size=128, memory_per_task=5)
JOB = runs.Job("replay", METHOD, {"dataset": "split_digits"}, "paper")
SGD = replace(JOB, row="sgd", method=replace(METHOD, memory_per_task=0))
TABLE = "split_digits"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path / "runs"))
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


@pytest.fixture
def outcomes(monkeypatch):
    """A driver that trains nothing: the seed's number stands in every score, changed by ``outcomes.change``."""
    given = SimpleNamespace(change=lambda outcome, seeds: outcome, asked=[])

    def run(method, stream, seeds, *arguments, **options):
        given.asked.append(tuple(seeds))
        tasks = stream.spec.num_tasks
        scores = {
            name: np.where(np.tri(tasks), np.array(seeds)[:, None, None] / 100.0, np.nan) for name in driver.SCORES
        }
        outcome = SimpleNamespace(
            scores=scores,
            info={},
            kept=[{}] * tasks,
            seconds=np.ones(tasks),
            elapsed=1.0 * tasks,
            diverged=np.full(len(seeds), -1),
        )
        return given.change(outcome, seeds) or outcome

    monkeypatch.setattr(driver, "run", run)
    return given


def records():
    return sorted(runs.folder().glob("*/*/seed*.json"))


def keys(job):
    return set(runs.execute([job], (0,)).key)


# --- identities


class Bumped(Replay):
    """The same configuration with numbers that have moved."""

    VERSION = Replay.VERSION + 1


@dataclass(frozen=True)
class Grown(Replay):
    """The method with a setting that it did not have before."""

    momentum: float = 0.0


Bumped.__name__ = Grown.__name__ = "Replay"


def test_what_determines_numbers_changes_the_key_and_what_does_not_keeps_it(outcomes):
    changed = {
        "as it is": JOB,
        "configuration": replace(JOB, method=replace(METHOD, learning_rate=2e-3)),
        "method's version": replace(JOB, method=Bumped(**dataclasses.asdict(METHOD))),
        "stream": replace(JOB, stream={"dataset": "split_digits", "scenario": "domain_incremental"}),
    }
    found = {name: keys(job) for name, job in changed.items()}
    assert all(len(k) == 1 for k in found.values())
    assert len(set.union(*found.values())) == len(changed)
    named = replace(JOB, stream={"dataset": "split_digits", "scenario": "class_incremental", "num_tasks": None})
    same = (JOB, replace(JOB, preset="quick", row="other", changes="epochs=2"), named)
    assert [set(runs.execute([job], (seed,)).key) for seed, job in enumerate(same)] == [found["as it is"]] * 3
    assert JOB.identity("one digest") != JOB.identity("another")


def configured(**settings):
    """A method of the given settings, each at its default."""
    fields = [(name, type(value), dataclasses.field(default=value)) for name, value in settings.items()]
    return dataclasses.make_dataclass("M", fields, frozen=True, namespace={"VERSION": 1})


@pytest.mark.parametrize(
    ("then", "now", "alike"),
    [
        ({"rate": 1.0}, {"rate": 1.0, "width": (3, 4)}, True),  # a new setting with a default
        ({"rate": 1.0}, {"rate": 2.0}, False),  # a changed default
        ({"rate": 1.0, "width": 3}, {"rate": 1.0}, False),  # a setting that is gone
        ({"rate": 1.0}, {"other": 1.0}, False),
    ],
)
def test_a_stored_identity_is_compared_with_the_method_as_it_is_defined_today(then, now, alike):
    stored = json.loads(json.dumps(replace(JOB, method=configured(**then)()).identity("data")))
    assert replace(JOB, method=configured(**now)()).matches(stored) == alike
    if alike:  # only at the new setting's default
        assert not replace(JOB, method=configured(**now)(width=(5,))).matches(stored)


def test_a_new_setting_with_a_default_orphans_no_record_and_no_table(stacks, folders, monkeypatch):
    before = runs.execute([JOB], (0,))
    runs.tabulate(TABLE)
    grown = replace(JOB, method=Grown(**dataclasses.asdict(METHOD)))
    pd.testing.assert_frame_equal(runs.execute([grown], (0,)), before)
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))  # where the committed table alone is known
    assert set(runs.execute([grown], (1,)).key) == set(before.key)
    assert stacks == [(0,), (1,)]
    assert set(runs.find(grown).seed) == {0}
    moved = replace(JOB, method=Grown(**dataclasses.asdict(METHOD), momentum=0.9))
    assert runs.find(moved).empty and keys(moved).isdisjoint(before.key)


def test_the_data_are_part_of_the_key(monkeypatch, outcomes):
    before, make = keys(JOB), runs.make_stream
    monkeypatch.setattr(runs, "make_stream", lambda **kw: replace(make(**kw), digest="of other pixels"))
    assert keys(JOB).isdisjoint(before)


def test_stored_runs_of_one_row_on_unlike_data_are_an_error(monkeypatch, outcomes):
    make = runs.make_stream
    runs.execute([JOB], (0,))
    monkeypatch.setattr(runs, "make_stream", lambda **kw: replace(make(**kw), digest="of other pixels"))
    runs.execute([replace(JOB, changes="epochs=2")], (1,))
    runs.tabulate(TABLE)
    with pytest.raises(ValueError, match=r"stored runs of 'replay' are on unlike data: keys \w+, \w+"):
        runs.find(JOB)


# --- running


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
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "alone"))
    alone = runs.execute([JOB], (1,))
    np.testing.assert_allclose(together[together.seed == 1].value, alone.value, rtol=1e-5)


def test_a_tidy_table_holds_the_scores_of_the_triangle_with_tasks_from_one():
    table = runs.execute([JOB], (0,))
    assert list(table.columns) == runs.COLUMNS
    assert len(table) == len(driver.SCORES) * 15
    names = table[runs.NAMES].drop_duplicates()
    assert names.values.tolist() == [["replay", "split_digits", "class_incremental", "test", "paper", ""]]
    assert (table.task_tested <= table.task_trained).all() and set(table.task_trained) == {1, 2, 3, 4, 5}
    record = runs.read(records()[0])
    chosen = table[(table.metric == "nll") & (table.task_trained == 3) & (table.task_tested == 2)]
    assert chosen.value.item() == record["scores"]["nll"][2][1]
    assert record["scores"]["nll"][1][2] is None and record["diverged"] is None
    assert len(record["info"]["loss"]) == 5 and len(record["info"]["loss"][0]) == 2
    assert {"commit", "dirty", "device", "torch", "peak_memory_bytes", "finished", "code"} <= set(record["provenance"])


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
    (place / "seeds0-2.npz.999999999.part").write_text("half of a checkpoint")
    (place / "seed2.json.999999999.part").write_text("half of a record")
    monkeypatch.setattr(Replay, "learn", None)  # all tasks are learned
    runs.execute([JOB], (0, 1, 2))
    assert stacks == [(0, 1, 2), (0, 1, 2)]
    assert sorted(p.name for p in place.iterdir()) == ["seed0.json", "seed1.json", "seed2.json"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux alone tells which processes run")
def test_what_another_process_is_writing_is_left_to_it(folders):
    for name in ("seed0.json", f"seed0.json.{os.getppid()}.part", "seeds0.npz", f"seeds0.npz.{os.getppid()}.part"):
        (folders / name).touch()
    (folders / "seed0.npz.999999999.part").touch()
    mine = {"seeds_before.npz", "seeds0 (copy).npz", "seeds-old.npz.bak"}
    for name in mine:  # files of a user, named like checkpoints
        (folders / name).touch()
    runs._clear(folders, (0,))
    left = {"seed0.json", f"seed0.json.{os.getppid()}.part", f"seeds0.npz.{os.getppid()}.part"}
    assert {p.name for p in folders.iterdir()} == left | mine


@pytest.mark.parametrize(
    ("there", "records", "asked", "expected"),
    [
        ([(4,)], (), (4,), [(4,)]),
        ([(0, 1, 2, 7)], (), (2, 0, 1, 7), [(0, 1, 2, 7)]),
        ([range(500)], (), range(500), [range(500)]),
        ([range(5), range(5, 10)], (), range(10), [range(5), range(5, 10)]),  # two machines' halves
        ([(0, 1)], (), (0, 1, 2), [(0, 1), (2,)]),  # killed, and asked for one more
        ([(0, 1)], (0,), (0, 1, 2), [(0, 1), (2,)]),  # killed between two records
        ([(0, 1)], (0, 1), (0, 1, 2), [(2,)]),  # a checkpoint that was not cleared
        ([range(10)], (), (0, 1), [(0, 1)]),  # nobody asks for the others
        ([range(3), range(2, 5)], (), range(5), [range(3), (3, 4)]),  # no seed twice
        ([], (1,), (0, 1, 2), [(0, 2)]),
    ],
)
def test_seeds_go_on_from_the_checkpoints_that_hold_them(folders, there, records, asked, expected):
    for stack in there:
        (folders / f"seeds{runs.spans(stack)}.npz").touch()
    for seed in records:
        (folders / f"seed{seed}.json").touch()
    found = runs._stacks(folders, tuple(asked))
    assert sorted(stack for stack, _ in found) == sorted(map(tuple, expected))
    known = {tuple(stack) for stack in there}
    for stack, path in found:
        assert runs._seeds_of(path) == stack and path.parent == folders
        assert path.exists() == (stack in known)


@pytest.mark.parametrize("asked", [(0, 1, 2), (2, 1, 0)])
def test_a_killed_stack_goes_on_where_a_further_seed_is_asked_for_and_says_so(asked, monkeypatch, stacks, capsys):
    alone = runs.execute([JOB], (0, 1))
    for path in records():
        path.unlink()
    learn, calls = Replay.learn, []

    def killed(self, state, task, *report):
        if task.index == 3:
            raise KeyboardInterrupt
        return learn(self, state, task, *report)

    monkeypatch.setattr(Replay, "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        runs.execute([JOB], (0, 1))

    def counted(self, state, task, *report):
        calls.append((state.seeds, task.index))
        return learn(self, state, task, *report)

    monkeypatch.setattr(Replay, "learn", counted)
    capsys.readouterr()
    table = runs.execute([JOB], asked)
    assert calls == [((0, 1), 3), ((0, 1), 4), *(((2,), t) for t in range(5))]
    assert "seeds 0-1 go on from their checkpoint" in capsys.readouterr().err
    for seed in (0, 1):
        np.testing.assert_array_equal(table[table.seed == seed].value, alone[alone.seed == seed].value)
    assert {p.name for p in records()[0].parent.iterdir()} == {"seed0.json", "seed1.json", "seed2.json"}


def test_what_no_number_can_say_is_stored_and_read_back(outcomes, capsys):
    """An infinite NLL is infinite, and seeds that diverged end neither their stack nor the next job."""

    def change(outcome, seeds):
        outcome.scores["nll"][0, 1, 0] = np.inf
        outcome.diverged[1] = 2
        for values in outcome.scores.values():
            values[1, 2:] = np.nan

    outcomes.change = change
    table = runs.execute([JOB, SGD], (3, 4, 5))
    assert outcomes.asked == [(3, 4, 5)] * 2
    err = capsys.readouterr().err
    assert "replay on split_digits: seeds 4 diverged; they are stored as such" in err and "sgd on" in err
    assert [runs.read(p)["diverged"] for p in records()] == [None, 3, None] * 2
    runs.tabulate(TABLE)
    for found in (table, runs.stored(TABLE), runs.find(JOB)):
        mine = found[(found.row == "replay") & (found.metric == "nll")].set_index(
            ["seed", "task_trained", "task_tested"]
        )
        assert mine.value[3, 2, 1] == np.inf and mine.value[3, 1, 1] == 0.03
        assert mine.value[4][3:].isna().sum() == mine.value.isna().sum() == 12
    line = tables.summary(runs.stored(TABLE)).set_index("row").loc["replay"]
    assert (line.n, line.diverged, line.final_accuracy) == (2, 1, pytest.approx(4.0))


def test_kept_arrays_outlive_the_run_and_are_there_before_the_record(outcomes, monkeypatch):
    def change(outcome, seeds):
        outcome.kept = [{"draws": np.outer(seeds, [1.0, 2.0])}, {}, {}, {}, {"trace": np.array(seeds)}]

    outcomes.change = change
    assert runs.kept(JOB, 7) == {}
    written, write = [], runs.write_whole

    def noted(path, text):
        written.append((path.name, path.with_suffix(".npz").exists()))
        if path.name == "seed8.json":
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(runs, "write_whole", noted)
    with pytest.raises(KeyboardInterrupt):
        runs.execute([JOB], (7, 8))
    assert written == [("seed7.json", True), ("seed8.json", True)]
    found = runs.kept(JOB, 7)
    assert set(found) == {"draws/0", "trace/4"}
    np.testing.assert_array_equal(found["draws/0"], [7.0, 14.0])
    assert runs.read(records()[0])["kept"] == ["draws/0", "trace/4"]
    assert runs.kept(JOB, 8) == {}  # without its record it is not committed


@pytest.mark.parametrize("content", [b"", b'{"seed": 0', b"\xff\xfe\x00", b"[]", b'{"seed": 0}'])
def test_a_damaged_record_is_an_error_that_says_how_to_go_on(content, outcomes):
    runs.execute([JOB], (0,))
    records()[0].write_bytes(content)
    with pytest.raises(ValueError, match=r"seed0\.json is not a run record .*remove it and run again"):
        runs.execute([JOB], (0,))


# --- tables


def test_a_table_that_is_not_there_is_empty_and_nothing_to_tabulate_is_an_error_that_names_what_is(outcomes):
    assert runs.stored(TABLE).empty and runs.find(JOB).empty and runs.table_names() == []
    with pytest.raises(FileNotFoundError, match=r"no record to tabulate in .*; data sets with records: none"):
        runs.tabulate()
    runs.execute([JOB], (0,))
    message = r"no record to tabulate of 'split_mnist' in .*; data sets with records: split_digits"
    with pytest.raises(FileNotFoundError, match=message):
        runs.tabulate("split_mnist")


def test_tabulating_drops_the_seeds_of_another_key_and_keeps_all_other_rows(folders, monkeypatch):
    runs.execute([JOB], (0, 1))
    paths = runs.tabulate(TABLE)
    first = runs.stored(TABLE)
    assert paths == [runs.RESULTS / "split_digits.csv"] and set(first.seed) == {0, 1}
    # On another machine without the first records: seed 1 anew with another key, which must not be averaged with the
    # old seed 0, and another row.
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    changed = replace(JOB, method=Bumped(**dataclasses.asdict(METHOD)))
    runs.execute([changed, SGD], (1,))
    runs.tabulate(TABLE)
    merged = runs.stored(TABLE)
    count = len(driver.SCORES) * 15
    assert merged.groupby(["row", "seed"]).size().to_dict() == {("replay", 1): count, ("sgd", 1): count}
    by_row = {runs.read(p)["names"][0][0]: runs.read(p) for p in records()}
    (new_key,) = set(merged[(merged.row == "replay") & (merged.seed == 1)].key)
    assert new_key == by_row["replay"]["key"] != first.key.iloc[0]
    sources = json.loads((runs.RESULTS / "split_digits.json").read_text())
    assert set(sources) == set(merged.key)
    # Made again with nothing new, the files are the same byte for byte.
    before = [p.read_bytes() for p in sorted(runs.RESULTS.iterdir())]
    runs.tabulate(TABLE)
    assert [p.read_bytes() for p in sorted(runs.RESULTS.iterdir())] == before
    _, matrices = tables.matrices_of(merged[merged.row == "sgd"])
    np.testing.assert_allclose(matrices[0], np.array(by_row["sgd"]["scores"]["accuracy"], float), rtol=1e-5)


def test_seeds_that_no_file_name_can_hold_are_refused_before_a_run(folders):
    with pytest.raises(ValueError, match=r"seeds=0,2,4.*give ranges, or fewer at a time"):
        runs.execute([JOB], range(0, 400, 2))


def test_older_records_of_another_machine_replace_nothing_newer(folders, monkeypatch):
    runs.execute([JOB], (0, 1))
    for path in records():  # as if made the day before
        record = runs.read(path)
        record["provenance"]["finished"] = "2020-01-01T00:00:00Z"
        path.write_text(json.dumps(record))
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    runs.execute([replace(JOB, method=Bumped(**dataclasses.asdict(METHOD)))], (1,))
    runs.tabulate(TABLE)
    newer = runs.stored(TABLE)
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "runs"))
    runs.tabulate(TABLE)
    pd.testing.assert_frame_equal(runs.stored(TABLE), newer)


def test_a_kill_between_table_and_provenance_leaves_every_key_its_source(folders, monkeypatch):
    runs.execute([JOB], (0,))
    runs.tabulate(TABLE)
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    runs.execute([replace(JOB, method=Bumped(**dataclasses.asdict(METHOD))), SGD], (0,))
    write = runs.write_whole
    for last in (1, 2):
        written = []

        def until(path, text, last=last, written=written):
            if len(written) == last:
                raise KeyboardInterrupt
            written.append(path)
            write(path, text)

        monkeypatch.setattr(runs, "write_whole", until)
        with pytest.raises(KeyboardInterrupt):
            runs.tabulate(TABLE)
        assert set(runs.stored(TABLE).key) <= set(runs.provenance(TABLE))


def test_tabulating_adds_seeds_of_the_same_key_to_those_that_are_there(folders, monkeypatch, outcomes):
    runs.execute([JOB], (0, 1))
    runs.tabulate(TABLE)
    first = runs.stored(TABLE)
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    runs.execute([JOB], (2,))
    runs.tabulate(TABLE)
    merged = runs.stored(TABLE)
    assert set(merged.seed) == {0, 1, 2} and merged.key.nunique() == 1
    old = merged[merged.seed < 2].sort_values(list(first.columns[:-1]), ignore_index=True)
    pd.testing.assert_frame_equal(old, first.sort_values(list(first.columns[:-1]), ignore_index=True))
    assert [r["seeds"] for r in runs.provenance(TABLE)[merged.key[0]]["runs"]] == [[0, 1], [2]]


def test_seeds_from_before_a_method_had_a_setting_stay_beside_those_since(folders, monkeypatch, outcomes):
    runs.execute([JOB], (0, 1))
    runs.tabulate(TABLE)
    path = runs.RESULTS / f"{TABLE}.json"
    sources = json.loads(path.read_text())
    for source in sources.values():
        del source["identity"]["method"][2]["precision"]
    old = dict.fromkeys(sources, "0123456789abcdef")
    path.write_text(json.dumps({old[key]: source for key, source in sources.items()}))
    table = runs.RESULTS / f"{TABLE}.csv"
    for key, other in old.items():
        table.write_text(table.read_text().replace(key, other))
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    runs.execute([JOB], (2,))
    runs.tabulate(TABLE)
    merged = runs.stored(TABLE)
    assert set(merged.seed) == {0, 1, 2} and merged.key.nunique() == 2
    assert set(runs.find(JOB).seed) == {0, 1, 2}
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "third"))
    runs.execute([replace(JOB, method=replace(METHOD, precision="float32"))], (3,))
    runs.tabulate(TABLE)
    assert set(runs.stored(TABLE).seed) == {3}


def test_quick_runs_stay_out_of_the_table(outcomes):
    runs.execute([replace(JOB, preset="quick")], (0,))
    message = r"no record to tabulate of 'split_digits' .* quick runs left out; data sets with records: split_digits"
    with pytest.raises(FileNotFoundError, match=message):
        runs.tabulate(TABLE)
    runs.execute([SGD], (0,))
    runs.tabulate(TABLE)
    assert set(runs.stored(TABLE).row) == {"sgd"}


def test_every_setting_of_a_sweep_on_validation_data_is_tabulated(folders, monkeypatch, outcomes):
    stream = {"dataset": "split_digits", "eval_split": "validation", "validation_fraction": 0.1}
    sweep = [
        replace(JOB, stream=stream, changes=f"learning_rate={r}", method=replace(METHOD, learning_rate=r))
        for r in (1e-3, 1e-2)
    ]
    plain = replace(JOB, stream=stream)
    runs.execute([*sweep, plain, JOB], (0, 1))
    assert [p.stem for p in runs.tabulate()] == ["split_digits", "split_digits-validation"]
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    runs.execute(sweep[:1], (2,))
    runs.tabulate("split_digits-validation")
    assert set(runs.stored(TABLE).split) == {"test"}
    table = runs.stored("split_digits-validation")
    assert set(table.split) == {"validation"}
    # The first of the sweep has the key of the plain row, and so its records; it stands as a row of its own.
    count = table.groupby("changes").seed.nunique()
    assert count.to_dict() == {"": 2, "learning_rate=0.001": 3, "learning_rate=0.01": 2}
    assert table.key.nunique() == 2
    assert set(runs.find(plain).seed) == {0, 1, 2}  # whatever they were called
    assert set(runs.find(sweep[1]).changes) == {"learning_rate=0.01"}


def test_a_record_made_in_a_quick_look_is_tabulated_once_the_paper_preset_asks_for_it(stacks):
    runs.execute([replace(JOB, preset="quick")], (0, 1))
    runs.execute([JOB], (0,))
    assert stacks == [(0, 1)]
    runs.tabulate(TABLE)
    table = runs.stored(TABLE)
    assert set(table.seed) == {0} and set(table.preset) == {"paper"}


def test_a_row_shares_its_records_with_every_row_of_the_same_settings(outcomes):
    """The chapter that shows a row is no part of its key."""
    runs.execute([JOB], (0,))
    table = runs.execute([replace(JOB, row="replay_elsewhere")], (0,))
    assert outcomes.asked == [(0,)] and set(table.row) == {"replay_elsewhere"}
    runs.tabulate(TABLE)
    assert set(runs.stored(TABLE).row) == {"replay", "replay_elsewhere"} and len(records()) == 1


def test_seeds_that_draw_their_own_points_make_one_row(outcomes):
    own, changes = {**JOB.stream, "train_sizes": (50,) * 5}, runs.written({"train_sizes": (50,) * 5})
    jobs = [replace(JOB, stream=own | {"train_seed": seed}, changes=changes) for seed in (0, 1)]
    for seed, job in enumerate(jobs):
        runs.execute([job], (seed,))
    runs.tabulate(TABLE)
    table = runs.stored(TABLE)
    assert set(table.seed) == {0, 1} and table.key.nunique() == 2
    assert [set(runs.find(job).seed) for job in jobs] == [{0}, {1}]
    line = tables.summary(table)
    assert line.n.tolist() == [2] and line.final_accuracy.item() == pytest.approx(0.5)


def test_of_two_records_of_a_seed_the_later_one_is_tabulated(monkeypatch, outcomes):
    for method, hour in ((Bumped(**dataclasses.asdict(METHOD)), 10), (METHOD, 12)):
        moment = SimpleNamespace(
            gmtime=lambda: None, strftime=lambda *_, hour=hour: f"2026-01-01T{hour}:00:00Z", perf_counter=lambda: 0.0
        )
        monkeypatch.setattr(runs, "time", moment)
        runs.execute([replace(JOB, method=method)], (0,))
    runs.tabulate(TABLE)
    assert set(runs.stored(TABLE).key) == keys(JOB)


def test_seeds_that_leave_a_table_are_told(folders, monkeypatch, outcomes, capsys):
    runs.execute([JOB, SGD], (0, 1, 2))
    runs.tabulate(TABLE)
    assert "leave the table" not in capsys.readouterr().err
    monkeypatch.setenv("PAPER_LIB_RUNS", str(folders / "elsewhere"))
    runs.execute([replace(JOB, method=Bumped(**dataclasses.asdict(METHOD)))], (1,))
    runs.tabulate(TABLE)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "leave the table" in line)
    assert line.startswith("replay on split_digits: committed seeds 0,2 leave the table")


def test_a_record_made_again_keeps_the_names_that_other_rows_gave_it(folders, monkeypatch, outcomes):
    """A killed stack computes again what a row of the same settings has recorded since."""
    runs.execute([replace(JOB, row="replay_elsewhere")], (0,))
    runs.execute([JOB], (0,))
    record = runs.read(records()[0])
    outcome = SimpleNamespace(scores={}, info={}, kept=[], diverged=np.array([-1]), seconds=np.zeros(5))
    runs._store(JOB, record["identity"], records()[0].parent, 0, 0, outcome, record["provenance"])
    assert [name[0] for name in runs.read(records()[0])["names"]] == ["replay_elsewhere", "replay"]


def test_a_damaged_record_stops_nothing_that_does_not_need_it(outcomes):
    runs.execute([JOB], (0,))
    (damaged,) = records()
    damaged.write_text("{")
    other = replace(JOB, method=replace(METHOD, epochs=3))
    assert set(runs.execute([other], (0,)).seed) == {0}
    elsewhere = runs.folder() / "split_mnist" / "Replay-0000000000000000" / "seed0.json"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("{")
    assert [place["method"][2]["epochs"] for place, _ in runs.identities("split_digits")] == [3]
    damaged.unlink()
    runs.tabulate(TABLE)
    with pytest.raises(ValueError, match="is not a run record"):
        runs.tabulate()


def test_a_store_that_can_only_be_read_serves_another_row_of_the_same_settings(outcomes, monkeypatch, capsys):
    runs.execute([JOB], (0, 1))

    def refused(path, text):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(runs, "write_whole", refused)
    table = runs.execute([replace(JOB, row="replay_elsewhere")], (0, 1))
    assert set(table["row"]) == {"replay_elsewhere"} and set(table.seed) == {0, 1} and outcomes.asked == [(0, 1)]
    assert "Permission denied" in capsys.readouterr().err


def test_a_store_that_cannot_be_written_is_told_before_anything_is_trained(outcomes, monkeypatch):
    monkeypatch.setattr(runs.os, "access", lambda place, mode: False)
    with pytest.raises(PermissionError, match="cannot be written"):
        runs.execute([JOB], (0, 1))
    assert outcomes.asked == []


def test_a_checkpoint_that_a_kill_left_beside_whole_records_is_cleared_by_the_next_call(outcomes):
    runs.execute([JOB], (0, 1))
    left = [records()[0].with_name(name) for name in ("seeds0-1.npz", "seeds0-1.npz.task0", "seeds0-5.npz")]
    for path in left:
        path.write_bytes(b"")
    runs.execute([JOB], (0, 1))
    assert [path.exists() for path in left] == [False, False, True] and outcomes.asked == [(0, 1)]


def test_a_damaged_record_is_told_before_the_seeds_beside_it_are_trained(outcomes):
    runs.execute([JOB], (0, 1))
    records()[1].write_text(records()[1].read_text()[:50])
    with pytest.raises(ValueError, match=r"seed1\.json"):
        runs.execute([JOB], (0, 1, 2, 3))
    assert outcomes.asked == [(0, 1)]


def test_a_damaged_table_is_an_error_that_names_the_file(outcomes):
    runs.execute([JOB], (0,))
    path = runs.tabulate(TABLE)[0]
    whole, sources = path.read_text(), path.with_suffix(".json").read_text()
    path.write_text("<<<<<<< HEAD\n" + whole)
    with pytest.raises(ValueError, match=r"split_digits\.csv is damaged"):
        runs.stored(TABLE)
    path.write_text(whole.replace("\n", "\n=======\n", 2))
    with pytest.raises(ValueError, match=r"split_digits\.csv is damaged"):
        runs.find(JOB)
    path.write_text(whole)
    path.with_suffix(".json").write_text("<<<<<<< HEAD\n" + sources)
    with pytest.raises(ValueError, match=r"split_digits\.json is damaged"):
        runs.tabulate(TABLE)
    path.with_suffix(".json").unlink()
    with pytest.raises(ValueError, match=r"split_digits\.json lacks [0-9a-f]{16} of the table"):
        runs.find(JOB)


def test_the_choice_of_validation_points_is_part_of_a_runs_name(outcomes):
    stream = {**JOB.stream, "eval_split": "validation", "validation_fraction": 0.2}
    assert runs.written({"validation_seed": 5, "train_seed": 3}) == "validation_seed=5"
    other = replace(JOB, stream=stream | {"validation_seed": 5}, changes="validation_seed=5")
    runs.execute([replace(JOB, stream=stream), other], (0,))
    runs.tabulate()
    table = runs.stored(f"{TABLE}-validation")
    assert set(table.changes) == {"", "validation_seed=5"} and table.key.nunique() == 2


# --- provenance, files


def test_the_commit_is_the_one_that_the_run_began_at(monkeypatch, outcomes):
    commits = iter(["before", "after"])
    monkeypatch.setattr(runs, "_checkout", lambda: {"commit": next(commits), "dirty": False})
    runs.execute([JOB], (0,))
    (path,) = records()
    assert runs.read(path)["provenance"]["commit"] == "before"


def test_processors_that_round_differently_are_told_apart(monkeypatch, outcomes):
    monkeypatch.setattr(runs.torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(runs.networks, "bfloat16_instructions", lambda: ("AVX512-BF16", "AMX"))
    runs.execute([JOB], (0,))
    assert runs.read(records()[0])["provenance"]["cpu"] == "AVX512, AVX512-BF16, AMX"


def test_a_commit_that_was_only_named_is_not_called_clean(monkeypatch):
    runs._checkout.cache_clear()
    monkeypatch.setenv(runs.COMMIT_VARIABLE, "abc")
    assert runs._checkout() == {"commit": "abc", "dirty": None}
    runs._checkout.cache_clear()
    monkeypatch.delenv(runs.COMMIT_VARIABLE)
    assert runs._checkout()["dirty"] in (True, False, None)
    runs._checkout.cache_clear()


def test_records_of_other_code_are_named_when_they_are_used_again(monkeypatch, outcomes, capsys):
    runs.execute([JOB], (0, 1))
    runs.execute([JOB], (0, 1))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(runs, "_code_digest", lambda method: "edited")
    runs.execute([JOB], (0, 1, 2))
    err = capsys.readouterr().err
    assert "replay.py has changed since the records of seeds 0-1 were made" in err and "raise Replay.VERSION" in err
    assert err.count("\n") == 1


def test_the_peak_of_memory_is_that_of_the_run():
    """The process held more before than while it ran; Linux alone tells."""
    if runs._peak_memory() is None:
        pytest.skip("no system tells the peak here")
    large = bytearray(400_000_000)
    before = runs._peak_memory()
    del large
    runs._reset_peak_memory("cpu")
    assert runs._peak_memory() < before - 200_000_000


def test_a_kill_while_writing_leaves_the_old_file(folders, monkeypatch):
    path = folders / "table.csv"
    runs.write_whole(path, "old")
    monkeypatch.setattr(files.os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runs.write_whole(path, "new and longer")
    assert path.read_text() == "old"


def full(_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_clear_line_and_leaves_nothing_half_written(folders, monkeypatch, outcomes):
    path = folders / "table.csv"
    runs.write_whole(path, "old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=rf"the disk is full: {path} was not written$") as error:
        runs.write_whole(path, "new and longer")
    assert error.value.errno == errno.ENOSPC and path.read_text() == "old"
    with pytest.raises(OSError, match=r"the disk is full: .*seed0\.json was not written"):
        runs.execute([JOB], (0,))
    assert list(folders.rglob("*.part")) == []


def test_a_full_disk_is_told_of_a_checkpoint_too(folders, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"the disk is full: .*seeds0\.npz was not written; PAPER_LIB_RUNS"):
        runs.execute([JOB], (0,))
    assert list(folders.rglob("*.part")) == []


def test_the_folder_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("PAPER_LIB_RUNS", "~/x")
    assert runs.folder() == Path("/somewhere/x")
    monkeypatch.setenv("PAPER_LIB_RUNS", "")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert runs.folder().name == "runs"


WRITER = """
from tests.test_runs import JOB, SGD
from paper_lib import runs
runs.execute([JOB, SGD], (0, 1, 2), checkpoint_seconds=0)
"""


def test_two_writers_of_the_same_seeds_end_with_the_records_of_one(folders, monkeypatch):
    alone = runs.execute([JOB, SGD], (0, 1, 2))
    shared = folders / "shared"
    monkeypatch.setenv("PAPER_LIB_RUNS", str(shared))
    command = [sys.executable, "-c", WRITER]
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    writers = [subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        _, err = writer.communicate()
        assert writer.returncode == 0, err.decode()
    table = runs.execute([JOB, SGD], (0, 1, 2))
    np.testing.assert_allclose(table.value, alone.value, rtol=1e-5)
    assert {p.suffix for p in shared.rglob("*") if p.is_file()} == {".json"}
