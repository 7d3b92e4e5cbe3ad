"""The command line: run rows and chapters, look at stored results, fetch data, without Jupyter.

``paper-lib run protocl dataset=split_mnist preset=paper seeds=0:10`` runs what the chapter runs with these parameters,
and ``paper-lib run rows=replay,joint dataset=split_mnist`` any rows of ``paper_lib/rows.py``. What a user can put right
ends with one line on stderr and status 2; all else shows where it happened.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from paper_lib.checks import one_of

if TYPE_CHECKING:
    import pandas as pd

    from paper_lib.sweep import Selection

# Modules of the package are imported where they are used: they load torch, and the help should not wait for it.


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say (the process's own if None) and return the exit status."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(options, "options") or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # of words on both sides of an option argparse takes those on one
        options.options += rest
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a finished run does not end in a sign that a terminal lacks
    try:
        status = options.command(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("paper-lib: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        message = _for_the_user(error)
        if message is None or options.traceback:
            raise
        print(f"paper-lib: {message}", file=sys.stderr)
        return 2


def _for_the_user(error: Exception) -> str | None:
    """The message of an error that a user can put right, else None."""
    if isinstance(error, ValueError | OSError):
        return " ".join(str(error).split()) + _unintended(error)
    # A data error lists every address that was tried and how to place files by hand: lines worth keeping. Whoever
    # raised it has imported its module, so this costs nothing.
    vision = sys.modules.get("paper_lib.data.vision")
    return str(error) if vision and isinstance(error, vision.DataError) else None


def _unintended(error: Exception) -> str:
    """Where an error came about that no ``raise`` of this package made: the fault may be in a new method's code."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = Path(last.filename).is_relative_to(Path(__file__).parent)
    if isinstance(error, OSError) or (ours and (last.line or "").startswith("raise")):
        return ""
    return f" ({last.filename}, line {last.lineno}; `paper-lib --traceback ...` shows how it came to that)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paper-lib", description="Experiments of the book, their data and tables.")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run rows, or what a chapter runs, and print the scores")
    run.add_argument(
        "parameters",
        metavar="CHAPTER or key=value",
        nargs="+",
        help="a chapter of paper-lib list, and parameters such as dataset=split_mnist seeds=0:10 rows=replay epochs=3",
    )
    run.set_defaults(command=_run)

    swept = commands.add_parser("sweep", help="run a plan's pieces with Snakemake, those that are done left out")
    swept.add_argument("plan", metavar="PLAN", help="a name of plans/, such as quick, or the path of a file")
    swept.add_argument("--dry-run", action="store_true", help="say what would run, and how long by earlier runs")
    swept.add_argument("--missing", action="store_true", help="only what the tables under results/ lack")
    swept.add_argument(
        "options",
        metavar="key=value",
        nargs="*",
        default=[],
        help="profile=local, gpus, slurm or a folder, and Snakemake's own such as cores=2, jobs=100, resources=gpu=4",
    )
    swept.set_defaults(command=_sweep)

    show = commands.add_parser("list", help="list chapters and rows, or what one of them takes")
    show.add_argument(
        "names", metavar="NAME", nargs="*", help="a chapter or a row, also with dataset= and preset=; default: all"
    )
    show.set_defaults(command=_list)

    results = commands.add_parser("results", help="the stored results: what there is, what is lacking, exports")
    results.add_argument("action", choices=("list", "missing", "export"))
    results.add_argument(
        "parameters",
        metavar="key=value",
        nargs="*",
        help="dataset=..., row=..., scenario=... and other columns; of export also format=csv, latex or json",
    )
    results.set_defaults(command=_results)

    tabulate = commands.add_parser("tabulate", help="merge runs into the tables under results/")
    tabulate.add_argument("table", metavar="DATASET", nargs="?", help="such as split_mnist; default: all")
    tabulate.set_defaults(command=_tabulate)

    data = commands.add_parser("data", help="published data sets: where they are, download, check")
    data.add_argument("action", choices=("status", "fetch", "verify"))
    data.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    data.set_defaults(command=_data)
    return parser


def chapters() -> dict[str, str]:
    """Chapters that can be run without their notebook, and the module of each.

    They say what they run as ``LIVE`` or take a ``Config``; modules are not imported to find that out.
    """
    from paper_lib import analysis, experiments

    return {
        module.name: f"{package.__name__}.{module.name}"
        for package in (experiments, analysis)
        for module in pkgutil.iter_modules(package.__path__)
        if re.search(r"^(LIVE|class Config)\b", _source(module), re.M)
    }


def _source(module: pkgutil.ModuleInfo) -> str:
    return Path(module.module_finder.path, f"{module.name}.py").read_text(encoding="utf-8")


def _chapter(name: str) -> ModuleType:
    from paper_lib.rows import ROWS

    if name in ROWS and name not in chapters():
        raise ValueError(f"{name} is a row: paper-lib run rows={name}")
    return importlib.import_module(chapters()[one_of("chapter", name, chapters())])


def _run(options: argparse.Namespace) -> int:
    import functools

    from paper_lib import sweep
    from paper_lib.notebook import config_from, field_types, selection_from

    words = options.parameters
    named = words[0] if "=" not in words[0] else None
    values = _assignments(words[1:] if named else words)
    if named is None:
        if "rows" not in values:
            raise ValueError("give a chapter of paper-lib list, or rows=..., such as rows=replay,joint")
        return _run_rows(sweep.run, selection_from(sweep.Selection(), values))
    module = _chapter(named)
    if hasattr(module, "LIVE"):
        run = getattr(module, "run", sweep.run)
        if hasattr(module, "Sizes"):  # of the chapter's own, beside what a selection has
            own = {name: values.pop(name) for name in field_types(module.Sizes) if name in values}
            run = functools.partial(run, sizes=config_from(module.Sizes, own))
        return _run_rows(run, selection_from(module.LIVE, values))
    _report(module.run(config_from(module.Config, values)))
    return 0


def _run_rows(run: Callable[[Selection], Any], selection: Selection) -> int:
    from paper_lib import sweep

    _report(run(selection))
    if sweep.is_look(selection):
        print(f"{' '.join(sweep.title(selection).split())}; no result")
    return 0


def _assignments(words: Sequence[str]) -> dict[str, str]:
    """Names and values of ``key=value`` words."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and name):
            raise ValueError(f"{word!r} is not of the form key=value, such as seeds=0:10")
        if name in values:
            raise ValueError(f"{name} is given twice, as {values[name]!r} and {value!r}")
        values[name] = value
    return values


def _report(result: Any) -> None:
    """Print a result: the summary of a table of scores, and other tables and curves as they are."""
    import pandas as pd

    from paper_lib import runs, tables

    if isinstance(result, dict):
        for name, curve in result.items():
            print(f"{name}: mean over seeds at the end {curve.mean(0)[-1].round(4).tolist()}")
    elif not isinstance(result, pd.DataFrame):
        for name, part in getattr(result, "_asdict", dict)().items():
            if isinstance(part, pd.DataFrame):
                print(f"{name}\n{part.to_string(index=False, max_rows=60)}\n")
    elif set(runs.COLUMNS) <= set(result.columns):
        print("percent, mean ± sd over seeds")
        print(score_lines(tables.summary(result)))
    else:
        plain = result.drop(columns="colour", errors="ignore")
        print(plain.to_string(index=plain.index.name is not None, max_rows=60))


def score_lines(summary: pd.DataFrame) -> str:
    """``tables.summary`` as text, one line a row and setting; columns that are the same in all lines are left out."""
    import pandas as pd

    from paper_lib import tables

    shown = pd.DataFrame(index=summary.index)
    for name in ("row", "dataset", "scenario", "split", "preset", "changes"):
        if name == "row" or summary[name].nunique() > 1 or (name in ("dataset", "scenario")):
            shown[name] = summary[name]
    for name in ("final_accuracy", "triangle_mean"):
        pairs = zip(summary[name], summary[f"{name} sd"], strict=True)
        shown[name.replace("_", " ")] = [tables.plus_minus(mean, sd) for mean, sd in pairs]
    shown["seeds"] = summary.n
    if summary.diverged.any():
        shown["diverged"] = summary.diverged
    return shown.to_string(index=False)


def _list(options: argparse.Namespace) -> int:
    import inspect

    from paper_lib.data.stream import DATASETS
    from paper_lib.rows import ROWS
    from paper_lib.sweep import PRESETS

    values = _assignments([word for word in options.names if "=" in word])
    options.names = [word for word in options.names if "=" not in word]
    for name, value in values.items():
        one_of(name, value, {"dataset": DATASETS, "preset": PRESETS}[one_of("column", name, ("dataset", "preset"))])
    if values and not (options.names and "dataset" in values):
        raise ValueError("give a row and dataset=..., such as paper-lib list sfsvi dataset=split_mnist preset=paper")
    for name in options.names:
        one_of(*("row", name, ROWS) if values else ("name", name, [*chapters(), *ROWS]))
    for name in chapters() if not values else ():  # a chapter and a row may share a name
        if name in options.names or not options.names:
            module = _chapter(name)
            print(f"{name}: {(inspect.getdoc(module) or '').partition(chr(10))[0]}")
            if options.names:
                _print_parameters(module)
    for name, row in ROWS.items():
        if name in options.names or not options.names:
            print(f"{name}: {row.style.label}; {', '.join(row.scenarios)}; {', '.join(row.settings)}")
            if values:
                _print_values(name, values["dataset"], values.get("preset", "paper"))
            elif options.names:
                _print_settings(name)
    return 0


def _print_values(name: str, dataset: str, preset: str) -> None:
    """The settings with which a row runs on a data set."""
    from paper_lib.rows import ROWS
    from paper_lib.runs import STREAM_DEFAULTS

    method, stream = ROWS[name].build(dataset, preset, {})
    for setting in ROWS[name].takes:
        value = getattr(method, setting, stream.get(setting, STREAM_DEFAULTS.get(setting)))
        print(f"    {setting}={_as_word(value)}")


def _print_settings(name: str) -> None:
    """What a row takes, with the type's words and its description."""
    from functools import partial

    from paper_lib.data.stream import make_stream
    from paper_lib.notebook import in_words
    from paper_lib.rows import ROWS

    row = ROWS[name]
    made = row.make.func if isinstance(row.make, partial) else row.make
    for setting, hint in row.takes.items():
        words = _described(made, setting) or _described(make_stream, setting)
        print(f"    {setting}  {in_words(hint)}. {words}".rstrip())


def _print_parameters(module: ModuleType) -> None:
    import dataclasses

    config = type(module.LIVE) if hasattr(module, "LIVE") else module.Config
    for field in dataclasses.fields(config):
        default = getattr(module.LIVE, field.name) if hasattr(module, "LIVE") else field.default
        if field.name == "changes":
            print("    and settings that the rows take, such as epochs=3; see paper-lib list ROW")
            continue
        _print_field(config, field.name, default)
    for field in dataclasses.fields(module.Sizes) if hasattr(module, "Sizes") else ():
        _print_field(module.Sizes, field.name, field.default)


def _print_field(config: type, name: str, default: Any) -> None:
    from paper_lib.notebook import field_types, in_words

    words = in_words(field_types(config)[name])
    print(f"    {name}={_as_word(default)}  {words}. {_described(config, name)}".rstrip())


def _as_word(value: Any) -> str:
    """A default as the command line would give it."""
    import dataclasses

    if value is dataclasses.MISSING:
        return "..."
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _described(documented: Any, name: str) -> str:
    """What the docstring of a class or function says of a field or an argument."""
    import inspect

    words: list[str] = []
    for line in inspect.getdoc(documented).splitlines():
        if line.startswith(f"    {name}: "):
            words = [line.partition(": ")[2]]
        elif words and line.startswith("        "):
            words.append(line.strip())
        elif words:
            break
    return " ".join(words)


def _sweep(options: argparse.Namespace) -> int:
    """Hand a plan to Snakemake, or say what it would run."""
    import importlib.util
    import json
    import subprocess

    from paper_lib import plan, runs
    from paper_lib.files import FOLDER_VARIABLE, write_whole

    values = {"profile": "local"} | _assignments(options.options)
    pieces = plan.load(options.plan).pieces(options.missing)
    if options.dry_run:
        left = [(piece, piece.seconds()) for piece in pieces if not plan.stamp(piece).exists()]
        for piece, seconds in left:
            print(f"{plan.in_words(seconds):>17}  {piece.command}")
        known = [seconds for _, seconds in left if seconds is not None]
        words = [f"{len(left)} of {len(pieces)} pieces to run"]
        words += [f"{plan.in_words(sum(known))} one after another"] * bool(known or not left)
        words += [f"{len(left) - len(known)} that nobody has run yet"] * (len(left) > len(known))
        print(f"{words[0]}: {', and '.join(words[1:])}")
        return 0
    if importlib.util.find_spec("snakemake") is None:
        raise ValueError("sweeps need Snakemake: pip install --constraint constraints.txt --editable '.[sweep]'")
    root = plan.PLANS.parent
    if (root / "profiles" / values["profile"]).is_dir():
        values["profile"] = str(root / "profiles" / values["profile"])
    # What is missing changes with the tables, and jobs on other nodes plan anew: they all read one list.
    chosen = plan.folder().resolve() / f"pieces-{runs.key_of({'names': [piece.name for piece in pieces]})}.json"
    if not chosen.exists():
        write_whole(chosen, json.dumps(plan.listed(pieces), indent=1))
    words = [word for name, value in values.items() for word in (f"--{name}", *value.split())]
    words += ["--config", f"pieces={chosen}"]
    here = os.environ | {FOLDER_VARIABLE: str(runs.folder().resolve())}  # Snakemake starts in another folder
    return subprocess.run([sys.executable, "-m", "snakemake", *words], cwd=root, env=here).returncode


def _results(options: argparse.Namespace) -> int:
    """Stored results: a line a row; what the paper's plan lacks, as commands; or all of them in a file format."""
    from functools import partial

    import pandas as pd

    from paper_lib import plan, runs, tables
    from paper_lib.data.stream import DATASETS, EVAL_SPLITS, SCENARIOS
    from paper_lib.rows import ROWS
    from paper_lib.sweep import PRESETS

    values = _assignments(options.parameters)
    if options.action != "export" and "format" in values:
        raise ValueError(f"format={values['format']} is of results export; {options.action} prints text")
    form = one_of("format", values.pop("format", "csv"), ("csv", "latex", "json"))
    allowed = {"row": ROWS, "dataset": DATASETS, "scenario": SCENARIOS, "split": EVAL_SPLITS, "preset": PRESETS}
    for name, value in values.items():
        one_of("column", name, runs.NAMES)
        for one in value.split(",") if name in allowed else ():
            one_of(name, one, allowed[name])
    if options.action == "missing":
        wholes = [one for one in plan.load("paper").wholes() if one.has(values)]
        if not wholes:
            raise ValueError(f"plans/paper.py asks for nothing of {' '.join(options.parameters)}")
        commands = [left.command for one in wholes if (left := one.missing())]
        print("\n".join(commands) or "the tables hold all of that kind that plans/paper.py asks for")
        return 0
    parts = [runs.stored(name) for name in runs.table_names()]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=runs.COLUMNS)
    for name, value in values.items():
        table = table[table[name].isin(plan.alternatives(name, value))]
    if options.action == "list":
        print(score_lines(tables.summary(table)) if len(table) else "no stored results of that kind")
        return 0
    summary = tables.summary(table).round(4)
    write = {
        "csv": summary.to_csv,
        "latex": partial(summary.to_latex, escape=True, float_format="%.2f", na_rep="--"),
        "json": lambda index: summary.to_json(orient="records"),
    }
    print(write[form](index=False))
    return 0


def _tabulate(options: argparse.Namespace) -> int:
    from paper_lib import runs

    for path in runs.tabulate(options.table):
        print(path)
    return 0


def _data(options: argparse.Namespace) -> int:
    """Status 1 if a file is not what it should be, or one that was asked for by name is not there."""
    from paper_lib.data import vision

    for name in options.names:
        one_of("data set", name, vision.NAMES)
    failed = False
    for name in options.names or vision.NAMES:
        rows = {
            "status": vision.status,
            "verify": vision.verify,
            "fetch": lambda name: vision.fetch(name, progress=sys.stderr.isatty()),
        }[options.action](name)
        print(f"{name} in {rows[0].folder}", flush=True)
        for row in rows:
            print(f"    {row.state:9} {row.part:8} {row.detail}", flush=True)
            failed |= row.state == "rejected" or (row.state == "missing" and bool(options.names))
    return int(failed and options.action != "status")


if __name__ == "__main__":
    sys.exit(main())
