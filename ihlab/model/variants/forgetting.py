"""Forgetting attention (Lin et al. 2025, arXiv 2503.02130): each token lowers the scores of all
keys before it.

    score[t, s] = q[t] . k[s] / sqrt(d_head) + log f[s + 1] + ... + log f[t],    f[t] = sigmoid(w . x[t] + b)

for each head, where x is attention's input. f = 1 is vanilla attention, and a constant f is ALiBi
with slope -log f. As in the authors' code, b starts as 0, so f starts as 1/2. Their models have no
rotary encoding: `positional="none"`.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Stream
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache, Past, next_positions
from ihlab.model.variants.token_gate import TokenGate


class ForgettingAttention(Attention):
    """`Attention` with forget gates. hook_log_forget [batch, pos, n_heads]: log f of each token.

    A cache stores the sum of log f up to each token, one number per head.
    """

    additive_scores = False

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        self.forget = TokenGate(torch.zeros(cfg.n_heads), cfg.d_model)
        self.hook_log_forget = HookPoint()

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the sum of the heads' outputs for the normalised residual stream x; add its tokens
        to the cache.
        """
        positions = next_positions(cache, x.shape[1])
        q, (k, v) = (
            self.rotated(self.queries(x, cache=cache), positions),
            self.keys_values(x, cache),
        )
        of_keys = self._forgotten(self.hook_log_forget(F.logsigmoid(self.forget(x))), cache)
        of_queries = of_keys[:, -x.shape[1] :]
        decay = (of_queries[:, :, None] - of_keys[:, None]).permute(0, 3, 1, 2)
        return self.output(
            self._attend_with(q, k, v, self.masked_bias(k, positions, cache) + decay)
        )

    @staticmethod
    def _forgotten(
        log_forget: Float[Tensor, "batch pos head"], cache: Past | None
    ) -> Float[Tensor, "batch key head"]:
        """Return the sum of log f up to each token, those in the cache included."""
        total = log_forget.cumsum(dim=1)
        if not isinstance(cache, KVCache):
            return total
        before = cache.raw.get("forgotten", total[:, :0])
        cache.raw["forgotten"] = torch.cat(
            [before, total + (before[:, -1:] if before.shape[1] else 0)], dim=1
        )
        return cache.raw["forgotten"]
