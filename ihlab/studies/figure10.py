"""Figure 10: constraints on alpha and beta (Appendix F.1) do not make a model learn better.

The paper tries two, and says so of the loss of a language model of 1.5B: a gate, and rows in [0, 1], which can be read
as clipped weights or as projected steps. Rows that sum to 1 without a sigmoid are ours, and so is the question on
toy tasks.

3-grams are learned in some 70 steps, of which every tenth is evaluated: what is less than that apart is not told apart,
and two rows hold by less (docs/LOG.md).
"""

from ihlab.claims.comparison import Comparison, Question
from ihlab.claims.variants import CLIP, GATE, INDUCTION1, INDUCTION2, KV, NGRAM, PROJECT, SUM1

_CONSTRAINED = (GATE, SUM1, CLIP, PROJECT)
_SOURCES = {SUM1: "beside Appendix F.1"}


class Figure10(Comparison):
    """Gates, rows that sum to 1 and rows in [0, 1], in both readings of the latter, against free weights."""

    name = "figure10"
    title = "Constraints on the mixing weights"
    variants = (KV, *_CONSTRAINED)
    settings = (INDUCTION1, INDUCTION2, NGRAM)
    declared = "2026-11-22"
    many = (INDUCTION1, NGRAM)
    questions = (
        *(
            Question(
                setting, one, "not faster", KV, f"Using more controls ({one}) does not make the model learn better: "
                f"{setting}.", _SOURCES.get(one, "Appendix F.1, Figure 10, says so of a 1.5B language model's loss"),
            )
            for setting in settings
            for one in _CONSTRAINED
        ),
        Question(
            INDUCTION1, GATE, "equal", KV, "With one layer a gate is as fast as free weights, within a factor of 1.25.",
            "a prediction of our own",
        ),
    )  # fmt: skip
