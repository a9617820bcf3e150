"""Training: `train(config)` gives a finished run."""

import math
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ihlab.files import write_json
from ihlab.model.transformer import Transformer
from ihlab.training import checkpoint
from ihlab.training.config import ForkConfig, RunConfig
from ihlab.training.hold import install
from ihlab.training.loss import summed_loss
from ihlab.training.metrics import Evaluator
from ihlab.training.optim import learning_rate, make_optimizer
from ihlab.training.progress import Report, Row, progress
from ihlab.training.run import Run
from ihlab.training.stream import SPLITS, Scored, Stream
from tasks.config import ConfigError, require

REPORT_EVERY = 0.2  # seconds
ONE_INTERRUPT = 1.0  # seconds


class TrainingDivergedError(RuntimeError):
    """The loss is not a number any more. Checkpoints from before are kept."""


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, and has saved where it was."""


def train(
    config: RunConfig,
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
) -> Run:
    """Train the run that `config` describes, in its folder under `root`, and return it.

    A finished run is returned as it is; an interrupted one goes on from its last checkpoint and, on
    the CPU with the same number of threads, ends bit for bit as it would have uninterrupted (compiled: to rounding).

    `device` is a torch device, or "auto": a GPU if there is one. `report` is told of progress; left out, a
    progress bar is drawn where the output is a terminal. Raises `TrainingDivergedError` when the
    loss stops being finite, `Interrupted` after Ctrl-C (at the end of the step, saved), and `ConfigError` for a
    folder that another process or another config holds.
    """
    run = Run.create(config, root)
    if run.done:
        return run
    shown = progress(config) if report is None else nullcontext(report)
    where = pick_device(device)
    own_randomness = torch.random.fork_rng([where] if where.type == "cuda" else [])  # dropout's, not the caller's
    with run.lock(), own_randomness, _deferred_interrupt() as interrupted, shown as reported:
        _Training(run, where, reported).finish(interrupted)
    return run


def pick_device(name: str = "auto") -> torch.device:
    """A torch device by name; "auto" is a GPU if there is one. Raises `ConfigError` for one that is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"The device '{name}' cannot be used here ({str(error).splitlines()[0]}).") from None
    return device


def dropout_seed(seed: int, step: int) -> int:
    """The seed of a step's dropout. Counter-based like the batches: a resumed run drops what it would have dropped."""
    return int(np.random.default_rng([len(SPLITS), seed, step]).integers(2**63))


@dataclass
class _Tally:
    """The training loss since the last evaluation. It stays on the device: reading it would stall the GPU."""

    loss: torch.Tensor
    steps: int = 0

    def mean(self) -> float:
        return self.loss.item() / self.steps if self.steps else math.nan


class _Training:
    """One run's model, optimiser and position in its stream."""

    def __init__(self, run: Run, device: torch.device, report: Report) -> None:
        self.run, self.config, self.device, self.report = run, run.config, device, report
        self.model = Transformer(self.config.model, seed=self.config.seed).to(device)
        install(self.model, self.config.clamps)
        self.optimizer = make_optimizer(self.model, self.config)
        # Train through a compiled function and hook the plain model: hooks put on a module that was
        # compiled in place silently never fire.
        self.loss = summed_loss
        if self.config.compile:
            torch.compiler.reset()  # or the ninth model of a process falls back to eager, silently slow
            self.loss = torch.compile(summed_loss)
        self.evaluate = Evaluator(self.config, device)
        self.tally = _Tally(torch.zeros((), device=device))
        self.rows: list[Row] = []
        self.step = self._resume()

    def finish(self, interrupted: threading.Event) -> None:
        config, start = self.config, self.step
        evals, kept = set(config.eval_steps()), set(config.checkpoint_steps())
        pin = self.device.type == "cuda"
        stream = Stream(config.task, config.seed, config.batch_size, config.accumulate, pin)
        if self.step == config.first_step and not self.rows:
            self._evaluate()
            self._save()
        reported = time.perf_counter()
        for pieces in stream.steps(self.step, config.steps):
            self._train_step(pieces)
            if self.step in evals:
                self._evaluate()
            if self.step in kept:
                self._save()
            if interrupted.is_set() and self.step < config.steps:
                if self.step not in kept:
                    if self.tally.steps:  # none right after an evaluation, which has checked
                        self._check_finite(self.tally.mean())
                    self._save()
                raise Interrupted(f"Stopped at step {self.step} of {config.steps}, saved in {self.run.folder}.")
            if time.perf_counter() - reported > REPORT_EVERY or self.step == config.steps:
                self.report(self.step, self.rows[-1])
                reported = time.perf_counter()
        self._conclude(start)

    def _train_step(self, pieces: list[Scored]) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.step)
        if self.config.model.dropout:
            torch.manual_seed(dropout_seed(self.config.seed, self.step))
        total = sum(piece.count for piece in pieces)
        for piece in pieces:
            batch = piece.to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                loss = self.loss(self.model, batch.tokens, batch.index, batch.targets) / total
            loss.backward()
            self.tally.loss += loss.detach()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.tally.steps += 1
        self.step += 1

    def _evaluate(self) -> None:
        train_loss = self.tally.mean()
        self.model.eval()  # without dropout
        measured = self.evaluate(self.model)
        self.model.train()
        self._check_finite(measured["eval_loss"])
        if self.tally.steps:
            self._check_finite(train_loss)
        tokens = self.step * self.config.batch_size * self.config.task.length
        self.rows.append({"step": self.step, "tokens": tokens, "train_loss": train_loss, **measured})
        self.run.write_metrics(self.rows)
        self.tally.loss.zero_()
        self.tally.steps = 0

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            last = self.run.checkpoints[-1] if self.run.checkpoints else "none"
            raise TrainingDivergedError(
                f"{self.run.folder}: the loss is not finite at step {self.step} (lr={self.config.lr}); "
                f"the last checkpoint, step {last}, is kept."
            )

    # The optimiser's file comes first: where there is a model, it can be trained on.
    def _save(self) -> None:
        state = checkpoint.optimizer_state(self.model, self.optimizer)
        state["tally/loss"], state["tally/steps"] = self.tally.loss, torch.tensor(self.tally.steps)
        state["tally/seconds"] = torch.tensor(time.perf_counter() - self.started, dtype=torch.float64)
        checkpoint.save(self.run.optimizer_path(self.step), state)
        checkpoint.save(self.run.checkpoint_path(self.step), checkpoint.model_state(self.model))

    def _resume(self) -> int:
        """Load the last checkpoint that can be trained on, if there is one, and return its step."""
        self.started = time.perf_counter()
        resumable = [step for step in self.run.checkpoints if self.run.optimizer_path(step).exists()]
        if not resumable:
            forked = isinstance(self.config, ForkConfig)
            require(not forked, f"{self.run.folder} is a fork without the checkpoint it starts from: call fork again.")
            return 0
        step = resumable[-1]
        path = self.run.checkpoint_path(step)
        checkpoint.load_model_state(self.model, checkpoint.load(path, self.device), path)
        state = checkpoint.load(self.run.optimizer_path(step), self.device)
        self.started -= state.pop("tally/seconds").item()  # as if all had been trained in one go
        self.tally = _Tally(state.pop("tally/loss"), int(state.pop("tally/steps")))
        checkpoint.load_optimizer_state(self.model, self.optimizer, state)
        if step == self.config.first_step and not self.run.has_metrics:  # a fork begins so
            return step
        metrics = self.run.metrics
        self.rows = metrics[metrics["step"] <= step].to_dict("records")  # type: ignore[assignment]
        require(bool(self.rows), f"{self.run.folder} has a checkpoint at step {step} but no metrics up to it.")
        return step

    def _conclude(self, start: int) -> None:
        seconds = time.perf_counter() - self.started
        for step in set(self.run.checkpoints) - set(self.config.checkpoint_steps()):  # left by an interruption
            self.run.checkpoint_path(step).unlink()
            self.run.optimizer_path(step).unlink()
        steps = self.config.steps - self.config.first_step
        tokens = steps * self.config.batch_size * self.config.task.length
        summary: dict[str, Any] = {
            "steps": self.config.steps,
            "n_params": self.model.n_params,
            "seconds": round(seconds, 3),
            "resumed_from": start,
            "tokens_per_second": round(tokens / seconds),
            "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine(),
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("ihlab", "torch", "numpy", "transformer-lens")},
        }
        write_json(self.run.folder / "done.json", summary)


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag that the loop reads between steps; a second one stops at once.

    Stopped inside an optimiser step, a model is half one step's and half the next's. Interrupts less than
    `ONE_INTERRUPT` seconds after the first are the same one: a terminal sends it to a pool's workers, and the
    pool, which cannot know that, passes it on to them.
    """
    asked, since = threading.Event(), math.inf
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield asked
        return

    def handle(signum: int, frame: Any) -> None:
        nonlocal since
        if time.monotonic() - since > ONE_INTERRUPT:
            raise KeyboardInterrupt
        since = min(since, time.monotonic())
        asked.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
