"""Tasks that draw token sequences from a random generator. They need NumPy and numba; text also needs tokenizers."""

from tasks.batch import IGNORE as IGNORE
from tasks.batch import Batch as Batch
from tasks.batch import Task as Task
from tasks.config import ConfigError as ConfigError
from tasks.igsm import IGSMTask as IGSMTask
from tasks.induction import InductionTask as InductionTask
from tasks.mqar import MQARTask as MQARTask
from tasks.multihop import MultiHopTask as MultiHopTask
from tasks.ngram import NGramTask as NGramTask
from tasks.registry import GROUP, load_plugins
from tasks.registry import TASKS as TASKS
from tasks.registry import StoredTask as StoredTask
from tasks.registry import register_task as register_task
from tasks.registry import rule_of as rule_of
from tasks.repeat import RepeatTask as RepeatTask
from tasks.text import TextTask as TextTask
from tasks.trigger import TriggerTask as TriggerTask

load_plugins(GROUP, register_task)
