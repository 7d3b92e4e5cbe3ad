"""The notebooks as stored: pairs that agree, executed with one cell of parameters and no code of their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jupytext
import nbformat
import notebooks
import pytest

MAX_CELLS = 15
MAX_BYTES = 1_000_000
PARAMETER = re.compile(
    r"[a-z_][a-z0-9_]*: [a-z\[\]]+ = .+  # [^=]+"
)  # papermill shows the type; it reads no second "="
ABSOLUTE_PATH = re.compile(r"""["'](/|~/|[A-Za-z]:[\\/])""")

STORED = sorted(notebooks.NOTEBOOKS.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def parameters_cell(path: Path) -> nbformat.NotebookNode:
    (cell,) = (cell for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", []))
    return cell


def tree(cell: nbformat.NotebookNode) -> ast.Module:
    """The cell's syntax tree, without the lines that only IPython reads."""
    return ast.parse("\n".join(line for line in cell.source.splitlines() if not line.startswith("%")))


def assigned(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def test_every_notebook_is_a_pair():
    """Holds with no notebook as well, so that this file never passes by having nothing to say."""
    assert [path.stem for path in STORED] == notebooks.names(), "run `make notebooks`, or delete what lost its pair"


@each_notebook
def test_pair_holds_the_same_cells(path):
    def essence(notebook):
        return [(c.cell_type, c.source.rstrip(), sorted(c.metadata.get("tags", []))) for c in notebook.cells]

    source = essence(jupytext.read(path.with_suffix(".py")))
    assert essence(nbformat.read(path, as_version=4)) == source, f"make notebooks NOTEBOOK={path.stem}"


@each_notebook
def test_stored_executed_in_order(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells), "the outputs were cleared"
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output.ename for output in outputs if output.output_type == "error"]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]


@each_notebook
def test_every_figure_is_stored_once(path):
    """A figure is what a cell binds to ``figure`` or ``figure, axes``, or shows from ``plots`` as its last line."""
    for cell in code_cells(path):
        body = tree(cell).body
        drawn = sum("figure" in assigned(node) for node in body if isinstance(node, ast.Assign))
        if body and isinstance(body[-1], ast.Expr) and re.match(r"plots\.\w+\(", ast.unparse(body[-1])):
            drawn += 1
        stored = sum("image/png" in output.get("data", {}) for output in cell.outputs)
        assert stored == drawn, cell.source
        description = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        assert bool(description) == bool(drawn), f"a figure has an alternative text, see jupytext.toml: {cell.source}"


@each_notebook
def test_stored_outputs_are_plain(path):
    """What Jupyter Book renders without a warning and without a script from elsewhere."""
    allowed = {"text/plain", "text/html", "text/markdown", "text/latex", "image/png"}
    for cell in code_cells(path):
        for output in cell.outputs:
            kinds = {kind.removeprefix("application/papermill.record/") for kind in output.get("data", {})}
            assert kinds <= allowed, cell.source


@each_notebook
def test_small(path):
    assert path.stat().st_size < MAX_BYTES
    assert len(nbformat.read(path, as_version=4).cells) <= MAX_CELLS


@each_notebook
def test_metadata_belongs_to_nobody(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in notebook.metadata
    assert "version" not in notebook.metadata.language_info
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags", "mystnb"}, cell.source
        assert "raises-exception" not in cell.metadata.get("tags", []), "papermill stops at such a cell"


@each_notebook
def test_one_cell_of_literal_parameters(path):
    cell = parameters_cell(path)
    for line in cell.source.splitlines():
        assert PARAMETER.fullmatch(line), f"expected `name: type = literal  # what it is`, found: {line}"
        ast.literal_eval(ast.parse(line).body[0].value)


@each_notebook
def test_no_other_cell_assigns_a_parameter(path):
    parameters = parameters_cell(path)
    names = assigned(tree(parameters))
    for cell in code_cells(path):
        if cell.source != parameters.source:
            assert not assigned(tree(cell)) & names, cell.source


@each_notebook
def test_thin(path):
    """No definition, no loop and no absolute path: the package does the work."""
    banned = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.While)
    for cell in code_cells(path):
        for node in ast.walk(tree(cell)):
            assert not isinstance(node, banned), ast.unparse(node)
            if isinstance(node, ast.For):
                assert len(ast.unparse(node).splitlines()) <= 3, ast.unparse(node)
        assert not ABSOLUTE_PATH.search(cell.source), cell.source


@each_notebook
def test_starts_with_its_title(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# \S", first.source), "Jupyter Book takes the chapter's name from the first heading"


def test_store_is_repeatable_and_runs_what_the_source_says(tmp_path):
    """Stored again without a change, a notebook is the same bytes; after a change, its outputs are the new ones."""
    source = tmp_path / "small.py"
    source.write_text("# %% [markdown]\n# # Small\n\n# %%\nprint(6 * 7)\n", encoding="utf-8")
    notebooks.store("small", tmp_path)
    first = (tmp_path / "small.ipynb").read_bytes()
    notebooks.store("small", tmp_path)
    assert (tmp_path / "small.ipynb").read_bytes() == first

    source.write_text(source.read_text(encoding="utf-8").replace("6 * 7", "7 * 8"), encoding="utf-8")
    notebooks.store("small", tmp_path)
    (cell,) = code_cells(tmp_path / "small.ipynb")
    assert cell.outputs[0].text == "56\n"


def test_a_run_of_all_names_the_notebook_that_fails_and_its_error(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name, code in (("good", "print(6 * 7)"), ("bad", "1 / 0")):
        (folder / f"{name}.py").write_text(f"# %%\n{code}\n", encoding="utf-8")
        nbformat.write(
            nbformat.v4.new_notebook(
                cells=[nbformat.v4.new_code_cell(code)],
                metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            ),
            folder / f"{name}.ipynb",
        )
    monkeypatch.setattr(notebooks, "NOTEBOOKS", folder)
    notebooks.run_all(["good"], tmp_path / "out")
    assert "notebooks/good.ipynb: executed in" in capsys.readouterr().out and (tmp_path / "out" / "good.ipynb").exists()
    with pytest.raises(SystemExit, match=r"ZeroDivisionError(.|\n)*notebooks/bad.ipynb failed"):
        notebooks.run_all(["good", "bad"], tmp_path / "out")
