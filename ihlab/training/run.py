"""A run folder: `config.json`, `metrics.csv`, `checkpoints/step-N.safetensors`, `done.json` (or `diverged.json`).

`runs` lists the runs under a folder as a table.
"""

import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ihlab.files import (
    append_text,
    is_file,
    locked,
    remove_partial,
    require_no_link,
    write_atomically,
    write_json,
    write_text,
)
from ihlab.model.transformer import Transformer
from ihlab.settings import own_settings
from ihlab.stored import (
    DIVERGED,
    DONE,
    UNFINISHED,
    as_text,
    present,
    read_bytes,
    read_json,
    read_summary,
    write_summary,
)
from ihlab.training import checkpoint
from ihlab.training.clamp_hooks import install
from ihlab.training.config import ForkConfig, RunConfig, even_choice, from_dict, to_dict
from ihlab.training.first_defaults import first_defaults
from ihlab.training.memory import require_model_fits
from ihlab.training.progress import Row
from ihlab.training.search import FILES, find_folder, name_to_open, run_folders
from ihlab.training.stored_metrics import as_csv, read_metrics
from tasks.config import ConfigError, require, shown
from tasks.registry import StoredTask, require_registered, unregistered

TO_CREATE = 10.0  # seconds

DAMAGED = "damaged"

COLUMNS = (
    "run", "status", "task", "vocab_size", "length", "attention", "n_layers", "d_model", "n_heads", "seed", "step",
    "steps", "accuracy", "seconds", "problem",
)  # fmt: skip
"""Columns of `runs`."""


class Run:
    """Run folder: training writes it, analysis reads it.

    `Run.open` finds a stored run by its folder or name; `train` returns a run. `run.metrics` is a DataFrame with one
    row per evaluation; `run.model(step)` is the model at a checkpoint.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self._lock: os.stat_result | None = None  # the lock file, once this process has locked it

    @classmethod
    def open(cls, folder: str | Path, root: str | Path = "runs") -> "Run":
        """Open a stored run by its folder or, as the commands do, by a name (`find_folder`).

        A string that is not an existing path is a name: of a run of `ihlab.kept`, or of a run under `root`, where a
        unique prefix of the folder's name is enough. A `Path` is not searched for.

        Raises `ConfigError` if there is no such folder, if no run has the name (with the nearest name) or several do
        (with their names), or if the config cannot be read or its hash is not the one at the end of the folder's name.
        """
        search = isinstance(folder, str) and not Path(folder).exists()
        folder = find_folder(folder, root) if search else Path(folder)
        path = folder / "config.json"
        require(present(path), f"{folder} is not a run folder: it has no config.json.")
        stored = read_json(path)
        try:
            config = from_dict(stored)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:  # of your own task
            raise ConfigError(
                f"{path} cannot be read ({type(error).__name__}: {' '.join(str(error).split())})."
            ) from None
        run, named = cls(folder, config), re.fullmatch(r".+-([0-9a-f]{10})", folder.absolute().name)
        right = named is None or run._digest in (None, named[1])
        task = type(config.task)
        why = "" if first_defaults(task) else f": it was edited, or a default of {task.__name__} has changed"
        other = f"{folder} is the folder of another config than its config.json holds (hash {run._digest}){why}."
        require(right, other)
        return run

    @classmethod
    def create(cls, config: RunConfig, root: str | Path) -> "Run":
        """Return the run of a config under `root`; make its folder if it is new.

        Raises `ConfigError` if the folder holds another config, and for a task that is not registered.
        """
        require_registered(config.task)
        require(_is_text(root), f"The folder {shown(str(root))} is not UTF-8, as it must be.")
        run = cls(config.folder(root), config)
        path = run.folder / "config.json"
        if not present(path):
            with run.lock(TO_CREATE):  # another process may create it now
                if not present(path):
                    write_json(path, to_dict(config))
        cls.open(run.folder)  # raises unless the config has the hash in the folder's name
        return run

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {'done' if self.done else 'not finished'})"

    # Results

    @property
    def metrics(self) -> pd.DataFrame:
        """A table with one row per evaluation so far: step, tokens, train_loss, eval_loss, accuracy, ..."""
        require(self.has_metrics, f"{self.folder} has no metrics yet.")
        steps, done = self.checkpoints, self.done
        known = self._known_metrics(steps[-1]) if steps else None
        last = max([*steps[-1:], *([done["steps"]] if done else [])], default=-1)
        return self.metrics_to(last, known)

    def metrics_to(self, step: int, known: str | None = None) -> pd.DataFrame:
        """Return the metrics, checked up to a step.

        Raises `ConfigError` for a `metrics.csv` that cannot be read, that lacks an evaluation up to the step, or whose
        beginning does not match `known`, the `record` of a checkpoint.
        """
        return read_metrics(self.folder / "metrics.csv", [at for at in self.config.eval_steps() if at <= step], known)

    def _known_metrics(self, step: int) -> str | None:
        """Return the `record` of the metrics in a checkpoint; None without one or if damaged (`model` raises)."""
        try:
            found = checkpoint.stored_about(self.checkpoint_path(step))
        except ConfigError:
            return None
        return found.get("metrics") if self.about(step).items() <= found.items() else None

    def require_task(self) -> None:
        """Raise `ConfigError`, naming the file, if the run's task is not registered: its sequences cannot be drawn."""
        task = self.config.task
        require(not isinstance(task, StoredTask), f"{self.folder / 'config.json'}: {unregistered(task.kind)}")

    @property
    def has_metrics(self) -> bool:
        """True if the run has been evaluated at least once."""
        return present(self.folder / "metrics.csv")

    @property
    def done(self) -> dict[str, Any] | None:
        """A summary of the finished run (seconds, tokens per second, versions, device); None if it has not finished.

        Raises `ConfigError` for a `done.json` that is damaged.
        """
        return read_summary(self.folder / "done.json", {"steps": int, "n_params": int, "seconds": float}, self._digest)

    @property
    def diverged(self) -> dict[str, Any] | None:
        """The record of a divergence (the step at which the loss was not finite, and lr), or None.

        Raises `ConfigError` for a `diverged.json` that is damaged.
        """
        return read_summary(self.folder / "diverged.json", {"step": int, "lr": float}, self._digest)

    @property
    def checkpoints(self) -> list[int]:
        """The steps at which a model can be opened. Raises `ConfigError` for a name that is not a checkpoint's."""
        folder = self.folder / "checkpoints"
        try:
            names = os.listdir(folder) if present(folder) else []
        except OSError as error:
            raise ConfigError(f"{folder} cannot be read ({error.strerror}).") from None
        return sorted(step for name in names if (step := self._step_of(name)) is not None)

    def _step_of(self, name: str) -> int | None:
        """Return the step of a model's file, None for any other file. Raises `ConfigError` for `step-x.safetensors`."""
        if not (name.startswith("step-") and name.endswith(".safetensors")):
            return None
        found = re.fullmatch(r"step-(0|[1-9][0-9]{0,18})(\.optimizer)?\.safetensors", name)
        require(
            found is not None and int(found[1]) <= self.config.steps,
            f"{self.folder / 'checkpoints' / name} is not the name of a checkpoint of the run's {self.config.steps} "
            "steps (such as step-0.safetensors): remove it.",
        )
        return int(found[1]) if found and not found[2] else None

    def about(self, step: int) -> dict[str, str]:
        """Return what a checkpoint's file says of itself: the step and, unless the task's kind is unknown, the run."""
        return {"step": str(step), **({"run": self._digest} if self._digest else {})}

    @cached_property
    def _digest(self) -> str | None:
        """The hash by which the run is stored. None if its task is of an unknown kind."""
        return None if isinstance(self.config.task, StoredTask) else self.config.digest

    @own_settings()
    def model(self, step: int | None = None, device: str | torch.device = "cpu") -> Transformer:
        """Return the model at a checkpoint, by default the last, with a fork's clamps hooked in.

        Raises `ConfigError` if there is no checkpoint at `step`, or if its file is damaged.
        """
        step = self.require_checkpoint(step)
        require_model_fits(self.config.model)
        model = Transformer(self.config.model, seed=self.config.seed)
        weights = checkpoint.load_weights(self.checkpoint_path(step), model, self.about(step))
        checkpoint.load_model_state(model, weights)
        install(model.to(device), self.config.clamps)
        model.trained_on = self.config.task
        return model.eval()

    def require_checkpoint(self, step: int | None = None) -> int:
        """Return the given step. By default return the last one: for a finished run, the step at which it ended.

        Raises `ConfigError` if the step has no checkpoint.
        """
        steps = self.checkpoints
        require(bool(steps), f"{self.folder} has no checkpoints yet.")
        if step is None:
            done = self.done
            step = done["steps"] if done else steps[-1]
        require(step in steps, f"{self.folder} has no checkpoint at step {step}; it has {', '.join(map(str, steps))}.")
        return step

    def export(self, folder: str | Path, checkpoints: int = 8) -> "Run":
        """Copy what analysis needs to another folder: config, metrics and evenly spread models.

        The copy opens like any run. Without optimiser states it can be neither resumed nor forked. Raises `ConfigError`
        for a run without checkpoints or with a damaged file, for fewer than 2 `checkpoints`, and for a folder that
        already has a config.
        """
        Run.open(self.folder)
        self.require_checkpoint()
        files = {"metrics.csv": self.has_metrics and self.metrics, "done.json": self.done}  # raises if damaged
        require(checkpoints >= 2, f"checkpoints is {checkpoints}, but must be at least 2: the first and the last.")
        copy = Run(Path(folder), self.config)
        require(not (copy.folder / "config.json").exists(), f"{folder} holds a run already; nothing was changed in it.")
        require_no_link(copy.folder / "checkpoints")
        steps = even_choice(self.checkpoints, checkpoints)
        for step in steps:
            self.model(step)  # raises if it is damaged
        for step in steps:
            write_atomically(copy.checkpoint_path(step), partial(shutil.copyfile, self.checkpoint_path(step)))
        for path in (self.folder / name for name in files if present(self.folder / name)):
            write_text(copy.folder / path.name, as_text(read_bytes(path), path))
        write_json(copy.folder / "config.json", to_dict(self.config))
        return copy

    # Writing

    def checkpoint_path(self, step: int) -> Path:
        """Path of the model stored at a step."""
        return self.folder / "checkpoints" / f"step-{step}.safetensors"

    def optimizer_path(self, step: int) -> Path:
        """Path of the optimiser state stored at a step."""
        return self.folder / "checkpoints" / f"step-{step}.optimizer.safetensors"

    def write_metrics(self, rows: list[Row]) -> int:
        """Replace the metrics, and return their size in bytes."""
        text = as_csv(rows)
        write_text(self.folder / "metrics.csv", text)
        return len(text.encode())

    def append_metrics(self, row: Row, size: int) -> int:
        """Append an evaluation to metrics of `size` bytes, and return their new size."""
        return append_text(self.folder / "metrics.csv", as_csv([row], header=False), size)

    def write_diverged(self, step: int) -> None:
        """Record that the loss was not finite at a step."""
        write_summary(self.folder / "diverged.json", {"step": step, "lr": self.config.lr}, self.config.digest)

    def write_done(self, summary: dict[str, Any]) -> None:
        """Write `done.json`, and remove the record of an earlier divergence."""
        (self.folder / "diverged.json").unlink(missing_ok=True)
        write_summary(self.folder / "done.json", summary, self.config.digest)

    @contextmanager
    def lock(self, wait: float = 0.0) -> Iterator[None]:
        """Lock the folder for one writer, and remove files that a killed writer left half-written.

        Raises `ConfigError` if after `wait` seconds another process is still training this run.
        """
        for name in ("", ".lock", *FILES):
            require_no_link(self.folder / name)
        with locked(self.folder / ".lock", f"Another process is training {self.folder}.", wait) as self._lock:
            for name in FILES:
                remove_partial(self.folder, name)
            remove_partial(self.folder / "checkpoints", "step-*.safetensors")
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard writes to the folder: raise `ConfigError` if it is no longer the folder that was locked."""
        require_no_link(self.folder / "checkpoints")
        self._require_own()
        try:
            yield
        finally:
            self._require_own()  # a removed folder explains a failed write, or was made anew by the write

    def _require_own(self) -> None:
        require(
            self._lock is None or is_file(self.folder / ".lock", self._lock),
            f"{self.folder}, or the file .lock in it, was removed or replaced while the run was trained: "
            f"nothing more is written there.",
        )


def _is_text(path: str | Path) -> bool:
    """Return whether a path can be written as UTF-8: safetensors cannot open any other path."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def runs(root: str | Path = "runs") -> pd.DataFrame:
    """Return the stored runs under a folder as a table with one row per run, sorted by name.

    - `run`: what `Run.open` takes, the folder's name in `runs` and its path elsewhere;
    - `status`: done, diverged, unfinished or damaged;
    - `task`, `vocab_size`, `length`, `attention`, `n_layers`, `d_model`, `n_heads`, `seed`: from its config;
    - `step`: the step of its last evaluation, out of `steps`; `accuracy`: the accuracy at that step;
    - `seconds`: the time of training, NaN unless it is done;
    - `problem`: for a damaged run, a sentence that names the file. All columns but name and status are then None.

    Raises `ConfigError` if `root` cannot be read.
    """
    table = pd.DataFrame([_row(folder) for folder in run_folders(root)], columns=list(COLUMNS), dtype=object)
    return table.astype({"accuracy": float, "seconds": float})


def _row(folder: Path) -> dict[str, Any]:
    try:
        return {"run": name_to_open(folder), "problem": "", **_facts(Run.open(folder))}
    except ConfigError as error:
        return {"run": name_to_open(folder), "status": DAMAGED, "problem": str(error)}


def _facts(run: Run) -> dict[str, Any]:
    config, model, done = run.config, run.config.model, run.done
    step, accuracy = 0, math.nan
    if run.has_metrics or not _just_begun(run):
        last = run.metrics.iloc[-1]
        require("accuracy" in last, f"{run.folder / 'metrics.csv'} has no column 'accuracy'.")
        step, accuracy = int(last["step"]), float(last["accuracy"])
    return {
        "status": DONE if done else DIVERGED if run.diverged else UNFINISHED,
        "task": config.task.kind, "vocab_size": config.task.vocab_size, "length": config.task.length,
        "attention": model.attention, "n_layers": model.n_layers, "d_model": model.d_model, "n_heads": model.n_heads,
        "seed": config.seed, "step": step, "steps": config.steps, "accuracy": accuracy,
        "seconds": done["seconds"] if done else math.nan,
    }  # fmt: skip


def _just_begun(run: Run) -> bool:
    """Return whether nothing was evaluated yet. A fork has its first checkpoint before its first evaluation."""
    return not run.done and set(run.checkpoints) <= (
        {run.config.first_step} if isinstance(run.config, ForkConfig) else set()
    )
