"""The interface by which heads are scored and ablated, and its implementation for our own models.

`ihlab.interp.outside` implements it for models of other libraries.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ihlab.interp.circuits import eigenvalue_copying
from ihlab.interp.patterns import pattern_of, probed
from ihlab.measure.probe import repeated_rows, task_ids
from ihlab.model.modes import evaluating
from ihlab.model.transformer import Transformer
from tasks import StoredTask
from tasks.config import require

PATTERN_KINDS = ("raw", "effective")
"""Which key a query matches, and which token's value it reads."""

LONGEST_PROBE = 128
"""Positions of a probe of another library's model, unless a length is given. At 128, the patterns of GPT-2 on 16
sequences take 150 MB. Memory grows with the square of the length, and the contexts of such models are long."""

ReplaceZ = Callable[[Tensor], Tensor]
"""What a layer's z [batch, pos, head, d_head] is replaced by."""


@dataclass(frozen=True)
class Reading:
    """What is read of a model on tokens: patterns by kind, "raw" and "effective", and every layer's z."""

    patterns: dict[str, Float[Tensor, "layer batch head query key"]]
    z: list[Float[Tensor, "batch pos head d_head"]]


class HeadModel(ABC):
    """A model whose heads can be scored and ablated. It is measured in evaluation mode, and its mode is restored.

    - `module`: what is called with tokens; `embed`: its token embedding;
    - `n_layers`, `n_heads` (query heads in each layer), `d_vocab`;
    - `n_ctx`: the maximum number of positions; None: there is no maximum;
    - `reach`: the number of latest tokens that every layer sees (a sliding window's width); None: all;
    - `probe_length`: positions of a probe unless a length is given.
    """

    module: nn.Module
    embed: nn.Module
    n_layers: int
    n_heads: int
    d_vocab: int
    n_ctx: int | None
    reach: int | None = None
    probe_length: int

    @property
    def name(self) -> str:
        """The class of the model, as sentences name it."""
        return type(self.module).__name__

    @property
    def device(self) -> torch.device:
        """The device that tokens go to. Layers may be elsewhere."""
        weight: Tensor = self.embed.weight  # type: ignore[assignment]
        return weight.device

    def on_device(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Return the tokens on the model's device.

        Raises `ConfigError` for ids outside the vocabulary, too many positions, and a model without weights.
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
        require(self.device.type != "meta", f"The {self.name} is on the meta device: it has no weights to measure.")
        return tokens.to(self.device)

    def probe_rows(
        self, repeats: int, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
    ) -> Int[Tensor, "rows pos"]:
        """Return sequences of repeated random tokens for the model; see `head_scores`.

        Raises `ConfigError` for a length over n_ctx or over a sliding window, and for ids outside the vocabulary.
        """
        length = self.probe_length if length is None else length
        require(
            self.n_ctx is None or length <= self.n_ctx,
            f"length is {length}, but the model's n_ctx is {self.n_ctx}: too long.",
        )
        require(
            self.reach is None or length <= self.reach,
            f"length is {length}, but some layers of the {self.name} see the last {self.reach} tokens only, and so no "
            f"earlier repeat: give a length of at most {self.reach}.",
        )
        return self.on_device(repeated_rows(self.ids if ids is None else ids, rows, length // repeats, repeats, seed))

    @torch.no_grad()
    def logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits."""
        with evaluating(self.module):
            return self._logits(self.on_device(tokens))

    def z(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos head d_head"]]:
        """Return every layer's z. Raises `ConfigError` as `replacing` does."""
        with self._noting_z() as z:
            self.logits(tokens)
        return [z[layer] for layer in range(self.n_layers)]

    @contextmanager
    def _noting_z(self) -> Iterator[dict[int, Tensor]]:
        """Note every layer's z when the model runs."""
        z = dict[int, Tensor]()
        with self.replacing({layer: partial(z.setdefault, layer) for layer in range(self.n_layers)}):
            yield z

    def direct_logits(
        self, layer: int, head: int, z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Return a head's own output z W_O, unembedded directly, up to one positive factor."""
        output = self.output_weight(layer)[head]
        return z[:, :, head].to(output) @ output @ self.unembedding

    # What the two implementations differ in

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]:
        """The token ids that a probe draws from by default."""

    @property
    @abstractmethod
    def writes_known(self) -> bool:
        """True if it is known what each head writes."""

    @abstractmethod
    def read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str] = PATTERN_KINDS) -> Reading:
        """Return patterns, the effective ones with beta's gauge fixed, and every layer's z, if `writes_known`."""

    @abstractmethod
    def replacing(self, replace: Mapping[int, ReplaceZ]) -> AbstractContextManager[Any]:
        """Replace the z of some layers, each by a function of it. Raises `ConfigError` where z is not known."""

    @abstractmethod
    def output_weight(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """Return a layer's W_O."""

    @property
    @abstractmethod
    def unembedding(self) -> Float[Tensor, "d_model d_vocab"]:
        """The final norm and the unembedding as one matrix, without the norm's scale."""

    @abstractmethod
    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """Return the copying score of the weights; see `ihlab.interp.circuits.eigenvalue_copying`."""

    @abstractmethod
    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Run the model as it is."""


class OurModel(HeadModel):
    """A `Transformer`, read at its hook points."""

    module: Transformer

    def __init__(self, model: Transformer) -> None:
        cfg = model.cfg
        self.module, self.embed = model, model.embed
        self.n_layers, self.n_heads, self.d_vocab = cfg.n_layers, cfg.n_heads, cfg.d_vocab
        self.n_ctx = self.probe_length = cfg.n_ctx

    @property
    def ids(self) -> Sequence[int]:
        """The ids that the model was trained on, where that is known, and else the vocabulary."""
        task = self.module.trained_on
        return range(self.d_vocab) if task is None or isinstance(task, StoredTask) else task_ids(task)

    @property
    def writes_known(self) -> bool:
        """True unless a custom attention lacks hook_z, W_O or W_V."""
        return all(hasattr(block.attn, name) for block in self.module.layers for name in ("hook_z", "W_O", "W_V"))

    def read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str] = PATTERN_KINDS) -> Reading:
        """See `HeadModel.read`."""
        cache = probed(self.module, self.on_device(tokens))
        patterns = {kind: pattern_of(cache, kind) for kind in kinds}
        return Reading(patterns, [cache["z", layer] for layer in range(self.n_layers)] if self.writes_known else [])

    def replacing(self, replace: Mapping[int, ReplaceZ]) -> AbstractContextManager[Any]:
        """Replace z at hook_z. Raises `ConfigError` for a custom attention without it."""
        for layer in replace:
            attn = self.module.layers[layer].attn
            require(
                hasattr(attn, "hook_z"),
                f"{type(attn).__name__}, the attention of layer {layer}, has no HookPoint hook_z "
                "[batch, pos, head, d_head], at which heads are ablated.",
            )
        hooks = [
            (f"blocks.{layer}.attn.hook_z", lambda z, hook, function=function: function(z))
            for layer, function in replace.items()
        ]
        return self.module.hooks(fwd_hooks=hooks)

    def output_weight(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """See `HeadModel.output_weight`."""
        return self.module.layers[layer].attn.W_O

    @property
    def unembedding(self) -> Float[Tensor, "d_model d_vocab"]:
        """See `HeadModel.unembedding`."""
        return self.module.tokens_to_residual_directions(torch.arange(self.d_vocab, device=self.device)).T

    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """See `ihlab.interp.circuits.eigenvalue_copying`."""
        return eigenvalue_copying(self.module)

    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        return self.module(tokens)
