"""Meta-learner and checker: accuracies that are read."""

import pytest

from figures.checker.study import CHECKER
from ihlab import train
from ihlab.recipes.labels import KV
from tasks.checker import FALSE, RECALL, TRUE


def test_accuracies_are_those_of_the_last_evaluation(tmp_path):
    planned = CHECKER.runs("smoke")[1]
    run = train(planned.config, tmp_path)
    row = CHECKER.gather([(planned.cell_name, run)], "smoke").iloc[0]
    recall, true, false = (
        run.metrics.iloc[-1][f"accuracy_question_{kind}"] for kind in (RECALL, TRUE, FALSE)
    )
    assert (row["recall"], row["check"]) == pytest.approx((recall, (true + false) / 2), abs=1e-5)
    assert (row["asked"], row["variant"]) == ("second", KV)
