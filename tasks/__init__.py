"""What a model is asked: synthetic tasks as pure functions of a random generator. NumPy and numba only."""

from tasks.batch import IGNORE, Batch, Task
from tasks.config import ConfigError
from tasks.induction import InductionTask

TASKS = {task.kind: task for task in (InductionTask,)}
"""Every task by its kind: what `ihlab sample`, `ihlab train` and stored runs know it by."""

__all__ = ["IGNORE", "TASKS", "Batch", "ConfigError", "InductionTask", "Task"]
