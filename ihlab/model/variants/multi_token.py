"""Multi-token attention (Golovneva et al. 2025, arXiv 2504.00927): scores mixed over neighbouring
queries and keys.

With S the scores q . k / sqrt(d_head), 0 where the key is later than the query, each head h attends
by the softmax of

    S'[t, s] = sum over a, b of w[h, a, b] S[t - a, s - b],   a = 0 .. 5, b = -5 .. 5,

at keys s <= t, with zeros outside the sequence. Kernels start as the identity, w[h, 0, 0] = 1. If
only w[h, 0, 1] is 1, S'[t, s] = S[t, s - 1]: keys shifted by one token, after their rotation. This
is the paper's key-query convolution before the softmax, with its kernel size. Left out: the
convolution after the softmax, the mixing of heads, and the gated norm of each head's output.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Keys, Queries, Values, pattern_of, read_values, scores_of
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import Past, earlier
from ihlab.model.positions import Positions

QUERIES, KEYS = 6, 11
"""Size of a kernel: the query and 5 queries before it; the key and 5 keys on each side of it."""


class MultiTokenAttention(Attention):
    """project q, k, v -> rotary -> scores -> convolution -> ALiBi -> softmax -> values -> output.

    The hooks of `Attention`, with hook_attn_scores after the convolution, and hook_taps [n_heads,
    6, 11]: w. Column 5 is b = 0. A query's result depends on earlier queries, so queries cannot be
    taken at some positions only, and scores are always explicit. A cache keeps the rotated queries
    of the last 5 tokens.
    """

    additive_scores = False
    queries_alone = False

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        identity = torch.zeros(cfg.n_heads, QUERIES, KEYS)
        identity[:, 0, KEYS // 2] = 1
        self.taps, self.hook_taps = nn.Parameter(identity), HookPoint()

    def _attend(
        self, q: Queries, k: Keys, v: Values, positions: Positions, cache: Past | None
    ) -> Queries:
        """Return z, for rotated queries of whole sequences or chunks."""
        assert isinstance(positions, slice)
        before = earlier(
            cache, "rotated query", q, QUERIES - 1
        )  # canon="B" keeps its own in "query"
        if not isinstance(before, Tensor):  # whole sequences: no queries before the first
            before = q.new_zeros(len(q), QUERIES - 1, *q.shape[2:])
        with_earlier = torch.cat([before, q], dim=1)
        hidden = self.score_bias(k, slice(positions.start - QUERIES + 1, positions.stop)).isneginf()
        scores = F.pad(scores_of(with_earlier, k).masked_fill(hidden, 0), (KEYS // 2, KEYS // 2))
        # The first row of conv2d's kernel is for the earliest query, its first column for the
        # earliest key.
        taps = self.hook_taps(self.taps.clone()).flip(1, 2)[:, None]
        mixed = F.conv2d(scores, taps.to(scores.dtype), groups=self.n_heads)
        pattern = pattern_of(
            mixed + self.score_bias(k, positions), self.hook_attn_scores, self.hook_pattern
        )
        return read_values(pattern, v, self.active_dropout)
