"""The structure graph of an iGSM problem and its parameters. Steps B and C, compiled.

Items are in layers (categories), numbered layer by layer from the top. An edge x -> y leads to the
next layer. Parameters are numbered too: first the instances I(x,y), one per edge, then the abstract
A(x,g), the items of category layer(x) + g under x.

Source: Ye et al. 2024, arXiv 2407.20311.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import bit, count, draw, lowest, pick, uniform

MOST_ITEMS = 16  # 4 layers of 4
MOST_PARAMETERS = 52  # 28 instances; 4 items per layer with 3, 2, 1 and 0 levels below them


class Limits(NamedTuple):
    """Limits of a structure: edges, layers (2 .. most_layers), items per layer (2 .. most_width)."""

    most_edges: int
    most_layers: int
    most_width: int


class Size(NamedTuple):
    """Draws of step B: number of layers, smallest and largest width, number of edges, probability of more items."""

    n_layers: int
    least_width: int
    most_width: int
    n_edges: int
    widen: float


class Structure(NamedTuple):
    """A structure graph as arrays of items, edges and parameters.

    - `layer` [item], `parent` and `child` [edge]: items;
    - `owner` [parameter]: x of I(x,y) and A(x,g); `level` [parameter]: g, or 0 for an instance;
    - `needs` [parameter]: the set of parameters that an abstract one is computed from (empty for an instance);
    - `closure` [parameter]: itself and all that it needs, directly or indirectly;
    - `cost` [parameter]: its number of operations; for an instance the minimum, 1;
    - `abstract` [item, g]: the number of A(x,g).
    """

    n_layers: int
    n_items: int
    n_edges: int
    n_parameters: int
    layer: np.ndarray
    parent: np.ndarray
    child: np.ndarray
    owner: np.ndarray
    level: np.ndarray
    needs: np.ndarray
    closure: np.ndarray
    cost: np.ndarray
    abstract: np.ndarray


@numba.njit
def draw_size(ops: int, limits: Limits, stream: np.ndarray) -> Size:
    """Step B: draw the size. More operations give more and wider layers."""
    difficulty = (ops - 1) / (limits.most_edges - 1)
    n_layers = _two_to(limits.most_layers, difficulty, stream)
    a = _two_to(limits.most_width, difficulty, stream)
    b = _two_to(limits.most_width, difficulty, stream)
    least_width, most_width = min(a, b), max(a, b)
    fewest = (n_layers - 1) * least_width
    more = limits.most_edges - fewest + 1
    n_edges = fewest + min(draw(stream, more), draw(stream, more))
    n_edges = min(n_edges, (n_layers - 1) * most_width * most_width)
    return Size(n_layers, least_width, most_width, n_edges, uniform(stream))


@numba.njit
def _two_to(most: int, difficulty: float, stream: np.ndarray) -> int:
    """Draw a number from 2 to `most` (which is at most 4): 2, 3 and 4 have the weights exp(-(difficulty - c)^2)
    with c = 0.2, 0.5 and 0.8."""
    total = 0.0
    for i in range(most - 1):
        total += math.exp(-((difficulty - 0.2 - 0.3 * i) ** 2))
    left = uniform(stream) * total
    for i in range(most - 2):
        left -= math.exp(-((difficulty - 0.2 - 0.3 * i) ** 2))
        if left < 0:
            return 2 + i
    return most


@numba.njit
def draw_structure(size: Size, stream: np.ndarray) -> Structure:
    """Step C: draw random layer widths, a random parent for each item below the top, then random edges."""
    n_layers = size.n_layers
    width = _draw_widths(size, stream)
    first = np.zeros(n_layers + 1, np.int64)
    layer = np.empty(MOST_ITEMS, np.int64)
    for i in range(n_layers):
        first[i + 1] = first[i] + width[i]
        layer[first[i] : first[i + 1]] = i
    n_items = first[n_layers]

    parent, child = np.empty(size.n_edges, np.int64), np.empty(size.n_edges, np.int64)
    n = 0
    below_of = np.zeros(n_items, np.int64)  # item -> the set of items it has an edge to
    for y in range(first[1], n_items):
        x = first[layer[y] - 1] + draw(stream, width[layer[y] - 1])
        parent[n], child[n] = x, y
        below_of[x] |= bit(y)
        n += 1
    # Adjacent pairs without an edge: at most 3 * 16.
    free_x, free_y = np.empty(48, np.int64), np.empty(48, np.int64)
    n_free = 0
    for x in range(first[n_layers - 1]):
        for y in range(first[layer[x] + 1], first[layer[x] + 2]):
            if not below_of[x] & bit(y):
                free_x[n_free], free_y[n_free] = x, y
                n_free += 1
    while n < size.n_edges:
        i = draw(stream, n_free)
        parent[n], child[n] = free_x[i], free_y[i]
        n += 1
        n_free -= 1
        free_x[i], free_y[i] = free_x[n_free], free_y[n_free]
    return _with_parameters(n_layers, n_items, layer, parent, child)


@numba.njit
def _draw_widths(size: Size, stream: np.ndarray) -> np.ndarray:
    """Draw the items per layer: at least enough for the edges, and no more than the edges can reach."""
    width = np.full(size.n_layers, size.least_width)
    while True:
        possible, reached = 0, 0
        for i in range(1, size.n_layers):
            possible += width[i - 1] * width[i]
            reached += width[i]
        if possible >= size.n_edges and (reached == size.n_edges or uniform(stream) >= size.widen):
            return width
        growing = 0
        for i in range(size.n_layers):
            if width[i] < size.most_width:
                growing |= bit(i)
        if growing == 0:
            return width
        width[pick(growing, stream)] += 1


@numba.njit
def _with_parameters(
    n_layers: int, n_items: int, layer: np.ndarray, parent: np.ndarray, child: np.ndarray
) -> Structure:
    """Number the abstract parameters after the instances, by g, so that each needs earlier parameters only."""
    n_edges = len(parent)
    owner, level = np.empty(MOST_PARAMETERS, np.int64), np.zeros(MOST_PARAMETERS, np.int64)
    needs, closure = np.zeros(MOST_PARAMETERS, np.int64), np.empty(MOST_PARAMETERS, np.int64)
    cost = np.ones(MOST_PARAMETERS, np.int64)
    abstract = np.empty((n_items, n_layers), np.int64)
    edges_of = np.zeros(n_items, np.int64)
    for edge in range(n_edges):
        owner[edge] = parent[edge]
        closure[edge] = bit(edge)
        edges_of[parent[edge]] |= bit(edge)
    parameter = n_edges
    for g in range(1, n_layers):
        for x in range(n_items):
            if layer[x] + g >= n_layers:
                break
            abstract[x, g] = parameter
            owner[parameter], level[parameter] = x, g
            needs[parameter] = edges_of[x]
            closure[parameter] = bit(parameter) | edges_of[x]
            rest = edges_of[x]
            while rest and g > 1:
                under = abstract[child[lowest(rest)], g - 1]
                needs[parameter] |= bit(under)
                closure[parameter] |= closure[under]
                rest &= rest - 1
            # A sum of children, above level 1 of products.
            cost[parameter] = max(1, min(g, 2) * count(edges_of[x]) - 1)
            parameter += 1
    return Structure(
        n_layers,
        n_items,
        n_edges,
        parameter,
        layer,
        parent,
        child,
        owner,
        level,
        needs,
        closure,
        cost,
        abstract,
    )
