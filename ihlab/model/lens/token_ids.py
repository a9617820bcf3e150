"""Conversion of token ids to tensors, from tensors, arrays or lists, for one sequence or several."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tasks.config import ConfigError, require


def token_rows(tokens: Any, device: torch.device | None = None) -> Int[Tensor, "batch pos"]:
    """Return ids as sequences [batch, pos]; one sequence [pos] is a batch of one.

    Raises `ConfigError` for sequences of different lengths, for anything but whole numbers, and for
    other shapes.
    """
    ids = token_ids(tokens, device)
    require(
        ids.ndim in (1, 2),
        f"The tokens have the shape {list(ids.shape)}, but must be [batch, pos], or [pos] for one sequence.",
    )
    return torch.atleast_2d(ids)


def token_ids(tokens: Any, device: torch.device | None = None) -> Int[Tensor, "..."]:
    """Return ids as a tensor of any shape. Raises `ConfigError` for unequal lengths, and for
    anything but ids.
    """
    ids = tokens
    if not isinstance(tokens, Tensor):
        try:
            ids = torch.as_tensor(np.asarray(tokens), device=device)
        except (TypeError, ValueError):
            said = "The tokens must be ids [batch, pos]: sequences of one length, of whole numbers."
            raise ConfigError(said) from None
    whole = not ids.is_floating_point() and not ids.is_complex() and ids.dtype != torch.bool
    require(whole, f"The tokens are {ids.dtype}, but must be whole numbers.")
    if ids.dtype != torch.int32:  # an embedding reads only these two types
        ids = ids.long()
    return ids
