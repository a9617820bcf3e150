"""Layered layout of a directed graph in rows: every arrow goes down, and no arrow runs under a box.

The scheme of Sugiyama, Tagawa and Toda 1981: give each node a row, reserve a slot for an arrow in each row
that it passes, order each row so that few arrows cross, then move the nodes of a row as close to their
neighbours as their widths allow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog

Node = str
Edge = tuple[Node, Node]
# A node, or the slot of an arrow in a row that it passes: (tail, head, row).
Slot = Node | tuple[Node, Node, int]
Rows = list[list[Slot]]
Point = tuple[float, float]

SWEEPS = 12  # down and up again; more sweeps do not reduce the crossings in problems of op = 15
NARROW = 0.05  # fraction of a link's weight


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Positions to draw at: `centers` of the nodes, and `routes`, the points of each edge from tail down to head."""

    centers: dict[Node, Point]
    routes: dict[Edge, list[Point]]


def layered(
    widths: Mapping[Node, float],
    edges: Sequence[Edge],
    height: float,
    gap: tuple[float, float],
    lane: float,
    rows: Mapping[Node, int] | None = None,
) -> Layout:
    """Place boxes of the given `widths` and one `height` in rows, tails above heads, without overlap.

    `gap` is the minimum distance between boxes, both horizontally and vertically. `lane` is the width kept free for an
    arrow that passes a row. y grows upwards; row 0 is at y = 0. Without `rows`, a node goes in the row below its
    lowest tail, and a node without tails in the row above its highest head. A route has two points in each row that it
    passes, at the row's upper and lower side. Between them it goes straight down and meets no box.
    Raises `graphlib.CycleError` if the edges form a cycle.
    """
    rank = _ranks(list(widths), edges) if rows is None else dict(rows)
    links = _links(rank, edges)
    x = _places(_ordered(_slots(rank, links), links), links, dict(widths), gap[0], lane)
    step = height + gap[1]
    centers = {node: (x[node], -step * rank[node]) for node in widths}
    return Layout(centers=centers, routes=_routes(x, rank, edges, dict(widths), height, step))


def _ranks(nodes: list[Node], edges: Sequence[Edge]) -> dict[Node, int]:
    """Assign each node a row below all of its tails. A node without tails goes just above its highest head."""
    tails: dict[Node, list[Node]] = {node: [] for node in nodes}
    heads: dict[Node, list[Node]] = {node: [] for node in nodes}
    for tail, head in edges:
        tails[head].append(tail)
        heads[tail].append(head)
    rank: dict[Node, int] = {}
    for node in TopologicalSorter(tails).static_order():
        rank[node] = max((rank[tail] + 1 for tail in tails[node]), default=0)
    pulled = {node: min(rank[head] for head in heads[node]) - 1 for node in nodes if heads[node] and not tails[node]}
    return rank | pulled


def _links(rank: dict[Node, int], edges: Sequence[Edge]) -> list[tuple[Slot, Slot]]:
    """Cut each edge into links from one row to the next."""
    links: list[tuple[Slot, Slot]] = []
    for tail, head in edges:
        chain: list[Slot] = [tail, *((tail, head, row) for row in range(rank[tail] + 1, rank[head])), head]
        links.extend(pairwise(chain))
    return links


def _slots(rank: dict[Node, int], links: list[tuple[Slot, Slot]]) -> Rows:
    """List the slots of each row, unordered."""
    rows: Rows = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for node, row in rank.items():
        rows[row].append(node)
    for _, slot in links:
        if isinstance(slot, tuple):
            rows[slot[2]].append(slot)
    return rows


def _neighbours(links: list[tuple[Slot, Slot]]) -> tuple[dict[Slot, list[Slot]], dict[Slot, list[Slot]]]:
    above: dict[Slot, list[Slot]] = {}
    below: dict[Slot, list[Slot]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def crossings(rows: Rows, links: Sequence[tuple[Slot, Slot]]) -> int:
    """Count the pairs of links between the same two rows that cross."""
    place = {slot: (row, column) for row, slots in enumerate(rows) for column, slot in enumerate(slots)}
    spans = [(place[upper], place[lower]) for upper, lower in links]
    return sum(
        first[0][0] == second[0][0] and first[0][1] < second[0][1] and first[1][1] > second[1][1]
        for first in spans
        for second in spans
    )


def _ordered(rows: Rows, links: list[tuple[Slot, Slot]]) -> Rows:
    """Order each row by the mean index of its neighbours in the row before, down and up; return the best order."""
    above, below = _neighbours(links)
    best, fewest = rows, crossings(rows, links)
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        rows = rows if down else rows[::-1]
        sorted_rows = [rows[0]] if rows else []
        for row in rows[1:]:
            place = {slot: float(column) for column, slot in enumerate(sorted_rows[-1])}
            near = above if down else below
            means = {
                slot: float(np.mean([place[other] for other in near[slot]])) if slot in near else float(column)
                for column, slot in enumerate(row)
            }
            sorted_rows.append(sorted(row, key=means.__getitem__))
        rows = sorted_rows if down else sorted_rows[::-1]
        count = crossings(rows, links)
        if count < fewest:
            best, fewest = rows, count
    return best


def _places(
    rows: Rows, links: list[tuple[Slot, Slot]], widths: dict[Node, float], gap: float, lane: float
) -> dict[Slot, float]:
    """Choose x of each slot to minimise the total horizontal length of the links, given the order and the widths.

    A linear program over the positions x and the lengths t: minimise the sum of weight * t, where
    t >= |x_upper - x_lower|, plus NARROW times the rows' widths, so that a box without arrows stays near the others.
    Links of arrows that pass a row have a larger weight, so that long arrows are straight (the weights of Gansner et
    al. 1993).
    """
    index = {slot: number for number, slot in enumerate(slot for row in rows for slot in row)}
    neighbours = [pair for row in rows for pair in pairwise(row)]
    n_slots, n_links = len(index), len(links)
    if n_slots == 0:
        return {}
    # Each row of `least` is a constraint: its product with (x, t) is at least `bound`.
    least = np.zeros((2 * n_links + len(neighbours), n_slots + n_links))
    bound = np.zeros(len(least))
    for number, (upper, lower) in enumerate(links):
        for row, sign in ((2 * number, 1.0), (2 * number + 1, -1.0)):
            least[row, [index[upper], index[lower], n_slots + number]] = sign, -sign, 1.0
    for row, (left, right) in enumerate(neighbours, start=2 * n_links):
        least[row, [index[left], index[right]]] = -1.0, 1.0
        bound[row] = gap + sum(widths[slot] if isinstance(slot, str) else lane for slot in (left, right)) / 2
    weights = [(1.0, 2.0, 8.0)[sum(isinstance(slot, tuple) for slot in link)] for link in links]
    cost = np.array([0.0] * n_slots + weights)
    for slots in filter(None, rows):
        cost[index[slots[0]]] -= NARROW
        cost[index[slots[-1]]] += NARROW
    solution = linprog(cost, A_ub=-least, b_ub=-bound, bounds=(None, None))
    return dict(zip(index, np.asarray(solution.x)[:n_slots].tolist(), strict=True))


def _routes(
    x: dict[Slot, float],
    rank: dict[Node, int],
    edges: Sequence[Edge],
    widths: dict[Node, float],
    height: float,
    step: float,
) -> dict[Edge, list[Point]]:
    """Return the points of each edge. Arrows leave and reach a box side by side, in their order."""
    passed = {(tail, head): [x[tail, head, row] for row in range(rank[tail] + 1, rank[head])] for tail, head in edges}
    starts: dict[Edge, float] = {}
    ends: dict[Edge, float] = {}
    for node, width in widths.items():
        out = sorted((e for e in passed if e[0] == node), key=lambda e: [*passed[e], x[e[1]]][0])
        into = sorted((e for e in passed if e[1] == node), key=lambda e: [x[e[0]], *passed[e]][-1])
        for ports, arrows in ((starts, out), (ends, into)):
            spread = width * (np.arange(1, len(arrows) + 1) / (len(arrows) + 1) - 0.5)
            ports.update(zip(arrows, (x[node] + spread).tolist(), strict=True))
    routes = {}
    for edge, lanes in passed.items():
        tail, head = edge
        sides = [
            (lane, -step * row + side * height / 2)
            for row, lane in enumerate(lanes, start=rank[tail] + 1)
            for side in (1, -1)
        ]
        start = (starts[edge], -step * rank[tail] - height / 2)
        routes[edge] = [start, *sides, (ends[edge], -step * rank[head] + height / 2)]
    return routes
