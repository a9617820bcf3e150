"""The folders of runs in training: evaluations, checkpoints, and how each run ends."""

import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from ihlab.model.transformer import Transformer
from ihlab.training import checkpoint
from ihlab.training.config import ForkConfig
from ihlab.training.progress import Row
from ihlab.training.run import Run
from ihlab.training.stored_metrics import as_csv, record
from tasks.config import require

Callback = Callable[[dict[str, Any]], None]
"""Callback for evaluations: called with a dict of the row of `metrics.csv`, and of `run`, the run folder's name."""


class TrainingDivergedError(RuntimeError):
    """The loss or a weight is not finite. Earlier checkpoints are kept."""


@dataclass(frozen=True)
class Stored:
    """Contents of a checkpoint: weights, AdamW's state, and the training loss since the last evaluation."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    loss: Tensor
    steps: int


def digests(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of a task's data: the facts whose names end in sha256."""
    return {name: str(value) for name, value in facts.items() if name.endswith("sha256")}


class RunWriter:
    """Writer of one run's folder. `rows`: its metrics so far; `started`: its start time, moved later by interruptions.

    A solo run has one writer. Each member of an ensemble has its own, so its folder looks like a solo run's.
    """

    def __init__(self, run: Run, callback: Callback | None = None) -> None:
        self.run, self.config, self.callback = run, run.config, callback
        self.rows: list[Row] = []
        self.size: int | None = None  # bytes of the rows as CSV, once this process has written them
        self.started = time.perf_counter()

    def resumable(self) -> list[int]:
        """Return the steps whose checkpoint has the optimiser's state. Raises `ConfigError` for a fork without any."""
        steps = [step for step in self.run.checkpoints if self.run.optimizer_path(step).exists()]
        forked = isinstance(self.config, ForkConfig)
        require(
            bool(steps) or not forked,
            f"{self.run.folder} is a fork without the checkpoint it starts from: call fork again.",
        )
        return steps

    def load(self, step: int, model: nn.Module, device: torch.device) -> Stored:
        """Load a checkpoint of the model, and the metrics up to it.

        Raises `ConfigError` for damaged files, and for a task whose data differs from the checkpoint's training data.
        """
        path, about = self.run.checkpoint_path(step), self.run.about(step)
        weights = checkpoint.load_weights(path, model, about, device)
        state = checkpoint.load_optimizer(self.run.optimizer_path(step), step, model, about, device)
        self._require_same_data(checkpoint.stored_about(path))
        self.started = time.perf_counter() - state.pop("tally/seconds").item()  # as if never interrupted
        stored = Stored(weights, state, state.pop("tally/loss"), int(state.pop("tally/steps")))
        if step == self.config.first_step and not self.run.has_metrics:  # a fork's first step
            return stored
        metrics = self.run.metrics_to(step, checkpoint.stored_about(path).get("metrics"))
        self.rows = metrics[metrics["step"] <= step].to_dict("records")  # type: ignore[assignment]
        require(bool(self.rows), f"{self.run.folder} has a checkpoint at step {step} but no metrics up to it.")
        return stored

    def forget_after(self, step: int) -> None:
        """Remove checkpoints after the step from which the run is resumed.

        The metrics after that step are dropped, so a run resumed from a later checkpoint would lack evaluations.
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
                self.size = self.run.append_metrics(row, self.size)
        if self.callback is not None:
            self.callback({"run": self.run.folder.name, **row})

    @property
    def reached(self) -> bool:
        """True if the last evaluation reached `RunConfig.stop_at_accuracy`."""
        threshold = self.config.stop_at_accuracy
        return threshold is not None and bool(self.rows) and self.rows[-1][self.config.stop_at_metric] >= threshold

    def check_finite(self, step: int, *numbers: float, what: str = "the loss") -> None:
        """Raise `TrainingDivergedError`, and record it in the folder, if a number is not finite."""
        if all(map(math.isfinite, numbers)):
            return
        last = self.run.checkpoints[-1] if self.run.checkpoints else "none"
        with self.run.writing():
            self.run.write_diverged(step)
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
        """Remove the checkpoints that an interruption left, and write `done.json`, with the fields `more` too."""
        seconds = time.perf_counter() - self.started
        last = int(self.rows[-1]["step"])  # before `steps` after early stopping
        tokens = (last - self.config.first_step) * self.config.batch_size * self.config.task.length
        summary: dict[str, Any] = {
            "steps": last,
            "n_params": n_params,
            "seconds": round(seconds, 3),
            "resumed_from": resumed_from,
            "tokens_per_second": round(tokens / max(seconds, 1e-9)),  # a coarse clock may show no time
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("ihlab", "torch", "numpy", "transformer-lens")},
            **({"data": self.config.task.provenance} if hasattr(self.config.task, "provenance") else {}),
            **more,
        }
        with self.run.writing():
            self._remove(set(self.run.checkpoints) - {*self.config.checkpoint_steps(), last})
            self.run.write_done(summary)

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


class Members:
    """One run in training, or the members of a stack. `ongoing` are those that have neither ended nor diverged.

    `running_loss` [member] is the sum of the training losses of the `loss_steps` steps since the last evaluation. It
    stays on the device: reading it would stall a GPU.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        device: torch.device,
        callback: Callback | None = None,
        stacked: bool = False,
        resumed_from: int | None = None,
    ) -> None:
        self.writers = [RunWriter(run, callback) for run in runs]
        self.device, self.stacked, self.resumed_from, self.n_params = device, stacked, resumed_from, 0
        self.ongoing = list(range(len(runs)))
        self.running_loss, self.loss_steps = torch.zeros(len(runs), device=device), 0

    @property
    def where(self) -> str:
        """The folder of the run, or the folders of the members, in words."""
        first, last = (self.writers[i].run.folder for i in (0, -1))
        n = len(self.writers)
        return str(first) if n == 1 else f"the folders of its {n} members, {first} to {last}"

    @property
    def evaluated(self) -> bool:
        """True after the first evaluation."""
        return bool(self.writers[0].rows)

    @property
    def latest_row(self) -> Row | None:
        """The last evaluation of the first member that still trains, or of the first member if none does."""
        rows = self.writers[(self.ongoing or [0])[0]].rows
        return rows[-1] if rows else None

    # Resuming

    def resume(self, models: Sequence[Transformer]) -> tuple[int, list[dict[str, Tensor]]]:
        """Load the last checkpoint that all members have into the models.

        Returns its step and each member's optimiser state; 0 and an empty list if there is none.
        """
        self.n_params = models[0].n_params
        common = set.intersection(*(set(writer.resumable()) for writer in self.writers))
        step = max(common, default=0)
        if self.resumed_from is None:
            self.resumed_from = step
        pairs = list(zip(self.writers, models, strict=True)) if common else []
        stored = [writer.load(step, model, self.device) for writer, model in pairs]
        for writer in self.writers:  # after checking that all can be resumed
            writer.forget_after(step)
        for (_, model), found in zip(pairs, stored, strict=True):
            checkpoint.load_model_state(model, found.weights)
        if stored:
            self.loss_steps = stored[0].steps
            self.running_loss = torch.stack([found.loss for found in stored])
        return step, [found.optimizer for found in stored]

    # Evaluations

    def train_losses(self) -> list[float]:
        """Return each member's mean training loss since the last evaluation; NaN without a step."""
        return [loss / self.loss_steps if self.loss_steps else math.nan for loss in self.running_loss.tolist()]

    def note(self, step: int, rows: Sequence[Mapping[str, float]]) -> None:
        """Write an evaluation of every member that still trains."""
        train_losses = self.train_losses()
        self.check_finite(step, train_losses, [row["eval_loss"] for row in rows])
        for i in self.ongoing:
            self.writers[i].note(step, train_losses[i], dict(rows[i]))
        self.running_loss.zero_()
        self.loss_steps = 0

    def check_finite(
        self, step: int, train_losses: Sequence[float], eval_losses: Sequence[float] | None = None
    ) -> None:
        """Raise `TrainingDivergedError` if the loss is not finite. In a stack, stop training the member instead."""
        for i in list(self.ongoing):
            losses = [train_losses[i]] if self.loss_steps else []  # no training loss yet right after an evaluation
            losses += [] if eval_losses is None else [eval_losses[i]]
            self._check(i, step, *losses)

    def check_weights(self, step: int, weights: Callable[[int], Mapping[str, Tensor]]) -> None:
        """Check, as `check_finite` does, the weights of every member that still trains."""
        for i in list(self.ongoing):
            largest = [x.detach().abs().amax().item() for x in weights(i).values()]
            self._check(i, step, *largest, what="a weight")

    def _check(self, i: int, step: int, *numbers: float, what: str = "the loss") -> None:
        try:
            self.writers[i].check_finite(step, *numbers, what=what)
        except TrainingDivergedError:
            if not self.stacked:
                raise
            self.ongoing.remove(i)

    # Checkpoints and the end

    def save(self, i: int, step: int, weights: dict[str, Tensor], optimizer_state: dict[str, Tensor]) -> None:
        """Write a checkpoint of a member."""
        self.writers[i].save(step, Stored(weights, optimizer_state, self.running_loss[i], self.loss_steps))

    def reached(self) -> list[int]:
        """Return the members that still train and whose last evaluation reached `RunConfig.stop_at_accuracy`."""
        return [i for i in self.ongoing if self.writers[i].reached]

    def conclude(self, members: Iterable[int]) -> None:
        """Write the summaries of members that have ended, and take them out of training."""
        more = {"ensemble": len(self.writers)} if self.stacked else {}
        for i in [i for i in members if i in self.ongoing]:
            self.writers[i].conclude(self.resumed_from or 0, self.n_params, self.device, **more)
            self.ongoing.remove(i)
