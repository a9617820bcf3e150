"""Padding: which positions of a batch hold tokens, and an order that puts these first.

A causal model does not see later tokens. So with padding at the end, a sequence gives the same
results as without padding, whatever the position encoding.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.config import ConfigError, require

Mask = Bool[Tensor, "batch pos"]
"""True where a position holds a token, False where it is padding."""


def mask_of(
    tokens: Int[Tensor, "batch pos"], attention_mask: Any = None, padding: int | None = None
) -> Mask | None:
    """Return which positions hold tokens, from `attention_mask` or else from the id `padding`; None
    if all do.

    Raises `ConfigError` for a mask of another shape or with values other than 0 and 1, and for a
    sequence without a token.
    """
    if attention_mask is not None:
        real = _as_bool(attention_mask, tokens)
    elif padding is not None:
        real = tokens != padding
    else:
        return None
    if bool(real.all()):
        return None
    empty = torch.nonzero(~real.any(dim=1)).flatten().tolist()
    if empty:
        raise ConfigError(
            f"Sequence {empty[0]} of the attention_mask is only padding: leave the sequence out."
        )
    return real


def _as_bool(attention_mask: Any, tokens: Tensor) -> Mask:
    try:
        if isinstance(attention_mask, list):
            attention_mask = np.asarray(attention_mask)
        mask = torch.as_tensor(attention_mask)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            "attention_mask must be 0 and 1 [batch, pos], with sequences of one length."
        ) from None
    if mask.ndim == 1 and len(tokens) == 1:
        mask = mask[None]
    require(
        mask.shape == tokens.shape,
        f"attention_mask has the shape {list(mask.shape)}, but the tokens are {list(tokens.shape)}.",
    )
    require(
        bool(((mask == 0) | (mask == 1)).all()),
        "attention_mask holds other numbers than 0 (padding) and 1 (a token).",
    )
    return mask.to(tokens.device) == 1


def real_first(real: Mask) -> Int[Tensor, "batch pos"]:
    """Return an order of each sequence's positions that puts real tokens first and padding last."""
    return torch.argsort(~real, dim=1, stable=True)


def padded_right(real: Mask) -> bool:
    """Return True if the padding of every sequence comes last."""
    return not bool((real[:, 1:] & ~real[:, :-1]).any())


def in_order(x: Tensor, order: Int[Tensor, "batch pos"], axis: int, batch_axis: int = 0) -> Tensor:
    """Return x with the positions along `axis` reordered: each sequence has its own `order`."""
    shape = [1] * x.ndim
    shape[batch_axis], shape[axis] = order.shape
    return x.take_along_dim(order.to(x.device).reshape(shape), axis)
