"""No default has changed: it would rename stored runs, or change what they mean."""

import hashlib
import json

import pytest

from ihlab import ModelConfig, RunConfig
from ihlab.training.clamp import Clamp
from ihlab.training.config import Fork, ForkConfig, first_defaults
from tasks.registry import kinds

TASK_CLASSES = {cls for cls in kinds().values() if cls.__module__.startswith("tasks.")}
OURS = [
    RunConfig,
    ForkConfig,
    Fork,
    Clamp,
    ModelConfig,
    *sorted(TASK_CLASSES, key=lambda cls: cls.__name__),
]


FROZEN = {
    "RunConfig": "033cf082",
    "ForkConfig": "033cf082",
    "Fork": "5d8d1566",
    "Clamp": "083b8440",
    "ModelConfig": "e15c8f0b",
    "IGSMTask": "e47a9d8f",
    "InductionTask": "a0ba4beb",
    "MQARTask": "c1fff826",
    "MultiHopTask": "501b6753",
    "NGramTask": "e0ebcb10",
    "RepeatTask": "17c5db23",
    "TextTask": "063ee06d",
    "TriggerTask": "8c8d05d7",
}
"""A hash of the first defaults of each class, by stored names."""


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_a_changed_default_is_noticed(cls):
    """If a field was added, write its hash here. A default must not change."""
    text = json.dumps(first_defaults(cls), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:8] == FROZEN[cls.__name__]
