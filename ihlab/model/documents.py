"""Packed documents: several documents in one sequence, none of which sees another.

In `model(tokens, document_starts=starts)`, a token attends to its own document, and shifts,
convolutions, smear and the other local mixers see nothing before the document's first token. So a
document has the same logits packed as alone. Relative position encodings need no reset.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from ihlab.model.kv_cache import Past
from tasks.config import require


@dataclass(frozen=True)
class Documents(Past):
    """The number of each token's document in its sequence."""

    number: Int[Tensor, "batch pos"]


_packed: dict[tuple[int, int], Documents] = {}
"""The documents of `packed`, keyed by the ids of module and thread: Dynamo cannot read a
ContextVar.
"""


@contextmanager
def packed(model: Any, starts: Any) -> Iterator[None]:
    """Let this thread's forward passes of this model read packed documents, as if each got
    `document_starts=starts`.

    With starts=None they read whole sequences, as other models and other threads do. Raises
    `ConfigError` for a model whose documents cannot be separated.
    """
    documents = None
    if starts is not None:
        documents = _numbered(starts)
        model.require_separable()
    keys = [
        (id(module), get_ident()) for module in model.modules()
    ]  # the model may be wrapped, as by torch.compile
    outer = {key: _packed.pop(key) for key in keys if key in _packed}
    if documents is not None:
        _packed.update(dict.fromkeys(keys, documents))
    try:
        yield
    finally:
        for key in keys:
            _packed.pop(key, None)
        _packed.update(outer)


def documents_of(model: Any, x: Shaped[Tensor, "batch pos *wide"], starts: Any) -> Documents | None:
    """Return the documents that a model's forward pass on tokens or vectors x reads, given
    `document_starts`.

    Returns None if nothing is packed. Raises `ConfigError` for starts of another shape or type than
    x needs, and for a model whose documents cannot be separated.
    """
    if starts is None and not _packed:
        return None
    documents = packed_now(model)
    if starts is not None:
        documents = _numbered(starts)
    if documents is None:
        return None
    model.require_separable()
    shape, wanted = list(documents.number.shape), list(x.shape[:2])
    require(
        shape == wanted,
        f"document_starts is {shape}, but must be {wanted}: one mark for each token.",
    )
    return Documents(documents.number.to(x.device))


def packed_now(model: Any) -> Documents | None:
    """Return the documents of the innermost `packed` of this model in this thread."""
    return _packed.get((id(model), get_ident()))


def _numbered(starts: Any) -> Documents:
    is_mask = isinstance(starts, Tensor) and starts.dtype == torch.bool and starts.ndim == 2
    require(
        is_mask,
        "document_starts must be a tensor of bool, [batch, pos]: True at the first token of a document.",
    )
    return Documents(starts.cumsum(dim=1))


def other_documents(
    cache: Past | None, queries: slice | Int[Tensor, "batch query"]
) -> Bool[Tensor, "batch query key"] | None:
    """Return a mask of the keys in another document than each query; None if nothing is packed."""
    if not isinstance(cache, Documents):
        return None
    number = cache.number
    of_queries = number[:, queries] if isinstance(queries, slice) else number.gather(1, queries)
    return of_queries[:, :, None] != number[:, None]
