"""Logging of a run's metrics to Weights & Biases while it trains. The run folder remains authoritative."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ihlab.training.config import to_dict
from tasks.config import require

if TYPE_CHECKING:
    from ihlab.training.run import Run
    from ihlab.training.run_writer import Callback

PROJECT = "ihlab"


def require_wandb() -> None:
    """Raise `ConfigError` if wandb is not installed."""
    require(find_spec("wandb") is not None, "wandb is not installed: pip install 'wandb>=0.22'.")


@contextmanager
def tracked(run: "Run") -> "Iterator[Callback]":
    """Yield a `callback` for `train` that logs each evaluation of `run` to wandb, at its step.

    It logs the config and every column of `metrics.csv`, except NaN (an accuracy without scored positions, the training
    loss at step 0). Stored evaluations that wandb lacks are logged first. The id of the wandb run is the run's hash:
    online, a resumed run continues in the same wandb run. wandb's own settings apply: `WANDB_MODE=offline`,
    `WANDB_DIR`, `WANDB_PROJECT` (ihlab if it is not set).
    """
    import wandb

    try:
        with wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.config.digest,
            name=run.config.name,
            config=to_dict(run.config),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        ) as online:
            logged = online.step - 1

            def log(row: dict[str, Any]) -> None:
                nonlocal logged
                if row["step"] > logged:  # a resumed run repeats the evaluations after its checkpoint
                    numbers = {name: value for name, value in row.items() if name != "run" and not math.isnan(value)}
                    online.log(numbers, step=int(row["step"]))
                    logged = int(row["step"])

            for row in run.metrics.to_dict("records") if run.has_metrics else ():
                log({str(name): value for name, value in row.items()})
            yield log
    finally:
        wandb.teardown()  # flushes everything; wandb's exit hook does not run in a pool's worker
