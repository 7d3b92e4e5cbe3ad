"""Parameters as papermill, a notebook and the command line hand them over."""

import dataclasses
import math
import re
import subprocess
import sys
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import torch

from paper_lib.checks import ParameterError, one_of
from paper_lib.notebook import Table, config_from, from_notebook, selection_from
from paper_lib.sweep import Selection


@dataclasses.dataclass(frozen=True)
class Config:
    dataset: str = "split_digits"
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"
    epochs: int | None = None
    learning_rate: float = 0.1
    shuffle: bool = True
    rows: tuple[str, ...] = ("sgd",)
    grid: tuple[float, ...] = ()
    shape: tuple[int, str] = (1, "a")
    prior: Literal["counts", "uniform"] | None = None
    note: str | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, ["split_digits", "split_mnist"])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("seeds", 3, (3,)),
        ("seeds", "3", (3,)),
        ("seeds", [2, 0], (2, 0)),
        ("seeds", (2, 0), (2, 0)),
        ("seeds", ["1", "2"], (1, 2)),
        ("seeds", "0,1, 2", (0, 1, 2)),
        ("seeds", "[0, 1]", (0, 1)),
        ("seeds", "(5,)", (5,)),
        ("seeds", "0:10", tuple(range(10))),
        ("seeds", "0:10:3", (0, 3, 6, 9)),
        ("seeds", "0:3,7", (0, 1, 2, 7)),
        ("seeds", range(2), (0, 1)),
        ("seeds", [np.int64(4)], (4,)),
        ("epochs", "null", None),
        ("epochs", "None", None),
        ("epochs", None, None),
        ("epochs", "12", 12),
        ("epochs", 1e3, 1000),
        ("epochs", "1e3", 1000),
        ("learning_rate", "1e-3", 0.001),
        ("learning_rate", 1, 1.0),
        ("shuffle", "false", False),
        ("shuffle", "True", True),
        ("shuffle", False, False),
        ("rows", "sgd,joint", ("sgd", "joint")),
        ("rows", "['sgd', \"joint\"]", ("sgd", "joint")),
        ("rows", "[]", ()),
        ("grid", "0.1,1e-2", (0.1, 0.01)),
        ("grid", 2, (2.0,)),
        ("shape", "3,b", (3, "b")),
        ("prior", "uniform", "uniform"),
        ("prior", "none", None),
        ("note", "none", None),
        ("note", " some text ", "some text"),
    ],
)
def test_loose_values_become_what_the_field_says(name, value, expected):
    found = getattr(config_from(Config, {name: value}), name)
    assert found == expected and type(found) is type(expected)
    if isinstance(expected, tuple):
        assert [type(item) for item in found] == [type(item) for item in expected]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("datset", "x", "no parameter 'datset' (did you mean 'dataset'?); there are dataset, seeds, device"),
        ("dataset", "split_minst", "dataset='split_minst' is not one of split_digits, split_mnist (did you mean"),
        ("dataset", 3, "dataset=3 is not a word"),
        ("seeds", "", "seeds is empty; give at least one, such as 0 or 0,1,2 or 0:10"),
        ("seeds", [], "seeds is empty"),
        ("seeds", "0,1,1", "seeds=(0, 1, 1): 1 is there twice"),
        ("seeds", [0, -1], "seeds=(0, -1): -1 is negative"),
        ("seeds", "a", "seeds='a' is not a list of whole numbers, such as 0,1,2 or 0:10"),
        ("seeds", 1.5, "seeds=1.5 is not a list of whole numbers"),
        ("seeds", True, "seeds=True is not"),
        ("seeds", None, "seeds=None is not"),
        ("seeds", "5:0", "seeds='5:0' is not"),
        ("seeds", "0:10:0", "seeds='0:10:0' is not"),
        ("seeds", "0:1:2:3", "seeds='0:1:2:3' is not"),
        ("seeds", "0:1000000000", "seeds='0:1000000000': more than 100000 whole numbers; give fewer at a time"),
        ("seeds", f"0:{10**30}", "more than 100000 whole numbers"),
        ("epochs", "many", "epochs='many' is not a whole number or none"),
        ("epochs", 2.5, "epochs=2.5 is not a whole number"),
        ("epochs", "inf", "epochs='inf' is not a whole number"),
        ("learning_rate", "nan", "learning_rate='nan' is not a number"),
        ("learning_rate", None, "learning_rate=None is not a number"),
        ("learning_rate", True, "learning_rate=True is not a number"),
        ("shuffle", 1, "shuffle=1 is not true or false"),
        ("shuffle", "maybe", "shuffle='maybe' is not true or false"),
        ("shape", "1", "shape='1' is not a list of a whole number, a word"),
        ("prior", "unifrom", "prior='unifrom' is not one of counts, uniform or none (did you mean 'uniform'?)"),
        ("device", "gpu", "device='gpu' is not one of cpu, cuda, cuda:N (did you mean 'cuda'?)"),
        ("device", "CPU", "device='CPU' is not one of cpu, cuda, cuda:N (did you mean 'cpu'?)"),
        ("dataset", "SplitMNIST", "(did you mean 'split_mnist'?)"),
        ("device", "cuda0", "device='cuda0' is not one of cpu, cuda, cuda:N (did you mean 'cuda:0'?)"),
        ("device", 0, "device=0 is not a word"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_value_and_allowed(name, value, message):
    with pytest.raises(ParameterError) as caught:
        config_from(Config, {name: value})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value._render_traceback_() == [f"ParameterError: {caught.value}"]


@pytest.mark.parametrize(
    ("count", "good", "bad"), [(0, ["cpu"], ["cuda", "cuda:0"]), (2, ["cuda", "cuda:1"], ["cuda:2"])]
)
def test_device_is_checked_against_the_machine(monkeypatch, count, good, bad):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    for device in good:
        assert config_from(Config, {"device": device}).device == device
    for device in bad:
        with pytest.raises(ParameterError, match="none; use cpu" if count == 0 else "2, cuda:0 to cuda:1"):
            config_from(Config, {"device": device})


def test_a_field_without_default_must_be_given_and_a_single_seed_is_checked():
    @dataclasses.dataclass(frozen=True)
    class Bare:
        width: int
        seed: int = 0

    assert config_from(Bare, {"width": 3}) == Bare(3)
    with pytest.raises(ParameterError, match="width has no default; give a whole number"):
        config_from(Bare, {})
    with pytest.raises(ParameterError, match="seed=-1: -1 is negative"):
        config_from(Bare, {"width": 1, "seed": -1})


def test_an_error_of_several_lines_is_joined():
    @dataclasses.dataclass(frozen=True)
    class Strict:
        width: int = 0

        def __post_init__(self):
            raise ValueError("first\n  second")

    with pytest.raises(ParameterError, match=r"^first second$"):
        config_from(Strict, {})


def test_a_type_that_no_parameter_can_have_is_the_authors_mistake():
    @dataclasses.dataclass(frozen=True)
    class Odd:
        table: dict = dataclasses.field(default_factory=dict)

    with pytest.raises(TypeError, match="cannot be of type <class 'dict'>"):
        config_from(Odd, {"table": "x"})


def test_a_notebook_gives_what_the_configuration_takes_and_no_more():
    namespace = {"seeds": "0:2", "epochs": None, "plt": object(), "In": ["", "epochs = None", "datset = 1"]}
    assert from_notebook(Config, namespace) == Config(seeds=(0, 1))
    assert from_notebook(Config, {"learning_rate": 1}) == Config(learning_rate=1.0)


def test_an_injected_name_must_be_known_to_configuration_or_notebook():
    injected = '# Parameters\ndatset = "split_mnist"\n'
    with pytest.raises(ParameterError, match=r"no parameter 'datset' \(did you mean 'dataset'\?\)"):
        from_notebook(Config, {"In": ["", 'dataset = "split_digits"', injected]})
    # A notebook may have parameters of its own, in the cell before the injected one; a later cell is none.
    own = ["", "%matplotlib inline", "width: int = 3", "# Parameters\nwidth = 4\n"]
    assert from_notebook(Config, {"In": own, "width": 4}) == Config()
    with pytest.raises(ParameterError, match="no parameter 'width'"):
        from_notebook(Config, {"In": ["", "# Parameters\nwidth = 4\n", "width = 3"]})


# --- selections


LIVE = Selection(rows=("sgd", "replay"), scenario="class_incremental", changes={"epochs": 2})


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({}, {}),
        ({"seeds": "0:2", "device": "cpu"}, {"seeds": (0, 1)}),
        ({"rows": "joint", "scenario": None}, {"rows": ("joint",), "scenario": None}),
        ({"epochs": "7"}, {"changes": {"epochs": 7}}),
        ({"epochs": "3,4,5,6,7", "dropout": None}, {"changes": {"epochs": (3, 4, 5, 6, 7)}}),
        ({"epochs": None, "learning_rate": None}, {}),
        ({"batch_size": "none"}, {"changes": {"epochs": 2, "batch_size": None}}),
        ({"train_sizes": "20,none,20,20,20"}, {"changes": {"epochs": 2, "train_sizes": (20, None, 20, 20, 20)}}),
        (
            {"memory_per_task": 1e2, "batch_size": "9"},
            {"changes": {"epochs": 2, "memory_per_task": 100, "batch_size": 9}},
        ),
        ({"preset": "paper", "split": "validation"}, {"preset": "paper", "split": "validation"}),
    ],
)
def test_a_selection_takes_its_fields_and_settings_of_its_rows(values, changed):
    assert selection_from(LIVE, values) == dataclasses.replace(LIVE, **changed)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "there is no parameter 'epoch' (did you mean 'epochs'?)"),
        ({"learning_rate": "none"}, "learning_rate='none' is not a number"),
        ({"changes": "epochs=3"}, "there is no parameter 'changes'"),
        ({"seeds": ""}, "seeds is empty"),
        ({"dataset": "split_minst"}, "dataset='split_minst' is not one of"),
        ({"device": "cuda:99"}, "device='cuda:99' is not there"),
        ({"rows": "replya"}, "(did you mean 'replay'?)"),
        ({"epochs": "many"}, "epochs='many' is not a whole number or a list of whole numbers"),
        ({"epochs": 0}, "epochs=0 is not at least 1"),
        ({"rows": "protocl,replay", "epochs": "1,1,1,1,1"}, "epochs='1,1,1,1,1' is not a whole number"),
        ({"rows": "fromp,replay", "dropout": "0.3"}, "dropout='0.3' is not"),
        (
            {"coreset_per_task": 3},
            "coreset_per_task=3 changes no row of sgd, replay; rows that take it are vcl_coreset,",
        ),
        (
            {"rows": "joint", "memory_per_task": 3},
            "memory_per_task=3 changes no row of joint; rows that take it are ",
        ),
    ],
)
def test_what_a_selection_cannot_use_is_one_line(values, message):
    with pytest.raises(ParameterError) as caught:
        selection_from(LIVE, values)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_notebook_s_parameters_fill_in_its_selection():
    cell = 'rows = ["sgd"]\nepochs = 3\ndropout = None'
    namespace = {"In": ["", cell, "import x"], "rows": ["sgd"], "epochs": 3, "dropout": None, "seeds": (4,), "x": 1}
    assert from_notebook(LIVE, namespace) == dataclasses.replace(LIVE, rows=("sgd",), seeds=(4,), changes={"epochs": 3})
    with pytest.raises(ParameterError, match=r"no parameter 'epoch' \(did you mean 'epochs'\?\)"):
        from_notebook(LIVE, namespace | {"In": ["", cell, "# Parameters\nepoch = 4\n"], "epoch": 4})


def test_a_live_cell_runs_again_beside_what_it_made():
    """``selection`` and ``density`` are settings too, and names of what chapters hold."""
    namespace = {"In": ["", "epochs = 3", "selection = from_notebook(LIVE, globals())"], "epochs": 3, "density": math}
    first = from_notebook(LIVE, namespace)
    assert from_notebook(LIVE, namespace | {"selection": first}) == first
    assert from_notebook(LIVE, namespace | {"selection": first, "epochs": 4}).changes["epochs"] == 4


def test_a_table_shows_numbers_and_folds_the_rest():
    frame = pd.DataFrame({"paper": [93.734, np.nan], "n": [10, 0]}, index=pd.Index(["a", "b"], name="row"))
    table = Table(frame, more=frame[["n"]] + 0.5)
    assert repr(table) == "row paper  n\n  a 93.73 10\n  b     –  0\n\nrow     n\n  a 10.50\n  b  0.50"
    html = table._repr_html_()
    assert html.count("<table") == 2 and html.count('<th scope="col">') == 5 and "nan" not in html
    assert html.index("93.73") < html.index("<details") < html.index("10.50") and "<summary>" in html
    told = Table(frame.rename(columns={"n": "NLL"}))._repr_html_()
    assert re.search(r'<th scope="col"><abbr title="mean negative [^"]*">NLL</abbr></th>', told)
    assert "<details" not in Table(frame, ".0f")._repr_html_() and ">94<" in Table(frame, ".0f")._repr_html_()


MODULE = """
import dataclasses
from paper_lib.checks import one_of

@dataclasses.dataclass(frozen=True)
class Config:
    dataset: str = "split_digits"
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"
    epochs: int | None = None

    def __post_init__(self):
        one_of("dataset", self.dataset, ["split_digits", "split_mnist"])
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A notebook with a parameters cell, and the module that holds its configuration."""
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "settings.py").write_text(MODULE)
    cells = [
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from paper_lib.notebook import from_notebook\nfrom settings import Config",
        'dataset = "split_digits"\nseeds = [0]\ndevice = "cpu"\nepochs = None',
        "config = from_notebook(Config, globals())\nprint(config)",
    ]
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    document.cells[1].metadata["tags"] = ["parameters"]
    document.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(document, folder / "in.ipynb")
    return folder


def papermill(folder, *arguments):
    pytest.importorskip("papermill")
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "in.ipynb", "out.ipynb", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_papermill_runs_with_good_parameters(notebook):
    done = papermill(notebook, "-p", "dataset", "split_mnist", "-p", "seeds", "0:3", "-r", "epochs", "7")
    assert done.returncode == 0, done.stderr
    assert "dataset='split_mnist', seeds=(0, 1, 2), device='cpu', epochs=7" in (notebook / "out.ipynb").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "epoch", "3"], "there is no parameter 'epoch' (did you mean 'epochs'?); there are dataset, seeds,"),
        (["-p", "epochs", "many"], "epochs='many' is not a whole number or none"),
        (["-y", "seeds: [0, 0]"], "seeds=(0, 0): 0 is there twice; seeds are whole numbers from 0, each given once"),
        (["-p", "device", "cuda:99"], "device='cuda:99' is not there; torch"),
        (["-p", "dataset", "split_minst"], "(did you mean 'split_mnist'?)"),
    ],
)
def test_papermill_ends_with_one_clear_line(notebook, arguments, message):
    done = papermill(notebook, *arguments)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-2:]
    assert last[0].startswith("Exception encountered at"), done.stderr
    assert last[1].startswith("ParameterError: ") and message in last[1]
