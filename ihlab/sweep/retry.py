"""Training of one run of a sweep, with failures returned as outcomes instead of raised."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ihlab.sweep.tracking import tracked
from ihlab.training.config import RunConfig
from ihlab.training.progress import Report
from tasks.config import ConfigError

if TYPE_CHECKING:
    from ihlab.training.run import Run

DONE, DIVERGED, FAILED, UNFINISHED = "done", "diverged", "failed", "unfinished"

PATIENCE = 10.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: done, diverged or failed, and the error."""

    status: str
    error: str = ""


def attempt(root: Path, device: str, wandb: bool, config: RunConfig, report: Report) -> Outcome:
    """Train or resume a run, and return its outcome. Raises nothing but interrupts.

    A divergence is recorded in the run's folder (`Run.diverged`). Other failures, such as a full disk, leave no trace:
    the next sweep retries the run.
    """
    from ihlab.training.run import Run
    from ihlab.training.run_writer import TrainingDivergedError
    from ihlab.training.train import train

    try:
        run = Run.create(config, root)
        _wait_for_lock(run)
        with tracked(run, report) if wandb else nullcontext(report) as told:
            train(config, root, device, told)
    except TrainingDivergedError as error:
        return Outcome(DIVERGED, str(error))
    except Exception as error:
        return failure(error)
    return Outcome(DONE)


def failure(error: BaseException) -> Outcome:
    """Return a failed run's outcome, with its error on one line."""
    return Outcome(FAILED, " ".join(f"{type(error).__name__}: {error}".split()))


def _wait_for_lock(run: "Run") -> None:
    """Wait for the run's lock to be free: a killed worker's lock may outlive it by a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with run.lock():
                return
        except ConfigError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
