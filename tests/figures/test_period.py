"""Period 2: what the rules score, what is trained and measured, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from figures.period.study import (
    KV_2,
    KV_2_3,
    KV_2_RANDOM,
    KV_3,
    KV_RANDOM,
    PERIOD,
    TESTED,
    V_2,
    answered,
    periodic,
)
from tests.figures import made_up

RULES = ("induction", "before", "any")


def said_by(rule, row, t, rng):
    """A rule's answer at position t of a row."""
    if rule == "induction":
        return row[row.index(row[t]) + 1]
    return (
        row[t - 1]
        if rule == "before"
        else rng.choice([token for token in set(row[: t + 1]) if token != row[t]])
    )


def scores(rule, period, rows=200):
    """The fractions (right, before) that a rule has in the rows of a period."""
    rng = np.random.default_rng(0)
    batch = periodic(period).batch(rows, rng)
    said = [
        [said_by(rule, row, t, rng) if t >= period else -1 for t in range(32)]
        for row in batch.inputs.tolist()
    ]
    found = answered(batch, np.array(said))
    assert found["current"] == 0
    return found["right"], found["before"]


@pytest.mark.parametrize("period", [3, 4, 8])
def test_the_rules_score_what_the_table_of_the_study_says(period):
    assert scores("induction", period) == (1, 0)
    assert scores("before", period) == (0, 1)
    assert scores("any", period) == pytest.approx((1 / (period - 1),) * 2, abs=0.03)


def table(answers, steps, period2=1.0):
    """`answers` has each curve's (right, before) in periods above 2, `steps` its steps to 90%."""
    rng, parts = np.random.default_rng(0), []
    rows = made_up.table(PERIOD, lambda cell: {"steps_to_90": steps[cell["curve"]]}, noise=0.1)
    for row in rows.assign(horizon=300).to_dict("records"):
        middle = answers[row["curve"]]
        own = float((middle[0] > 0.5) == (row["seed"] % 2 == 1))
        row |= {"fall_own": own, "fall_before": 1 - own}
        for period in TESTED:
            near = np.clip(
                np.array(middle) + rng.uniform(-0.04, 0.04, 2) + (0.02 if own else -0.02), 0, 1
            )
            row[f"right_{period}"], row[f"before_{period}"] = near if period > 2 else (period2, 0.0)
        parts.append(row)
    return pd.DataFrame(parts)


INDUCTION, BEFORE, ANY = (0.97, 0.02), (0.02, 0.97), (0.5, 0.5)


def verdicts(kv, vanilla, random, ratios, period2=1.0):
    answers = {KV_2: kv, V_2: vanilla, KV_RANDOM: random, KV_3: kv, KV_2_3: kv, KV_2_RANDOM: kv}
    steps = {
        **dict.fromkeys((cell["curve"] for cell in PERIOD.cells), 60.0),
        KV_2_RANDOM: 60 * ratios[0],
        KV_2_3: 60 * ratios[1],
    }
    return [*made_up.verdicts(PERIOD, table(answers, steps, period2)).values()]


def test_verdicts_can_come_out_either_way():
    right = verdicts(BEFORE, ANY, INDUCTION, (2.0, 0.2))
    assert right[:4] == ["holds"] * 4
    assert right[5:] == ["holds"] * 3
    wrong = verdicts(INDUCTION, BEFORE, BEFORE, (0.5, 1.0))
    assert wrong[:4] == ["holds", "fails", "fails", "fails"]
    assert wrong[5:] == ["fails"] * 3
    assert verdicts(ANY, ANY, INDUCTION, (1.0, 0.5))[1] == "holds"
    assert verdicts(ANY, ANY, INDUCTION, (1.0, 0.5))[4] == "holds", (
        "seeds that need their own value, and the others"
    )
