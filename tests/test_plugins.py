"""Tasks and experiments from outside the package, as a user writes them, in a folder of their own."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import tasks.registry
from ihlab import ModelConfig, Run, RunConfig, train
from ihlab.cli import main
from ihlab.study.registry import EXPERIMENTS, register_experiment
from ihlab.training.config import from_dict, to_dict
from tasks import TASKS, ConfigError, InductionTask, StoredTask, register_task
from tasks.config import config
from tasks.registry import load_plugins
from tests import forked

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).parents[1] / "docs" / "extend.md").read_text(encoding="utf-8")
MINE = GUIDE.partition("```python\n")[2].partition("```")[0]
"""The file that the guide prints."""

SMALL = (
    "--steps 3 --batch-size 4 --eval-rows 8 --warmup 1 --model.n-layers 1 --model.d-model 16 --model.n-heads 2 "
    "--model.d-vocab 16 --model.n-ctx 8"
).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("mine")
    (path / "mine.py").write_text(MINE, encoding="utf-8")
    (path / "stops.py").write_text("raise GeneratorExit")
    return path


def python(folder, script, *args, fails=False, run=forked.python):
    done = run(script, *args, cwd=folder)
    assert (done.returncode != 0) == fails, done.stderr
    assert "Traceback" not in done.stderr or not fails, done.stderr
    return done.stderr if fails else done.stdout


def ihlab(folder, *args, **more):
    script = "import sys; from ihlab.cli import main; sys.path.remove(''); main(sys.argv[1:])"  # as the command starts
    return python(folder, script, *args, **more)


def started(script, *args, cwd):
    """Python itself, from its start."""
    return subprocess.run(
        [sys.executable, "-c", script, *args], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def trained(folder):
    ihlab(folder, "train", "mine:CopyTask", *SMALL, "--name", "copied", run=started)
    [path] = (folder / "runs").glob("copied-*")
    return path


def test_a_task_of_ones_own_is_sampled_and_trained_by_module_and_class(folder, trained):
    assert len(ihlab(folder, "sample", "mine:CopyTask").split()) == 8
    assert "copied-" in ihlab(
        folder, "view", "copied", "--task", "mine:CopyTask", "--checkpoints", "2"
    )
    assert json.loads((trained / "config.json").read_text())["task"] == {
        "kind": "copy",
        "vocab_size": 16,
        "length": 8,
    }


def test_its_run_opens_without_the_class_but_for_rows(folder, trained):
    run = Run.open(trained)
    assert isinstance(run.config.task, StoredTask)
    assert run.config.task.fields == {"vocab_size": 16, "length": 8}
    assert len(run.metrics) == 2
    assert run.model().cfg.d_vocab == 16
    assert to_dict(run.config) == json.loads((trained / "config.json").read_text())
    with pytest.raises(
        ConfigError, match="task 'copy' is not registered: import its class and call ihlab"
    ):
        run.config.task.batch(1, np.random.default_rng(0))
    assert "copied" in ihlab(folder, "runs")
    for command in ("heads", "view"):
        said = ihlab(folder, command, "copied", fails=True)
        assert "config.json: The task 'copy' is not registered" in " ".join(said.split())


def test_a_figure_of_ones_own_is_made_and_stands_on_the_page(folder):
    ihlab(folder, "reproduce", "mine:COPYING", "--scale", "smoke", "--jobs", "1", run=started)
    assert (folder / "figures" / "copying" / "smoke" / "copying.svg").exists()
    page = (folder / "figures" / "copying" / "README.md").read_text(encoding="utf-8")
    assert "| vanilla | 2 |" in page
    assert "It copies." in page
    ihlab(folder, "reproduce", "mine:COPYING", "--scale", "smoke", "--from-data")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere:CopyTask", "there is no module 'nowhere'"),
        ("mine:CopTask", "the module 'mine' has no 'CopTask'"),
        (":CopyTask", "is not of the form module:name"),
        ("stops:X", "the module 'stops' ends Python when it is imported (GeneratorExit())"),
        ("json:JSONDecoder", "JSONDecoder.kind is None, but must be a string of the class"),
    ],
)
def test_what_cannot_be_imported_or_is_no_task_says_so(folder, name, sentence, monkeypatch, capsys):
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(SystemExit):
        main(["train", name])
    sys.modules.pop("mine", None)
    assert sentence in capsys.readouterr().err


def test_a_sweep_imports_nothing_that_its_file_names(folder):
    (folder / "grid.toml").write_text(
        'seeds = 2\n[task]\nkind = "mine:CopyTask"\n[model]\nd_vocab = 16\n'
    )
    assert "There is no task 'mine:CopyTask'" in ihlab(folder, "sweep", "grid.toml", fails=True)


def test_a_module_called_tasks_is_named(tmp_path):
    (tmp_path / "tasks.py").touch()
    stderr = subprocess.run(
        [sys.executable, "-c", "import ihlab"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stderr
    hidden = f"{tmp_path / 'tasks.py'} hides the package 'tasks' that ihlab comes with"
    assert hidden in stderr.splitlines()[-1]


# Registering


@pytest.fixture(autouse=True)
def _as_before():
    tasks_before, experiments = dict(TASKS), dict(EXPERIMENTS)
    yield
    for live, before in ((TASKS, tasks_before), (EXPERIMENTS, experiments)):
        live.clear()
        live.update(before)


def made(name="Mine", **altered):
    parts = {
        "kind": "mine",
        "batch": lambda *_: None,
        "show": lambda *_: None,
        "__annotations__": {"vocab_size": int},
    }
    parts |= {"vocab_size": 8, "length": 8} | altered
    return config(type(name, (), {key: value for key, value in parts.items() if value is not None}))


def test_what_is_registered_is_known_and_may_be_again():
    cls = register_task(made())
    assert TASKS["mine"] is cls
    assert register_task(made()) is TASKS["mine"]  # as in a notebook, where a cell is run twice


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: 3, "3 is not a class"),
        (lambda: object, "object.kind is None, but must be a string"),
        (lambda: made(length=None, show=None), "Mine is not a task: it has no length, show"),
        (
            lambda: made(kind="induction"),
            "There is a task 'induction' already, InductionTask: Mine needs another kind",
        ),
        (lambda: type("Plain", (), {"kind": "plain"}), "Plain is not a dataclass"),
    ],
)
def test_what_is_no_task_says_what_it_lacks(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        register_task(wrong())


def test_an_unregistered_task_is_refused_before_training(tmp_path):
    model = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=8, n_ctx=8)
    with pytest.raises(ConfigError, match="The task 'mine' is not registered"):
        train(RunConfig(task=made()(), model=model, steps=1), tmp_path)
    assert not list(tmp_path.iterdir())


def test_experiments_are_checked_likewise():
    with pytest.raises(
        ConfigError, match="Half is not an experiment: it has no claims, draw, summary"
    ):
        register_experiment(type("Half", (), {"name": "half", "runs": id, "gather": id}))
    whole = dict.fromkeys(("runs", "gather", "claims", "draw", "summary"), id)
    register_experiment(type("Mine", (), {"name": "mine", **whole}))
    assert "mine" in EXPERIMENTS
    with pytest.raises(
        ConfigError, match=r"There is an experiment 'mine' already, .*Mine: .*Other needs another"
    ):
        register_experiment(type("Other", (), {"name": "mine", **whole}))


@pytest.fixture
def load(monkeypatch, tmp_path, capsys):
    """Return a function that loads plug-ins from texts of modules, and returns the lines printed."""
    monkeypatch.syspath_prepend(tmp_path)

    def from_texts(**modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        points = [EntryPoint("a", f"{name}:X", "ihlab.tasks") for name in modules]
        monkeypatch.setattr(tasks.registry, "entry_points", lambda group: points)
        load_plugins("ihlab.tasks", register_task)
        return capsys.readouterr().err.splitlines()

    return from_texts


TASK = """
from tasks.config import config
@config
class X:
    kind = "{kind}"
    vocab_size: int = 8
    length: int = 8
    batch = show = None
"""


def test_plug_ins_that_fail_are_named_and_the_others_load(load):
    good, taken = TASK.format(kind="good"), TASK.format(kind="induction")
    said = load(plug_a="import no_such_module", plug_b=good, plug_c=good, plug_d=taken)
    named = [line.partition(" is left out: ")[0] for line in said]
    assert named == [f"The plug-in a (plug_{name}:X)" for name in "acd"]
    assert TASKS["good"].__module__ == "plug_b"
    assert TASKS["induction"] is InductionTask


@pytest.mark.parametrize(
    "raised",
    [
        "GeneratorExit",
        "type('Own', (BaseException,), {'__str__': lambda self: 1 / 0})()",
        "ValueError(chr(27) + '[31m' + 'x' * 10_000)",
        "type('Long' * 10_000, (Exception,), {})()",
    ],
)
def test_a_plug_in_that_raises_anything_is_named_in_one_line(load, raised):
    [said] = load(raises=f"raise {raised}")
    assert said.startswith("The plug-in a (raises:X) is left out: ")
    assert said.isprintable()
    assert len(said) < 1000


def test_ctrl_c_while_a_plug_in_loads_stops(load):
    with pytest.raises(KeyboardInterrupt):
        load(waits="import os, signal\nos.kill(os.getpid(), signal.SIGINT)")


def test_an_unknown_kind_without_sizes_is_as_large_as_its_model():
    config_ = RunConfig(
        task=InductionTask(),
        model=ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=8000, n_ctx=512),
    )
    stored = to_dict(config_)
    stored["task"] = {"kind": "elsewhere", "rule": 3, "depth": 2}
    opened = from_dict(stored)
    assert (opened.task.vocab_size, opened.task.length) == (8000, 512)
    assert to_dict(opened)["task"] == stored["task"]
