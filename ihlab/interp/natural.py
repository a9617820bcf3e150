"""Induction scores on your own sequences, such as natural text, and the in-context-learning score."""

from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from ihlab.interp.heads import per_head
from ihlab.interp.sources import opened_model
from ihlab.measure.heads import follows, mean_attention
from ihlab.measure.padding import moved_patterns
from ihlab.model.lens.padding import in_order, mask_of, padded_right, real_first
from ihlab.model.lens.token_ids import token_rows
from ihlab.settings import own_settings
from tasks.config import require

EARLY, LATE = 50, 500
"""The positions whose losses the in-context-learning score of Olsson et al. compares."""


def induction_places(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Mark, for each query, the token after the last earlier copy of its token, if it equals the query's next token.

    At these places an induction head predicts correctly. The copy is at least 2 positions before the query, because
    attention to the query itself is not induction. Mask out padding first: it is treated like any token.
    """
    after = follows(tokens).tril(-1)
    last = after & (after.flip(-1).cumsum(dim=-1).flip(-1) == 1)
    right = torch.zeros_like(after)
    right[:, :-1] = tokens[:, 1:, None] == tokens[:, None, :]
    return last & right


@own_settings()
def natural_scores(model: Any, tokens: Any, attention_mask: Any = None) -> pd.DataFrame:
    """Score every head on sequences of your own: columns layer, head, natural_induction and queries.

    natural_induction is the mean attention to `induction_places`; queries is the number of queries that have one.
    On text, the score shows what a head does on language. Effective patterns are used where they are exact, raw ones
    otherwise. Raises `ConfigError` if no repeated token is followed by the same token as before, and as
    `ihlab.interp.sources.attention_patterns` does.
    """
    opened = opened_model(model)
    ids = opened.on_device(token_rows(tokens))
    real = opened.mask(ids, attention_mask)
    patterns = opened.read(ids, (opened.exact_kind,), attention_mask).patterns[opened.exact_kind]
    patterns, moved, real = moved_patterns(patterns, ids.to(patterns.device), real)
    places = induction_places(moved)
    if real is not None:
        places &= (real[:, :, None] & real[:, None, :]).to(places.device)
        places[:, :-1] &= real[:, 1:, None].to(places.device)  # the next position holds a token, too
    queries = int(places.any(dim=-1).sum())
    require(queries > 0, "In these sequences no repeated token has the same follower as before: give longer sequences.")
    return per_head({"natural_induction": mean_attention(patterns, places)}).assign(queries=queries)


@own_settings()
def in_context_learning_score(
    model: Any, tokens: Any, early: int = EARLY, late: int = LATE, attention_mask: Any = None
) -> float:
    """Return the loss at token `late` minus the loss at token `early`, in nats (Olsson et al., arXiv 2209.11895).

    It is a mean over sequences [batch, pos] of ordinary text. Tokens are counted from 0, without padding. A model that
    uses its context scores below 0. Sequences that end before token `late` are left out. Raises `ConfigError` if all
    are left out.
    """
    require(1 <= early < late, f"early is {early} and late is {late}, but early must be at least 1 and below late.")
    opened = opened_model(model)
    ids = opened.on_device(token_rows(tokens))
    real = mask_of(ids, attention_mask, opened.tokens.padding)
    if real is not None and not padded_right(real):
        order = real_first(real)
        ids, real = in_order(ids, order, 1), in_order(real, order, 1)
    size = torch.full((len(ids),), ids.shape[1]) if real is None else real.sum(dim=1).cpu()
    long_enough = size > late
    require(
        bool(long_enough.any()),
        f"The longest sequence has {int(size.max())} tokens, but the loss at token {late} needs {late + 1}: give "
        "longer sequences, or a smaller late= (and early=).",
    )
    ids = ids[long_enough.to(ids.device), : late + 1]
    places = torch.tensor([early - 1, late - 1], device=ids.device)
    logits = opened.logits(ids)[:, places.cpu()].float()
    losses = F.cross_entropy(logits.transpose(1, 2), ids[:, places + 1].to(logits.device), reduction="none")
    return float((losses[:, 1] - losses[:, 0]).mean())
