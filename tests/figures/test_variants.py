"""The studies of attention variants: the claims that are particular to one of them."""

import pandas as pd

from figures.variants.study import (
    ELSEWHERE,
    INDUCTION1,
    NARROW,
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
