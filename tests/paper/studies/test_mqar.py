"""MQAR: what is tuned, and verdicts on made-up learning curves."""

import math

import pandas as pd
import pytest

from ihlab.paper.studies.mqar import KV1, MQAR, V1, V2, cell
from ihlab.study.claim import judged

HORIZON = 2500
TUNING = (100, 101)


def table(kv, one, two):
    """Every curve's steps to the goal, seeds 10 apart, and tuning runs that take 300."""
    runs = [(who, "tuning", seed, 300) for who in (KV1, V2) for seed in TUNING]
    runs += [(who, "run", s, steps + 10 * s) for who, steps in ((KV1, kv), (V1, one), (V2, two)) for s in range(5)]
    rows = [
        {**cell(who), "kind": kind, "lr": 3e-3, "seed": seed, "horizon": HORIZON, "steps_to_90": steps}
        for who, kind, seed, steps in runs
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("kv", "one", "two", "verdicts"),
    [
        (200, math.inf, 800, ["holds", "holds"]),
        (200, 900, 800, ["holds", "holds"]),
        (200, math.inf, 100, ["holds", "fails"]),
        (math.inf, 200, 800, ["fails", "fails"]),
        (200, math.inf, 210, ["holds", "undecided"]),
        (math.inf, math.inf, math.inf, ["not tested at this scale"] * 2),
    ],
)
def test_verdicts(kv, one, two, verdicts):
    """Five seeds that do not overlap decide both claims by the exact test, also after Holm."""
    claims = judged(MQAR.claims(table(kv, one, two), "laptop"))
    assert [claim.verdict for claim in claims] == verdicts
    assert {claim.seeds for claim in claims} == {5}


def test_claims_do_not_rest_on_tuning_runs():
    one, two = MQAR.claims(table(200, math.inf, 800), "laptop")
    assert two.estimate.value == pytest.approx(220 / 820, rel=0.02)
    assert "5 of 5 and 0 of 5 seeds reach it within 2500 steps" in one.measure
