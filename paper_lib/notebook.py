"""From loosely typed parameters to a checked configuration: the border that notebooks and the command line share.

Papermill hands over whatever its command line made of a value (``-p seeds 0:10`` and ``-p flag false`` are strings,
``-y`` gives lists, ``-r`` strings only) and the command line hands over strings. Here each value becomes what its
field's type says, or an error of one line.
An experiment's own ``__post_init__`` checks what depends on its meaning. Tables as a chapter shows them are here too.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
import types
from collections.abc import Iterable, Mapping
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from paper_lib.checks import ParameterError, check_seeds, near_match

if TYPE_CHECKING:
    import pandas as pd

    from paper_lib.sweep import Selection

Config = TypeVar("Config")

MOST_SEEDS = 100_000
"""The longest list that ``start:stop`` may name."""

INJECTED = "# Parameters\n"
"""How the cell begins that papermill puts after a notebook's own parameters."""


def config_from(config_type: type[Config], values: Mapping[str, object]) -> Config:
    """A configuration from names and loosely typed values; fields that are not named keep their defaults.

    Args:
        config_type: a frozen dataclass whose fields are str, int, float, bool, ``Literal``, ``tuple[X, ...]`` or a
            union of these and None. What ``seeds`` and ``device`` name must be possible.
        values: field names and numbers, strings, lists or None. Lists may be strings: ``0,1,2``, ``[0, 1]``; of whole
            numbers also ``0:10``, without its end as in Python.

    Raises:
        ParameterError: a name or value that cannot be used; the message says what can.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Settings:
    ...     seeds: tuple[int, ...] = (0,)
    ...     epochs: int | None = None
    >>> config_from(Settings, {"seeds": "0:3", "epochs": "1e2"})
    Settings(seeds=(0, 1, 2), epochs=100)
    >>> config_from(Settings, {"epoch": 3})
    Traceback (most recent call last):
    ...
    paper_lib.checks.ParameterError: there is no parameter 'epoch' (did you mean 'epochs'?); there are seeds, epochs
    """
    hints = field_types(config_type)
    refuse_unknown(values, hints)
    for field in dataclasses.fields(config_type):
        if field.name in hints and field.name not in values and _has_no_default(field):
            raise ParameterError(f"{field.name} has no default; give {in_words(hints[field.name])}")
    chosen = {name: _checked(name, _coerce(name, value, hints[name])) for name, value in values.items()}
    try:
        return config_type(**chosen)
    except ValueError as error:
        raise ParameterError(error) from error


def selection_from(live: Selection, values: Mapping[str, object]) -> Selection:
    """A selection from names and loosely typed values; what is not named stays as it is in ``live``.

    Args:
        live: what is selected unless the values say otherwise.
        values: fields of a selection, and settings that its rows take, which become its changes; a setting of None is
            the preset's, and the word none is None where the setting can be. Seeds of None are those of ``live``, or
            of the quick preset where it has fewer.

    Raises:
        ParameterError: a name or value that cannot be used; the message says what can.

    >>> from paper_lib.sweep import Selection
    >>> chosen = selection_from(Selection(rows=("sgd", "joint")), {"seeds": "0:2", "epochs": "3", "dropout": None})
    >>> chosen.seeds, chosen.rows, chosen.changes
    ((0, 1), ('sgd', 'joint'), {'epochs': 3})
    """
    from paper_lib.rows import QUICK_SEEDS, ROWS

    hints = {name: hint for name, hint in field_types(type(live)).items() if name != "changes"}
    values = {name: value for name, value in values.items() if name != "seeds" or not _is_none(value)}
    own = {name: _checked(name, _coerce(name, values[name], hints[name])) for name in values if name in hints}
    if own.get("preset", live.preset) == "quick":
        own = {"seeds": QUICK_SEEDS.get(own.get("dataset", live.dataset), live.seeds)} | own
    rows = own.get("rows", live.rows)
    takes: dict[str, list[Any]] = {}
    for row in rows:
        for name, hint in ROWS[row].takes.items() if row in ROWS else ():
            takes.setdefault(name, []).append(hint)
    everywhere = {name: hint for row in ROWS.values() for name, hint in row.takes.items()}
    given = {n: v for n, v in values.items() if n not in hints and v is not None}
    known = hints | (takes if rows != live.rows else everywhere)
    refuse_unknown((name for name in values if name not in hints and name not in everywhere), known)
    # Rows may type a setting differently: the value must do for each row that takes it.
    hints_of = {name: takes.get(name) or [everywhere[name]] for name in given}
    changes = {name: [_coerce(name, value, hint) for hint in hints_of[name]][-1] for name, value in given.items()}
    try:
        return dataclasses.replace(live, **own, changes={**live.changes, **changes})
    except ValueError as error:
        raise ParameterError(error) from error


def from_notebook(chosen: type[Config] | Selection, namespace: Mapping[str, object]) -> Config | Selection:
    """A configuration or a selection from a notebook's variables.

    Takes those variables that are fields of the configuration; of a selection its fields, and the settings that the
    parameters cell names. Papermill runs on after a misspelt parameter, so the cell that it injects is looked up among
    the cells run so far, and a name in it that the notebook has not assigned before is an error.

    Args:
        chosen: a configuration type, as for ``config_from``, or a selection, as for ``selection_from``.
        namespace: the notebook's ``globals()``.

    Raises:
        ParameterError: as ``config_from`` and ``selection_from``.
    """
    selecting = not isinstance(chosen, type)
    hints = field_types(type(chosen) if selecting else chosen)
    if selecting:
        from paper_lib.rows import ROWS

        hints = hints | {name: hint for row in ROWS.values() for name, hint in row.takes.items()}
    own: set[str] = set()
    for cell in namespace.get("In", ()):
        if cell.startswith(INJECTED):
            refuse_unknown(_assigned(cell), {name: None for name in (*hints, *sorted(own - set(hints)))})
        else:
            own |= _assigned(cell)
    values = {name: namespace[name] for name in hints if name in namespace and _is_parameter(namespace[name])}
    return selection_from(chosen, values) if selecting else config_from(chosen, values)


class Table:
    """A table as a chapter shows it: one header row, numbers formatted, further columns folded away below.

    Args:
        frame: its index, if named, is the first column.
        spec: format of fractions.
        more: columns for the same lines that are folded away.
        summary: what the fold is called.
        source: of ``tables.source``, where the numbers come from: lines to stand below; what is code is in backticks.

    >>> import pandas
    >>> Table(pandas.DataFrame({"paper": [93.734, math.nan], "n": [10, 0]}))
    paper  n
    93.73 10
        –  0
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        spec: str = ".2f",
        more: pd.DataFrame | None = None,
        summary: str = "all numbers",
        source: str = "",
    ):
        self.frame, self.summary, self.source = _written(frame, spec), summary, source
        self.more = None if more is None else _written(more, spec)

    def __repr__(self) -> str:
        parts = [self.frame] if self.more is None else [self.frame, self.more]
        return "\n\n".join([part.to_string(index=False) for part in parts] + [self.source] * bool(self.source))

    def _repr_html_(self) -> str:
        html = _html(self.frame)
        if self.more is not None:
            html += f'<details class="more"><summary>{self.summary}</summary>{_html(self.more)}</details>'
        if self.source:
            lines = re.sub(r"`(.*?)`", r"<code>\1</code>", escape(self.source)).replace("\n", "<br>")
            html += f'<details class="more"><summary>reproduce these numbers</summary><p>{lines}</p></details>'
        return html


def _written(frame: pd.DataFrame, spec: str) -> pd.DataFrame:
    def cell(value: object) -> object:
        if not isinstance(value, float):
            return value
        return "–" if math.isnan(value) else f"{value:{spec}}"

    named = frame.reset_index() if any(name is not None for name in frame.index.names) else frame
    return named.map(cell)


ABBREVIATIONS = {
    "NLL": "mean negative log-likelihood of the test points after the last task, nats a point",
    "ECE": "expected calibration error after the last task, from 0 to 1",
    "s a seed": "seconds of one seed's run",
    "GB": "peak memory of the process",
    "when learned": "accuracy on each task just after it was learned, percent",
    "diverged": "seeds whose training diverged",
}
"""Headers that a table tells in full where a pointer rests on them."""


def _html(frame: pd.DataFrame) -> str:
    """A table that a narrow page scrolls by itself, with headers that a screen reader tells."""
    html = frame.to_html(index=False, border=0, classes="dataframe", justify="left").replace("<th>", '<th scope="col">')
    for name, words in ABBREVIATIONS.items():
        html = html.replace(f">{name}</th>", f'><abbr title="{words}">{name}</abbr></th>')
    html = re.sub(r"[\d.]+ ± [\d.]+", lambda pair: f'<span class="spread">{pair[0]}</span>', html)
    html = html.replace("± ", "±&nbsp;")
    return f'<div class="table" tabindex="0" role="region" aria-label="table">{html}</div>'


def field_types(config_type: type) -> dict[str, Any]:
    """Name and type of each field that a configuration takes, in order."""
    hints = get_type_hints(config_type)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_type) if field.init}


def refuse_unknown(names: Iterable[str], allowed: Mapping[str, object]) -> None:
    """Raise for the first name that is not allowed."""
    for name in names:
        if name not in allowed:
            near = near_match(name, allowed)
            raise ParameterError(f"there is no parameter {name!r}{near}; there are {', '.join(allowed)}")


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _is_parameter(value: object) -> bool:
    """Whether a variable may be one: not a module, nor what a chapter has made of its parameters when it ran before."""
    return not (inspect.ismodule(value) or dataclasses.is_dataclass(value))


def _assigned(cell: str) -> set[str]:
    """Names that a cell assigns at its top level."""
    try:
        statements = ast.parse(cell).body
    except SyntaxError:  # the cell failed when it ran
        return set()
    targets = [t for s in statements if isinstance(s, ast.Assign) for t in s.targets]
    targets += [s.target for s in statements if isinstance(s, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _coerce(name: str, value: object, hint: Any) -> Any:
    """The value as its type, or an error that names both."""
    try:
        return _convert(value, hint)
    except ParameterError as error:
        raise ParameterError(f"{name}={value!r}: {error}") from None
    except (ValueError, OverflowError):
        choices = [c for part in _parts(hint) if get_origin(part) is Literal for c in get_args(part)]
        near = near_match(value, map(str, choices))
        raise ParameterError(f"{name}={value!r} is not {in_words(hint)}{near}") from None


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _convert(value: object, hint: Any) -> Any:
    """The value as its type; a bare ValueError where it cannot be."""
    if isinstance(value, str):
        value = value.strip()
    if len(_parts(hint)) > 1:
        # None first: text would take the string "none" as it is.
        for part in sorted(_parts(hint), key=lambda p: p is not type(None)):
            try:
                return _convert(value, part)
            except (ValueError, OverflowError):
                continue
        raise ValueError
    if get_origin(hint) is tuple:
        return _convert_list(value, get_args(hint))
    if get_origin(hint) is Literal:
        matches = [choice for choice in get_args(hint) if str(choice) == str(value)]
        return matches[0] if matches else _refuse()
    readers = {type(None): _none, bool: _bool, int: _int, float: _float, str: _str}
    if hint not in readers:
        raise TypeError(f"a parameter cannot be of type {hint}")
    return readers[hint](value)


def _convert_list(value: object, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple from a list, a string of comma-separated items, or one item."""
    if isinstance(value, str):
        if value[:1] + value[-1:] in ("[]", "()"):
            value = value[1:-1]
        value = value.split(",") if value.strip() else []
        if len(value) > 1 and not value[-1].strip():  # "(0,)"
            value.pop()
        value = [item.strip().strip("'\"") for item in value]
    elif not isinstance(value, list | tuple | range):
        value = [value]
    if hints[-1:] == (Ellipsis,):
        item_type = hints[0]
        if item_type is int:
            value = [number for item in value for number in _range(item)]
        return tuple(_convert(item, item_type) for item in value)
    return tuple(_convert(item, hint) for item, hint in zip(value, hints, strict=True))


def _range(item: object) -> Iterable[object]:
    """The whole numbers of ``start:stop`` or ``start:stop:step``; any other item alone."""
    if not (isinstance(item, str) and ":" in item):
        return [item]
    ends = [_int(end) for end in item.split(":")]
    numbers = range(*ends) if len(ends) <= 3 else _refuse()
    if numbers[MOST_SEEDS:]:
        raise ParameterError(f"more than {MOST_SEEDS} whole numbers; give fewer at a time")
    return numbers or _refuse()


def _refuse() -> Any:
    raise ValueError


def _is_none(value: object) -> bool:
    """Whether a value says that there is none."""
    return value is None or (isinstance(value, str) and value.strip().lower() in ("none", "null"))


def _none(value: object) -> None:
    return None if _is_none(value) else _refuse()


def _bool(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value if isinstance(value, bool) else _refuse()


def _int(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if re.fullmatch(r"[+-]?\d+", value.strip()) else float(value)
    if isinstance(value, bool) or not isinstance(value, Real) or value != int(value):
        raise ValueError
    if isinstance(value, float) and abs(value) > 2**53:  # it stands for several whole numbers
        raise ValueError
    return int(value)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real | str) or math.isnan(float(value)):
        raise ValueError
    return float(value)


def _str(value: object) -> str:
    return value if isinstance(value, str) else _refuse()


def in_words(hint: Any) -> str:
    """What a type allows, as a message says it.

    >>> in_words(Literal["a", "b"] | None), in_words(tuple[int, ...])
    ('one of a, b or none', 'a list of whole numbers, such as 0,1,2 or 0:10')
    """
    if len(_parts(hint)) > 1:
        return " or ".join(map(in_words, _parts(hint)))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        arguments = get_args(hint)
        if arguments[-1:] == (Ellipsis,):
            many = {int: "whole numbers, such as 0,1,2 or 0:10", float: "numbers, such as 0.1,1", str: "words"}
            each = [one for one in _parts(arguments[0]) if one is not type(None)]
            or_none = " or none" * (len(each) < len(_parts(arguments[0])))
            return f"a list of {many.get(each[0]) or in_words(each[0])}{or_none}"
        return f"a list of {', '.join(map(in_words, arguments))}"
    return {type(None): "none", bool: "true or false", int: "a whole number", float: "a number", str: "a word"}[hint]


def _checked(name: str, value: Any) -> Any:
    """The value, if it passes what every configuration asks of a field of this name."""
    if name == "device":
        _check_device(value)
    if name in ("seed", "seeds"):
        try:
            check_seeds(name, value)
        except ValueError as error:
            raise ParameterError(error) from None
    return value


def _check_device(device: str) -> None:
    """Raise unless the device is named correctly and this machine has it."""
    if device == "cpu":
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        near = near_match("cuda" if "gpu" in device.casefold() else device, ("cpu", "cuda", "cuda:0"))
        raise ParameterError(f"device={device!r} is not one of cpu, cuda, cuda:N{near}")
    import torch  # heavy, and not needed for the command line's help

    count, number = torch.cuda.device_count(), int(device.partition(":")[2] or 0)
    if number >= count:
        there = f"{count}, cuda:0 to cuda:{count - 1}" if count else "none; use cpu"
        raise ParameterError(f"device={device!r} is not there; torch {torch.__version__} finds CUDA devices: {there}")
