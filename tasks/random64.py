"""A 64-bit random stream for numba kernels: each sequence is a pure function of its own seed.

numba does not notice changes of this file in its cached kernels: after one, delete `tasks/kernels/__pycache__` and
`tasks/igsm/kernels/__pycache__`.
"""

import numba
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(inline="always")
def mix(state: np.uint64) -> np.uint64:
    """Return SplitMix64's output for one value of its counter (Steele, Lea and Flood 2014)."""
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(inline="always")
def below(state: np.uint64, n: int) -> np.int64:
    """Map a 64-bit number to an integer in [0, n), n < 2^31. The bias of multiply-and-shift is below n / 2^32."""
    return np.int64(((mix(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@numba.njit(inline="always")
def draw_front(ids: np.ndarray, swaps: np.ndarray, state: np.uint64) -> np.uint64:
    """Move random distinct ids, one per swap, to the front (Fisher-Yates). Return the random state after the draws."""
    for i in range(len(swaps)):
        state += GOLDEN
        j = i + below(state, len(ids) - i)
        ids[i], ids[j] = ids[j], ids[i]
        swaps[i] = j
    return state


@numba.njit(inline="always")
def put_back(ids: np.ndarray, swaps: np.ndarray) -> None:
    """Restore the order of the ids before `draw_front`."""
    for i in range(len(swaps) - 1, -1, -1):
        j = swaps[i]
        ids[i], ids[j] = ids[j], ids[i]
