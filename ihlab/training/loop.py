"""The training loop: steps, evaluations, checkpoints, interrupts."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from ihlab.training.config import RunConfig
from ihlab.training.interrupt import Interrupted

REPORT_EVERY = 0.2  # seconds

BatchT = TypeVar("BatchT")


class Loop(ABC, Generic[BatchT]):
    """Training loop from the current step to the last; subclasses train one model or a stack of them.

    `config` gives the steps of evaluations and checkpoints.
    """

    config: RunConfig
    step: int

    def finish(self, interrupted: threading.Event) -> None:
        """Train to the end. Raises `Interrupted`, with everything saved, at the end of a step after Ctrl-C."""
        config, start = self.config, self.step
        evals, kept = set(config.eval_steps()), set(config.checkpoint_steps())
        if self.step == config.first_step and not self.evaluated:
            self._evaluate()
            self._save()
        reported, reached = time.perf_counter(), self._reached()
        for batch in [] if reached else self._batches(self.step, config.steps):
            self.train_step(batch)
            if self.step in evals:
                self._evaluate()
                reached = self._reached()
            if self.step in kept or reached:
                self._save()
            if reached:
                self._report()
                break
            if self._stops(interrupted) and self.step < config.steps:
                if self.step not in kept:
                    self._check()
                    self._save()
                raise Interrupted(f"Stopped at step {self.step} of {config.steps}, saved in {self.where}.")
            if time.perf_counter() - reported > REPORT_EVERY or self.step == config.steps:
                self._report()
                reported = time.perf_counter()
        self._conclude(start)
        if self._stops(interrupted):  # in the last step: nothing is left of this run, but others may follow it
            raise Interrupted(f"Stopped at step {self.step}, the last, finished in {self.where}.")

    def _stops(self, interrupted: threading.Event) -> bool:
        """Return whether to stop after this step."""
        return interrupted.is_set()

    def _reached(self) -> bool:
        """Return whether the last evaluation reached `RunConfig.until`, which ends training."""
        return False

    @property
    @abstractmethod
    def where(self) -> str:
        """Folder or folders of the runs, in words."""

    @property
    @abstractmethod
    def evaluated(self) -> bool:
        """True after the first evaluation."""

    @abstractmethod
    def _batches(self, start: int, stop: int) -> Iterator[BatchT]:
        """Yield the batches of steps start .. stop - 1."""

    @abstractmethod
    def train_step(self, batch: BatchT) -> None:
        """Take one optimiser step, and increment `step`."""

    @abstractmethod
    def _evaluate(self) -> None:
        """Add a row to the metrics."""

    @abstractmethod
    def _check(self) -> None:
        """Check that the training loss since the last evaluation is finite, before a checkpoint is saved."""

    @abstractmethod
    def _report(self) -> None:
        """Report the step and the last evaluation."""

    @abstractmethod
    def _save(self) -> None:
        """Write a checkpoint."""

    @abstractmethod
    def _conclude(self, start: int) -> None:
        """Write the summary of a training that was resumed at `start`."""
