"""Frozen, keyword-only configurations that reject typos and name the valid values."""

import difflib
import os
import reprlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, wraps
from numbers import Integral
from operator import attrgetter
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

T = TypeVar("T", bound=type)

LONGEST_GUESSED = 200
"""A longer name is cut before the search for the nearest one, whose time is quadratic in it."""
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "a bool",
    str: "a str",
    Mapping: "a mapping",
}
_MANY = {int: "whole numbers", float: "finite numbers", bool: "bools", str: "strings"}

WAS = "was"
"""The metadata key that holds the former name of a renamed field."""

PATH = "path"
"""The metadata key that marks fields that hold a path: `tasks.codec` reads them as `FromFile`."""

_short = reprlib.Repr()
_short.maxlist = _short.maxtuple = _short.maxdict = 20
_short.maxstring = _short.maxother = _short.maxlong = 100


class ConfigError(ValueError):
    """An invalid setting. The message is one sentence with the field, its value and the valid values."""


class FromFile(str):
    """A path that comes from a file, not from the user. It may be read only if `named` returns True."""

    __slots__ = ()


_named: set[str] = set()


def name_path(path: str) -> None:
    """Allow this process to read a path that a file names, because the user has named it, too."""
    _named.add(real_path(path))


def named(path: str) -> bool:
    """Return whether a path may be read: it is not from a file, or the user has named it (`name_path`)."""
    return not isinstance(path, FromFile) or real_path(path) in _named


def real_path(path: str) -> str:
    """Return the absolute path that a user's path means here, without links."""
    return os.path.realpath(os.path.expanduser(path))


def require(condition: bool, message: str | Callable[[], str]) -> None:
    """Raise `ConfigError(message)` unless the condition holds.

    Pass a function that returns the message where the check runs often and the message is slow to build.
    """
    if not condition:
        raise ConfigError(message if isinstance(message, str) else message())


def require_integer(name: str, value: Any, least: int) -> None:
    """Raise `ConfigError` unless the value is an integer of at least `least`."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(
        whole and value >= least,
        f"{name} is {shown(value)}, but must be an integer of at least {least}.",
    )


def require_least(config: Any, why: str = "", **least: float) -> None:
    """Raise `ConfigError` if a field of a config is below its minimum. `why` ends the sentence."""
    for name, bound in least.items():
        value, owner = getattr(config, name), type(config).__name__
        require(value >= bound, f"{owner}.{name} is {value}, but must be at least {bound}{why}.")


def shown(value: Any) -> str:
    """Return a value of any type as text for an error message: on one line, cut if it is long."""
    try:
        text = _short.repr(value)
    except Exception:  # a foreign __repr__ failed, or an integer has too many digits
        return f"a value of type {type(value).__name__}"
    return visible(_cut(text, 4 * LONGEST_GUESSED))


def _cut(text: str, most: int) -> str:
    if len(text) > most:
        return f"{text[:most]}..."
    return text


def visible(text: str) -> str:
    """Return a text with all unprintable characters escaped: "\\x1b", "\\n"."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def choose(what: str, name: str, options: Iterable[str]) -> str:
    """Return `name` if it is one of the options; else raise `ConfigError` naming the nearest one."""
    known = sorted(options)
    if name in known:
        return name
    near = difflib.get_close_matches(str(name)[:LONGEST_GUESSED], known, n=1, cutoff=0.5)
    hint = f"known: {', '.join(known)}."
    if near:
        hint = f"did you mean '{near[0]}'?"
    raise ConfigError(f"There is no {what} '{visible(_cut(str(name), LONGEST_GUESSED))}'; {hint}")


def renamed(*, default: Any, was: str) -> Any:
    """Return a field whose former name is `was`. Configs still accept, show and store it under that name."""
    return field(default=default, metadata={WAS: was})


@cache
def stored_names(cls: Any) -> dict[str, str]:
    """Return the name under which each field of a config is stored: its former name if it was `renamed`."""
    return {known.name: known.metadata.get(WAS, known.name) for known in fields(cls)}


def without_removed(cls: Any, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a config still has. Its `removed` maps each removed field to the one value it may have.

    Raises `ConfigError` for a removed field that has another value.
    """
    removed: Mapping[str, Any] = getattr(cls, "removed", {})
    for name in removed.keys() & items.keys():
        require(
            items[name] == removed[name],
            f"{cls.__name__}.{name} is {shown(items[name])}, but this field was removed: it must be {removed[name]!r}.",
        )
    return {name: value for name, value in items.items() if name not in removed}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, renamed))
def config(cls: T) -> T:
    """Make `cls` a frozen, keyword-only dataclass whose constructor checks names and simple types.

    A misspelt field raises `ConfigError` with the nearest name. A value that has the wrong type, is not finite or is
    not in its `Literal` raises `ConfigError` with the allowed values. Values are converted so that equal settings have
    one hash: a NumPy scalar to a Python one and, as the field's type requires, an integer to a float and a list to a
    tuple. Numerical limits belong in the class's own `__post_init__`, which runs after these checks.
    """
    validate = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any) -> None:
        cls: Any = type(self)
        hints = type_hints(cls)
        for name in (known.name for known in fields(self)):
            value = getattr(self, name)
            checked = _checked(f"{type(self).__name__}.{name}", value, hints[name])
            if checked is not value:
                object.__setattr__(self, name, checked)
        if validate is not None:
            validate(self)

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    frozen: Any = dataclass(frozen=True, kw_only=True)(cls)
    first_names = {was: name for name, was in stored_names(frozen).items() if was != name}
    for was, name in first_names.items():
        setattr(
            frozen, was, property(attrgetter(name), doc=f"The field `{name}` by its first name.")
        )
    frozen.__init__ = _refuse_typos(
        frozen.__init__, frozen.__name__, list(stored_names(frozen)), first_names
    )
    return frozen


@cache
def type_hints(cls: Any) -> dict[str, Any]:
    """Return `typing.get_type_hints` of a class, cached, because a list of runs opens thousands of configs."""
    return get_type_hints(cls)


def _refuse_typos(
    init: Callable[..., None], owner: str, names: list[str], first_names: Mapping[str, str]
) -> Callable[..., None]:
    @wraps(init)
    def checked(self: Any, *unnamed: Any, **values: Any) -> None:
        values = without_removed(type(self), values)
        for was in first_names.keys() & values:
            values[first_names[was]] = values.pop(
                was
            )  # `dataclasses.replace` passes the new name, too
        if unnamed:
            first = f"{names[0]}={shown(unnamed[0])}" if names else "none"
            raise ConfigError(f"{owner} takes its fields by name: {first}, and so on.")
        for name in values:
            if name not in names:
                choose(f"{owner} field", name, names)
        init(self, **values)

    return checked


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value as a field of type `hint` stores it. Raises `ConfigError` if it has another type."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and types.NoneType in alternatives:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    sorts = [sort for sort in alternatives if sort is not types.NoneType]
    for sort in sorts:
        if _is_of(value, sort):
            return _plain(name, value, sort)
    if get_origin(sorts[0]) is Literal:
        options = [repr(option) for sort in sorts for option in get_args(sort)]
        raise ConfigError(f"{name} is {shown(value)}, but must be one of {', '.join(options)}.")
    raise ConfigError(
        f"{name} is {shown(value)}, but must be {' or '.join(dict.fromkeys(map(_word, sorts)))}."
    )


def _is_of(value: Any, sort: Any) -> bool:
    """Return whether a value has a type, judged by the outermost type only."""
    origin = get_origin(sort) or sort
    if origin is Literal:
        return any(isinstance(value, type(option)) and value == option for option in get_args(sort))
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, list | tuple)
    return not isinstance(origin, type) or (
        isinstance(value, origin) and not isinstance(value, type)
    )


def _plain(name: str, value: Any, sort: Any) -> Any:
    """Check the contents of a value whose outermost type is right, and return it as it is stored."""
    if get_origin(sort) is tuple:
        each = get_args(sort)
        sorts = each[:1] * len(value) if Ellipsis in each else each
        try:
            return tuple(
                _checked(name, item, hint) for item, hint in zip(value, sorts, strict=True)
            )
        except ValueError:  # the length or an item is wrong
            raise ConfigError(f"{name} is {shown(value)}, but must be {_word(sort)}.") from None
    if sort is int:
        require(
            -(2**63) <= value < 2**64,
            f"{name} is {shown(value)}, but must be below 2 to the power of 64.",
        )
    if sort is float:
        require(
            abs(value) <= sys.float_info.max,
            f"{name} is {shown(value)}, but must be a finite number.",
        )
        return float(value)
    return value


def _word(sort: Any) -> str:
    origin = get_origin(sort) or sort
    if origin is tuple:
        each = get_args(sort)
        size = "a list of" if Ellipsis in each else {2: "two"}.get(len(each), len(each))
        return f"{size} {_MANY.get(each[0], 'values')}"
    fallback = f"a {getattr(origin, '__name__', origin)}"
    return f"the fields of {fallback}" if is_dataclass(origin) else _WORDS.get(origin, fallback)
