"""Train or test split of a problem: a hash of its solution without names, numbers and letters. Compiled.

The template of a solution is its compact text without spaces, in which I stands for the name of an
instance, A for that of an abstract parameter, 0 for every number, and a, b, c, ... for the letters in the
order of their first use:

    Ia;a=0.Ib;b=0*a=0*0=0.Ac;d=a+b=0+0=0;c=d+b=0+0=0.

Its SHA-256, as a whole number modulo 23, decides the split: 0 .. 15 is train, 16 .. 22 is test. With fewer than 3
clauses there are too few templates, and the whole row is hashed.
"""

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE
from tasks.igsm.kernels.sha256 import PADDING, sha256_mod
from tasks.igsm.kernels.solution import ADD, COPY, MOST_CLAUSES, SET, SUBTRACT, Solution

FEW_OPS = 3
BUCKETS = 23
TRAIN_BUCKETS = 16
ROOM = 1024  # 52 steps of 3 characters and 52 clauses of 12, and the padding


@numba.njit
def in_split(test: bool, n_steps: int, n_clauses: int, solution: Solution, n_edges: int) -> bool:
    """Return whether a solution is of the split, by its template. Parameters below `n_edges` are instances.

    True for fewer than 3 clauses: `row_in_split` decides.
    """
    if n_clauses < FEW_OPS:
        return True
    text, n = template(n_steps, solution, n_edges)
    return (sha256_mod(text, n, BUCKETS) >= TRAIN_BUCKETS) == test


@numba.njit
def row_in_split(test: bool, n_clauses: int, ids: np.ndarray, n: int) -> bool:
    """Return whether a row with fewer than 3 clauses is of the split, by its first n ids. True for more clauses.

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
    letter = np.full(MOST_CLAUSES, NONE)  # symbol -> its number by first use
    n, clause, n_letters = 0, 0, 0
    for step in range(n_steps):
        text[n] = ord("I") if solution.parameter[step] < n_edges else ord("A")
        last = solution.end[step] - 1
        letter[last] = n_letters
        n_letters += 1
        text[n + 1] = _letter(letter[last])
        n += 2
        while clause <= last:
            if letter[clause] == NONE:
                letter[clause] = n_letters
                n_letters += 1
            text[n], text[n + 1], text[n + 2] = ord(";"), _letter(letter[clause]), ord("=")
            n = _right_side(clause, solution, letter, text, n + 3)
            clause += 1
        text[n] = ord(".")
        n += 1
    return text, n


@numba.njit
def _right_side(clause: int, solution: Solution, letter: np.ndarray, text: np.ndarray, n: int) -> int:
    """Write the right side of a clause, after its first =, from n on. Returns its end."""
    operation, left = solution.operation[clause], solution.left[clause]
    if operation == SET:
        text[n] = ord("0")
        return n + 1
    text[n] = ord("0") if left == NONE else _letter(letter[left])
    if operation == COPY:
        text[n + 1], text[n + 2] = ord("="), ord("0")
        return n + 3
    sign = ord("+") if operation == ADD else ord("-") if operation == SUBTRACT else ord("*")
    text[n + 1], text[n + 2], text[n + 3] = sign, _letter(letter[solution.right[clause]]), ord("=")
    text[n + 4], text[n + 5], text[n + 6] = ord("0"), sign, ord("0")
    text[n + 7], text[n + 8] = ord("="), ord("0")
    return n + 9


@numba.njit
def _letter(i: int) -> int:
    """Return the i-th of a .. z, A .. Z in ASCII."""
    return ord("a") + i if i < 26 else ord("A") + i - 26
