"""The closed-form chapters take every value that their parameters allow: each cell runs, and what it shows is drawn."""

from __future__ import annotations

import ast
import functools
import pkgutil
import re
from typing import Any

import jupytext
import notebooks
import pytest
from IPython.display import Markdown
from matplotlib.figure import Figure

from paper_lib import analysis, cli, runs, schematics
from paper_lib.analysis import filter_derivation
from paper_lib.checks import ParameterError

# Sizes that a chapter does not list as parameters, made small.
SMALL = {
    "scenarios": {"dataset": "split_digits"},
    "misspecification": {"num_restarts": 2, "num_iterations": 5, "num_test": 50, "seeds": [0]},
    "protocl_derivation": {"num_urns": 50_000, "num_draws": 2_000, "num_points": 64, "dims": (1, 3)},
    "errata": {"num_draws": 500},
    "task_imbalance": {
        "num_first": (2, 5),
        "seeds": [0],
        "rows": ["imbalance_sgd"],
    },
}
VALUES: dict[str, list[dict[str, Any]]] = {
    "scenarios": [
        {},
        {"dataset": "auto"},
        {"num_examples": 1},
        {"num_examples": 10},
        {"num_tasks": 1},
        {"num_tasks": 60},
        {"num_points": 1},
        {"num_points": 1, "num_tasks": 1},
        {"num_points": 500},
        {"noise_precision": 1e-4},
        {"noise_precision": 1e6},
        {"seed": 12345},
    ],
    "misspecification": [
        {},
        {"num_points": 1},
        {"num_points": 2000},
        {"noise_precision": 1},
        {"noise_precision": 1e-3},
        {"noise_precision": 1e5},
        {"prior_var": 1e-6},
        {"prior_var": 1e6},
        {"num_experts": 1},
        {"num_experts": 8},
        {"seeds": [7]},
        {"seeds": "0:3"},
        {"num_points": 1, "num_experts": 1, "noise_precision": 1},
    ],
    "protocl_derivation": [
        {},
        {"num_classes": 1},
        {"num_classes": 2},
        {"num_classes": 100},
        {"concentration": 1e-3},
        {"concentration": 1e4},
        {"noise_var": 1e-4},
        {"noise_var": 1e4},
        {"precision": 1e-4},
        {"precision": 1e6},
        {"embedding_dim": 1},
        {"embedding_dim": 256},
        {"shared": [2, 4]},
        {"shared": 3},
        {"shared": [64, 1, 1]},
        {"seed": 3},
    ],
    "errata": [
        {},
        {"num_steps": 1},
        {"num_steps": 300},
        {"reversion": 1e-3},
        {"reversion": 0.5},
        {"reversion": 0.99},
        {"num_draws": 2},
        {"num_draws": 5_000},
        {"seed": 1},
        {"seed": 99, "num_steps": 3, "reversion": 0.9},
    ],
    "task_imbalance": [
        {},
        {"degrees": 0},
        {"degrees": 45.5},
        {"degrees": 180},
        {"max_ratio": 1},
        {"max_ratio": 15},
        {"reversion": 0},
        {"reversion": 0.99},
        {"eta_var": 0},
        {"eta_var": 100},
        {"scenario": "class_incremental"},
        {"rows": ["imbalance_joint", "imbalance_vcl"]},
        {"seeds": [3, 1]},
    ],
}
CASES = [(name, values) for name, grid in VALUES.items() for values in grid]


@pytest.fixture(scope="module")
def kept():
    """What does not depend on a chapter's parameters, computed once for all cases."""
    return {
        (module, name): functools.cache(getattr(module, name))
        for module, name in (
            (schematics, "hmc_propagation"),
            (schematics, "protocl_model"),
            (filter_derivation, "run"),
            (runs, "stored"),
        )
    }


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch, kept):
    monkeypatch.setenv("PAPER_LIB_RUNS", str(tmp_path))
    for place, function in kept.items():
        monkeypatch.setattr(*place, function)


def run_chapter(name: str, values: dict[str, Any]) -> list[object]:
    """Execute a chapter's cells in order with other parameters, as papermill would, and collect what they show."""
    namespace: dict[str, Any] = {}
    shown = []
    for cell in jupytext.read(notebooks.NOTEBOOKS / f"{name}.py").cells:
        if cell.cell_type != "code":
            continue
        body = ast.parse(cell.source).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), namespace)
        if "parameters" in cell.metadata.get("tags", []):
            assert set(values) <= set(namespace)
            namespace |= SMALL[name] | values
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), name, "eval"), namespace))
    return shown


@pytest.mark.parametrize("name, values", CASES, ids=[f"{name}-{values}" for name, values in CASES])
def test_every_allowed_value_runs_and_is_drawn(name, values):
    shown = run_chapter(name, values)
    figures = [item for item in shown if isinstance(item, Figure)]
    assert figures
    for figure in figures:
        figure.draw_without_rendering()  # a layout that does not fit warns, and so fails
    others = [item for item in shown if not isinstance(item, Figure)]
    texts = [item.data if isinstance(item, Markdown) else item._repr_html_() for item in others]
    assert not any(re.search(r"\bnan\b|NaN", text) for text in texts)


@pytest.mark.parametrize(
    "name, values, said",
    [
        ("scenarios", {"num_examples": 11}, "num_examples=11 is not at least 1 and at most 10"),
        ("misspecification", {"num_experts": 0}, "num_experts=0 is not at least 1"),
        ("protocl_derivation", {"shared": []}, "shared=0 is not at least 1"),
        ("errata", {"reversion": 1}, "reversion=1.0 is not above 0 and below 1"),
        ("task_imbalance", {"max_ratio": 0.5}, "max_ratio=0.5 is not at least 1"),
        ("task_imbalance", {"rows": ["imbalance_sdg"]}, "did you mean 'imbalance_sgd'"),
    ],
)
def test_any_other_value_is_one_line(name, values, said):
    with pytest.raises(ParameterError, match=re.escape(said)):
        run_chapter(name, values)


def test_chapters_have_no_asserts_and_fold_all_code_but_the_parameters():
    for name in VALUES:
        for cell in jupytext.read(notebooks.NOTEBOOKS / f"{name}.py").cells:
            if cell.cell_type == "code":
                assert "assert" not in cell.source
                assert cell.metadata.get("tags") in (["parameters"], ["hide-input"]), cell.source


def test_every_closed_form_chapter_runs_from_the_command_line_as_well(capsys):
    names = [module.name for module in pkgutil.iter_modules(analysis.__path__)]
    assert set(names) <= set(cli.chapters())
    assert cli.main(["list", *names]) == 0
    assert cli.main(["run", "weight_filter", "num_first=2", "max_ratio=1"]) == 0
    assert "num_second" in capsys.readouterr().out
