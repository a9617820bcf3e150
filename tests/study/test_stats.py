"""Intervals and p-values against closed forms, enumeration, scipy and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from ihlab.study import stats
from tasks import ConfigError

pytestmark = pytest.mark.slow


NEVER = [math.inf] * 5
UNKNOWN = {
    "one value": stats.mean([0.5]),
    "an infinite value": stats.mean([1.0, 2.0, math.inf]),
    "times never reached": stats.ratio_of_times(NEVER, NEVER, 1000.0),
    "no hits against some": stats.share_difference(0, 0, 1, 2),
    "a missing accuracy": stats.mean_accuracy([0.5, math.nan], 64),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_what_is_not_known_every_number_is_possible(name):
    """All numbers of its range, and no threshold is excluded."""
    estimate = UNKNOWN[name]
    assert (estimate.low, estimate.high) in [(-math.inf, math.inf), (0, math.inf), (0, 1), (-1, 1)]
    assert estimate.p_value(0.5) == 1.0


@pytest.mark.parametrize(("x", "n"), [(1.0, 2), (0.1, 3), (123.4, 8)])
def test_equal_values_are_tested_exactly_by_their_side_of_the_threshold(x, n):
    """Also where they are equal only up to rounding: the computed standard deviation of 0.1, 0.1,
    0.1 is 1.4e-17.
    """
    sign = scipy_stats.binomtest(n, n, 0.5, alternative="greater").pvalue
    ranks = scipy_stats.mannwhitneyu(
        np.ones(n), np.zeros(n + 1), alternative="greater", method="exact"
    ).pvalue
    for estimate, value, p in (
        (stats.mean([x] * n, (0.0, 500.0)), x, sign),
        (stats.mean_correlation([x / 200] * n), x / 200, sign),
        (stats.difference([x] * n, [2 * x] * (n + 1)), -x, ranks),
    ):
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((value, value, value))
        assert estimate.confidence == min(0.95, 1 - p)
        assert [estimate.p_value(value + away) for away in (-0.01, 0.01)] == pytest.approx([p, p])
        assert estimate.p_value(value * (1 + 1e-14)) == 1.0


def test_a_run_that_never_gets_there_is_known_to_be_slower_than_the_horizon():
    """One of b at 400, four never within 1000: ratios with those four are at most a / 1000 and at
    least 0.
    """
    never = math.inf
    a = [100.0, 110.0, 120.0, 130.0, 140.0]
    estimate = stats.ratio_of_times(a, [400.0, never, never, never, never], 1000.0)
    assert estimate.low == 0.0
    assert estimate.high == pytest.approx(120 / 400)  # the third largest of the bounds
    assert estimate.value == pytest.approx(
        np.median([x / 1000 for x in a] * 4 + [x / 400 for x in a])
    )


NEVER_OF = {n: [100.0, 110.0, 120.0, 130.0, 140.0][: 5 - n] + [math.inf] * n for n in range(6)}


@pytest.mark.parametrize(
    ("a", "b", "bound"), [(0, 1, ""), (5, 0, "at least"), (0, 3, "at most"), (3, 3, "about")]
)
def test_a_ratio_is_a_bound_if_the_times_never_reached_could_change_it(a, b, bound):
    """Of five times on each side, `a` and `b` are never reached. They may be 150, or very late."""
    found = stats.ratio_of_times(NEVER_OF[a], NEVER_OF[b], 150.0)
    assert found.bound == bound
    late = []
    for of_a, of_b in itertools.product((150.0, 1e9), repeat=2):
        late.append(
            np.median(np.divide.outer(np.minimum(NEVER_OF[a], of_a), np.minimum(NEVER_OF[b], of_b)))
        )
    assert max(late) <= found.value or bound in ("at least", "about")
    assert min(late) >= found.value or bound in ("at most", "about")


def test_a_shift_takes_what_is_missing_as_unfavourably_as_it_can_be():
    a, b = [3.0, 4.0, 5.0, 6.0, 7.0], [0.0, 0.5, 1.0, 1.5, 2.0]
    whole, worse = stats.shift(a, b), stats.shift([math.nan, *a[1:]], b)
    assert worse.low == stats.shift([-math.inf, *a[1:]], b).low < whole.low
    assert worse.high == stats.shift([math.inf, *a[1:]], b).high > whole.high
    assert worse.value == stats.shift(a[1:], b).value
    assert math.isnan(stats.shift([math.nan], b).value)


def test_clusters_that_agree_get_the_exact_binomial_interval():
    estimate = stats.clustered_share([1] * 5, [9] * 5)
    exact = scipy_stats.binomtest(5, 45).proportion_ci(method="exact")
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
        (1 / 9, exact.low, exact.high)
    )
    every = stats.clustered_share([4, 4, 4], [4, 4, 4])
    assert (every.low < 0.75, every.high) == (True, 1.0)


def test_clusters_that_are_all_or_nothing_count_as_few():
    """Six of 100, half of them all hits: deff = 120, and n* = 600 / 120 (t(599) / t(5))^2 = 5
    (1.96393 / 2.57058)^2.
    """
    estimate = stats.clustered_share([100, 100, 100, 0, 0, 0], [100] * 6)
    half = 5 * (1.96393 / 2.57058) ** 2 / 2
    assert estimate.low == pytest.approx(scipy_stats.beta.ppf(0.025, half, half + 1), abs=1e-4)
    assert estimate.high == pytest.approx(1 - estimate.low)


@pytest.mark.parametrize("gap", [0.1, -0.3, 0.9])
def test_a_size_below_a_margin_is_two_one_sided_tests(gap):
    """Schuirmann 1987, each test at half the level: a difference below the margin, and above minus
    the margin. A size above the margin is the other pair's.
    """
    rng, margin = np.random.default_rng(3), 0.4
    a, b = rng.normal(gap, 0.2, 7), rng.normal(0, 0.3, 9)
    size = stats.size(stats.difference(a.tolist(), b.tolist()))
    below = scipy_stats.ttest_ind(a - margin, b, equal_var=False, alternative="less").pvalue
    above = scipy_stats.ttest_ind(a + margin, b, equal_var=False, alternative="greater").pvalue
    expected = 2 * max(below, above)
    if size.value > margin:
        expected = 2 * min(1 - below, 1 - above)
    assert size.p_value(margin) == pytest.approx(expected, rel=1e-4)


# p-values


SAMPLES = {
    "correlation": stats.mean_correlation([0.3, 0.9, 0.75, -0.1]),
    "share difference": stats.share_difference(14, 16, 5, 8),
    "size": stats.size(stats.difference([0.1, 0.5, 0.3], [0.2, 0.9, 0.4, 0.4])),
    "ratio": stats.ratio_of_times([3.0, 1.0, 4.0, 1.5], [5.0, 9.0, 2.6, math.inf], 10.0),
    "two-way": stats.two_way_difference(np.random.default_rng(0).random((4, 9)), np.zeros((3, 9))),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_p_value_is_at_most_05_exactly_where_the_interval_excludes_the_threshold(name):
    """And so at every other level: on either side of each end of the interval at that level."""
    estimate, seen = SAMPLES[name], set()
    if estimate.confidence == 0.95:
        assert estimate.interval_at(0.95) == (estimate.low, estimate.high)
    for level in (0.5, 0.95, 0.99):
        low, high = estimate.interval_at(level)
        for threshold in (-1.5, 0.0, 0.5, low - 1e-6, low + 1e-6, high - 1e-6, high + 1e-6):
            p, excluded = estimate.p_value(threshold), threshold < low or threshold > high
            assert (p <= 1 - level + 1e-9) == excluded, (level, threshold, p)
            seen.add(excluded)
    assert seen == {True, False}
    assert estimate.p_value(estimate.value) > 1 - 1e-9


def test_p_values_of_means_are_students_and_welchs():
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 8), (16, 5)):
        a, b = rng.normal(0.4, 0.3, n), rng.normal(0.1, 0.9, m)
        one, two = stats.mean(a.tolist()), stats.difference(a.tolist(), b.tolist())
        student = scipy_stats.ttest_1samp(a, 0.35).pvalue
        welch = scipy_stats.ttest_ind(a - 0.35, b, equal_var=False).pvalue
        found = one.p_value(0.35), two.p_value(0.35)
        assert found == pytest.approx((student, welch), rel=1e-5)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 7)])
def test_p_values_of_shifts_and_ratios_are_mann_and_whitneys(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.random(n), rng.random(m) + 0.2
    for threshold in (-0.6, 0.0):
        expected = scipy_stats.mannwhitneyu(a - threshold, b, method="exact").pvalue
        assert stats.shift(a.tolist(), b.tolist()).p_value(threshold) == pytest.approx(
            expected, rel=1e-6
        )
    for ratio in (0.5, 3.0):
        expected = scipy_stats.mannwhitneyu(a, ratio * b, method="exact").pvalue
        assert stats.ratio_of_times(a.tolist(), b.tolist(), 9.0).p_value(ratio) == pytest.approx(
            expected, rel=1e-6
        )


# Shares


@pytest.mark.parametrize("n", [1, 8])
def test_share_is_clopper_and_pearsons_and_its_p_the_doubled_binomial_tail(n):
    for k in range(n + 1):
        estimate, test = stats.share(k, n), scipy_stats.binomtest(k, n)
        exact = test.proportion_ci(method="exact")
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
            (k / n, exact.low, exact.high)
        )
        for threshold in (0.2, 0.5, 0.9):
            tails = (
                scipy_stats.binom.cdf(k, n, threshold),
                scipy_stats.binom.sf(k - 1, n, threshold),
            )
            assert estimate.p_value(threshold) == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-4)


@pytest.mark.parametrize(
    ("a", "of_a", "b", "of_b", "low", "high"),
    [
        (56, 70, 48, 80, 0.0524, 0.3339),
        (10, 10, 0, 20, 0.6791, 1.0000),
    ],
)
def test_share_difference_by_newcombes_table(a, of_a, b, of_b, low, high):
    """Newcombe 1998, Statistics in Medicine 17, 873-890, Table II, method 10."""
    estimate = stats.share_difference(a, of_a, b, of_b)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=5.1e-5)
    turned = stats.share_difference(b, of_b, a, of_a)
    assert (turned.low, turned.high) == pytest.approx((-estimate.high, -estimate.low))


@given(st.lists(st.integers(0, 64), min_size=2, max_size=12))
def test_accuracies_never_count_more_rows_than_there_are(hits):
    """Seeds that differ only widen what as many hits among the rows would give."""
    estimate = stats.mean_accuracy([h / 64 for h in hits], 64)  # a mean may be no whole number
    mean = sum(hits) / len(hits)
    low = scipy_stats.beta.ppf(0.025, mean, 64 - mean + 1) if mean else 0.0
    high = scipy_stats.beta.ppf(0.975, mean + 1, 64 - mean) if mean < 64 else 1.0
    assert estimate.value == pytest.approx(mean / 64)
    assert 0 <= estimate.low <= low + 1e-9
    assert high - 1e-9 <= estimate.high <= 1


def test_mean_correlation_is_students_on_fishers_z():
    values = [0.2, 0.9, 0.5, 0.99]
    estimate, z = stats.mean_correlation(values), stats.mean(np.arctanh(values).tolist())
    ends = np.tanh([z.value, z.low, z.high])
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(tuple(ends))
    assert estimate.p_value(0.1) == pytest.approx(
        scipy_stats.ttest_1samp(np.arctanh(values), math.atanh(0.1)).pvalue, rel=1e-5
    )


# Two samples at once


def test_two_way_difference_of_what_does_not_vary_is_not_certain():
    alike = stats.two_way_difference(np.full((3, 7), 0.1), np.full((4, 7), 0.3))
    single = stats.two_way_difference(np.array([[1.0, 0.0, 1.0]]), np.zeros((4, 3)))
    for estimate in (alike, single):
        assert (estimate.low, estimate.high, estimate.p_value(0.0)) == (-1.0, 1.0, 1.0)


def test_two_way_difference_adds_the_variances_of_runs_and_problems():
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 40)) / 2 + rng.random(40) / 2, rng.random((4, 40)) / 2
    estimate = stats.two_way_difference(a, b)
    means = (a.mean(axis=1), b.mean(axis=1), a.mean(axis=0) - b.mean(axis=0))
    parts = np.array([x.var(ddof=1) / len(x) for x in means])
    freedom = parts.sum() ** 2 / (parts**2 / [4, 3, 39]).sum()
    half = scipy_stats.t.ppf(0.975, freedom) * math.sqrt(parts.sum())
    assert (estimate.low, estimate.high) == pytest.approx(
        (estimate.value - half, estimate.value + half)
    )
    assert estimate.value == pytest.approx(a.mean() - b.mean())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stats.mean([5.0, 5.1], stats.SHARE), "A value is 5, but must be from 0 to 1"),
        (lambda: stats.mean_correlation([0.5, 1.5]), "A value is 1.5, but must be from -1 to 1"),
        (lambda: stats.ratio_of_times([-1.0], [3.0], 10.0), "A value is -1, but must be from 0"),
        (lambda: stats.share(5, 3), "5 hits, but must be from 0 to 3, the number of trials"),
        (lambda: stats.ratio_of_times([math.nan], [3.0], 10.0), "A time is missing"),
    ],
)
def test_a_value_outside_the_range_of_its_statistic_is_refused(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


# Several claims at once


@given(st.lists(st.floats(1e-12, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values):
    """Holm 1979: the least against alpha / m, the next against alpha / (m - 1), ..., until one is
    not rejected.
    """
    adjusted, m = stats.holm(p_values), len(p_values)
    order = sorted(range(m), key=p_values.__getitem__)
    for alpha in (0.001, 0.0123, 0.05, 0.5):
        rejected = set()
        for done, i in enumerate(order):
            if (m - done) * p_values[i] > alpha:
                break
            rejected.add(i)
        assert {i for i in range(m) if adjusted[i] <= alpha} == rejected
    assert all(
        raw <= after <= min(1, m * raw) for raw, after in zip(p_values, adjusted, strict=True)
    )
    assert [adjusted[i] for i in order] == sorted(adjusted)
