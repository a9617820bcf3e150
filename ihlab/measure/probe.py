"""Sequences of random tokens that repeat, on which induction heads show."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.heads import prefix_matches
from tasks import IGNORE, Batch, Task
from tasks.config import require

PREFIX_REPEATS, STRIPE_REPEATS = 4, 2
LEAST_PERIOD = 3
"""When 2 tokens alternate, the token after the earlier occurrence is also the token before."""
TASK_ROWS = 16


class Probe(NamedTuple):
    """Repeated random tokens, and the attention that counts as prefix matching in them."""

    tokens: Int[Tensor, "rows pos"]
    matches: Bool[Tensor, "rows query key"]


def task_ids(task: Task) -> list[int]:
    """Return the token ids of a task's sequences. A model has learned no others, so it is probed with these."""
    return np.unique(draw(task, EVAL_SEED, "probe", 0, 256).inputs).tolist()


def task_probe(task: Task, device: torch.device | None = None) -> Probe | None:
    """Return a task's ids, repeated to fill its length: the probe of a run's evaluations. None if that is too short."""
    ids = task_ids(task)
    period = min(task.length // PREFIX_REPEATS, len(ids))
    if period < LEAST_PERIOD:
        return None
    tokens = repeated_rows(ids, TASK_ROWS, period, PREFIX_REPEATS, EVAL_SEED).to(device)
    return Probe(tokens, prefix_matches(tokens))


def repeated_rows(ids: Sequence[int], rows: int, period: int, repeats: int, seed: int = 0) -> Int[Tensor, "rows pos"]:
    """Return sequences of `period` distinct random ids (or all, if there are fewer), each repeated `repeats` times.

    Raises `ConfigError` if a sequence would hold fewer than 3 distinct ids.
    """
    period = min(period, len(ids))
    require(
        period >= LEAST_PERIOD,
        f"{period} distinct tokens would be repeated {repeats} times, but at least {LEAST_PERIOD} are needed: "
        "give more ids, or a longer length.",
    )
    require(rows >= 1, f"rows is {rows}, but must be at least 1.")
    rng = np.random.default_rng(seed)
    tokens = [np.tile(rng.permutation(np.asarray(ids))[:period], repeats) for _ in range(rows)]
    return torch.from_numpy(np.stack(tokens))


def repeated_batch(rows: Int[Tensor, "rows pos"], repeats: int) -> Batch:
    """Return sequences of `repeated_rows` as a task: predict each next token from the second repeat on."""
    inputs = rows.cpu().numpy()
    targets = np.full_like(inputs, IGNORE)
    period = inputs.shape[1] // repeats
    targets[:, period - 1 : -1] = inputs[:, period:]
    return Batch(inputs, targets)


def rolled(rows: Int[Tensor, "rows pos"], last: int, seed: int = 0) -> Int[Tensor, "rows pos"]:
    """Return sequences whose last `last` tokens are rolled, each by its own number of positions; no token stays."""
    by = np.random.default_rng(seed).integers(1, last, size=(len(rows), 1))
    order = torch.from_numpy((np.arange(last) + by) % last).to(rows.device)
    return torch.cat([rows[:, :-last], rows[:, -last:].gather(1, order)], dim=1)
