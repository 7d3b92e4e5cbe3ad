"""The project's files agree with one another, and the package keeps to its layers."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "paper_lib"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}

# The rooms, each with those that it may not look into.
LATER = {"rows", "sweep", "runs", "tables", "paper", "plan", "experiments", "analysis", "plots", "notebook", "cli"}
FORWARD = {
    **{room: {"methods", *LATER} for room in ("data", "inference", "networks", "metrics")},
    "methods": LATER,
    "analysis": {"methods", *LATER} - {"analysis"},
    "rows": {"sweep", "runs", "tables", "paper", "plan", "experiments", "plots", "notebook", "cli"},
    "runs": {"sweep", "tables", "paper", "plan", "experiments", "plots", "notebook", "cli"},
    "sweep": {"tables", "paper", "plan", "experiments", "plots", "notebook", "cli"},
    "tables": {"paper", "plan", "experiments", "plots", "notebook", "cli"},
    "plots": {"methods", "networks"},
}


def modules(room: str = "") -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py")) if (PACKAGE / room).is_dir() else [PACKAGE / f"{room}.py"]


def imported(path: Path) -> set[str]:
    """The dotted names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "constraints.txt holds only NAME==VERSION lines and comments"
    return {canonicalize_name(match[1]): match[2] for match in matches}


def pip_block() -> list[str]:
    (block,) = (item["pip"] for item in ENVIRONMENT["dependencies"] if isinstance(item, dict))
    return block


@pytest.mark.parametrize("group", ["base", "book", "test", "browser", "flows", "sweep"])
def test_every_dependency_is_pinned_to_a_version_that_it_accepts(group):
    for line in PROJECT["dependencies"] if group == "base" else EXTRAS[group]:
        requirement = Requirement(line)
        version = pins().get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} has no line in constraints.txt"
        assert requirement.specifier.contains(version, prereleases=True), line


def test_conda_environment_installs_what_make_installs():
    """One list of requirements, in pyproject.toml: conda's pip reads it under the same constraints and extras."""
    (make,) = re.findall(r'--editable "(\.\[.+\])"', MAKEFILE)
    assert pip_block()[:2] == ["--constraint constraints.txt", f"--editable {make}"]
    conda = [Requirement(line.replace("=", "==", 1)) for line in ENVIRONMENT["dependencies"] if isinstance(line, str)]
    (python,) = (requirement for requirement in conda if requirement.name == "python")
    (specifier,) = python.specifier
    assert SpecifierSet(PROJECT["requires-python"]).contains(specifier.version)
    direct = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert not direct & {requirement.name for requirement in conda}, "versions are stated once, in pyproject.toml"


def test_the_papers_sampler_is_pinned_once_and_last():
    (requirement,) = EXTRAS["hamiltorch"]
    assert pip_block()[-1] == requirement
    assert re.search(r"@[0-9a-f]{40}$", requirement)
    assert "hamiltorch" not in " ".join(PROJECT["dependencies"])


def test_package_imports_only_what_it_declares():
    declared = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    optional = {canonicalize_name(Requirement(line).name) for lines in EXTRAS.values() for line in lines}
    for path in modules():
        roots = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names) - {"", "paper_lib"}
        for name in roots:
            distribution = canonicalize_name(DISTRIBUTIONS.get(name, name))
            assert distribution in declared | optional, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", FORWARD)
def test_imports_go_forward(room):
    for path in modules(room):
        rooms = {name.split(".")[1] for name in imported(path) if name.startswith("paper_lib.")}
        assert not rooms & FORWARD[room], path.relative_to(ROOT)


def test_computing_needs_no_plotting_and_no_notebook():
    """On a machine for computing, torch, numpy, scikit-learn, pandas and tqdm are enough to import what computes."""
    absent = [
        "matplotlib",
        "pooch",
        "platformdirs",
        "IPython",
        "jupytext",
        "papermill",
        "nbformat",
        "zuko",
        "tyro",
        "arviz_stats",
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules()]
    drawing = {"paper_lib.plots", "paper_lib.plots_sampling", "paper_lib.schematics"}
    names = [name.removesuffix(".__init__") for name in names if name not in drawing]
    code = (
        f"import importlib, sys\nfor name in {absent}: sys.modules[name] = None\n"
        f"for name in {names}: importlib.import_module(name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_binder_installs_the_package_and_what_a_chapter_needs():
    """Its two files take what is pinned and declared, and the Python that the other environments have."""
    lines = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert (ROOT / "binder" / lines[-2].removeprefix("--constraint ")).resolve() == ROOT / "constraints.txt"
    (extras,) = re.fullmatch(r"--editable \.\[(.+)\]", lines[-1]).groups()
    assert {"book", "flows"} <= set(extras.split(",")) <= set(EXTRAS)
    runtime = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8").strip()
    assert runtime.replace("-", "=") in ENVIRONMENT["dependencies"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_call_what_is_there(path):
    """The make targets, the files whose changes empty the cache and the folder that is published."""
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
        runs = [step["run"] for step in job["steps"] if "run" in step]
        for axis, values in job.get("strategy", {}).get("matrix", {}).items():
            runs = [run.replace(f"${{{{ matrix.{axis} }}}}", value) for run in runs for value in values]
        called = [re.match(r"make ([a-z]+)", run)[1] for run in runs]
        assert called[0] == "install" and set(called) <= targets
        for arguments in (step.get("with", {}) for step in job["steps"]):
            assert all((ROOT / file).is_file() for file in arguments.get("cache-dependency-path", "").split())
            assert arguments.get("path", "book/_build/html") == "book/_build/html"  # where scripts/book.py puts it
            assert arguments.get("python-version", "3.11") in PROJECT["requires-python"]


def test_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"message", "title", "authors", "references"} <= set(citation)
    assert citation["references"][0]["doi"] == "10.3390/e25060884"


def test_readme_names_commands_that_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", readme))
    assert {"reproduce", "test", "check"} <= named <= targets
    for file in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / file).exists(), file


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a git checkout")
def test_committed_files_know_no_machine():
    """No path of somebody's machine; the folder beside a checkout is named by the CI script and this test alone."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    private = re.compile(r"\.\./" + r"shared\b|/(home|Users|root|work)/\w")
    for name in listed.splitlines():
        path = ROOT / name
        if name == ".ci/run" or name.startswith("book/assets/") or path.is_symlink() or not path.is_file():
            continue
        if path.suffix in {".py", ".md", ".yml", ".toml", ".cfg", ".cff", ".txt", ".ipynb", ".csv", ""}:
            found = private.search(path.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found[0]}"
