"""Logging of a run's metrics to Weights & Biases while it trains. The run folder remains authoritative."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ihlab.training.config import to_dict
from ihlab.training.progress import Report, Row
from tasks.config import require

if TYPE_CHECKING:
    from ihlab.training.run import Run

PROJECT = "ihlab"


def require_wandb() -> None:
    """Raise `ConfigError` if wandb is not installed."""
    require(find_spec("wandb") is not None, "wandb is not installed: pip install 'ihlab[wandb]'.")


@contextmanager
def tracked(run: "Run", report: Report) -> Iterator[Report]:
    """Yield a `report` for `train` that calls `report`, and logs each evaluation of `run` to wandb, at its step.

    Every column of `metrics.csv` is logged, except NaN (an accuracy without scored positions, the training loss at
    step 0), and the config. The wandb run has the run's hash as its id: online, a resumed run continues in the same
    one. wandb's own settings apply: `WANDB_MODE=offline`, `WANDB_DIR`, `WANDB_PROJECT` (ihlab if it is not set).
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

            # `report` gets only the last of several evaluations in quick succession; the file has them all.
            def log_new() -> None:
                nonlocal logged
                metrics = run.metrics
                for at, row in metrics[metrics["step"] > logged].set_index("step", drop=False).iterrows():
                    online.log(row.dropna().to_dict(), step=at)
                logged = max(logged, int(metrics["step"].iloc[-1]))

            def log_and_report(step: int, row: Row) -> None:
                if row["step"] > logged:
                    log_new()
                report(step, row)

            try:
                yield log_and_report
            finally:
                if run.has_metrics:  # evaluations since the last report, when a run diverges or is stopped
                    log_new()
    finally:
        wandb.teardown()  # flushes everything; wandb's exit hook does not run in a pool's worker
