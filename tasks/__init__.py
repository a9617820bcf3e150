"""Synthetic tasks, as pure functions of a random generator. NumPy and numba only."""

from collections.abc import Mapping
from typing import Any, get_args

from tasks.batch import IGNORE, Batch, Task
from tasks.config import ConfigError, choose
from tasks.igsm import IGSMTask
from tasks.induction import InductionTask
from tasks.mqar import MQARTask
from tasks.multihop import MultiHopTask
from tasks.ngram import NGramTask
from tasks.registry import GROUP, TASKS, StoredTask, load_plugins, register_task

for own in (InductionTask, MultiHopTask, NGramTask, MQARTask, IGSMTask):
    register_task(own)
load_plugins(GROUP, register_task)


def rule_of(task: Any) -> int:
    """Return the version of a task's drawing rule, `task.rule`: 1 if it never changed."""
    return int(getattr(task, "rule", 1))


def make_task(stored: Mapping[str, Any]) -> Any:
    """Make the task of these fields and their `kind`, as `dataclasses.asdict` and `kind` store it.

    Raises `ConfigError` for an unknown kind or field.
    """
    fields = dict(stored)
    kind = fields.pop("kind")
    if kind in get_args(IGSMTask.__annotations__["kind"]):  # kind is a field of iGSM
        return IGSMTask(kind=kind, **fields)
    return TASKS[choose("task", kind, TASKS)](**fields)


__all__ = [
    "IGNORE",
    "TASKS",
    "Batch",
    "ConfigError",
    "IGSMTask",
    "InductionTask",
    "MQARTask",
    "MultiHopTask",
    "NGramTask",
    "StoredTask",
    "Task",
    "make_task",
    "register_task",
    "rule_of",
]
