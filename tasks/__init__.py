"""What a model is asked: synthetic tasks as pure functions of a random generator. NumPy and numba only."""

from collections.abc import Mapping
from typing import Any, get_args

from tasks.batch import IGNORE, Batch, Task
from tasks.config import ConfigError, choose
from tasks.igsm import IGSMTask
from tasks.induction import InductionTask
from tasks.mqar import MQARTask
from tasks.multihop import MultiHopTask
from tasks.ngram import NGramTask

AnyTask = InductionTask | MultiHopTask | NGramTask | MQARTask | IGSMTask
"""Every task, as a type."""

TASKS: dict[str, type[AnyTask]] = {task.kind: task for task in get_args(AnyTask)}
"""Every task by its kind: what `ihlab sample`, `ihlab train` and stored runs know it by."""


def rule_of(task: Any) -> int:
    """The version of a task's drawing rule, `task.rule`: 1 where it never changed."""
    return int(getattr(task, "rule", 1))


def make_task(stored: Mapping[str, Any]) -> AnyTask:
    """The task of these fields and their `kind`, as `dataclasses.asdict` and `kind` store it.

    Raises `ConfigError` for an unknown kind or field.
    """
    fields = dict(stored)
    kind = fields.pop("kind")
    if kind in get_args(IGSMTask.__annotations__["kind"]):  # of its tasks, kind is a field
        return IGSMTask(kind=kind, **fields)
    return TASKS[choose("task", kind, TASKS)](**fields)


__all__ = [
    "IGNORE",
    "TASKS",
    "AnyTask",
    "Batch",
    "ConfigError",
    "IGSMTask",
    "InductionTask",
    "MQARTask",
    "MultiHopTask",
    "NGramTask",
    "Task",
    "make_task",
    "rule_of",
]
