"""Experiments from outside, and what loads the paper's own."""

import subprocess
import sys
from functools import partial

import pytest

from ihlab.study import registry
from tasks import ConfigError
from tests.study.test_study import config, study

TRAIN = [
    *("train", "--steps", "2", "--batch-size", "2", "--eval-rows", "2", "--warmup", "1"),
    *("--task.vocab-size", "24", "--task.length", "8", "--model.d-vocab", "24", "--model.n-ctx", "8"),
    *("--model.n-layers", "1", "--model.d-model", "8", "--model.n-heads", "1"),
]

REGISTER = """
import ihlab
methods = dict.fromkeys(("runs", "gather", "claims", "draw", "summary"), id)
ihlab.register_experiment(type("Mine", (), {"name": "mine", **methods}))
"""


SCRIPTS = [
    "import ihlab; [getattr(ihlab, name) for name in ihlab.__all__]",
    REGISTER,
    "import ihlab.attribution, ihlab.interp, ihlab.suite, ihlab.sweep.sweep, ihlab.study.study, ihlab.viewer",
    f"from ihlab.cli import main; main({TRAIN})",
]


@pytest.mark.slow
def test_nothing_but_the_commands_of_the_paper_loads_it(tmp_path):
    """One process for all, which each take seconds to start."""
    loaded = "import sys\nassert not [name for name in sys.modules if name.startswith('ihlab.paper')]"
    script = "".join(f"{each}\n{loaded}, {each!r}\n" for each in SCRIPTS)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_experiments_from_outside_come_after_the_papers_and_keep_off_their_names():
    """They are registered before the paper's studies are loaded."""
    listed = "\nfrom ihlab.paper.studies.registry import EXPERIMENTS; print(*EXPERIMENTS)"
    done = subprocess.run([sys.executable, "-c", REGISTER + listed], capture_output=True, text=True, check=True)
    first, *_, last = done.stdout.split()
    assert (first, last) == ("figure1a", "mine")
    taken = REGISTER.replace('"mine"', '"figure8"') + listed
    done = subprocess.run([sys.executable, "-c", taken], capture_output=True, text=True, check=False)
    assert (
        "There is an experiment 'figure8' already, ihlab.paper.studies.hops.rope_config: __main__.Mine needs"
        in done.stderr
    )


def test_a_study_replaces_only_itself(monkeypatch):
    """All studies are of one class. A cell of a notebook that runs again registers its study again."""
    monkeypatch.setattr(registry, "EXPERIMENTS", {})
    one, again, other = (study(config=function) for function in (config, partial(config), lambda cell, scale: None))
    for made in (one, again):
        assert registry.register_experiment(made) is made
    with pytest.raises(ConfigError, match=r"'toys' already, .*test_study\.config: .*<lambda> needs another name"):
        registry.register_experiment(other)
