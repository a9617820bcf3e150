"""Order of bigrams and induction: what is trained, waits counted one by one, verdicts on made-up tables."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from ihlab import train
from ihlab.claims.claim import judged
from ihlab.claims.induction import KV1, V2
from ihlab.studies.order import INDUCTION, KV2, MODELS, STEPS, TABLE, TRIGGERS, Order, frequency, label, waits
from tasks import TriggerTask


def table(bigrams, induction):
    """A laptop table: accuracies that cross one half at the steps given for each model (inf: never)."""
    rng, rows = np.random.default_rng(0), []
    for curve in MODELS:
        for triggers in TRIGGERS["laptop"]:
            for seed in range(8):
                noise = rng.uniform(0.9, 1.1)
                at = [steps[curve] * noise for steps in (bigrams, induction)]
                for step in range(0, STEPS[curve] + 1, 10):
                    reached = [float(np.clip(0.5 + (step - one) / 40, 0, 1)) for one in at]
                    rows.append((curve, triggers, seed, STEPS[curve], step, *reached))
    return pd.DataFrame(rows, columns=["curve", "triggers", "seed", "horizon", "step", TABLE, INDUCTION])


def verdicts(data):
    return [claim.verdict for claim in judged(Order().claims(data, "laptop"))]


def test_every_model_is_trained_at_every_frequency():
    planned = Order().runs("laptop")
    found = {(run.curve, run.config.seed) for run in planned}
    assert found == {(label(c, n), seed) for c in MODELS for n in TRIGGERS["laptop"] for seed in range(8)}
    assert [round(frequency(n), 2) for n in TRIGGERS["laptop"]] == [0.11, 0.26, 0.4]
    assert len({run.config.digest for run in planned}) == len(planned) == 72


def test_verdicts_can_come_out_either_way():
    bigrams = {V2: 50.0, KV1: 200.0, KV2: 200.0}
    induction = {V2: 500.0, KV1: 100.0, KV2: 90.0}
    assert verdicts(table(bigrams, induction)) == ["holds"] * 9
    assert verdicts(table(induction, bigrams)) == ["fails"] * 9
    assert verdicts(table(bigrams, bigrams)) == ["undecided"] * 9


def test_induction_that_is_never_learned_comes_after_the_bigrams():
    data = table(dict.fromkeys(MODELS, 50.0), dict.fromkeys(MODELS, math.inf))
    assert verdicts(data) == ["holds"] * 3 + ["fails"] * 6
    assert re.search(rf"at least 2\d, at least 2\d, at least 2\d \({V2}\)", Order().summary(data, "laptop"))


def test_a_model_without_bigrams_is_not_tested():
    data = table(dict.fromkeys(MODELS, math.inf), dict.fromkeys(MODELS, 50.0))
    assert set(verdicts(data)) == {"not tested at this scale"}


def test_waits_are_those_of_the_table():
    bigrams, induction, horizon = waits(table(dict.fromkeys(MODELS, 50.0), dict.fromkeys(MODELS, 300.0)), KV1, 11)
    assert horizon == STEPS[KV1]
    assert (np.abs(bigrams - 50) < 6).all()
    assert (np.abs(induction - 300) < 31).all()


def test_gather_keeps_the_accuracies_of_the_run(tmp_path):
    planned = Order().runs("smoke")[0]
    run = train(planned.config, tmp_path)
    data = Order().gather([(planned.curve, run)], "smoke")
    assert data["step"].tolist() == run.metrics["step"].tolist()
    assert data[INDUCTION].tolist() == pytest.approx(run.metrics["accuracy_source_2"].tolist(), abs=1e-5)
    assert set(data["curve"]) == {V2}
    assert set(data["triggers"]) == {planned.config.task.triggers} == {4}
    assert isinstance(run.config.task, TriggerTask)


def test_the_picture_follows_from_the_table():
    data = table({V2: 50.0, KV1: 50.0, KV2: 50.0}, {V2: math.inf, KV1: 150.0, KV2: 100.0})
    (axes,) = Order().draw(data, "laptop").axes
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert lines[KV1] == pytest.approx([3] * 3, rel=0.1)
    assert min(lines[V2]) > 20
