"""Training: `train(config)` gives a finished run."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from ihlab.training import checkpoint
from ihlab.training.config import RunConfig
from ihlab.training.hold import install
from ihlab.training.initial import initial_model
from ihlab.training.interrupt import deferred_interrupt
from ihlab.training.loss import summed_loss
from ihlab.training.metrics import Evaluator
from ihlab.training.optim import learning_rate, make_optimizer
from ihlab.training.progress import Report, progress
from ihlab.training.ranks import Ranks, join_ranks
from ihlab.training.record import Record, Stored
from ihlab.training.run import Run
from ihlab.training.scored import Scored
from ihlab.training.steps import Steps
from ihlab.training.stream import SPLITS, Stream


@overload
def train(
    config: RunConfig, root: str | Path = ..., device: str = ..., report: Report | None = ..., members: None = None
) -> Run: ...


@overload
def train(
    config: RunConfig, root: str | Path = ..., device: str = ..., report: Report | None = ..., *, members: int
) -> list[Run]: ...


def train(
    config: RunConfig,
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
    members: int | None = None,
) -> Run | list[Run]:
    """Train the run that `config` describes, in its folder under `root`, and return it.

    A finished run is returned as it is; an interrupted one goes on from its last checkpoint and, on
    the CPU with the same number of threads, ends bit for bit as it would have uninterrupted (compiled: to rounding).

    `device` is a torch device, or "auto": a GPU if there is one. `report` is told of progress; left out, a
    progress bar is drawn where the output is a terminal. With `members`, that many runs with the seeds `config.seed`,
    `config.seed` + 1, ... are trained, as `train_ensemble` does it, and returned as a list. Under `torchrun` its
    processes train one run together (`ihlab.training.ranks`).

    Raises `TrainingDivergedError` when the loss stops being finite, `Interrupted` after Ctrl-C (at the end of the
    step, saved), and `ConfigError` for a folder that another process or another config holds.
    """
    if members is not None:
        from ihlab.training.ensemble import seeds, train_ensemble

        return train_ensemble(seeds(config, members), root, device, report)
    ranks = join_ranks(device)
    if not ranks.first:
        ranks.wait()  # for the first to make the folder
    run = Run.create(config, root)
    if ranks.first:
        ranks.wait()
    if not run.done:
        _train(run, ranks, report)
    ranks.wait()  # for the first to say that it is done
    return run


def _train(run: Run, ranks: Ranks, report: Report | None) -> None:
    # Only the first rank writes, to the folder and to the terminal.
    shown = progress(run.config) if report is None and ranks.first else nullcontext(report)
    lock = run.lock() if ranks.first else nullcontext()
    own_randomness = torch.random.fork_rng([ranks.device] if ranks.device.type == "cuda" else [])  # dropout's
    with lock, own_randomness, deferred_interrupt() as interrupted, shown as reported:
        _Training(run, ranks, reported).finish(interrupted)


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of a step's dropout. Counter-based like the batches: a resumed run drops what it would have dropped."""
    own = [rank] if rank else []
    return int(np.random.default_rng([len(SPLITS), seed, step, *own]).integers(2**63))


@dataclass
class _Tally:
    """The training loss since the last evaluation. It stays on the device: reading it would stall the GPU."""

    loss: Tensor
    steps: int = 0


class _Training(Steps[list[Scored]]):
    """One run's model, optimiser and position in its stream."""

    def __init__(self, run: Run, ranks: Ranks, report: Report | None) -> None:
        self.run, self.config, self.ranks, self.device, self.report = run, run.config, ranks, ranks.device, report
        config = self.config
        pin = self.device.type == "cuda"
        self.stream = Stream(
            config.task, config.seed, config.batch_size, config.accumulate, pin, ranks.rank, ranks.size
        )
        self.model = initial_model(config).to(self.device)
        install(self.model, config.clamps)
        self.optimizer = make_optimizer(self.model, config)
        self.evaluate = Evaluator(config, self.device)
        self.tally = _Tally(torch.zeros((), device=self.device))
        self.record = Record(run)
        self.step = self._resume()
        self.shared = ranks.share(self.model) if ranks.size > 1 else None
        self.loss = self._loss()

    def _loss(self) -> Callable[..., Tensor]:
        # Train through a compiled function and hook the plain model: hooks put on a module that was
        # compiled in place silently never fire.
        if self.config.compile:
            torch.compiler.reset()  # or the ninth model of a process falls back to eager, silently slow
        if self.shared is not None:
            return torch.compile(self.shared) if self.config.compile else self.shared
        loss = torch.compile(summed_loss) if self.config.compile else summed_loss
        return lambda *batch: loss(self.model, *batch)

    @property
    def where(self) -> str:
        return str(self.run.folder)

    @property
    def evaluated(self) -> bool:
        return bool(self.record.rows)

    def _batches(self, start: int, stop: int) -> Iterator[list[Scored]]:
        return self.stream.steps(start, stop)

    def _stops(self, interrupted: threading.Event) -> bool:
        return self.ranks.any_asked(interrupted.is_set())

    def _reached(self) -> bool:
        if self.config.until is None:
            return False
        return bool(self.ranks.from_first(float(self.ranks.first and self.record.reached)))

    def _train_step(self, pieces: list[Scored]) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.step)
        if self.config.model.dropout:
            torch.manual_seed(dropout_seed(self.config.seed, self.step, self.ranks.rank))
        for i, piece in enumerate(pieces):
            with self._exchange(last=i + 1 == len(pieces)):
                batch = piece.to(self.device)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                    loss = self.loss(*batch.tensors) / batch.total
                (loss * self.ranks.size if self.shared else loss).backward()
            self.tally.loss += loss.detach()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.tally.steps += 1
        self.step += 1

    def _exchange(self, last: bool) -> AbstractContextManager[None]:
        """Where backward lets gradients go to the other ranks: at the last piece of a step only."""
        return nullcontext() if self.shared is None or last else self.shared.no_sync()

    def _train_loss(self) -> float:
        """The mean over the steps since the last evaluation, on all ranks; NaN if there were none."""
        total = self.ranks.collect(self.tally.loss)
        return total.item() / self.tally.steps if self.tally.steps else math.nan

    def _evaluate(self) -> None:
        train_loss, eval_loss = self._train_loss(), math.nan
        if self.ranks.first:
            self.model.eval()  # without dropout
            measured = self.evaluate(self.model)
            self.model.train()
            eval_loss = measured["eval_loss"]
        eval_loss = self.ranks.from_first(eval_loss)
        self.record.check_finite(self.step, eval_loss, *([train_loss] if self.tally.steps else []))
        if self.ranks.first:
            self.record.note(self.step, train_loss, measured)
        self.tally.loss.zero_()
        self.tally.steps = 0

    def _check(self) -> None:
        if self.tally.steps:  # none right after an evaluation, which has checked
            self.record.check_finite(self.step, self._train_loss())

    def _report(self) -> None:
        if self.report is not None and self.ranks.first:
            self.report(self.step, self.record.rows[-1])

    def _save(self) -> None:
        if self.ranks.first:
            state = checkpoint.optimizer_state(dict(self.model.named_parameters()), self.optimizer)
            weights = checkpoint.model_state(self.model)
            self.record.save(self.step, Stored(weights, state, self.tally.loss, self.tally.steps))

    def _resume(self) -> int:
        """Load the last checkpoint that can be trained on, if there is one, and return its step."""
        steps = self.record.resumable()
        step = steps[-1] if steps else 0
        self.ranks.require_same("runs resumed at step", step)
        if not steps:
            return 0
        stored = self.record.load(step, self.device)
        checkpoint.load_model_state(self.model, stored.weights, self.run.checkpoint_path(step))
        checkpoint.load_optimizer_state(dict(self.model.named_parameters()), self.optimizer, stored.optimizer)
        self.tally = _Tally(stored.loss if self.ranks.first else torch.zeros_like(stored.loss), stored.steps)
        return step

    def _conclude(self, start: int) -> None:
        if self.ranks.first:
            more = {"ranks": self.ranks.size} if self.ranks.size > 1 else {}
            self.record.conclude(start, self.model.n_params, self.device, **more)
