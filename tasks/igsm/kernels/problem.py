"""One attempt at drawing an iGSM problem as arrays (steps B to J), compiled. `kernels.rows` writes its tokens (step K).

Flat problems have no hierarchy. Four owners have 1 to 3 items each. The solution's order is random. Each
parameter depends on 0 to 3 earlier ones, all numbers equally likely: 0 is a constant, 1 is `r more than` or `r times`
(2 : 1), 2 is a sum or difference, 3 is a sum. Constants are U{1 .. modulus - 1}. Any parameter may be the query; the
solution computes them all.

Source of flat problems: github.com/kaminocode/iGSM, which the KV paper names. The distribution is the same, except that
our grammar has no products of parameters and no differences of three. "r less than" there is "modulus - r more than".
"""

from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, bit, coin, count, draw, pick, shuffle
from tasks.igsm.kernels.language import Names, Words, draw_names
from tasks.igsm.kernels.operands import (
    MOST_OPERANDS,
    Equations,
    draw_necessary_equations,
    draw_other_equations,
)
from tasks.igsm.kernels.order import draw_necessary, draw_order, total_cost
from tasks.igsm.kernels.solution import MOST_CLAUSES, Solution, close_step, solve, solve_instance
from tasks.igsm.kernels.split import in_split
from tasks.igsm.kernels.structure import MOST_PARAMETERS, Limits, draw_size, draw_structure

MOST_REDRAWS = 1000  # redraws of steps C to E per draw of step B

FLAT_OWNERS, MOST_OWNED, MOST_DEPENDENCIES = 4, 3, 3


class Draft(NamedTuple):
    """Buffers of one problem: the equations of its instances, its solution, the names of its parameters."""

    equations: Equations
    solution: Solution
    names: Names


class Outline(NamedTuple):
    """Number of sentences, steps and clauses of a draft. All are 0 if the draw failed."""

    n_sentences: int
    n_steps: int
    n_clauses: int


@numba.njit
def no_draft(modulus: int) -> Draft:
    """Allocate the buffers of one problem."""
    ints, flags = np.empty((7, MOST_PARAMETERS), np.int64), np.empty((2, MOST_PARAMETERS), np.bool_)
    terms = np.empty((MOST_PARAMETERS, MOST_OPERANDS), np.int64)
    clauses = np.empty((5, MOST_CLAUSES), np.int64)
    equations = Equations(ints[0], terms, flags[0], ints[1], flags[1], modulus)
    steps = ints[2], ints[3], ints[4]
    solution = Solution(*steps, clauses[0], clauses[1], clauses[2], clauses[3], clauses[4], modulus)
    return Draft(equations, solution, Names(ints[5], ints[6]))


@numba.njit
def draw_problem(
    ops: int,
    test: bool,
    limits: Limits,
    words: Words,
    draft: Draft,
    stream: np.ndarray,
) -> Outline:
    """Draw a problem of `ops` operations into `draft`. Its last step computes the query.

    Fails (see `Outline`) at a dead end, if the operations cannot be distributed, or if it is in the other split.
    """
    nothing = Outline(0, 0, 0)
    abstract_ops = 1 + max(draw(stream, ops), draw(stream, ops))
    necessary_ops = abstract_ops + draw(stream, ops - abstract_ops + 1)
    size = draw_size(ops, limits, stream)
    order, required = np.empty(MOST_PARAMETERS, np.int64), np.empty(MOST_PARAMETERS, np.int64)
    redraws = 0
    structure = draw_structure(size, stream)
    necessary = draw_necessary(structure, abstract_ops, necessary_ops, stream)
    while not draw_order(structure, necessary, order, required, stream):
        redraws += 1
        if redraws == MOST_REDRAWS:
            return nothing
        structure = draw_structure(size, stream)
        necessary = draw_necessary(structure, abstract_ops, necessary_ops, stream)

    n_steps = count(necessary)
    surplus = ops - total_cost(structure, necessary)
    if not draw_necessary_equations(
        structure, order, n_steps, required, surplus, draft.equations, stream
    ):
        return nothing
    n_clauses = solve(structure, draft.equations, order, n_steps, draft.solution)
    if not in_split(test, n_steps, n_clauses, draft.solution, structure.n_edges):
        return nothing
    draw_other_equations(structure, necessary, draft.equations, stream)
    draw_names(structure, words, draft.names, stream)
    return Outline(structure.n_edges, n_steps, n_clauses)


@numba.njit
def draw_flat_problem(test: bool, words: Words, draft: Draft, stream: np.ndarray) -> Outline:
    """Draw a problem without hierarchy into `draft`. Fails, with an outline of 0s, in the wrong split."""
    n = _draw_flat_names(words, draft, stream)
    order = np.arange(n)
    shuffle(order, n, stream)
    earlier, n_clauses = np.int64(0), 0
    for step in range(n):
        parameter = order[step]
        _draw_flat_equation(parameter, step, earlier, draft, stream)
        n_clauses = solve_instance(parameter, draft.equations, n_clauses, draft.solution)
        close_step(step, parameter, n_clauses, draft.solution)
        earlier |= bit(parameter)
    if not in_split(test, n, n_clauses, draft.solution, MOST_PARAMETERS):
        return Outline(0, 0, 0)
    return Outline(n, n, n_clauses)


@numba.njit
def _draw_flat_equation(
    parameter: int, n_earlier: int, earlier: int, draft: Draft, stream: np.ndarray
) -> None:
    """Draw dependencies among the earlier parameters of the solution, then the wording."""
    equations = draft.equations
    n = draw(stream, min(MOST_DEPENDENCIES, n_earlier) + 1)
    for j in range(n):
        equations.terms[parameter, j] = pick(earlier, stream)
        earlier &= ~bit(equations.terms[parameter, j])
    equations.n_terms[parameter] = n
    equations.minus[parameter] = n == 2 and coin(stream)
    equations.times[parameter] = n == 1 and draw(stream, 3) == 0
    equations.constant[parameter] = 1 + draw(stream, equations.modulus - 1) if n < 2 else NONE


@numba.njit
def _draw_flat_names(words: Words, draft: Draft, stream: np.ndarray) -> int:
    """Draw owners from one pool and their items from a pool of the next category. Returns the number of parameters."""
    category = 4 * draw(stream, words.domains) + draw(stream, 3)
    first, second = category * words.pools, (category + 1) * words.pools
    owners = words.noun + (first + draw(stream, words.pools)) * words.pool_size
    items = words.noun + (second + draw(stream, words.pools)) * words.pool_size
    everything = bit(words.pool_size) - 1
    n, unused_owners = 0, everything
    for _ in range(FLAT_OWNERS):
        owner = pick(unused_owners, stream)
        unused_owners &= ~bit(owner)
        unused_items = everything
        for _ in range(1 + draw(stream, MOST_OWNED)):
            item = pick(unused_items, stream)
            unused_items &= ~bit(item)
            draft.names.x[n], draft.names.y[n] = owners + owner, items + item
            n += 1
    return n
