"""Plans hold what the book shows, their commands say it, and a sweep runs what is not done and nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from paper_lib import cli, plan, runs, sweep
from paper_lib.methods.replay import Replay
from paper_lib.notebook import selection_from
from paper_lib.rows import ROWS, Style
from paper_lib.sweep import Selection

ROOT = Path(__file__).resolve().parent.parent
PLANS = sorted(path.stem for path in plan.PLANS.glob("*.py"))
each_plan = pytest.mark.parametrize("name", PLANS)
slow_sweep = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("snakemake") is None, reason="no Snakemake: the extra sweep"),
]

TINY = """
from paper_lib.sweep import Selection
SELECTIONS = [
    Selection("split_digits", "class_incremental", "paper", seeds=(0, 1), rows=(row,), changes={{"epochs": {epochs}}})
    for row in ("sgd", "protocl")
]
SEEDS_A_PIECE = {{"split_digits": 1}}
"""
TINY_JOBS = [f"seeds={seed}:{seed + 1} rows={row}" for row in ("sgd", "protocl") for seed in (0, 1)]


def read_back(piece):
    """The piece that a command makes, as the command line reads it."""
    words = piece.command.split()
    assert words[:2] == ["paper-lib", "run"]
    chapter = words[2] if "=" not in words[2] else ""
    live = importlib.import_module(f"paper_lib.experiments.{chapter}").LIVE if chapter else Selection()
    values = cli._assignments(words[3:] if chapter else words[2:])
    return plan.Piece(selection_from(live, values), chapter)


@each_plan
def test_every_command_of_a_plan_runs_what_the_plan_says(name):
    pieces = plan.load(name).pieces()
    assert [read_back(piece).key for piece in pieces] == [piece.key for piece in pieces]
    assert len({piece.name for piece in pieces}) == len(pieces)


@each_plan
def test_a_plan_has_every_row(name):
    assert {job.row for piece in plan.load(name).wholes() for job, _ in piece.jobs} == set(ROWS)


def test_the_quick_plan_has_what_every_chapter_runs_and_nothing_twice():
    jobs = [(job, seed) for piece in plan.load("quick").wholes() for job, seeds in piece.jobs for seed in seeds]
    planned = {(*job.named.values(), runs.key_of(job.identity("")), seed) for job, seed in jobs}
    assert len(planned) == len(jobs)
    for chapter, one in plan.live().items():
        for job, seeds in plan.Piece(one, "task_imbalance" if chapter == "task_imbalance" else "").jobs:
            wanted = {(*job.named.values(), runs.key_of(job.identity("")), seed) for seed in seeds}
            assert wanted <= planned, chapter


def test_the_papers_plan_has_every_stored_run():
    planned = {
        (*job.named.values(), seed)
        for piece in plan.load("paper").wholes()
        for job, seeds in piece.jobs
        for seed in seeds
    }
    for name in runs.table_names():
        stored = runs.stored(name)[[*runs.NAMES, "seed"]].drop_duplicates()
        assert {tuple(line) for line in stored.itertuples(index=False)} <= planned, name


def test_no_piece_of_known_length_takes_more_than_an_hour_or_is_a_single_seed_of_one_row():
    """Such a seed cannot be dealt out further; it goes on where it was killed, and takes two hours at most.

    Two took three hours, 80 epochs of CIFAR-10 and nine tenths of CIFAR-100 on a busy core without AMX: a job of the
    cluster's profile has time for them with its retries.
    """
    retries = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text(encoding="utf-8"))["retries"]
    minutes = int(re.search(r"runtime=(\d+)", (ROOT / "Snakefile").read_text(encoding="utf-8"))[1])
    known = [(piece.seconds(), piece.jobs) for piece in plan.load("paper").pieces()]
    known = [(seconds, jobs) for seconds, jobs in known if seconds is not None]
    assert len(known) > 100 and max(seconds for seconds, _ in known) <= 60 * minutes * (1 + retries)
    longer = {(jobs[0][0].row, jobs[0][0].stream["dataset"]) for seconds, jobs in known if seconds > 7200}
    assert longer <= {("protocl", "split_cifar10_100"), ("replay", "split_cifar10_100")}
    assert all(len(jobs[0][1]) == 1 for seconds, jobs in known if seconds > 3600)
    assert all(
        len({runs.key_of(job.identity("")) for job, _ in jobs}) == 1 for seconds, jobs in known if seconds > 3600
    )


def test_rows_of_the_same_settings_are_run_by_one_process():
    """Two would compute the same seeds at a time, in one checkpoint. Rows that other changes make alike are apart."""
    for name in PLANS:
        of_pieces = [
            {(runs.key_of(job.identity("")), job.changes, seed) for job, seeds in piece.jobs for seed in seeds}
            for piece in plan.load(name).pieces()
        ]
        assert sum(map(len, of_pieces)) == len(set().union(*of_pieces)) > 100, name
    both = [piece for piece in plan.load("paper").pieces() if "protocl_paper_epochs" in piece.selection.rows]
    cifar = [piece.selection.rows for piece in both if piece.selection.dataset == "split_cifar10"]
    assert cifar == [("protocl", "protocl_paper_epochs")] * 10


def test_a_plan_names_no_device(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from paper_lib.sweep import Selection\nSELECTIONS = [Selection(rows=('sgd',), device='cuda:0')]"
    )
    with pytest.raises(ValueError, match="device='cuda:0' is none of a plan's settings"):
        plan.load(str(tmp_path / "mine.py"))


def test_a_new_row_is_in_both_plans(monkeypatch):
    before = {name: len(plan.load(name).wholes()) for name in PLANS}
    own = replace(ROWS["joint"], name="mine", style=Style("mine", "#123456", "x", "-"), exhibits=("mine",))
    monkeypatch.setitem(ROWS, "mine", own)
    found = {n: {p.selection.dataset for p in plan.load(n).wholes() if "mine" in p.selection.rows} for n in PLANS}
    assert found == {"quick": {"split_digits"}, "paper": own.settings.keys() - {"split_digits"}}
    assert len(plan.load("paper").wholes()) == before["paper"] + len(found["paper"])


def test_a_raised_version_or_a_changed_setting_is_another_piece_and_nothing_else_is(monkeypatch):
    def names():
        chosen = [Selection(scenario="class_incremental", rows=(row,)) for row in ("sgd", "protocl", "vcl_single_head")]
        return [piece.name for piece in plan.Plan(tuple(chosen)).pieces()]

    before = names()
    assert names() == before
    with monkeypatch.context() as patched:
        patched.setattr(Replay, "VERSION", Replay.VERSION + 1)
        assert [new == old for new, old in zip(names(), before, strict=True)] == [False, True, True]
    settings = ROWS["protocl"].settings["split_digits"] | {"forget": 0.9}
    monkeypatch.setitem(ROWS, "protocl", replace(ROWS["protocl"], settings={"split_digits": settings}))
    assert [new == old for new, old in zip(names(), before, strict=True)] == [True, False, True]


def test_seeds_are_split_and_each_stands_in_one_piece():
    whole = Selection("split_digits", "class_incremental", seeds=tuple(range(10)), rows=("sgd",))
    pieces = plan.Plan((whole,), seeds_a_piece={"split_digits": 4}).pieces()
    assert [piece.selection.seeds for piece in pieces] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    fewer = plan.Plan((whole,), seeds_a_piece={"split_digits": 4, "sgd": 3, "joint": 1}).pieces()
    assert [len(piece.selection.seeds) for piece in fewer] == [3, 3, 3, 1]  # a row's own limit, if it is less


def test_a_runs_data_seed_is_in_its_command():
    one = Selection(rows=("imbalance_sgd",), seeds=(1,), changes={"train_sizes": (50, 10), "train_seed": 1})
    piece = plan.Piece(one)
    assert "train_seed=1" in piece.command and read_back(piece).key == piece.key


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A copy of the toy tables of which the last seeds of two rows are gone."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "results")
    shutil.copytree(
        ROOT / "results", tmp_path / "results", ignore=lambda _, names: [n for n in names if "toy" not in n]
    )
    table = runs.stored("toy_pan")
    lost = (table["row"] == "vcl_multi_head") & (table.seed > 7) | (table["row"] == "joint_unit") & (table.seed == 0)
    table[~lost].to_csv(tmp_path / "results" / "toy_pan.csv", index=False)


def test_what_is_missing_is_given_as_commands(results, capsys):
    lost = ["results", "missing", "dataset=toy_pan", "row=vcl_multi_head,joint_unit,single_task", "split=test"]
    assert cli.main(lost) == 0
    head = "paper-lib run dataset=toy_pan scenario="
    assert capsys.readouterr().out.splitlines() == [
        f"{head}task_incremental preset=paper seeds=8:10 rows=vcl_multi_head",
        f"{head}domain_incremental preset=paper seeds=0:1 rows=joint_unit",
    ]
    assert cli.main(["results", "missing", "dataset=toy_gaussians", "row=single_task"]) == 0
    assert "the tables hold all" in capsys.readouterr().out
    assert cli.main(["results", "missing", "datset=toy_pan"]) == 2
    assert "did you mean 'dataset'" in capsys.readouterr().err


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path / "runs"))
    plan._identities.cache_clear()
    (tmp_path / "mine.py").write_text(
        "from paper_lib.sweep import Selection\n"
        "SELECTIONS = [\n"
        "    Selection('toy_pan', None, 'paper', seeds=(0, 1), rows=('single_task',), changes=changes)\n"
        "    for changes in ({}, {'epochs': 77})\n]"
    )
    yield str(tmp_path / "mine.py")
    plan._identities.cache_clear()


def test_a_dry_run_says_what_would_run_and_how_long_by_earlier_runs(store, capsys):
    assert cli.main(["sweep", store, "--dry-run"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.match(r" +about \d+ s  paper-lib run dataset=toy_pan .* seeds=0:2 rows=single_task$", first)
    assert re.match(r" +unknown  paper-lib run dataset=toy_pan .* rows=single_task epochs=77$", second)
    assert re.match(r"2 of 2 pieces to run: about \d+ s one after another, and 1 that nobody has run yet$", last)
    done = plan.stamp(plan.load(store).pieces()[1])
    done.parent.mkdir(parents=True)
    done.touch()
    assert cli.main(["sweep", store, "--dry-run", "cores=2"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "rows=single_task" in first and last.startswith("1 of 2 pieces to run")
    done.unlink()
    plan.stamp(plan.load(store).pieces()[0]).touch()
    assert cli.main(["sweep", store, "--dry-run"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 of 2 pieces to run: 1 that nobody has run yet"


def test_seconds_come_from_the_run_store_where_no_table_has_them(store, monkeypatch):
    (job,) = sweep.jobs(Selection("toy_pan", rows=("sgd_single_head",), changes={"epochs": 1}))
    path = runs.folder() / "toy_pan" / "Replay-abc" / "seed0.json"
    record = dict.fromkeys(runs.RECORD) | {
        "identity": job.identity("d"),
        "provenance": {"seconds": 9.0, "seeds": [0, 1]},
    }
    runs.write_whole(path, json.dumps(record))
    one = Selection("toy_pan", rows=("sgd_single_head",), seeds=(0, 1, 2), changes={"epochs": 1})
    assert plan.Piece(one).seconds() == pytest.approx(13.5)
    assert plan.Piece(replace(one, changes={"epochs": 2})).seconds() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quik"], "plan='quik' is not one of paper, quick (did you mean 'quick'?)"),
        (["none/of/it.py"], "there is no plan none/of/it.py"),
        (["quick", "cores"], "'cores' is not of the form key=value"),
        (["quick"], "sweeps need Snakemake: pip install --constraint constraints.txt --editable '.[sweep]'"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_without_nvidia_smi_there_is_no_gpu_in_one_line(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, str(ROOT / "scripts/free_gpu.py"), "-c", "pass"]
    failing = tmp_path / "nvidia-smi"
    for path in ("nowhere", str(tmp_path)):  # not there, and a driver that does not answer
        done = subprocess.run(command, env=environment | {"PATH": path}, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith("no GPU: ") and done.stderr.count("\n") == 1
        failing.write_text("#!/bin/sh\nexit 9\n")
        failing.chmod(0o755)


def test_commands_at_once_hold_different_gpus_and_a_third_waits(tmp_path):
    program = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep({})"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "3,GPU-b", "TMPDIR": str(tmp_path)}

    def start(seconds):
        command = [sys.executable, str(ROOT / "scripts/free_gpu.py"), "-c", program.format(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    first = [start(60), start(60)]
    held = [process.stdout.readline().strip() for process in first]
    assert sorted(held) == ["3", "GPU-b"]
    third = start(0)
    with pytest.raises(subprocess.TimeoutExpired):
        third.wait(0.5)
    first[0].kill()  # whatever ends a command gives its GPU back
    assert third.stdout.readline().strip() == held[0]
    first[1].kill()
    for process in (*first, third):
        process.wait()
        process.stdout.close()


# --- with Snakemake, in a copy of the project


@pytest.fixture
def copy(tmp_path):
    for name in ("paper_lib", "plans", "profiles", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", tmp_path / "copy")
    return tmp_path / "copy"


def start(copy, *words, epochs=2, path="", **how):
    (copy / "tiny.py").write_text(TINY.format(epochs=epochs))
    own = {"PAPER_LIB_RUNS": str(copy / "runs"), "PATH": f"{path}{os.pathsep * bool(path)}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "paper_lib.cli", *words]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=copy, env=os.environ | {"OMP_NUM_THREADS": "1"} | own, **output, **how)


def swept(copy, *words, plan="tiny.py", **how):
    process = start(copy, "sweep", plan, *words, **how)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def ran(output):
    """The pieces that Snakemake names as its jobs."""
    return sorted(re.findall(r"^Job \d+: paper-lib run .*(seeds=\S+ rows=\S+)", output, re.MULTILINE))


def files(copy):
    return {path: path.stat().st_mtime_ns for path in (copy / "runs").rglob("*") if path.is_file()}


def table(copy):
    """The table that a merge of all records makes."""
    output, _ = start(copy, "tabulate").communicate()
    assert "split_digits.csv" in output
    return (copy / "results" / "split_digits.csv").read_text()


class TestWithSnakemake:
    pytestmark = slow_sweep

    def test_a_second_sweep_has_nothing_to_do_and_a_change_runs_its_own_rows(self, copy):
        assert ran(swept(copy, "cores=2")) == sorted(TINY_JOBS)
        before = files(copy)
        assert len([path for path in before if path.match("seed*.json")]) == 4
        assert not ran(swept(copy, "cores=2")) and files(copy) == before
        assert swept(copy, "--dry-run").splitlines() == ["0 of 4 pieces to run: about 0 s one after another"]
        method = copy / "paper_lib" / "methods" / "replay.py"
        bumped, count = re.subn(
            r"VERSION: ClassVar\[int\] = (\d+)", r"VERSION: ClassVar[int] = 1\1", method.read_text()
        )
        assert count == 1
        method.write_text(bumped)
        assert ran(swept(copy, "cores=2")) == [job for job in sorted(TINY_JOBS) if "sgd" in job]
        after = files(copy)
        assert {path: after[path] for path in before} == before  # nothing that was there has been touched
        new = [json.loads(path.read_text()) for path in after.keys() - before.keys() if path.match("seed*.json")]
        assert sorted((one["names"][0][0], one["seed"]) for one in new) == [("sgd", 0), ("sgd", 1)]
        assert ran(swept(copy, "cores=2", epochs=3)) == sorted(TINY_JOBS)
        assert not ran(swept(copy, "cores=2", epochs=2))  # changed back

    def test_a_sweep_killed_at_random_moments_ends_with_the_same_tables(self, copy):
        """Killed with all that it has started, at moments between its first file and its last."""
        draw, kills = random.Random(0), 0
        for _ in range(6):
            process = start(copy, "sweep", "tiny.py", "cores=2", epochs=8, start_new_session=True)
            before, begun = files(copy), time.monotonic()
            while process.poll() is None and files_or_none(copy) in (before, None) and time.monotonic() < begun + 60:
                time.sleep(0.02)
            time.sleep(draw.uniform(0, 4))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
            process.communicate()
        assert kills >= 3
        swept(copy, "cores=2", epochs=8)
        left = [p for p in files(copy) if not re.fullmatch(r"seed\d+\.npz", p.name)]  # what a seed keeps
        assert {p.suffix for p in left} == {".json", ".done", ".log"}  # no checkpoint, nothing half-written
        assert len([p for p in files(copy) if p.match("seed*.json")]) == 4
        found = table(copy)
        shutil.rmtree(copy / "runs")
        shutil.rmtree(copy / "results")
        for job in TINY_JOBS:  # without a sweep
            words = f"run dataset=split_digits scenario=class_incremental preset=paper epochs=8 {job}".split()
            start(copy, *words, epochs=8).communicate()
        assert table(copy) == found and found.count("\n") == 1 + 2 * 2 * 3 * 15

    def test_on_gpus_each_piece_is_started_on_a_free_one(self, copy):
        """Said and not done: there need be no GPU here."""
        command = "-m snakemake --dry-run --printshellcmds --profile profiles/gpus --config plan=tiny.py"
        (copy / "tiny.py").write_text(TINY.format(epochs=2))
        done = subprocess.run([sys.executable, *command.split()], cwd=copy, capture_output=True, text=True, check=True)
        commands = re.findall(
            r"scripts/free_gpu.py -m paper_lib.cli run .* device=cuda:0 > ", done.stdout + done.stderr
        )
        assert len(commands) == 4

    def test_slurm_is_handed_a_piece_a_job_with_its_time_and_memory(self, copy, tmp_path):
        """``sbatch`` is a stub that notes what it is given and runs it at once."""
        stubs, calls = tmp_path / "stubs", tmp_path / "calls"
        stubs.mkdir(), calls.mkdir()
        script = f"""#!{sys.executable}
import json, os, subprocess, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if name == "sbatch":
    job = os.getpid()
    (wrap,) = (word.removeprefix("--wrap=") for word in words if word.startswith("--wrap="))
    own = os.environ | {{"SLURM_JOB_ID": str(job)}}
    done = subprocess.run(wrap, shell=True, capture_output=True, text=True, env=own)
    open(f"{calls}/{{job}}", "w").write(json.dumps([words, done.returncode, done.stdout + done.stderr]))
    print(job)
elif name == "sacct":
    for job in os.listdir("{calls}"):
        print(job + "|" + ("FAILED" if json.load(open("{calls}/" + job))[1] else "COMPLETED"))
elif name == "sacctmgr":
    print("lab")
elif name == "srun":
    sys.exit(subprocess.run(words[next(i for i, w in enumerate(words) if not w.startswith("-")):]).returncode)
"""
        for name in ("sbatch", "sacct", "squeue", "sinfo", "scontrol", "sacctmgr", "sshare", "scancel", "srun"):
            (stubs / name).write_text(script)
            (stubs / name).chmod(stat.S_IRWXU)
        extra = [
            "slurm-init-seconds-before-status-checks=1",
            "slurm-logdir=" + str(tmp_path / "logs"),
            "latency-wait=5",
            "default-resources=slurm_account=lab slurm_partition=fast",
        ]
        output = swept(copy, "profile=slurm", *extra, path=str(stubs))
        given = [json.loads(path.read_text()) for path in calls.iterdir()]
        assert len(given) == 4 and all(status == 0 for _, status, _ in given), (given, output)
        names = {name for words, _, _ in given for name in re.findall(r"piece:name=(\S+?)'", " ".join(words))}
        assert names == {path.stem for path in (copy / "runs" / "sweeps").glob("*.done")} and len(names) == 4
        for words, _, _ in given:
            told = " ".join(words)
            assert all(flag in told for flag in ("-t 90", "--mem 4000", "-A lab", "-p fast")), told
        assert len([path for path in files(copy) if path.match("seed*.json")]) == 4


def files_or_none(copy):
    try:
        return files(copy)
    except FileNotFoundError:  # renamed since
        return None
