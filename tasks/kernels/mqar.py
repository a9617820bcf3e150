"""The inner loop of multi-query associative recall, compiled."""

import math

import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below, draw_front, mix, put_back


@kernel
def draw_rows(
    seeds: np.ndarray,
    weights: np.ndarray,
    pairs: int,
    value_gap: int,
    vocab_size: int,
    length: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of multi-query associative recall (rows), one per uint64 seed.

    `weights` float64 [slot]: relative probability of a query at each slot after the pairs; a value stands
    `value_gap` positions after its key. Returns inputs and targets int64 [row, length], -100 at positions that are not
    scored, and the gaps int64 [row, length] of the queries (1 for the first slot), 0 elsewhere.
    """
    inputs = np.zeros((len(seeds), length), np.int64)
    targets = np.full((len(seeds), length), IGNORE)
    gaps = np.zeros((len(seeds), length), np.int64)
    keys = np.arange(
        1, vocab_size // 2
    )  # a row moves its keys to the front, and puts them back afterwards
    values = np.arange(vocab_size // 2, vocab_size)
    key_swaps, value_swaps = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    arrival = np.empty(len(weights))
    n_front = pairs * (1 + value_gap)

    for row in range(len(seeds)):
        state = seeds[row]
        state = draw_front(keys, key_swaps, state)
        state = draw_front(values, value_swaps, state)
        # Slots arrive after exponential times of rates `weights`. The order of arrival is that of weighted
        # draws without replacement (Efraimidis and Spirakis 2006).
        for slot in range(len(weights)):
            state += GOLDEN
            uniform = float(mix(state) >> np.uint64(11)) * 2.0**-53
            arrival[slot] = -math.log1p(-uniform) / weights[slot]
        slots = np.argsort(arrival)
        for t in range(length):
            if t >= n_front or 0 < t % (1 + value_gap) < value_gap:
                state += GOLDEN
                inputs[row, t] = below(state, vocab_size)
        for pair in range(pairs):
            t = n_front + 2 * slots[pair]
            inputs[row, (1 + value_gap) * pair] = keys[pair]
            inputs[row, (1 + value_gap) * pair + value_gap] = values[pair]
            inputs[row, t], targets[row, t] = keys[pair], values[pair]
            gaps[row, t] = slots[pair] + 1
        put_back(keys, key_swaps)
        put_back(values, value_swaps)
    return inputs, targets, gaps
