"""Period 2: what the rules score, what is trained and measured, and verdicts on made-up tables."""

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import train
from ihlab.claims.claim import judged
from ihlab.measure.gathered import evaluation_batch
from ihlab.measure.metrics import held_out
from ihlab.studies import period as study
from ihlab.studies.period import (
    CURVES,
    KV_2,
    KV_2_3,
    KV_2_RANDOM,
    KV_3,
    KV_RANDOM,
    NEXT,
    TESTED,
    V_2,
    Period,
    answered,
    periodic,
)

N = {KV_2: 16}
RULES = ("induction", "before", "any")


def said_by(rule, row, t, rng):
    """A rule's answer at position t of a row."""
    if rule == "induction":
        return row[row.index(row[t]) + 1]
    return row[t - 1] if rule == "before" else rng.choice([token for token in set(row[: t + 1]) if token != row[t]])


def scores(rule, period, rows=200):
    """The fractions (right, before) that a rule has in the rows of a period."""
    rng = np.random.default_rng(0)
    batch = periodic(period).batch(rows, rng)
    said = [[said_by(rule, row, t, rng) if t >= period else -1 for t in range(32)] for row in batch.inputs.tolist()]
    found = answered(batch, np.array(said))
    assert found["current"] == 0
    return found["right"], found["before"]


@pytest.mark.parametrize("period", [3, 4, 8])
def test_the_rules_score_what_the_table_of_the_study_says(period):
    assert scores("induction", period) == (1, 0)
    assert scores("before", period) == (0, 1)
    assert scores("any", period) == pytest.approx((1 / (period - 1),) * 2, abs=0.03)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_solves_period_2(rule):
    assert scores(rule, 2, rows=20) == (1, 0)


def test_a_random_token_of_the_sequence_is_above_the_threshold_in_period_3():
    rng = np.random.default_rng(0)
    batch = periodic(3).batch(500, rng)
    said = np.take_along_axis(batch.inputs, rng.integers(0, 3, batch.inputs.shape), axis=1)
    found = answered(batch, said)
    assert list(found.values()) == pytest.approx([1 / 3] * 3, abs=0.02)


def test_every_curve_has_its_task_and_seeds():
    planned = Period().runs("laptop")
    found = {(run.curve, run.config.seed) for run in planned}
    assert found == {(curve, seed) for curve in CURVES for seed in range(N.get(curve, 8))}
    assert {run.curve: run.config.task.period for run in planned} == {c: period for c, (_, period) in CURVES.items()}
    assert len({run.config.digest for run in planned}) == len(planned)


def table(answers, steps, period2=1.0):
    """A laptop table. `answers` has each curve's (right, before) in periods above 2, `steps` its steps to 90%."""
    rng, rows = np.random.default_rng(0), []
    for curve in (*CURVES, *NEXT):
        for seed in range(N.get(curve, 8)):
            own = float(answers[curve][0] > 0.5) if seed % 2 else 1 - float(answers[curve][0] > 0.5)
            for period in TESTED:
                shifts = rng.uniform(-0.04, 0.04, 2) + (0.02 if own else -0.02)
                right, before = np.clip(np.array(answers[curve]) + shifts, 0, 1) if period > 2 else (period2, 0.0)
                taken = steps[curve] * rng.uniform(0.9, 1.1)
                rows.append((curve, seed, 300, taken, own, 1 - own, period, right, before, 0.0))
    columns = "curve seed horizon steps_to_90 fall_own fall_before period right before current".split()
    return pd.DataFrame(rows, columns=columns)


INDUCTION, BEFORE, ANY = (0.97, 0.02), (0.02, 0.97), (0.5, 0.5)


def verdicts(kv, vanilla, random, ratios, period2=1.0):
    answers = {KV_2: kv, V_2: vanilla, KV_RANDOM: random, KV_3: kv, KV_2_3: kv, KV_2_RANDOM: kv}
    steps = {**dict.fromkeys((KV_2, V_2, KV_RANDOM, KV_3), 60.0), KV_2_RANDOM: 60 * ratios[0], KV_2_3: 60 * ratios[1]}
    return [claim.verdict for claim in judged(Period().claims(table(answers, steps, period2), "laptop"))]


def test_verdicts_can_come_out_either_way():
    right = verdicts(BEFORE, ANY, INDUCTION, (2.0, 0.2))
    assert right[:4] == ["holds"] * 4
    assert right[5:] == ["holds"] * 3
    wrong = verdicts(INDUCTION, BEFORE, BEFORE, (0.5, 1.0))
    assert wrong[:4] == ["holds", "fails", "fails", "fails"]
    assert wrong[5:] == ["fails"] * 3
    assert verdicts(ANY, ANY, INDUCTION, (1.0, 0.5))[1] == "fails"


def test_seeds_that_need_their_own_value_are_compared_with_the_others():
    assert verdicts(ANY, ANY, INDUCTION, (1.0, 0.5))[4] == "holds"


def test_a_period_that_is_not_learned_says_nothing_about_others():
    found = verdicts(BEFORE, BEFORE, INDUCTION, (1.0, 1.0), period2=0.5)
    assert [found[i] for i in (0, 1, 2, 4, 5)] == ["fails", *["not tested at this scale"] * 4]


def test_gather_trains_on_and_measures_the_models(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "ROWS", 16)
    first = {plan.curve: plan for plan in Period().runs("smoke")[::-1]}
    trained = [(curve, train(first[curve].config, tmp_path)) for curve in (KV_2, V_2)]
    data = Period().gather(trained, "smoke")
    assert data["curve"].unique().tolist() == [KV_2, V_2, KV_2_RANDOM, KV_2_3]
    assert set(data["horizon"]) == {10}
    assert data.loc[data["curve"] == V_2, "fall_own"].isna().all()
    assert data.loc[data["curve"] != V_2, "fall_own"].notna().all()
    for curve, run in trained:
        rows = data[data["curve"] == curve]
        assert rows["period"].tolist() == list(TESTED)
        for period, right in zip(rows["period"], rows["right"], strict=True):
            batch = evaluation_batch(periodic(period).batch(16, np.random.default_rng(period)), torch.device("cpu"))
            assert right == pytest.approx(held_out(run.model(), [batch])["accuracy"], abs=1e-5)
    forks = sorted(folder.name.partition("-from-")[2] for folder in tmp_path.glob("*-from-*"))
    assert len(forks) == 2
    assert Period().gather(trained, "smoke").equals(data)


def test_the_picture_and_the_summary_follow_from_the_table():
    answers = dict.fromkeys((*CURVES, *NEXT), ANY) | {V_2: BEFORE}
    data = table(answers, dict.fromkeys(answers, 60.0))
    (axes,) = Period().draw(data, "laptop").axes
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert lines[V_2][0] == 1
    assert max(lines[V_2][1:]) < 0.1
    assert len(axes.get_lines()) == 16 + 8 + 8 + 1
    assert f"{V_2}: 0.0" in Period().summary(data, "laptop")
