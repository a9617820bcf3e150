"""Comparisons: the rate of each cell, the table, and verdicts on made-up tables that can come out each way."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ihlab.claims import stats
from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.comparison import Comparison, Question
from ihlab.claims.labels import KV
from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import InductionTask
from tests.comparisons import AROUND, NEVER, cell


class TwoVariants(Comparison):
    """KV shifting and vanilla attention on one task, in two settings that differ in their names alone."""

    def cell_config(self, cell, scale):
        attention = "kv_shift" if cell[0] == KV else "vanilla"
        model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=33, n_ctx=16, attention=attention)
        return RunConfig(task=InductionTask(vocab_size=33, length=16), model=model, steps=600, warmup=0, until=0.9)

    def grid(self, setting, scale):
        return (4e-3, 1e-2, 2.5e-2)


def comparison(kind="slower"):
    questions = (Question("a task", "vanilla", kind, KV, "A sentence.", "a source"),)
    return TwoVariants(
        name="two", title="Two", variants=(KV, "vanilla"), settings=("a task", "another"), declared="2026-11-22",
        questions=questions, many_seeds=("another",),
    )  # fmt: skip


# The plan


def ended(plan, accuracies):
    """A finished run with these accuracies, one every hundred steps."""
    metrics = pd.DataFrame({"step": 100 * np.arange(len(accuracies)), "accuracy_first": accuracies})
    return plan.curve, SimpleNamespace(config=plan.config, metrics=metrics, done={"n_params": 7})


def planned(plans):
    """The rates and the seeds of each curve, all of which are combined."""
    assert all(plan.stacked for plan in plans)
    table = pd.DataFrame([(p.curve, p.config.lr, p.config.seed) for p in plans], columns=["curve", "lr", "seed"])
    assert not table.duplicated().any()
    found = {curve: (sorted(set(of["lr"])), sorted(set(of["seed"]))) for curve, of in table.groupby("curve")}
    assert len(plans) == sum(len(rates) * len(seeds) for rates, seeds in found.values())
    return found


def test_each_cell_is_trained_at_the_rate_of_its_fastest_tuning_runs():
    """KV shifting is fastest at the middle rate. Vanilla learns at none, and is most accurate at the highest."""
    learns = {4e-3: (0, 0.5, 0.8, 0.9), 1e-2: (0, 0.9), 2.5e-2: (0, 0.5, 0.9)}
    fails = {4e-3: (0, 0.2, 0.1), 1e-2: (0, 0.3, 0.3), 2.5e-2: (0, 0.5, 0.1)}
    tuning = comparison().runs("laptop")
    curves = [f"{variant} | {setting}" for variant in (KV, "vanilla") for setting in ("a task", "another")]
    assert planned(tuning) == {curve: ([4e-3, 1e-2, 2.5e-2], [100, 101]) for curve in curves}
    trained = [ended(plan, (learns if KV in plan.curve else fails)[plan.config.lr]) for plan in tuning]
    seeds = [list(range(8)), list(range(8, 40))] * 2
    rates = [[1e-2], [1e-2], [2.5e-2], [2.5e-2]]
    chosen = comparison().follow(trained, "laptop")
    assert planned(chosen) == dict(zip(curves, zip(rates, seeds, strict=True), strict=True))


def test_at_smoke_scale_only_what_a_question_names_is_trained():
    tuning = comparison().runs("smoke")
    assert planned(tuning).keys() == {f"{KV} | a task", "vanilla | a task"}
    assert {plan.config.seed for plan in tuning} == {100}
    chosen = comparison().follow([ended(plan, (0.5,)) for plan in tuning], "smoke")
    assert {plan.config.seed for plan in chosen} == {0, 1}


def test_the_table_has_the_steps_and_the_last_and_the_highest_accuracy_of_each_run():
    table = comparison().gather([ended(comparison().runs("laptop")[0], (0.1, 0.95, 0.5))], "laptop")
    first = {"kind": "tuning", "variant": KV, "setting": "a task", "lr": 4e-3, "seed": 100, "n_params": 7}
    assert table.to_dict("records") == [{**first, "steps_to_90": 100, "accuracy": 0.5, "best": 0.95, "horizon": 600}]


# The verdicts


def judge(kind, one, other, best=(1.0, 1.0)):
    data = pd.concat([cell("vanilla", "a task", one, best[0]), cell(KV, "a task", other, best[1])])
    (claim,) = judged(comparison(kind).claims(data, "laptop"))
    return claim


@pytest.mark.parametrize(
    ("kind", "holds", "fails", "undecided"),
    [
        ("slower", (2 * AROUND, NEVER), (AROUND,), 1.25 * AROUND),
        ("much slower", (3 * AROUND, NEVER), (1.5 * AROUND,), 2 * AROUND),
        ("not faster", (AROUND, NEVER), (0.5 * AROUND,), AROUND / 1.25),
        ("much faster", (0.3 * AROUND,), (0.8 * AROUND, NEVER), AROUND / 2),
        ("equal", (AROUND, 1.05 * AROUND), (2 * AROUND, 0.5 * AROUND, NEVER), 1.25 * AROUND),
    ],
)
def test_a_sentence_can_come_out_each_way(kind, holds, fails, undecided):
    for verdict, cases in (("holds", holds), ("fails", fails), ("undecided", (undecided,))):
        for one in cases:
            claim = judge(kind, one, AROUND)
            assert claim.verdict == verdict, one
            assert "vanilla at 0.01" in claim.measure
            assert f"{np.isfinite(one).sum()} of 8 and 8 of 8 seeds get there" in claim.measure
    neither = judge(kind, NEVER, NEVER)
    assert neither.verdict == NOT_TESTED
    assert "Neither gets there" in neither.why


@pytest.mark.parametrize(
    ("low", "verdict"),
    [(0.2, "holds"), (0.9, "fails"), (0.7, "undecided")],
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
