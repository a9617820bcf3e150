"""Appendix G: does shifting elsewhere in the model alleviate the width that induction requires?

A shift of the normed stream, before the projections, is KV shifting where one number serves a layer
(`ihlab.model.input_shift`): of it the paper's sentence cannot hold, if equation 5 alleviates anything. One on the
stream moves queries too. Accuracies are the highest that were seen, and runs end at 90%, so that what learns later but
learns is no less accurate. One vanilla layer does not learn induction at any width: what is shown is what a narrow
layer can learn with a shift elsewhere, and not that the width was what it lacked.
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
                "Appendix G", of_paper=True,
            )
            for one in _ELSEWHERE
        ),
        Question(
            NARROW, VANILLA, "less accurate", KV, "One narrow layer of KV shifting learns induction, and of vanilla "
            "attention not.", "a control",
        ),
    )  # fmt: skip
