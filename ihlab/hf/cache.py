"""The cache: transformers' cache layers, which also store the raw keys and values that the next
tokens mix in.

A layer stores only the last window - 1 raw keys and values: 2 (window - 1) vectors per sequence. To
remove tokens (`crop`), it needs earlier ones too. So transformers calls `activate_past_recording`
before assisted generation, and the layer then keeps the raw vectors of every token until the next
`crop`. Tokens that are read with a mask of four dimensions may all be continued, so a layer keeps
theirs until it reads tokens without such a mask.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    DYNAMIC_LAYER_TYPE_MAPPING,
    STATIC_LAYER_TYPE_MAPPING,
    Cache,
    CacheLayerMixin,
    get_layer_types_and_kwargs,
)

from ihlab.hf.links import Links
from ihlab.hf.pickled import pickled_by
from ihlab.hf.shift import Projected, Seen
from tasks.config import require


class RawStates(CacheLayerMixin):
    """A mixin that adds three buffers to a cache layer, each keyed by side ("key", "value" or
    "number").

    - `raw` [batch, window - 1, channel]: the vectors that the next token mixes in, oldest first;
    - `recorded` [batch, token, window - 1, channel]: what `raw` was before the recorded tokens, and
      after each;
    - `tree` [batch, token, channel]: `raw` before a tree of continuations, and the vector of each
      of its tokens.

    The side "number", in the first layer only, has which token each vector belongs to, counted from
    1; 0 is none.
    """

    record_past = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.raw: dict[str, Tensor] = {}
        self.recorded: dict[str, Tensor] = {}
        self.tree: dict[str, Tensor] = {}

    def seen(self, side: str, raw: Projected, back: int, tree: bool) -> Seen:
        """Return the stored raw vectors followed by `raw`: those of the tree, or of the `back`
        previous tokens.
        """
        if side not in self.raw:
            require(
                self.get_seq_length() == 0,
                f"The cache holds tokens without their raw {side}s: start with an empty one.",
            )
            self.raw[side] = raw.new_zeros(len(raw), back, raw.shape[-1])
            if self.is_compileable and not torch.compiler.is_compiling():
                torch._dynamo.mark_static_address(
                    self.raw[side]
                )  # as transformers does with its own buffers
        stored = self.tree.get(side, self.raw[side]) if tree else self.raw[side]
        return torch.cat([stored, raw], dim=1)

    def exchange(self, side: str, raw: Projected, links: Links, back: int) -> Seen:
        """Return what `seen` does, and store the last vectors."""
        raw_states = self.seen(side, raw, back, links.tree)
        before = self.raw[side]
        self.tree.pop(side, None)
        if links.tree and not self.is_compileable:
            self.tree[side] = raw_states
        if self.record_past:
            after = links.stored(raw_states, back, slice(None))
            self.recorded[side] = torch.cat(
                [self.recorded.get(side, before[:, None]), after], dim=1
            )
        if links.chain is not None:
            last = links.stored(raw_states, back, slice(-1, None))[:, 0]
        else:  # a view would keep the whole prompt in memory
            last = raw if raw.shape[1] == back else raw_states[:, -back:].clone()
        if self.is_compileable:
            before.copy_(last)
        else:
            self.raw[side] = last
        return raw_states

    def activate_past_recording(self) -> None:
        """Store the raw keys and values of all tokens from now on, until the next `crop`."""
        if hasattr(super(), "activate_past_recording"):
            super().activate_past_recording()
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -`tokens_to_remove` tokens, and drop recorded vectors that are no longer
        needed.
        """
        for side in sorted(self.raw.keys() - {"number"}) if tokens_to_remove < 0 else ():
            tokens = self.recorded[side].shape[1] - 1 if side in self.recorded else 0
            require(
                -tokens_to_remove <= tokens,
                f"crop({tokens_to_remove}) takes back more tokens than the {tokens} whose raw {side}s the cache has "
                "recorded: call cache.activate_past_recording() before they are read.",
            )
        super().crop(tokens_to_remove)
        if tokens_to_remove <= 0:
            self.raw |= {
                side: states[:, tokens_to_remove - 1].clone()
                for side, states in self.recorded.items()
            }
            self.recorded = {}
            tree = {
                side: states[:, : states.shape[1] + tokens_to_remove]
                for side, states in self.tree.items()
            }
            self.tree = {
                side: states
                for side, states in tree.items()
                if states.shape[1] > self.raw[side].shape[1]
            }

    def reset(self) -> None:
        """Empty the cache."""
        super().reset()
        self.recorded = {}
        self.tree = {}
        if self.is_compileable:
            for raw in self.raw.values():
                raw.zero_()
        else:
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
        for held in (self.raw, self.recorded, self.tree):
            for side in held:
                held[side] = change(held[side])


_MADE: dict[
    type, type[RawStates]
] = {}  # torch.compile looks into a dictionary, but calls a cached function again


def shifted_layer(base: Any) -> type[RawStates]:
    """Return the subclass of a cache layer class that has raw states."""
    if base not in _MADE:
        members = {"__reduce_ex__": pickled_by(shifted_layer, base)}
        _MADE[base] = type(f"Shift{base.__name__}", (RawStates, base), members)
    return _MADE[base]


def shift_layer(cache: Cache, number: int) -> RawStates:
    """Return a layer of a cache; add raw states to it if it is empty.

    Raises `ConfigError` for a layer that has read tokens with an unshifted model.
    """
    while number >= len(cache.layers) and cache.layer_class_to_replicate is not None:
        cache.layers.append(shifted_layer(cache.layer_class_to_replicate)())
    layer: Any = cache.layers[number]
    if not isinstance(layer, RawStates):
        require(
            layer.get_seq_length() == 0,
            "The cache holds tokens that an unshifted model read, without their raw keys and values: start from an "
            f"empty {type(cache).__name__}.",
        )
        shifted = object.__new__(shifted_layer(type(layer)))
        shifted.__dict__.update(vars(layer), raw={}, recorded={}, tree={})
        cache.layers[number] = layer = shifted
    return layer


def shifted_layer_types(config: Any) -> tuple[str, ...]:
    """Register for each layer a cache layer that also stores unshifted keys and values, and return
    their names.
    """
    names = []
    for kind, options in zip(*get_layer_types_and_kwargs(config), strict=True):
        name = "_".join(
            ["kv_shift", kind, *map(str, options.values()), __name__]
        )  # `standalone` has layers of its own
        for known in (DYNAMIC_LAYER_TYPE_MAPPING, STATIC_LAYER_TYPE_MAPPING):
            plain = known[kind]
            known[name] = (
                partial(shifted_layer(plain), **options)
                if issubclass(plain, CacheLayerMixin)
                else plain
            )
        names.append(name)
    return tuple(names)
