"""Packed documents: sequences that hold several documents, and what the tokens of one see of those before it.

Inside `packed(model, starts)`, a token attends to its own document, and shifts, convolutions, smear and the other local
mixers see nothing before its first token. So a packed document has the logits that it has alone.
`ModelConfig.document_leak` lets attention or local mixers see the documents before. Relative positions need no reset.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from ihlab.model.registry import VARIANTS
from tasks.config import require


@dataclass(frozen=True)
class Documents:
    """The number of each token's document in its sequence, and what may leak (`ModelConfig.document_leak`)."""

    number: Int[Tensor, "batch pos"]
    leak: str


_current: list[Documents] = []
"""The documents that the running forward pass reads; empty if sequences are whole. Dynamo cannot read a ContextVar."""


@contextmanager
def packed(model: Any, starts: Bool[Tensor, "batch pos"] | None, leak: str | None = None) -> Iterator[None]:
    """Let forward passes of a model read packed documents, given each document's first token; None: whole sequences.

    `leak` replaces the model's `document_leak`: "none" gives each document the logits that it has alone. Raises
    `ConfigError` for a model whose documents cannot be separated, and if a KV cache is made meanwhile.
    """
    if starts is None:
        yield
        return
    cfg = model.cfg
    require(
        cfg.positional != "learned",
        "ModelConfig.positional is 'learned', but positions of packed documents would not start again with each: it "
        "must be 'rope', 'alibi' or 'none'.",
    )
    variant = VARIANTS[cfg.attention]
    alone = not (variant.recurrent or variant.registered) and all(block.attn.queries_alone for block in model.layers)
    require(
        alone,
        f"ModelConfig.attention is {cfg.attention!r}, which cannot keep packed documents apart: recurrences, attention "
        "whose queries depend on each other, and registered attention cannot.",
    )
    _current.append(Documents(starts.cumsum(dim=1), leak or cfg.document_leak))
    try:
        yield
    finally:
        _current.pop()


def require_unpacked() -> None:
    """Raise `ConfigError` inside `packed`."""
    require(not _current, "A KV cache continues whole sequences: it cannot be made while packed documents are read.")


def separate(part: str) -> Documents | None:
    """Return the documents between which "attention" or "shift" must not leak; None: there is none."""
    return None if not _current or _current[-1].leak in (part, "both") else _current[-1]


def shifted(x: Shaped[Tensor, "batch pos *wide"], back: int = 1) -> Shaped[Tensor, "batch pos *wide"]:
    """Return the vectors, or ids, `back` tokens before each. They are 0 before a sequence or document begins."""
    moved = F.pad(x, (*[0, 0] * (x.ndim - 2), back, -back))
    documents = separate("shift")
    if documents is None:
        return moved
    same = documents.number == F.pad(documents.number, (back, -back), value=-1)
    return moved * same.reshape(*same.shape, *[1] * (x.ndim - 2)).to(x.dtype)


def previous(
    x: Shaped[Tensor, "batch pos *wide"], before: Shaped[Tensor, "batch 1 *wide"] | None = None
) -> Shaped[Tensor, "batch pos *wide"]:
    """Return `shifted(x)`, with the vector `before` as the first one if x continues sequences of a cache."""
    return shifted(x) if before is None else torch.cat([before, x[:, :-1]], dim=1)


def with_first(
    own: Shaped[Tensor, "batch pos *wide"], mixed: Shaped[Tensor, "batch pos *wide"]
) -> Shaped[Tensor, "batch pos *wide"]:
    """Return the mixed vectors, but the own ones at the first token of each sequence and document."""
    documents = separate("shift")
    if documents is None:
        return torch.cat([own[:, :1], mixed[:, 1:]], dim=1)
    first = F.pad(documents.number.diff(dim=1) > 0, (1, 0), value=True)
    return torch.where(first.reshape(*first.shape, *[1] * (own.ndim - 2)), own, mixed)


def elsewhere(queries: slice | Int[Tensor, "batch query"]) -> Bool[Tensor, "batch query key"] | None:
    """Return which keys are in another document than the queries at these positions; None: none may be hidden."""
    documents = separate("attention")
    if documents is None:
        return None
    number = documents.number
    own = number[:, queries] if isinstance(queries, slice) else number.gather(1, queries)
    return own[:, :, None] != number[:, None]
