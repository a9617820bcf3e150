"""The inner loop of the n-gram task, compiled."""

import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below


@kernel
def draw_rows(seeds: np.ndarray, table: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of n-grams uniformly from `table` [entry, order], one row per uint64 seed.

    Returns inputs and targets int64 [row, length]: an n-gram's last token where it is next, -100 elsewhere.
    """
    n_entries, order = table.shape
    inputs = np.empty((len(seeds), length), np.int64)
    targets = np.full((len(seeds), length), IGNORE)
    for row in range(len(seeds)):
        state = seeds[row]
        for start in range(0, length, order):
            state += GOLDEN
            entry = below(state, n_entries)
            for i in range(min(order, length - start)):
                inputs[row, start + i] = table[entry, i]
            if start + order - 2 < length:
                targets[row, start + order - 2] = table[entry, order - 1]
    return inputs, targets
