"""Write the folder of a run in training: its evaluations, its checkpoints, and how it ends."""

import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from ihlab.storage.files import append_text
from ihlab.storage.stored import write_summary
from ihlab.training import checkpoint
from ihlab.training.config import ForkConfig
from ihlab.training.progress import Row
from ihlab.training.run import Run
from ihlab.training.stored_checkpoint import stored_about
from ihlab.training.stored_metrics import as_csv, record
from tasks.config import require, shown

Callback = Callable[[dict[str, Any]], None]
"""Callback for evaluations: called with a dict of the new row of `metrics.csv` and, as `run`, the
run folder's name.
"""


PACKAGES = ("ihlab", "torch", "numpy", "transformer-lens")
"""Packages whose versions `done.json` states."""


def require_callback(callback: Callback | None) -> None:
    """Raise `ConfigError` if a callback is neither None nor a function."""
    require(
        callback is None or callable(callback),
        f"callback is {shown(callback)}, but must be a function of a dict.",
    )


class TrainingDivergedError(RuntimeError):
    """The loss or a weight is not finite. Earlier checkpoints are kept."""


@dataclass(frozen=True)
class Stored:
    """Contents of a checkpoint: weights, AdamW's state, and the training loss since the last
    evaluation.
    """

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    loss: Tensor
    steps: int


def digests(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of a task's data: the facts whose names end in sha256."""
    return {name: str(value) for name, value in facts.items() if name.endswith("sha256")}


class RunWriter:
    """Writer of one run's folder. `rows`: its metrics so far; `started`: its start time, moved
    later by interruptions.

    A solo run has one writer. Each member of an ensemble has its own, so its folder looks like a
    solo run's.
    """

    def __init__(self, run: Run, callback: Callback | None = None) -> None:
        self.run, self.config, self.callback = run, run.config, callback
        self.rows: list[Row] = []
        self.size: int | None = None  # bytes of the rows as CSV, once this process has written them
        self.started = time.perf_counter()

    def resumable(self) -> list[int]:
        """Return the steps whose checkpoint has the optimiser's state. Raises `ConfigError` for a
        fork without any.
        """
        steps = [step for step in self.run.checkpoints if self.run.optimizer_path(step).exists()]
        forked = isinstance(self.config, ForkConfig)
        require(
            bool(steps) or not forked,
            f"{self.run.folder} is a fork without the checkpoint it starts from: call fork again.",
        )
        return steps

    def load(self, step: int, model: nn.Module, device: torch.device) -> Stored:
        """Load a checkpoint of the model, and the metrics up to it.

        Raises `ConfigError` for damaged files, and for a task whose data differs from the
        checkpoint's training data.
        """
        path, about = self.run.checkpoint_path(step), self.run.about(step)
        weights = checkpoint.load_weights(path, model, about, device)
        state = checkpoint.load_optimizer(self.run.optimizer_path(step), step, model, about, device)
        self._require_same_data(stored_about(path))
        # As if never interrupted.
        self.started = time.perf_counter() - state.pop("tally/seconds").item()
        stored = Stored(weights, state, state.pop("tally/loss"), int(state.pop("tally/steps")))
        if step == self.config.first_step and not self.run.has_metrics:  # a fork's first step
            return stored
        metrics = self.run.metrics_to(step, stored_about(path).get("metrics"))
        self.rows = metrics[metrics["step"] <= step].to_dict("records")  # type: ignore[assignment]
        require(
            bool(self.rows),
            f"{self.run.folder} has a checkpoint at step {step} but no metrics up to it.",
        )
        return stored

    def forget_after(self, step: int) -> None:
        """Remove checkpoints after the step from which the run is resumed.

        The metrics after that step are dropped, so a run resumed from a later checkpoint would lack
        evaluations.
        """
        self._remove({later for later in self.run.checkpoints if later > step})

    def note(self, step: int, train_loss: float, measured: dict[str, float]) -> None:
        """Add an evaluation to the metrics."""
        tokens = step * self.config.batch_size * self.config.task.length
        row: Row = {"step": step, "tokens": tokens, "train_loss": train_loss, **measured}
        self.rows.append(row)
        with self.run.writing():
            if self.size is None:  # drop later rows: they have no checkpoint
                self.size = self.run.write_metrics(self.rows)
            else:  # rewriting all rows at every evaluation would take quadratic time
                text = as_csv([row], header=False)
                self.size = append_text(self.run.folder / "metrics.csv", text, self.size)
        if self.callback is not None:
            self.callback({"run": self.run.folder.name, **row})

    @property
    def reached(self) -> bool:
        """True if training ends early after the last evaluation."""
        return bool(self.rows) and self.config.reached(self.rows[-1])

    def check_finite(self, step: int, numbers: Iterable[float], what: str) -> None:
        """Raise `TrainingDivergedError`, and record it in the folder, if a number is not finite."""
        if all(map(math.isfinite, numbers)):
            return
        last = self.run.checkpoints[-1] if self.run.checkpoints else "none"
        with self.run.writing():
            about = {"step": step, "lr": self.config.lr}
            write_summary(self.run.folder / "diverged.json", about, self.config.digest)
        raise TrainingDivergedError(
            f"{self.run.folder}: {what} is not finite at step {step} (lr={self.config.lr}); "
            f"the last checkpoint, step {last}, is kept."
        )

    # The optimiser's file is written first, so that every checkpoint with a model is resumable.
    def save(self, step: int, stored: Stored) -> None:
        """Write a checkpoint."""
        tally = {
            "tally/loss": stored.loss,
            "tally/steps": torch.tensor(stored.steps),
            "tally/seconds": torch.tensor(time.perf_counter() - self.started, dtype=torch.float64),
        }
        about = {**self._data, **self.run.about(step)}
        with self.run.writing():
            checkpoint.save(self.run.optimizer_path(step), {**stored.optimizer, **tally}, about)
            about |= {"metrics": record(as_csv(self.rows).encode())}
            checkpoint.save(self.run.checkpoint_path(step), stored.weights, about)

    def conclude(self, resumed_from: int, n_params: int, device: torch.device, **more: Any) -> None:
        """Remove the checkpoints that an interruption left, and write `done.json`, with the fields
        `more` too.
        """
        seconds = time.perf_counter() - self.started
        last = int(self.rows[-1]["step"])  # before `steps` after early stopping
        tokens = (last - self.config.first_step) * self.config.batch_size * self.config.task.length
        machine = platform.machine()
        if device.type == "cuda":
            machine = torch.cuda.get_device_name(device)
        summary: dict[str, Any] = {
            "steps": last,
            "n_params": n_params,
            "seconds": round(seconds, 3),
            "resumed_from": resumed_from,
            "tokens_per_second": round(tokens / max(seconds, 1e-9)),  # a clock may show no time
            "device": machine,
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in PACKAGES},
            **more,
        }
        if hasattr(self.config.task, "provenance"):
            summary["data"] = self.config.task.provenance
        with self.run.writing():
            self._remove(set(self.run.checkpoints) - {*self.config.checkpoint_steps(), last})
            (self.run.folder / "diverged.json").unlink(missing_ok=True)
            write_summary(self.run.folder / "done.json", summary, self.config.digest)

    @cached_property
    def _data(self) -> dict[str, str]:
        """Digests of the task's data; empty if the config alone determines the data."""
        return digests(getattr(self.config.task, "provenance", {}))

    def _require_same_data(self, known: Mapping[str, str]) -> None:
        for name, now in self._data.items():
            before = known.get(name, now)  # older checkpoints do not store it
            require(
                before == now,
                f"{self.run.folder} cannot be resumed: its {name} is {before[:10]}, but that of the "
                f"{type(self.config.task).__name__} is now {now[:10]}; bring back the data that it was trained on, or "
                "remove the folder to train it anew.",
            )

    def _remove(self, steps: set[int]) -> None:
        for step in steps:
            self.run.checkpoint_path(step).unlink()
            self.run.optimizer_path(step).unlink(missing_ok=True)
