"""Encode a page's numbers as short text, and choose what fits on the page."""

import base64
import gzip
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ihlab.training.config import even_choice
from tasks.config import ConfigError

Sizes = Sequence[Sequence[int]]
"""Number of characters of each sequence at each step, [row][step]."""


def packed(array: np.ndarray) -> str:
    """Return an array's bytes, gzipped, in base64."""
    return base64.b64encode(gzip.compress(array.tobytes(), mtime=0)).decode()  # no time stamp: reproducible


def quantised(panels: Float[np.ndarray, "*panel query key"], causal: bool = True) -> str:
    """Quantise lower triangles (whole squares if not `causal`) to one byte per entry, each query on its own scale.

        x[q, k] = low[q] + (high[q] - low[q]) level[q, k] / 255,  queries one after another.

    A value read back is off by at most (high[q] - low[q]) / 510, plus float32 rounding; the smallest and
    largest value of a query are exact. The result is `packed`: low and high (float32 [*panel, n] each, little-endian),
    then levels (uint8 [*panel, n (n + 1) / 2], or [*panel, n n]).
    """
    n = panels.shape[-1]
    query, key = np.tril_indices(n) if causal else np.indices((n, n)).reshape(2, -1)
    entries = panels[..., query, key].astype(np.float32)
    starts = np.flatnonzero(key == 0)
    low = np.minimum.reduceat(entries, starts, axis=-1)
    high = np.maximum.reduceat(entries, starts, axis=-1)
    span = np.where(high > low, high - low, 1)[..., query]
    levels = np.rint((entries - low[..., query]) / span * 255).astype(np.uint8)
    arrays = low.astype("<f4"), high.astype("<f4"), levels
    return packed(np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays]))


def what_fits(base: Sizes, routes: Sizes, most: int) -> tuple[bool, int, list[int]]:
    """Return what fits in `most` characters: whether key routes fit, how many sequences, and which steps, by index.

    `base` holds the sizes without key routes, `routes` those of key routes. Key routes are left out first. Then
    sequences are left out, from the last one, then checkpoints, as evenly as possible, until only the last one remains.
    Raises `ConfigError` if the first sequence at the last step does not fit.
    """
    every, n_rows = list(range(len(base[0]))), len(base)

    def size(sizes: Sizes, rows: int, steps: list[int]) -> int:
        return sum(row[step] for row in sizes[:rows] for step in steps)

    if size(base, n_rows, every) + size(routes, n_rows, every) <= most:
        return True, n_rows, every
    choices = [(rows, every) for rows in range(n_rows, 0, -1)]
    choices += [(1, even_choice(every, count)) for count in range(len(every) - 1, 1, -1)] + [(1, every[-1:])]
    for rows, steps in choices:
        if size(base, rows, steps) <= most:
            return False, rows, steps
    raise ConfigError(
        f"The patterns of one sequence need {base[0][-1] / 1e6:.1f} MB, and the page has room for {most / 1e6:.1f}: "
        "show "
        "fewer tokens, layers or heads, or allow more with `megabytes` (--megabytes)."
    )
