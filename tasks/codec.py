"""Convert configs to plain values, which JSON and TOML can hold (`to_plain`), and back (`from_plain`).

The configs themselves check names and types (`tasks.config`). This module uses the types of their fields to decide
which config a mapping becomes.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin

from tasks.batch import Task
from tasks.config import (
    PATH,
    FromFile,
    choose,
    named,
    require,
    shown,
    stored_names,
    type_hints,
    without_removed,
)
from tasks.registry import StoredTask, kinds, rule_of


def to_plain(value: Any) -> Any:
    """Return a config as mappings and lists. For a task, add its `kind` and, above version 1, its `rule`."""
    if isinstance(value, StoredTask):
        return {"kind": value.kind, **value.fields}
    if is_dataclass(value):
        cls: Any = type(value)
        plain = {
            stored: to_plain(getattr(value, name)) for name, stored in stored_names(cls).items()
        }
        return {**kind_and_rule(value), **plain} if isinstance(value, Task) else plain
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def kind_and_rule(task: Task) -> dict[str, Any]:
    """Return a task's kind, and its drawing rule's version. Version 1 is left out, so that old digests stay valid."""
    stored: dict[str, Any] = {"kind": task.kind}
    if rule_of(task) > 1:
        stored["rule"] = rule_of(task)
    return stored


def from_plain(hint: Any, plain: Any, null: str | None = None, name: str = "") -> Any:
    """Return the value of a config field of type `hint` from plain values.

    A mapping becomes the config that `hint` names, or the `Task` of its `kind`; a config stays as it is. `null` stands
    for None in formats that lack it. A field with `PATH` in its metadata becomes a `FromFile`.

    Raises `ConfigError` for an unknown kind or field, for a missing field without a default, and for values that the
    config refuses. `name` is the field's name in the error message.
    """
    sorts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if plain == null and types.NoneType in sorts:
        return None
    if isinstance(hint, type) and (hint is Task or is_dataclass(hint)):
        right = isinstance(plain, Mapping | hint)
        require(
            right, lambda: f"{name} is {shown(plain)}, but must be the fields of a {hint.__name__}."
        )
    for sort in sorts:
        if get_origin(sort) is tuple and isinstance(plain, list):
            every = get_args(sort)[0]  # all values of a tuple have one type
            return tuple(from_plain(every, item, null, name) for item in plain)
        if sort is Task and isinstance(plain, Mapping):
            return _task(plain, null, name)
        if is_dataclass(sort) and isinstance(plain, Mapping):
            return _config(sort, plain, null, name)
    return plain


def _task(plain: Mapping[str, Any], null: str | None, name: str) -> Any:
    """Return the task from its stored fields. Raises `ConfigError` if their rule is not the current version."""
    kind, known = plain.get("kind"), kinds()
    require(isinstance(kind, str), f"The task's kind is {shown(kind)}, but must be a name.")
    cls = known[choose("task", str(kind), known)]
    names = {field.name for field in fields(cls)}
    stored = {
        key: item for key, item in plain.items() if key not in ("kind", "rule") or key in names
    }
    task = _config(cls, stored, null, name)
    then = plain.get("rule", rule_of(task))
    require(
        then == rule_of(task),
        f"This run was trained on sequences drawn by rule {shown(then)} of the task '{kind}', which draws them by rule "
        f"{rule_of(task)} now ({cls.__name__}.rule says what changed): so the two cannot be compared: train it again.",
    )
    return task


def _config(cls: Any, plain: Mapping[str, Any], null: str | None, name: str) -> Any:
    known = {field.name: field for field in fields(cls)}
    hints, prefix = type_hints(cls), f"{name}." if name else ""
    current = {was: now for now, was in stored_names(cls).items()}
    plain = without_removed(cls, {current.get(key, key): item for key, item in plain.items()})
    for unknown in plain.keys() - known.keys():
        choose(f"{cls.__name__} field", unknown, known)
    for field in known.values():
        optional = field.default is not MISSING or field.default_factory is not MISSING
        require(optional or field.name in plain, f"{prefix}{field.name} is missing.")
    values = {key: from_plain(hints[key], item, null, prefix + key) for key, item in plain.items()}
    for key, value in values.items():
        if PATH in known[key].metadata and isinstance(value, str) and not named(FromFile(value)):
            values[key] = FromFile(value)
    return cls(**values)
