"""The inner loop of Brevo, the task of graph dependencies, compiled."""

from typing import NamedTuple

import numba
import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.kernels.brevo_ids import ANSWER, ASK, BOS, FIRST_VERTEX, MOST
from tasks.random64 import GOLDEN, below, draw_front, put_back


class Graph(NamedTuple):
    """Vertex v depends on parents[v, :n_parents[v]]; children[v, :n_children[v]] depend on v."""

    parents: np.ndarray
    n_parents: np.ndarray
    children: np.ndarray
    n_children: np.ndarray


@kernel
def draw_rows(
    seeds: np.ndarray, vertices: int, vocab_size: int, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of Brevo (rows), one per uint64 seed.

    Returns inputs, targets (-100 where nothing is scored) and the number of valid next vertices at each scored position
    (else 0), int64 [row, length], and the depth of each row's query, int64 [row].
    """
    inputs = np.zeros((len(seeds), length), np.int64)
    targets = np.full((len(seeds), length), IGNORE)
    choices = np.zeros((len(seeds), length), np.int64)
    depths = np.empty(len(seeds), np.int64)
    ids = np.arange(FIRST_VERTEX, vocab_size)  # ids[v] is the token of vertex v; put back after each row
    id_swaps, swaps = np.empty(vertices, np.int64), np.empty(MOST * vertices, np.int64)
    graph = Graph(
        np.empty((vertices, MOST), np.int64),
        np.empty(vertices, np.int64),
        np.empty((vertices, MOST), np.int64),
        np.empty(vertices, np.int64),
    )
    edges, ready = np.empty(MOST * vertices, np.int64), np.empty(vertices, np.int64)
    depth, needed = np.empty(vertices, np.int64), np.empty(vertices, np.bool_)
    query = vertices - 1

    for row in range(len(seeds)):
        state = draw_front(ids, id_swaps, seeds[row])
        n_edges, state = _draw_graph(graph, edges, depth, state)
        depths[row] = depth[query]
        state = draw_front(edges[:n_edges], swaps[:n_edges], state)
        inputs[row, 0] = BOS
        for e in range(n_edges):
            inputs[row, 2 * e + 1] = ids[edges[e] // vertices]
            inputs[row, 2 * e + 2] = ids[edges[e] % vertices]
        t = 2 * n_edges + 3
        inputs[row, t - 2], inputs[row, t - 1], inputs[row, t] = ASK, ids[query], ANSWER

        needed[:query], needed[query] = False, True
        n_ready = 0
        for v in range(query, -1, -1):
            if needed[v]:
                needed[graph.parents[v, : graph.n_parents[v]]] = True
                if graph.n_parents[v] == 0:
                    ready[n_ready] = v
                    n_ready += 1
        while n_ready:
            choices[row, t] = n_ready
            state += GOLDEN
            drawn = below(state, n_ready)
            n_ready -= 1
            v, ready[drawn] = ready[drawn], ready[n_ready]
            targets[row, t] = inputs[row, t + 1] = ids[v]
            t += 1
            for child in graph.children[v, : graph.n_children[v]]:
                graph.n_parents[child] -= 1  # from here on, the parents that are not written yet
                if needed[child] and graph.n_parents[child] == 0:
                    ready[n_ready] = child
                    n_ready += 1
        put_back(ids, id_swaps)
    return inputs, targets, choices, depths


@numba.njit
def _draw_graph(graph: Graph, edges: np.ndarray, depth: np.ndarray, state: np.uint64) -> tuple[int, np.uint64]:
    """Draw a graph: its edges (u * vertices + v: v depends on u) and depths. Return the number of edges and state."""
    vertices = len(depth)
    free, swaps = np.empty(vertices, np.int64), np.empty(MOST, np.int64)
    graph.n_parents[:], graph.n_children[:], depth[:] = 0, 0, 0
    state += GOLDEN
    sources = 1 + below(state, (vertices - 1) // 4 + 1)
    n_edges = 0
    for v in range(sources, vertices):
        n_free = 0
        for u in range(v):
            if graph.n_children[u] < MOST:
                free[n_free] = u
                n_free += 1
        state += GOLDEN
        n = 1 + below(state, min(n_free, MOST))
        graph.n_parents[v] = n
        state = draw_front(free[:n_free], swaps[:n], state)
        depth[v] = vertices
        for j in range(n):
            u = free[j]
            graph.parents[v, j], graph.children[u, graph.n_children[u]] = u, v
            graph.n_children[u] += 1
            depth[v] = min(depth[v], depth[u] + 1)
            edges[n_edges] = u * vertices + v
            n_edges += 1
    return n_edges, state
