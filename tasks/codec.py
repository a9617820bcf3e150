"""Configs as plain values, as JSON and TOML hold them: `to_plain` and its inverse `from_plain`.

Names and types are checked by the configs themselves (`tasks.config`); the types of their fields say here what a
mapping is read as.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from tasks.batch import Task
from tasks.config import PATH, FromFile, choose, named, require, stored_names
from tasks.registry import StoredTask, kinds, rule_of


def to_plain(value: Any) -> Any:
    """Return a config as mappings and lists, its task with the `kind` and, if that ever changed, its rule's version."""
    if isinstance(value, StoredTask):
        return {"kind": value.kind, **value.fields}
    if is_dataclass(value):
        plain = {stored: to_plain(getattr(value, name)) for name, stored in stored_names(value).items()}
        return {"kind": value.kind, **rule(value), **plain} if isinstance(value, Task) else plain
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def rule(task: Task) -> dict[str, int]:
    """Return the version of the task's rule as stored: left out where it is the first, so that old digests stay."""
    return {"rule": rule_of(task)} if rule_of(task) > 1 else {}


def from_plain(hint: Any, plain: Any, null: str | None = None, name: str = "") -> Any:
    """Return the value that plain values stand for, where a config's field is of type `hint`.

    A mapping becomes the config that `hint` names, a `Task` by its `kind`; what is one already stays. `null` stands for
    None in formats that have none. A field with `PATH` in its metadata becomes a `FromFile`.

    Raises `ConfigError` for an unknown kind or field, for a field left out that has no default, and for what the config
    refuses; `name` is the field's in such a sentence.
    """
    sorts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if plain == null and types.NoneType in sorts:
        return None
    _check_shape(hint, plain, name)
    for sort in sorts:
        if get_origin(sort) is tuple and isinstance(plain, list):
            every = get_args(sort)[0]  # a tuple's values are of one type
            return tuple(from_plain(every, item, null, name) for item in plain)
        if sort is Task and isinstance(plain, Mapping):
            return _task(plain, null, name)
        if is_dataclass(sort) and isinstance(plain, Mapping):
            return _config(sort, plain, null, name)
    return plain


def _check_shape(hint: Any, plain: Any, name: str) -> None:
    """Refuse a list of another length than the tuple that is wanted, and anything but fields where a config is."""
    size = len(get_args(hint))
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        right = isinstance(plain, list | tuple) and len(plain) == size
        require(right, f"{name} is {plain!r}, but must be a list of {size}.")
    if isinstance(hint, type) and (hint is Task or is_dataclass(hint)):
        right = isinstance(plain, Mapping | hint)
        require(right, f"{name} is {plain!r}, but must be the fields of a {hint.__name__}.")


def _task(plain: Mapping[str, Any], null: str | None, name: str) -> Any:
    """Return the task of its stored fields. Raises `ConfigError` if they name a rule that is not the task's now."""
    kind, known = plain.get("kind"), kinds()
    require(isinstance(kind, str), f"The task's kind is {kind!r}, but must be a name.")
    cls = known[choose("task", str(kind), known)]
    own = {field.name for field in fields(cls)}
    given = {at: item for at, item in plain.items() if at not in ("kind", "rule") or at in own}
    task = _config(cls, given, null, name)
    then = plain.get("rule", rule_of(task))
    require(
        then == rule_of(task),
        f"This run was trained on rows drawn by rule {then} of the task '{kind}', which draws them by rule "
        f"{rule_of(task)} now ({cls.__name__}.rule says what changed): the two are not comparable: train it again.",
    )
    return task


def _config(cls: Any, plain: Mapping[str, Any], null: str | None, name: str) -> Any:
    """Return the config of a class whose fields are given by name."""
    known, hints, stored = {field.name: field for field in fields(cls)}, get_type_hints(cls), stored_names(cls)
    prefix = f"{name}." if name else ""
    plain = {next((now for now, was in stored.items() if was == given), given): item for given, item in plain.items()}
    for given in plain:
        choose(f"{cls.__name__} field", given, known)
    for field in known.values():
        optional = field.default is not MISSING or field.default_factory is not MISSING
        require(optional or field.name in plain, f"{prefix}{field.name} is missing.")
    values = {at: from_plain(hints[at], item, null, prefix + at) for at, item in plain.items()}
    for at in (field.name for field in known.values() if PATH in field.metadata):
        if isinstance(values.get(at), str) and not named(FromFile(values[at])):
            values[at] = FromFile(values[at])
    return cls(**values)
