"""Appendix G: does shifting elsewhere in the model alleviate the width that induction requires?

A shift of the normed stream, before the projections, is KV shifting where one number serves a layer
(`ihlab.model.input_shift`): of it the paper's sentence cannot hold, if equation 5 alleviates anything. One on the
stream moves queries too. RWKV's shifts the inputs of keys and values, and Canon B keys and values themselves: these are
no other place, and the sentence is not about them.

Accuracies are the highest that were seen, and runs end at 90%, so that what learns later but learns is no less
accurate. One vanilla layer does not learn induction at any width: what is shown is what a narrow layer can learn with a
shift elsewhere, and not that the width was what it lacked.
"""

from ihlab.experiments.comparison import Comparison, Question
from ihlab.experiments.variants import (
    ADDED,
    AFTER_NORM,
    BEFORE_NORM,
    INDUCTION1,
    KV,
    NARROW,
    RWKV,
    VANILLA,
    canon,
)

_ELSEWHERE = (RWKV, BEFORE_NORM, AFTER_NORM, ADDED, *map(canon, "ABCD"))
_IN_PLACE = (RWKV, canon("B"))
_NOTES = {
    RWKV: " is not about it: it shifts the inputs of keys and values",
    canon("B"): " is not about it: it shifts queries, keys and values",
    AFTER_NORM: "; this one shifts keys, values and queries by one number a layer",
}


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
