"""Meta-learner and checker: what is planned, accuracies that are read, verdicts either way."""

import pytest

from figures.checker.study import CHECKER
from ihlab import train
from ihlab.recipes.labels import K_ONLY, KV, V_ONLY, VANILLA
from tasks.checker import FALSE, RECALL, TRUE
from tests.figures.made_up import table, verdicts


def decided(recall, check):
    """The verdicts if these (asked, variant) have high accuracies of recall and of checks."""

    def of(cell):
        key = cell["asked"], cell["variant"]
        return {"recall": recall.get(key, 0.03), "check": check.get(key, 0.48)}

    return set(verdicts(CHECKER, table(CHECKER, of)).values())


def test_verdicts_can_come_out_either_way():
    equations = {
        ("second", V_ONLY): 0.9,
        ("second", KV): 0.9,
        ("first", K_ONLY): 0.9,
        ("first", KV): 0.9,
    }
    assert decided(equations, equations) == {"holds"}
    swapped = {
        ("second", VANILLA): 0.9,
        ("second", K_ONLY): 0.9,
        ("second", V_ONLY): 0.7,
        ("first", VANILLA): 0.9,
        ("first", V_ONLY): 0.9,
    }
    assert decided(swapped, swapped) == {"fails"}
    assert decided({}, {}) == {"not tested at this scale"}


def test_accuracies_are_those_of_the_last_evaluation(tmp_path):
    planned = CHECKER.runs("smoke")[1]
    run = train(planned.config, tmp_path)
    row = CHECKER.gather([(planned.cell_name, run)], "smoke").iloc[0]
    recall, true, false = (
        run.metrics.iloc[-1][f"accuracy_question_{kind}"] for kind in (RECALL, TRUE, FALSE)
    )
    assert (row["recall"], row["check"]) == pytest.approx((recall, (true + false) / 2), abs=1e-5)
    assert (row["asked"], row["variant"]) == ("second", KV)
