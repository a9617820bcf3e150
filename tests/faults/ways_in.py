"""Every way to read or resume a run folder, as functions whose results can be compared."""

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file
from torch import Tensor

import ihlab
from ihlab import ModelConfig, Run, RunConfig, fork, train
from ihlab.cli import SYSTEM_ERROR, main
from ihlab.training import checkpoint
from ihlab.training.config import to_dict
from tasks import ConfigError, InductionTask
from tests.faults.time_limit import Slow, time_limit

SECONDS = 10
"""Seconds in which every way must answer."""

LONGEST = 900
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


def listed(folder: Path) -> str | Refused:
    table = ihlab.runs(folder.parent)
    own = table[table["run"] == str(folder)]
    others = table[table["run"] != str(folder)].to_csv()
    if (
        own["status"].tolist() == ["damaged"] and "done" in others
    ):  # the other run must still be listed
        return Refused(str(own["problem"].iloc[0]))
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
    return _trained(train(CONFIG, folder.parent, "cpu"))


def _trained(run: Run) -> str:
    """Return everything that training stores, except times."""
    tensors = [
        load_file(path(step))
        for step in run.checkpoints
        for path in (run.checkpoint_path, run.optimizer_path)
    ]
    kept = [
        {name: x for name, x in stored.items() if name != "tally/seconds"} for stored in tensors
    ]
    return (run.folder / "metrics.csv").read_text() + str([digest(stored) for stored in kept])


# On the command line


def command(*args: str) -> str | Refused:
    """Run `ihlab` in this process. One line on stderr and exit code 1, 2 or 74 is a `Refused`,
    anything else a result.

    The recipe of a run that trains may come before that line.
    """
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(args)
    except SystemExit as stopped:
        said = re.sub(r"^\S+: task .*\n", "", err.getvalue())
        if stopped.code in (1, 2, SYSTEM_ERROR) and said.startswith("ihlab: "):
            return Refused(said.removeprefix("ihlab: ").removesuffix("\n"))
        return f"exit code {stopped.code}: {said}"
    return out.getvalue()


def runs(folder: Path) -> str | Refused:
    printed = command("runs", str(folder.parent))
    if isinstance(printed, Refused):
        return printed
    table, _, after = printed.rpartition("┘\n")
    if after and "other-" in table and folder.name not in table:
        return Refused(after.removesuffix("\n"))
    return printed


def heads(folder: Path) -> str | Refused:
    out = folder.parent / "heads.csv"
    printed = command("heads", str(folder), "--rows", "4", "--csv", str(out))
    return printed if isinstance(printed, Refused) else printed + out.read_text()


def shift(folder: Path) -> str | Refused:
    return command("shift", str(folder))


def view(folder: Path) -> str | Refused:
    out = folder.parent / "view.html"
    printed = command("view", str(folder), "--out", str(out))
    return printed if isinstance(printed, Refused) else printed + out.read_text()


def trained(folder: Path) -> str | Refused:
    printed = command("train", "induction", "--root", str(folder.parent), *OPTIONS)
    return printed if isinstance(printed, Refused) else printed + _trained(Run(folder, CONFIG))


def ended(folder: Path) -> str | Refused:
    return command("train", "induction", "--root", str(folder.parent), *OPTIONS)


Way = Callable[[Path], str | Refused]

FINISHED: tuple[Way, ...] = (
    opened,
    metrics,
    model,
    listed,
    forked,
    runs,
    heads,
    shift,
    view,
    ended,
)
STOPPED: tuple[Way, ...] = (metrics, listed, runs, resumed, trained)


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
