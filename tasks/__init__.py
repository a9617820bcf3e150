"""What a model is asked: synthetic tasks as pure functions of a random generator. NumPy and numba only."""

from typing import get_args

from tasks.batch import IGNORE, Batch, Task
from tasks.config import ConfigError
from tasks.induction import InductionTask
from tasks.mqar import MQARTask
from tasks.multihop import MultiHopTask
from tasks.ngram import NGramTask

AnyTask = InductionTask | MultiHopTask | NGramTask | MQARTask
"""Every task, as a type."""

TASKS: dict[str, type[AnyTask]] = {task.kind: task for task in get_args(AnyTask)}
"""Every task by its kind: what `ihlab sample`, `ihlab train` and stored runs know it by."""

__all__ = [
    "IGNORE",
    "TASKS",
    "AnyTask",
    "Batch",
    "ConfigError",
    "InductionTask",
    "MQARTask",
    "MultiHopTask",
    "NGramTask",
    "Task",
]
