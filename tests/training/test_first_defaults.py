"""Changing a default neither renames stored runs nor changes what they mean."""

from dataclasses import MISSING, fields

import pytest

from ihlab import ModelConfig, Run, RunConfig, train
from ihlab.training.clamp import Clamp
from ihlab.training.config import Fork, ForkConfig, from_dict, to_dict
from ihlab.training.first_defaults import FIRST_DEFAULTS
from tasks import ConfigError, InductionTask
from tasks.config import config, stored_names
from tasks.registry import TASKS, kinds

TASK_CLASSES = {cls for cls in kinds().values() if cls.__module__.startswith("tasks.")}
OURS = [RunConfig, ForkConfig, Fork, Clamp, ModelConfig, *sorted(TASK_CLASSES, key=lambda cls: cls.__name__)]


@pytest.fixture
def change(monkeypatch):
    """Return a function that changes a default, as an edit of the class would."""

    def to(cls, name, value):
        monkeypatch.setattr(cls.__dataclass_fields__[name], "default", value)
        monkeypatch.setitem(cls.__init__.__wrapped__.__kwdefaults__, name, value)

    return to


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_default_has_a_first_one(cls):
    given = {stored_names(cls)[each.name] for each in fields(cls) if each.compare and each.default is not MISSING}
    assert given - {"name"} == FIRST_DEFAULTS[cls.__name__].keys() - {"name"}, "add the field with its default"


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [(None, "weight_decay", 0.0), (None, "stop_at_accuracy", 0.9), ("model", "eps", 1e-5), ("task", "score", "first")],
)
def test_a_stored_run_opens_and_is_found_after_a_default_has_changed(small, finished, change, part, name, value):
    old = getattr(small, part) if part else small
    change(type(old), name, value)
    new = type(old)(**{each.name: getattr(old, each.name) for each in fields(old) if each.name != name})
    new = small.replace(**{part: new}) if part else new
    root, (before, now) = finished.folder.parent, (to_dict(config) for config in (small, new))
    assert Run.open(finished.folder).config == small
    assert train(small, root).folder == finished.folder
    assert new.folder(root) != finished.folder
    before, now = (stored[part] if part else stored for stored in (before, now))
    name = stored_names(type(old))[name]
    assert [key for key in before if before[key] != now[key]] == [name]
    stored = to_dict(small)
    del (stored[part] if part else stored)[name]  # as it was stored before the field was added
    assert from_dict(stored) == small


def test_a_default_of_your_own_task_is_named_where_it_may_have_changed(small, tmp_path, change, monkeypatch):
    @config
    class Owned(InductionTask):
        kind = "owned"
        power: int = 1

    monkeypatch.setitem(TASKS, "owned", Owned)
    run = Run.create(small.replace(task=Owned(vocab_size=40, length=12)), tmp_path)
    change(Owned, "power", 2)
    with pytest.raises(ConfigError, match="it was edited, or a default of Owned has changed"):
        Run.open(run.folder)
