"""Period 2: what the rules score, as the table of the study says."""

import numpy as np
import pytest

from figures.period.study import answered, periodic

RULES = {
    "induction": lambda row, t, rng: row[row.index(row[t]) + 1],
    "the token before": lambda row, t, rng: row[t - 1],
    "any but the current": lambda row, t, rng: rng.choice(sorted({*row[: t + 1]} - {row[t]})),
}


@pytest.mark.parametrize("period", [3, 8])
@pytest.mark.parametrize("rule", RULES)
def test_the_rules_score_what_the_table_of_the_study_says(rule, period):
    rng = np.random.default_rng(0)
    batch = periodic(period).batch(200, rng)
    said = np.full(batch.inputs.shape, -1)
    for i, row in enumerate(batch.inputs.tolist()):
        for t in range(period, len(row)):
            said[i, t] = RULES[rule](row, t, rng)
    any_token = 1 / (period - 1)
    scores = {"induction": (1, 0), "the token before": (0, 1)}.get(rule, (any_token, any_token))
    found = answered(batch, said)
    assert (found["right"], found["before"]) == pytest.approx(scores, abs=0.03)
    assert found["current"] == 0
