"""Encode a page's numbers as short text, and choose what fits on the page."""

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ihlab.training.config import even_choice
from tasks.config import ConfigError

Sizes = Sequence[Sequence[int]]
"""Number of characters of each sequence at each step, [row][step]."""


def packed(array: np.ndarray) -> str:
    """Return an array's bytes, gzipped, in base64."""
    return base64.b64encode(
        gzip.compress(array.tobytes(), mtime=0)
    ).decode()  # no time stamp: reproducible


def number_or_none(values: Float[np.ndarray, "*n"]) -> list[Any]:
    """Return numbers as nested lists for JSON, which has no NaN: None stands for it."""
    numbers = values.astype(object)
    numbers[np.isnan(values)] = None
    return numbers.tolist()


def quantised(panels: Float[np.ndarray, "*panel query key"], causal: bool = True) -> str:
    """Quantise lower triangles (whole squares if not `causal`) to one byte per entry, each query on
    its own scale.

        x[q, k] = low[q] + (high[q] - low[q]) level[q, k] / 255,  queries one after another.

    A value read back is off by at most (high[q] - low[q]) / 510, plus float32 rounding; the
    smallest and largest value of a query are exact. The result is `packed`: low and high (float32
    [*panel, n] each, little-endian), then levels (uint8 [*panel, n (n + 1) / 2] if
    `causal`, else [*panel, n^2]).
    """
    n = panels.shape[-1]
    query, key = np.indices((n, n)).reshape(2, -1)
    if causal:
        query, key = np.tril_indices(n)
    entries = panels[..., query, key].astype(np.float32)
    starts = np.flatnonzero(key == 0)
    low = np.minimum.reduceat(entries, starts, axis=-1)
    high = np.maximum.reduceat(entries, starts, axis=-1)
    span = np.where(high > low, high - low, 1)[..., query]
    levels = np.rint((entries - low[..., query]) / span * 255).astype(np.uint8)
    ends = np.stack([low, high]).astype("<f4")
    return packed(np.concatenate([ends.reshape(-1).view(np.uint8), levels.reshape(-1)]))


def what_fits(base: Sizes, routes: Sizes, most: int) -> tuple[bool, int, list[int]]:
    """Return what fits in `most` characters: whether key routes fit, how many sequences, and which
    steps, by index.

    `base`: sizes without key routes (`ihlab.interp.routes`); `routes`: those of key routes alone.
    Key routes are left out first. Then sequences are left out, from the last one, then checkpoints,
    as evenly as possible, until only the last one remains. Raises `ConfigError` if the first
    sequence at the last step does not fit.
    """
    sizes, of_routes = np.array(base), np.array(routes)
    n_rows, n_steps = sizes.shape
    every = list(range(n_steps))
    if sizes.sum() + of_routes.sum() <= most:
        return True, n_rows, every
    choices = [(rows, every) for rows in range(n_rows, 0, -1)]
    choices += [(1, even_choice(every, count)) for count in range(n_steps - 1, 1, -1)]
    for rows, steps in [*choices, (1, every[-1:])]:
        if sizes[:rows, steps].sum() <= most:
            return False, rows, steps
    raise ConfigError(
        f"The patterns of one sequence need {base[0][-1] / 1e6:.1f} MB, and the page has room for {most / 1e6:.1f}: "
        "show fewer tokens, layers or heads, or allow more with `megabytes` (--megabytes)."
    )
