"""Every way to read or resume a run folder, as functions whose results can be compared."""

import hashlib
import io
import json
import re
import shutil
import traceback
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file
from torch import Tensor

import ihlab
from ihlab import ModelConfig, Run, RunConfig, fork, train
from ihlab.cli import SYSTEM_ERROR, main
from ihlab.training import checkpoint
from ihlab.training.config import to_dict
from tasks import ConfigError, InductionTask
from tasks.config import require
from tests.faults.time_limit import Slow, time_limit

SECONDS = 10
"""Seconds in which every way must answer."""

LONGEST = 1500
"""Largest number of characters of a sentence, including paths."""

CONFIG = RunConfig(
    name="small",
    task=InductionTask(vocab_size=24, length=12),
    model=ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=24, n_ctx=12, attention="kv_shift"),
    steps=9,
    batch_size=4,
    warmup=2,
    eval_every=3,
    eval_rows=8,
    checkpoints=4,
)
OPTIONS = """
--name small --task.vocab-size 24 --task.length 12 --model.n-layers 1 --model.d-model 8 --model.n-heads 2
--model.d-vocab 24 --model.n-ctx 12 --model.attention kv_shift --steps 9 --batch-size 4 --warmup 2 --eval-every 3
--eval-rows 8 --checkpoints 4 --device cpu
""".split()
STOPPED_AT = 6


class Refused(NamedTuple):
    """A sentence in place of a result."""

    sentence: str


def pristine(folder: Path) -> None:
    """Make the roots "finished" and "stopped" (at `STOPPED_AT`). Each has a run `small` and another
    finished run.
    """
    train(CONFIG, folder / "finished", "cpu")
    train(CONFIG.replace(name="other", seed=1), folder / "finished", "cpu")
    shutil.copytree(folder / "finished", folder / "stopped")
    run = Run.open(CONFIG.folder(folder / "stopped"))
    (run.folder / "done.json").unlink()
    for path in (run.checkpoint_path, run.optimizer_path):
        path(CONFIG.steps).unlink()
    table = Run.open(
        run.folder
    ).metrics  # rows after the last checkpoint would be ignored and measured again
    run.write_metrics(table[table["step"] <= STOPPED_AT].to_dict("records"))


# In Python


def opened(folder: Path) -> str:
    return json.dumps(to_dict(Run.open(folder).config))


def metrics(folder: Path) -> str:
    return str(Run.open(folder).metrics.to_csv())


def model(folder: Path) -> str:
    return digest(checkpoint.model_state(Run.open(folder).model()))


def digest(tensors: Mapping[str, Tensor]) -> str:
    content = {name: (tensor.dtype, tensor.tolist()) for name, tensor in sorted(tensors.items())}
    return hashlib.sha256(repr(content).encode()).hexdigest()


def listed(folder: Path) -> str:
    table = ihlab.runs(folder.parent)
    own = table[table["run"] == str(folder)]
    others = table[table["run"] != str(folder)].to_csv()
    is_damaged = own["status"].tolist() == ["damaged"]
    require(not is_damaged or "done" not in others, "".join(own["problem"].astype(str)))
    return str(own.to_csv()) + str(others)


def forked(folder: Path) -> str:
    run = Run.open(folder)
    made = fork(
        run,
        run.require_checkpoint(),
        steps=CONFIG.steps + 1,
        root=folder.parent / "forks",
        device="cpu",
    )
    return metrics(made.folder) + model(made.folder)


def resumed(folder: Path) -> str:
    """Return everything that training stores, except times."""
    run = train(CONFIG, folder.parent, "cpu")
    kept = [(run.folder / "metrics.csv").read_text()]
    for step in run.checkpoints:
        for path in (run.checkpoint_path(step), run.optimizer_path(step)):
            tensors = load_file(path)
            tensors.pop("tally/seconds", None)
            kept.append(digest(tensors))
    return "".join(kept)


# On the command line


def command(*args: str) -> str:
    """Run `ihlab` in this process, and return what it prints.

    Raises `ConfigError` for one line on stderr with exit code 1, 2 or 74. The recipe of a run that
    trains may come before that line.
    """
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(args)
    except SystemExit as stopped:
        said = re.sub(r"^\S+: task .*\n", "", err.getvalue())
        if stopped.code in (1, 2, SYSTEM_ERROR) and said.startswith("ihlab: "):
            raise ConfigError(said.removeprefix("ihlab: ").removesuffix("\n")) from None
        return f"exit code {stopped.code}: {said}"
    return out.getvalue()


Opening = list[str] | Callable[[], Any]
"""A command's arguments, or a Python function to call."""


def said(opening: Opening, where: Path, longest: int = LONGEST) -> tuple[str, str]:
    """Run a command in this process. Return its output, and a description of a wrong end ("" if
    there is none).
    """
    out, err, wrong = io.StringIO(), io.StringIO(), ""
    try:
        with (
            chdir(where),
            time_limit(2 * SECONDS),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            opening() if callable(opening) else main(opening)
    except ConfigError as error:
        err.write(str(error))
        if "\n" in str(error) or len(str(error)) > longest or not callable(opening):
            wrong = f"no sentence: {error}"
    except OSError as error:
        err.write(str(error))
        if not error.filename:
            wrong = f"no file is named: {error}"
    except SystemExit as stopped:
        printed = err.getvalue()
        last = printed.rstrip("\n").rpartition("\n")[2]
        sentence = last.startswith("ihlab: ") and last.endswith((".", "?", ")", "--help"))
        short = len(last) <= longest and "Traceback" not in printed
        helped = stopped.code == 0 and out.getvalue().startswith("usage: ihlab")  # asked by -h
        refused = stopped.code in (1, 2, SYSTEM_ERROR) and sentence and short
        if not helped and not refused:
            wrong = f"exit code {stopped.code}: {printed[-600:]!r}"
    except Slow:
        wrong = f"no answer in {2 * SECONDS} s"
    except BaseException:
        wrong = traceback.format_exc()[-1500:]
    return out.getvalue() + err.getvalue(), wrong


def heads(folder: Path) -> str:
    out = folder.parent / "heads.csv"
    return command("heads", str(folder), "--rows", "4", "--csv", str(out)) + out.read_text()


def view(folder: Path) -> str:
    out = folder.parent / "view.html"
    return command("view", str(folder), "--out", str(out)) + out.read_text()


def ended(folder: Path) -> str:
    return command("train", "induction", "--root", str(folder.parent), *OPTIONS)


Way = Callable[[Path], str]
"""It raises `ConfigError` if it refuses."""

FINISHED: tuple[Way, ...] = (opened, metrics, model, listed, forked, heads, view, ended)
STOPPED: tuple[Way, ...] = (metrics, listed, resumed)


def result(way: Way, folder: Path) -> str | Refused:
    """Return a way's result, its sentence if it refuses, or a description of a fault: it raises, or
    takes too long.
    """
    try:
        with time_limit(SECONDS):
            return way(folder)
    except ConfigError as error:
        return Refused(str(error))
    except Slow:
        return f"no answer in {SECONDS} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
