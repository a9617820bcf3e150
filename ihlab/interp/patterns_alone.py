"""Attention patterns given without a model: pair them with tokens, and check that they are those of
a causal model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.head_model import PATTERN_KINDS
from ihlab.interp.patterns import patterns_of_kind
from ihlab.measure.probe import padding_id
from ihlab.model.lens.padding import Mask, mask_of
from ihlab.model.lens.token_ids import token_ids
from ihlab.model.transformer import Transformer
from tasks.config import ConfigError, require

TAKEN = (
    "a Run, a Transformer, a TransformerBridge, a Hugging Face causal LM, or patterns: an ActivationCache, or a "
    "tensor, array or tuple [layer][batch, head, query, key] of floats"
)

LATER_MOST = 1e-3
"""Largest attention to later tokens that still counts as causal: in half precision, masked keys get
a little weight.
"""

SUM_ERROR = 0.02
"""Largest allowed distance of a query's attention sum from 1: bfloat16 rounds each probability by
up to 1/256.
"""


@dataclass(frozen=True)
class PatternsAlone:
    """Patterns without a model: [layer, head, query, key], with an optional batch axis after layer,
    or a cache.
    """

    source: ActivationCache | Tensor

    def on(
        self,
        tokens: Any,
        attention_mask: Any = None,
        kinds: Sequence[str] | None = None,
        scored: bool = True,
    ) -> tuple[
        dict[str, Float[Tensor, "layer batch head query key"]],
        Int[Tensor, "batch pos"],
        Mask | None,
    ]:
        """Return the patterns by kind, their tokens, and which tokens are not padding (None: all).

        Without a mask, padding is recognised by the padding id of the model whose cache it is.
        Raises `ConfigError` for patterns that do not fit the tokens and, if `scored`, for patterns
        that are not those of a causal model.
        """
        raw, ids = with_batch_axis(self.patterns("raw"), tokens)
        model = getattr(self.source, "model", None)
        padding = None
        if isinstance(model, Transformer):
            padding = padding_id(model)
        real = mask_of(ids, attention_mask, padding)
        if scored:
            require_causal(raw, real, probabilities=not isinstance(model, Transformer))
        patterns = {
            kind: with_batch_axis(self.patterns(kind), ids)[0] for kind in kinds or self.kinds
        }
        return patterns, ids, real

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of patterns: only "raw", unless a cache says whether keys and values were
        shifted.
        """
        return PATTERN_KINDS if isinstance(self.source, ActivationCache) else PATTERN_KINDS[:1]

    def patterns(self, kind: str) -> Float[Tensor, "..."]:
        """Return the patterns of a kind. Raises `ConfigError` for a cache without the activations
        that they need.
        """
        return (
            self.source if isinstance(self.source, Tensor) else patterns_of_kind(self.source, kind)
        )


def stacked(source: Any) -> Float[Tensor, "..."]:
    """Return patterns as one tensor. Raises `ConfigError` for anything else, and for layers of
    different shapes.
    """
    if isinstance(source, list | tuple):
        require(
            len(source) > 0 and source[0] is not None,
            "The source holds no patterns: transformers returns them from models that were loaded with "
            "attn_implementation='eager' only. Pass the model itself, or load it so.",
        )
        layers = [stacked(layer) for layer in source]
        shapes = sorted({tuple(layer.shape) for layer in layers})
        require(
            len(shapes) == 1,
            f"The layers' patterns have the shapes {', '.join(map(str, map(list, shapes)))}, but must have one.",
        )
        return torch.stack([layer.cpu() for layer in layers])
    require(
        isinstance(source, Tensor | np.ndarray),
        f"The source is a {type(source).__name__}, but must be {TAKEN}.",
    )
    patterns = torch.as_tensor(source).detach()
    require(patterns.is_floating_point(), f"The patterns are {patterns.dtype}, but must be floats.")
    return patterns


def with_batch_axis(
    patterns: Float[Tensor, "..."], tokens: Any
) -> tuple[Float[Tensor, "layer batch head query key"], Int[Tensor, "batch pos"]]:
    """Return patterns and tokens, both with a batch axis. Raises `ConfigError` if they do not
    match.
    """
    tokens = token_ids(tokens).long()
    shape, of_tokens = list(patterns.shape), list(tokens.shape)
    require(
        patterns.ndim in (4, 5),
        f"The patterns have the shape {shape}, but must be [layer, head, query, key] or "
        "[layer, batch, head, query, key].",
    )
    require(
        shape[-1] == shape[-2],
        f"The patterns have {shape[-2]} queries and {shape[-1]} keys, but must have the same number of both.",
    )
    require(patterns.numel() > 0, f"The patterns have the shape {shape}: they are empty.")
    if patterns.ndim == 4:
        patterns = patterns[:, None]
    wanted = [patterns.shape[1], shape[-1]]
    require(
        list(torch.atleast_2d(tokens).shape) == wanted,
        f"The tokens have the shape {of_tokens}, but patterns of shape {shape} need {wanted}.",
    )
    return patterns, torch.atleast_2d(tokens).to(patterns.device)


def require_causal(
    patterns: Float[Tensor, "layer batch head query key"],
    real: Mask | None,
    probabilities: bool = True,
) -> None:
    """Raise `ConfigError` unless each query's attention to its own and earlier keys sums to 1.

    Padding queries (False in `real`) may hold anything, but no token may attend to padding. If
    `probabilities` is False, any finite numbers are accepted. A query may also attend to nothing,
    like the first query under a strict mask.
    """
    if real is not None:
        patterns = patterns.masked_fill(~real.to(patterns.device)[:, None, :, None], 0)
    _refuse(
        ~patterns.isfinite().all(dim=-1),
        "is not finite",
        "give attention_mask if that query is padding, else run the model in float32",
    )
    wide = patterns.float()
    _refuse(
        wide.abs().triu(1).sum(dim=-1) >= LATER_MOST,
        "attends to later tokens",
        "heads are scored in causal language models only, patterns must be [query, key], and padding needs "
        "attention_mask",
    )
    if not probabilities:
        return
    sums = wide.sum(dim=-1)
    _refuse(
        ((sums - 1).abs() > SUM_ERROR) & (sums != 0),
        "does not sum to 1",
        "give patterns after the softmax, of a model in evaluation mode",
    )
    _refuse(
        (wide < -SUM_ERROR).any(dim=-1),
        "holds negative numbers",
        "give patterns, not the scores before the softmax",
    )
    if real is not None:
        to_padding = wide.masked_fill(real.to(wide.device)[:, None, None, :], 0).sum(dim=-1)
        _refuse(
            to_padding > SUM_ERROR,
            "attends to padding",
            "run the model with the same attention_mask",
        )


def _refuse(wrong: Bool[Tensor, "layer batch head query"], what: str, instead: str) -> None:
    """Raise `ConfigError` for the first query where `wrong` is true, saying what is wrong and what
    to do instead.
    """
    for layer, row, head, query in wrong.nonzero()[:1].tolist():
        raise ConfigError(
            f"The pattern of head {layer}.{head} {what} at query {query} of sequence {row}: {instead}."
        )
