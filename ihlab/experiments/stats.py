"""Intervals over seeds. Every number a claim rests on comes with one; no seed is dropped.

All intervals are two-sided 95% unless said otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its interval. An unbounded end is +-inf; the level can fall short of 95% with few seeds."""

    value: float
    low: float
    high: float
    confidence: float = CONFIDENCE


def exact(value: float) -> Estimate:
    """A number that is counted, not sampled."""
    return Estimate(value, value, value, 1.0)


def mean(values: Sequence[float]) -> Estimate:
    """Student's t interval for the mean over seeds."""
    x = np.asarray(values, dtype=float)
    half = _t_half_width(float(x.std(ddof=1) / math.sqrt(len(x))), len(x) - 1) if len(x) > 1 else math.inf
    return Estimate(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half)


def difference(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Welch's t interval for mean(a) - mean(b), variances not assumed equal; of no numbers, nothing is known."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if min(len(x), len(y)) == 0:
        return Estimate(math.nan, -math.inf, math.inf)
    value = float(x.mean() - y.mean())
    if min(len(x), len(y)) < 2:
        return Estimate(value, -math.inf, math.inf)
    vx, vy = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    if vx + vy == 0:
        return Estimate(value, value, value)
    freedom = (vx + vy) ** 2 / (vx**2 / (len(x) - 1) + vy**2 / (len(y) - 1))
    half = _t_half_width(math.sqrt(vx + vy), freedom)
    return Estimate(value, value - half, value + half)


def _t_half_width(standard_error: float, freedom: int | float) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * standard_error


def paired(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """The median of a_i - b_i over pairs, with the exact interval that inverts the sign test.

    It lies between the k-th difference from below and from above and holds the median with probability
    1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution (Thompson 1936); k is the largest that leaves 95%,
    or 1 where even the full range falls short (5 pairs: 93.75%). A pair with NaN says nothing: it stays in the
    count, and enters each end of the interval as unfavourably as it can be. `value` is of the other pairs.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    change, n = x - y, len(x)
    known = change[~np.isnan(change)]
    value = float(np.median(known)) if known.size else math.nan
    if n < 2:
        return Estimate(value, -math.inf, math.inf)
    below = stats.binom.cdf(np.arange(n // 2), n, 0.5)  # P(Binomial < k) for k = 1, 2, ...
    skip = max(int((below <= (1 - CONFIDENCE) / 2).sum()) - 1, 0)
    low = np.sort(np.where(np.isnan(change), -np.inf, change))[skip]
    high = np.sort(np.where(np.isnan(change), np.inf, change))[-1 - skip]
    return Estimate(value, float(low), float(high), float(1 - 2 * below[skip]))


def clustered_share(hits: Sequence[int], sizes: Sequence[int]) -> Estimate:
    """The share of hits among things that come in clusters, with the interval of Korn and Graubard (1998).

    Clopper and Pearson's interval for n* things in place of n, n* = n (t(n - 1) / t(k - 1))^2 / deff for k
    clusters: deff is how many times the binomial variance the one between clusters is, and n* is not taken
    above n. So clusters that happen to agree do not make an interval of width 0. Of no things, nothing is known.
    """
    x, of = np.asarray(hits, dtype=float), np.asarray(sizes, dtype=float)
    n, k = float(of.sum()), len(x)
    share = float(x.sum() / n) if n else math.nan
    if k < 2 or n < 2:
        return Estimate(share, 0.0, 1.0)
    between = k / (k - 1) * float(((x - share * of) ** 2).sum()) / n**2
    binomial = share * (1 - share) / n
    effect = between / binomial if binomial else 1.0
    few = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) / stats.t.ppf(0.5 + CONFIDENCE / 2, k - 1)) ** 2
    effective = min(n, n * few / effect) if effect else n
    hit, missed, tail = share * effective, (1 - share) * effective, (1 - CONFIDENCE) / 2
    low = float(stats.beta.ppf(tail, hit, missed + 1)) if share > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, hit + 1, missed)) if share < 1 else 1.0
    return Estimate(share, low, high)


def size(signed: Estimate) -> Estimate:
    """How large a number is, whatever its sign: for saying that a difference is *small*, not merely unproven."""
    ends = sorted((abs(signed.low), abs(signed.high)))
    low = 0.0 if signed.low <= 0 <= signed.high else ends[0]
    return Estimate(abs(signed.value), low, ends[1], signed.confidence)


def ratio_of_times(a: Sequence[float], b: Sequence[float], horizon: float) -> Estimate:
    """How many times as long a's waiting times are as b's, with inf for "not within `horizon`".

    The Hodges-Lehmann estimate: the median of all pairwise ratios a_i / b_j, with the exact interval
    that inverts the Mann-Whitney test (Lehmann 1963; Bauer 1972). A time that was never reached is
    known to be above the horizon, so a ratio with one is known up to a bound: it enters each end of the interval as
    unfavourably as it can be, and the median as that bound. Two never-reached times say nothing
    and stand at both extremes. With few seeds the widest interval there is falls short of 95%;
    `confidence` says what it reaches (3 against 3: 90%).
    """
    x, y = np.asarray(a, dtype=float)[:, None], np.asarray(b, dtype=float)[None]
    at_least = np.where(np.isinf(y), 0.0, np.minimum(x, horizon) / y)
    at_most = np.where(np.isinf(x), np.inf, x / np.minimum(y, horizon))
    known = np.where(np.isinf(y), at_most, at_least)  # exact, or the bound there is; inf where both are never
    skip, confidence = mann_whitney_depth(x.size, y.size)
    low, high = np.sort(at_least.ravel())[skip], np.sort(at_most.ravel())[-1 - skip]
    informative = known[np.isfinite(known)]
    value = float(np.median(informative)) if informative.size else math.nan
    return Estimate(value, float(low), float(high), confidence)


def mann_whitney_depth(n: int, m: int) -> tuple[int, float]:
    """How many of the n m sorted pairwise differences to leave out at each end, and the level that gives.

    The largest k with P(U < k) <= 2.5%, or 0 where even the full range falls short of 95%.
    """
    counts = np.zeros(n * m + 1)
    counts[0] = 1.0
    # The number of ways to reach each U: the Gaussian binomial coefficient, factor by factor.
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    cumulative = np.cumsum(counts) / counts.sum()
    tail = (1 - CONFIDENCE) / 2
    k = int(np.searchsorted(cumulative, tail, side="right"))  # P(U <= k - 1) <= tail < P(U <= k)
    skip = max(k - 1, 0)
    return skip, float(1 - 2 * cumulative[skip])


def first_reach(steps: ArrayLike, accuracy: ArrayLike, threshold: float) -> float:
    """The first evaluated step with accuracy >= threshold, or inf: a run that never gets there is not dropped."""
    reached = np.asarray(accuracy) >= threshold
    return float(np.asarray(steps)[reached.argmax()]) if reached.any() else math.inf
