"""Train one run of a sweep, and return failures as outcomes instead of raising them."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from ihlab.files import TakenError
from ihlab.stored import DIVERGED, DONE, UNFINISHED
from ihlab.sweep.tracking import tracked
from ihlab.training.config import RunConfig
from ihlab.training.progress import Report

FAILED = "failed"

PATIENCE = 10.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: done, diverged, failed, or unfinished if another process trains it; and the error."""

    status: str
    error: str = ""


def attempt(root: Path, device: str, wandb: bool, config: RunConfig, report: Report) -> Outcome:
    """Train or resume a run, and return its outcome. Only interrupts are raised.

    A divergence is recorded in the run's folder (`Run.diverged`). Other failures, such as a full disk, leave no trace:
    the next sweep retries the run.
    """
    from ihlab.training.run import Run
    from ihlab.training.run_writer import TrainingDivergedError
    from ihlab.training.train import train

    try:
        run = Run.create(config, root)
        wait_for_lock(config, root)
        with tracked(run) if wandb else nullcontext() as callback:
            train(config, root, device, report, callback=callback)
    except TrainingDivergedError as error:
        return Outcome(DIVERGED, str(error))
    except TakenError as error:  # another process trains it and will record its outcome
        return Outcome(UNFINISHED, str(error))
    except Exception as error:
        return failure(error)
    return Outcome(DONE)


def failure(error: BaseException) -> Outcome:
    """Return a failed run's outcome, with its error on one line."""
    return Outcome(FAILED, " ".join(f"{type(error).__name__}: {error}".split()))


def wait_for_lock(config: RunConfig, root: Path) -> None:
    """Wait until the run's lock is free: the workers of a killed sweep hold it while they save.

    Raises `ConfigError` if another process holds it for longer than `PATIENCE` seconds.
    """
    from ihlab.training.run import Run

    with Run.create(config, root).lock(PATIENCE):
        pass
