"""Results of a sweep's runs as one tidy table."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ihlab.storage.files import write_text
from ihlab.storage.stored import DIVERGED, DONE, UNFINISHED, present, read_summary
from ihlab.sweep.grid import Point
from ihlab.training.find_runs import name_to_open
from ihlab.training.stored_metrics import read_metrics
from tasks.config import ConfigError, require

FAILED = "failed"
"""The status of a run that ended in an error. `ihlab.storage.stored` has the others."""

GOAL = 0.9
"""The accuracy at a sequence's first answer that defines `steps_to_90`, as in Figure 1a's claims.
"""

SUMMED_UP = ("step", "tokens", "train_loss", "eval_loss", "accuracy")
"""Prefixes of the final metrics in the table (all accuracies included). The table has no metrics of
single heads.
"""


def result_row(point: Point, root: Path, error: str = "") -> dict[str, Any]:
    """Return one run's row of the table, read from its folder under `root`; `error`: its error
    message, if it failed.

    - `run`: the argument of `Run.open`: the folder's name if it is in `runs`, else its path;
    - a column for each swept field;
    - `status`: done, diverged, failed, or unfinished (not begun, or interrupted);
    - `n_params`, and the metrics of the last evaluation, at `step`;
    - `steps_to_90`: the first evaluated step with `accuracy_first` >= 0.9. If there is none, it is
      inf for a run that is done or has diverged, and NaN for a run that failed or is unfinished;
    - `seconds` of training, NaN unless it is done; `error`.

    Raises `ConfigError`, naming the file, for a summary or metrics that cannot be read.
    """
    folder = point.config.folder(root)
    row: dict[str, Any] = {"run": name_to_open(folder)}
    for name, value in point.swept.items():
        row[name] = value
        if isinstance(value, list | tuple):
            row[name] = str(value)
    # `Run` would load torch, which a table does not need.
    done = read_summary(folder / "done.json", {}, None) or {}
    diverged = read_summary(folder / "diverged.json", {}, None)
    if done:
        row["status"], error = DONE, ""
    elif diverged:
        row["status"], error = DIVERGED, f"The loss is not finite at step {diverged['step']}."
    elif error:
        row["status"] = FAILED
    else:
        row["status"] = UNFINISHED
    row["n_params"] = done.get("n_params", math.nan)
    reached = math.inf
    if present(path := folder / "metrics.csv"):
        metrics = read_metrics(path, (), ended=bool(done))
        if len(metrics):
            row |= {
                name: metrics[name].iloc[-1]
                for name in map(str, metrics)
                if name.startswith(SUMMED_UP)
            }
            reached = first_reach(metrics["step"], metrics["accuracy_first"], GOAL)
    if math.isinf(reached) and row["status"] not in (DONE, DIVERGED):
        reached = math.nan  # it may still get there
    return row | {"steps_to_90": reached, "seconds": done.get("seconds", math.nan), "error": error}


def first_reach(steps: ArrayLike, accuracy: ArrayLike, threshold: float) -> float:
    """Return the first evaluated step with accuracy >= threshold; inf if there is none, so that no
    run is dropped.
    """
    reached = np.asarray(steps, dtype=float)[np.asarray(accuracy) >= threshold]
    return float(reached.min(initial=math.inf))


def as_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows of a sweep's runs as one table, in the order given. The columns of times and
    errors come last.
    """
    table = pd.DataFrame(list(rows))
    last = ["steps_to_90", "seconds", "error"]
    return table[[*table.columns.drop(last), *last]]


def write_results(table: pd.DataFrame, path: Path) -> None:
    """Write the table as CSV, atomically.

    Raises `ConfigError` if the existing file is not a table of a sweep, or if it cannot be written.
    """
    try:
        if path.exists():
            _require_table(path)
        write_text(path, table.to_csv(index=False))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None


def _require_table(path: Path) -> None:
    try:
        columns = set(pd.read_csv(path, nrows=0))
    except ValueError:  # not a CSV
        columns = set()
    require(
        {"run", "status"} <= columns,
        f"{path} is not the table of a sweep; nothing was changed: give another file.",
    )
