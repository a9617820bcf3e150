"""Worst case: which checkpoints are attacked, and verdicts on made-up tables."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from figures.worst_case.study import GRID, K1, KV1, KV2, V2, WORST_CASE, measure
from tests.figures.made_up import table, verdicts


def made_up(accuracies, grown):
    def of(cell):
        end = accuracies[cell["variant"]]
        return {"steps_to_999": 100, "worst_1": 0.5, "worst_2": 0.6, "worst_4": 0.5 + grown, "worst_end": end,
                "proved": end, "at_minimum": end, "median_margin": 1.0, "accuracy": 1.0}  # fmt: skip

    return verdicts(WORST_CASE, table(WORST_CASE, of, seeds=8, noise=0.01))


def test_verdicts_can_come_out_either_way():
    assert set(made_up({V2: 0.3, KV1: 0.97, K1: 0.9, KV2: 0.6}, 0.4).values()) == {"holds"}
    assert set(made_up({V2: 0.7, KV1: 0.6, K1: 0.4, KV2: 0.65}, -0.2).values()) == {"fails"}


@pytest.mark.parametrize("reached", [100, 500, np.inf])
def test_checkpoints_at_multiples_of_the_steps_are_attacked(reached, monkeypatch):
    attacked = []
    found = SimpleNamespace(accuracy=0.25, table=pd.DataFrame({"margin": [-3.0, 1.0, 2.0]}))
    monkeypatch.setattr("ihlab.certify.attack", lambda source, *_, **__: attacked.append(source) or found)
    steps = [0, 100, 150, 250, 500, 900, 1600]
    metrics = pd.DataFrame({"step": steps, "accuracy": [1.0 if step >= reached else 0.5 for step in steps]})
    config = GRID({"variant": V2})
    run = SimpleNamespace(metrics=metrics, config=config, checkpoints=steps, model=lambda step: step)
    measured = measure(run)
    expected = {100: [100, 250, 500], 500: [500, 1600], np.inf: []}[reached]
    assert attacked == [*expected, run]
    assert np.isnan(measured["worst_4"]) == (reached != 100)
    assert np.isnan(measured["proved"])
