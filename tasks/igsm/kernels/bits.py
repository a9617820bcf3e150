"""Sets of up to 63 numbers, stored as the bits of an int64, and random draws from them, for the kernels of iGSM.

A stream is a uint64 array of one element, the counter of tasks/random64.py; every draw advances it.
"""

import math

import numba
import numpy as np

from tasks.random64 import GOLDEN, below, mix

NONE = -1


@numba.njit
def bit(i: int) -> np.int64:
    """Return the set {i}."""
    return np.int64(1) << np.int64(i)


@numba.njit
def count(mask: int) -> np.int64:
    """Return the size of a set. LLVM compiles these sums of neighbouring bits to one instruction."""
    x = np.uint64(mask)
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit
def lowest(mask: int) -> int:
    """Return the smallest number of a non-empty set. `mask & (mask - 1)` is the set without it."""
    return count((mask & -mask) - 1)


@numba.njit
def draw(stream: np.ndarray, n: int) -> int:
    """Draw a uniform integer in [0, n)."""
    stream[0] += GOLDEN
    return below(stream[0], n)


@numba.njit
def coin(stream: np.ndarray) -> bool:
    """Draw true or false, 50:50."""
    stream[0] += GOLDEN
    return mix(stream[0]) >> np.uint64(63) == np.uint64(1)


@numba.njit
def uniform(stream: np.ndarray) -> float:
    """Draw a uniform number in (0, 1)."""
    stream[0] += GOLDEN
    return (float(mix(stream[0]) >> np.uint64(11)) + 0.5) * 2.0**-53


@numba.njit
def half_normal(stream: np.ndarray) -> float:
    """Draw from |N(0, 1)|, by Box and Muller."""
    radius = math.sqrt(-2.0 * math.log(uniform(stream)))
    return abs(radius * math.cos(2.0 * math.pi * uniform(stream)))


@numba.njit
def nth(mask: int, n: int) -> int:
    """Return the n-th smallest number of a set, from 0."""
    for _ in range(n):
        mask &= mask - 1
    return lowest(mask)


@numba.njit
def pick(mask: int, stream: np.ndarray) -> int:
    """Draw a number uniformly from a non-empty set."""
    return nth(mask, draw(stream, count(mask)))


@numba.njit
def shuffle(numbers: np.ndarray, n: int, stream: np.ndarray) -> None:
    """Shuffle the first n numbers in place (Fisher-Yates)."""
    for i in range(n - 1, 0, -1):
        j = draw(stream, i + 1)
        numbers[i], numbers[j] = numbers[j], numbers[i]
