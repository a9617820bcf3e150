"""The steps of a solution: clauses of two operands, with their values. Compiled.

A clause defines a symbol, which has the clause's number. A step is the clauses of one parameter, and
its last clause defines the parameter.
"""

from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, count, lowest
from tasks.igsm.kernels.operands import Equations
from tasks.igsm.kernels.structure import Structure

MOST_CLAUSES = 52  # one letter each
SET, COPY, ADD, SUBTRACT, MULTIPLY = range(5)  # v = 5, v = a, v = a + b, v = a - b, v = a * b


class Solution(NamedTuple):
    """A solution as arrays of steps and clauses.

    - `parameter` [step]: what the step defines; `end` [step]: the clause after its last;
    - `symbol` [parameter]: the clause that defines it;
    - `operation` [clause]: one of SET .. MULTIPLY; `left` and `right` [clause]: its operands, symbols.
      If `left` is -1, the operand is the constant `number` [clause];
    - `value` [clause]: its result, below `modulus`.
    """

    parameter: np.ndarray
    end: np.ndarray
    symbol: np.ndarray
    operation: np.ndarray
    left: np.ndarray
    right: np.ndarray
    number: np.ndarray
    value: np.ndarray
    modulus: int


@numba.njit
def solve(
    structure: Structure,
    equations: Equations,
    order: np.ndarray,
    n: int,
    solution: Solution,
) -> int:
    """Write the steps of `order[:n]` into `solution`, and return the number of clauses."""
    end = 0
    for step in range(n):
        parameter = order[step]
        if structure.level[parameter] == 0:
            end = solve_instance(parameter, equations, end, solution)
        else:
            end = _solve_abstract(parameter, structure, end, solution)
        close_step(step, parameter, end, solution)
    return end


@numba.njit
def close_step(step: int, parameter: int, end: int, solution: Solution) -> None:
    """Record that step number `step` defines `parameter` and ends before clause `end`."""
    solution.parameter[step], solution.end[step] = parameter, end
    solution.symbol[parameter] = end - 1


@numba.njit
def solve_instance(parameter: int, equations: Equations, end: int, solution: Solution) -> int:
    """Write clauses from `end` on: the terms from left to right, then the constant. Returns the new end."""
    n, constant = equations.n_terms[parameter], equations.constant[parameter]
    if n == 0:
        return _clause(SET, NONE, NONE, constant, end, solution)
    result = solution.symbol[equations.terms[parameter, 0]]
    if n == 1 and constant == NONE:
        return _clause(COPY, result, NONE, NONE, end, solution)
    for j in range(1, n):
        operation = SUBTRACT if equations.minus[parameter] else ADD
        right = solution.symbol[equations.terms[parameter, j]]
        end = _clause(operation, result, right, NONE, end, solution)
        result = end - 1
    if constant != NONE:
        operation = MULTIPLY if equations.times[parameter] else ADD
        end = _clause(operation, NONE, result, constant, end, solution)
    return end


@numba.njit
def _solve_abstract(parameter: int, structure: Structure, end: int, solution: Solution) -> int:
    """Write clauses of A(x,g): the products I(x,y) A(y,g-1) if g > 1, then their sum. Returns the new end."""
    x, g = structure.owner[parameter], structure.level[parameter]
    edges = structure.needs[structure.abstract[x, 1]]
    if edges == 0:
        return _clause(SET, NONE, NONE, 0, end, solution)
    summands = np.empty(count(edges), np.int64)
    n = 0
    while edges:
        edge = lowest(edges)
        edges &= edges - 1
        summands[n] = solution.symbol[edge]
        if g > 1:
            under = solution.symbol[structure.abstract[structure.child[edge], g - 1]]
            end = _clause(MULTIPLY, summands[n], under, NONE, end, solution)
            summands[n] = end - 1
        n += 1
    if n == 1 and g == 1:
        return _clause(COPY, summands[0], NONE, NONE, end, solution)
    result = summands[0]
    for j in range(1, n):
        end = _clause(ADD, result, summands[j], NONE, end, solution)
        result = end - 1
    return end


@numba.njit
def _clause(
    operation: int, left: int, right: int, number: int, end: int, solution: Solution
) -> int:
    """Write clause `end` with its value, and return the end after it."""
    solution.operation[end], solution.left[end], solution.right[end] = operation, left, right
    solution.number[end] = number
    a = number if left == NONE else solution.value[left]
    if operation == ADD:
        a += solution.value[right]
    elif operation == SUBTRACT:
        a -= solution.value[right]
    elif operation == MULTIPLY:
        a *= solution.value[right]
    solution.value[end] = a % solution.modulus
    return end + 1
