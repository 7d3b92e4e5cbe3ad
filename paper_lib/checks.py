"""Checks at the border: every message names the value, what is allowed and, where there is one, a near match."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints


class ParameterError(ValueError):
    """A parameter that cannot be used; the message is one line.

    Notebooks show that line alone, as the frames between it and the reader's cell explain nothing.
    """

    def __init__(self, message: object):
        super().__init__(" ".join(str(message).split()))

    def _render_traceback_(self) -> list[str]:
        """What IPython, and so papermill, prints in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def near_match(value: object, allowed: Iterable[str]) -> str:
    """A hint such as `` (did you mean 'split_mnist'?)``, or an empty string where nothing is near.

    >>> near_match("split_minst", ["split_mnist", "split_fmnist"])
    " (did you mean 'split_mnist'?)"
    >>> near_match("SplitMNIST", ["split_mnist"]), near_match("zebra", ["split_mnist"])
    (" (did you mean 'split_mnist'?)", '')
    """
    plain = {_letters(name): name for name in allowed}
    found = difflib.get_close_matches(_letters(str(value)), plain, n=1)
    return f" (did you mean {plain[found[0]]!r}?)" if found else ""


def _letters(name: str) -> str:
    """A name without what is easily got wrong: case, and how its words are joined."""
    return name.casefold().replace("_", "").replace("-", "")


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """The value itself if it is allowed.

    >>> one_of("dataset", "split_minst", ["split_mnist", "split_fmnist"])
    Traceback (most recent call last):
    ...
    ValueError: dataset='split_minst' is not one of split_mnist, split_fmnist (did you mean 'split_mnist'?)
    """
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(str, allowed))}{near_match(value, allowed)}")
    return value


@cache
def _choices(kind: type) -> dict[str, tuple[Any, ...]]:
    return {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}


def check_choices(config: object) -> None:
    """Raise unless every setting whose type is a ``Literal`` has one of its values."""
    for name, allowed in _choices(type(config)).items():
        one_of(name, getattr(config, name), allowed)


def some_of(name: str, values: Sequence[object], allowed: Iterable[str]) -> None:
    """Raise unless there is at least one value, every value is allowed, and none is there twice.

    >>> some_of("methods", ("sgd", "sgd"), ["sgd", "joint"])
    Traceback (most recent call last):
    ...
    ValueError: methods has 'sgd' twice; give each once
    """
    allowed = list(allowed)
    if not values:
        raise ValueError(f"{name} is empty; give at least one of {', '.join(allowed)}")
    for value in values:
        one_of(name, value, allowed)
        if values.count(value) > 1:
            raise ValueError(f"{name} has {value!r} twice; give each once")


def within(
    name: str, value: float, low: float, high: float = float("inf"), above: bool = False, below: bool = False
) -> None:
    """Raise if a number is not between two bounds; ``above`` and ``below`` leave out the lower and the upper one.

    Infinity is never allowed, nor is what is no number.

    >>> within("forget", 1.5, 0, 1)
    Traceback (most recent call last):
    ...
    ValueError: forget=1.5 is not at least 0 and at most 1
    >>> within("learning_rate", 0.0, 0, above=True)
    Traceback (most recent call last):
    ...
    ValueError: learning_rate=0.0 is not above 0
    """
    if not isinstance(value, numbers.Real):
        raise ValueError(f"{name}={value!r} is not a number")
    if not low <= value <= high or (above and value == low) or (below and value == high) or math.isinf(value):
        bounds = [f"{'above' if above else 'at least'} {low}"]
        bounds += [f"{'below' if below else 'at most'} {high}"] if high < float("inf") else []
        bounds += ["finite"] if math.isinf(value) else []
        raise ValueError(f"{name}={value!r} is not {' and '.join(bounds)}")


def each_within(name: str, setting: object, low: float, above: bool = False, whole: bool = True) -> None:
    """``within`` of a setting that is one number, or some: one a task, or one a layer.

    >>> each_within("epochs", (3, 2.5), 1)
    Traceback (most recent call last):
    ...
    ValueError: epochs=2.5 is not a whole number
    """
    for value in setting if isinstance(setting, tuple) else (setting,):
        within(name, value, low, above=above)
        if whole and not isinstance(value, numbers.Integral):
            raise ValueError(f"{name}={value!r} is not a whole number")


def check_seeds(name: str, given: int | Sequence[int]) -> None:
    """Raise unless there is a seed, none is negative and none is there twice.

    >>> check_seeds("seeds", (0, 1, 0))
    Traceback (most recent call last):
    ...
    ValueError: seeds=(0, 1, 0): 0 is there twice; seeds are whole numbers from 0, each given once
    """
    seeds = [given] if isinstance(given, int) else list(given)
    if not seeds:
        raise ValueError(f"{name} is empty; give at least one, such as 0 or 0,1,2 or 0:10")
    for seed in seeds:
        why = "is negative" if seed < 0 else "is there twice" if seeds.count(seed) > 1 else ""
        if why:
            raise ValueError(f"{name}={given!r}: {seed} {why}; seeds are whole numbers from 0, each given once")
