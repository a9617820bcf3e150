"""Enclose real numbers between two float64. Rounding errors are enclosed, not estimated.

- `arb` (python-flint) computes with balls that hold the exact value: products, exponentials, sines.
- `ends` turns balls into a lower and an upper float64.
- `below` and `above` round the result of one float64 operation outwards. It is off by at most half
  a unit in the last place, or by underflow below 2^-1022. So they move it by at least a whole unit,
  and by `TINY`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from flint import arb, arb_mat
from torch import Tensor

from tasks.config import require

PRECISION = 160
"""Bits of a ball's midpoint: `with ctx.workprec(PRECISION)`."""
UNIT = 2.0**-52
TINY = 2.0**-1000
"""Absorbs what is lost below the smallest normal number, 2^-1022, also where the processor flushes
it to 0.
"""

inlined = numba.njit(nogil=True, inline="always", error_model="numpy")


class Interval(NamedTuple):
    """Arrays of lower and of upper ends."""

    low: np.ndarray
    high: np.ndarray


@inlined
def below(x: Any) -> Any:
    """Return a number below the exact result of the operation that gave x."""
    return x - abs(x) * UNIT - TINY


@inlined
def above(x: Any) -> Any:
    """Return a number above the exact result of the operation that gave x."""
    return x + abs(x) * UNIT + TINY


def plus(one: Interval, other: Interval) -> Interval:
    """Return the sum of two intervals."""
    return Interval(below.py_func(one.low + other.low), above.py_func(one.high + other.high))


def times(one: Interval, other: Interval) -> Interval:
    """Return the product of two intervals of numbers that are not negative."""
    low = np.maximum(below.py_func(one.low * other.low), 0)
    return Interval(low, above.py_func(one.high * other.high))


def ends(balls: Iterable[arb], shape: Sequence[int]) -> Interval:
    """Return lower and upper ends of balls, as arrays of a shape.

    Raises `ConfigError` for a ball that is too large, or too wide, for float64.
    """
    listed = list(balls)
    low = np.array([float(ball.lower()) for ball in listed])
    high = np.array([float(ball.upper()) for ball in listed])
    require(
        bool(np.isfinite(low).all() and np.isfinite(high).all()),
        "The model's scores or logits are too large to be enclosed in float64.",
    )
    return Interval(below.py_func(low).reshape(shape), above.py_func(high).reshape(shape))


def exact(tensor: Tensor) -> arb_mat:
    """Return a matrix, or a vector as one row, as exact numbers."""
    rows = tensor.detach().cpu().double().reshape(-1, tensor.shape[-1])
    return arb_mat(rows.shape[0], rows.shape[1], [arb(x) for x in rows.flatten().tolist()])


def scaled(matrix: arb_mat, columns: Sequence[arb]) -> arb_mat:
    """Multiply each column of a matrix by a number."""
    n_rows, n_columns = matrix.nrows(), matrix.ncols()
    return arb_mat(
        n_rows,
        n_columns,
        [matrix[i, j] * columns[j] for i in range(n_rows) for j in range(n_columns)],
    )


def stacked(matrices: Sequence[arb_mat]) -> arb_mat:
    """Put matrices below each other."""
    entries = [entry for matrix in matrices for entry in matrix.entries()]
    return arb_mat(sum(matrix.nrows() for matrix in matrices), matrices[0].ncols(), entries)


def columns_of(matrix: arb_mat, start: int, stop: int) -> arb_mat:
    """Return columns start .. stop - 1 of a matrix."""
    n_rows = matrix.nrows()
    return arb_mat(
        n_rows, stop - start, [matrix[i, j] for i in range(n_rows) for j in range(start, stop)]
    )


def normalised(matrix: arb_mat, gain: Sequence[arb], eps: float) -> arb_mat:
    """Return x / sqrt(mean(x^2) + eps) * gain of each row x."""
    n_columns, entries = matrix.ncols(), []
    for i in range(matrix.nrows()):
        row = [matrix[i, j] for j in range(n_columns)]
        mean = sum((x * x for x in row), arb(0)) / n_columns
        inverse = (mean + arb(eps)).rsqrt()
        entries += [x * inverse * g for x, g in zip(row, gain, strict=True)]
    return arb_mat(matrix.nrows(), n_columns, entries)
