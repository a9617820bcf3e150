"""Appendix G: does shifting elsewhere in the model alleviate the width that induction requires?

A shift of the normed stream, before the projections, is KV shifting where one number serves a layer
(`ihlab.model.input_shift`): of it the paper's sentence cannot hold, if equation 5 alleviates anything. One on the
stream moves queries too. RWKV's shifts the inputs of keys and values, and Canon B keys and values themselves: these are
no other place, and the sentence is not about them.

Accuracies are the highest that were seen, and runs end at 90%, so that what learns later but learns is no less
accurate. One vanilla layer does not learn induction at any width: what is shown is what a narrow layer can learn with a
shift elsewhere, and not that the width was what it lacked. Of a layer that learns it at neither width the sentence is
not judged.
"""

import numpy as np
import pandas as pd

from ihlab.claims.claim import Claim, changed
from ihlab.claims.comparison import Comparison, Question
from ihlab.claims.experiment import Scale
from ihlab.claims.variants import (
    ADDED,
    AFTER_NORM,
    BEFORE_NORM,
    INDUCTION1,
    KV,
    NARROW,
    RWKV,
    VANILLA,
    canon,
    steps,
)

_ELSEWHERE = (RWKV, BEFORE_NORM, AFTER_NORM, ADDED, *map(canon, "ABCD"))
_IN_PLACE = (RWKV, canon("B"))
_NOTES = {
    RWKV: " is not about it: it shifts the inputs of keys and values",
    canon("B"): " is not about it: it shifts queries, keys and values",
    AFTER_NORM: "; this one shifts keys, values and queries by one number a layer",
}
CHANGED = "2026-11-24: what learns at no width says nothing about what it takes"


class Elsewhere(Comparison):
    """Shifts of the stream, RWKV's and Canon layers against KV shifting, at two widths."""

    name = "elsewhere"
    title = "Shifting elsewhere"
    variants = (VANILLA, KV, *_ELSEWHERE)
    settings = (NARROW, INDUCTION1)
    declared = "2026-11-22"
    questions = (
        *(
            Question(
                NARROW, one, "less accurate", KV,
                f"Shifting elsewhere can not alleviate the width requirement of induction heads: {one}.",
                "Appendix G" + _NOTES.get(one, ""), of_paper=one not in _IN_PLACE,
            )
            for one in _ELSEWHERE
        ),
        *(
            Question(
                INDUCTION1, one, "slower", KV,
                f"In the place of K and V a shift is the most suitable for induction heads: {one} is slower.",
                "Appendix G, asked after the runs in the measure of the other comparisons", of_paper=True,
                declared="2026-11-23",
            )
            for one in (BEFORE_NORM, AFTER_NORM, ADDED)
        ),
        Question(
            NARROW, VANILLA, "less accurate", KV, "One narrow layer of KV shifting learns induction, and of vanilla "
            "attention not.", "a control",
        ),
    )  # fmt: skip

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the questions, but the paper's sentence about width only of what learns at one of the two widths."""
        return [
            _needs_a_width(claim, question, data, scale)
            for claim, question in zip(super().claims(data, scale), self.questions, strict=True)
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State every variant's steps, and what two widths do not show."""
        return (
            f"{super().summary(data, scale)} One layer of vanilla attention learns induction at neither width, so that "
            "these rows say what a narrow layer can learn with a shift elsewhere, not that width was what it lacked."
        )


def _needs_a_width(claim: Claim, question: Question, data: pd.DataFrame, scale: Scale) -> Claim:
    if not (question.of_paper and question.setting == NARROW):
        return claim
    waits = [step for setting in (NARROW, INDUCTION1) for step in steps(data, (question.one, setting))]
    if np.isfinite(waits).any():
        return claim
    why = f"In no seed does {question.one} learn induction at either width: it lacks something else than width."
    untested = Claim(
        source=claim.source, sentence=claim.sentence, seeds=claim.seeds, declared=claim.declared, of_paper=True, why=why
    )
    return changed(untested, claim, scale, CHANGED)
