"""Layered layout of a directed graph in rows: every arrow goes down, and no arrow runs under a box.

The scheme of Sugiyama, Tagawa and Toda 1981: give each node a row, reserve a slot for an arrow in each row
that it passes, order each row so that few arrows cross, then move the nodes of a row as close to their
neighbours as their widths allow.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np
from scipy.optimize import linprog

Node = str
Edge = tuple[Node, Node]
# A node, or the slot of an arrow in a row that it passes: (tail, head, row).
Slot = Node | tuple[Node, Node, int]
Point = tuple[float, float]

SWEEPS = 12  # down and up again; more sweeps do not reduce the crossings in problems of op = 15
NARROW = 0.05  # cost of a row's width, so that a box without arrows stays near the others
WEIGHTS = 1.0, 2.0, 8.0  # of a link with 0, 1 or 2 slots: long arrows are straight (Gansner et al. 1993)


class Layout(NamedTuple):
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
    """
    rank = _ranks(widths, edges) if rows is None else rows
    chains: dict[Edge, list[Slot]] = {
        (tail, head): [tail, *((tail, head, row) for row in range(rank[tail] + 1, rank[head])), head]
        for tail, head in edges
    }
    links = nx.DiGraph()
    links.add_nodes_from((node, {"row": rank[node], "width": width}) for node, width in widths.items())
    for chain in chains.values():
        links.add_nodes_from((slot, {"row": slot[2], "width": lane}) for slot in chain[1:-1])
        nx.add_path(links, chain)
    x = _places(links, _ordered(links), gap[0])
    y = {slot: -(height + gap[1]) * row for slot, row in links.nodes(data="row")}
    starts: dict[Edge, float] = {}
    ends: dict[Edge, float] = {}
    for node, width in widths.items():
        starts |= _ports(x[node], width, {edge: x[chain[1]] for edge, chain in chains.items() if edge[0] == node})
        ends |= _ports(x[node], width, {edge: x[chain[-2]] for edge, chain in chains.items() if edge[1] == node})
    routes = {}
    for edge, (tail, *slots, head) in chains.items():
        passed = [(x[slot], y[slot] + side * height / 2) for slot in slots for side in (1, -1)]
        routes[edge] = [(starts[edge], y[tail] - height / 2), *passed, (ends[edge], y[head] + height / 2)]
    return Layout({node: (x[node], y[node]) for node in widths}, routes)


def _ranks(widths: Mapping[Node, float], edges: Sequence[Edge]) -> dict[Node, int]:
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(widths)
    rank = {node: row for row, nodes in enumerate(nx.topological_generations(graph)) for node in nodes}
    sources = [node for node in graph if not graph.pred[node] and graph.succ[node]]
    return rank | {node: min(rank[head] for head in graph.succ[node]) - 1 for node in sources}


def _ordered(links: nx.DiGraph) -> list[list[Slot]]:
    """Order each row by the mean column of its neighbours in the row above, then in the row below, and so on.

    A depth-first search gives the first order, which keeps what is connected side by side.
    """
    row_of = dict(links.nodes(data="row"))
    rows: list[list[Slot]] = [[] for _ in range(1 + max(row_of.values()))]
    for slot in nx.dfs_preorder_nodes(links.to_undirected()):
        rows[row_of[slot]].append(slot)
    column = {slot: place for row in rows for place, slot in enumerate(row)}
    for sweep in range(2 * SWEEPS):
        near = links.succ if sweep % 2 else links.pred
        for row in rows[::-1] if sweep % 2 else rows:
            mean = {slot: np.mean([column[other] for other in near[slot] or [slot]]) for slot in row}
            row.sort(key=mean.__getitem__)
            column |= {slot: place for place, slot in enumerate(row)}
    return rows


def _places(links: nx.DiGraph, rows: list[list[Slot]], gap: float) -> dict[Slot, float]:
    """Choose x of each slot to minimise the total horizontal length of the links, given the order and the widths.

    A linear program over the positions x and the lengths t: minimise the sum of weight * t, where t >= |x_upper -
    x_lower|, plus NARROW times the rows' widths.
    """
    width = dict(links.nodes(data="width"))
    beside = [pair for row in rows for pair in pairwise(row)]
    across, along = (
        nx.incidence_matrix(links, links.nodes, pairs, oriented=True).T.toarray() for pairs in (links.edges, beside)
    )
    lengths, none = np.eye(len(across)), np.zeros((len(along), len(across)))
    apart = [gap + (width[left] + width[right]) / 2 for left, right in beside]
    weights = [WEIGHTS[sum(isinstance(slot, tuple) for slot in link)] for link in links.edges]
    found = linprog(
        np.concatenate([NARROW * along.sum(axis=0), weights]),
        A_ub=np.block([[across, -lengths], [-across, -lengths], [-along, none]]),
        b_ub=-np.concatenate([np.zeros(2 * len(across)), apart]),
        bounds=(None, None),
    )
    return dict(zip(links, np.asarray(found.x).tolist(), strict=False))


def _ports(x: float, width: float, toward: Mapping[Edge, float]) -> dict[Edge, float]:
    """Spread the arrows on one side of a box evenly, in the order of the places that they go `toward`."""
    order = sorted(toward, key=toward.__getitem__)
    return {edge: x + width * (place / (len(order) + 1) - 0.5) for place, edge in enumerate(order, start=1)}
