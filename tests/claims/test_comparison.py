"""Comparisons: the rate of each cell, the table, and verdicts on made-up tables that can come out each way."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ihlab.claims import stats
from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.comparison import EQUAL, KV, LESS_ACCURATE, MUCH, Comparison, Question
from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import InductionTask
from tests.comparisons import AROUND, NEVER, cell

GRID = (4e-3, 1e-2, 2.5e-2)


class TwoVariants(Comparison):
    """KV shifting and vanilla attention on one task, in settings that differ in nothing but their names."""

    def cell_config(self, cell, scale):
        attention = "kv_shift" if cell[0] == KV else "vanilla"
        model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=33, n_ctx=16, attention=attention)
        return RunConfig(task=InductionTask(vocab_size=33, length=16), model=model, steps=600, warmup=0, until=0.9)

    def grid(self, setting, scale):
        return GRID


def comparison(kind="slower", many_seeds=()):
    questions = (Question("a task", "vanilla", kind, KV, "A sentence.", "a source"),)
    return TwoVariants(
        name="two", title="Two", variants=(KV, "vanilla"), settings=("a task", "another"), declared="2026-11-22",
        questions=questions, many_seeds=many_seeds,
    )  # fmt: skip


# The plan


def ended(planned, accuracies):
    """A run with these accuracies, every hundred steps."""
    metrics = pd.DataFrame({"step": 100 * np.arange(len(accuracies)), "accuracy_first": accuracies})
    return planned.curve, SimpleNamespace(config=planned.config, metrics=metrics, done={"n_params": 7})


def test_each_cell_is_trained_at_the_rate_of_its_fastest_tuning_runs():
    """KV shifting is fastest at the middle rate; vanilla learns at none, and is most accurate at the highest."""
    learns = {4e-3: (0, 0.5, 0.8, 0.9), 1e-2: (0, 0.9), 2.5e-2: (0, 0.5, 0.9)}
    fails = {4e-3: (0, 0.2, 0.1), 1e-2: (0, 0.3, 0.3), 2.5e-2: (0, 0.5, 0.1)}
    two = comparison(many_seeds=("another",))
    tuning = two.runs("laptop")
    assert {(p.curve, p.config.lr, p.config.seed) for p in tuning} == {
        (f"{variant} | {setting}", lr, seed)
        for variant in (KV, "vanilla")
        for setting in ("a task", "another")
        for lr in GRID
        for seed in (100, 101)
    }
    trained = [ended(p, (learns if KV in p.curve else fails)[p.config.lr]) for p in tuning]
    chosen = two.follow(trained, "laptop")
    assert {(p.curve, p.config.lr, p.config.seed) for p in chosen} == {
        (f"{variant} | {setting}", lr, seed)
        for variant, lr in ((KV, 1e-2), ("vanilla", 2.5e-2))
        for setting, seeds in (("a task", range(8)), ("another", range(8, 40)))
        for seed in seeds
    }
    assert all(p.stacked for p in (*tuning, *chosen))


def test_at_smoke_scale_only_what_a_question_names_is_trained():
    planned = comparison().runs("smoke")
    assert {p.curve for p in planned} == {f"{KV} | a task", "vanilla | a task"}
    assert {p.config.seed for p in planned} == {100}
    assert {p.config.seed for p in comparison().follow([ended(p, (0.5,)) for p in planned], "smoke")} == {0, 1}


def test_the_table_has_the_steps_and_the_last_and_the_highest_accuracy_of_each_run():
    two = comparison()
    tuning = two.runs("laptop")[0]
    table = two.gather([ended(tuning, (0.1, 0.95, 0.5))], "laptop")
    assert table.to_dict("records") == [
        {
            "kind": "tuning", "variant": KV, "setting": "a task", "lr": 4e-3, "seed": 100, "n_params": 7,
            "steps_to_90": 100, "accuracy": 0.5, "best": 0.95, "horizon": 600,
        }
    ]  # fmt: skip


# The verdicts


def judge(kind, one, other, best=(1.0, 1.0)):
    data = pd.concat([cell("vanilla", "a task", one, best[0]), cell(KV, "a task", other, best[1])])
    (claim,) = judged(comparison(kind).claims(data, "laptop"))
    return claim


@pytest.mark.parametrize(
    ("kind", "one", "verdict"),
    [
        ("slower", 2 * AROUND, "holds"),
        ("slower", AROUND, "fails"),
        ("slower", EQUAL * AROUND, "undecided"),
        ("slower", NEVER, "holds"),
        ("much slower", 3 * AROUND, "holds"),
        ("much slower", 1.5 * AROUND, "fails"),
        ("much slower", MUCH * AROUND, "undecided"),
        ("much slower", NEVER, "holds"),
        ("not faster", AROUND, "holds"),
        ("not faster", NEVER, "holds"),
        ("not faster", 0.5 * AROUND, "fails"),
        ("not faster", AROUND / EQUAL, "undecided"),
        ("much faster", 0.3 * AROUND, "holds"),
        ("much faster", 0.8 * AROUND, "fails"),
        ("much faster", NEVER, "fails"),
        ("equal", AROUND, "holds"),
        ("equal", 1.05 * AROUND, "holds"),
        ("equal", 2 * AROUND, "fails"),
        ("equal", 0.5 * AROUND, "fails"),
        ("equal", EQUAL * AROUND, "undecided"),
        ("equal", NEVER, "fails"),
    ],
)
def test_a_sentence_can_come_out_each_way(kind, one, verdict):
    claim = judge(kind, one, AROUND)
    assert claim.verdict == verdict
    assert "vanilla at 0.01" in claim.measure
    assert f"{np.isfinite(one).sum()} of 8 and 8 of 8 seeds get there" in claim.measure


@pytest.mark.parametrize("kind", ["slower", "much slower", "not faster", "much faster", "equal"])
def test_where_nobody_gets_there_nothing_is_decided(kind):
    claim = judge(kind, NEVER, NEVER)
    assert claim.verdict == NOT_TESTED
    assert "Neither gets there" in claim.why


@pytest.mark.parametrize(
    ("low", "verdict"),
    [(0.2, "holds"), (0.9, "fails"), (1 - LESS_ACCURATE, "undecided")],
    ids=["far", "near", "at the limit"],
)
def test_less_accurate_means_by_more_than_the_margin(low, verdict):
    spread = np.linspace(-0.02, 0.02, 8)
    claim = judge("less accurate", NEVER, AROUND, best=(low + spread, 1.0 + 0 * spread))
    assert claim.verdict == verdict
    assert claim.estimate.value == pytest.approx(1 - low, abs=0.01)


def test_a_factor_is_the_ratio_or_its_inverse_whichever_is_larger():
    for one, other in ((AROUND, 2 * AROUND), (2 * AROUND, AROUND)):
        factor = stats.factor(stats.ratio_of_times(one, other, 1000))
        assert factor.value == pytest.approx(2, rel=0.01)
        assert factor.low < 2 < factor.high
    same = stats.factor(stats.ratio_of_times(AROUND, AROUND, 1000))
    assert same.low == pytest.approx(1)
    assert same.p_value(1.5) < 0.01
    unknown = stats.factor(stats.ratio_of_times(NEVER, NEVER, 1000))
    assert np.isnan(unknown.value)
    assert unknown.p_value(1.5) == 1
