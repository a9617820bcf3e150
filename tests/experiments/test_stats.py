"""Intervals against closed forms, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest

from ihlab.experiments import stats


def test_mean_interval_by_the_table():
    """t(0.975, 4) = 2.776445 stands in any statistics book."""
    estimate = stats.mean([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half), abs=1e-5)


def test_welch_by_hand():
    a, b = [1.0, 2.0, 3.0], [10.0, 14.0, 18.0]
    estimate = stats.difference(a, b)
    va, vb = 1.0 / 3, 16.0 / 3
    freedom = (va + vb) ** 2 / (va**2 / 2 + vb**2 / 2)
    assert freedom == pytest.approx(2.249, abs=1e-3)
    assert estimate.value == -12.0
    assert estimate.high - estimate.value == pytest.approx(3.8822 * math.sqrt(va + vb), rel=2e-3)  # t(0.975, 2.249)


def test_one_seed_says_nothing_about_spread():
    assert stats.mean([0.5]).high == math.inf
    assert stats.difference([0.5], [0.1, 0.2]).low == -math.inf


def test_equal_seeds_have_no_spread():
    estimate = stats.difference([1.0, 1.0], [0.0, 0.0])
    assert (estimate.low, estimate.high) == (1.0, 1.0)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (3, 5), (4, 4), (5, 5), (4, 6)])
def test_mann_whitney_depth_by_enumerating_all_orders(n, m):
    """U of every way to interleave n and m; the depth is the largest skip with a tail of at most 2.5%."""
    statistics = []
    for places in itertools.combinations(range(n + m), n):
        others = [p for p in range(n + m) if p not in places]
        statistics.append(sum(a > b for a in places for b in others))
    tail = [np.mean([u <= k for u in statistics]) for k in range(n * m + 1)]
    skip, confidence = stats.mann_whitney_depth(n, m)
    allowed = [k for k in range(n * m + 1) if tail[k] <= 0.025]
    assert skip == (max(allowed) if allowed else 0)
    assert confidence == pytest.approx(1 - 2 * tail[skip])


def test_ratio_of_times_of_clear_winners():
    fast, slow = [100.0, 110.0, 120.0, 130.0, 140.0], [400.0, 440.0, 480.0, 520.0, 560.0]
    estimate = stats.ratio_of_times(fast, slow, 1000.0)
    ratios = sorted(a / b for a in fast for b in slow)
    assert estimate.value == np.median(ratios)
    assert (estimate.low, estimate.high) == (ratios[2], ratios[-3])
    assert estimate.confidence == pytest.approx(1 - 8 / 252)


def test_a_run_that_never_gets_there_is_known_to_be_slower_than_the_horizon():
    """One of b at 400, four never within 1000: ratios with those four are at most a / 1000 and at least 0."""
    never = math.inf
    a = [100.0, 110.0, 120.0, 130.0, 140.0]
    estimate = stats.ratio_of_times(a, [400.0, never, never, never, never], 1000.0)
    assert estimate.low == 0.0
    assert estimate.high == pytest.approx(120 / 400)  # the third largest of the bounds
    assert estimate.value == pytest.approx(np.median([x / 1000 for x in a] * 4 + [x / 400 for x in a]))
    turned = stats.ratio_of_times([400.0, never, never, never, never], a, 1000.0)
    assert turned.high == math.inf
    assert turned.low == pytest.approx(400 / 120)


def test_late_censoring_is_not_read_as_zero():
    a = [700.0, 800.0, 900.0, 950.0, 990.0]
    estimate = stats.ratio_of_times(a, [1000.0] + [math.inf] * 4, 1000.0)
    assert estimate.high == pytest.approx(0.99)


def test_nobody_getting_there_decides_nothing():
    never = [math.inf] * 5
    estimate = stats.ratio_of_times(never, never, 1000.0)
    assert (estimate.low, estimate.high) == (0.0, math.inf)


def test_ratio_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth, hits = 0.5, 0
    for _ in range(2000):
        a, b = truth * np.exp(rng.normal(size=5)), np.exp(rng.normal(size=5))
        estimate = stats.ratio_of_times(a.tolist(), b.tolist(), 1e9)
        hits += estimate.low <= truth <= estimate.high
    expected = 1 - 8 / 252
    assert hits / 2000 == pytest.approx(expected, abs=0.012)  # three standard errors


def test_first_reach():
    assert stats.first_reach([0, 10, 20, 30], [0.1, 0.95, 0.5, 0.99], 0.9) == 10
    assert stats.first_reach([0, 10], [0.1, 0.2], 0.9) == math.inf


def test_a_difference_with_nothing_says_nothing():
    nothing = stats.difference([], [1.0, 2.0])
    assert math.isnan(nothing.value)
    assert (nothing.low, nothing.high) == (-math.inf, math.inf)


def test_paired_median_by_hand():
    estimate = stats.paired([5.0, 1.0, 7.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    assert (estimate.value, estimate.low, estimate.high) == (3.0, 0.0, 6.0)
    assert estimate.confidence == pytest.approx(1 - 2 / 2**5)
    ten = stats.paired(np.arange(10.0).tolist(), [0.0] * 10)
    assert (ten.low, ten.high) == (1.0, 8.0)  # one at each end is left out: 2 (1 + 10) / 2**10 < 5%
    assert ten.confidence == pytest.approx(1 - 2 * (1 + 10) / 2**10)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 9, 17, 40])
def test_paired_median_is_the_onsets_median_over_seeds(n):
    """`ihlab.interp.onset.over_seeds` was written apart."""
    from ihlab.interp.onset import over_seeds

    values = np.random.default_rng(n).normal(size=n)
    estimate, other = stats.paired(values.tolist(), [0.0] * n), over_seeds(values)
    assert (estimate.value, estimate.low, estimate.high, estimate.confidence) == pytest.approx(tuple(other))


def test_a_pair_that_is_not_known_stands_at_both_ends():
    nan = math.nan
    estimate = stats.paired([1.0, nan, 3.0, 4.0, 5.0], [0.0] * 5)
    assert (estimate.value, estimate.low, estimate.high) == (3.5, -math.inf, math.inf)
    ten = stats.paired([1.0, nan, *np.arange(2.0, 10.0)], [0.0] * 10)
    assert (ten.low, ten.high) == (1.0, 9.0)
    for few in ([nan, nan], [2.0], []):
        nothing = stats.paired(few, [0.0] * len(few))
        assert (nothing.low, nothing.high) == (-math.inf, math.inf)


def test_paired_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=(4000, 5)) - math.log(2)
    estimates = [stats.paired(row.tolist(), [0.0] * 5) for row in draws]
    hits = np.mean([estimate.low <= 0 <= estimate.high for estimate in estimates])
    assert hits == pytest.approx(1 - 2 / 2**5, abs=0.012)  # three standard errors


def test_clusters_that_agree_get_the_exact_binomial_interval():
    from scipy.stats import binomtest

    estimate = stats.clustered_share([1] * 5, [9] * 5)
    exact = binomtest(5, 45).proportion_ci(method="exact")
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1 / 9, exact.low, exact.high))
    none, all_ = stats.clustered_share([0, 0, 0], [4, 4, 4]), stats.clustered_share([4, 4, 4], [4, 4, 4])
    assert (none.low, all_.high) == (0.0, 1.0)
    assert none.high == pytest.approx(1 - all_.low)
    assert all_.low < 0.75


def test_clusters_that_are_all_or_nothing_count_as_few():
    """Six of 100, half of them all hits: deff = 120, and n* = 600 / 120 (t(599) / t(5))^2 = 5 (1.96393 / 2.57058)^2."""
    from scipy.stats import beta

    estimate = stats.clustered_share([100, 100, 100, 0, 0, 0], [100] * 6)
    half = 5 * (1.96393 / 2.57058) ** 2 / 2
    assert estimate.low == pytest.approx(beta.ppf(0.025, half, half + 1), abs=1e-4)
    assert estimate.high == pytest.approx(1 - estimate.low)


def test_clustered_share_covers_the_truth():
    rng, hits = np.random.default_rng(1), 0
    for _ in range(2000):
        drawn = rng.binomial(9, rng.beta(1.5, 3.5, size=5))
        estimate = stats.clustered_share(drawn.tolist(), [9] * 5)
        hits += estimate.low <= 0.3 <= estimate.high
    assert hits / 2000 >= 0.94


def test_share_of_nothing_is_unknown():
    nothing = stats.clustered_share([0, 0], [0, 0])
    assert math.isnan(nothing.value)
    assert (nothing.low, nothing.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("signed", "expected"),
    [((0.1, -0.2, 0.4), (0.1, 0.0, 0.4)), ((-0.3, -0.5, -0.1), (0.3, 0.1, 0.5)), ((0.3, 0.1, 0.5), (0.3, 0.1, 0.5))],
)
def test_the_size_of_a_difference_forgets_its_sign(signed, expected):
    assert stats.size(stats.Estimate(*signed)) == stats.Estimate(*expected)
