"""Onsets planted in noise are found; noise and drifts raise no alarm."""

import numpy as np
import pytest

from ihlab.interp.onset import onset
from tasks.config import ConfigError

pytestmark = pytest.mark.slow

STEPS = np.r_[0:220:10, np.geomspace(220, 1000, 33).round()]  # as a run's evaluations
N = len(STEPS)


def interval_at(step):
    """The steps between the two evaluations around a step."""
    at = np.clip(np.searchsorted(STEPS, step, side="right"), 1, N - 1)
    return STEPS[at] - STEPS[at - 1]


def autoregressive(rng, correlation):
    noise = rng.standard_normal(N)
    for i in range(1, N):
        noise[i] = correlation * noise[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return noise


def planted(rng, shape, noise):
    """A curve of height 1, rising or falling, with its true start, or the middle of a sigmoid."""
    at = rng.uniform(STEPS[5], STEPS[45])
    width = rng.uniform(2, 6) * interval_at(at)
    curve = {
        "step": (at < STEPS).astype(float),
        "ramp": np.clip((STEPS - at) / width, 0, 1),
        "sigmoid": 1 / (1 + np.exp(-(STEPS - at) / (width / 6))),
    }[shape]
    sign = rng.choice([-1, 1])
    return sign * curve + noise * rng.standard_normal(N) + rng.normal(), at, sign


# Planted


@pytest.mark.parametrize(
    ("shape", "noise", "most_missed", "least_near"),
    [("step", 0.05, 2, 0.98), ("ramp", 0.01, 2, 0.98), ("sigmoid", 0.02, 4, 0.99)],
)
def test_a_planted_change_is_found_within_one_logging_interval(
    shape, noise, most_missed, least_near
):
    """Changes of 2 to 6 evaluations anywhere in the run, noise up to a twentieth of their height.

    Steps and ramps by their start. A sigmoid has no start; it has a middle.
    """
    rng = np.random.default_rng(1)
    name = "middle" if shape == "sigmoid" else "start"
    near, covered, missed = [], [], 0
    for _ in range(200):
        curve, true, sign = planted(rng, shape, noise)
        found = onset(STEPS, curve, draws=199)
        if found is None:
            missed += 1
            continue
        near.append(abs(getattr(found, name) - true) <= interval_at(true))
        covered.append(found.start_low <= true <= found.start_high)
        assert np.sign(found.after - found.before) == sign
    assert missed <= most_missed
    assert np.mean(near) >= least_near
    assert shape == "sigmoid" or np.mean(covered) >= 0.95


def test_the_numbers_of_a_noiseless_ramp():
    curve = np.interp(np.arange(N), [20, 24], [3.0, 1.0])
    found = onset(STEPS, curve, draws=199)
    assert (found.start, found.end, found.middle) == (STEPS[20], STEPS[24], STEPS[22])
    assert (found.start_low, found.start_high) == (STEPS[19], STEPS[21])  # as the logging
    assert (found.before, found.after) == pytest.approx((3, 1))
    assert found.p == pytest.approx(1 / 200)


def test_values_that_are_missing_are_left_out():
    """train_loss has none at step 0."""
    curve = (STEPS > 150) + 0.02 * np.random.default_rng(6).standard_normal(N)
    curve[[0, 30]] = np.nan
    there = ~np.isnan(curve)
    assert onset(STEPS, curve) == onset(STEPS[there], curve[there])


# No alarms

NOTHING = {
    "white noise": lambda rng: rng.standard_normal(N),
    "noise that correlates by 0.8": lambda rng: autoregressive(rng, 0.8),
    "a straight drift of a thousand times the noise": lambda rng: STEPS + rng.standard_normal(N),
    "a drift that levels off": lambda rng: 1 - np.exp(-STEPS / 500) + 0.02 * rng.standard_normal(N),
}


@pytest.mark.parametrize("name", NOTHING)
def test_noise_and_drifts_raise_no_alarm(name):
    """At most 1 in 100 by the level; 7 of 200 would be more than chance (p < 0.005) allows."""
    rng = np.random.default_rng(7)
    alarms = sum(onset(STEPS, NOTHING[name](rng), draws=199) is not None for _ in range(200))
    assert alarms < 7


def test_curves_without_noise_or_change_have_no_onset():
    for curve in (np.zeros(N), 3 - STEPS / 7, np.exp(-STEPS / 500)):
        assert onset(STEPS, curve) is None


# Bad input


@pytest.mark.parametrize(
    ("steps", "values", "message"),
    [
        (STEPS[:11], np.arange(11), "The curve has 11 values, but a change needs at least 12"),
        (STEPS, np.zeros(N - 1), rf"steps has shape \[{N}\] and values \[{N - 1}\]"),
        (STEPS, np.r_[np.zeros(N - 1), np.inf], "infinite"),
    ],
    ids=["few", "lengths", "infinite"],
)
def test_curves_that_cannot_be_read_are_refused(steps, values, message):
    with pytest.raises(ConfigError, match=message):
        onset(steps, values)


def test_too_few_draws_are_refused():
    with pytest.raises(ConfigError, match="draws is 50, but must be at least 100"):
        onset(STEPS, np.zeros(N), draws=50)
