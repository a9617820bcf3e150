"""SHA-256 of a short message, compiled: Python's own cannot be called from a kernel.

Source: FIPS 180-4. Its constants are the first 32 bits of the fractional parts of the square roots
(start values) and cube roots (round constants) of the first primes.
"""

import numba
import numpy as np

PADDING = 72  # bytes at most, after a message

_PRIMES = [n for n in range(2, 312) if all(n % k for k in range(2, n))]  # the first 64
_START = np.array([int(p ** (1 / 2) % 1 * 2**32) for p in _PRIMES[:8]], np.uint32)
_ROUND = np.array([int(p ** (1 / 3) % 1 * 2**32) for p in _PRIMES], np.uint32)


@numba.njit
def sha256_mod(message: np.ndarray, n: int, modulus: int) -> np.int64:
    """SHA-256 of the bytes `message[:n]`, as a whole number, modulo `modulus` < 2^31.

    Writes the padding after the n bytes: `message` (uint8) must have room for `PADDING` more.
    """
    n_blocks = (n + 9 + 63) // 64
    message[n] = 0x80
    message[n + 1 : 64 * n_blocks] = 0
    for i in range(8):
        message[64 * n_blocks - 1 - i] = ((8 * n) >> (8 * i)) & 0xFF
    state = _START.copy()
    schedule = np.empty(64, np.uint32)
    for block in range(n_blocks):
        _compress(message[64 * block : 64 * block + 64], state, schedule)
    rest = np.uint64(0)
    for word in state:
        rest = ((rest << np.uint64(32)) | np.uint64(word)) % np.uint64(modulus)
    return np.int64(rest)


@numba.njit
def _rotate(x: np.uint32, k: int) -> np.uint32:
    return np.uint32((x >> np.uint32(k)) | (x << np.uint32(32 - k)))


@numba.njit
def _compress(block: np.ndarray, state: np.ndarray, w: np.ndarray) -> None:
    """One round of 64 steps over a block of 64 bytes."""
    for t in range(16):
        word = np.uint32(0)
        for i in range(4):
            word = np.uint32((word << np.uint32(8)) | np.uint32(block[4 * t + i]))
        w[t] = word
    for t in range(16, 64):
        x, y = w[t - 15], w[t - 2]
        s0 = _rotate(x, 7) ^ _rotate(x, 18) ^ np.uint32(x >> np.uint32(3))
        s1 = _rotate(y, 17) ^ _rotate(y, 19) ^ np.uint32(y >> np.uint32(10))
        w[t] = np.uint32(w[t - 16] + s0 + w[t - 7] + s1)
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for t in range(64):
        s1 = _rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25)
        t1 = np.uint32(h + s1 + ((e & f) ^ (~e & g)) + _ROUND[t] + w[t])
        s0 = _rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22)
        t2 = np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c)))
        a, b, c, d, e, f, g, h = np.uint32(t1 + t2), a, b, c, np.uint32(d + t1), e, f, g
    for i, x in enumerate((a, b, c, d, e, f, g, h)):
        state[i] = np.uint32(state[i] + x)
