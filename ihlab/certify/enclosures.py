"""Enclose real numbers between two float64. Rounding errors are enclosed, not estimated.

- `arb` (python-flint) computes with balls that hold the exact value: products, exponentials, sines. Arrays of balls are
  NumPy arrays of objects.
- `ends` turns balls into a lower and an upper float64.
- `below` and `above` round the result of one float64 operation outwards. It is off by at most half a unit in the last
  place, or by underflow below 2^-1022. So they move it by at least a whole unit, and by `TINY`.
"""

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
"""Absorbs what is lost below the smallest normal number, 2^-1022, also where the processor flushes it to 0."""

inlined = numba.njit(nogil=True, inline="always", error_model="numpy")


Balls = np.ndarray
"""An array of `arb`."""
_ball = np.frompyfunc(arb, 1, 1)
_lower = np.frompyfunc(lambda ball: float(ball.lower()), 1, 1)
_upper = np.frompyfunc(lambda ball: float(ball.upper()), 1, 1)
exp = np.frompyfunc(arb.exp, 1, 1)
rsqrt = np.frompyfunc(arb.rsqrt, 1, 1)


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


def ends(balls: Balls) -> Interval:
    """Return lower and upper ends of balls.

    Raises `ConfigError` for a ball that is too large, or too wide, for float64.
    """
    low, high = _lower(balls).astype(float), _upper(balls).astype(float)
    require(
        bool(np.isfinite(low).all() and np.isfinite(high).all()),
        "The model's scores or logits are too large to be enclosed in float64.",
    )
    return Interval(below.py_func(low), above.py_func(high))


def exact(tensor: Tensor) -> Balls:
    """Return a tensor as exact numbers."""
    return _ball(tensor.detach().cpu().double().numpy())


def product(one: Balls, other: Balls) -> Balls:
    """Return the matrix product of balls [.., n] and [n, m]."""
    rows = one.reshape(-1, one.shape[-1])
    left, right = arb_mat(rows.tolist()), arb_mat(other.tolist())
    entries = np.array((left * right).entries(), object)
    return entries.reshape(*one.shape[:-1], other.shape[-1])


def normalised(rows: Balls, gain: Balls, eps: float) -> Balls:
    """Return x / sqrt(mean(x^2) + eps) * gain of each row x."""
    mean = (rows * rows).sum(axis=-1, keepdims=True) / rows.shape[-1]
    return rows * rsqrt(mean + arb(eps)) * gain
