"""Sources that finders of heads take: a run, a model of this or another library, or patterns without their model.

`opened` makes each a `HeadModel` or `Held` patterns; `attention_patterns` is all that is needed to look at them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache

from ihlab.interp.bridge import BridgedModel
from ihlab.interp.copying import direct_logits, eigenvalue_copying
from ihlab.interp.foreign import ForeignModel, Reading
from ihlab.interp.hugging_face import HuggingFaceModel
from ihlab.interp.patterns import pattern_of, probed
from ihlab.measure.probe import probe_rows
from ihlab.model.modes import evaluating
from ihlab.model.transformer import Transformer
from ihlab.training.run import Run
from tasks.config import ConfigError, require, shown

KINDS = ("raw", "effective")
"""Which key a query matches, and which token's value it reads."""

TAKEN = (
    "a Run, a Transformer, a TransformerBridge, a causal language model of transformers, or patterns: an "
    "ActivationCache, or a tensor, array or tuple [layer][batch, head, query, key] of floats"
)


@dataclass(frozen=True)
class OwnModel:
    """A `Transformer`, by its hook points; with the numbers that tools ask of any model."""

    model: Transformer

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return self.model.cfg.n_layers

    @property
    def n_heads(self) -> int:
        """The number of query heads in each layer."""
        return self.model.cfg.n_heads

    @property
    def d_vocab(self) -> int:
        """The size of the vocabulary."""
        return self.model.cfg.d_vocab

    @property
    def n_ctx(self) -> int:
        """The most positions of a row."""
        return self.model.cfg.n_ctx

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.embed.weight.device

    def probe_rows(
        self, repeats: int, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
    ) -> Int[Tensor, "rows pos"]:
        """Rows of the ids that the model was trained on, where that is known."""
        return probe_rows(self.model, repeats, rows, length, ids, seed)

    def read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str] = KINDS) -> Reading:
        """Return patterns, the effective ones with beta's gauge fixed, and every layer's z."""
        cache = probed(self.model, tokens)
        patterns = {kind: pattern_of(cache, kind) for kind in kinds}
        return Reading(patterns, [cache["z", layer] for layer in range(self.n_layers)] if self.writes_known else [])

    @property
    def writes_known(self) -> bool:
        """True if it is known what each head writes: a custom attention needs hook_z, W_O and W_V for that."""
        return all(hasattr(block.attn, name) for block in self.model.layers for name in ("hook_z", "W_O", "W_V"))

    @torch.no_grad()
    def z(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos head d_head"]]:
        """Return every layer's z. Raises `ConfigError` for a custom attention without hook_z."""
        for layer, block in enumerate(self.model.layers):
            require(
                hasattr(block.attn, "hook_z"),
                f"{type(block.attn).__name__}, the attention of layer {layer}, has no HookPoint hook_z "
                "[batch, pos, head, d_head], at which heads are ablated.",
            )
        with evaluating(self.model):
            _, cache = self.model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_z"))
        return [cache["z", layer] for layer in range(self.n_layers)]

    @torch.no_grad()
    def logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits."""
        with evaluating(self.model):
            logits: Tensor = self.model(tokens)
        return logits

    def replacing(self, replace: Mapping[int, Callable[[Tensor], Tensor]]) -> AbstractContextManager[Any]:
        """Hook functions of z at hook_z."""
        hooks = [
            (f"blocks.{layer}.attn.hook_z", lambda z, hook, function=function: function(z))
            for layer, function in replace.items()
        ]
        return self.model.hooks(fwd_hooks=hooks)

    @torch.no_grad()
    def direct_logits(
        self, layer: int, head: int, z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Unembed z W_O through the final norm's weight."""
        return direct_logits(self.model, layer, head, z)

    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """See `ihlab.interp.copying.eigenvalue_copying`."""
        return eigenvalue_copying(self.model)


HeadModel = OwnModel | ForeignModel
"""A model whose heads can be scored and ablated."""


@dataclass(frozen=True)
class Held:
    """Patterns alone, [layer, head, query, key] or with a batch axis, or the cache that they are in."""

    source: ActivationCache | Tensor

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of patterns. Of patterns alone nobody knows whether keys and values were shifted: "raw"."""
        return KINDS if isinstance(self.source, ActivationCache) else KINDS[:1]

    def patterns(self, kind: str) -> Float[Tensor, "..."]:
        """Return the patterns of a kind. Raises `ConfigError` for a cache that lacks what they need."""
        return self.source if isinstance(self.source, Tensor) else pattern_of(self.source, kind)


def opened(source: Any) -> HeadModel | Held:
    """Return what scores the heads of a source. Raises `ConfigError` for anything else, naming its type."""
    require_opened(source)
    if isinstance(source, OwnModel | ForeignModel | Held):
        return source
    source = getattr(source, "_orig_mod", source)  # of torch.compile, whose hooks do not fire
    if isinstance(source, Run):
        return OwnModel(source.model())
    if isinstance(source, Transformer):
        return OwnModel(source)
    if isinstance(source, nn.Module):
        return _foreign(source)
    if isinstance(source, ActivationCache):
        return Held(source)
    return Held(_stacked(source))


def require_opened(source: Any) -> None:
    """Raise `ConfigError` for the name or the folder of a run in place of the run."""
    if isinstance(source, str | Path):
        raise ConfigError(
            f"The source is {shown(source)}, a name: give the model, or the run that ihlab.Run.open opens."
        )


def opened_model(source: Any, wanted: str) -> HeadModel:
    """Return a source that is a model. Raises `ConfigError`, saying what is `wanted`, for patterns alone."""
    model = opened(source)
    if isinstance(model, Held):
        raise ConfigError(f"The source holds patterns alone, but {wanted}: give the model itself.")
    return model


def attention_patterns(source: Any, tokens: Any) -> Float[Tensor, "layer batch head query key"]:
    """Return every head's raw attention pattern on the given tokens, in float32 on the CPU.

    `source` is a `Run` (its last checkpoint), a `Transformer`, a TransformerLens `TransformerBridge` or a causal
    language model of transformers, which is run on the tokens in evaluation mode and left as it was; or
    precomputed patterns: an `ActivationCache`, or a tensor, array, tuple or list [layer][batch, head, query, key], also
    without the batch axis. `tokens` are ids [batch, pos], or [pos] for one row. Raises `ConfigError` for another
    source, tokens that the model cannot read, and patterns of another shape than the tokens.
    """
    model = opened(source)
    if isinstance(model, Held):
        return fitting(model.patterns("raw"), tokens)[0].float().cpu()
    ids = _as_ids(tokens)
    ids = ids[None] if ids.ndim == 1 else ids
    require(
        ids.ndim == 2 and ids.numel() > 0,
        f"The tokens have the shape {list(ids.shape)}, but must be [batch, pos], and at least one.",
    )
    return model.read(ids.to(model.device), kinds=("raw",)).patterns["raw"].float().cpu()


def fitting(
    patterns: Float[Tensor, "..."], tokens: Any
) -> tuple[Float[Tensor, "layer batch head query key"], Int[Tensor, "batch pos"]]:
    """Return patterns and tokens, both with a batch axis. Raises `ConfigError` where they do not fit each other."""
    tokens = _as_ids(tokens)
    shape, given = list(patterns.shape), list(tokens.shape)
    require(
        patterns.ndim in (4, 5),
        f"The patterns have the shape {shape}, but must be [layer, head, query, key] or "
        "[layer, batch, head, query, key].",
    )
    require(
        shape[-1] == shape[-2], f"The patterns have {shape[-2]} queries and {shape[-1]} keys: whole rows are needed."
    )
    wanted = shape[1:-3] + shape[-1:]
    if given == [shape[-1]] and wanted == [1, shape[-1]]:  # one row without its batch axis
        tokens, given = tokens[None], wanted
    if patterns.ndim == 4 and given == [1, shape[-1]]:  # one row with its batch axis
        tokens, given = tokens[0], given[1:]
    require(given == wanted, f"The tokens have the shape {given}, but patterns of shape {shape} need {wanted}.")
    if patterns.ndim == 4:
        patterns, tokens = patterns[:, None], tokens[None]
    return patterns, tokens.to(patterns.device)


def _as_ids(tokens: Any) -> Int[Tensor, "..."]:
    """Return token ids as a tensor. Raises `ConfigError` for unequal rows, and for anything that is not an id."""
    try:
        ids = tokens if isinstance(tokens, Tensor) else torch.as_tensor(np.asarray(tokens))
    except (TypeError, ValueError):
        raise ConfigError("The tokens must be ids [batch, pos]: rows of one length, of whole numbers.") from None
    whole = not ids.is_floating_point() and not ids.is_complex() and ids.dtype != torch.bool
    require(whole, f"The tokens are {ids.dtype}, but must be whole numbers.")
    return ids.long()


def _foreign(module: nn.Module) -> ForeignModel:
    """Return a model of another library; these are imported here, where one of their models is at hand anyway."""
    from transformers import PreTrainedModel

    if isinstance(module, PreTrainedModel):
        return HuggingFaceModel(module)
    from transformer_lens.model_bridge import TransformerBridge

    if isinstance(module, TransformerBridge):
        return BridgedModel(module)
    raise ConfigError(f"The source is a {type(module).__name__}, but must be {TAKEN}.")


def _stacked(source: Any) -> Float[Tensor, "..."]:
    """Return patterns as one tensor. Raises `ConfigError` for anything else, and for layers of different shapes."""
    wrong = f"The source is a {type(source).__name__}, but must be {TAKEN}."
    require(
        not isinstance(source, list | tuple) or any(layer is not None for layer in source),
        "The source holds no patterns: transformers returns them from models that were loaded with "
        "attn_implementation='eager' only. Pass the model itself, or load it so.",
    )
    if isinstance(source, list | tuple) and source:
        layers = [_stacked(layer) for layer in source] if isinstance(source[0], Tensor | np.ndarray) else []
        require(
            bool(layers), f"The source is a {type(source).__name__} of {type(source[0]).__name__}: it must be {TAKEN}."
        )
        shapes = sorted({tuple(layer.shape) for layer in layers})
        require(len(shapes) == 1, f"The layers' patterns have the shapes {', '.join(map(str, map(list, shapes)))}.")
        return torch.stack([layer.detach().cpu() for layer in layers])
    if isinstance(source, np.ndarray):
        require(source.dtype.kind == "f", f"The patterns are {source.dtype}, but must be floats.")
        return torch.from_numpy(source)
    require(isinstance(source, Tensor), wrong)
    require(source.is_floating_point(), f"The patterns are {source.dtype}, but must be floats.")
    return source.detach()
