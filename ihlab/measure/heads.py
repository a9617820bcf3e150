"""Scores of attention heads from their patterns on rows of known tokens."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tasks.config import require


def pattern_scores(
    patterns: Float[Tensor, "layer batch head query key"], tokens: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, "layer head"]]:
    """Return the mean attention of each head's queries to

    - prefix_matching: the tokens right after earlier occurrences of the query's token (`prefix_matches`);
    - previous_token: the token before;
    - duplicate_token: earlier occurrences of the query's token, over queries that have one;
    - first_position: the first token, a control.

    Previous and first are counted from the third query on: for the second they are one token. Attention to a
    kind of source position is summed over these positions. Raises `ConfigError` if the tokens leave nothing to measure.
    """
    at = at_positions(tokens)
    places = {
        "prefix_matching": prefix_matches(tokens),
        "previous_token": at["previous_token"],
        "duplicate_token": duplicates(tokens),
        "first_position": at["first_position"],
    }
    return {name: mean_attention(patterns, marked) for name, marked in places.items()}


def at_positions(tokens: Int[Tensor, "batch pos"]) -> dict[str, Bool[Tensor, "batch query key"]]:
    """Return the source positions of previous_token and first_position; see `pattern_scores`."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    late = (at >= 2)[:, None]
    places = {"previous_token": (at[:, None] - 1 == at) & late, "first_position": (at == 0) & late}
    return {name: marked.expand(len(tokens), -1, -1) for name, marked in places.items()}


def prefix_matches(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Return the source positions of the prefix-matching score (Olsson et al. 2022, arXiv 2209.11895).

    The score is `mean_attention` to them: from the last occurrence of each repeated token in its row to the tokens
    right after its earlier occurrences. On a sequence that is repeated, that is from its last repeat. A head that
    attends nowhere else scores 1. Queries for which such a position is also the previous token, the query itself
    or a copy of it are left out: there a previous-token or duplicate-token head would score too.

    Raises `ConfigError` if no query is left.
    """
    after, copies = follows(tokens), duplicates(tokens)
    at = torch.arange(tokens.shape[1], device=tokens.device)
    near = (at[:, None] - 1 <= at) & (at <= at[:, None])
    confounded = (after & (near | copies)).any(dim=-1, keepdim=True)
    last = ~copies.any(dim=-2)[:, :, None]
    matches = after & last & ~confounded
    require(
        bool(matches.any()),
        "No token occurs again in its row in a way that tells induction from attention to the previous token: use "
        "repeated sequences of at least 3 distinct tokens.",
    )
    return matches


def mean_attention(
    patterns: Float[Tensor, "*layer batch head query key"], places: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "*layer head"]:
    """Attention summed over each query's marked keys, averaged over the queries that have any.

    In float32 at least: a sum over rows in half precision would be rounded by more than scores differ, or overflow.
    """
    patterns = patterns.to(torch.promote_types(patterns.dtype, torch.float32))
    queries = places.any(dim=-1).sum()
    return torch.einsum("...bhqk,bqk->...h", patterns, places.to(patterns.dtype)) / queries


def follows(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Return the keys an induction head attends to: up to the query, whose token before is the query's token."""
    return F.pad(tokens[:, :, None] == tokens[:, None, :-1], (1, 0)).tril()  # before the first key there is none


def duplicates(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Earlier keys that hold the query's token."""
    return (tokens[:, :, None] == tokens[:, None]).tril(-1)
