"""Intervals over seeds. Every number that decides a claim has an interval, and no seed is dropped.

All intervals are two-sided 95% unless said otherwise. An interval never leaves the range of
possible values. Values that happen to be all equal have no variance to estimate: `mean` tests them
with an exact sign test (`_equal`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from tasks.config import ConfigError, require

CONFIDENCE = 0.95
SMALLEST_P = 1e-12
ROUNDING = 1e-12
"""Absolute and relative tolerance within which numbers count as equal."""

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
SHARE: Range = (0.0, 1.0)
"""Range of an accuracy. The difference of two accuracies is in `DIFFERENCE`."""
DIFFERENCE: Range = (-1.0, 1.0)

Bound = Literal["", "at least", "at most", "about"]


class OutOfRangeError(ConfigError):
    """A value is outside the range of its statistic: a loss that is taken for an accuracy, say."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval. An unbounded end is +-inf. With few seeds, `confidence` can be
    below 95%.

    `interval_at` returns the interval at a level, unbounded if there are too few seeds for it. It
    is None for counted numbers. `bound`: which bound of the number the value is, if
    it is one (`ratio_of_times`), else "".
    """

    value: float
    low: float
    high: float
    confidence: float = CONFIDENCE
    interval_at: Callable[[float], Range] | None = field(default=None, compare=False, repr=False)
    bound: Bound = ""

    def p_value(self, threshold: float) -> float | None:
        """Return the p-value of the threshold; None for a number that is counted and not sampled.

        It is 1 minus the highest level at which the interval excludes the threshold: the test that
        the interval inverts. It is two-sided, except that equal values are tested one-sided
        (`_equal`).
        """
        if self.interval_at is None:
            return None

        def excluded(p_value: float) -> bool:
            low, high = self.interval_at(1 - p_value)  # type: ignore[misc]  # not None
            return bool(low > threshold or high < threshold)

        if math.isnan(self.value) or not excluded(1 - 1e-9):
            return 1.0
        least, most = math.log(SMALLEST_P), 0.0  # the interval shrinks as p grows
        if excluded(SMALLEST_P):
            return SMALLEST_P
        for _ in range(50):  # `excluded` is True at exp(most) and False at exp(least)
            middle = (least + most) / 2
            least, most = (least, middle) if excluded(math.exp(middle)) else (middle, most)
        return math.exp(most)


def exact(value: float) -> Estimate:
    """Return a number that is counted, not sampled."""
    return Estimate(value, value, value, 1.0)


def _sampled(value: float, interval_at: Callable[[float], Range], within: Range = ANY) -> Estimate:
    """Return the estimate whose interval at each level is `interval_at`, clipped to the range
    `within`.
    """

    def cut(level: float) -> Range:
        low, high = interval_at(level)
        return max(low, within[0]), min(high, within[1])

    return Estimate(value, *cut(CONFIDENCE), CONFIDENCE, cut)


def _mapped(estimate: Estimate, value: float, ends: Callable[[float, float], Range]) -> Estimate:
    """Return the estimate of a function of an estimated number. `ends` maps the number's interval
    to the result's.
    """
    interval_at = estimate.interval_at
    assert interval_at is not None
    low, high = ends(estimate.low, estimate.high)
    return Estimate(value, low, high, estimate.confidence, lambda level: ends(*interval_at(level)))


def unknown(value: float = math.nan, within: Range = ANY) -> Estimate:
    """Return a number with too few samples for an interval. The interval is the whole range
    `within`.
    """
    return _sampled(value, lambda _: ANY, within)


def mean(values: Sequence[float], within: Range = ANY) -> Estimate:
    """Return the mean over seeds, with Student's t interval.

    n equal values get an exact sign test, p = 2^-n. Fewer than two values, or values that are not
    finite, give no interval: it is then all of `within`, by default [-inf, inf]. Raises
    `ConfigError` for a value outside `within`.
    """
    x = _inside(values, within)
    value = float(x.mean()) if x.size else math.nan
    if len(x) < 2 or not np.isfinite(x).all():
        return unknown(value, within)
    if _alike(x):
        return _equal(value, 0.5 ** len(x), within)
    return _sampled(
        value, _student(value, float(x.std(ddof=1) / math.sqrt(len(x))), len(x) - 1), within
    )


def _equal(value: float, p_value: float, within: Range) -> Estimate:
    """Return the estimate of a number without spread: the value itself, with an exact test of any
    threshold.

    `p_value` is the probability, if the threshold is the true value, that chance puts all samples
    on this side of it (one-sided). `confidence` is 1 - `p_value`, or 95% if that is less.
    """
    rounding = ROUNDING * max(1.0, abs(value))

    def interval_at(level: float) -> Range:
        return (value - rounding, value + rounding) if 1 - level >= p_value else within

    return replace(
        _sampled(value, interval_at, within),
        low=value,
        high=value,
        confidence=min(CONFIDENCE, 1 - p_value),
    )


def mean_correlation(values: Sequence[float]) -> Estimate:
    """Return the mean correlation over seeds. Its interval is Student's t on Fisher's z, which
    stays inside (-1, 1).

    Raises `ConfigError` for a value that is no correlation.
    """
    z = mean(np.arctanh(np.clip(_inside(values, (-1.0, 1.0)), -1 + 1e-9, 1 - 1e-9)).tolist())
    return _mapped(
        z, float(np.tanh(z.value)), lambda low, high: (float(np.tanh(low)), float(np.tanh(high)))
    )


def difference(a: Sequence[float], b: Sequence[float], within: Range = ANY) -> Estimate:
    """Return mean(a) - mean(b) with Welch's t interval (unequal variances); `unknown` if a or b is
    empty.

    If neither side has any spread, the test is that of complete separation by ranks:
    p = 1 / C(n_a + n_b, n_a). Raises `ConfigError` for a difference outside `within`, and with
    `DIFFERENCE` for a value outside `SHARE`.
    """
    x, y = _sides(a, b, within)
    if min(len(x), len(y)) == 0:
        return unknown(within=within)
    if min(len(x), len(y)) > 1 and np.isfinite([*x, *y]).all() and _alike(x) and _alike(y):
        return _equal(float(x.mean() - y.mean()), 1 / math.comb(len(x) + len(y), len(x)), within)
    return _welch(float(x.mean() - y.mean()), (x, y), within)


def two_way_difference(a: ArrayLike, b: ArrayLike) -> Estimate:
    """Return mean(a) - mean(b), both [run, problem] on the same problems, with an interval over
    runs and problems.

        variance = s^2(runs of a) / n_a + s^2(runs of b) / n_b + s^2(problems) / n_problems

    s^2 is the variance of the runs' means or of the problems' differences. Each includes noise: the
    interval is a bit wide. A bootstrap over runs and problems (Owen 2007) counts the noise three
    times. The interval is Student's t with Welch and Satterthwaite's degrees of freedom: with a
    handful of runs, a bootstrap's tails are too narrow.
    """
    x, y = _inside(a, SHARE), _inside(b, SHARE)
    samples = (x.mean(axis=1), y.mean(axis=1), x.mean(axis=0) - y.mean(axis=0))
    return _welch(float(x.mean() - y.mean()), samples, DIFFERENCE)


def _inside(values: ArrayLike, within: Range) -> np.ndarray:
    """Return numbers as an array. Raises `OutOfRangeError` for one outside the range of the
    statistic.
    """
    x, (least, most) = np.asarray(values, dtype=float), within
    outside = x[(x < least - ROUNDING) | (x > most + ROUNDING)]
    if outside.size:
        raise OutOfRangeError(
            f"A value is {outside[0]:g}, but must be from {least:g} to {most:g} here."
        )
    return x


def _sides(a: Sequence[float], b: Sequence[float], within: Range) -> tuple[np.ndarray, np.ndarray]:
    """Return two samples as arrays. Raises `ConfigError` if they cannot have a difference in the
    range `within`.
    """
    of_value = SHARE if within == DIFFERENCE else ANY
    x, y = _inside(a, of_value), _inside(b, of_value)
    _inside(np.subtract.outer(x, y), within)
    return x, y


def _welch(value: float, samples: Sequence[np.ndarray], within: Range) -> Estimate:
    """Return the estimate of a value whose variance is the sum of the variances of the samples'
    means.
    """
    if (
        min(map(len, samples)) < 2
        or not all(np.isfinite(x).all() for x in samples)
        or all(map(_alike, samples))
    ):
        return unknown(value, within)
    variances = [float(x.var(ddof=1)) / len(x) for x in samples]
    freedom = sum(variances) ** 2 / sum(
        v**2 / (len(x) - 1) for v, x in zip(variances, samples, strict=True)
    )
    return _sampled(value, _student(value, math.sqrt(sum(variances)), freedom), within)


def _alike(x: np.ndarray) -> bool:
    """Return whether numbers are equal up to rounding. (The standard deviation of 0.1, 0.1, 0.1 is
    not exactly 0.)
    """
    return bool(np.ptp(x) <= ROUNDING * max(1.0, np.abs(x).max()))


def _student(value: float, standard_error: float, freedom: int | float) -> Callable[[float], Range]:
    def interval_at(level: float) -> Range:
        half = float(scipy.stats.t.ppf(0.5 + level / 2, freedom)) * standard_error
        return value - half, value + half

    return interval_at


def _ordered(value: float, low: np.ndarray, high: np.ndarray, tails: np.ndarray) -> Estimate:
    """Return the estimate whose interval skips as many of the extreme numbers at each end as the
    level allows.

    `tails[k]` is the probability that skipping k numbers at one end excludes the true one. If even
    the full range has a confidence below 95%, the interval is the full range, with that confidence.
    For p-values it is then unbounded.
    """

    def skipped(level: float) -> int:
        return int((tails <= (1 - level) / 2).sum()) - 1

    def interval_at(level: float) -> Range:
        k = skipped(level)
        return ANY if k < 0 else (float(low[k]), float(high[k]))

    k = max(skipped(CONFIDENCE), 0)
    return Estimate(value, float(low[k]), float(high[k]), float(1 - 2 * tails[k]), interval_at)


def share(hits: int, total: int) -> Estimate:
    """Return the fraction hits / total of independent trials, with Clopper and Pearson's exact
    interval (1934).
    """
    _require_hits([hits], [total])
    if total == 0:
        return unknown(within=SHARE)
    return _sampled(
        hits / total, lambda level: _clopper_pearson(float(hits), float(total - hits), level), SHARE
    )


def _require_hits(hits: Sequence[float], totals: Sequence[int]) -> None:
    for hit, total in zip(hits, totals, strict=True):
        require(
            0 <= hit <= total,
            f"There are {hit} hits, but must be from 0 to {total}, the number of trials.",
        )


def _clopper_pearson(hit: float, missed: float, level: float) -> Range:
    tail = (1 - level) / 2
    low = float(scipy.stats.beta.ppf(tail, hit, missed + 1)) if hit > 0 else 0.0
    high = float(scipy.stats.beta.ppf(1 - tail, hit + 1, missed)) if missed > 0 else 1.0
    return low, high


def share_difference(hits_a: int, n_a: int, hits_b: int, n_b: int) -> Estimate:
    """Return the difference of two independent fractions, a - b.

    The interval is the hybrid score interval of Newcombe (1998, method 10). It stays inside [-1,
    1], and its width is not 0 even if all or none are hits.
    """
    _require_hits([hits_a, hits_b], [n_a, n_b])
    if min(n_a, n_b) == 0:
        return unknown(within=DIFFERENCE)
    a, b = hits_a / n_a, hits_b / n_b

    def interval_at(level: float) -> Range:
        tests = scipy.stats.binomtest(hits_a, n_a), scipy.stats.binomtest(hits_b, n_b)
        (low_a, high_a), (low_b, high_b) = (test.proportion_ci(level, "wilson") for test in tests)
        return a - b - math.hypot(a - low_a, high_b - b), a - b + math.hypot(high_a - a, b - low_b)

    return _sampled(a - b, interval_at, DIFFERENCE)


def mean_accuracy(accuracies: Sequence[float], rows: int) -> Estimate:
    """Return the mean over seeds of accuracies that were all measured on the same `rows` sequences.

    This is `clustered_share` with one cluster per seed. All seeds answer the same sequences, so the
    effective number of trials is at most `rows`. If an accuracy is missing, the result is
    `unknown`. Raises `ConfigError` for a number that is no accuracy.
    """
    if np.isnan(accuracies).any():
        return unknown(within=SHARE)
    hits = _inside(accuracies, SHARE) * rows  # not whole if an accuracy is a mean of several
    return clustered_share(hits.tolist(), [rows] * len(hits), most=float(rows))


def clustered_share(
    hits: Sequence[float], sizes: Sequence[int], most: float = math.inf
) -> Estimate:
    """Return the fraction of hits among trials that come in clusters, with the interval of Korn and
    Graubard (1998).

    It is Clopper and Pearson's interval for n* trials in place of n, with n* = n (t(n - 1) / t(k -
    1))^2 / deff for k clusters. deff is the variance between clusters divided by the binomial
    variance. n* is at most n and at most `most`, so clusters that happen to agree do not give an
    interval of width 0. Without trials the result is `unknown`.
    """
    _require_hits(hits, sizes)
    x, totals = np.asarray(hits, dtype=float), np.asarray(sizes, dtype=float)
    n, k = float(totals.sum()), len(x)
    value = float(x.sum() / n) if n else math.nan
    if k < 2 or n < 2:
        return unknown(value, SHARE)
    between = k / (k - 1) * float(((x - value * totals) ** 2).sum()) / n**2
    binomial = value * (1 - value) / n
    effect = between / binomial if binomial else 1.0

    def interval_at(level: float) -> Range:
        level = max(level, 1e-6)  # near 0 both quantiles are 0
        few = (
            float(
                scipy.stats.t.ppf(0.5 + level / 2, n - 1)
                / scipy.stats.t.ppf(0.5 + level / 2, k - 1)
            )
            ** 2
        )
        effective = min(n, most, n * few / effect) if effect else min(n, most)
        return _clopper_pearson(value * effective, (1 - value) * effective, level)

    return _sampled(value, interval_at, SHARE)


def size(signed: Estimate) -> Estimate:
    """Return the absolute value of a number. Use it to show that a difference is *small*, not
    merely unproven.

    Testing it against a margin is the equivalence test by two one-sided tests (Schuirmann 1987).
    """
    return _mapped(signed, abs(signed.value), _sizes)


def _sizes(low: float, high: float) -> Range:
    near, far = sorted((abs(low), abs(high)))
    return (0.0 if low <= 0 <= high else near), far


def ratio_of_times(a: Sequence[float], b: Sequence[float], horizon: float) -> Estimate:
    """Return the ratio of waiting times, a / b, with inf for "not within `horizon`".

    This is the Hodges-Lehmann estimate: the median of all pairwise ratios a_i / b_j, with the exact
    interval that inverts the Mann-Whitney test (Lehmann 1963; Bauer 1972). An infinite time is only
    known to be above the horizon, so its ratios have only a bound. The bound enters the median, and
    each end of the interval takes the worst case. A ratio of two infinite times is left out of the
    median and can be anything in the interval. With few seeds even the widest interval falls short
    of 95%; `confidence` is then its level (90% for 3 seeds against 3).

    `bound` is "at least" if later times in place of the infinite ones could only raise the median,
    "at most" if they could only lower it, and "about" if they could do both. It is "" if they
    cannot change it.
    """
    if min(len(a), len(b)) == 0:
        return unknown()
    _inside([*a, *b], (0.0, math.inf))
    require(
        not np.isnan([*a, *b]).any(),
        "A time is missing, but must be inf if it is not within the horizon.",
    )
    at_least, at_most = _bounds_of_ratios(a, b, horizon)
    known = np.where(
        np.isinf(np.asarray(b, dtype=float)), at_most, at_least
    )  # exact, or a bound; inf: both are inf
    informative = known[np.isfinite(known)]
    value = float(np.median(informative)) if informative.size else math.nan
    low, high = np.sort(at_least.ravel()), np.sort(at_most.ravel())[::-1]
    estimate = _ordered(value, low, high, mann_whitney_tails(len(a), len(b)))
    raised, lowered = np.median(high) > value, np.median(low) < value
    bound = _BOUNDS[bool(raised), bool(lowered)]
    return replace(estimate, bound=bound)


_BOUNDS: dict[tuple[bool, bool], Bound] = {
    (False, False): "",
    (True, False): "at least",
    (False, True): "at most",
    (True, True): "about",
}
"""The bound of a ratio, by whether later times in place of the infinite ones could raise and lower
it.
"""


def _bounds_of_ratios(
    a: Sequence[float], b: Sequence[float], horizon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest possible value of every ratio a_i / b_j; inf is "not
    within `horizon`".
    """
    x, y = np.asarray(a, dtype=float)[:, None], np.asarray(b, dtype=float)[None]
    at_least = np.where(np.isinf(y), 0.0, np.minimum(x, horizon) / y)
    return at_least, np.where(np.isinf(x), np.inf, x / np.minimum(y, horizon))


def shift(a: Sequence[float], b: Sequence[float], within: Range = ANY) -> Estimate:
    """Return the median of all pairwise differences a_i - b_j (Hodges and Lehmann 1963).

    The interval is the exact one that inverts the Mann-Whitney test. Use it for bimodal numbers,
    for which a mean is misleading. A missing number takes the worst case at each end of the
    interval. Raises `ConfigError` as `difference`.
    """
    differences = np.subtract.outer(*_sides(a, b, within)).ravel()
    if differences.size == 0:
        return unknown(within=within)
    missing = np.isnan(differences)
    low = np.sort(np.where(missing, -np.inf, differences))
    high = np.sort(np.where(missing, np.inf, differences))[::-1]
    value = math.nan if missing.all() else float(np.median(differences[~missing]))
    return _ordered(value, low, high, mann_whitney_tails(len(a), len(b)))


@lru_cache
def mann_whitney_tails(n: int, m: int) -> np.ndarray:
    """Return P(U <= k), k = 0, 1, ..., of the Mann-Whitney statistic of n and m numbers from one
    distribution.
    """
    counts = np.zeros(n * m + 1)
    counts[0] = 1.0
    # The number of ways to reach each U: the Gaussian binomial coefficient, factor by factor.
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return np.cumsum(counts) / counts.sum()


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted to bound the family-wise error rate (Holm 1979): at .05 it is at
    most 5%.
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.arange(len(p_values), 0, -1) * np.take(p_values, order)
    by_rank = np.maximum.accumulate(np.minimum(adjusted, 1.0))
    return by_rank[np.argsort(order)].tolist()
