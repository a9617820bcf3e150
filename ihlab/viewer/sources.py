"""Attention patterns of whatever a researcher holds: the one place at which a source that is no run is opened."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tasks.config import require, shown


def attention_patterns(source: Any, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "layer batch head query key"]:
    """Return the patterns of every layer on rows of tokens.

    `source`: a tensor or array [layer, batch, head, query, key] or [layer, head, query, key], or a list or tuple with
    one of [batch, head, query, key] or [head, query, key] for each layer, as Hugging Face's `attentions`. Raises
    `ConfigError` for other types and shapes, and patterns that do not fit the tokens.
    """
    if isinstance(source, list | tuple) and source:
        layers = [_as_floats(layer) for layer in source]
        shapes = [list(layer.shape) for layer in layers]
        wrong = [shape for shape in shapes if shape != shapes[0]]
        require(not wrong, f"The layers' patterns differ in shape, {shapes[0]} and {wrong and wrong[0]}.")
        patterns = torch.stack(layers)
    else:
        patterns = _as_floats(source)
    shape = list(patterns.shape)
    if patterns.ndim == 4:
        patterns = patterns[:, None]
    require(
        patterns.ndim == 5 and shape[-1] == shape[-2] and 0 not in shape,
        f"The patterns have the shape {shape}, but must be [head, query, key], [layer, head, query, key] or "
        "[layer, batch, head, query, key], with as many queries as keys.",
    )
    rows, positions = tokens.shape
    require(
        patterns.shape[1] == rows and shape[-1] == positions,
        f"The patterns are of {patterns.shape[1]} rows of {shape[-1]} tokens (shape {shape}), but tokens has {rows} "
        f"of {positions}.",
    )
    return patterns


def _as_floats(source: Any) -> Tensor:
    require(
        isinstance(source, Tensor | np.ndarray),
        f"The source is {shown(source)} ({type(source).__name__}), but must be a Run, a Transformer, an "
        "ActivationCache, or attention patterns: a tensor, an array or a list of them, one a layer.",
    )
    if isinstance(source, np.ndarray):
        require(source.dtype.kind in "fiub", f"The patterns are {source.dtype}, but must be numbers.")
        source = torch.from_numpy(np.ascontiguousarray(source))
    require(not source.is_complex(), f"The patterns are {source.dtype}, but must be real numbers.")
    return source.detach().to("cpu", torch.float32)
