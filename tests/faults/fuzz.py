"""Hostile values for configs in Python and on the command line: each must work or be rejected with
one sentence.

A config's fields are drawn from values that their types allow and from values of any other type. An
accepted config must have a hash and survive a round trip through JSON; some of the small ones train
for two steps. Command lines consist of known options and hostile words (`ways_in.said`).
"""

import contextlib
import json
import math
import os
import traceback
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from ihlab import ModelConfig, RunConfig, train
from ihlab.training.run_writer import TrainingDivergedError
from tasks import IGSMTask, InductionTask, MQARTask, MultiHopTask, NGramTask
from tasks.codec import from_plain, to_plain
from tasks.config import ConfigError
from tests.faults.table import Row, Tally
from tests.faults.time_limit import Slow, time_limit
from tests.faults.ways_in import said

LIMIT = 60.0
"""Seconds for one example."""
TRAINED = 8
"""One in this many of the small accepted configs is trained."""

CONFIGS = "configs in Python: accepted, or refused in one sentence"
STORED = "accepted configs: read back from JSON unchanged"
TRAININGS = "small accepted configs: trained for two steps"
COMMANDS = "command lines: exit 0, or one sentence"
KINDS = (CONFIGS, STORED, TRAININGS, COMMANDS)

BASE_MODEL: dict[str, Any] = {
    "n_layers": 1,
    "d_model": 8,
    "n_heads": 2,
    "d_vocab": 64,
    "n_ctx": 24,
    "attention": "kv_shift",
}
BASE_RUN = {
    "steps": 2,
    "batch_size": 4,
    "eval_rows": 8,
    "eval_every": 1,
    "checkpoints": 2,
    "warmup": 1,
}
BASE_TASKS: list[tuple[Any, dict[str, Any]]] = [
    (InductionTask, {"vocab_size": 40, "length": 12}),
    (NGramTask, {"vocab_size": 40, "length": 12, "table_size": 20}),
    (MQARTask, {"vocab_size": 40, "length": 16, "pairs": 2}),
    (MultiHopTask, {"vocab_size": 40, "length": 12, "max_hops": 3}),
    (IGSMTask, {"difficulty": "toy", "ops": "<=3", "length": 160}),
]


def fault(act: Callable[[], Any]) -> str:
    """Return what is wrong with the end of a call: neither a result nor a sentence, or too late."""
    try:
        with time_limit(LIMIT):
            act()
    except ConfigError as error:
        sentence = str(error)
        is_one = bool(sentence) and len(sentence) <= 4000 and sentence.isprintable()
        return "" if is_one else f"no sentence: {sentence!r}"
    except (Exception, Slow):
        return traceback.format_exc()
    return ""


def campaign(examples: int, seed: int, folder: Path) -> list[Row]:
    """Try this many examples, which depend only on the seed, and return a row for each kind of
    fault.
    """
    inside = folder / "inside"  # so that "../x" stays in the folder
    inside.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    with contextlib.chdir(inside), patch.dict(os.environ, COLUMNS="200"):
        _warm_up()
        of_commands = examples // 4
        _draw(configs(), examples - of_commands, seed, lambda drawn: try_config(tally, drawn))
        _draw(command_lines(), of_commands, seed, lambda drawn: try_command(tally, drawn))
    return tally.rows()


def _draw(
    strategy: st.SearchStrategy[Any], examples: int, seed: int, attempt: Callable[[Any], None]
) -> None:
    """Call `attempt` on this many drawn values. It must not raise, so that one failure does not end
    the campaign.
    """
    options = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seeded(seed)(options(given(strategy)(attempt)))()


def _warm_up() -> None:
    """Compile and load everything that examples need, and train the run that commands open. None of
    this is timed.
    """
    for cls, base in BASE_TASKS:
        cls(**base).batch(2, np.random.default_rng(0))
    task = InductionTask(**BASE_TASKS[0][1])
    config = RunConfig(task=task, model=ModelConfig(**BASE_MODEL), name="small", **BASE_RUN)
    train(config, "runs", "cpu")
    for command in ("heads small", "shift small", "view small", "heads small --out a.png"):
        said(command.split(), Path())


# Values of any type

WORDS = [
    "", " ", "0", "nan", "1e400", "none", "True", "[/]", "[bold]x[/bold]", ":x:", "\x1b[31mred", "a\nb", "a\rb", "\0",
    "é", "日本", "\udcff", "\ud800", "=1+1", "-x", "--", "@a", "x" * 300, "../x", "/proc/x", "/dev/null", "..", "a/b",
    "small", "%s", "{0}", "kv_shift", "\u202e", "9" * 5000, "1_000", "٣", "3,1,4",
]  # fmt: skip


INTEGERS = (
    st.integers(-2, 40) | st.sampled_from([2**53 + 1, 2**63, 2**64, 10**12, 10**30]) | st.integers()
)
NUMPY = st.sampled_from([
    np.int64(3), np.float32(0.1), np.bool_(True), np.str_("x"), np.float64("nan"), np.complex64(1j),
    np.datetime64("2020"), np.array(3), np.array([1, 2]), np.zeros(0),
])  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.floats(), st.sampled_from(WORDS), st.text(max_size=8),
    st.binary(max_size=4),
    NUMPY, st.sampled_from([object(), int, len, 1j, ..., range(3)]),
)  # fmt: skip
HOSTILE = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
    ),
    max_leaves=6,
)


@st.composite
def changes(draw: st.DrawFn, cls: Any) -> dict[str, Any]:
    """Draw other values for up to three fields of a config, sometimes for a field that it does not
    have.
    """
    hints = get_type_hints(cls)
    names = [one.name for one in fields(cls) if one.name not in ("task", "model")]
    chosen = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    hostile = draw(st.booleans()) or "clamped" in chosen  # made of objects that check their values
    changed = {}
    for name in chosen:
        changed[name] = draw(HOSTILE if hostile else st.from_type(hints[name]))
    if draw(st.integers(0, 30)) == 0:
        changed[draw(st.text(max_size=6))] = 0
    return changed


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the fields of a task, a model and a run; sometimes replace the task or the model by
    something else.
    """
    cls, base = draw(st.sampled_from(BASE_TASKS))
    drawn = {
        "cls": cls,
        "task": {**base, **draw(changes(cls))},
        "model": {**BASE_MODEL, **draw(changes(ModelConfig))},
        "run": {**BASE_RUN, **draw(changes(RunConfig))},
        "trained": draw(st.integers(0, TRAINED - 1)) == 0,
    }
    if draw(st.integers(0, 40)) == 0:
        drawn["run"][draw(st.sampled_from(["task", "model"]))] = draw(HOSTILE)
    return drawn


def config_of(drawn: dict[str, Any]) -> RunConfig:
    """Make the config. Its model fits the task, unless its own sizes were drawn."""
    task, sizes = drawn["cls"](**drawn["task"]), {**drawn["model"]}
    for name, least in (("d_vocab", task.vocab_size), ("n_ctx", task.length)):
        if type(sizes[name]) is int and sizes[name] == BASE_MODEL[name]:
            sizes[name] = max(sizes[name], least)
    return RunConfig(**{"task": task, "model": ModelConfig(**sizes), **drawn["run"]})


def store(run: RunConfig) -> None:
    """Write and read a config as JSON."""
    read = from_plain(RunConfig, json.loads(json.dumps(to_plain(run), allow_nan=False)))
    assert (read, hash(read), read.digest, read.name) == (run, hash(run), run.digest, run.name)


def train_briefly(run: RunConfig) -> None:
    """Train for two steps."""
    with contextlib.suppress(TrainingDivergedError):
        trained = train(run.replace(steps=2, compile=False), "runs", "cpu", lambda step, row: None)
        assert math.isfinite(trained.metrics["eval_loss"].iloc[-1])


def try_config(tally: Tally, drawn: dict[str, Any]) -> None:
    """Make the config; store, read and, if it is small, train it."""
    made: list[RunConfig] = []
    about = repr(drawn)
    tally.add(CONFIGS, fault(lambda: made.append(config_of(drawn))), about)
    for run in made:
        tally.add(STORED, fault(partial(store, run)), about)
        if drawn["trained"] and is_small(run):
            tally.add(TRAININGS, fault(partial(train_briefly, run)), about)


def is_small(run: RunConfig) -> bool:
    """Return whether two steps of the run are quick."""
    model, task = run.model, run.task
    widths = (model.d_model, model.n_heads, model.head_width, model.mlp_width, model.n_layers)
    rows = (run.batch_size, run.eval_rows, task.length, model.shift_window)
    vocabulary = max(model.d_vocab, task.vocab_size, model.n_ctx)
    is_toy = getattr(task, "difficulty", "toy") == "toy"
    return max(widths) <= 64 and max(rows) <= 160 and vocabulary <= 4096 and is_toy


# Command lines

NUMBERS = [
    "0",
    "1",
    "2",
    "12",
    "-1",
    "1.5",
    "nan",
    "-inf",
    "1e400",
    "1e-400",
    str(10**12),
    str(2**64),
]
PATHS = "a.csv a.png a.html A.CSV no/such/a.csv runs /proc/x.csv".split()
VALUES = st.sampled_from([*NUMBERS, *PATHS, *WORDS]) | st.text(max_size=6)
TINY = (
    "train induction --batch-size 4 --eval-rows 8 --eval-every 4 --checkpoints 3 --warmup 1 --task.vocab-size 40 "
    "--task.length 12 --model.n-layers 1 --model.d-model 8 --model.n-heads 2 --model.d-vocab 40 --model.n-ctx 12 "
    "--device cpu --steps"
)
OF_TRAINING = [
    *(f"--{each.name}" for each in fields(RunConfig) if each.name not in ("steps", "compile")),
    *(f"--task.{each.name}" for each in fields(InductionTask)),
    *(f"--model.{each.name}" for each in fields(ModelConfig)),
]
"""Options of `train`, without those that would be obeyed for minutes."""
OTHERS = (
    "--root --out --csv --step --rows --seed --tokens --length --vocab-size --ops --members --jobs --engine"
).split()


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Draw a command line."""
    trains = draw(st.booleans())
    if trains:
        words = [*TINY.split(), draw(st.sampled_from(["2", "0", "-1", "x", ""]))]
    else:
        commands = "sample runs heads shift view sweep".split()
        words = [draw(st.sampled_from(commands)), draw(st.sampled_from(["small", "igsm"]) | VALUES)]
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(OF_TRAINING if trains else OTHERS))
        words += [name, *draw(st.lists(VALUES, min_size=1, max_size=2))]
    return [word for word in words if ":" not in word]  # a module:name would be imported


def try_command(tally: Tally, words: list[str]) -> None:
    """Run a command line as `main` does."""
    printed, wrong = said(words, Path(), longest=10**5)  # a sentence may repeat long words
    if "\x1b" in printed:
        wrong += "It colours the terminal."
    tally.add(COMMANDS, wrong, repr(words))
