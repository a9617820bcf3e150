"""Train or test split of a problem, by a hash of its solution without names, numbers and letters. Compiled.

The template of a solution is its compact text without spaces, in which I stands for the name of an
instance, A for the name of an abstract parameter, 0 for every number, and a, b, c, ... for the letters in
the order of their first use:

    Ia;a=0.Ib;b=0*a=0*0=0.Ac;d=a+b=0+0=0;c=d+b=0+0=0.

Its SHA-256, as an integer modulo 23, decides the split: 0 .. 15 is train, 16 .. 22 is test. With fewer than 3
clauses there are too few templates, so the whole sequence is hashed.
"""

import hashlib

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE
from tasks.igsm.kernels.solution import ADD, COPY, MOST_CLAUSES, SET, Solution

FEW_OPS = 3
BUCKETS = 23
TRAIN_BUCKETS = 16
ROOM = 1024  # at least 52 steps of 3 characters and 52 clauses of 12

_SIGNS = np.array(
    [ord("+"), ord("-"), ord("*")]
)  # in the order of the operations ADD, SUBTRACT, MULTIPLY


@numba.njit
def in_split(test: bool, n_steps: int, n_clauses: int, solution: Solution, n_edges: int) -> bool:
    """Return whether a solution is in the split, by its template. Parameters below `n_edges` are instances.

    Returns True for fewer than 3 clauses, because `row_in_split` decides there.
    """
    if n_clauses < FEW_OPS:
        return True
    return _is_test(template(n_steps, solution, n_edges)) == test


@numba.njit
def row_in_split(test: bool, n_clauses: int, ids: np.ndarray, n: int) -> bool:
    """Return whether a row with fewer than 3 clauses is in the split, by its first n ids. True for more clauses.

    The ids are hashed as two bytes each, the high one first.
    """
    if n_clauses >= FEW_OPS:
        return True
    return _is_test(ids[:n].astype(np.uint16)) == test


@numba.njit
def template(n_steps: int, solution: Solution, n_edges: int) -> np.ndarray:
    """Return the template in ASCII."""
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
    return text[:n]


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
def _is_test(numbers: np.ndarray) -> bool:
    """Return whether a message is in the test split. Its numbers are hashed as big-endian bytes."""
    with numba.objmode(bucket="int64"):  # numba cannot compile hashlib
        message = numbers.astype(numbers.dtype.newbyteorder(">")).tobytes()
        bucket = int(hashlib.sha256(message).hexdigest(), 16) % BUCKETS
    return bucket >= TRAIN_BUCKETS
