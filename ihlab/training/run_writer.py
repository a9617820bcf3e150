"""What a run writes down while it is trained: metrics, checkpoints and how it ended."""

import math
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from ihlab.training import checkpoint
from ihlab.training.config import ForkConfig
from ihlab.training.progress import Row
from ihlab.training.run import Run, as_csv
from tasks.config import require


class TrainingDivergedError(RuntimeError):
    """The loss is not a number any more. Checkpoints from before are kept."""


@dataclass(frozen=True)
class Stored:
    """What a checkpoint holds: weights, AdamW's state, and the training loss since the last evaluation."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    loss: Tensor
    steps: int


class RunWriter:
    """The folder of one run in training. `rows` are its metrics so far, `started` when it would have begun in one go.

    A solo run has one; each member of an ensemble has its own, so that its folder is that of a solo run.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.config = run, run.config
        self.rows: list[Row] = []
        self.written = ""
        self.started = time.perf_counter()

    def resumable(self) -> list[int]:
        """The steps whose checkpoints can be trained on: they have an optimiser state. Raises for a fork without."""
        steps = [step for step in self.run.checkpoints if self.run.optimizer_path(step).exists()]
        forked = isinstance(self.config, ForkConfig)
        require(
            bool(steps) or not forked,
            f"{self.run.folder} is a fork without the checkpoint it starts from: call fork again.",
        )
        return steps

    def load(self, step: int, device: torch.device) -> Stored:
        """The checkpoint at a step; `rows` are those up to it. Raises `ConfigError` for files that do not serve."""
        weights = checkpoint.load(self.run.checkpoint_path(step), device)
        state = checkpoint.load(self.run.optimizer_path(step), device)
        self.started = time.perf_counter() - state.pop("tally/seconds").item()  # as if all had been trained in one go
        stored = Stored(weights, state, state.pop("tally/loss"), int(state.pop("tally/steps")))
        if step == self.config.first_step and not self.run.has_metrics:  # a fork begins so
            return stored
        metrics = self.run.metrics
        self.rows = metrics[metrics["step"] <= step].to_dict("records")  # type: ignore[assignment]
        require(bool(self.rows), f"{self.run.folder} has a checkpoint at step {step} but no metrics up to it.")
        self.written = as_csv(self.rows)
        return stored

    def forget_after(self, step: int) -> None:
        """Remove checkpoints after a step from which the run is trained again.

        Its metrics from there on are about to go: resumed from such a checkpoint, it would lack evaluations.
        """
        self._remove({later for later in self.run.checkpoints if later > step})

    def note(self, step: int, train_loss: float, measured: dict[str, float]) -> None:
        """Add an evaluation to the metrics."""
        tokens = step * self.config.batch_size * self.config.task.length
        row: Row = {"step": step, "tokens": tokens, "train_loss": train_loss, **measured}
        self.rows.append(row)
        self.written += as_csv([row], header=not self.written)  # all rows anew would take longer the more there are
        self.run.write_table(self.written)

    @property
    def reached(self) -> bool:
        """Whether the last evaluation reached `RunConfig.until`."""
        until = self.config.until
        return until is not None and bool(self.rows) and self.rows[-1]["accuracy_first"] >= until

    def check_finite(self, step: int, *losses: float) -> None:
        """Raise `TrainingDivergedError`, and leave it in the folder, if a loss is not finite."""
        if all(map(math.isfinite, losses)):
            return
        last = self.run.checkpoints[-1] if self.run.checkpoints else "none"
        self.run.write_diverged(step)
        raise TrainingDivergedError(
            f"{self.run.folder}: the loss is not finite at step {step} (lr={self.config.lr}); "
            f"the last checkpoint, step {last}, is kept."
        )

    # The optimiser's file comes first: where there is a model, it can be trained on.
    def save(self, step: int, stored: Stored) -> None:
        """Write a checkpoint."""
        tally = {
            "tally/loss": stored.loss,
            "tally/steps": torch.tensor(stored.steps),
            "tally/seconds": torch.tensor(time.perf_counter() - self.started, dtype=torch.float64),
        }
        checkpoint.save(self.run.optimizer_path(step), {**stored.optimizer, **tally})
        checkpoint.save(self.run.checkpoint_path(step), stored.weights)

    def conclude(self, resumed_from: int, n_params: int, device: torch.device, **more: Any) -> None:
        """Remove what an interruption left over, and write `done.json`, with `more` in it."""
        seconds = time.perf_counter() - self.started
        last = int(self.rows[-1]["step"])  # before `steps` where `until` was reached
        self._remove(set(self.run.checkpoints) - {*self.config.checkpoint_steps(), last})
        tokens = (last - self.config.first_step) * self.config.batch_size * self.config.task.length
        summary: dict[str, Any] = {
            "steps": last,
            "n_params": n_params,
            "seconds": round(seconds, 3),
            "resumed_from": resumed_from,
            "tokens_per_second": round(tokens / seconds),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("ihlab", "torch", "numpy", "transformer-lens")},
            **more,
        }
        self.run.write_done(summary)

    def _remove(self, steps: set[int]) -> None:
        for step in steps:
            self.run.checkpoint_path(step).unlink()
            self.run.optimizer_path(step).unlink(missing_ok=True)
