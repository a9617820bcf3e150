"""One attempt at drawing an iGSM problem, in numbers: steps B to J, compiled. The language comes later."""

from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import count, draw
from tasks.igsm.kernels.language import Names, Words, draw_names, no_names
from tasks.igsm.kernels.operands import Equations, draw_necessary_equations, draw_other_equations, no_equations
from tasks.igsm.kernels.order import draw_necessary, draw_order, total_cost
from tasks.igsm.kernels.solution import Solution, no_solution, solve
from tasks.igsm.kernels.structure import MOST_PARAMETERS, Limits, draw_size, draw_structure
from tasks.igsm.kernels.template import in_split

MOST_REDRAWS = 1000  # of steps C to E with one draw of step B


class Draft(NamedTuple):
    """Buffers of one problem: the equations of its instances, its solution, the names of its parameters."""

    equations: Equations
    solution: Solution
    names: Names


class Outline(NamedTuple):
    """Sizes of a draft: sentences (of the first parameters), steps, clauses; all 0 if the draw failed."""

    n_sentences: int
    n_steps: int
    n_clauses: int


@numba.njit
def no_draft() -> Draft:
    """Allocate one problem."""
    return Draft(no_equations(), no_solution(), no_names())


@numba.njit
def draw_problem(
    ops: int, test: bool, modulus: int, limits: Limits, words: Words, draft: Draft, stream: np.ndarray
) -> Outline:
    """Draw a problem of `ops` operations into `draft`. Its last step is the query's.

    Fails (see `Outline`) at a dead end, if the operations cannot be spread, and in the wrong split.
    """
    nothing = Outline(0, 0, 0)
    abstract_ops = 1 + max(draw(stream, ops), draw(stream, ops))
    necessary_ops = abstract_ops + draw(stream, ops - abstract_ops + 1)
    size = draw_size(ops, limits, stream)
    order, kept = np.empty(MOST_PARAMETERS, np.int64), np.empty(MOST_PARAMETERS, np.int64)
    redraws = 0
    structure = draw_structure(size, stream)
    necessary = draw_necessary(structure, abstract_ops, necessary_ops, stream)
    while not draw_order(structure, necessary, order, kept, stream):
        redraws += 1
        if redraws == MOST_REDRAWS:
            return nothing
        structure = draw_structure(size, stream)
        necessary = draw_necessary(structure, abstract_ops, necessary_ops, stream)

    n_steps = count(necessary)
    surplus = ops - total_cost(structure, necessary)
    if not draw_necessary_equations(structure, order, n_steps, kept, surplus, modulus, draft.equations, stream):
        return nothing
    n_clauses = solve(structure, draft.equations, order, n_steps, modulus, draft.solution)
    if not in_split(test, n_steps, n_clauses, draft.solution, structure.n_edges):
        return nothing
    draw_other_equations(structure, necessary, modulus, draft.equations, stream)
    draw_names(structure, words, draft.names, stream)
    return Outline(structure.n_edges, n_steps, n_clauses)
