"""Check that patterns are those of a causal model: for each query, probabilities over the keys up to the query."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ihlab.model.padding import Mask
from tasks.config import require

LATER_MOST = 1e-3
"""Largest attention to later tokens that still counts as causal: in half precision a mask lets some through."""

SUM_ERROR = 0.02
"""Largest allowed distance of a query's attention sum from 1: bfloat16 rounds each probability by up to 1/256."""

EVEN = 1e-4
"""Largest relative difference between probabilities that count as equal."""


def hidden_queries(patterns: Float[Tensor, "layer batch head query key"]) -> Mask | None:
    """Return which positions are tokens, judged by padding on the left that the patterns show; None if they show none.

    A query whose keys are all masked comes out of the softmax as even attention to all keys, later ones included.
    Queries at the start of a sequence are padding if every head of every layer attends evenly there.
    """
    least, most = (patterns.aminmax(dim=-1)[i].float() for i in (0, 1))
    even = ((most - least) <= EVEN * most).all(dim=2).all(dim=0) & (patterns[0, :, 0, :, 0] > 0)
    hidden = even.cumprod(dim=1).bool()
    found = hidden[:, 0] & ~hidden.all(dim=1) if patterns.shape[-1] > 1 else torch.zeros(len(hidden), dtype=torch.bool)
    return ~(hidden & found[:, None]) if bool(found.any()) else None


def require_causal(
    patterns: Float[Tensor, "layer batch head query key"], real: Mask | None, probabilities: bool = True
) -> None:
    """Raise `ConfigError` unless each query's attention to its own and earlier keys sums to 1.

    Padding queries (False in `real`) may hold anything, but no token may attend to padding. If `probabilities` is
    False, as for differential attention, any finite numbers are accepted. A query may also attend to nothing, like the
    first query under a strict mask.
    """
    if real is not None:
        patterns = patterns.masked_fill(~real.to(patterns.device)[:, None, :, None], 0)
    _refuse(
        ~patterns.isfinite().all(dim=-1),
        "is not finite",
        "give attention_mask if that query is padding, else run the model in float32",
    )
    wide = patterns.float()
    later = wide.abs().triu(1).sum(dim=-1) >= LATER_MOST
    if later.any():
        below = wide.abs().tril(-1).sum(dim=-1).max().item() >= LATER_MOST
        require(below, "The patterns are [key, query], but must be [query, key]: transpose their last two axes.")
    if probabilities:
        negative = (wide < -SUM_ERROR).any(dim=-1)
        _refuse(negative, "holds negative numbers", "give patterns, not the scores before the softmax")
    _refuse(later, "attends to later tokens", "heads are scored in causal language models only")
    if not probabilities:
        return
    sums = wide.sum(dim=-1)
    wrong = ((sums - 1).abs() > SUM_ERROR) & (sums != 0)
    size = f"{sums[wrong][0].item():.3g}" if wrong.any() else ""
    _refuse(wrong, f"sums to {size}, not to 1", "give patterns after the softmax, of a model in evaluation mode")
    if real is not None:
        to_padding = wide.masked_fill(real.to(wide.device)[:, None, None, :], 0).sum(dim=-1)
        _refuse(to_padding > SUM_ERROR, "attends to padding", "run the model with the same attention_mask")


def _refuse(wrong: Bool[Tensor, "layer batch head query"], what: str, instead: str) -> None:
    """Raise `ConfigError` for the first query where `wrong` is true, saying what is wrong and what to do instead."""
    places = wrong.nonzero()
    layer, row, head, query = places[0].tolist() if len(places) else (0, 0, 0, 0)
    require(
        not len(places), f"The pattern of head {layer}.{head} {what} at query {query} of sequence {row}: {instead}."
    )
