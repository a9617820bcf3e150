"""Frozen, keyword-only configurations that refuse typos and say what would be right."""

import difflib
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T", bound=type)


class ConfigError(ValueError):
    """A setting that cannot work: one sentence with the field, its value and what would be right."""


def require(condition: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def choose(what: str, given: str, options: Iterable[str]) -> str:
    """Return `given` if it is one of the options; else raise `ConfigError` naming the nearest one."""
    known = sorted(options)
    if given in known:
        return given
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}."
    raise ConfigError(f"There is no {what} '{given}'; {hint}")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: T) -> T:
    """Make `cls` a frozen, keyword-only dataclass whose constructor checks names and simple types.

    A misspelt field raises `ConfigError` with the nearest name; a value of the wrong type, or
    outside a `Literal`, raises `ConfigError` with what is allowed. Numerical limits belong in
    the class's own `__post_init__`, which runs after these checks.
    """
    validate = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            _check_type(f"{type(self).__name__}.{field.name}", value, hint)
            if isinstance(value, int) and hint in (float, float | None):
                object.__setattr__(self, field.name, float(value))  # 1 and 1.0 are one setting, with one hash
        if validate is not None:
            validate(self)

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    made: Any = dataclass(frozen=True, kw_only=True)(cls)
    made.__init__ = _refuse_typos(made.__init__, made.__name__, [f.name for f in fields(made)])
    return made


def _refuse_typos(init: Callable[..., None], owner: str, names: list[str]) -> Callable[..., None]:
    @wraps(init)
    def checked(self: Any, **given: Any) -> None:
        for name in given:
            choose(f"{owner} field", name, names)
        init(self, **given)

    return checked


def _check_type(name: str, value: Any, hint: Any) -> None:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return
        alternatives = [arm for arm in get_args(hint) if arm is not type(None)]
        if len(alternatives) == 1:
            _check_type(name, value, alternatives[0])
    elif origin is Literal:
        options = get_args(hint)
        require(value in options, f"{name} is {value!r}, but must be one of {', '.join(map(repr, options))}.")
    elif hint is int or hint is float:
        allowed = (int,) if hint is int else (int, float)
        right = isinstance(value, allowed) and not isinstance(value, bool)
        kind = "a whole number" if hint is int else "a number"
        require(right, f"{name} is {value!r}, but must be {kind}.")
    elif hint is bool or hint is str:
        require(isinstance(value, hint), f"{name} is {value!r}, but must be a {hint.__name__}.")
