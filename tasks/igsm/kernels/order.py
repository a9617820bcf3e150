"""Necessary parameters of a solution, and the order in which it computes them. Steps D and E of iGSM, compiled."""

import math

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, bit, count, half_normal, lowest, pick, uniform
from tasks.igsm.kernels.structure import Structure


@numba.njit
def draw_necessary(
    structure: Structure, abstract_ops: int, ops: int, stream: np.ndarray
) -> np.int64:
    """Step D: draw parameters and all that they need, which cost `ops` operations if the structure allows.

    Up to `abstract_ops` operations go to abstract parameters, of a high level if this budget allows, and to what they
    need. The rest are instance parameters.
    """
    budget = min(abstract_ops, _available(structure))
    necessary, spent = np.int64(0), 0
    while budget > 0:
        best, price = np.int64(0), 0
        for g in range(1, structure.n_layers):
            unchosen = np.int64(0)
            for parameter in range(structure.n_edges, structure.n_parameters):
                if structure.level[parameter] == g and not necessary & bit(parameter):
                    unchosen |= bit(parameter)
            if unchosen == 0:
                continue
            added = structure.closure[pick(unchosen, stream)] & ~necessary
            cost = total_cost(structure, added)
            if cost > budget:
                break
            best, price = added, cost
        if best == 0:
            break
        necessary |= best
        budget -= price
        spent += price
    while spent < ops:
        unchosen = (bit(structure.n_edges) - 1) & ~necessary
        if unchosen == 0:
            break
        necessary |= bit(pick(unchosen, stream))
        spent += 1
    return necessary


@numba.njit
def _available(structure: Structure) -> int:
    """Return the minimum number of operations of all instances and all abstract parameters with children."""
    total = structure.n_edges
    for x in range(structure.n_items):
        levels = structure.n_layers - structure.layer[x] - 1
        if levels > 0:
            n_children = count(structure.needs[structure.abstract[x, 1]])
            total += max(n_children - 1, min(n_children, 1)) + max(2 * n_children - 1, 0) * (
                levels - 1
            )
    return total


@numba.njit
def total_cost(structure: Structure, parameters: int) -> int:
    """Return the minimum number of operations of a set of parameters."""
    total = 0
    while parameters:
        total += structure.cost[lowest(parameters)]
        parameters &= parameters - 1
    return total


@numba.njit
def draw_order(
    structure: Structure,
    necessary: int,
    order: np.ndarray,
    required: np.ndarray,
    stream: np.ndarray,
) -> bool:
    """Step E: order the necessary parameters from the last, the query, to the first.

    Fills `order` [index] and `required` [parameter], an operand that the parameter must have so that
    everything is necessary for the query (-1 if there is none). Returns False at a dead end.
    """
    often, bias = uniform(stream), math.exp(half_normal(stream))
    abstract = necessary & ~(bit(structure.n_edges) - 1)
    out_degree = np.zeros(
        structure.n_parameters, np.int64
    )  # number of remaining parameters that need it
    free = necessary  # remaining parameters that no remaining one needs
    rest = abstract
    while rest:
        needed = structure.needs[lowest(rest)]
        rest &= rest - 1
        free &= ~needed
        while needed:
            out_degree[lowest(needed)] += 1
            needed &= needed - 1

    remaining, stack = necessary, np.int64(0)
    candidates = free
    for place in range(count(necessary) - 1, -1, -1):
        if candidates == 0:
            return False
        parameter = pick(candidates, stream)
        order[place] = parameter
        required[parameter] = NONE
        remaining &= ~bit(parameter)
        free &= ~bit(parameter)
        stack &= ~bit(parameter)
        if structure.level[parameter] > 0:
            stack |= structure.needs[parameter]
            needed = structure.needs[parameter]
            while needed:
                u = lowest(needed)
                needed &= needed - 1
                out_degree[u] -= 1
                if out_degree[u] == 0:
                    free |= bit(u)
        elif remaining:
            must = free & stack == 0
            if uniform(stream) < often or must:
                required[parameter] = draw_weighted(
                    free if must else remaining, abstract, stack, bias, stream
                )
                stack |= bit(required[parameter])
        candidates = free & stack
    return True


@numba.njit
def draw_weighted(pool: int, abstract: int, stack: int, bias: float, stream: np.ndarray) -> int:
    """Draw from the pool with weight 1, times `bias` if abstract, and times `bias` if not on the stack."""
    once, twice = (abstract & stack) | (~abstract & ~stack), abstract & ~stack
    none = ~abstract & stack
    once, twice, none = once & pool, twice & pool, none & pool
    left = uniform(stream) * (count(none) + count(once) * bias + count(twice) * bias * bias)
    if none and left < count(none):
        return pick(none, stream)
    left -= count(none)
    if once and (left < count(once) * bias or twice == 0):
        return pick(once, stream)
    return pick(twice if twice else none, stream)
