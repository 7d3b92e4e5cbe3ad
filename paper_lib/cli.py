"""The command line: run experiments, fetch data and tabulate stored runs, without Jupyter.

``paper-lib run protocl dataset=split_mnist preset=paper seeds=0:10`` does what the notebook does with the same
parameters. What a user can put right ends with one line on stderr and status 2; all else shows where it happened.
"""

from __future__ import annotations

import argparse
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from paper_lib.checks import near_match, one_of

if TYPE_CHECKING:
    import pandas as pd

# Modules of the package are imported where they are used: they load torch, and the help should not wait for it.


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say (the process's own if None) and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:
        print("paper-lib: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        message = _for_the_user(error)
        if message is None or options.traceback:
            raise
        print(f"paper-lib: {message}", file=sys.stderr)
        return 2


def _for_the_user(error: Exception) -> str | None:
    """The message of an error that a user can put right, else None."""
    if isinstance(error, ValueError | OSError):
        return " ".join(str(error).split())
    # A data error lists every address that was tried and how to place files by hand: lines worth keeping. Whoever
    # raised it has imported its module, so this costs nothing.
    vision = sys.modules.get("paper_lib.data.vision")
    return str(error) if vision and isinstance(error, vision.DataError) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paper-lib", description="Experiments of the book, their data and tables.")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run an experiment and print its scores")
    run.add_argument("experiment", metavar="EXPERIMENT", help="one of paper-lib list")
    run.add_argument("parameters", metavar="key=value", nargs="*", help="such as dataset=split_mnist seeds=0:10")
    run.set_defaults(command=_run)

    show = commands.add_parser("list", help="list experiments and their parameters")
    show.add_argument("experiments", metavar="EXPERIMENT", nargs="*", help="default: all")
    show.set_defaults(command=_list)

    tabulate = commands.add_parser("tabulate", help="merge an experiment's stored runs into its table under results/")
    tabulate.add_argument("experiment", metavar="EXPERIMENT", help="one of paper-lib list")
    tabulate.set_defaults(command=_tabulate)

    data = commands.add_parser("data", help="published data sets: where they are, download, check")
    data.add_argument("action", choices=("status", "fetch", "verify"))
    data.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    data.set_defaults(command=_data)
    return parser


def experiment_names() -> list[str]:
    """Names of the modules of ``paper_lib.experiments`` and ``paper_lib.analysis``."""
    from paper_lib import analysis, experiments

    return sorted(module.name for module in pkgutil.iter_modules([*experiments.__path__, *analysis.__path__]))


def _experiment(name: str) -> ModuleType:
    one_of("experiment", name, experiment_names())
    room = "analysis" if importlib.util.find_spec(f"paper_lib.analysis.{name}") else "experiments"
    return importlib.import_module(f"paper_lib.{room}.{name}")


def _run(options: argparse.Namespace) -> int:
    from paper_lib.notebook import config_from

    module = _experiment(options.experiment)
    _report(module.run(config_from(module.Config, _assignments(options.parameters))))
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
    """Print an experiment's result: the summary of a table of accuracies, and other tables as they are."""
    import pandas as pd

    from paper_lib.metrics import GROUP, summary_table

    if not isinstance(result, pd.DataFrame):
        for name, part in getattr(result, "_asdict", dict)().items():
            if isinstance(part, pd.DataFrame):
                print(f"{name}\n{part.to_string(index=False, max_rows=60)}\n")
    elif set(GROUP) <= set(result.columns) and (result["metric"] == "accuracy").any():
        print("percent, mean ± sd over seeds (number of seeds)")
        print(score_lines(summary_table(result)))
    else:
        print(result.to_string(index=False, max_rows=60))


def score_lines(table: pd.DataFrame) -> str:
    """A summary table as text, one line a method and setting and one column a metric."""
    by = [name for name in table.columns[: list(table.columns).index("metric")] if name != "experiment"]
    cells = [
        f"{100 * mean:.2f} ± {100 * sd:.2f} ({n})" if n > 1 else f"{100 * mean:.2f} (1)"
        for mean, sd, n in zip(table["mean"], table["sd"], table["n"], strict=True)
    ]
    wide = table.assign(cell=cells).pivot(index=by, columns="metric", values="cell")
    shown = [m for m in ("final_accuracy", "triangle_mean", "learning_accuracy") if m in wide.columns]
    order = list(dict.fromkeys(table[by].itertuples(index=False, name=None)))
    return wide.loc[order, shown].fillna("").reset_index().rename_axis(columns=None).to_string(index=False)


def _list(options: argparse.Namespace) -> int:
    import dataclasses
    import inspect

    for name in options.experiments or experiment_names():
        module = _experiment(name)
        print(f"{name}: {(inspect.getdoc(module) or '').partition(chr(10))[0]}")
        if hasattr(module, "Config"):
            for field in dataclasses.fields(module.Config):
                print(f"    {field.name}={_as_word(field)}  {_described(module.Config, field.name)}".rstrip())
    return 0


def _as_word(field: Any) -> str:
    """A field's default as the command line would give it."""
    import dataclasses

    if field.default is dataclasses.MISSING:
        return "..."
    return ",".join(map(str, field.default)) if isinstance(field.default, tuple) else str(field.default)


def _described(config_type: type, name: str) -> str:
    """What the class's docstring says of a field under ``Attributes``."""
    import inspect

    words: list[str] = []
    for line in inspect.getdoc(config_type).splitlines():
        if line.startswith(f"    {name}: "):
            words = [line.partition(": ")[2]]
        elif words and line.startswith("        "):
            words.append(line.strip())
        elif words:
            break
    return " ".join(words)


def _tabulate(options: argparse.Namespace) -> int:
    from paper_lib import runs

    one_of("experiment", options.experiment, experiment_names())
    print(runs.tabulate(options.experiment))
    return 0


def _data(options: argparse.Namespace) -> int:
    """Status 1 if a file is not what it should be, or one that was asked for by name is not there."""
    from paper_lib.data import vision

    for name in options.names:
        if name not in vision.NAMES:
            near = near_match(name, vision.NAMES)
            raise ValueError(f"there is no data set {name!r}{near}; there are {', '.join(vision.NAMES)}")
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
