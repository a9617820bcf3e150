"""Training data of a run's page: metrics at the checkpoints, the path of alpha1 and beta1, the
field around it.
"""

from typing import Any

import numpy as np
import pandas as pd

from ihlab.model.config import ModelConfig
from ihlab.model.registry import VARIANTS
from ihlab.theory import landscape
from ihlab.training.run import Run
from ihlab.viewer.packing import number_or_none
from tasks import InductionTask, Task
from tasks.config import require

FIELD_POINTS = 61
PATH = ("alpha1", "beta1")
METRICS = {"loss": "eval_loss", "accuracy": "accuracy", "first": "accuracy_first"}


def training_data(run: Run, steps: list[int]) -> dict[str, Any]:
    """Return `metrics`, `path` and `field` of `view_data`.

    Raises `ConfigError` for a run without metrics or with damaged ones.
    """
    metrics, cfg = _require_columns(run), run.config.model
    path = field = None
    if cfg.learns_both:
        path = _path(metrics, cfg)
        field = _field(path, run.config.task)
    return {"metrics": metrics_at(run, steps), "path": path, "field": field}


def metrics_at(run: Run, steps: list[int]) -> dict[str, list[float | None]]:
    """Return `metrics` of `view_data`: the metrics at some steps, None where not measured."""
    shown = run.metrics.set_index("step").reindex(steps)[list(METRICS.values())]
    return dict(zip(METRICS, number_or_none(shown.to_numpy(dtype=float).T), strict=True))


def described(cfg: ModelConfig, task: Task | None) -> str:
    """Describe a model, and the task it was trained on, in one line."""
    size = f"{cfg.n_layers} x {cfg.n_heads} heads, width {cfg.d_model}"
    said = [f"{VARIANTS[cfg.attention].title}, {size}"]
    if task is None:
        return f"{said[0]}; vocabulary {cfg.d_vocab}"
    said.append(f"{task.kind} task, vocabulary {task.vocab_size}")
    untrained = cfg.untrained_positions(task.length)
    if untrained:
        said.append(f"learned positions from {untrained[0]} on are untrained")
    return "; ".join(said)


def _require_columns(run: Run) -> pd.DataFrame:
    """Return the metrics. Raises `ConfigError` if a shown column is missing, or alpha and beta have
    gaps.
    """
    metrics, file, cfg = run.metrics, run.folder / "metrics.csv", run.config.model
    whole: list[str] = []
    if cfg.learns_both:
        whole = _columns("alpha1", cfg) + _columns("beta1", cfg)
    for name in (*METRICS.values(), *whole):
        require(name in metrics, f"{file} has no column '{name}'.")
    for name in whole:
        require(bool(metrics[name].notna().all()), f"{file} lacks a number in the column '{name}'.")
    return metrics


def _columns(name: str, cfg: ModelConfig) -> list[str]:
    """Return the columns of "alpha1" or "beta1", layer by layer."""
    return [f"{name}_{layer}.{group}" for layer, group in np.ndindex(cfg.n_layers, cfg.kv_heads)]


def _path(metrics: pd.DataFrame, cfg: ModelConfig) -> dict[str, list[list[list[float]]]]:
    shape = cfg.n_layers, cfg.kv_heads, len(metrics)
    return {
        name: metrics[_columns(name, cfg)].to_numpy().T.reshape(shape).tolist() for name in PATH
    }


def _field(path: dict[str, list[list[list[float]]]], task: Task) -> dict[str, Any]:
    """Return the square around the paths, with the exact loss for T = length - 1 (at least 5, as
    the theorem needs).

    The theorem is about induction. For other tasks only the square is drawn.
    """
    ends = [0.0, 1.0, *np.ravel(path["alpha1"]), *np.ravel(path["beta1"])]
    margin = 0.05 * (max(ends) - min(ends))
    low, high = float(min(ends)) - margin, float(max(ends)) + margin
    square: dict[str, Any] = {"n_tokens": None, "low": low, "high": high, "loss": None}
    if task.kind != InductionTask.kind:
        return square
    n_tokens = max(task.length - 1, 5)
    loss = landscape.field(
        form="exact", n_tokens=n_tokens, points=FIELD_POINTS, low=low, high=high
    ).loss
    return {**square, "n_tokens": n_tokens, "loss": loss.round(4).tolist()}
