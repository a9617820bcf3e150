"""MQAR: what is tuned, and verdicts on made-up learning curves."""

import math

import pandas as pd
import pytest

from ihlab.paper.studies.mqar import KV1, MQAR, V1, V2, cell
from ihlab.study.claim import judged

HORIZON = 2500
TUNING = (100, 101)


def run(curve, kind, lr, seed, reaches):
    """A run evaluated every 10 steps that gets to the goal at `reaches` and ends there; inf: never."""
    last = int(min(reaches, HORIZON))
    steps = [*range(0, last, 10), last]
    return pd.DataFrame({"step": steps}).assign(
        **cell(curve), lr=lr, seed=seed, horizon=HORIZON, kind=kind,
        accuracy_first=[0.95 if step >= reaches else 0.2 for step in steps], accuracy=0.3,
    )  # fmt: skip


def table(kv, one, two):
    """Every curve's steps to the goal, seeds 10 apart, and tuning runs that take 300."""
    runs = [run(who, "tuning", 3e-3, seed, 300) for who in (KV1, V2) for seed in TUNING]
    runs += [run(who, "run", 3e-3, s, at + 10 * s) for who, at in ((KV1, kv), (V1, one), (V2, two)) for s in range(5)]
    return pd.concat(runs, ignore_index=True)


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


def test_claims_rest_on_the_first_query_and_not_on_tuning_runs():
    """The accuracy over all queries is .3 throughout, and tuning seeds take 300 steps."""
    one, two = MQAR.claims(table(200, math.inf, 800), "laptop")
    assert two.estimate.value == pytest.approx(220 / 820, rel=0.02)
    assert "5 of 5 and 0 of 5 seeds reach it within 2500 steps" in one.measure


def test_a_run_that_ended_is_drawn_on():
    """Else the median over seeds falls when the first of them are done."""
    [axes] = MQAR.draw(table(200, math.inf, 800), "laptop").axes
    kv = axes.get_lines()[0]
    assert (pd.Series(kv.get_ydata()).diff().dropna() >= 0).all()
    assert kv.get_ydata()[list(kv.get_xdata()).index(220)] == 0.95
