"""Comparisons of variants: cells, rates, verdicts on made-up tables that can come out each way, and the matrix."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims import stats
from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.comparison import EQUAL, HIGHER, MUCH, Comparison, Question, ratio
from ihlab.claims.experiment import SCALES, Experiment, TwoStages
from ihlab.claims.variants import (
    DIFFERENTIAL,
    FEW,
    HOPS,
    INDUCTION1,
    KV,
    MANY,
    NARROW,
    NGRAM,
    SETTINGS,
    VANILLA,
    VARIANTS,
    K,
    base,
    rates,
    tuning_runs,
)
from ihlab.studies.elsewhere import Elsewhere
from ihlab.studies.figure7 import Figure7
from ihlab.studies.figure10 import Figure10
from ihlab.studies.figure11 import Figure11
from ihlab.studies.table15 import Table15
from ihlab.studies.zoo import Zoo, relative
from tasks import MultiHopTask

COMPARISONS = [Figure7(), Figure10(), Figure11(), Elsewhere(), Table15(), Zoo()]
WAYS = ("slower", "much slower", "not faster", "much faster", "equal")

named = pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda c: c.name)


def rows(variant, setting, steps, best=1.0, lr=1e-2, kind="run", first=0, horizon=1000):
    best = np.broadcast_to(best, len(steps))
    return pd.DataFrame(
        {
            "kind": kind, "variant": variant, "setting": setting, "lr": lr, "seed": first + np.arange(len(steps)),
            "n_params": 1000, "steps_to_90": np.array(steps, dtype=float), "accuracy": best, "best": best,
            "horizon": horizon,
        }
    )  # fmt: skip


def cell(variant, setting, steps, best=1.0):
    """The runs of a cell, and two tuning runs of each of two rates."""
    tuning = [rows(variant, setting, steps[:2], lr=lr, kind="tuning", first=100) for lr in (4e-3, 1e-2, 2.5e-2)]
    return pd.concat([*tuning, rows(variant, setting, steps, best)])


AROUND = np.array([93, 95, 98, 99, 101, 102, 105, 107])
"""Steps of eight seeds, around 100."""


def made_up(comparison, factor):
    """A table in which every variant but the reference of a question takes `factor` times its steps."""
    taken = {name: factor ** (1 + i) * AROUND for i, name in enumerate(comparison.variants)}
    return pd.concat(cell(variant, setting, taken[variant]) for variant, setting in comparison.cells("laptop"))


# The plan


@named
def test_it_is_an_experiment_of_two_stages_that_names_its_cells(comparison):
    assert isinstance(comparison, Experiment)
    assert isinstance(comparison, TwoStages)
    cells = comparison.cells("laptop")
    assert len(set(cells)) == len(cells)
    assert {variant for variant, _ in cells} <= set(VARIANTS)
    assert {setting for _, setting in cells} <= set(SETTINGS)
    asked = {(name, q.setting) for q in comparison.questions for name in (q.one, q.other)}
    assert asked <= set(cells)
    assert set(comparison.cells("smoke")) >= asked


@named
@pytest.mark.parametrize("scale", SCALES)
def test_every_rate_is_tried_in_every_cell_on_seeds_of_its_own(comparison, scale):
    planned = comparison.runs(scale)
    per_cell = {}
    for plan in planned:
        per_cell.setdefault(plan.curve, set()).add((plan.config.lr, plan.config.seed))
    assert len({plan.config.digest for plan in planned}) == len(planned)
    assert len(per_cell) == len(comparison.cells(scale))
    for curve, tried in per_cell.items():
        setting = curve.split(" | ")[1]
        assert {lr for lr, _ in tried} == set(rates(setting, scale))
        assert all(seed >= 100 for _, seed in tried)
    assert all(plan.stacked for plan in planned)


def test_all_variants_of_a_setting_differ_in_the_model_alone():
    for setting in SETTINGS:
        configs = [p.config for p in tuning_runs([(v, setting) for v in (VANILLA, KV, K)], "laptop")]
        assert len({(c.lr, c.seed, c.but(model=configs[0].model, name="x", lr=1.0, seed=0)) for c in configs}) == len(
            {(c.lr, c.seed) for c in configs}
        )


def test_differential_attention_has_half_the_heads_of_twice_the_width():
    (plan, *_) = tuning_runs([(DIFFERENTIAL, INDUCTION1)], "laptop")
    usual = base(INDUCTION1, "laptop").model
    assert plan.config.model.n_heads == usual.n_heads // 2
    assert plan.config.model.head_width == 2 * usual.head_width


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_row_begins_with_a_token_that_says_nothing_of_the_answer(setting):
    task = base(setting, "laptop").task
    batch = task.batch(4, np.random.default_rng(0))
    if isinstance(task, MultiHopTask):
        assert (batch.inputs[:, 0] < task.first_letter).all()
    else:
        assert (batch.inputs[:, 0] == task.vocab_size - 1).all()
        assert (batch.inputs[:, 1:] < task.vocab_size - 1).all()


def test_runs_end_at_the_accuracy_that_is_asked_for():
    for setting in SETTINGS:
        run = base(setting, "laptop")
        assert run.until == 0.9
        # The first answer of a row is the easiest of its kind where some rows ask for no hop.
        assert run.until_metric == ("accuracy" if setting == HOPS else "accuracy_first")


def test_where_equality_is_asked_there_are_many_seeds_and_others_than_elsewhere():
    for comparison in COMPARISONS:
        equal = {q.setting for q in comparison.questions if q.kind == "equal"}
        assert equal <= set(comparison.many), comparison.name
    for scale in ("laptop", "gpu", "paper"):
        assert not set(FEW[scale]) & set(MANY[scale])
        assert len(MANY[scale]) == 4 * len(FEW[scale])


# The verdicts


def judge(kind, one, other, best=(1.0, 1.0)):
    class Asked(Comparison):
        name, title, variants, settings, declared = "asked", "Asked", (KV, K), (INDUCTION1,), "2026-11-22"
        questions = (Question(INDUCTION1, K, kind, KV, "A sentence.", "a source"),)

    data = pd.concat([cell(K, INDUCTION1, one, best[0]), cell(KV, INDUCTION1, other, best[1])])
    (claim,) = judged(Asked().claims(data, "laptop"))
    return claim


NEVER = np.full(8, np.inf)


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
    assert "K only at 0.01" in claim.measure
    assert f"{np.isfinite(one).sum()} of 8 and 8 of 8 seeds get there" in claim.measure


@pytest.mark.parametrize("kind", WAYS)
def test_where_nobody_gets_there_nothing_is_decided(kind):
    claim = judge(kind, NEVER, NEVER)
    assert claim.verdict == NOT_TESTED
    assert "Neither gets there" in claim.why


@pytest.mark.parametrize(
    ("low", "verdict"), [(0.2, "holds"), (0.9, "fails"), (1 - HIGHER, "undecided")], ids=["far", "near", "at the limit"]
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


@named
def test_claims_pictures_and_sentences_come_from_any_table(comparison):
    data = made_up(comparison, 0.9)
    claims = judged(comparison.claims(data, "laptop"))
    assert len(claims) >= len(comparison.questions)
    assert all(claim.seeds in (0, 8) for claim in claims)
    comparison.draw(data, "laptop").draw_without_rendering()
    assert comparison.summary(data, "laptop").endswith(".")


def test_latent_attention_gains_more_at_the_narrow_end_only_if_it_does():
    comparison = Table15()

    def verdict(narrow, wide):
        gains = {2: narrow, 16: wide}
        parts = []
        for variant, setting in comparison.cells("laptop"):
            rank = int(variant.rsplit(" ", 1)[1]) if "rank" in variant else 0
            slow = gains.get(rank, 1.0) if variant.startswith("MLA, rank") else 1.0
            parts.append(cell(variant, setting, slow * AROUND))
        return judged(comparison.claims(pd.concat(parts), "laptop"))[-1].verdict

    assert verdict(3.0, 1.2) == "holds"
    assert verdict(1.2, 3.0) == "fails"
    assert verdict(2.0, 2.0) == "undecided"


# The matrix


def test_the_matrix_shows_ratios_and_marks_what_differs():
    data = pd.concat(
        [
            cell(KV, INDUCTION1, AROUND),
            cell(K, INDUCTION1, AROUND + 1),
            cell(VANILLA, INDUCTION1, NEVER),
            cell(KV, NGRAM, NEVER),
            cell(K, NGRAM, 0.5 * AROUND),
        ]
    )
    ratios, labels = relative(data, (KV, K, VANILLA), (INDUCTION1, NGRAM))
    assert ratios.loc[KV, INDUCTION1] == 1
    assert labels.loc[KV, INDUCTION1] == "100 steps"
    assert ratios.loc[K, INDUCTION1] == pytest.approx(ratio(data, (K, INDUCTION1), (KV, INDUCTION1)).value)
    assert labels.loc[K, INDUCTION1] == "1"
    assert np.isinf(ratios.loc[VANILLA, INDUCTION1])
    assert labels.loc[VANILLA, INDUCTION1] == "never*"
    assert labels.loc[KV, NGRAM] == "never"
    assert labels.loc[K, NGRAM].startswith("\u2264 0.05")
    assert labels.loc[VANILLA, INDUCTION1] == "never*"
    assert labels.loc[K, NGRAM].endswith("*")
    assert labels.loc[VANILLA, NGRAM] == ""


# Runs at smoke scale


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table15", "zoo"])
def test_runs_end_in_a_table_a_picture_and_claims(smoke, name):
    _, folder = smoke(name)
    data = folder.data()
    assert set(data["kind"]) == {"tuning", "run"}
    (comparison,) = (c for c in COMPARISONS if c.name == name)
    for variant, setting in comparison.cells("smoke"):
        mine = data[(data["variant"] == variant) & (data["setting"] == setting)]
        chosen = mine[mine["kind"] == "run"]
        assert len(chosen) == 2
        assert len(set(chosen["lr"])) == 1
        assert set(chosen["lr"]) <= set(rates(setting, "smoke"))
    assert len(folder.claims()) >= len(comparison.questions)
    assert (folder.path / f"{name}-smoke.png").exists()


def test_the_sentence_about_width_is_not_judged_of_what_learns_at_neither_width():
    """Canon C learns nowhere, Canon D where width is ample, Canon A at both: the last two say something of width."""
    learns = {"Canon C": (), "Canon D": (INDUCTION1,), "Canon A": (NARROW, INDUCTION1)}
    parts = []
    for variant in Elsewhere.variants:
        for setting in (NARROW, INDUCTION1):
            found = setting in learns.get(variant, (NARROW, INDUCTION1))
            steps, best = (AROUND, 0.95) if found else (NEVER, 0.1)
            parts += [rows(variant, setting, steps, best), rows(variant, setting, steps[:2], kind="tuning", first=100)]
    claims = {
        claim.sentence.rpartition(": ")[2]: claim for claim in judged(Elsewhere().claims(pd.concat(parts), "laptop"))
    }
    verdicts = {name: claims[f"{name}."].verdict for name in learns}
    assert verdicts == {"Canon C": NOT_TESTED, "Canon D": "holds", "Canon A": "fails"}
    assert claims["Canon C."].first.verdict == "holds", "as it was declared"
