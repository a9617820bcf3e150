"""`HeadModel`, the interface for scoring and ablating heads, and its implementation for our own
models.

`ihlab.interp.hugging_face` implements the interface for models of other libraries.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ihlab.interp.circuits import eigenvalue_copying
from ihlab.interp.patterns import patterns_of_kind, probed
from ihlab.measure.padding import without_padding
from ihlab.measure.probe import ProbeTokens, beginning, model_tokens, probe_rows
from ihlab.model.lens.padding import Mask, in_order, mask_of, padded_right, real_first
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import evaluating
from tasks.config import require

PATTERN_KINDS = ("raw", "effective")
"""Kinds of pattern: "raw" shows which key a query matches, "effective" which token's value it
reads.
"""

ReplaceZ = Callable[[Tensor], Tensor]
"""Maps a layer's z [batch, pos, head, d_head] to its replacement."""


Patterns = dict[str, Float[Tensor, "layer batch head query key"]]
"""Patterns of all layers, keyed by kind ("raw", "effective")."""


class HeadModel(ABC):
    """A model whose heads can be scored and ablated. It is measured in evaluation mode, and its
    mode is restored.

    - `module`: the module that takes tokens; `embed`: its token embedding;
    - `n_layers`, `n_heads` (query heads in each layer), `d_vocab`;
    - `n_ctx`: the maximum number of positions; None: no maximum;
    - `reach`: how many of the latest tokens every layer can attend to (the width of a sliding
      window); None: all;
    - `tokens`: how the model's probe sequences are built: content ids, first tokens, length,
      padding id.

    `attention_mask` [batch, pos] is 1 at tokens and 0 at padding. Without a mask, padding is
    recognised by the padding id of the model's task. Padding a sequence does not change its
    results.
    """

    module: nn.Module
    embed: nn.Module
    n_layers: int
    n_heads: int
    d_vocab: int
    n_ctx: int | None
    reach: int | None = None
    tokens: ProbeTokens

    @property
    def name(self) -> str:
        """The name of the model's class, for messages."""
        return type(self.module).__name__

    @property
    def device(self) -> torch.device:
        """The device that tokens are moved to. Layers may be on other devices."""
        weight: Tensor = self.embed.weight  # type: ignore[assignment]
        return weight.device

    def on_device(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Return the tokens on the model's device.

        Raises `ConfigError` for ids outside the vocabulary, too many positions, and a model without
        weights.
        """
        require(
            self.n_ctx is None or tokens.shape[1] <= self.n_ctx,
            f"The tokens have {tokens.shape[1]} positions, but the model's n_ctx is {self.n_ctx}.",
        )
        low, high = int(tokens.min()), int(tokens.max())
        require(
            low >= 0 and high < self.d_vocab,
            f"The tokens have ids from {low} to {high}, but the vocabulary is 0 to {self.d_vocab - 1}.",
        )
        require(
            self.device.type != "meta",
            f"The {self.name} is on the meta device: it has no weights to measure.",
        )
        return tokens.to(self.device)

    def probe_rows(
        self, repeats: int, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
    ) -> Int[Tensor, "rows pos"]:
        """Return sequences of repeated random tokens for the model; see `head_scores`.

        Raises `ConfigError` for a length over n_ctx or over a sliding window, and for ids outside
        the vocabulary.
        """
        length = self.tokens.length if length is None else length
        require(
            self.n_ctx is None or length <= self.n_ctx,
            f"length is {length}, but must be at most the model's n_ctx, {self.n_ctx}.",
        )
        require(
            self.reach is None or length <= self.reach,
            f"length is {length}, but some layers of the {self.name} see the last {self.reach} tokens only, so they "
            f"see no earlier repeat: give a length of at most {self.reach}.",
        )
        return self.on_device(probe_rows(self.tokens, repeats, rows, length, ids, seed))

    def mask(self, tokens: Int[Tensor, "batch pos"], attention_mask: Any = None) -> Mask | None:
        """Return which positions are not padding; None: all. Raises `ConfigError` as `mask_of`
        does.
        """
        return mask_of(tokens, attention_mask, self.tokens.padding)

    @torch.no_grad()
    def logits(
        self, tokens: Int[Tensor, "batch pos"], attention_mask: Any = None
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits."""
        ids = self.on_device(tokens)
        real = self.mask(ids, attention_mask)
        with evaluating(self.module):
            if real is None or padded_right(real):
                return self._logits(ids)
            order = real_first(real)
            return in_order(self._logits(in_order(ids, order, 1)), order.argsort(dim=1), 1)

    def differentiable_logits(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits of valid tokens, with an autograd graph if enabled. Padding must come
        last.
        """
        with evaluating(self.module):
            return self._logits(tokens)

    @torch.no_grad()
    def read(
        self,
        tokens: Int[Tensor, "batch pos"],
        kinds: Sequence[str] = PATTERN_KINDS,
        attention_mask: Any = None,
    ) -> Patterns:
        """Return patterns, keyed by kind. Effective patterns have beta's gauge fixed.

        Attention to and from padding is 0. Raises `ConfigError` for a model without patterns, or
        whose patterns are not causal or not finite.
        """
        ids = self.on_device(tokens)
        real = self.mask(ids, attention_mask)
        with evaluating(self.module):
            if real is None:
                return self._read(ids, kinds)
            order = real_first(real)
            patterns = self._read(in_order(ids, order, 1), kinds)
        back = order.argsort(dim=1)
        return {
            kind: without_padding(in_order(in_order(of_kind, back, 3, 1), back, 4, 1), real)
            for kind, of_kind in patterns.items()
        }

    def z(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos head d_head"]]:
        """Return every layer's z. Padding, if any, must come last in each sequence. Raises as
        `replacing` does.
        """
        z = dict[int, Tensor]()
        noting = {layer: partial(z.setdefault, layer) for layer in range(self.n_layers)}
        with self.replacing(noting), torch.no_grad(), evaluating(self.module):
            self._logits(self.on_device(tokens))
        return [z[layer] for layer in range(self.n_layers)]

    def require_ids_read_once(self) -> None:
        """Raise `ConfigError` if token ids reach the model in other ways than through its token
        embedding.
        """
        return

    @property
    def exact_kind(self) -> str:
        """The kind of pattern that says what heads read: "effective", or "raw" if effective
        patterns are not exact.
        """
        return "effective"

    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """Return `ihlab.interp.circuits.eigenvalue_copying`; NaN where the weights are not known."""
        return torch.full((self.n_layers, self.n_heads), torch.nan)

    # Implemented by subclasses

    @abstractmethod
    def _read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str]) -> Patterns:
        """Read patterns in the current mode, on valid tokens with padding last; see `read`."""

    @abstractmethod
    def replacing(self, replace: Mapping[int, ReplaceZ]) -> AbstractContextManager[Any]:
        """Replace layers' z by functions of it while the context is open. Raises `ConfigError`
        where z is unknown.
        """

    @abstractmethod
    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Run the model in its current mode."""


class OurModel(HeadModel):
    """A `Transformer`, read at its hook points."""

    module: Transformer

    def __init__(self, model: Transformer, prepend_bos: bool | None = None) -> None:
        cfg = model.cfg
        self.module, self.embed = model, model.embed
        self.n_layers, self.n_heads = cfg.n_layers, cfg.n_heads
        self.d_vocab, self.n_ctx = cfg.d_vocab, cfg.n_ctx
        bos = model.special_tokens.get("bos_token_id")
        self.tokens = beginning(model_tokens(model), prepend_bos, bos)

    @property
    def exact_kind(self) -> str:
        """See `HeadModel.exact_kind`."""
        return "effective" if self.module.cfg.mixes_tokens is None else "raw"

    def _read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str]) -> Patterns:
        cache = probed(self.module, tokens)
        return {kind: patterns_of_kind(cache, kind) for kind in kinds}

    def replacing(self, replace: Mapping[int, ReplaceZ]) -> AbstractContextManager[Any]:
        """Replace z at hook_z. Raises `ConfigError` for a custom attention without it."""
        hooks: list[Any] = []
        for layer, function in replace.items():
            attn = self.module.layers[layer].attn
            require(
                hasattr(attn, "hook_z"),
                f"{type(attn).__name__}, the attention of layer {layer}, has no HookPoint hook_z "
                "[batch, pos, head, d_head], at which heads are ablated.",
            )
            hooks.append((f"blocks.{layer}.attn.hook_z", lambda z, hook, f=function: f(z)))
        return self.module.hooks(fwd_hooks=hooks)

    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """Return the copying scores; NaN for a custom attention without hook_z, W_O or W_V."""
        for block, name in product(self.module.layers, ("hook_z", "W_O", "W_V")):
            if not hasattr(block.attn, name):
                return super().eigenvalue_copying()
        return eigenvalue_copying(self.module)

    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        return self.module(tokens)
