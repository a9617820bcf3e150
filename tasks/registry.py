"""Registry of task classes, keyed by kind: the package's own tasks, those of plugins and yours."""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, get_args

import numpy as np

from tasks.batch import Batch
from tasks.config import ConfigError, config, require, shown, type_hints, visible

GROUP = "ihlab.tasks"
"""The group of entry points through which installed packages offer task classes."""

TASKS: dict[str, Any] = {}
"""Every task class, keyed by its kind: the name that `ihlab sample`, `ihlab train` and stored runs use."""

LONGEST_MESSAGE = 900
"""Maximum number of characters of a line about a plug-in."""

_NEEDED = ("vocab_size", "length", "batch", "show")


def register_task(cls: Any) -> Any:
    """Register a class as a task under its `kind`. Returns the class, so that this is a decorator too.

    A task is a dataclass (`tasks.config.config` checks its fields) with the class attribute `kind` (a string),
    `vocab_size`, `length`, `batch(size, rng)` and `show(batch, row)`, as `tasks.Task` describes them. Raises
    `ConfigError` if the class lacks one of these, or if another class already has this kind.
    """
    name = getattr(cls, "__name__", repr(cls))
    require(isinstance(cls, type), f"{name} is not a class, so it cannot be registered as a task.")
    kind = getattr(cls, "kind", None)
    require(
        isinstance(kind, str) and bool(kind),
        f"{name}.kind is {kind!r}, but must be a string of the class.",
    )
    require(
        dataclasses.is_dataclass(cls),
        f"{name} is not a dataclass: a run stores its task by its fields.",
    )
    fields = {field.name for field in dataclasses.fields(cls)}
    missing = [needed for needed in _NEEDED if needed not in fields and not hasattr(cls, needed)]
    require(not missing, f"{name} is not a task: it has no {', '.join(missing)}.")
    for each in _kinds_of(cls):
        there: Any = kinds().get(each, cls)
        same = (there.__module__, there.__qualname__) == (cls.__module__, cls.__qualname__)
        taken = f"There is a task '{each}' already, {there.__qualname__}"
        require(same, f"{taken}: {name} needs another kind.")
    TASKS[str(kind)] = cls
    return cls


def kinds() -> dict[str, type[Any]]:
    """Return every kind of task with its class. A class whose `kind` is a field has a kind for each of its values."""
    return {kind: cls for cls in TASKS.values() for kind in _kinds_of(cls)}


@cache
def _kinds_of(cls: Any) -> tuple[str, ...]:
    if all(field.name != "kind" for field in dataclasses.fields(cls)):
        return (cls.kind,)
    return (cls.kind, *get_args(type_hints(cls)["kind"]))


def rule_of(task: Any) -> int:
    """Return the version of a task's drawing rule, `task.rule`: 1 if it never changed."""
    return int(getattr(task, "rule", 1))


def load_plugins(group: str, register: Callable[[Any], Any]) -> None:
    """Register what installed packages declare in a group of entry points.

    One that raises an exception of any class is skipped, with a line on standard error. Ctrl-C stops loading.
    """
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        try:
            register(point.load())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a faulty plugin must not break the package
            said = f"{type(error).__name__}: {shown(error)}"
            message = f"The plug-in {point.name} ({point.value}) is left out: {said}"
            print(visible(message)[:LONGEST_MESSAGE], file=sys.stderr)


@config
class StoredTask:
    """The task of a stored run whose kind is not registered. It keeps the stored fields and cannot draw sequences.

    The run's metrics and models can still be opened.
    """

    kind: str
    fields: Mapping[str, Any]
    vocab_size: int
    length: int

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Raise `ConfigError`: only the task's own class can draw sequences."""
        raise ConfigError(unregistered(self.kind))

    def show(self, batch: Batch, row: int) -> str:
        """Raise `ConfigError`, as `batch` does."""
        raise ConfigError(unregistered(self.kind))


def unregistered(kind: str) -> str:
    """Return advice about a kind that is not registered."""
    return f"The task '{kind}' is not registered: import its class and call ihlab.register_task with it."


def require_registered(task: Any) -> None:
    """Raise `ConfigError` for a task whose class is not registered, because its run could not be reopened."""
    cls = type(task)
    require(cls in TASKS.values(), unregistered(getattr(task, "kind", cls.__name__)))
