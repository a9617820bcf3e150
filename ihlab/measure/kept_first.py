"""The inner loop of `ihlab.measure.gathered.query_positions`, compiled: every training step asks for it."""

import numpy as np

from tasks.compiled import kernel


@kernel
def kept_first(kept: np.ndarray, n: int) -> np.ndarray:
    """Return n positions of each row, int64 [row, n]: those kept, in order, and then the first that are not.

    `kept` is bool [row, pos], with at most n of a row kept. It is a stable argsort of ~kept, without sorting.
    """
    n_rows, length = kept.shape
    places = np.empty((n_rows, n), np.int64)
    for row in range(n_rows):
        place = 0
        for t in range(length):
            if kept[row, t]:
                places[row, place] = t
                place += 1
        for t in range(length):
            if place == n:
                break
            if not kept[row, t]:
                places[row, place] = t
                place += 1
    return places
