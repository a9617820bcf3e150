"""Experiments from outside."""

from functools import partial

import pytest

from ihlab.study import registry
from tasks import ConfigError
from tests.study.test_study import config, study


def test_a_study_replaces_only_itself(monkeypatch):
    """All studies are of one class. A cell of a notebook that runs again registers its study again."""
    monkeypatch.setattr(registry, "EXPERIMENTS", {})
    one, again, other = (
        study(config=function) for function in (config, partial(config), lambda cell: None)
    )
    for made in (one, again):
        assert registry.register_experiment(made) is made
    with pytest.raises(
        ConfigError, match=r"'toys' already, .*test_study\.config: .*<lambda> needs another name"
    ):
        registry.register_experiment(other)
