"""Synthetic tasks, as pure functions of a random generator. They need NumPy and numba; text also needs tokenizers."""

from tasks.batch import IGNORE, Batch, Task
from tasks.checker import CheckerTask
from tasks.config import ConfigError
from tasks.igsm import IGSMTask
from tasks.induction import InductionTask
from tasks.mqar import MQARTask
from tasks.multihop import MultiHopTask
from tasks.ngram import NGramTask
from tasks.pairs import PairTask
from tasks.registry import GROUP, TASKS, StoredTask, load_plugins, register_task, rule_of
from tasks.repeat import RepeatTask
from tasks.text import TextTask
from tasks.trigger import TriggerTask

for own in (
    InductionTask, MultiHopTask, NGramTask, MQARTask, IGSMTask, TextTask, TriggerTask, CheckerTask, PairTask,
    RepeatTask,
):  # fmt: skip
    register_task(own)
load_plugins(GROUP, register_task)

__all__ = [
    "IGNORE",
    "TASKS",
    "Batch",
    "CheckerTask",
    "ConfigError",
    "IGSMTask",
    "InductionTask",
    "MQARTask",
    "MultiHopTask",
    "NGramTask",
    "PairTask",
    "RepeatTask",
    "StoredTask",
    "Task",
    "TextTask",
    "TriggerTask",
    "register_task",
    "rule_of",
]
