"""RWKV's token shift: attention whose queries, keys and values are projected from shifted inputs.

Each of the three has its own mu (`ihlab.model.mixes.input_shift`; Peng et al. 2023, arXiv
2305.13048). If all channels share one mu, it is equation 5 of arXiv 2411.19574 with alpha = (1 -
mu, mu) in every head.
"""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ihlab.model.attend import Keys, Queries, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache, Past, earlier
from ihlab.model.mixes.input_shift import InputShift, initial_mu


class RWKVAttention(Attention):
    """shift the input, with one mu each for queries, keys and values -> project -> as `Attention`."""

    def __init__(
        self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0
    ) -> None:
        super().__init__(cfg, generator, layer)
        shifts = {side: InputShift(mu) for side, mu in rwkv_mu(cfg, layer).items()}
        self.input_shift = nn.ModuleDict(shifts)

    def queries(
        self, x: Stream, at: Int[Tensor, "batch query"] | None = None, cache: Past | None = None
    ) -> Queries:
        """Project the queries at positions `at` (None: all) from the shifted input."""
        before = (
            cache.raw.get("input") if isinstance(cache, KVCache) else cache
        )  # `project`, called next, replaces it
        return super().queries(self.input_shift["query"](x, before), at, cache)

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Project the keys and values from the shifted input."""
        before = earlier(cache, "input", x, 1)
        k, v = (
            self.k_proj(self.input_shift["key"](x, before)),
            self.v_proj(self.input_shift["value"](x, before)),
        )
        return self._heads(k, self.n_key_value_heads), self._heads(v, self.n_key_value_heads)


def rwkv_mu(cfg: ModelConfig, layer: int) -> dict[str, Tensor]:
    """Return RWKV-6's initial mu [d_model] of queries, keys and values, for layer l of L.

    key: `initial_mu`,  value: key's mu - 0.3 l / (L - 1),  query: 1 - (i / d)^((1 - l / L) / 2) for
    channel i of d.
    """
    channel = torch.arange(cfg.d_model) / cfg.d_model
    key = initial_mu(cfg, layer)
    return {
        "query": 1 - channel ** ((1 - layer / cfg.n_layers) * 0.5),
        "key": key,
        "value": key - 0.3 * layer / max(1, cfg.n_layers - 1),
    }
