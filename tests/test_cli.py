"""The command line, on an experiment made for the test."""

import re
import subprocess
import sys

import pandas as pd
import pytest

from paper_lib import analysis, cli, experiments, runs
from paper_lib.data import vision
from paper_lib.metrics import GROUP, Summary

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
        ("flips", method, config.dataset, "none", "quick", "k", seed, k, j, "accuracy", scale * (0.5 + 0.25 * (k == j)))
        for method, scale in (("zebra", 1.0), ("ape", 0.5))
        for seed in config.seeds
        for k in (1, 2)
        for j in range(1, k + 1)
    ]
    names = "experiment method dataset scenario preset key seed task_trained task_tested metric value"
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


@pytest.fixture(autouse=True)
def fake_experiments(tmp_path, monkeypatch):
    (tmp_path / "coin_flips.py").write_text(MODULE)
    (tmp_path / "several.py").write_text(RESULT)
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    monkeypatch.setattr(analysis, "__path__", [])
    yield
    for name in ("coin_flips", "several"):
        sys.modules.pop(f"paper_lib.experiments.{name}", None)
        if hasattr(experiments, name):
            delattr(experiments, name)


def test_run_prints_mean_and_sd_of_each_method_in_its_order(capsys):
    assert cli.main(["run", "coin_flips", "seeds=0:3", "dataset=loaded"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}| (?=[a-z])", lines[1].strip())[-2:] == ["final_accuracy", "triangle_mean"]
    # After the second task: 0.5 on the first, 0.75 on the second; the triangle adds 0.75.
    assert re.search(r"zebra +loaded .* 62\.50 ± 0\.00 \(3\) +66\.67 ± 0\.00 \(3\)$", lines[2])
    assert re.search(r"ape +loaded .* 31\.25 ± 0\.00 \(3\) +33\.33 ± 0\.00 \(3\)$", lines[3])


def test_run_of_one_seed_states_no_spread(capsys):
    assert cli.main(["run", "coin_flips", "seeds=4"]) == 0
    out = capsys.readouterr().out
    assert "62.50 (1)" in out and "nan" not in out


def test_run_prints_the_tables_of_a_result_with_several(capsys):
    assert cli.main(["run", "several", "width=1e3"]) == 0
    assert capsys.readouterr().out.split() == ["left", "width", "1000"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "coin_flip"], "experiment='coin_flip' is not one of coin_flips, several (did you mean 'coin_flips'?)"),
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
        (["tabulate", "coinflips"], "(did you mean 'coin_flips'?)"),
        (["data", "status", "mnits"], "there is no data set 'mnits' (did you mean 'mnist'?); there are mnist,"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(capsys, arguments, message):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("paper-lib: ") and captured.err.count("\n") == 1
    assert message in captured.err


def test_traceback_on_request_and_for_what_is_a_bug():
    with pytest.raises(FileNotFoundError):
        cli.main(["--traceback", "run", "coin_flips", "fail=file"])
    with pytest.raises(KeyError):
        cli.main(["run", "coin_flips", "fail=bug"])


def test_an_interrupt_ends_with_130(capsys):
    assert cli.main(["run", "coin_flips", "fail=stop"]) == 130
    assert capsys.readouterr().err == "paper-lib: stopped\n"


def test_list_shows_parameters_with_defaults_and_meaning(capsys):
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "coin_flips: Coin flips.",
        "    dataset=split_coins  the coins.",
        "    seeds=0,1  of the flips, one each.",
        "    device=cpu  where.",
        "    fail=None  what to raise.",
        "several: Several tables.",
        "    width=...",
    ]


def test_every_experiment_of_the_package_can_be_listed(monkeypatch, capsys):
    monkeypatch.undo()
    names = cli.experiment_names()
    assert names and cli.main(["list"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")] == names


def test_tabulate_prints_the_table_that_it_wrote(monkeypatch, capsys, tmp_path):
    written = []
    monkeypatch.setattr(runs, "tabulate", lambda name: written.append(name) or tmp_path / f"{name}.csv")
    assert cli.main(["tabulate", "coin_flips"]) == 0
    assert written == ["coin_flips"] and capsys.readouterr().out == f"{tmp_path / 'coin_flips.csv'}\n"


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
    columns = [*GROUP, "key", "metric", *Summary._fields]
    group = ("flips", "ape", "coins", "none", "quick")
    table = pd.DataFrame(
        [(*group, key, "final_accuracy", mean, 0.01, 0.005, 4) for key, mean in (("z", 0.5), ("a", 0.25))],
        columns=columns,
    )
    lines = cli.score_lines(table).splitlines()
    assert re.search(r" z +50\.00 ± 1\.00 \(4\)$", lines[1])
    assert re.search(r" a +25\.00 ± 1\.00 \(4\)$", lines[2])


def test_help_does_not_wait_for_torch():
    code = "import sys; from paper_lib.cli import main\ntry: main(['--help'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: paper-lib") and done.stdout.endswith("False\n")
