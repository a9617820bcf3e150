"""Train or test split of a problem, by a hash of its solution without names, numbers and letters. Compiled.

The template of a solution is its compact text without spaces, in which I stands for the name of an
instance, A for the name of an abstract parameter, 0 for every number, and a, b, c, ... for the letters in
the order of their first use:

    Ia;a=0.Ib;b=0*a=0*0=0.Ac;d=a+b=0+0=0;c=d+b=0+0=0.

Its SHA-256, as an integer modulo 23, decides the split: 0 .. 15 is train, 16 .. 22 is test. With fewer than 3
clauses there are too few templates, so the whole sequence is hashed.
"""

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE
from tasks.igsm.kernels.solution import ADD, COPY, MOST_CLAUSES, SET, Solution

FEW_OPS = 3
BUCKETS = 23
TRAIN_BUCKETS = 16
ROOM = 1024  # 52 steps of 3 characters and 52 clauses of 12, and the padding
PADDING = 72  # maximum number of padding bytes after a hashed message

_SIGNS = np.array(
    [ord("+"), ord("-"), ord("*")]
)  # in the order of the operations ADD, SUBTRACT, MULTIPLY

# The first 32 bits of the fractional parts of the square roots and cube roots of the first primes.
_PRIMES = [n for n in range(2, 312) if all(n % k for k in range(2, n))]  # the first 64
_START = np.array([int(prime ** (1 / 2) % 1 * 2**32) for prime in _PRIMES[:8]], np.uint32)
_ROUND = np.array([int(prime ** (1 / 3) % 1 * 2**32) for prime in _PRIMES], np.uint32)


@numba.njit
def in_split(test: bool, n_steps: int, n_clauses: int, solution: Solution, n_edges: int) -> bool:
    """Return whether a solution is in the split, by its template. Parameters below `n_edges` are instances.

    Returns True for fewer than 3 clauses, because `row_in_split` decides there.
    """
    if n_clauses < FEW_OPS:
        return True
    text, n = template(n_steps, solution, n_edges)
    return (sha256_mod(text, n, BUCKETS) >= TRAIN_BUCKETS) == test


@numba.njit
def row_in_split(test: bool, n_clauses: int, ids: np.ndarray, n: int) -> bool:
    """Return whether a row with fewer than 3 clauses is in the split, by its first n ids. True for more clauses.

    The ids are hashed as two bytes each, the high one first.
    """
    if n_clauses >= FEW_OPS:
        return True
    message = np.empty(2 * n + PADDING, np.uint8)
    for i in range(n):
        message[2 * i], message[2 * i + 1] = ids[i] >> 8, ids[i] & 0xFF
    return (sha256_mod(message, 2 * n, BUCKETS) >= TRAIN_BUCKETS) == test


@numba.njit
def template(n_steps: int, solution: Solution, n_edges: int) -> tuple[np.ndarray, int]:
    """Return the template in ASCII, in a uint8 array with room for the padding, and its length."""
    text = np.empty(ROOM, np.uint8)
    letter = np.full(MOST_CLAUSES, NONE)  # symbol -> its letter in ASCII, by first use
    n, clause, n_letters = 0, 0, 0
    for step in range(n_steps):
        last = solution.end[step] - 1
        letter[last] = _letter(n_letters)
        n_letters += 1
        n = _put(
            text, n, (ord("I") if solution.parameter[step] < n_edges else ord("A"), letter[last])
        )
        while clause <= last:
            if letter[clause] == NONE:
                letter[clause] = _letter(n_letters)
                n_letters += 1
            n = _put(text, n, (ord(";"), letter[clause], ord("=")))
            n = _put_right_side(clause, solution, letter, text, n)
            clause += 1
        n = _put(text, n, (ord("."),))
    return text, n


@numba.njit
def _put_right_side(
    clause: int, solution: Solution, letter: np.ndarray, text: np.ndarray, n: int
) -> int:
    """Write the right side of a clause, after its first =, from n on. Returns its end."""
    operation, left = solution.operation[clause], solution.left[clause]
    zero, equal = ord("0"), ord("=")
    if operation == SET:
        return _put(text, n, (zero,))
    first = zero if left == NONE else letter[left]
    if operation == COPY:
        return _put(text, n, (first, equal, zero))
    sign = _SIGNS[operation - ADD]
    second = letter[solution.right[clause]]
    return _put(text, n, (first, sign, second, equal, zero, sign, zero, equal, zero))


@numba.njit
def _put(text: np.ndarray, n: int, characters: tuple[int, ...]) -> int:
    for character in characters:
        text[n] = character
        n += 1
    return n


@numba.njit
def _letter(i: int) -> int:
    return ord("a") + i if i < 26 else ord("A") + i - 26


@numba.njit
def sha256_mod(message: np.ndarray, n: int, modulus: int) -> np.int64:
    """Return the SHA-256 of the bytes `message[:n]`, as an integer modulo `modulus` < 2^31 (FIPS 180-4).

    A kernel cannot call hashlib. This writes the padding after the n bytes: `message` (uint8) must have room for
    `PADDING` more.
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
    """Add a block of 64 bytes to the state, in 64 steps."""
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
