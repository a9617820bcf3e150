"""Hostile values for configs in Python and on the command line: each must work or be rejected with
one sentence.

A config's fields are drawn from values that their types allow and from values of any other type. An
accepted config must have a hash and survive a round trip through JSON; some of the small ones train
for two steps. Command lines consist of known options and hostile words, and run in this process:
they must end with 0, or with 1, 2 or 74 and one sentence. Anything else fails: another exception, a
traceback, a terminal colour set by a name, more than `LIMIT` seconds. Failures are written to
failures.txt.
"""

import contextlib
import io
import json
import math
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from ihlab import ModelConfig, RunConfig, train
from ihlab.cli import SYSTEM_ERROR, main
from ihlab.training.run_writer import TrainingDivergedError
from tasks import (
    IGSMTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
)
from tasks.codec import from_plain, to_plain
from tasks.config import ConfigError
from tests.faults.table import Row
from tests.faults.time_limit import Slow, time_limit

LIMIT = 60.0
"""Seconds for one example."""
TRAINED = 25
"""One in this many of the small accepted configs is trained."""

CONFIGS = "configs in Python: an object, or one sentence"
STORED = "accepted configs: back from JSON as they were"
TRAININGS = "small ones: two steps of training"
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


@dataclass
class Tally:
    """Counts of tries and failures, and a text of each failure."""

    folder: Path
    tried: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def one(self, what: str, example: object) -> Iterator[None]:
        """Count one example. Count a failure unless the block ends normally or with a one-line
        `ConfigError`.
        """
        self.tried[what] += 1
        try:
            with time_limit(LIMIT):
                yield
        except ConfigError as error:
            sentence = str(error)
            if not sentence or len(sentence) > 4000 or not sentence.isprintable():
                self.fail(what, example, f"no sentence: {sentence!r}")
        except (Exception, Slow):
            self.fail(what, example, traceback.format_exc())

    def fail(self, what: str, example: object, reason: str) -> None:
        """Count a failure, and write it down."""
        self.failed[what] += 1
        with (self.folder / "failures.txt").open(
            "a", encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"{what}\n{_safe_repr(example)}\n{reason}\n\n")


def campaign(examples: int, seed: int, folder: Path) -> list[Row]:
    """Try this many examples, which depend only on the seed, and return a row for each kind of
    fault.
    """
    inside = folder / "inside"  # so that "../x" stays in the folder
    inside.mkdir(parents=True, exist_ok=True)
    tally = Tally(folder)
    with contextlib.chdir(inside), patch.dict(os.environ, COLUMNS="200"):
        _warm_up()
        of_commands = examples // 4
        _draw(configs(), examples - of_commands, seed, lambda drawn: try_config(tally, drawn))
        _draw(command_lines(), of_commands, seed, lambda drawn: try_command(tally, COMMANDS, drawn))
    return [Row(what, tally.tried[what], tally.failed[what]) for what in KINDS]


def _draw(
    strategy: st.SearchStrategy[Any], examples: int, seed: int, attempt: Callable[[Any], None]
) -> None:
    """Call `attempt` on this many drawn values. It must not raise, so that one failure does not end
    the campaign.
    """

    @seeded(seed)
    @settings(
        max_examples=max(examples, 1), deadline=None, database=None, derandomize=False, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def every(drawn: Any) -> None:
        attempt(drawn)

    every()


def _warm_up() -> None:
    """Compile and load everything that examples need, and train the run that commands open. None of
    this is timed.
    """
    for cls, base in BASE_TASKS:
        cls(**base).batch(2, np.random.default_rng(0))
    task = InductionTask(**BASE_TASKS[0][1])
    run = train(
        RunConfig(task=task, model=ModelConfig(**BASE_MODEL), name="small", **BASE_RUN),
        "runs",
        "cpu",
    )
    for command in (["heads"], ["shift"], ["view"], ["heads", "--out", "a.png"]):
        _run_command([command[0], str(run.folder), *command[1:]], "utf-8")


# Values of any type

WORDS = [
    "", " ", "0", "-1", "nan", "inf", "1e400", "1e-400", "none", "None", "True", "[red]", "[/]", "[bold]x[/bold]",
    ":x:",
    "\x1b[31mred", "a\nb", "a\rb", "\0", "\x07", "é", "日本", "\udcff", "\ud800", "=1+1", "-x", "--", "@a", "+1",
    "x" * 300,
    "../x", "/proc/x", "/dev/null", ".", "..", "a/b", "small", "%s", "{0}", "$(x)", "induction", "kv_shift", "\u202e",
    str(2**64), str(10**30), "9" * 5000, "1_000", "٣", "0x10", "1,2", "3,1,4", "1;2",
]  # fmt: skip


class _Rude:
    def __repr__(self) -> str:
        raise ZeroDivisionError("no repr")


def _enormous() -> int:
    return 10**5000  # Python refuses to print it


INTEGERS = st.one_of(
    st.integers(-2, 40), st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**12, 10**30,
    -(2**63)]),
    st.builds(_enormous), st.integers(),
)  # fmt: skip
NUMPY = st.sampled_from([
    np.int64(3), np.uint8(7), np.float32(0.1), np.float64(0.5), np.bool_(True), np.str_("x"), np.float64("nan"),
    np.longdouble(1), np.complex64(1j), np.datetime64("2020"), np.array(3), np.array([1, 2]), np.array(["a"]),
    np.zeros(0),
])  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.floats(), st.sampled_from(WORDS), st.text(max_size=8),
    st.binary(max_size=4),
    NUMPY, st.builds(_Rude), st.sampled_from([object(), int, len, 1j, ..., NotImplemented, range(3)]),
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


def plausible(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a field's type, some of them out of range."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return st.one_of(*(plausible(sort) for sort in get_args(hint)))
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin is tuple:
        each = plausible(get_args(hint)[0])
        return st.lists(each, max_size=4) | st.tuples(each, each)
    known = {
        NoneType: st.none(), bool: st.booleans(), int: INTEGERS, float: st.floats(0, 2) | st.floats(),
        str: st.sampled_from(WORDS),
    }  # fmt: skip
    return known.get(hint, HOSTILE)


@st.composite
def changes(draw: st.DrawFn, cls: Any) -> dict[str, Any]:
    """Draw other values for up to three fields of a config, sometimes for a field that it does not
    have.
    """
    hints = get_type_hints(cls)
    names = [one.name for one in fields(cls) if one.name not in ("task", "model")]
    chosen = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    hostile = draw(st.booleans())
    changed = {}
    for name in chosen:
        values = plausible(hints[name])
        changed[name] = draw(values | HOSTILE if hostile else values)
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


def try_config(tally: Tally, drawn: dict[str, Any]) -> None:
    """Make the config; store, read and, if it is small, train it."""
    run: RunConfig | None = None
    with tally.one(CONFIGS, drawn):
        task, sizes = drawn["cls"](**drawn["task"]), {**drawn["model"]}
        for name, least in (("d_vocab", task.vocab_size), ("n_ctx", task.length)):
            if type(sizes[name]) is int and sizes[name] == BASE_MODEL[name]:
                sizes[name] = max(sizes[name], least)
        run = RunConfig(**{"task": task, "model": ModelConfig(**sizes), **drawn["run"]})
    if run is None:
        return
    with tally.one(STORED, drawn):
        read = from_plain(RunConfig, json.loads(json.dumps(to_plain(run), allow_nan=False)))
        assert read == run
        assert hash(read) == hash(run)
        assert read.digest == run.digest
        assert read.name == run.name
    if drawn["trained"] and is_small(run):
        with tally.one(TRAININGS, drawn), contextlib.suppress(TrainingDivergedError):
            trained = train(
                run.replace(steps=2, compile=False), "runs", "cpu", lambda step, row: None
            )
            assert trained.done is not None
            assert math.isfinite(trained.metrics["eval_loss"].iloc[-1])


def is_small(run: RunConfig) -> bool:
    """Return whether two steps of the run are quick."""
    model, task = run.model, run.task
    widths = (model.d_model, model.n_heads, model.head_width, model.mlp_width, model.n_layers)
    large = max(*widths, model.shift_window) > 64 or max(run.batch_size, run.eval_rows) > 160
    long = task.length > 160 or max(model.d_vocab, task.vocab_size, model.n_ctx) > 4096
    return not large and not long and getattr(task, "difficulty", "toy") == "toy"


# Command lines

NUMBERS = st.sampled_from(["0", "1", "2", "3", "7", "12", "-1", "1.5", "nan", "inf", "-inf", "1e400", "1e-400", "1e308",
                           str(10**12), str(2**63), str(2**64), str(10**30), "9" * 5000])  # fmt: skip
VALUES = st.one_of(NUMBERS, st.sampled_from(WORDS), st.text(max_size=6))
FEW = st.sampled_from(
    ["1", "2", "3", "0", "-1", "x", "nan", "1e3", ""]
)  # steps: a large number would be obeyed


def _fields(cls: Any) -> list[str]:
    return [each.name.replace("_", "-") for each in fields(cls)]


OPTIONS = {
    "train": [
        *("--root", "--device", "--members", "--stepz", "--model"),
        *(f"--{name}" for name in _fields(RunConfig) if name != "compile"),  # which would take minutes
        *(f"--task.{name}" for name in _fields(InductionTask)), *(f"--model.{name}" for name in _fields(ModelConfig)),
    ],
    "sample": "--rows --seed --length --vocab-size --out --min-token --max-hops --pairs --ops".split(),
    "runs": ["--root"],
    "heads": "--root --step --rows --seed --csv --out".split(),
    "shift": "--root --step --csv --out".split(),
    "view": "--root --out --tokens --rows --checkpoints".split(),
    "sweep": "--engine --jobs --root --out --retries".split(),
}  # fmt: skip
FILES = st.sampled_from(
    "a.csv a.png a.svg a.html A.CSV no/such/a.csv runs /proc/x.csv /proc/x.html".split()
)
TINY = (
    "--steps 2 --batch-size 4 --eval-rows 8 --eval-every 4 --checkpoints 3 --warmup 1 --task.vocab-size 40 "
    "--task.length 12 --model.n-layers 1 --model.d-model 8 --model.n-heads 2 --model.d-vocab 40 --model.n-ctx 12"
).split()


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], str]:
    """Draw a command line, and the encoding of the terminal."""
    command = draw(st.sampled_from(sorted(OPTIONS)))
    words = [command]
    if command == "train":
        words += [*draw(st.sampled_from([[], ["induction"]])), *TINY, "--device", "cpu"]
    elif command == "sample":
        kinds = st.sampled_from("induction multihop ngram mqar igsm".split())
        words.append(draw(kinds | VALUES.filter(_no_module)))
    elif command != "runs" or draw(st.booleans()):
        words.append(draw(st.sampled_from(["small", "runs", "s", *WORDS])))
    for name in draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
        values = FILES | VALUES if name in ("--out", "--csv") else VALUES
        if name == "--steps":
            values = FEW
        least = int(draw(st.integers(0, 9)) > 0)
        words += [name, *draw(st.lists(values, min_size=least, max_size=2))]
    if draw(st.integers(0, 20)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(VALUES.filter(_no_module)))
    return words, draw(st.sampled_from(["ascii", "utf-8"]))


def _no_module(word: str) -> bool:
    """Return False for a module:name, which would be imported."""
    return ":" not in word


def try_command(tally: Tally, what: str, drawn: tuple[list[str], str]) -> None:
    """Run a command line as `main` does."""
    words, encoding = drawn
    with tally.one(what, words):
        code, printed = _run_command(words, encoding)
        said = [line for line in printed.splitlines() if line.startswith("ihlab: ")]
        assert code in (0, 1, 2, SYSTEM_ERROR), code
        assert code == 0 or printed.strip(), "ended without a word"
        assert len(said) <= 1, said
        assert "Traceback" not in printed, printed
        assert "\x1b" not in printed, printed


def _run_command(words: list[str], encoding: str) -> tuple[int, str]:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    code = 0
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 3
        except ConfigError as error:
            raise AssertionError("main lets a ConfigError pass") from error
    return code, raw.getvalue().decode(encoding)


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return repr(getattr(value, "items", lambda: [])() and sorted(map(str, value)))  # type: ignore[call-overload]
