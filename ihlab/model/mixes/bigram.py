"""A bigram hash table (modded-nanogpt, pull request 201): a learned vector for each pair of
neighbouring tokens.

    x[t] = embedding(token[t]) + table[hash(token[t - 1], token[t])],
    hash(a, b) = ((36313 b) xor (27191 a)) mod (rows - 1),

and the last row for the first token, which has no previous one. Pairs with the same hash share a
row. The table starts as 0, so the model starts as one without it. The source adds the rows before
every layer with a learned weight; here they are added once, to the embedding.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ihlab.model.earlier_tokens import previous
from ihlab.model.kv_cache import Past, earlier


class BigramTable(nn.Module):
    """The hash table [rows, d_model] of bigrams. Weight decay acts on it, as on an embedding."""

    decays = ("weight",)

    def __init__(self, rows: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, d_model))

    def rows_of(
        self, tokens: Int[Tensor, "batch pos"], cache: Past | None = None
    ) -> Int[Tensor, "batch pos"]:
        """Return the row of each pair of neighbouring tokens. With a cache, the tokens continue its
        sequences.
        """
        known = tokens + 1  # a cache has 0 before the first token
        before = previous(known, earlier(cache, "token", known, 1))
        rows = ((36313 * tokens) ^ (27191 * (before - 1))) % (len(self.weight) - 1)
        return rows.masked_fill(before == 0, len(self.weight) - 1)

    def forward(
        self, tokens: Int[Tensor, "batch pos"], cache: Past | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """Return the vector of each token paired with the one before it."""
        return F.embedding(self.rows_of(tokens, cache), self.weight)
