"""KV cache: keys and values of the tokens read so far, so that the next ones need not read them again."""

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.model.config import ModelConfig


class KVCache:
    """One layer's keys and values of the tokens read so far, in memory that is taken once.

    - keys, values [batch, n_key_value_heads, capacity, d_head]: after shift and rotation, ready to attend to;
      the first `length` along the third axis are filled;
    - raw_keys, raw_values [batch, window - 1, n_key_value_heads, d_head], with shifted attention: those of the
      last window - 1 tokens before the shift, which equation 5 of arXiv 2411.19574 mixes into the next ones. Zeros
      stand for tokens before the first, as in the shift itself.
    """

    def __init__(self, cfg: ModelConfig, batch: int, capacity: int, like: Tensor) -> None:
        shape = (batch, cfg.kv_heads, capacity, cfg.head_width)
        self.keys, self.values = like.new_empty(shape), like.new_empty(shape)
        self.length = 0
        if cfg.shifted:
            earlier = (batch, cfg.shift_window - 1, cfg.kv_heads, cfg.head_width)
            self.raw_keys, self.raw_values = like.new_zeros(earlier), like.new_zeros(earlier)

    def exchange_raw(
        self, k: Float[Tensor, "batch pos kv_head d_head"], v: Float[Tensor, "batch pos kv_head d_head"]
    ) -> tuple[Float[Tensor, "batch earlier kv_head d_head"], Float[Tensor, "batch earlier kv_head d_head"]]:
        """Return the raw keys and values of the window - 1 tokens before these, and keep the last ones of these."""
        before = self.raw_keys, self.raw_values
        self.raw_keys, self.raw_values = (_last(old, new) for old, new in zip(before, (k, v), strict=True))
        return before

    def append(
        self, k: Float[Tensor, "batch pos kv_head d_head"], v: Float[Tensor, "batch pos kv_head d_head"]
    ) -> tuple[Float[Tensor, "batch key kv_head d_head"], Float[Tensor, "batch key kv_head d_head"]]:
        """Keep the keys and values of the next tokens, and return views of all so far."""
        start, self.length = self.length, self.length + k.shape[1]
        self.keys[:, :, start : self.length] = k.transpose(1, 2)
        self.values[:, :, start : self.length] = v.transpose(1, 2)
        return self.keys[:, :, : self.length].transpose(1, 2), self.values[:, :, : self.length].transpose(1, 2)


def next_positions(cache: KVCache | None, n_pos: int) -> slice:
    """Return the positions of the next n_pos tokens of each row: from where the cache ends, without one from 0."""
    start = 0 if cache is None else cache.length
    return slice(start, start + n_pos)


def _last(
    old: Float[Tensor, "batch earlier kv_head d_head"], new: Float[Tensor, "batch pos kv_head d_head"]
) -> Float[Tensor, "batch earlier kv_head d_head"]:
    """Return as many tokens as `old` has, the last ones of old and new."""
    n = old.shape[1]
    return new[:, -n:] if new.shape[1] >= n else torch.cat([old, new], dim=1)[:, -n:]
