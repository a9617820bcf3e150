"""The places of a model where earlier tokens are mixed in, and the parts that a config plugs in
there.

The network calls `mixed` at each place. Where a config plugs in nothing, `mixed` returns its input.
"""

import torch
from torch import nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Heads, Stream
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import with_first
from ihlab.model.kv_cache import Past, earlier, next_positions
from ihlab.model.mixes.depthwise import make_canon, make_head_convolutions
from ihlab.model.mixes.input_shift import InputShift, initial_mu
from ihlab.model.shift import TokenMix, TokenShift, make_shifts

SHIFT_HOOKS = {
    "key": ("hook_k_raw", "hook_alpha"),
    "value": ("hook_v_raw", "hook_beta"),
    "query": ("hook_q_raw", "hook_gamma"),
}
"""The hook points of a shift: the vectors before it, and its weights."""


class LayerMixes(nn.Module):
    """What a layer mixes into the residual stream, and into the inputs and outputs of its attention
    and MLP.

    The places in order: "norm" (before attention's norm), "A" (attention's input), "O" (its
    output), "C" (the MLP's input) and "M" (its output).
    """

    def _make_mixes(self, cfg: ModelConfig, generator: torch.Generator | None, layer: int) -> None:
        self.canon = nn.ModuleDict()
        for place in "ACOM":
            self.canon.update(make_canon(cfg, place, {place: 1}, cfg.d_model, generator, layer))
        self.shift_place = {"before_norm": "norm", "after_norm": "A"}.get(cfg.stream_shift)
        self.stream_shift: InputShift | None = None
        if cfg.stream_shift != "none":
            self.stream_shift = InputShift(initial_mu(cfg, layer))
        if cfg.stream_shift == "added":
            self.hook_resid_shift = HookPoint()

    def with_shift(self, x: Stream, cache: Past | None) -> Stream:
        """Return the residual stream at a layer's start, plus its shift if it is added."""
        if self.stream_shift is None or self.shift_place is not None:
            return x
        return x + self.hook_resid_shift(
            self.stream_shift.of_previous(x, earlier(cache, "stream", x, 1))
        )

    def mixed(self, place: str, x: Stream, cache: Past | None) -> Stream:
        """Return x with earlier tokens mixed in by the parts at a place."""
        if self.stream_shift is not None and place == self.shift_place:
            x = self.stream_shift(x, earlier(cache, "stream", x, 1))
        if place in self.canon:
            x = self.canon[place](x, cache)
        return x

    @property
    def adds_neighbours(self) -> bool:
        """True if a module after attention mixes tokens, so that the layer's output needs every
        position.
        """
        for part in (self.ln2, self.mlp):
            if isinstance(part, nn.Module) and any(
                isinstance(each, TokenMix) for each in part.modules()
            ):
                return True
        return any(place in self.canon for place in "OCM")  # torch.compile cannot trace isdisjoint


class NeuronMixes(nn.Module):
    """Canon layer D of an MLP, which convolves the inputs of its activation (one or two branches)."""

    def _make_mixes(
        self, cfg: ModelConfig, branches: int, generator: torch.Generator | None, layer: int
    ) -> None:
        self.canon = make_canon(
            cfg, "D", {"neuron": branches}, cfg.mlp_width, generator, layer
        ).get("neuron")

    def mixed(self, cache: Past | None, *branches: Stream) -> tuple[Stream, ...]:
        """Return the branches with earlier tokens mixed in."""
        if self.canon is None:
            return branches
        return self.canon(torch.stack(branches, dim=2), cache).unbind(dim=2)


class HeadMixes(nn.Module):
    """What attention mixes into queries, keys and values after their projection: convolutions, then
    equation 5.
    """

    def _make_mixes(self, cfg: ModelConfig, generator: torch.Generator | None, layer: int) -> None:
        self.shifted, self.shift_window = cfg.shifted, cfg.shift_window
        self.first_own = cfg.shift_first == "own"
        self.key_shift, self.value_shift, self.query_shift = make_shifts(cfg, generator, layer)
        self.convolution = make_head_convolutions(cfg, generator, layer)

    def _make_shift_hooks(self) -> None:
        for side, names in SHIFT_HOOKS.items():
            if self.shift_of(side) is not None:
                for name in names:
                    setattr(self, name, HookPoint())

    def shift_of(self, side: str) -> TokenShift | None:
        """Return the shift of "key", "value" or "query"; None if it is not shifted."""
        return getattr(self, f"{side}_shift")

    @property
    def mixes_queries(self) -> bool:
        """True if earlier tokens' queries are mixed into queries."""
        return self.query_shift is not None or "query" in self.convolution

    def mixed(self, side: str, x: Heads, cache: Past | None) -> Heads:
        """Return the vectors of "key", "value" or "query", with those of earlier tokens mixed in."""
        if side in self.convolution:
            x = self.convolution[side](x, cache)
        shift = self.shift_of(side)
        if shift is None:
            return x
        raw_hook, weight_hook = (getattr(self, name) for name in SHIFT_HOOKS[side])
        x = raw_hook(x)
        shifted = shift(x, weight_hook, earlier(cache, side, x, shift.window - 1))
        if self.first_own and next_positions(cache, 0).start == 0:
            return with_first(x, shifted, cache)
        return shifted
