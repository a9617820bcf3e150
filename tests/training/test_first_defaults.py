"""Changing a default neither renames stored runs nor changes what they mean."""

import hashlib
import json
from dataclasses import fields

import pytest

from ihlab import ModelConfig, Run, RunConfig, train
from ihlab.training.clamp import Clamp
from ihlab.training.config import Fork, ForkConfig, from_dict, to_dict
from ihlab.training.first_defaults import CHANGED, first_defaults
from tasks.config import stored_names
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


@pytest.fixture
def change(monkeypatch):
    """Return a function that changes a default, as an edit of the class would, and keeps its first
    one.
    """

    def to(cls, name, value):
        before = cls.__dataclass_fields__[name].default
        monkeypatch.setitem(CHANGED, cls.__name__, {stored_names(cls)[name]: before})
        monkeypatch.setattr(cls.__dataclass_fields__[name], "default", value)
        monkeypatch.setitem(cls.__init__.__wrapped__.__kwdefaults__, name, value)

    return to


FROZEN = {
    "RunConfig": "033cf082",
    "ForkConfig": "033cf082",
    "Fork": "5d8d1566",
    "Clamp": "083b8440",
    "ModelConfig": "e15c8f0b",
    "DepoTask": "05f0af1b",
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
    """If a field was added, write its hash here. If a default was changed, put the old one into
    `CHANGED`.
    """
    text = json.dumps(first_defaults(cls), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:8] == FROZEN[cls.__name__]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        (None, "stop_at_accuracy", 0.9),
        ("task", "score", "first"),
    ],
)
def test_a_stored_run_opens_and_is_found_after_a_default_has_changed(
    small, finished, change, part, name, value
):
    old = getattr(small, part) if part else small
    change(type(old), name, value)
    new = type(old)(
        **{each.name: getattr(old, each.name) for each in fields(old) if each.name != name}
    )
    new = small.replace(**{part: new}) if part else new
    root, stored = finished.folder.parent, to_dict(small)
    assert Run.open(finished.folder).config == small
    assert train(small, root).folder == finished.folder
    assert new.folder(root) != finished.folder
    # As it was stored before the field was added:
    del (stored[part] if part else stored)[stored_names(type(old))[name]]
    assert from_dict(stored) == small
