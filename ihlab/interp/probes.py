"""Rows of random tokens that repeat, on which induction heads show."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ihlab.model.transformer import Transformer
from tasks.config import require

PREFIX_REPEATS, STRIPE_REPEATS = 4, 2
LEAST_PERIOD = 3
"""With 2 tokens in turn, the token after the earlier occurrence is also the token before."""


def probe_rows(
    model: Transformer, repeats: int, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
) -> Int[Tensor, "rows pos"]:
    """Repeated random tokens for a model, where it is; see `head_scores`."""
    n_ctx = model.cfg.n_ctx
    length = n_ctx if length is None else length
    require(length <= n_ctx, f"length is {length}, but the model's n_ctx is {n_ctx}: too long.")
    ids = range(model.cfg.d_vocab) if ids is None else ids
    return repeated_rows(ids, rows, length // repeats, repeats, seed).to(model.embed.weight.device)


def repeated_rows(ids: Sequence[int], rows: int, period: int, repeats: int, seed: int = 0) -> Int[Tensor, "rows pos"]:
    """Rows of `period` distinct random ids (all of them, if there are fewer), standing there `repeats` times in all.

    Raises `ConfigError` if a row would hold fewer than 3 distinct ids.
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


def turned(rows: Int[Tensor, "rows pos"], last: int, seed: int = 0) -> Int[Tensor, "rows pos"]:
    """Rows whose last tokens are turned around, each row by its own number of places: none stays where it was."""
    by = np.random.default_rng(seed).integers(1, last, size=(len(rows), 1))
    order = torch.from_numpy((np.arange(last) + by) % last).to(rows.device)
    return torch.cat([rows[:, :-last], rows[:, -last:].gather(1, order)], dim=1)
