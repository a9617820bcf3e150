"""Worst case: runs that do not get to .999 are left out or stop a question; verdicts on made-up
tables.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from figures.worst_case.study import K1, KV1, KV2, V2, WORST_CASE, measure
from tests.figures.made_up import table, verdicts


def made_up(accuracies, mlp):
    def of(cell):
        return {
            "steps_to_999": 100,
            "worst_case": accuracies[cell["variant"]] + mlp * (cell["mlp"] == "MLP"),
        }

    return table(WORST_CASE, of, noise=0.01)


RIGHT = {V2: 0.3, KV1: 0.8, K1: 0.97, KV2: 0.6}
WRONG = {V2: 0.7, KV1: 0.6, K1: 0.4, KV2: 0.65}


def test_verdicts_can_come_out_either_way():
    assert set(verdicts(WORST_CASE, made_up(RIGHT, -0.1)).values()) == {"holds"}
    assert set(verdicts(WORST_CASE, made_up(WRONG, 0.1)).values()) == {"fails"}


def test_runs_that_do_not_get_there_are_left_out_and_most_of_a_cell_stop_its_questions():
    data = made_up(RIGHT, -0.1)
    late = (data["variant"] == KV2) & (data["seed"] == 300)
    data.loc[late, "worst_case"] = np.nan
    assert set(verdicts(WORST_CASE, data).values()) == {"holds"}
    data.loc[data["variant"] == KV2, "worst_case"] = np.nan
    untested = {
        id for id, verdict in verdicts(WORST_CASE, data).items() if verdict.startswith("not tested")
    }
    assert untested == {"two_shifted_layers", "second_layer"}


@pytest.mark.parametrize("accuracy", [0.5, 0.9995])
def test_only_a_run_that_gets_there_is_attacked(accuracy, monkeypatch):
    found = SimpleNamespace(accuracy=0.25, table=pd.DataFrame({"margin": [-3.0, 1.0, 2.0]}))
    monkeypatch.setattr("ihlab.certify.attack", lambda *_, **__: found)
    run = SimpleNamespace(metrics=pd.DataFrame({"step": [0, 40], "accuracy": [0.1, accuracy]}))
    measured = measure(run)
    attacked = accuracy > 0.999
    assert measured["steps_to_999"] == (40 if attacked else np.inf)
    assert (measured["worst_case"], measured["median_margin"]) == (
        (0.25, 1.0) if attacked else pytest.approx((np.nan, np.nan), nan_ok=True)
    )
