"""RWKV's token shift: attention whose queries, keys and values are projected from shifted inputs."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ihlab.model.attend import Keys, Queries, Stream, Values
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache, Past, earlier
from ihlab.model.mixes.input_shift import InputShift, rwkv_mu


class RWKVAttention(Attention):
    """shift the input, with one mu each for queries, keys and values -> project -> as `Attention`.

    See `ihlab.model.mixes.input_shift`. `hook_q`, `hook_k` and `hook_v` see the projections.
    """

    def __init__(self, cfg: ModelConfig, generator: torch.Generator | None = None, layer: int = 0) -> None:
        super().__init__(cfg, generator, layer)
        parts = ("query", "key", "value")
        self.input_shift = nn.ModuleDict({side: InputShift(rwkv_mu(cfg, layer, side)) for side in parts})

    def queries(self, x: Stream, at: Int[Tensor, "batch query"] | None = None, cache: Past | None = None) -> Queries:
        """Project the queries at positions `at` (None: all) from the shifted input."""
        before = cache.raw.get("input") if isinstance(cache, KVCache) else cache  # `project`, called next, replaces it
        return super().queries(self.input_shift["query"](x, before), at, cache)

    def project(self, x: Stream, cache: Past | None = None) -> tuple[Keys, Values]:
        """Project the keys and values from the shifted input."""
        before = earlier(cache, "input", x, 1)
        k, v = self.k_proj(self.input_shift["key"](x, before)), self.v_proj(self.input_shift["value"](x, before))
        return self._heads(k, self.n_key_value_heads), self._heads(v, self.n_key_value_heads)
