"""The command line, on chapters made for the test and on rows."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from paper_lib import analysis, cli, experiments, runs, sweep, tables
from paper_lib.data import vision
from paper_lib.rows import ROWS
from paper_lib.sweep import Selection

MODULE = '''"""Coin flips.

More about them.
"""

import dataclasses

import pandas as pd

from paper_lib.checks import one_of


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        dataset: the coins.
        seeds: of the flips,
            one each.
        device: where.
        fail: what to raise.
    """

    dataset: str = "split_coins"
    seeds: tuple[int, ...] = (0, 1)
    device: str = "cpu"
    fail: str | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, ["split_coins", "loaded"])


def run(config):
    errors = {"file": FileNotFoundError("no such\\n  table"), "stop": KeyboardInterrupt(), "bug": KeyError("k")}
    if config.fail:
        raise errors[config.fail]
    rows = [
        (row, config.dataset, "none", "test", "quick", "", "k", seed, k, j, "accuracy", scale * (0.5 + 0.25 * (k == j)))
        for row, scale in (("zebra", 1.0), ("ape", 0.5))
        for seed in config.seeds
        for k in (1, 2)
        for j in range(1, k + 1)
    ]
    names = "row dataset scenario split preset changes key seed task_trained task_tested metric value"
    return pd.DataFrame(rows, columns=names.split())
'''

RESULT = '''"""Several tables."""
import dataclasses
from typing import NamedTuple
import pandas as pd

@dataclasses.dataclass(frozen=True)
class Config:
    width: int

class Result(NamedTuple):
    left: pd.DataFrame
    note: str

def run(config):
    return Result(pd.DataFrame({"width": [config.width]}), "unprinted")
'''


ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def chapters(tmp_path, monkeypatch):
    (tmp_path / "coin_flips.py").write_text(MODULE)
    (tmp_path / "several.py").write_text(RESULT)
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    monkeypatch.setattr(analysis, "__path__", [])
    yield
    for name in ("coin_flips", "several"):
        sys.modules.pop(f"paper_lib.experiments.{name}", None)
        if hasattr(experiments, name):
            delattr(experiments, name)


def test_run_prints_mean_and_sd_of_each_row_in_its_order(chapters, capsys):
    assert cli.main(["run", "coin_flips", "seeds=0:3", "dataset=loaded"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "percent, mean ± sd over seeds"
    assert lines[1].split() == ["row", "dataset", "scenario", "final", "accuracy", "triangle", "mean", "seeds"]
    # After the second task: 0.5 on the first, 0.75 on the second; the triangle adds 0.75.
    assert " ".join(lines[2].split()) == "zebra loaded none 62.50 ± 0.00 66.67 ± 0.00 3"
    assert " ".join(lines[3].split()) == "ape loaded none 31.25 ± 0.00 33.33 ± 0.00 3"


def test_run_of_one_seed_states_no_spread(chapters, capsys):
    assert cli.main(["run", "coin_flips", "seeds=4"]) == 0
    out = capsys.readouterr().out
    assert "62.50 " in out and "nan" not in out and "± 0" not in out


def test_run_prints_the_tables_of_a_result_with_several(chapters, capsys):
    assert cli.main(["run", "several", "width=1e3"]) == 0
    assert capsys.readouterr().out.split() == ["left", "width", "1000"]


def test_rows_run_without_a_chapter(capsys):
    words = ["dataset=split_digits", "rows=joint,sgd", "seeds=0:2", "epochs=1", "scenario=domain_incremental"]
    assert cli.main(["run", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        [row, "split_digits", "domain_incremental"] for row in ("joint", "sgd")
    ]
    assert all(line.endswith(" 2") for line in lines[2:])
    assert len(list(runs.folder().rglob("seed*.json"))) == 4


@pytest.mark.parametrize("name", ["protocl", "vcl_split_mnist", "class_incremental", "metrics", "task_imbalance"])
def test_a_chapter_runs_its_live_selection_with_what_is_changed(name, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(sweep, "run", lambda chosen: asked.append(chosen) or pd.DataFrame())
    assert cli.main(["run", name, "seeds=5"]) == 0
    live = cli._chapter(name).LIVE
    if name == "task_imbalance":
        assert {(one.seeds, one.preset) for one in asked[0]} == {((5,), "quick")}
    else:
        assert asked == [replace(live, seeds=(5,))]
    assert isinstance(live, Selection)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "coin_flip"], "chapter='coin_flip' is not one of coin_flips, several (did you mean 'coin_flips'?)"),
        (
            ["run", "coin_flips", "seed=0"],
            "there is no parameter 'seed' (did you mean 'seeds'?); there are dataset, seeds",
        ),
        (["run", "coin_flips", "seeds=a"], "seeds='a' is not a list of whole numbers"),
        (["run", "coin_flips", "dataset=split_coin"], "(did you mean 'split_coins'?)"),
        (["run", "coin_flips", "device=cuda:99"], "device='cuda:99' is not there"),
        (["run", "coin_flips", "seeds"], "'seeds' is not of the form key=value"),
        (["run", "coin_flips", "=3"], "'=3' is not of the form key=value"),
        (["run", "coin_flips", "seeds=1", "seeds=2"], "seeds is given twice, as '1' and '2'"),
        (["run", "coin_flips", "fail=file"], "no such table"),
        (["run", "several"], "width has no default; give a whole number"),
        (["list", "severall"], "(did you mean 'several'?)"),
        (["tabulate", "coinflips"], "no record to tabulate of 'coinflips'"),
        (["run", "seeds=0:2"], "give a chapter of paper-lib list, or rows=..., such as rows=replay,joint"),
        (["run", "rows=sgd", "seed=3"], "there is no parameter 'seed' (did you mean 'seeds'?)"),
        (["run", "rows=sgd", "datset=split_digits"], "there is no parameter 'datset' (did you mean 'dataset'?)"),
        (["run", "rows=sgd", "epochs=1,1,1,1,1,9"], "epochs=1,1,1,1,1,9 has 6 entries for 5 tasks; give one number"),
        (["run", "rows=sgd", "seeds=1e30"], "seeds='1e30' is not a list of whole numbers"),
        (["list", "sgd", "preset=paper"], "give a row and dataset=..., such as"),
        (["list", "coin_flips", "dataset=split_mnist"], "row='coin_flips' is not one of sgd,"),
        (["list", "sgd", "colour=red", "dataset=split_mnist"], "column='colour' is not one of dataset, preset"),
        (["run", "replay"], "replay is a row: paper-lib run rows=replay"),
        (["run", "rows=replya"], "rows='replya' is not one of sgd,"),
        (["run", "rows=replay", "epoch=3"], "there is no parameter 'epoch' (did you mean 'epochs'?)"),
        (["run", "rows=replay", "dataset=SplitMNIST"], "(did you mean 'split_mnist'?)"),
        (["run", "rows=replay", "device=CPU"], "device='CPU' is not one of cpu, cuda, cuda:N (did you mean 'cpu'?)"),
        (["run", "rows=replay", "seeds=0:1000000000"], "seeds='0:1000000000': more than 100000 whole numbers"),
        (["run", "rows=vcl_single_head", "scenario=task_incremental"], "is served by sgd, "),
        (["results", "list", "colour=red"], "column='colour' is not one of row, dataset, "),
        (["results", "export", "format=xls"], "format='xls' is not one of csv, latex, json"),
        (["data", "status", "mnits"], "not one of mnist, fashion-mnist, cifar-10, cifar-100 (did you mean 'mnist'?)"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(chapters, capsys, arguments, message):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("paper-lib: ") and captured.err.count("\n") == 1
    assert message in captured.err


def test_traceback_on_request_and_for_what_is_a_bug(chapters):
    with pytest.raises(FileNotFoundError):
        cli.main(["--traceback", "run", "coin_flips", "fail=file"])
    with pytest.raises(KeyError):
        cli.main(["run", "coin_flips", "fail=bug"])


def test_an_interrupt_ends_with_130(chapters, capsys):
    assert cli.main(["run", "coin_flips", "fail=stop"]) == 130
    assert capsys.readouterr().err == "paper-lib: stopped\n"


def test_list_shows_parameters_with_defaults_and_meaning(chapters, capsys):
    assert cli.main(["list", "coin_flips", "several"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "coin_flips: Coin flips.",
        "    dataset=split_coins  a word. the coins.",
        "    seeds=0,1  a list of whole numbers, such as 0,1,2 or 0:10. of the flips, one each.",
        "    device=cpu  a word. where.",
        "    fail=None  a word or none. what to raise.",
        "several: Several tables.",
        "    width=...  a whole number.",
    ]


def test_a_chapter_and_a_row_of_one_name_are_both_listed_and_sizes_are_told(capsys):
    assert cli.main(["list", "protocl", "protocl_memory"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [
        "protocl",
        "protocl_memory",
        "protocl",
    ]
    assert any(line.startswith("    totals=0,10,50,250 ") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing", "dataset=split_digits"], "plans/paper.py asks for nothing of dataset=split_digits"),
        (["missing", "dataset=split_minst"], "dataset='split_minst' is not one of .*did you mean 'split_mnist'"),
        (["export", "row=protcl"], "row='protcl' is not one of"),
        (["list", "format=json"], "format=json is of results export"),
        (["list", "preset=quick,papr"], "preset='papr' is not one of quick, paper"),
    ],
)
def test_a_wrong_word_in_a_search_of_results_is_named(words, said, capsys):
    assert cli.main(["results", *words]) != 0
    assert re.search(said, capsys.readouterr().err)


def test_settings_with_commas_of_their_own_can_be_searched_for(capsys):
    assert cli.main(["results", "list", "dataset=split_cifar10", "row=fromp", "changes=epochs=10"]) == 0
    assert "fromp" in capsys.readouterr().out
    dropping = "batch_size=64 epochs=20 num_tasks=2 train_sizes=1000,1000"
    assert cli.main(["results", "list", "dataset=split_cifar10", f"changes={dropping}"]) == 0
    assert "fromp" in capsys.readouterr().out


def test_every_chapter_and_row_of_the_package_is_listed(capsys):
    names = [*cli.chapters(), *ROWS]
    assert len(cli.chapters()) >= 9 and cli.main(["list"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == names
    assert cli.main(["list", *names]) == 0
    out = capsys.readouterr().out
    assert not {"protocl_tuning", "vcl_toy_tuning"} & set(names)
    for setting in ROWS["replay"].takes:
        assert re.search(rf"^    {setting}  .", out, re.M), setting
    assert "    rows=" in out and "    changes" not in out


def test_a_fault_that_nobody_raised_on_purpose_is_told_with_its_place(monkeypatch, capsys):
    def broken(selection):
        _, _, _ = selection.seeds

    monkeypatch.setattr(sweep, "run", broken)
    assert cli.main(["run", "rows=sgd", "seeds=0:2"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("paper-lib: not enough values to unpack (expected 3, got 2) (") and error.count("\n") == 1
    assert f"{__file__}, line " in error and "paper-lib --traceback" in error


def test_a_row_s_values_on_a_data_set_are_listed(capsys):
    assert cli.main(["list", "sfsvi", "dataset=split_mnist", "preset=paper"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("sfsvi: S-FSVI;")
    values = dict(line.strip().split("=", 1) for line in lines)
    method, _ = ROWS["sfsvi"].build("split_mnist", "paper", {})
    assert values["num_context"] == str(method.num_context) and values["prior_var"] == str(method.prior_var)
    assert set(values) == set(ROWS["sfsvi"].takes) and values["scaling"] == "unit"


def test_stored_results_are_listed_and_exported(capsys):
    chosen = ["dataset=split_mnist", "scenario=class_incremental", "row=fromp,joint", "split=test"]
    assert cli.main(["results", "list", *chosen]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = sweep.stored_at_paper_scale("split_mnist", ("fromp", "joint"), "class_incremental")
    expected = tables.summary(table).set_index("row")
    assert [line.split()[0] for line in lines[1:]] == ["fromp", "joint"]
    for line in lines[1:]:
        assert f"{expected.final_accuracy[line.split()[0]]:.2f} ± " in line
    assert cli.main(["results", "export", "format=json", *chosen]) == 0
    exported = pd.DataFrame(json.loads(capsys.readouterr().out)).set_index("row")
    assert exported.n.to_dict() == {"fromp": 10, "joint": 10} and set(exported.seeds) == {"0:10"}
    told = json.loads((runs.RESULTS / "split_mnist.json").read_text(encoding="utf-8"))
    for row, key in exported.key.items():
        ran = [seed for run in told[key]["runs"] for seed in run["seeds"]]
        assert sorted(ran) == list(range(10)), row
    assert cli.main(["results", "export", "format=latex", *chosen]) == 0
    out = capsys.readouterr().out
    assert r"split\_mnist" in out and f"& {expected.final_accuracy['joint']:.2f} &" in out and "NaN" not in out
    assert cli.main(["results", "export", *chosen]) == 0
    assert capsys.readouterr().out.startswith("row,dataset,scenario,split,preset,changes,final_accuracy")
    assert cli.main(["results", "list", chosen[0], chosen[1], "row=replay"]) == 0
    assert "memory_per_task=10 " in capsys.readouterr().out  # a row's other settings have lines of their own
    assert cli.main(["results", "list", "preset=quick"]) == 0
    assert "no stored results" in capsys.readouterr().out


def test_what_is_missing_is_told_as_the_commands_that_run_it(monkeypatch, capsys, tmp_path):
    wanted = ["results", "missing", "dataset=split_mnist", "scenario=class_incremental", "row=joint", "split=test"]
    assert cli.main(wanted) == 0
    assert "the tables hold all of that kind" in capsys.readouterr().out
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "nothing")
    assert cli.main(wanted) == 0
    (line,) = capsys.readouterr().out.splitlines()
    asked = []
    monkeypatch.setattr(sweep, "run", lambda chosen: asked.append(chosen) or pd.DataFrame())
    assert cli.main(line.split()[1:]) == 0
    (one,) = asked
    assert (one.dataset, one.preset, one.seeds) == ("split_mnist", "paper", tuple(range(10))) and "joint" in one.rows


def test_tabulate_prints_the_table_that_it_wrote(monkeypatch, capsys, tmp_path):
    written = []
    monkeypatch.setattr(runs, "tabulate", lambda name: written.append(name) or [tmp_path / f"{name}.csv"])
    assert cli.main(["tabulate", "split_mnist"]) == 0
    assert written == ["split_mnist"] and capsys.readouterr().out == f"{tmp_path / 'split_mnist.csv'}\n"


def test_data_says_what_is_there_and_verify_fails_on_what_is_not_right(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PAPER_LIB_DATA", str(tmp_path))
    assert cli.main(["data", "status"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name} in {tmp_path}" in out for name in vision.NAMES)
    assert out.count("missing") == sum(len(source.parts) for source in vision.SOURCES.values())
    assert cli.main(["data", "verify"]) == 0  # nothing there is nothing wrong, unless it was asked for
    assert cli.main(["data", "verify", "mnist"]) == 1
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(b"not labels")
    capsys.readouterr()
    assert cli.main(["data", "verify"]) == 1
    assert re.search(r"rejected +y_train .*train-labels-idx1-ubyte", capsys.readouterr().out)


def test_a_data_error_keeps_its_lines(monkeypatch, capsys):
    def fetch(name, progress=False):
        raise vision.DataError(f"{name}: no URL\n    http://one\n    http://two")

    monkeypatch.setattr(vision, "fetch", fetch)
    assert cli.main(["data", "fetch", "cifar-10"]) == 2
    assert capsys.readouterr().err == "paper-lib: cifar-10: no URL\n    http://one\n    http://two\n"


def test_scores_of_two_settings_stand_on_two_lines():
    names = ["ape", "coins", "none", "test", "quick"]
    line = dict(zip(runs.NAMES, names, strict=False)) | {"triangle_mean": 1.0, "triangle_mean sd": 0.1, "diverged": 0}
    table = pd.DataFrame(
        [
            line | {"changes": changes, "final_accuracy": mean, "final_accuracy sd": 1.0, "n": 4}
            for changes, mean in (("epochs=3", 50.0), ("epochs=4", 25.0))
        ]
    )
    first, second = (" ".join(words.split()) for words in cli.score_lines(table).splitlines()[1:])
    assert first.startswith("ape coins none epochs=3 50.00 ±") and first.endswith(" 4")
    assert second.startswith("ape coins none epochs=4 25.00 ±")
    table["diverged"] = [0, 2]
    assert cli.score_lines(table).splitlines()[2].split()[-2:] == ["4", "2"]


def test_help_does_not_wait_for_torch():
    code = "import sys; from paper_lib.cli import main\ntry: main(['--help'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: paper-lib") and done.stdout.endswith("False\n")


# --- output streams, of a process of its own

COMMAND = f"{sys.executable} -m paper_lib.cli"


def shell(command, tmp_path, **environment):
    own = {**os.environ, "PAPER_LIB_RUNS": str(tmp_path), **environment}
    return subprocess.run(["bash", "-c", command], cwd=ROOT, env=own, capture_output=True, text=True)


def test_who_has_read_enough_ends_a_list_in_silence(tmp_path):
    done = shell(f"set -o pipefail; {COMMAND} list | head -1", tmp_path)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


@pytest.mark.parametrize(
    ("closed", "environment"), [("", {"PYTHONIOENCODING": "ascii"}), ("2>&-", {}), ("2>/dev/full", {})]
)
def test_a_run_ends_with_its_scores_whatever_its_streams_can_take(closed, environment, tmp_path):
    words = "run rows=sgd_single_head dataset=toy_pan seeds=0,1 epochs=1"
    done = shell(f"{COMMAND} {words} {closed}", tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    assert "sgd_single_head toy_pan" in done.stdout and "can't encode" not in done.stderr


def test_no_module_is_needed_that_only_unix_has(tmp_path):
    code = "import sys; sys.modules.update(resource=None, fcntl=None); from paper_lib.cli import main; main(['list'])"
    done = shell(f'{sys.executable} -c "{code}"', tmp_path)
    assert done.returncode == 0, done.stderr
    assert "protocl" in done.stdout
