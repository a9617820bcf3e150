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
    - `constant` [parameter]: -1 if there is no constant. It is added to the terms, or multiplied if `times`;
    - `modulus`: constants are below it.
    """

    n_terms: np.ndarray
    terms: np.ndarray
    minus: np.ndarray
    constant: np.ndarray
    times: np.ndarray
    modulus: int


@numba.njit
def draw_necessary_equations(
    structure: Structure,
    order: np.ndarray,
    n: int,
    required: np.ndarray,
    surplus: int,
    equations: Equations,
    stream: np.ndarray,
) -> bool:
    """Step F: draw operands for the instances among `order[:n]`, at `surplus` operations above the minimum.

    Every operand comes earlier in the order. Returns False if the surplus cannot be distributed.
    """
    extra = np.zeros(n, np.int64)
    roomy = np.int64(0)  # instances that could have one more operand
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
        parameter = order[i]
        if structure.level[parameter] == 0:
            n_operands = extra[i] + 2 if extra[i] else 1 + draw(stream, 2)
            n_operands = min(n_operands, i + 1, MOST_OPERANDS)
            start = np.int64(0) if required[parameter] == NONE else bit(required[parameter])
            draw_equation(parameter, n_operands, earlier, start, True, equations, stream)
        earlier |= bit(parameter)
    return True


@numba.njit
def draw_other_equations(
    structure: Structure, necessary: int, equations: Equations, stream: np.ndarray
) -> None:
    """Step G: draw operands for the instances that are not necessary, one after another in random order.

    A coin decides whether an instance is independent of the necessary ones. If so, its operands are drawn from earlier
    independent ones, otherwise from everything computable by then. Another coin decides whether it has a constant. If
    not, all operands are parameters (in step F, the constant may still be drawn among them).
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
        draw_equation(others[i], n_operands, pool, np.int64(0), False, equations, stream)
        known |= bit(others[i])
        if alone:
            independent |= bit(others[i])


@numba.njit
def _with_computable(structure: Structure, known: int) -> int:
    """Return the known parameters and every abstract one that can be computed from them."""
    for parameter in range(structure.n_edges, structure.n_parameters):
        if structure.needs[parameter] & ~known == 0:
            known |= bit(parameter)
    return known


@numba.njit
def draw_equation(
    parameter: int,
    n_operands: int,
    pool: int,
    start: int,
    redrawn: bool,
    equations: Equations,
    stream: np.ndarray,
) -> None:
    """Draw `n_operands` operands from the pool and the constant, including `start`, then the wording.

    If there are only `n_operands` to choose from, all are taken. Otherwise the constant is included with
    probability 1/2 if `start` leaves room, and the other operands are uniform. With `redrawn`, a constant that was not
    included can still be drawn among these.
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
            with_constant = redrawn and not constant
            i = draw(stream, n_rest + with_constant)
            if i < n_rest:
                chosen |= bit(nth(rest, i))
            else:
                constant = True
    _word(parameter, chosen, constant, equations, stream)


@numba.njit
def _word(
    parameter: int,
    chosen: int,
    has_constant: bool,
    equations: Equations,
    stream: np.ndarray,
) -> None:
    """Step I: draw the order of the terms, sum or difference, and the constant with its operation."""
    n = 0
    while chosen:
        equations.terms[parameter, n] = lowest(chosen)
        chosen &= chosen - 1
        n += 1
    shuffle(equations.terms[parameter], n, stream)
    equations.n_terms[parameter] = n
    equations.minus[parameter] = n == 2 and coin(stream)
    equations.times[parameter] = has_constant and n > 0 and coin(stream)
    if not has_constant:
        equations.constant[parameter] = NONE
    elif equations.times[parameter]:
        equations.constant[parameter] = 1 + draw(stream, equations.modulus - 1)
    else:
        equations.constant[parameter] = draw(stream, equations.modulus)
