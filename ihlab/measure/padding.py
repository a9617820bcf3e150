"""Move batches and patterns so that padding comes last in every sequence."""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.model.lens.padding import Mask, in_order, padded_right, real_first
from tasks import Batch


def moved_batch(batch: Batch, real: Mask | None) -> tuple[Batch, Mask | None]:
    """Return a batch and its mask with every sequence's real tokens first. Losses and accuracies do
    not change.
    """
    if real is None or padded_right(real):
        return batch, real
    order = real_first(real)
    index = order.cpu().numpy()

    def moved(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, index, axis=1) if values.ndim == 2 else values

    groups = {name: moved(values) for name, values in batch.groups.items()}
    return Batch(moved(batch.inputs), moved(batch.targets), moved(batch.answers), groups), in_order(
        real, order, 1
    )


def moved_patterns(
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch pos"],
    real: Mask | None,
) -> tuple[Float[Tensor, "layer batch head query key"], Int[Tensor, "batch pos"], Mask | None]:
    """Return patterns, tokens and mask with each sequence's real tokens first. Attention from and
    to padding is 0.
    """
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
    """Return patterns with attention from and to padding set to 0, even if it is NaN."""
    if real is None:
        return patterns
    return patterns.masked_fill(
        ~(real[:, :, None] & real[:, None, :])[:, None].to(patterns.device), 0
    )
