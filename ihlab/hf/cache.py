"""The cache: transformers' cache layers, which also store the raw keys and values that the next tokens mix in.

A layer stores only the last window - 1 raw keys and values: 2 (window - 1) vectors per sequence. To remove tokens
(`crop`), it needs earlier raw keys and values too. So transformers calls `activate_past_recording` before assisted
generation, and the layer then keeps all of them until the next `crop`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from ihlab.hf.links import Links
from ihlab.hf.shift import Projected, Seen, take
from tasks.config import require


class RawStates(CacheLayerMixin):
    """Additions to a cache layer: raw["key"] and raw["value"] [batch, window - 1 + recorded, kv_head * d_head]."""

    record_past = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.raw: dict[str, Tensor] = {}
        self.back = 0

    def exchange(self, side: str, raw: Projected, links: Links, back: int) -> Seen:
        """Return the raw vectors of the `back` previous tokens followed by `raw`, and store the last ones."""
        if side not in self.raw:
            require(
                self.get_seq_length() == 0,
                f"The cache holds tokens without their raw {side}s: start with an empty one.",
            )
            self.raw[side] = raw.new_zeros(len(raw), back, raw.shape[-1])
        self.back = back
        seen = torch.cat([self.raw[side][:, -back:], raw], dim=1)
        if self.record_past:
            require(
                links.alive is None, "The cache records its past, which it can do for sequences without padding only."
            )
            self.raw[side] = torch.cat([self.raw[side], raw], dim=1)
            return seen
        last = seen[:, -back:]
        if links.keep is not None:
            last = take(seen, links.keep, links.alive)
        elif links.alive is not None:
            last = torch.where(links.alive[..., None], last, 0)
        self.raw[side] = last.clone()  # a view would keep the whole prompt in memory
        return seen

    def activate_past_recording(self) -> None:
        """Store the raw keys and values of all tokens from now on, until the next `crop`."""
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -`tokens_to_remove` tokens, and drop recorded vectors that are no longer needed."""
        for side, raw in self.raw.items():
            recorded, gone = raw.shape[1] - self.back, -tokens_to_remove
            require(
                gone <= recorded,
                f"crop({tokens_to_remove}) takes back more tokens than the {recorded} whose raw {side}s the cache has "
                "recorded: call cache.activate_past_recording() before they are read.",
            )
        super().crop(tokens_to_remove)
        if tokens_to_remove <= 0:
            self._each(
                lambda raw: raw[:, raw.shape[1] + tokens_to_remove - self.back : raw.shape[1] + tokens_to_remove]
            )

    def reset(self) -> None:
        """Empty the cache."""
        super().reset()
        self.raw = {}

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the batch, as beam search does."""
        super().reorder_cache(beam_idx)
        self._each(lambda raw: raw.index_select(0, beam_idx.to(raw.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence of the batch."""
        super().batch_repeat_interleave(repeats)
        self._each(lambda raw: raw.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some sequences of the batch."""
        super().batch_select_indices(indices)
        self._each(lambda raw: raw[indices])

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        self.raw = {side: change(raw).contiguous() for side, raw in self.raw.items()}


class ShiftLayer(RawStates, DynamicLayer):
    """A `DynamicLayer` with raw states."""


class ShiftSlidingLayer(RawStates, DynamicSlidingWindowLayer):
    """A `DynamicSlidingWindowLayer` with raw states. The window does not drop these."""


def shift_layer(cache: Cache, number: int) -> RawStates:
    """Return a layer of a cache with raw states; add them to an empty layer.

    Raises `ConfigError` for another type of layer, and for one that has read tokens with an unshifted model.
    """
    while number >= len(cache.layers) and cache.layer_class_to_replicate is not None:
        cache.layers.append(cache.layer_class_to_replicate())
    layer = cache.layers[number]
    if isinstance(layer, RawStates):
        return layer
    kind = type(layer)
    require(
        kind in (DynamicLayer, DynamicSlidingWindowLayer),
        f"The cache is a {type(cache).__name__} with a {kind.__name__}, but a shifted model needs a DynamicCache.",
    )
    require(
        layer.get_seq_length() == 0,
        "The cache holds tokens that an unshifted model read, without their raw keys and values: start from an empty "
        "DynamicCache.",
    )
    shifted: RawStates = ShiftLayer() if kind is DynamicLayer else ShiftSlidingLayer(layer.sliding_window)
    shifted.record_past = getattr(layer, "record_past", False)
    cache.layers[number] = shifted
    return shifted


def shift_cache(cache: Cache, layers: int) -> None:
    """Give every layer of an empty cache raw states."""
    for number in range(layers):
        shift_layer(cache, number)
