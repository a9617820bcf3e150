"""The inner loop of Depo, the walk along a permutation, compiled."""

import numba
import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below, draw_front, put_back


@kernel
def draw_rows(
    seeds: np.ndarray,
    names: int,
    max_hops: int,
    inner: int,
    endings: int,
    shortest: int,
    longest: int,
    length: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of Depo (rows), one per uint64 seed.

    A name has `shortest` .. `longest` tokens: the last is one of `endings`, the others are of `inner`. Returns inputs,
    targets (-100 where nothing is scored) and the hops of each scored position (else 0), int64 [row, length].
    """
    inputs = np.zeros((len(seeds), length), np.int64)
    targets = np.full((len(seeds), length), IGNORE)
    hops = np.zeros((len(seeds), length), np.int64)
    name = np.zeros((names, longest), np.int64)  # name i + 1 is the successor of name i
    size = np.empty(names, np.int64)
    order, swaps = np.arange(names), np.empty(names, np.int64)
    first_inner = max_hops + 2

    for row in range(len(seeds)):
        state = seeds[row]
        drawn = 0
        while drawn < names:
            state += GOLDEN
            size[drawn] = shortest + below(state, longest - shortest + 1)
            for place in range(size[drawn]):
                state += GOLDEN
                last = place == size[drawn] - 1
                name[drawn, place] = first_inner + (inner + below(state, endings) if last else below(state, inner))
            if _is_new(name, size, drawn):
                drawn += 1

        inputs[row, 0] = max_hops + 1
        t = 1
        state = draw_front(order, swaps, state)
        for i in order:
            t = _write(inputs[row], t, name[i, : size[i]])
            after = (i + 1) % names
            t = _write(inputs[row], t, name[after, : size[after]])
        put_back(order, swaps)

        state = draw_front(order, swaps, state)
        for i in order:
            state += GOLDEN
            k = 1 + below(state, max_hops)
            answer = (i + k) % names
            if t + 1 + size[i] + size[answer] > length:
                break
            inputs[row, t] = k
            t = _write(inputs[row], t + 1, name[i, : size[i]])
            for token in name[answer, : size[answer]]:
                targets[row, t - 1], hops[row, t - 1], inputs[row, t] = token, k, token
                t += 1
        put_back(order, swaps)
    return inputs, targets, hops


@numba.njit(inline="always")
def _is_new(name: np.ndarray, size: np.ndarray, drawn: int) -> bool:
    """Return whether name number `drawn` differs from all before it."""
    for other in range(drawn):
        if size[other] == size[drawn]:
            same = 0
            while same < size[drawn] and name[other, same] == name[drawn, same]:
                same += 1
            if same == size[drawn]:
                return False
    return True


@numba.njit(inline="always")
def _write(row: np.ndarray, t: int, tokens: np.ndarray) -> int:
    """Write tokens from position t on, and return the position after them."""
    for token in tokens:
        row[t] = token
        t += 1
    return t
