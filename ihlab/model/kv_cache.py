"""KV cache: keys and values of the tokens read so far, so that they are computed only once."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


class Past:
    """What a layer reads besides the tokens of a forward pass: a `KVCache` of earlier tokens, or
    packed `Documents`.

    Without it (None), the tokens are whole sequences.
    """


class KVCache(Past):
    """One layer's keys and values of the tokens read so far, in preallocated buffers.

    - keys, values [batch, n_key_value_heads, capacity, d_head]: after shift and rotation. The first
      `length` entries of the third axis are filled. The first tokens allocate the buffers;
    - raw: the unshifted vectors [batch, window - 1, head, d_head] of the last window - 1 tokens,
      named "key", "value" and "query" if these are shifted: equation 5 of arXiv 2411.19574 mixes
      them into the next tokens. Other parts of the layer that mix tokens store their inputs in the
      same way. Zeros stand for tokens before the first, as in the shift itself.
    """

    keys: Tensor | None = None
    values: Tensor | None = None

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self.raw: dict[str, Tensor] = {}

    def exchange(
        self, what: str, raw: Shaped[Tensor, "batch pos *wide"], n: int
    ) -> Shaped[Tensor, "batch earlier *wide"]:
        """Return the raw vectors (such as keys) or ids of the n tokens before `raw`, and store the
        last n.
        """
        before = self.raw.get(what)
        if before is None:
            before = raw.new_zeros(len(raw), n, *raw.shape[2:])
        self.raw[what] = torch.cat([before, raw], dim=1)[:, raw.shape[1] :]
        return before

    def append(
        self,
        k: Float[Tensor, "batch pos kv_head d_head"],
        v: Float[Tensor, "batch pos kv_head d_value"],
    ) -> tuple[
        Float[Tensor, "batch key kv_head d_head"], Float[Tensor, "batch key kv_head d_value"]
    ]:
        """Store the keys and values of the next tokens, and return views of all so far."""
        start = self.length
        self.length += k.shape[1]
        if self.keys is None or self.values is None:
            self.keys = self._buffer(k)
            self.values = self._buffer(v)
        self.keys[:, :, start : self.length] = k.transpose(1, 2)
        self.values[:, :, start : self.length] = v.transpose(1, 2)
        return self.keys[:, :, : self.length].transpose(1, 2), self.values[
            :, :, : self.length
        ].transpose(1, 2)

    def _buffer(self, x: Tensor) -> Tensor:
        return x.new_empty(len(x), x.shape[2], self.capacity, x.shape[3])


def earlier(
    cache: Past | None, what: str, raw: Shaped[Tensor, "batch pos *wide"], n: int
) -> Shaped[Tensor, "batch earlier *wide"] | Past | None:
    """Return `cache.exchange(what, raw, n)` for a `KVCache`; otherwise `cache`, since sequences
    begin with `raw`.
    """
    if isinstance(cache, KVCache):
        return cache.exchange(what, raw, n)
    return cache


def next_positions(cache: Past | None, n_pos: int) -> slice:
    """Return the positions of the next n_pos tokens: after the cache's tokens, or from 0 without a
    cache.
    """
    start = cache.length if isinstance(cache, KVCache) else 0
    return slice(start, start + n_pos)
