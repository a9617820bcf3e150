"""The study of token shifts: what is planned, and what counts as learned."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.experiment import SCALES, Experiment, TwoStages
from ihlab.claims.labels import K_ONLY, VANILLA
from ihlab.claims.token_shifts import CONV_K, OFFSET, SMEAR_EMBED, STEPS, VARIANTS
from ihlab.claims.toy_settings import INDUCTION1, NGRAM
from ihlab.studies.shifts import NO, PARTLY, PREDICTED, YES, Shifts, found
from tests.comparisons import AROUND, NEVER, cell

SHIFTS = Shifts()


@pytest.mark.parametrize("scale", SCALES)
def test_every_prediction_is_a_cell_that_is_tuned_and_run(scale):
    assert isinstance(SHIFTS, Experiment)
    assert isinstance(SHIFTS, TwoStages)
    cells = SHIFTS.cells(scale)
    assert scale == "smoke" or cells == list(PREDICTED)
    planned = SHIFTS.runs(scale)
    assert {plan.curve for plan in planned} == {f"{variant} | {setting}" for variant, setting in cells}
    assert len({plan.config.digest for plan in planned}) == len(planned)
    assert all(plan.config.steps == (20 if scale == "smoke" else STEPS[plan.curve.split(" | ")[1]]) for plan in planned)


def test_every_setting_has_vanilla_attention_to_compare_with_and_every_variant_is_tried_at_induction():
    assert {variant for variant, setting in PREDICTED if setting == INDUCTION1} == set(VARIANTS)
    assert {setting for variant, setting in PREDICTED if variant == VANILLA} == set(STEPS)
    assert all(PREDICTED[VANILLA, setting] == NO for setting in STEPS)
    models = [SHIFTS.cell_config((variant, INDUCTION1), "laptop").model for variant in VARIANTS]
    assert len(set(models)) == len(VARIANTS)
    assert len(SHIFTS.seeds_of(INDUCTION1)) == 8
    assert len(SHIFTS.seeds_of(NGRAM)) == 4


def table(**steps_and_best):
    """A table of induction with one layer: vanilla attention never learns it; the others by name."""
    cells = {VANILLA: (NEVER, 0.2), **{VARIANTS_BY[name]: each for name, each in steps_and_best.items()}}
    return pd.concat([cell(variant, INDUCTION1, *each) for variant, each in cells.items()])


VARIANTS_BY = {"offset": OFFSET, "conv": CONV_K, "smear": SMEAR_EMBED, "k": K_ONLY}


def test_a_majority_of_seeds_makes_it_learned():
    half, most = AROUND.astype(float), AROUND.astype(float)
    half[4:], most[5:] = np.inf, np.inf
    data = table(offset=(most, 0.9), conv=(half, 0.51), smear=(NEVER, 0.49), k=(half, 0.4))
    assert [found(data, (variant, INDUCTION1)) for variant in (OFFSET, CONV_K, SMEAR_EMBED, K_ONLY, VANILLA)] == [
        YES, PARTLY, NO, NO, NO,
    ]  # fmt: skip


def test_a_claim_holds_if_the_prediction_is_right_and_fails_if_not(monkeypatch):
    asked = [(variant, INDUCTION1) for variant in (VANILLA, OFFSET, CONV_K, SMEAR_EMBED)]
    monkeypatch.setattr(SHIFTS, "cells", lambda scale: asked)
    data = table(offset=(AROUND, 0.95), conv=(NEVER, 0.3), smear=(NEVER, 0.6))
    claims = SHIFTS.claims(data, "laptop")
    assert [claim.verdict for claim in claims] == ["holds", "holds", "fails", "holds"]
    assert "not learned: 0 of 8 seeds get to 90%; highest accuracy 0.30, vanilla 0.20" in claims[2].measure
    told = SHIFTS.summary(data, "laptop")
    assert "3 of 4 (induction, 1 layer)" in told
    assert told.endswith("Wrong ones: conv K, induction, 1 layer (predicted learned, found not learned).")
    assert SHIFTS.draw(data, "laptop").axes
