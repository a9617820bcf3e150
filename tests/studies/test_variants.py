"""The table of variants, settings and questions: what is planned, what the claims say, and the matrix."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.comparison import FEW_SEEDS, MANY_SEEDS, ratio
from ihlab.claims.experiment import SCALES, Experiment, TwoStages
from ihlab.claims.toy_settings import SETTINGS, setting_config
from ihlab.studies.variants import (
    COMPARISONS,
    DIFFERENTIAL,
    ELSEWHERE,
    HOPS,
    INDUCTION1,
    K_ONLY,
    KV,
    NARROW,
    NGRAM,
    TABLE15,
    VANILLA,
    VARIANTS,
    ZOO,
    relative,
)
from tasks import MultiHopTask
from tests.comparisons import AROUND, NEVER, cell

named = pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda c: c.name)


# The plan


@named
@pytest.mark.parametrize("scale", SCALES)
def test_it_is_an_experiment_of_two_stages_whose_cells_are_in_the_table(comparison, scale):
    assert isinstance(comparison, Experiment)
    assert isinstance(comparison, TwoStages)
    cells = comparison.cells(scale)
    assert len(set(cells)) == len(cells)
    assert {variant for variant, _ in cells} <= set(VARIANTS)
    assert {setting for _, setting in cells} <= set(SETTINGS)
    assert {(variant, q.setting) for q in comparison.questions for variant in (q.one, q.other)} <= set(cells)
    planned = comparison.runs(scale)
    assert len({plan.config.digest for plan in planned}) == len(planned)
    assert {(plan.curve, plan.config.lr) for plan in planned} == {
        (f"{variant} | {setting}", lr)
        for variant, setting in cells
        for lr in comparison.grid((variant, setting), scale)
    }


def test_all_variants_of_a_setting_differ_in_the_model_alone_and_end_at_its_accuracy():
    for setting in SETTINGS:
        vanilla = setting_config(setting, "laptop")
        assert vanilla.until == 0.9
        # The first answer of a sequence is the easiest where some sequences ask for no hop.
        assert vanilla.until_metric == ("accuracy" if setting == HOPS else "accuracy_first")
        assert ZOO.cell_config((VANILLA, setting), "laptop") == vanilla
        for variant in (KV, K_ONLY):
            config = ZOO.cell_config((variant, setting), "laptop")
            assert config != vanilla
            assert config.replace(model=vanilla.model) == vanilla


def test_differential_attention_has_half_the_heads_of_twice_the_width():
    differential = ZOO.cell_config((DIFFERENTIAL, INDUCTION1), "laptop").model
    usual = setting_config(INDUCTION1, "laptop").model
    assert differential.n_heads == usual.n_heads // 2
    assert differential.head_width == 2 * usual.head_width


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_sequence_begins_with_a_token_that_says_nothing_of_the_answer(setting):
    task = setting_config(setting, "laptop").task
    batch = task.batch(4, np.random.default_rng(0))
    if isinstance(task, MultiHopTask):
        assert (batch.inputs[:, 0] < task.first_letter).all()
    else:
        assert (batch.inputs[:, 0] == task.vocab_size - 1).all()
        assert (batch.inputs[:, 1:] < task.vocab_size - 1).all()


def test_where_equality_is_asked_there_are_many_seeds_and_others_than_elsewhere():
    for comparison in COMPARISONS:
        equal = {q.setting for q in comparison.questions if q.kind == "equal"}
        assert equal <= set(comparison.many_seeds), comparison.name
    assert not set(FEW_SEEDS) & set(MANY_SEEDS)
    assert len(MANY_SEEDS) == 4 * len(FEW_SEEDS)


# The verdicts


@named
def test_claims_pictures_and_sentences_come_from_any_table(comparison):
    """Every variant takes 0.9 times the steps of the one before it."""
    taken = {variant: 0.9 ** (1 + i) * AROUND for i, variant in enumerate(comparison.variants)}
    data = pd.concat(cell(variant, setting, taken[variant]) for variant, setting in comparison.cells("laptop"))
    claims = judged(comparison.claims(data, "laptop"))
    assert len(claims) >= len(comparison.questions)
    assert all(claim.seeds in (0, 8) for claim in claims)
    comparison.draw(data, "laptop").draw_without_rendering()
    assert comparison.summary(data, "laptop").endswith(".")


@pytest.mark.parametrize(
    ("narrow", "wide", "verdict"), [(3.0, 1.2, "holds"), (1.2, 3.0, "fails"), (2.0, 2.0, "undecided")]
)
def test_latent_attention_gains_more_at_the_narrow_end_only_if_it_does(narrow, wide, verdict):
    slower = {"MLA, rank 2": narrow, "MLA, rank 16": wide}
    cells = TABLE15.cells("laptop")
    data = pd.concat(cell(variant, setting, slower.get(variant, 1.0) * AROUND) for variant, setting in cells)
    claim = judged(TABLE15.claims(data, "laptop"))[-1]
    assert claim.verdict == claim.first.verdict == verdict


def test_gains_at_two_ranks_are_compared_within_each_seed():
    """Steps vary more between seeds than between ranks, and alike at both: only within a seed is the gain seen."""
    cells = TABLE15.cells("laptop")
    data = pd.concat(cell(variant, setting, AROUND) for variant, setting in cells)
    slower = data["variant"].map({"MLA, rank 2": 1.1, "MLA, rank 16": 1.0})
    by_seed = 1 + data.groupby(["variant", "setting", "kind", "lr"])["seed"].rank() / 2
    data["steps_to_90"] *= (slower * by_seed).fillna(1.0)
    claim = judged(TABLE15.claims(data, "laptop"))[-1]
    assert claim.estimate.value == pytest.approx(np.log(1.1))
    assert (claim.verdict, claim.first.verdict) == ("holds", "undecided")


def test_the_sentence_about_width_is_not_judged_of_what_learns_at_neither_width():
    """Canon C learns nowhere, Canon D where width is ample, Canon A at both: the last two say something of width."""
    learns = {"Canon C": (), "Canon D": (INDUCTION1,), "Canon A": (NARROW, INDUCTION1)}
    data = pd.concat(
        cell(variant, setting, AROUND, 0.95) if setting in learns.get(variant, SETTINGS)
        else cell(variant, setting, NEVER, 0.1)
        for variant, setting in ELSEWHERE.cells("laptop")
    )  # fmt: skip
    claims = {claim.sentence.rpartition(": ")[2]: claim for claim in judged(ELSEWHERE.claims(data, "laptop"))}
    verdicts = {variant: claims[f"{variant}."].verdict for variant in learns}
    assert verdicts == {"Canon C": NOT_TESTED, "Canon D": "holds", "Canon A": "fails"}
    assert claims["Canon C."].first.verdict == "holds", "as it was declared"


# The matrix


def test_the_matrix_shows_ratios_and_marks_what_differs():
    data = pd.concat(
        [
            cell(KV, INDUCTION1, AROUND),
            cell(K_ONLY, INDUCTION1, AROUND + 1),
            cell(VANILLA, INDUCTION1, NEVER),
            cell(KV, NGRAM, NEVER),
            cell(K_ONLY, NGRAM, 0.5 * AROUND),
        ]
    )
    ratios, labels = relative(data, (KV, K_ONLY, VANILLA), (INDUCTION1, NGRAM))
    assert labels.to_numpy().tolist() == [["100 steps", "never"], ["1", "50 steps*"], ["never*", ""]]
    assert ratios.loc[KV, INDUCTION1] == 1
    assert ratios.loc[K_ONLY, INDUCTION1] == pytest.approx(ratio(data, (K_ONLY, INDUCTION1), (KV, INDUCTION1)).value)
    assert np.isinf(ratios.loc[VANILLA, INDUCTION1])
    # KV shifting never gets there, and vanilla attention has no runs.
    assert ratios[NGRAM].tolist() == [np.inf, 50 / data["horizon"].max(), pytest.approx(np.nan, nan_ok=True)]


def test_a_cell_in_which_some_seeds_never_learn_says_how_many_do():
    half = np.where(AROUND < 100, AROUND, np.inf)
    data = pd.concat([cell(KV, INDUCTION1, half), cell(K_ONLY, INDUCTION1, half), cell(VANILLA, INDUCTION1, AROUND)])
    _, labels = relative(data, (KV, K_ONLY, VANILLA), (INDUCTION1,))
    assert labels.loc[KV, INDUCTION1].endswith(" steps (4/8)")
    assert labels.loc[K_ONLY, INDUCTION1].startswith("~ ")
    assert labels.loc[K_ONLY, INDUCTION1].endswith(" (4/8)")
    assert labels.loc[VANILLA, INDUCTION1].startswith("\u2264 ")


# Runs at smoke scale


@pytest.mark.slow
@pytest.mark.parametrize("comparison", [TABLE15, ZOO], ids=lambda c: c.name)
def test_runs_end_in_a_table_a_picture_and_claims(smoke, comparison):
    _, folder = smoke(comparison.name)
    data = folder.data()
    assert set(data["kind"]) == {"tuning", "run"}
    for variant, setting in comparison.cells("smoke"):
        mine = data[(data["variant"] == variant) & (data["setting"] == setting)]
        chosen = mine[mine["kind"] == "run"]
        assert len(chosen) == 2
        assert len(set(chosen["lr"])) == 1
        assert set(chosen["lr"]) <= set(comparison.grid((variant, setting), "smoke"))
    assert len(folder.claims()) >= len(comparison.questions)
    assert (folder.path / f"{comparison.name}-smoke.png").exists()
