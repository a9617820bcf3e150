"""Train one run of a sweep, and return its error instead of raising it."""

from pathlib import Path

from ihlab.storage.files import TakenError
from ihlab.training.config import RunConfig, TaughtConfig
from ihlab.training.progress import Report

PATIENCE = 10.0
"""Seconds to wait for the lock of a run: the workers of a killed sweep hold it while they save."""


def attempt(root: Path, device: str, config: RunConfig, report: Report) -> str:
    """Train or resume a run, and return the error with which it failed, on one line. Only
    interrupts are raised.

    Return "" if the run ended or diverged, or if another process trains it: the run's folder says
    which.
    """
    from ihlab.training.run_writer import TrainingDivergedError

    try:
        wait_for_lock(config, root)
        train_alone(config, root, device, report)
    except (TrainingDivergedError, TakenError):
        return ""
    except Exception as error:
        return in_one_line(error)
    return ""


def train_alone(config: RunConfig, root: Path, device: str, report: Report) -> None:
    """Train or resume a run, with its lessons if its config has any."""
    from ihlab.training.train import train

    if isinstance(config, TaughtConfig):
        from ihlab.certify.teach import train_until_proved

        train_until_proved(config, root=root, device=device, report=report)
    else:
        train(config, root, device, report)


def in_one_line(error: BaseException) -> str:
    """Return the type and the message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def wait_for_lock(config: RunConfig, root: Path) -> None:
    """Wait until the run's lock is free. Raises `TakenError` if that takes more than `PATIENCE`
    seconds.
    """
    from ihlab.training.run import Run

    with Run.create(config, root).lock(PATIENCE):
        pass
