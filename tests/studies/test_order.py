"""Order of bigrams and induction: what is trained, waits counted one by one, verdicts on made-up tables."""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab import train
from ihlab.claims.induction import KV1, V2
from ihlab.studies.order import INDUCTION, KV2, MODELS, ORDER, STEPS, TABLE, TRIGGERS, frequency, waits
from tests.studies import made_up


def table(bigrams, induction):
    """Accuracies that cross one half at the steps given for each model (inf: never)."""
    rng, rows = np.random.default_rng(0), []
    for cell in ORDER.cells:
        curve = cell["curve"]
        for seed in range(8):
            noise = rng.uniform(0.9, 1.1)
            at = [steps[curve] * noise for steps in (bigrams, induction)]
            step = np.arange(0, STEPS[curve] + 1, 10)
            reached = [np.clip(0.5 + (step - one) / 40, 0, 1) for one in at]
            rows.append(pd.DataFrame({"step": step, TABLE: reached[0], INDUCTION: reached[1]}).assign(
                **cell, seed=seed, horizon=STEPS[curve]))  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def verdicts(data):
    return [*made_up.verdicts(ORDER, data).values()]


def test_every_model_is_trained_at_every_frequency():
    planned = ORDER.runs("laptop")
    assert {(run.config.task.triggers, run.config.model.n_layers) for run in planned} == {
        (n, layers) for n in TRIGGERS for layers in (1, 2)
    }
    assert [round(frequency(n), 2) for n in TRIGGERS] == [0.11, 0.26, 0.4]
    assert len({run.config.digest for run in planned}) == len(planned) == 72


def test_verdicts_can_come_out_either_way():
    bigrams, induction = {V2: 50.0, KV1: 200.0, KV2: 200.0}, {V2: 500.0, KV1: 100.0, KV2: 90.0}
    assert verdicts(table(bigrams, induction)) == ["holds"] * 9
    assert verdicts(table(induction, bigrams)) == ["fails"] * 9
    assert verdicts(table(bigrams, bigrams)) == ["undecided"] * 9


def test_induction_that_is_never_learned_comes_after_the_bigrams():
    data = table(dict.fromkeys(MODELS, 50.0), dict.fromkeys(MODELS, math.inf))
    assert verdicts(data) == ["holds"] * 3 + ["fails"] * 6
    assert (ORDER.summary(data, "laptop")["never"] == 8).all()


def test_a_model_without_bigrams_is_not_tested():
    data = table(dict.fromkeys(MODELS, math.inf), dict.fromkeys(MODELS, 50.0))
    assert set(verdicts(data)) == {"not tested at this scale"}


def test_waits_are_those_of_the_table():
    bigrams, induction, horizon = waits(table(dict.fromkeys(MODELS, 50.0), dict.fromkeys(MODELS, 300.0)), KV1, 11)
    assert horizon == STEPS[KV1]
    assert (np.abs(bigrams - 50) < 6).all()
    assert (np.abs(induction - 300) < 31).all()


def test_gather_keeps_the_accuracies_of_the_run(tmp_path):
    planned = ORDER.runs("smoke")[0]
    run = train(planned.config, tmp_path)
    data = ORDER.gather([(planned.curve, run)], "smoke")
    assert data["step"].tolist() == run.metrics["step"].tolist()
    assert data[INDUCTION].tolist() == pytest.approx(run.metrics["accuracy_source_2"].tolist(), abs=1e-5)
    assert (data["curve"].iloc[0], data["triggers"].iloc[0]) == (V2, planned.config.task.triggers)
