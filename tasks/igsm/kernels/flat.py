"""Problems without hierarchy, as the public re-implementation of iGSM that the KV paper names draws them. Compiled.

Four owners have 1 to 3 items each. In the solution's order, which is random, each parameter depends on up to 3 of
the earlier ones, all numbers of them equally likely: none makes it a constant, one a constant more or times (2 : 1),
two a sum or difference, three a sum. Constants are U{1 .. modulus - 1}. Any parameter may be the query; the
solution computes them all.

Source: github.com/kaminocode/iGSM, whose law this is, but for products of parameters and differences of
three, which our grammar does not have; "r less than" is there "modulus - r more than".
"""

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, bit, coin, draw, pick, shuffle
from tasks.igsm.kernels.language import Words
from tasks.igsm.kernels.problem import Draft, Outline
from tasks.igsm.kernels.solution import close_step, solve_instance
from tasks.igsm.kernels.structure import MOST_PARAMETERS
from tasks.igsm.kernels.template import in_split

OWNERS = 4
MOST_OWNED = 3
MOST_DEPENDENCIES = 3


@numba.njit
def draw_flat_problem(test: bool, modulus: int, words: Words, draft: Draft, stream: np.ndarray) -> Outline:
    """Draw a problem into `draft`. Fails, with an outline of 0s, in the wrong split."""
    n = _draw_flat_names(words, draft, stream)
    order = np.arange(n)
    shuffle(order, n, stream)
    earlier, n_clauses = np.int64(0), 0
    for step in range(n):
        p = order[step]
        _draw_flat_equation(p, step, earlier, modulus, draft, stream)
        n_clauses = solve_instance(p, draft.equations, n_clauses, modulus, draft.solution)
        close_step(step, p, n_clauses, draft.solution)
        earlier |= bit(p)
    if not in_split(test, n, n_clauses, draft.solution, MOST_PARAMETERS):
        return Outline(0, 0, 0)
    return Outline(n, n, n_clauses)


@numba.njit
def _draw_flat_equation(p: int, n_earlier: int, earlier: int, modulus: int, draft: Draft, stream: np.ndarray) -> None:
    """Draw dependencies, among the earlier parameters of the solution, and the wording."""
    equations = draft.equations
    n = draw(stream, min(MOST_DEPENDENCIES, n_earlier) + 1)
    for j in range(n):
        equations.terms[p, j] = pick(earlier, stream)
        earlier &= ~bit(equations.terms[p, j])
    equations.n_terms[p] = n
    equations.minus[p] = n == 2 and coin(stream)
    equations.times[p] = n == 1 and draw(stream, 3) == 0
    equations.constant[p] = 1 + draw(stream, modulus - 1) if n < 2 else NONE


@numba.njit
def _draw_flat_names(words: Words, draft: Draft, stream: np.ndarray) -> int:
    """Draw owners of one pool, and their items of a pool of the next category. Returns the number of parameters."""
    category = 4 * draw(stream, words.domains) + draw(stream, 3)
    owners = words.noun + (category * words.pools + draw(stream, words.pools)) * words.pool_size
    items = words.noun + ((category + 1) * words.pools + draw(stream, words.pools)) * words.pool_size
    everything = bit(words.pool_size) - 1
    n, unused_owners = 0, everything
    for _ in range(OWNERS):
        owner = pick(unused_owners, stream)
        unused_owners &= ~bit(owner)
        unused_items = everything
        for _ in range(1 + draw(stream, MOST_OWNED)):
            item = pick(unused_items, stream)
            unused_items &= ~bit(item)
            draft.names.x[n], draft.names.y[n] = owners + owner, items + item
            n += 1
    return n
