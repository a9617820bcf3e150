"""Read a run folder: `config.json`, `metrics.csv`, `checkpoints/step-N.safetensors`, `done.json`
(or `diverged.json`).

No torch here: `ihlab runs` reads thousands of folders.
"""

import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd

from ihlab.storage.stored import present, read_bytes, read_json, read_summary
from ihlab.training.config import RunConfig, from_dict
from ihlab.training.find_runs import find_folder
from ihlab.training.stored_checkpoint import stored_about
from ihlab.training.stored_metrics import read_metrics, record
from tasks.config import ConfigError, require
from tasks.registry import StoredTask, unregistered


class RunFolder:
    """A stored run without its model: its config, metrics and summaries. `Run` adds the model and
    writes the folder.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config

    @classmethod
    def open(cls, folder: str | Path, root: str | Path = "runs") -> Self:
        """Open a stored run by its folder or, as the commands do, by a name (`find_folder`).

        A string that is not an existing path is a name: of a run of `ihlab.kept`, or of a run under
        `root`, where a unique prefix of the folder's name is enough. A `Path` is not searched for.

        Raises `ConfigError` if there is no such folder, if no run has the name (with the nearest
        name) or several do (with their names), or if the config cannot be read or its hash is not
        the one at the end of the folder's name.
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
        except Exception as error:  # of your own task
            raise ConfigError(
                f"{path} cannot be read ({type(error).__name__}: {' '.join(str(error).split())})."
            ) from None
        run, named = cls(folder, config), re.fullmatch(r".+-([0-9a-f]{10})", folder.absolute().name)
        right = named is None or run._digest in (None, named[1])
        require(
            right,
            f"{folder} is the folder of another config than its config.json holds (hash {run._digest}): it was "
            "edited, or a default has changed.",
        )
        return run

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r}, {'done' if self.done else 'not finished'})"

    @property
    def metrics(self) -> pd.DataFrame:
        """A table with one row per evaluation so far: step, tokens, train_loss, eval_loss,
        accuracy, ...
        """
        require(self.has_metrics, f"{self.folder} has no metrics yet.")
        steps, done = self.checkpoints, self.done
        last, known = -1, None
        if steps:
            last = steps[-1]
            known = self._known_metrics(last)
        if done:
            last = max(last, done["steps"])
        return self.metrics_to(last, known)

    def last_evaluation(self) -> dict[str, float]:
        """Return the last row of the metrics.

        If the last checkpoint's `record` (size and CRC-32) matches the whole file, the file is as
        it was written, and only its last row is parsed. Raises `ConfigError` as `metrics` does.
        """
        steps = self.checkpoints
        if steps and self.has_metrics:
            content = read_bytes(self.folder / "metrics.csv")
            if record(content) == self._known_metrics(steps[-1]):
                with suppress(ValueError):  # not written by training
                    names, *_, last = content.decode().splitlines()
                    cells = [float(cell or "nan") for cell in last.split(",")]
                    row = dict(zip(names.split(","), cells, strict=True))
                    if row.get("step") == steps[-1]:
                        return row
        return {str(name): float(value) for name, value in self.metrics.iloc[-1].items()}

    def metrics_to(self, step: int, known: str | None = None) -> pd.DataFrame:
        """Return the metrics, checked up to a step.

        Raises `ConfigError` for a `metrics.csv` that cannot be read, that lacks an evaluation up to
        the step, or whose beginning does not match `known`, the `record` of a checkpoint.
        """
        evaluations = [evaluation for evaluation in self.config.eval_steps() if evaluation <= step]
        return read_metrics(self.folder / "metrics.csv", evaluations, known)

    def _known_metrics(self, step: int) -> str | None:
        """Return a checkpoint's `record` of the metrics; None if it has none or is damaged (`model`
        then raises).
        """
        try:
            about = stored_about(self.checkpoint_path(step))
        except ConfigError:
            return None
        if self.about(step).items() <= about.items():
            return about.get("metrics")
        return None

    def require_task(self) -> None:
        """Raise `ConfigError`, naming the file, if the run's task is not registered: its sequences
        cannot be drawn.
        """
        task = self.config.task
        require(
            not isinstance(task, StoredTask),
            f"{self.folder / 'config.json'}: {unregistered(task.kind)}",
        )

    @property
    def has_metrics(self) -> bool:
        """True if the run has been evaluated at least once."""
        return present(self.folder / "metrics.csv")

    @property
    def done(self) -> dict[str, Any] | None:
        """A summary of the finished run (seconds, tokens per second, versions, device); None if it
        has not finished.

        Raises `ConfigError` for a `done.json` that is damaged.
        """
        return read_summary(
            self.folder / "done.json",
            {"steps": int, "n_params": int, "seconds": float},
            self._digest,
        )

    @property
    def diverged(self) -> dict[str, Any] | None:
        """The record of a divergence (the step at which the loss was not finite, and lr), or None.

        Raises `ConfigError` for a `diverged.json` that is damaged.
        """
        return read_summary(self.folder / "diverged.json", {"step": int, "lr": float}, self._digest)

    @property
    def checkpoints(self) -> list[int]:
        """The steps at which a model can be opened. Raises `ConfigError` for a name that is not a
        checkpoint's.
        """
        folder = self.folder / "checkpoints"
        if not present(folder):
            return []
        try:
            steps = list(map(self._step_of, os.listdir(folder)))
        except OSError as error:
            raise ConfigError(f"{folder} cannot be read ({error.strerror}).") from None
        return sorted(step for step in steps if step is not None)

    def _step_of(self, name: str) -> int | None:
        """Return the step of a model's file, None for any other file. Raises `ConfigError` for
        `step-x.safetensors`.
        """
        if not (name.startswith("step-") and name.endswith(".safetensors")):
            return None
        parsed = re.fullmatch(r"step-(0|[1-9][0-9]{0,18})(\.optimizer)?\.safetensors", name)
        require(
            parsed is not None and int(parsed[1]) <= self.config.steps,
            f"{self.folder / 'checkpoints' / name} is not the name of a checkpoint of the run's {self.config.steps} "
            "steps (such as step-0.safetensors): remove it.",
        )
        if parsed is None or parsed[2]:  # the optimiser's file
            return None
        return int(parsed[1])

    def about(self, step: int) -> dict[str, str]:
        """Return the metadata of a checkpoint at a step: the step and, unless the task's kind is
        unknown, the run.
        """
        about = {"step": str(step)}
        if self._digest:
            about["run"] = self._digest
        return about

    @cached_property
    def _digest(self) -> str | None:
        """The hash by which the run is stored. None if its task is of an unknown kind."""
        if isinstance(self.config.task, StoredTask):
            return None
        return self.config.digest

    def require_checkpoint(self, step: int | None = None) -> int:
        """Return the given step. By default return the last one: for a finished run, the step at
        which it ended.

        Raises `ConfigError` if the step has no checkpoint.
        """
        steps = self.checkpoints
        require(bool(steps), f"{self.folder} has no checkpoints yet.")
        if step is None:
            done = self.done
            step = done["steps"] if done else steps[-1]
        require(
            step in steps,
            f"{self.folder} has no checkpoint at step {step}; it has {', '.join(map(str, steps))}.",
        )
        return step

    def checkpoint_path(self, step: int) -> Path:
        """Path of the model stored at a step."""
        return self.folder / "checkpoints" / f"step-{step}.safetensors"

    def optimizer_path(self, step: int) -> Path:
        """Path of the optimiser state stored at a step."""
        return self.folder / "checkpoints" / f"step-{step}.optimizer.safetensors"

    def lessons_path(self, step: int) -> Path:
        """Path of the lessons found at a step."""
        return self.folder / "lessons" / f"step-{step}.safetensors"
