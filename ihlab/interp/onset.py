"""Onset of a phase change in a training curve: where a fast change begins and ends, on top of a
slow drift.

The rule. Let x be the index of an evaluation (0, 1, ...) and t its step. Evaluations are dense
early and sparse late, roughly matching the pace of training. A curve is fitted by least squares
with

    no change:  drift = a cubic in x + a line in t
    a change:   drift + c ramp(x; start, end),   ramp = 0 up to start, 1 from end on, straight between,

where start < end are evaluations, at most half of all evaluations apart. The pair that reduces the
squared error most is kept. `explained` is that reduction as a fraction of the error. An error of
1.5% of the curve's range is always added: smooth bends are about this far from a drift. The
fraction is tested against the same fit to pure noise, which is normal and first-order
autoregressive, with the correlation of the residuals about the drift. A change raises this
correlation, so the test is conservative.

The interval of the start is the central 95% of a block bootstrap of the residuals. It extends at
least to the evaluations on either side, because nothing is measured between two evaluations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, signal

from tasks.config import require

LEAST_POINTS = 12
"""Minimum number of values of a curve: the fit has eight parameters."""

LEVEL = 0.01
"""Rate of false alarms on pure noise."""

DEGREE = 3
"""Degree of the polynomial in the drift."""

FLOOR = 0.015
"""Minimum standard deviation assumed about a drift, as a fraction of the curve's range."""

LONGEST = 0.5
"""A change that takes longer than this fraction of the evaluations is a drift."""

BLOCK = 4
"""Length of the bootstrap's blocks of residuals. Blocks preserve the correlation of neighbours."""


@dataclass(frozen=True)
class Onset:
    """A change of phase.

    - `start`, `end`: the steps between which it happens; `middle` is halfway;
    - `start_low`, `start_high`: the 95% interval of the start;
    - `before`, `after`: the fitted values at start and end;
    - `explained`: the fraction of the squared error about a drift that the change removes, as in
      the module docstring;
    - `p`: the p-value: how often a change explains at least as large a fraction of pure noise.
    """

    start: float
    start_low: float
    start_high: float
    middle: float
    end: float
    before: float
    after: float
    explained: float
    p: float


def onset(steps: ArrayLike, values: ArrayLike, draws: int = 999) -> Onset | None:
    """Return the phase change of a curve, or None if a drift plus noise fits as well.

    Pure noise gives a false alarm at the rate `LEVEL`. `draws`: the number of noise curves, and of
    refits for the interval. Values that are NaN are left out. Raises `ConfigError` for fewer than
    12 values, steps that do not increase, steps and values of different lengths, infinite values,
    and fewer than 1 / `LEVEL` draws.
    """
    t, v = _points(steps, values)
    require(draws >= 1 / LEVEL, f"draws is {draws}, but must be at least {round(1 / LEVEL)}.")
    fit = _Fit(t)
    about = v - fit.drift(v)
    if np.abs(about).max() <= 1e-9 * np.abs(v).max():  # a drift, up to rounding errors
        return None
    pairs, taken = fit.best(v[None])
    pair = int(pairs[0])
    rng = np.random.default_rng(0)
    noise = _autoregressive(rng, draws, len(t), fit.correlation(v))
    explained = float(taken[0] / (about @ about + len(v) * (FLOOR * np.ptp(v)) ** 2))
    by_noise = fit.best(noise)[1] / ((noise - fit.drift(noise)) ** 2).sum(axis=1)
    p = (1 + int((by_noise >= explained).sum())) / (1 + draws)
    if p > LEVEL:
        return None
    curve = fit.curve(v, pair)
    again = fit.best(curve + _blocks(rng, v - curve, draws))[0]
    start, end = fit.starts[pair], fit.ends[pair]
    low, high = np.quantile(t[fit.starts[again]], [0.025, 0.975])
    return Onset(
        start=float(t[start]),
        start_low=float(min(low, t[max(start - 1, 0)])),
        start_high=float(max(high, t[start + 1])),
        middle=float(np.interp((start + end) / 2, np.arange(len(t)), t)),
        end=float(t[end]),
        before=float(curve[start]),
        after=float(curve[end]),
        explained=explained,
        p=p,
    )


class _Fit:
    """All ramps over evaluations at steps t, made orthogonal to every drift."""

    def __init__(self, t: np.ndarray) -> None:
        n = len(t)
        x = np.arange(n)
        starts, ends = np.triu_indices(n, k=1)
        short = ends - starts <= LONGEST * (n - 1)
        self.starts, self.ends = starts[short], ends[short]
        cubic = np.vander(2 * x / (n - 1) - 1, DEGREE + 1)
        # If evaluations are evenly spaced, the line in t is also a line in x and adds no column.
        self.basis = linalg.orth(np.column_stack([cubic, (t - t[0]) / (t[-1] - t[0])]), rcond=1e-8)
        start, end = self.starts[:, None], self.ends[:, None]
        ramps = np.clip((x - start) / (end - start), 0, 1)
        ramps -= self.drift(ramps)
        self.ramps = ramps / np.linalg.norm(ramps, axis=1, keepdims=True)

    def drift(self, v: np.ndarray) -> np.ndarray:
        """Return the least-squares drift through each curve."""
        return v @ self.basis @ self.basis.T

    def best(self, curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ramp that reduces each curve's squared error about its drift most, and by how
        much.
        """
        taken = (curves @ self.ramps.T) ** 2  # ramps are orthogonal to every drift
        pair = taken.argmax(axis=1)
        return pair, taken[np.arange(len(curves)), pair]

    def curve(self, v: np.ndarray, pair: int) -> np.ndarray:
        """Return the fit to v of a drift plus the ramp of a pair."""
        ramp = self.ramps[pair]
        return self.drift(v) + (v @ ramp) * ramp

    def correlation(self, v: np.ndarray) -> float:
        """Return the correlation of neighbours in the noise about v's drift, at least 0 and below
        1.

        Residuals about k fitted columns correlate less than the noise itself, to first order by
        (k + (k + 2) phi) / n (Kendall 1954 for k = 1). This bias is corrected.
        """
        n, k = self.basis.shape
        about = v - self.drift(v)
        biased = about[1:] @ about[:-1] / (about @ about)
        return float(np.clip((biased + k / n) / (1 - (k + 2) / n), 0, 0.99))


def _points(steps: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    t, v = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    require(
        t.ndim == 1 and t.shape == v.shape,
        f"steps has shape {list(t.shape)} and values {list(v.shape)}, but both must be one-dimensional and "
        "equally long.",
    )
    known = ~np.isnan(v)
    t, v = t[known], v[known]
    require(
        len(v) >= LEAST_POINTS,
        f"The curve has {len(v)} values, but a change needs at least {LEAST_POINTS}.",
    )
    require(bool(np.isfinite(v).all()), "The curve holds an infinite value.")
    require(bool((np.diff(t) > 0).all()), "The steps must increase from each value to the next.")
    return t, v


def _autoregressive(rng: np.random.Generator, draws: int, n: int, correlation: float) -> np.ndarray:
    fresh = rng.standard_normal((draws, n))
    fresh[:, 1:] *= np.sqrt(1 - correlation**2)
    return signal.lfilter([1.0], [1.0, -correlation], fresh, axis=1)


def _blocks(rng: np.random.Generator, residuals: np.ndarray, draws: int) -> np.ndarray:
    """Draw residuals [draws, n] by a block bootstrap with circular blocks."""
    n = len(residuals)
    begin = rng.integers(0, n, (draws, -(-n // BLOCK)))
    places = (begin[:, :, None] + np.arange(BLOCK)).reshape(draws, -1)[:, :n] % n
    return residuals[places]
