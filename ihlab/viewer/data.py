"""Data of a run's page: every head's pattern on one row, at every checkpoint."""

import base64
import gzip
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from ihlab.interp.patterns import raw_patterns, score_routes
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.heads import follows
from ihlab.model.config import VARIANTS, ModelConfig
from ihlab.theory import landscape
from ihlab.training.config import even_choice
from ihlab.training.run import Run
from tasks import IGNORE, InductionTask, Task
from tasks.config import require

MOST_STEPS = 20
SCORES_FIT = 2_800_000  # characters: with more, the page would pass 3 MB, and the key routes are left out
FIELD_POINTS = 61
PATH = ("alpha1", "beta1")
METRICS = {"loss": "eval_loss", "accuracy": "accuracy", "first": "accuracy_first"}


def view_data(
    run: Run, row: Sequence[int] | None = None, tokens: Sequence[str] | None = None, checkpoints: int = MOST_STEPS
) -> dict[str, Any]:
    """Return the data of a run's page as JSON types; n positions, s steps, l layers, h heads, g key/value heads:

    - `run`, `model`: name and description; `n_layers`, `n_heads`, `group`: l, h and h / g;
    - `tokens` [n]: the text at each position; `stripe`: the pairs of `induction_stripe`;
    - `steps` [s] and `metrics`, each [s]: loss, accuracy, accuracy at first repeats; null where not measured;
    - `panels`: `pattern`, and for shifted models `key1` .. `keyW` (`score_routes`), each as `quantised`, [s, l, h];
    - `alpha`, `beta` [s, l, g, window], null for a vanilla model, weights of each channel and where tokens are mixed
      elsewhere too: the page multiplies them in itself;
    - `path`: alpha1 and beta1 [l, g, evaluation] over the whole training, null for a model without both;
    - `field`: the square around these paths, likewise, and for an induction task Theorem 3.4's loss on it.

    `row` holds the ids to read, by default those of the task's first held-out row, without padding; `tokens` their
    text, by default the task's words, if it has any, else the ids. Of more than `checkpoints` checkpoints an even
    choice is shown, with the first and the last.
    Raises `ConfigError` for a run without checkpoints or metrics or with damaged ones, a row that is empty, too long
    or outside the vocabulary, `tokens` of another length than the row, and fewer than two `checkpoints`.
    """
    require(bool(run.checkpoints), f"{run.folder} has no checkpoints: there is nothing to view.")
    run.require_checkpoint()  # a finished run's page ends where the run did
    require(checkpoints >= 2, f"checkpoints is {checkpoints}, but must be at least 2: the first and the last.")
    if row is None:
        run.require_task()
    ids = np.array(_held_out_row(run.config.task) if row is None else row, dtype=np.int64)
    cfg = run.config.model
    require(
        0 < len(ids) <= cfg.n_ctx, f"The row has {len(ids)} positions, but must have 1 to n_ctx={cfg.n_ctx} of them."
    )
    names = _words(run.config.task, ids) if tokens is None else list(tokens)
    require(len(names) == len(ids), f"tokens has {len(names)} names, but the row has {len(ids)} positions.")

    steps = even_choice(run.checkpoints, checkpoints)
    opened = [_open(run, step, ids) for step in steps]
    metrics = _require_columns(run)
    path = _path(metrics, cfg) if cfg.learns_both else None
    mixed = _says_all(cfg)
    return {
        "run": run.folder.name,
        "model": _described(run),
        "tokens": names,
        "steps": steps,
        "metrics": _metrics(metrics, steps),
        "n_layers": cfg.n_layers,
        "n_heads": cfg.n_heads,
        "group": cfg.n_heads // cfg.kv_heads,
        "stripe": induction_stripe(ids, strict=cfg.mask == "strict"),
        "panels": _panels(opened),
        "alpha": [at["alpha"] for at in opened] if mixed else None,
        "beta": [at["beta"] for at in opened] if mixed else None,
        "path": path,
        "field": _field(path, run.config.task) if path else None,
    }


def _held_out_row(task: Task) -> Int[np.ndarray, " pos"]:
    """Return the task's first held-out row, without the padding behind its last target: one id over and over."""
    batch = draw(task, EVAL_SEED, "eval", 0, 1)
    row, last = batch.inputs[0], int(np.flatnonzero(batch.targets[0] != IGNORE)[-1])
    size = max(last + 1, int(np.flatnonzero(row != row[-1])[-1]) + 1) if (row != row[-1]).any() else len(row)
    return row if len(row) - size < 2 else row[:size]


def _words(task: Task, ids: Int[np.ndarray, " pos"]) -> list[str]:
    """Return the text of each id, by the task if it has words, and of an id that is not the task's the id."""
    known = (ids >= 0) & (ids < task.vocab_size)
    words = getattr(task, "words", None)
    if words is None:
        return [str(i) for i in ids.tolist()]
    return [words(ids[at : at + 1])[0] if known[at] else str(ids[at]) for at in range(len(ids))]


def induction_stripe(ids: Int[np.ndarray, " pos"], strict: bool = False) -> list[list[int]]:
    """Return the pairs [query, key] of a perfect induction head: the key follows a copy of the query's token.

    { (q, j + 1) : j < q, x_j = x_q },  without (q, q) where the mask is strict and a token does not see itself.
    """
    seen = follows(torch.from_numpy(ids)[None])[0]
    return (seen.tril(-1) if strict else seen).nonzero().tolist()


def quantised(panels: Float[np.ndarray, "*panel query key"]) -> dict[str, str]:
    """Quantise lower triangles to one byte per entry, each row of a panel on its own scale.

        x[q, k] = low[q] + (high[q] - low[q]) level[q, k] / 255,  k <= q, rows one after another.

    A value read back is off by at most (high[q] - low[q]) / 510, and float32's rounding; the least and the
    greatest value of a row are exact. `levels` (uint8 [*panel, n (n + 1) / 2]), `low` and `high` (float32
    [*panel, n]) are little-endian, gzipped, in base64.
    """
    n = panels.shape[-1]
    query, key = np.tril_indices(n)
    entries = panels[..., query, key].astype(np.float32)
    starts = np.arange(n) * np.arange(1, n + 1) // 2
    low = np.minimum.reduceat(entries, starts, axis=-1)
    high = np.maximum.reduceat(entries, starts, axis=-1)
    span = np.where(high > low, high - low, 1)[..., query]
    levels = np.rint((entries - low[..., query]) / span * 255).astype(np.uint8)
    return {"levels": _packed(levels), "low": _packed(low.astype("<f4")), "high": _packed(high.astype("<f4"))}


@torch.no_grad()
def _open(run: Run, step: int, ids: Int[np.ndarray, " pos"]) -> dict[str, Any]:
    """Return one checkpoint's patterns and key routes, [layer, head, query, key] each, and its alpha and beta."""
    model = run.model(step)
    _, cache = model.run_with_cache(torch.from_numpy(ids)[None])
    opened: dict[str, Any] = {"pattern": raw_patterns(cache)[:, 0].numpy()}
    if not _says_all(model.cfg):
        return opened
    last_key = -1 if model.cfg.mask == "strict" else 0
    routes = torch.stack([score_routes(cache, layer)[:, 0] for layer in range(model.cfg.n_layers)], dim=1)
    for back, scores in enumerate(routes.tril(last_key).numpy()):
        opened[f"key{back + 1}"] = scores
    attns = [block.attn for block in model.layers]
    return opened | {name: [getattr(attn, name).tolist() for attn in attns] for name in ("alpha", "beta")}


def _says_all(cfg: ModelConfig) -> bool:
    """Return True if a model shifts, and one alpha and beta a head say all of what its keys and values hold."""
    return bool(cfg.learned_shifts) and cfg.shift_share != "channel" and cfg.values_mixed_elsewhere is None


def _panels(opened: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return every kind of panel, quantised; without the key routes if they would make the page too large."""
    kinds = [kind for kind in opened[0] if kind == "pattern" or kind.startswith("key")]
    panels = {kind: quantised(np.stack([at[kind] for at in opened])) for kind in kinds}
    characters = sum(len(text) for panel in panels.values() for text in panel.values())
    return panels if characters <= SCORES_FIT else {"pattern": panels["pattern"]}


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(gzip.compress(array.tobytes(), mtime=0)).decode()  # without the time: same run, same page


def _metrics(metrics: pd.DataFrame, steps: list[int]) -> dict[str, list[float | None]]:
    at = metrics.set_index("step").reindex(steps)
    return {name: [None if math.isnan(x) else x for x in at[column]] for name, column in METRICS.items()}


def _require_columns(run: Run) -> pd.DataFrame:
    """Return the metrics. Raises `ConfigError` if they lack one of those shown, or have gaps in alpha and beta."""
    metrics, cfg = run.metrics, run.config.model
    heads = [f"{layer}.{g}" for layer in range(cfg.n_layers) for g in range(cfg.kv_heads)] if cfg.learns_both else []
    whole = [f"{name}_{head}" for head in heads for name in PATH]
    for name in (*METRICS.values(), *whole):
        require(name in metrics, f"{run.folder / 'metrics.csv'} has no column '{name}'.")
    for name in whole:
        require(
            bool(metrics[name].notna().all()), f"{run.folder / 'metrics.csv'} lacks a number in the column '{name}'."
        )
    return metrics


def _path(metrics: pd.DataFrame, cfg: ModelConfig) -> dict[str, list[list[list[float]]]]:
    return {
        name: [[metrics[f"{name}_{layer}.{g}"].tolist() for g in range(cfg.kv_heads)] for layer in range(cfg.n_layers)]
        for name in PATH
    }


def _field(path: dict[str, list[list[list[float]]]], task: Task) -> dict[str, Any]:
    """Return the square around the paths, with the exact loss for T = length - 1 (at least 5, as the theorem needs).

    The theorem is about induction: of another task's run the square alone is drawn.
    """
    ends = [0.0, 1.0, *np.ravel(path["alpha1"]), *np.ravel(path["beta1"])]
    margin = 0.05 * (max(ends) - min(ends))
    low, high = float(min(ends)) - margin, float(max(ends)) + margin
    square: dict[str, Any] = {"n_tokens": None, "low": low, "high": high, "loss": None}
    if task.kind != InductionTask.kind:
        return square
    n_tokens = max(task.length - 1, 5)
    loss = landscape.field(form="exact", n_tokens=n_tokens, points=FIELD_POINTS, low=low, high=high).loss
    return {**square, "n_tokens": n_tokens, "loss": loss.round(4).tolist()}


def _described(run: Run) -> str:
    cfg, task = run.config.model, run.config.task
    size = f"{cfg.n_layers} x {cfg.n_heads} heads, width {cfg.d_model}"
    return f"{VARIANTS[cfg.attention].name}, {size}; {task.kind} task, vocabulary {task.vocab_size}"
