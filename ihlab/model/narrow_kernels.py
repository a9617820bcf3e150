"""The inner loops of `ihlab.model.narrow`, compiled: attention and its gradient, for 64 pairs of row and head at once.

A tile has the vectors of 64 pairs, float32 [pos, channel, lane]. Every inner loop runs over the lanes, so that the
compiler takes as many at once as the CPU has room for, however few channels and positions there are.
"""

from functools import partial

import numpy as np
from numba import njit

from tasks.compiled import kernel

LANES = 64
"""Pairs of a row and a head in a tile. With 16 loops are too short, with 128 tiles leave the cache."""

SUMS_IN_ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
"""What the compiler may do with sums and products. There are infinities: a hidden key's score."""

LEAST_EXPONENT, LOG2_E = np.float32(-87), np.float32(1.44269504)
LN_2 = np.float32(0.693359375), np.float32(-2.12194440e-4)
"""ln 2 in two parts: k times the first is exact."""
EXP = tuple(np.float32(x) for x in (1.98756915e-4, 1.39819995e-3, 8.33345191e-3, 4.16657959e-2, 0.166666655, 0.5))
"""Minimax polynomial of (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, highest power first (Cephes' expf)."""

part = njit(fastmath=SUMS_IN_ANY_ORDER, nogil=True, error_model="numpy")
whole = partial(kernel, fastmath=SUMS_IN_ANY_ORDER, error_model="numpy")


@part
def exp(x: np.float32) -> np.float32:
    """Return e^x for x up to 80, to 3e-7 of it; 0 below -87. Calling the system's would take one lane at a time."""
    inside = LEAST_EXPONENT if x < LEAST_EXPONENT else x  # NaN stays NaN
    k = np.floor(inside * LOG2_E + np.float32(0.5))
    r = inside - k * LN_2[0] - k * LN_2[1]
    series = ((((EXP[0] * r + EXP[1]) * r + EXP[2]) * r + EXP[3]) * r + EXP[4]) * r + EXP[5]
    two_to_k = np.int32((np.int32(k) + 127) << 23).view(np.float32)
    return np.float32(0) if x < LEAST_EXPONENT else (series * r * r + r + np.float32(1)) * two_to_k


@part
def place(tile: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the head of each lane, of x [row, pos, head, channel]. Spare lanes repeat the last pair."""
    rows, heads = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    for lane in range(LANES):
        pair = min(tile * LANES + lane, x.shape[0] * x.shape[2] - 1)
        rows[lane], heads[lane] = pair // x.shape[2], pair % x.shape[2]
    return rows, heads


@part
def load(x: np.ndarray, rows: np.ndarray, heads: np.ndarray, to: np.ndarray) -> None:
    """Copy the vectors of a tile's pairs from x [row, pos, head, channel]."""
    for t in range(x.shape[1]):
        for lane in range(LANES):
            of = x[rows[lane], t, heads[lane]]
            for c in range(len(of)):
                to[t, c, lane] = of[c]


@part
def store(tile: np.ndarray, rows: np.ndarray, heads: np.ndarray, to: np.ndarray) -> None:
    """Copy them to an array [row, pos, head, channel]."""
    for t in range(to.shape[1]):
        for lane in range(LANES):
            of = to[rows[lane], t, heads[lane]]
            for c in range(len(of)):
                of[c] = tile[t, c, lane]


@part
def load_last(last: np.ndarray, rows: np.ndarray, to: np.ndarray) -> None:
    """Copy the last key of each query, of `last` [row or 1, query], to every lane."""
    for lane in range(LANES):
        row = rows[lane] if len(last) > 1 else 0
        for t in range(last.shape[1]):
            to[t, lane] = last[row, t]


@part
def dots(a: np.ndarray, x: np.ndarray, n: int, out: np.ndarray) -> None:
    """Set out[s] = a . x[s] for the first n positions, of a [channel, lane], eight channels at a time."""
    eights = len(a) // 8 * 8
    for s in range(n):
        to, of = out[s], x[s]
        for lane in range(LANES):
            to[lane] = np.float32(0)
        for c in range(0, eights, 8):
            for lane in range(LANES):
                total = to[lane]
                for i in range(8):
                    total += a[c + i, lane] * of[c + i, lane]
                to[lane] = total
        for c in range(eights, len(a)):
            for lane in range(LANES):
                to[lane] += a[c, lane] * of[c, lane]


@part
def mix(weight: np.ndarray, x: np.ndarray, n: int, out: np.ndarray) -> None:
    """Set out [channel, lane] to the sum of weight[s] x[s] over the first n positions, four at a time."""
    fours = n // 4 * 4
    for c in range(len(out)):
        to = out[c]
        for lane in range(LANES):
            to[lane] = np.float32(0)
        for s in range(0, fours, 4):
            for lane in range(LANES):
                first = weight[s, lane] * x[s, c, lane] + weight[s + 1, lane] * x[s + 1, c, lane]
                then = weight[s + 2, lane] * x[s + 2, c, lane] + weight[s + 3, lane] * x[s + 3, c, lane]
                to[lane] += first + then
        for s in range(fours, n):
            for lane in range(LANES):
                to[lane] += weight[s, lane] * x[s, c, lane]


@part
def spread(weight: np.ndarray, a: np.ndarray, n: int, out: np.ndarray) -> None:
    """Add weight[s] a to out[s] for the first n positions."""
    for s in range(n):
        of, to = weight[s], out[s]
        for c in range(len(a)):
            for lane in range(LANES):
                to[c, lane] += of[lane] * a[c, lane]


@part
def scores(q: np.ndarray, k: np.ndarray, last: np.ndarray, out: np.ndarray) -> int:
    """Set out[s] = q . k[s], -inf for keys after the last [lane]; return how many keys any lane sees."""
    n = min(last.max() + 1, len(k))
    dots(q, k, n, out)
    for s in range(last.min() + 1, n):
        for lane in range(LANES):
            if s > last[lane]:
                out[s, lane] = -np.inf
    return n


@whole
def forward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, last: np.ndarray, scale: np.float32, out: np.ndarray, log_z: np.ndarray
) -> None:
    """Set out to softmax(scale q . k) v, over keys up to each query's last one, and log_z to log sum exp(scale q . k).

    float32 q, out [row, query, head, channel], k, v [row, key, head, channel], log_z [row, query, head, 1];
    int64 last [row or 1, query].
    """
    n_rows, n_queries, n_heads, width = q.shape
    q_tile = np.empty((n_queries, width, LANES), np.float32)
    out_tile = np.empty((n_queries, width, LANES), np.float32)
    k_tile = np.empty((k.shape[1], width, LANES), np.float32)
    v_tile = np.empty((k.shape[1], width, LANES), np.float32)
    log_z_tile = np.empty((n_queries, 1, LANES), np.float32)
    last_tile = np.empty((n_queries, LANES), np.int64)
    pattern = np.empty((k.shape[1], LANES), np.float32)
    highest = np.empty(LANES, np.float32)
    z = np.empty(LANES, np.float32)
    for tile in range((n_rows * n_heads + LANES - 1) // LANES):
        rows, heads = place(tile, q)
        load(q, rows, heads, q_tile)
        load(k, rows, heads, k_tile)
        load(v, rows, heads, v_tile)
        load_last(last, rows, last_tile)
        for t in range(n_queries):
            n = scores(q_tile[t], k_tile, last_tile[t], pattern)
            for lane in range(LANES):
                highest[lane] = pattern[0, lane]
            for s in range(1, n):
                for lane in range(LANES):
                    highest[lane] = max(highest[lane], pattern[s, lane])
            for lane in range(LANES):
                z[lane] = np.float32(0)
            for s in range(n):
                for lane in range(LANES):
                    weight = exp((pattern[s, lane] - highest[lane]) * scale)
                    pattern[s, lane] = weight
                    z[lane] += weight
            mix(pattern, v_tile, n, out_tile[t])
            for lane in range(LANES):
                log_z_tile[t, 0, lane] = highest[lane] * scale + np.log(z[lane])
                z[lane] = np.float32(1) / z[lane]
            for c in range(width):
                for lane in range(LANES):
                    out_tile[t, c, lane] *= z[lane]
        store(out_tile, rows, heads, out)
        store(log_z_tile, rows, heads, log_z)


@whole
def backward(
    grad: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    last: np.ndarray,
    scale: np.float32,
    out: np.ndarray,
    log_z: np.ndarray,
    grad_q: np.ndarray,
    grad_k: np.ndarray,
    grad_v: np.ndarray,
) -> None:
    """Set the gradients of q, k and v from that of `out`; the pattern p is computed again, from log_z.

    With g the gradient of a query's output: that of v[s] is p[s] g, that of the score of key s is
    p[s] (g . v[s] - g . out).
    """
    n_rows, n_queries, n_heads, width = q.shape
    q_tile = np.empty((n_queries, width, LANES), np.float32)
    out_tile = np.empty((n_queries, width, LANES), np.float32)
    grad_tile = np.empty((n_queries, width, LANES), np.float32)
    k_tile = np.empty((k.shape[1], width, LANES), np.float32)
    v_tile = np.empty((k.shape[1], width, LANES), np.float32)
    grad_k_tile = np.empty((k.shape[1], width, LANES), np.float32)
    grad_v_tile = np.empty((k.shape[1], width, LANES), np.float32)
    log_z_tile = np.empty((n_queries, 1, LANES), np.float32)
    last_tile = np.empty((n_queries, LANES), np.int64)
    pattern = np.empty((k.shape[1], LANES), np.float32)
    grad_scores = np.empty((k.shape[1], LANES), np.float32)
    mean = np.empty(LANES, np.float32)
    for tile in range((n_rows * n_heads + LANES - 1) // LANES):
        rows, heads = place(tile, q)
        load(q, rows, heads, q_tile)
        load(k, rows, heads, k_tile)
        load(v, rows, heads, v_tile)
        load(out, rows, heads, out_tile)
        load(log_z, rows, heads, log_z_tile)
        load(grad, rows, heads, grad_tile)
        load_last(last, rows, last_tile)
        grad_k_tile[:] = np.float32(0)
        grad_v_tile[:] = np.float32(0)
        for t in range(n_queries):
            n = scores(q_tile[t], k_tile, last_tile[t], pattern)
            dots(grad_tile[t], v_tile, n, grad_scores)
            for lane in range(LANES):
                mean[lane] = np.float32(0)
            for c in range(width):
                for lane in range(LANES):
                    mean[lane] += grad_tile[t, c, lane] * out_tile[t, c, lane]
            for s in range(n):
                for lane in range(LANES):
                    weight = exp(pattern[s, lane] * scale - log_z_tile[t, 0, lane])
                    pattern[s, lane] = weight
                    grad_scores[s, lane] = weight * (grad_scores[s, lane] - mean[lane]) * scale
            spread(pattern, grad_tile[t], n, grad_v_tile)
            spread(grad_scores, q_tile[t], n, grad_k_tile)
            mix(grad_scores, k_tile, n, out_tile[t])  # the gradient of this query, in place of its output
        store(out_tile, rows, heads, grad_q)
        store(grad_k_tile, rows, heads, grad_k)
        store(grad_v_tile, rows, heads, grad_v)
