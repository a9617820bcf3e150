"""`runs`: the stored runs under a folder, as a table. No torch here."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ihlab.runtime.progress import tracked
from ihlab.storage.stored import DIVERGED, DONE, UNFINISHED
from ihlab.training.config import ForkConfig
from ihlab.training.find_runs import name_to_open, run_folders
from ihlab.training.folder import RunFolder
from tasks.config import ConfigError, require

DAMAGED = "damaged"

COLUMNS = (
    "run", "status", "task", "vocab_size", "length", "attention", "n_layers", "d_model", "n_heads", "seed", "step",
    "steps", "accuracy", "slices", "guess", "seconds", "problem",
)  # fmt: skip
"""Columns of `runs`."""

DIFFERENT = 0.05
"""`slices` leaves out a group of answers whose accuracies differ by at most this."""


def runs(root: str | Path = "runs") -> pd.DataFrame:
    """Return the stored runs under a folder as a table with one row per run, sorted by name.

    - `run`: the argument of `Run.open`: the folder's name if it is in `runs`, else its path;
    - `status`: done, diverged, unfinished or damaged;
    - `task`, `vocab_size`, `length`, `attention`, `n_layers`, `d_model`, `n_heads`, `seed`: from
      its config;
    - `step`: the step of its last evaluation, out of `steps`; `accuracy`: the accuracy at that
      step;
    - `slices`: the accuracies of groups of answers, where they differ ("hops 1: 0.99, 2: 0.33");
    - `guess`: the accuracy of a guess (`ihlab.measure.guess.guess_of`), NaN if `done.json` does not have it;
    - `seconds`: the time of training, NaN unless it is done;
    - `problem`: for a damaged run, a sentence that names the file. All columns except run and
      status are then empty.

    Raises `ConfigError` if `root` cannot be read.
    """
    rows = [_row(folder) for folder in tracked(run_folders(root), "reading runs")]
    table = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    return table.astype({"accuracy": float, "guess": float, "seconds": float})


def _row(folder: Path) -> dict[str, Any]:
    try:
        return {"run": name_to_open(folder), "problem": "", **_facts(RunFolder.open(folder))}
    except ConfigError as error:
        return {"run": name_to_open(folder), "status": DAMAGED, "problem": str(error)}


def _facts(run: RunFolder) -> dict[str, Any]:
    config, model = run.config, run.config.model
    done: dict[str, Any] = run.done or {}
    status = UNFINISHED
    if done:
        status = DONE
    elif run.diverged:
        status = DIVERGED
    last = {"step": 0, "accuracy": math.nan}
    begins_with = set()
    if isinstance(config, ForkConfig):
        begins_with.add(config.first_step)
    if run.has_metrics or done or not set(run.checkpoints) <= begins_with:
        last = run.last_evaluation()
        require("accuracy" in last, f"{run.folder / 'metrics.csv'} has no column 'accuracy'.")
    return {
        "status": status,
        "task": config.task.kind, "vocab_size": config.task.vocab_size, "length": config.task.length,
        "attention": model.attention, "n_layers": model.n_layers, "d_model": model.d_model, "n_heads": model.n_heads,
        "seed": config.seed, "step": int(last["step"]), "steps": config.steps, "accuracy": last["accuracy"],
        "slices": slices(last), "guess": done.get("guess", math.nan), "seconds": done.get("seconds", math.nan),
    }  # fmt: skip


def slices(row: Mapping[str, float]) -> str:
    """Return the accuracies of a row's groups of answers as text, leaving out groups in which they
    hardly differ.
    """
    groups: dict[str, dict[int, float]] = {}
    for name, accuracy in row.items():
        column = re.fullmatch(r"accuracy_(\w+)_(\d+)", name)
        if column and not math.isnan(accuracy):
            groups.setdefault(column[1], {})[int(column[2])] = accuracy
    differing = []
    for group, accuracies in groups.items():
        if max(accuracies.values()) - min(accuracies.values()) > DIFFERENT:
            each = ", ".join(f"{value}: {accuracy:.2f}" for value, accuracy in accuracies.items())
            differing.append(f"{group} {each}")
    return "; ".join(differing)
