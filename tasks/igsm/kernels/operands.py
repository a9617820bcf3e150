"""Operands of each instance of an iGSM problem, and their wording. Steps F, G and I, compiled."""

from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, bit, coin, count, draw, lowest, nth, pick, shuffle
from tasks.igsm.kernels.structure import Structure

MOST_OPERANDS = 4  # the constant included


class Equations(NamedTuple):
    """Each instance's right side: a constant, terms, or a constant with terms.

    - `n_terms` [parameter], `terms` [parameter, term]: parameters, added up;
    - `minus` [parameter]: the second of two terms is subtracted instead;
    - `constant` [parameter]: -1 where there is none. With terms it is added, where `times` multiplied.
    """

    n_terms: np.ndarray
    terms: np.ndarray
    minus: np.ndarray
    constant: np.ndarray
    times: np.ndarray


@numba.njit
def draw_necessary_equations(
    structure: Structure,
    order: np.ndarray,
    n: int,
    kept: np.ndarray,
    surplus: int,
    modulus: int,
    equations: Equations,
    stream: np.ndarray,
) -> bool:
    """Step F: draw operands for the instances among `order[:n]`, which cost `surplus` op more than the least.

    Every operand comes earlier in the order. Returns False if the surplus cannot be spread.
    """
    extra = np.zeros(n, np.int64)
    roomy = np.int64(0)  # instances that could have one operand more
    for i in range(2, n):
        if structure.level[order[i]] == 0:
            roomy |= bit(i)
    for _ in range(surplus):
        if roomy == 0:
            return False
        i = pick(roomy, stream)
        extra[i] += 1
        if extra[i] == min(i + 1, MOST_OPERANDS) - 2:
            roomy &= ~bit(i)

    earlier = np.int64(0)
    for i in range(n):
        p = order[i]
        if structure.level[p] == 0:
            n_operands = extra[i] + 2 if extra[i] else 1 + draw(stream, 2)
            n_operands = min(n_operands, i + 1, MOST_OPERANDS)
            start = np.int64(0) if kept[p] == NONE else bit(kept[p])
            draw_equation(p, n_operands, earlier, start, True, modulus, equations, stream)
        earlier |= bit(p)
    return True


@numba.njit
def draw_other_equations(
    structure: Structure, necessary: int, modulus: int, equations: Equations, stream: np.ndarray
) -> None:
    """Step G: draw operands for the instances that are not necessary, one after another in random order.

    A coin decides if an instance is independent: its operands are then drawn from earlier independent ones, otherwise
    from everything computable by then. One coin decides on the constant: if it loses, all operands are parameters (in
    step F it may still be drawn among them).
    """
    others = np.empty(structure.n_edges, np.int64)
    n = 0
    for edge in range(structure.n_edges):
        if not necessary & bit(edge):
            others[n] = edge
            n += 1
    shuffle(others, n, stream)
    independent, known = np.int64(0), necessary
    for i in range(n):
        known = _with_computable(structure, known)
        alone = coin(stream)
        pool = independent if alone else known
        n_operands = 1
        while n_operands < MOST_OPERANDS and coin(stream):
            n_operands += 1
        n_operands = min(n_operands, count(pool) + 1)
        draw_equation(others[i], n_operands, pool, np.int64(0), False, modulus, equations, stream)
        known |= bit(others[i])
        if alone:
            independent |= bit(others[i])


@numba.njit
def _with_computable(structure: Structure, known: int) -> int:
    """Return the known parameters and every abstract one that can be computed from them."""
    for p in range(structure.n_edges, structure.n_parameters):
        if structure.needs[p] & ~known == 0:
            known |= bit(p)
    return known


@numba.njit
def draw_equation(
    p: int,
    n_operands: int,
    pool: int,
    start: int,
    redrawn: bool,
    modulus: int,
    equations: Equations,
    stream: np.ndarray,
) -> None:
    """Choose `n_operands` operands from the pool and the constant, `start` among them, then the wording.

    If there are only that many to choose from, all are taken. Else the constant is one with
    probability 1/2 where `start` leaves room, and the others are uniform; with `redrawn`, a constant that lost its coin
    may still be among those.
    """
    chosen, constant = start, False
    if n_operands == count(pool) + 1:
        chosen, constant = pool, True
    else:
        left = n_operands - count(start)
        if left > 0 and coin(stream):
            constant = True
            left -= 1
        for _ in range(left):
            rest = pool & ~chosen
            n_rest = count(rest)
            i = draw(stream, n_rest + 1 if redrawn and not constant else n_rest)
            if i < n_rest:
                chosen |= bit(nth(rest, i))
            else:
                constant = True
    _word(p, chosen, constant, modulus, equations, stream)


@numba.njit
def _word(p: int, chosen: int, has_constant: bool, modulus: int, equations: Equations, stream: np.ndarray) -> None:
    """Step I: draw the order of the terms, sum or difference, the constant and its operation."""
    n = 0
    while chosen:
        equations.terms[p, n] = lowest(chosen)
        chosen &= chosen - 1
        n += 1
    shuffle(equations.terms[p], n, stream)
    equations.n_terms[p] = n
    equations.minus[p] = n == 2 and coin(stream)
    equations.times[p] = has_constant and n > 0 and coin(stream)
    if not has_constant:
        equations.constant[p] = NONE
    elif equations.times[p]:
        equations.constant[p] = 1 + draw(stream, modulus - 1)
    else:
        equations.constant[p] = draw(stream, modulus)
