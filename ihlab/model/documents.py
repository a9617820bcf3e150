"""Packed documents: several documents in one sequence, none of which sees another.

In `model(tokens, document_starts=starts)`, a token attends to its own document, and shifts,
convolutions, smear and the other local mixers see nothing before the document's first token. So a
document has the same logits packed as alone. Relative position encodings need no reset.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from ihlab.model.kv_cache import Past
from tasks.config import require


@dataclass(frozen=True)
class Documents(Past):
    """Which document of its sequence each token is in, as a number."""

    number: Int[Tensor, "batch pos"]


def documents_of(model: Any, x: Shaped[Tensor, "batch pos *wide"], starts: Any) -> Documents | None:
    """Return the documents that a model's forward pass on tokens or vectors x reads, given
    `document_starts`.

    Returns None if nothing is packed. Raises `ConfigError` for starts of another shape or type than
    x needs, and for a model whose documents cannot be separated.
    """
    if starts is None:
        return None
    model.require_separable()
    require(
        isinstance(starts, Tensor) and starts.dtype == torch.bool and starts.shape == x.shape[:2],
        f"document_starts must be a tensor of bool, {list(x.shape[:2])}: True at the first token of "
        "each document.",
    )
    return Documents(starts.cumsum(dim=1).to(x.device))


def other_documents(
    cache: Past | None, queries: slice | Int[Tensor, "batch query"]
) -> Bool[Tensor, "batch query key"] | None:
    """Return a mask of the keys in another document than each query; None if nothing is packed."""
    if not isinstance(cache, Documents):
        return None
    number = cache.number
    of_queries = number[:, queries] if isinstance(queries, slice) else number.gather(1, queries)
    return of_queries[:, :, None] != number[:, None]
