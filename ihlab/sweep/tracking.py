"""A run's metrics in Weights & Biases as well, while it trains. The run folder stays what counts."""

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
    """A `report` for `train` that passes on to `report`, and logs each evaluation of `run` to wandb, at its step.

    Every column of `metrics.csv` is logged but NaN (an accuracy where nothing is asked, the training loss at step 0),
    the config with it. The wandb run bears the run's hash: online, a resumed run goes on in the same one. wandb's own
    settings hold: `WANDB_MODE=offline`, `WANDB_DIR`, `WANDB_PROJECT` (ihlab if it is not set).
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

            # `report` hears only of the latest of several evaluations in a moment; the file has them all.
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
                if run.has_metrics:  # a run that diverges or is stopped was evaluated since its last report
                    log_new()
    finally:
        wandb.teardown()  # waits for all to be written, which its exit hook does not in a process of a pool
