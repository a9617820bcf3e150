"""Where a head looks, in numbers: scores of attention patterns on rows of known tokens."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tasks.config import require

LOOKS = ("prefix_matching", "previous_token", "duplicate_token", "first_position")


def looks(
    patterns: Float[Tensor, "layer batch head query key"], tokens: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, "layer head"]]:
    """The mean attention that each head's queries pay to

    - prefix_matching: the tokens right after earlier occurrences of the query's token (`prefix_matching`);
    - previous_token: the token before;
    - duplicate_token: earlier occurrences of the query's token, over queries that have one;
    - first_position: the first token, a control.

    Previous and first are counted from the third query on: for the second they are one token. Attention to a
    kind of place is summed over its places. Raises `ConfigError` if the tokens leave nothing to measure.
    """
    prefix = prefix_matching(patterns, tokens)
    at = torch.arange(tokens.shape[1], device=tokens.device)
    late = (at >= 2)[:, None]
    previous, first = (at[:, None] - 1 == at) & late, (at == 0) & late
    return {
        "prefix_matching": prefix,
        "previous_token": mean_attention(patterns, previous.expand(len(tokens), -1, -1)),
        "duplicate_token": mean_attention(patterns, duplicates(tokens)),
        "first_position": mean_attention(patterns, first.expand(len(tokens), -1, -1)),
    }


def prefix_matching(
    patterns: Float[Tensor, "layer batch head query key"], tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Mean attention from each repeated token to the tokens right after its earlier occurrences (arXiv 2209.11895).

    Summed over the occurrences: 1 for a head that attends nowhere else. Queries for which such a place is also the
    token before, the token itself or a copy of it are left out: there a previous-token or duplicate-token head would
    score too. Raises `ConfigError` if no query is left.
    """
    after = follows(tokens)
    at = torch.arange(tokens.shape[1], device=tokens.device)
    near = (at[:, None] - 1 <= at) & (at <= at[:, None])
    confounded = (after & (near | duplicates(tokens))).any(dim=-1, keepdim=True)
    wanted = after & ~confounded
    require(
        bool(wanted.any()),
        "No token occurs again in its row in a way that tells induction from looking one back: use repeated "
        "sequences of at least 3 distinct tokens.",
    )
    return mean_attention(patterns, wanted)


def mean_attention(
    patterns: Float[Tensor, "layer batch head query key"], places: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "layer head"]:
    """Attention summed over each query's marked keys, averaged over the queries that have any."""
    queries = places.any(dim=-1).sum()
    return torch.einsum("lbhqk,bqk->lh", patterns, places.to(patterns.dtype)) / queries


def follows(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Where an induction head looks: at keys, up to the query, whose token before is the query's token."""
    before = torch.cat([torch.full_like(tokens[:, :1], -1), tokens[:, :-1]], dim=1)
    return (tokens[:, :, None] == before[:, None]).tril()


def duplicates(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Earlier keys that hold the query's token."""
    return (tokens[:, :, None] == tokens[:, None]).tril(-1)
