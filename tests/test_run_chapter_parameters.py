"""The chapters that run rows take every documented parameter: their cells, with other values, at tiny sizes.

Cells after the live run show stored results and depend on no parameter, so they are not run here: nbval does.
"""

from __future__ import annotations

import ast
import os

import jupytext
import notebooks
import pytest
from papermill.inspection import _infer_parameters

from paper_lib.checks import ParameterError
from paper_lib.notebook import INJECTED

CHAPTERS = ("metrics", "vcl_split_mnist", "class_incremental", "protocl", "protocl_memory", "protocl_dirichlet")
TINY = {"seeds": 0, "epochs": 1}
ONE_HEAD = ["sgd_single_head", "vcl_single_head", "joint_unit"]
TOY_ROWS = ["sgd_single_head", "joint_unit", "single_task"]

TAKEN = {
    "metrics": [
        {},
        {"scenario": "domain_incremental"},
        {"scenario": "task_incremental", "seeds": "0:2"},
        {"dataset": "toy_pan", "scenario": "domain_incremental", "rows": TOY_ROWS},
        {"dataset": "toy_gaussians", "scenario": "task_incremental", "rows": ["joint_unit", "single_task"]},
        {"rows": "single_task"},
        {"rows": ["sgd", "replay", "protocl"], "seeds": [3, 1]},
        {"split": "validation"},
        {"preset": "paper", "learning_rate": "1e-2"},
    ],
    "vcl_split_mnist": [
        {},
        {"scenario": "class_incremental", "rows": ONE_HEAD},
        {"scenario": "domain_incremental", "rows": ONE_HEAD, "seeds": "0:2"},
        {"scenario": "task_incremental", "rows": ["vcl_multi_head", "joint_unit", "single_task"]},
        {"dataset": "toy_pan"},
        {"dataset": "toy_gaussians", "scenario": "domain_incremental", "rows": "vcl_single_head,vcl_coreset"},
        {"rows": ["vcl_single_head"], "batch_size": 7},
        {"rows": ["vcl_coreset", "vcl_coreset_k_centre"], "coreset_per_task": 1},
        {"rows": ["vcl_ddm", "vcl_improved", "vcl_multi_head_reference", "sgd_multi_head_reference"]},
        {"split": "validation", "learning_rate": 0.1},
        {"preset": "paper", "rows": ["sgd_single_head_long", "sgd_multi_head_long"]},
    ],
    "class_incremental": [
        {},
        {"scenario": "domain_incremental"},
        {"scenario": "task_incremental", "rows": ["sgd", "vcl_coreset", "replay", "protocl", "joint"]},
        {"rows": "sgd", "seeds": [5]},
        {"memory_per_task": 0, "coreset_per_task": 1},
        {"rows": ["vcl_coreset_k_centre", "vcl_coreset"], "coreset_per_task": 3, "seeds": "0:2"},
        {"split": "validation", "rows": ["vcl_single_head", "joint"]},
        {"preset": "paper", "learning_rate": 0.01, "rows": ["protocl", "protocl_as_published"]},
        {"memory_per_task": 10**6, "rows": ["replay", "protocl"]},
    ],
    "protocl": [
        {},
        {"memory_per_task": 0},
        {"memory_per_task": 1, "batch_size": 1000},
        {"rows": ["sgd"]},
        {"scenario": "domain_incremental", "evidence_mode": "recompute_each_epoch"},
        {"scenario": "task_incremental", "evidence_mode": "recompute_final", "class_prior": "uniform"},
        {"evidence_mode": "cumulative", "class_prior": "counts", "forget": 0.9},
        {"rows": ["protocl_paper_epochs", "protocl_as_published", "protocl_no_memory"], "dropout": 0.5},
        {"weight_decay": 0.1, "learning_rate": "1e-4", "seeds": "2:4"},
        {"split": "validation", "rows": "replay,joint"},
        {"preset": "paper"},
    ],
    "protocl_memory": [
        {},
        {"totals": [0]},
        {"totals": "1250,5"},
        {"rows": "replay", "replay_weight": 9, "totals": [50], "seeds": "0:2"},
        {"rows": ["protocl"], "oversample": False, "split": "validation"},
        {"preset": "paper", "learning_rate": 0.01, "totals": [10]},
    ],
    "protocl_dirichlet": [
        {},
        {"rows": "protocl", "forget": 0.9, "memory_per_task": 0},
        {"rows": ["protocl_paper_epochs", "protocl_no_memory"], "oversample": False},
        {"rows": ["protocl"], "evidence_mode": "recompute_each_epoch", "seeds": [3, 1]},
        {"rows": ["protocl_as_published"], "epochs": 2, "split": "validation"},
        {"preset": "paper", "epochs": 1},
    ],
}

REFUSED = {
    "metrics": [
        ({"dataset": "toy_pan", "scenario": "domain_incremental"}, r"row 'sgd' has no settings on dataset='toy_pan'"),
        ({"rows": ["sgd", "sgd"]}, "rows has 'sgd' twice"),
    ],
    "vcl_split_mnist": [
        ({"scenario": "class_incremental"}, r"cannot be served by 'sgd_multi_head'.*served by .*vcl_single_head"),
        ({"dataset": "toy_pan", "scenario": "class_incremental", "rows": ONE_HEAD}, "class_.*toy_pan.*domain_"),
        ({"coreset_per_task": 7}, r"coreset_per_task=7 changes no row .*; rows that take it are vcl_coreset"),
    ],
    "class_incremental": [
        ({"rows": ["vcl_multi_head"]}, "cannot be served by 'vcl_multi_head'.*task_incremental"),
        ({"rows": ["ewc"]}, "rows='ewc' is not one of"),
        ({"rows": ["vcl_corset"]}, r"did you mean 'vcl_coreset'\?"),
    ],
    "protocl": [
        ({"rows": ["replay"], "forget": 0.9}, r"forget=0.9 changes no row of replay; rows that take it are protocl"),
        ({"dataset": "toy_gaussians", "scenario": "task_incremental"}, "no settings on dataset='toy_gaussians'"),
        ({"evidence_mode": "cumulativ"}, r"did you mean 'cumulative'\?"),
        ({"seeds": "-1"}, "is negative"),
    ],
    "protocl_memory": [
        ({"totals": [7]}, "totals=7 is no multiple of 5, the tasks of split_digits"),
        ({"totals": [-5]}, "totals=-5 is not at least 0"),
        ({"totals": []}, "totals=.* is empty or has a number twice"),
        ({"rows": ["sgd"]}, "rows='sgd' is not one of protocl, replay"),
    ],
    "protocl_dirichlet": [
        ({"rows": ["protocl_as_published"], "evidence_mode": "recompute_final"}, "evidence_mode='recompute_final'"),
        ({"forget": 2}, "forget=2.0 is not at least 0 and at most 1"),
    ],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPER_LIB_RUNS", os.fspath(tmp_path))


def cells(chapter):
    """The code cells of a chapter up to its live run, and those after it."""
    notebook = jupytext.read(notebooks.NOTEBOOKS / f"{chapter}.py")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (live,) = (at for at, cell in enumerate(code) if "selection = from_notebook" in cell.source)
    return code[: live + 1], code[live + 1 :]


def live_figure(chapter, values):
    """What the live cell shows if papermill injects these values."""
    injected = INJECTED + "\n".join(f"{name} = {value!r}" for name, value in values.items())
    namespace = {"In": []}
    for cell in cells(chapter)[0]:
        tagged = "parameters" in cell.metadata.get("tags", ())
        for source in [cell.source, injected] if tagged else [cell.source]:
            *body, last = ast.parse(source).body
            namespace["In"].append(source)
            exec(compile(ast.Module(body, []), chapter, "exec"), namespace)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), chapter, "eval"), namespace)
            else:
                exec(compile(ast.Module([last], []), chapter, "exec"), namespace)
    return shown


@pytest.mark.parametrize(("chapter", "values"), [(c, values) for c in CHAPTERS for values in TAKEN[c]])
def test_a_documented_value_gives_a_figure(chapter, values):
    figure = live_figure(chapter, TINY | values)
    figure.draw_without_rendering()
    assert figure.axes


@pytest.mark.parametrize(("chapter", "values", "message"), [(c, *case) for c in CHAPTERS for case in REFUSED[c]])
def test_what_cannot_be_run_is_refused_in_one_line(chapter, values, message):
    with pytest.raises(ParameterError, match=message) as error:
        live_figure(chapter, TINY | values)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nothing_after_the_live_run_depends_on_a_parameter(chapter):
    before, after = cells(chapter)
    names = {n.id for cell in before[1:] for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Name)}
    names -= {n.id for n in ast.walk(ast.parse(before[0].source)) if isinstance(n, ast.Name)}
    stored = {n.asname or n.name for node in ast.parse(before[0].source).body for n in node.names}
    for cell in after:
        read = {n.id for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Name)}
        assert not read & (names - stored - {"zip"}), cell.source


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_papermill_tells_the_type_of_every_parameter(chapter):
    notebook = jupytext.read(notebooks.NOTEBOOKS / f"{chapter}.py")
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
    for other in notebook.cells:
        other.metadata.setdefault("tags", [])  # papermill expects them, as it reads notebooks alone
    found = _infer_parameters(notebook, name="python3", language="python")
    assert [p.name for p in found] == [line.split(":")[0] for line in cell.source.splitlines()]
    assert "None" not in {p.inferred_type_name for p in found} and all(p.help for p in found)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_code_is_folded_but_for_the_parameters_and_nothing_is_asserted(chapter):
    for cell in (cell for part in cells(chapter) for cell in part):
        assert set(cell.metadata.get("tags", ())) in ({"parameters"}, {"hide-input"}), cell.source
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(cell.source)))
