"""A suite whose members are trained for a few steps, and whose effects are measured on few prompts."""

from importlib import import_module

import pytest

from ihlab import suite
from ihlab.suite import members


@pytest.fixture
def few_prompts(monkeypatch):
    """Measure effects on 8 prompts instead of 64."""
    monkeypatch.setattr(
        import_module("ihlab.suite.truth"), "PROMPTS", 8
    )  # the module that the function hides


@pytest.fixture
def short(monkeypatch, few_prompts):
    """Train every member for 14 steps, those that come with the package too."""
    few = {"steps": 14, "eval_every": 1, "batch_size": 8, "eval_rows": 32}
    brief = {name: member.replace(**few) for name, member in members.MEMBERS.items()}
    monkeypatch.setattr(members, "MEMBERS", brief)
    monkeypatch.setattr(members, "_shipped", lambda name, seed: False)


@pytest.fixture
def built(short, tmp_path):
    """Return a function that builds members and returns their folder."""

    def build(*names, root=tmp_path / "runs"):
        suite.build(names, root, jobs=1)
        return root

    return build
