"""The studies of attention variants: the claims that are particular to one of them, and the matrix."""

import numpy as np
import pandas as pd
import pytest

from figures.variants.study import (
    ELSEWHERE,
    INDUCTION1,
    K_ONLY,
    KV,
    NARROW,
    NGRAM,
    V_ONLY,
    VANILLA,
    relative,
)
from ihlab.recipes.toy_settings import SETTINGS
from ihlab.study.claim import NOT_TESTED, judged
from tests.comparisons import AROUND, NEVER, cell


def of(study, steps):
    """A laptop table of a study: `steps` returns those of a variant in a setting, and its highest
    accuracy.
    """
    cells = [(each["variant"], each["setting"]) for each in study.cells]
    return pd.concat(cell(*each, *steps(*each)) for each in cells)


def test_the_sentence_about_width_is_not_judged_of_what_learns_at_neither_width():
    """Canon C learns nowhere, Canon D where width is ample, Canon A at both: the last two say
    something of width.

    The paper says that a shift elsewhere does not help, so a claim that holds speaks against it.
    """
    learns = {"Canon C": (), "Canon D": (INDUCTION1,), "Canon A": (NARROW, INDUCTION1)}
    data = of(
        ELSEWHERE,
        lambda variant, setting: (
            (AROUND, 0.95) if setting in learns.get(variant, SETTINGS) else (NEVER, 0.1)
        ),
    )
    claims = {
        claim.setting.get("variant"): claim
        for claim in judged(ELSEWHERE.claims(data, "laptop"))
        if claim.against
    }
    assert {variant: claims[variant].verdict for variant in learns} == {
        "Canon C": NOT_TESTED,
        "Canon D": "fails",
        "Canon A": "holds",
    }
    assert claims["Canon C"].first.verdict == "fails", "in the measure that was declared"


def runs(*cells):
    data = pd.concat(cell(*each) for each in cells)
    return data[data["kind"] == "run"]


def test_the_matrix_shows_ratios_and_marks_what_differs():
    drawn = relative(
        runs(
            (KV, INDUCTION1, AROUND),
            (K_ONLY, INDUCTION1, AROUND + 1),
            (VANILLA, INDUCTION1, NEVER),
            (V_ONLY, INDUCTION1, np.where(AROUND < 100, AROUND, np.inf)),
            (KV, NGRAM, NEVER),
            (K_ONLY, NGRAM, 0.5 * AROUND),
        )
    )
    assert {key: text for key, (_, text) in drawn.items()} == {
        (KV, INDUCTION1): "100 steps",
        (K_ONLY, INDUCTION1): "1",
        (VANILLA, INDUCTION1): "never*",
        (V_ONLY, INDUCTION1): "\u2265 5.2 (4/8)",
        (KV, NGRAM): "never",
        (K_ONLY, NGRAM): "50 steps*",
    }
    assert drawn[KV, INDUCTION1][0] == 1
    assert drawn[K_ONLY, INDUCTION1][0] == pytest.approx(1.01, abs=0.01)
    assert drawn[VANILLA, INDUCTION1][0] == drawn[KV, NGRAM][0] == np.inf
    assert drawn[K_ONLY, NGRAM][0] == 50 / 1000  # KV shifting never gets there
