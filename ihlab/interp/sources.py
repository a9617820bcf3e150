"""Sources of heads: a run, a model of this or another library, or attention patterns without their model.

`opened` turns each into a `HeadModel` or `GivenPatterns`. To look at patterns only, use `attention_patterns`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache

from ihlab.interp.causal import hidden_queries, require_causal
from ihlab.interp.head_model import PATTERN_KINDS, HeadModel, OurModel
from ihlab.interp.outside import BridgedModel, OutsideModel
from ihlab.interp.patterns import pattern_of
from ihlab.measure.padding import without_padding
from ihlab.measure.probe import padding_id
from ihlab.model.padding import Mask, mask_of
from ihlab.model.token_ids import token_ids, token_rows
from ihlab.model.transformer import Transformer
from ihlab.training.run import Run
from tasks.config import ConfigError, require, shown

TAKEN = (
    "a Run, a Transformer, a TransformerBridge, a Hugging Face causal LM, or patterns: an ActivationCache, or a "
    "tensor, array or tuple [layer][batch, head, query, key] of floats"
)


@dataclass(frozen=True)
class GivenPatterns:
    """Patterns without a model: [layer, head, query, key], with an optional batch axis after layer, or a cache."""

    source: ActivationCache | Tensor

    def on(
        self, tokens: Any, attention_mask: Any = None, kinds: Sequence[str] | None = None, scored: bool = True
    ) -> tuple[dict[str, Float[Tensor, "layer batch head query key"]], Int[Tensor, "batch pos"], Mask | None]:
        """Return the patterns by kind, their tokens, and which tokens are not padding (None: all).

        Without a mask, padding is inferred from the patterns (`hidden_queries`) or from the cached model's task. Raises
        `ConfigError` for patterns that do not fit the tokens and, if `scored`, for patterns that are not those of a
        causal model.
        """
        raw, ids = with_batch_axis(self.patterns("raw"), tokens)
        model = None if isinstance(self.source, Tensor) else self.source.model
        ours = isinstance(model, Transformer)
        real = mask_of(ids, attention_mask, padding_id(model) if isinstance(model, Transformer) else None)
        real = hidden_queries(raw) if real is None and not ours else real
        if scored:
            require_causal(raw, real, probabilities=not ours)
        wanted = self.kinds if kinds is None else kinds
        found = {kind: raw if kind == "raw" else with_batch_axis(self.patterns(kind), ids)[0] for kind in wanted}
        return found, ids, real

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of patterns: only "raw", unless a cache says whether keys and values were shifted."""
        return PATTERN_KINDS if isinstance(self.source, ActivationCache) else PATTERN_KINDS[:1]

    def patterns(self, kind: str) -> Float[Tensor, "..."]:
        """Return the patterns of a kind. Raises `ConfigError` for a cache that lacks what they need."""
        return self.source if isinstance(self.source, Tensor) else pattern_of(self.source, kind)


def opened(source: Any, prepend_bos: bool | None = None) -> HeadModel | GivenPatterns:
    """Return the `HeadModel` or `GivenPatterns` of a source. Raises `ConfigError` for other types, naming the type.

    `prepend_bos`: probes begin with the beginning-of-sequence token (True), do not (False), or follow the model's task
    or the tokenizer stored with the model (None).
    """
    require_opened(source)
    source = getattr(source, "_orig_mod", source)  # a torch.compile wrapper, whose hooks do not fire
    if isinstance(source, HeadModel | GivenPatterns):
        return source
    if isinstance(source, Run):
        return OurModel(source.model(), prepend_bos)
    if isinstance(source, Transformer):
        return OurModel(source, prepend_bos)
    if isinstance(source, nn.Module):
        return _outside(source, prepend_bos)
    return GivenPatterns(source if isinstance(source, ActivationCache) else _stacked(source))


def require_opened(source: Any) -> None:
    """Raise `ConfigError` if given the name or folder of a run instead of the run."""
    if isinstance(source, str | Path):
        raise ConfigError(
            f"The source is {shown(source)}, a name: give the model, or the run that ihlab.Run.open opens."
        )


def opened_model(source: Any, wanted: str = "a model is needed", prepend_bos: bool | None = None) -> HeadModel:
    """Return the `HeadModel` of a source. Raises `ConfigError` for patterns alone, with the reason `wanted`."""
    model = opened(source, prepend_bos)
    if isinstance(model, GivenPatterns):
        raise ConfigError(f"The source holds patterns alone, but {wanted}: give the model itself.")
    return model


def attention_patterns(
    source: Any, tokens: Any, attention_mask: Any = None
) -> Float[Tensor, "layer batch head query key"]:
    """Return every head's raw attention pattern on the given tokens, in float32 on the CPU.

    `source` is a `Run` (its last checkpoint), a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face
    causal LM, which is run on the tokens; or precomputed patterns: an `ActivationCache`, or a tensor, array, tuple or
    list [layer][batch, head, query, key], with or without the batch axis. `tokens` are ids [batch, pos], or [pos] for
    one sequence. `attention_mask` [batch, pos] is 1 at tokens and 0 at padding. Attention to and from padding is 0.
    Raises `ConfigError` for another source, for tokens that the model cannot read, and for patterns that do not fit the
    tokens.
    """
    model = opened(source)
    if isinstance(model, GivenPatterns):
        found, ids, real = model.on(tokens, attention_mask, ("raw",), scored=False)
        return without_padding(found["raw"], real).float().cpu()
    ids = token_rows(tokens).long()
    require(ids.numel() > 0, f"The tokens have the shape {list(ids.shape)}, but must be at least one.")
    return model.read(ids, ("raw",), attention_mask).patterns["raw"].float().cpu()


def with_batch_axis(
    patterns: Float[Tensor, "..."], tokens: Any
) -> tuple[Float[Tensor, "layer batch head query key"], Int[Tensor, "batch pos"]]:
    """Return patterns and tokens, both with a batch axis. Raises `ConfigError` if they do not match."""
    tokens = token_ids(tokens).long()
    shape, given = list(patterns.shape), list(tokens.shape)
    require(
        patterns.ndim in (4, 5),
        f"The patterns have the shape {shape}, but must be [layer, head, query, key] or "
        "[layer, batch, head, query, key].",
    )
    require(
        shape[-1] == shape[-2],
        f"The patterns have {shape[-2]} queries and {shape[-1]} keys, but must have equally many: of all positions.",
    )
    require(patterns.numel() > 0, f"The patterns have the shape {shape}: they hold nothing.")
    one, wanted = [1, shape[-1]], shape[1:-3] + shape[-1:]
    fits = given == wanted or (given == one[1:] and wanted == one) or (given == one and patterns.ndim == 4)
    require(fits, f"The tokens have the shape {given}, but patterns of shape {shape} need {wanted}.")
    patterns = patterns[:, None] if patterns.ndim == 4 else patterns
    return patterns, tokens.reshape(-1, shape[-1]).to(patterns.device)


def _outside(module: nn.Module, prepend_bos: bool | None) -> OutsideModel:
    """Wrap a model of another library. The libraries are imported here, because importing them takes seconds."""
    from transformers import PreTrainedModel

    if isinstance(module, PreTrainedModel):
        return OutsideModel(module, prepend_bos)
    from transformer_lens.model_bridge import TransformerBridge

    if isinstance(module, TransformerBridge):
        return BridgedModel(module, prepend_bos)
    raise ConfigError(f"The source is a {type(module).__name__}, but must be {TAKEN}.")


def _stacked(source: Any) -> Float[Tensor, "..."]:
    """Return patterns as one tensor. Raises `ConfigError` for anything else, and for layers of different shapes."""
    kind = type(source).__name__
    if isinstance(source, list | tuple):
        require(
            any(layer is not None for layer in source),
            "The source holds no patterns: transformers returns them from models that were loaded with "
            "attn_implementation='eager' only. Pass the model itself, or load it so.",
        )
        first = source[0]
        require(
            isinstance(first, Tensor | np.ndarray),
            f"The source is a {kind} of {type(first).__name__}: it must be {TAKEN}.",
        )
        layers = [_stacked(layer) for layer in source]
        shapes = sorted({tuple(layer.shape) for layer in layers})
        require(len(shapes) == 1, f"The layers' patterns have the shapes {', '.join(map(str, map(list, shapes)))}.")
        return torch.stack([layer.cpu() for layer in layers])
    require(isinstance(source, Tensor | np.ndarray), f"The source is a {kind}, but must be {TAKEN}.")
    floats = source.dtype.kind == "f" if isinstance(source, np.ndarray) else source.is_floating_point()
    require(floats, f"The patterns are {source.dtype}, but must be floats.")
    return torch.from_numpy(source) if isinstance(source, np.ndarray) else source.detach()
