"""Batches and patterns moved so that every row's padding comes last."""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.model.padding import Mask, in_order, padded_right, real_first
from tasks import Batch


def moved_batch(batch: Batch, real: Mask | None) -> tuple[Batch, Mask | None]:
    """Return a batch and its mask with every row's real tokens first. Losses and accuracies are the same."""
    if real is None or padded_right(real):
        return batch, real
    order = real_first(real)
    index = order.cpu().numpy()

    def moved(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, index, axis=1) if values.ndim == 2 else values

    groups = {name: moved(values) for name, values in batch.groups.items()}
    return Batch(moved(batch.inputs), moved(batch.targets), moved(batch.answers), groups), in_order(real, order, 1)


def moved_patterns(
    patterns: Float[Tensor, "layer batch head query key"], tokens: Int[Tensor, "batch pos"], real: Mask | None
) -> tuple[Float[Tensor, "layer batch head query key"], Int[Tensor, "batch pos"], Mask | None]:
    """Return patterns, tokens and mask with every row's real tokens first, and no attention from or to padding."""
    if real is None:
        return patterns, tokens, None
    if not padded_right(real):
        order = real_first(real)
        patterns = in_order(in_order(patterns, order, 3, 1), order, 4, 1)
        tokens, real = in_order(tokens, order, 1), in_order(real, order, 1)
    return without_padding(patterns, real), tokens, real


def without_padding(
    patterns: Float[Tensor, "layer batch head query key"], real: Mask | None
) -> Float[Tensor, "layer batch head query key"]:
    """Return patterns with no attention from or to padding, whatever stands there, NaN too."""
    if real is None:
        return patterns
    return patterns.masked_fill(~(real[:, :, None] & real[:, None, :])[:, None].to(patterns.device), 0)
