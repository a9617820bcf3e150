"""MQAR: the choice of learning rates, verdicts on made-up learning curves, and both stages at smoke scale."""

import io
import math

import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES
from ihlab.studies.mqar import (
    GOAL,
    KV1,
    MQAR,
    RATES,
    SEEDS,
    SETTINGS,
    TUNING_SEEDS,
    V1,
    V2,
    chosen_rates,
    tuning_setting,
)

pytestmark = pytest.mark.slow

HORIZON = 2500
BEST = {KV1: 6e-3, V1: 3e-3, V2: 3e-3}


def run(curve, kind, lr, seed, reaches):
    """A run evaluated every 10 steps that gets to the goal at `reaches` and ends there; inf: never."""
    last = int(min(reaches, HORIZON))
    steps = [*range(0, last, 10), last]
    return pd.DataFrame({"step": steps}).assign(
        curve=curve, lr=lr, seed=seed, horizon=HORIZON, kind=kind,
        accuracy_first=[0.95 if step >= reaches else 0.2 for step in steps], accuracy=0.3,
    )  # fmt: skip


def table(kv, one, two, best=None):
    """Every curve's steps to the goal, seeds 10 apart, after a tuning that is soonest at `best`."""
    best, setting = best or BEST, tuning_setting("laptop")
    runs = [
        run(f"{who}, {setting}", "tuning", lr, seed, 300 if lr == best[who] else 600)
        for who in (KV1, V2)
        for lr in RATES["laptop"]
        for seed in TUNING_SEEDS
    ] + [
        run(f"{who}, {setting}", "run", best[who], seed, reaches + 10 * seed)
        for setting in SETTINGS["laptop"]
        for who, reaches in ((KV1, kv), (V1, one), (V2, two))
        for seed in range(5)
    ]
    return pd.concat(runs, ignore_index=True)


def test_rates_are_chosen_from_tuning_runs_alone():
    data = table(200, math.inf, 800)
    assert chosen_rates(data, "laptop") == BEST
    stored = pd.read_csv(io.StringIO(data.to_csv(index=False)))
    assert chosen_rates(stored, "laptop") == BEST
    misleading = data.assign(lr=data["lr"].where(data["kind"] == "tuning", 1.2e-2))
    assert chosen_rates(misleading, "laptop") == BEST


@pytest.mark.parametrize(
    ("kv", "one", "two", "verdicts"),
    [
        (200, math.inf, 800, ["holds", "holds"]),
        (200, 900, 800, ["holds", "holds"]),
        (200, math.inf, 100, ["holds", "fails"]),
        (math.inf, 200, 800, ["fails", "fails"]),
        (200, math.inf, 210, ["holds", "undecided"]),
        (math.inf, math.inf, math.inf, ["undecided", "undecided"]),
    ],
)
def test_verdicts(kv, one, two, verdicts):
    """Five seeds that do not overlap decide both claims by the exact test, also after Holm."""
    claims = judged(MQAR().claims(table(kv, one, two), "laptop"))
    assert [claim.verdict for claim in claims] == verdicts
    assert {claim.seeds for claim in claims} == {5}


def test_claims_rest_on_the_first_query_and_not_on_tuning_runs():
    """The accuracy over all queries is .3 throughout, and tuning seeds take 300 steps."""
    claims = MQAR().claims(table(200, math.inf, 800), "laptop")
    assert claims[1].estimate.value == pytest.approx(220 / 820, rel=0.02)
    assert "5 of 5 and 0 of 5 get there within 2500 steps" in claims[0].measure


def test_a_rate_at_the_end_of_the_grid_is_said():
    inside = MQAR().claims(table(200, math.inf, 800), "laptop")
    assert not any("tried" in claim.measure for claim in inside)
    ends = table(200, math.inf, 800, best={KV1: 1.2e-2, V1: 1.5e-3, V2: 1.5e-3})
    one, two, *_ = MQAR().claims(ends, "laptop")
    assert "0.012 [the largest tried] and 0.0015 [that of vanilla, 2 layers; the smallest tried]" in one.measure
    assert "0.012 [the largest tried] and 0.0015 [the smallest tried]" in two.measure


def test_the_summary_has_the_medians():
    text = MQAR().summary(table(200, math.inf, 800), "laptop")
    assert text.count(f"{KV1} 220, {V1} never, {V2} 820") == 1


def test_a_run_that_ended_is_drawn_on():
    """Else the median over seeds falls when the first of them are done."""
    drawn = MQAR().draw(table(200, math.inf, 800), "laptop")
    for axes in drawn.axes:
        kv = axes.get_lines()[0]
        assert kv.get_xdata()[-1] == 240
        assert (pd.Series(kv.get_ydata()).diff().dropna() >= 0).all()
        assert kv.get_ydata()[list(kv.get_xdata()).index(220)] == 0.95


@pytest.mark.parametrize("scale", SCALES)
def test_what_is_tuned(scale):
    """The two curves that learn, at the smaller setting, with seeds that no claim uses."""
    planned = MQAR().runs(scale)
    assert {plan.curve for plan in planned} == {f"{who}, {tuning_setting(scale)}" for who in (KV1, V2)}
    assert len({plan.config.digest for plan in planned}) == len(planned) == 2 * len(RATES[scale]) * len(TUNING_SEEDS)
    assert {plan.config.seed for plan in planned}.isdisjoint(range(SEEDS[scale]))
    assert {plan.config.stop_at_accuracy for plan in planned} == {GOAL}


def test_the_whole_way_at_smoke_scale(smoke):
    _, folder = smoke("mqar")
    data = folder.data()
    runs, tuning = data[data["kind"] == "run"], data[data["kind"] == "tuning"]
    assert tuning["seed"].isin(TUNING_SEEDS).all()
    assert tuning.groupby("curve")["lr"].nunique().tolist() == [2, 2]
    assert runs.groupby("curve")["seed"].nunique().tolist() == [2, 2, 2]
    chosen = chosen_rates(data, "smoke")
    for curve, lr in runs.groupby("curve")["lr"].unique().items():
        assert lr.tolist() == [chosen[curve.removesuffix(f", {tuning_setting('smoke')}")]]
    assert "never" in MQAR().summary(data, "smoke")
