"""The inner loop of Depo, the walk along a permutation, compiled."""

import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below, draw_front, put_back


@kernel
def draw_rows(
    seeds: np.ndarray, names: int, max_hops: int, n_ids: int, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of Depo (rows), one per uint64 seed. Names are among the `n_ids` ids from max_hops + 2 up.

    Returns inputs, targets (-100 where nothing is scored) and the hops of each scored position (else 0), int64
    [row, length].
    """
    inputs = np.zeros((len(seeds), length), np.int64)
    targets = np.full((len(seeds), length), IGNORE)
    hops = np.zeros((len(seeds), length), np.int64)
    name = np.empty(names, np.int64)  # name[i + 1] is the successor of name[i]
    order, swaps = np.arange(names), np.empty(names, np.int64)

    for row in range(len(seeds)):
        state = seeds[row]
        drawn = 0
        while drawn < names:
            state += GOLDEN  # unused: names once had a random length, and sequences must stay those of stored runs
            state += GOLDEN
            name[drawn] = max_hops + 2 + below(state, n_ids)
            if not (name[:drawn] == name[drawn]).any():
                drawn += 1

        inputs[row, 0] = max_hops + 1
        t = 1
        state = draw_front(order, swaps, state)
        for i in order:
            inputs[row, t], inputs[row, t + 1] = name[i], name[(i + 1) % names]
            t += 2
        put_back(order, swaps)

        state = draw_front(order, swaps, state)
        for i in order:
            if t + 3 > length:
                break
            state += GOLDEN
            k = 1 + below(state, max_hops)
            answer = name[(i + k) % names]
            inputs[row, t], inputs[row, t + 1], inputs[row, t + 2] = k, name[i], answer
            targets[row, t + 1], hops[row, t + 1] = answer, k
            t += 3
        put_back(order, swaps)
    return inputs, targets, hops
