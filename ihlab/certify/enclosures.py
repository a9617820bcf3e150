"""Enclose real numbers between two float64. Rounding errors are enclosed, not estimated.

- `arb` (python-flint) computes with balls that hold the exact value: products, exponentials, sines.
- `ends` turns balls into a lower and an upper float64.
- `below` and `above` round the result of one float64 operation outwards. It is off by at most half
  a unit in the last place, or by underflow below 2^-1022. So they move it by at least a whole unit,
  and by `TINY`.
"""

from collections.abc import Callable
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

Balls = np.ndarray
"""An array of `arb`."""

inlined = numba.njit(nogil=True, inline="always", error_model="numpy")


class Interval(NamedTuple):
    """Arrays of lower and of upper ends."""

    low: np.ndarray
    high: np.ndarray

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Interval":
        """Return both arrays after a change of shape or order."""
        return Interval(change(self.low), change(self.high))


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


def ends(balls: Balls) -> Interval:
    """Return lower and upper ends of balls.

    Raises `ConfigError` for a ball that is too large, or too wide, for float64.
    """
    low, high = lower(balls).astype(float), upper(balls).astype(float)
    require(
        bool(np.isfinite(low).all() and np.isfinite(high).all()),
        "The model's scores or logits are too large to be enclosed in float64.",
    )
    return Interval(below.py_func(low), above.py_func(high))


def exact(tensor: Tensor) -> Balls:
    """Return a tensor as exact numbers."""
    numbers = tensor.detach().cpu().double().numpy()
    return np.vectorize(arb, otypes=[object])(numbers)


def product(rows: Balls, matrix: Balls) -> Balls:
    """Return the matrix product of rows [..., n] and a matrix [n, m]."""
    flat = rows.reshape(-1, len(matrix))
    entries = (arb_mat(flat.tolist()) * arb_mat(matrix.tolist())).entries()
    return np.array(entries, object).reshape(*rows.shape[:-1], matrix.shape[1])


def normalised(rows: Balls, gain: Balls, eps: float) -> Balls:
    """Return x / sqrt(mean(x^2) + eps) * gain of each row x [..., n]."""
    mean = (rows * rows).sum(axis=-1, keepdims=True) / rows.shape[-1]
    return rows * _inverse_root(mean + arb(eps)) * gain


def largest(balls: Balls, *axes: int) -> Balls:
    """Return numbers that no ball along some axes, which are kept with size 1, is above."""
    for axis in axes:
        balls = _maximum.reduce(balls, axis=axis, keepdims=True)
    return upper(balls)


lower: Any = np.frompyfunc(arb.lower, 1, 1)
upper: Any = np.frompyfunc(arb.upper, 1, 1)
_inverse_root = np.frompyfunc(arb.rsqrt, 1, 1)
_maximum = np.frompyfunc(arb.max, 2, 1)
