"""The stored runs as a table: `ihlab.runs()`."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from ihlab.stored import DIVERGED, DONE, UNFINISHED
from ihlab.training.config import ForkConfig
from ihlab.training.run import Run
from ihlab.training.search import run_folders
from tasks.config import ConfigError, require

DAMAGED = "damaged"

COLUMNS = (
    "run", "status", "task", "vocab_size", "length", "attention", "n_layers", "d_model", "n_heads", "seed", "step",
    "steps", "accuracy", "seconds", "problem",
)  # fmt: skip


def runs(root: str | Path = "runs") -> pd.DataFrame:
    """Return the stored runs under a folder as a table, a row each, by name.

    - `run`: the folder's name; `status`: done, diverged, unfinished or damaged;
    - `task`, `vocab_size`, `length`, `attention`, `n_layers`, `d_model`, `n_heads`, `seed`: of its config;
    - `step`: of its last evaluation, of `steps`; `accuracy`: then; `seconds` of training, NaN unless it is done;
    - `problem`: of a damaged run, the sentence that names the file; all but its name and status is then None.

    Raises `ConfigError` if `root` cannot be read.
    """
    table = pd.DataFrame([_row(folder) for folder in run_folders(root)], columns=list(COLUMNS), dtype=object)
    return table.astype({"accuracy": float, "seconds": float})


def _row(folder: Path) -> dict[str, Any]:
    try:
        return {"run": folder.name, "problem": "", **_facts(Run.open(folder))}
    except ConfigError as error:
        return {"run": folder.name, "status": DAMAGED, "problem": str(error)}


def _facts(run: Run) -> dict[str, Any]:
    config, model, done = run.config, run.config.model, run.done
    step, accuracy = 0, math.nan
    if run.has_metrics or not _just_begun(run):
        last = run.metrics.iloc[-1]
        require("accuracy" in last, f"{run.folder / 'metrics.csv'} has no column 'accuracy'.")
        step, accuracy = int(last["step"]), float(last["accuracy"])
    return {
        "status": DONE if done else DIVERGED if run.diverged else UNFINISHED,
        "task": config.task.kind, "vocab_size": config.task.vocab_size, "length": config.task.length,
        "attention": model.attention, "n_layers": model.n_layers, "d_model": model.d_model, "n_heads": model.n_heads,
        "seed": config.seed, "step": step, "steps": config.steps, "accuracy": accuracy,
        "seconds": done["seconds"] if done else math.nan,
    }  # fmt: skip


def _just_begun(run: Run) -> bool:
    """Return whether nothing was evaluated yet. A fork has its first checkpoint before its first evaluation."""
    return not run.done and set(run.checkpoints) <= (
        {run.config.first_step} if isinstance(run.config, ForkConfig) else set()
    )
