"""Figure 7: keys or values alone, and longer windows, in place of KV shifting.

The paper trains language models of 1.5B and says so of their loss; of induction heads it says that a window of 2 is
enough. Only those rows are its sentences. Here each half of the shift is asked for where it is needed: induction with
one layer needs the key of the token before, which only the key shift gives; a 3-gram needs the token before beside the
present one, which the value shift gives to a head that attends to its own position.
"""

from ihlab.claims.comparison import Comparison, Question
from ihlab.claims.variants import (
    INDUCTION1,
    INDUCTION2,
    KV,
    NGRAM,
    NO_POSITIONS2,
    RECALL1,
    RECALL2,
    VANILLA,
    WINDOW3,
    WINDOW4,
    K,
    V,
)

_ABLATION = "section 4.5, Figure 7a, says so of a 1.5B language model's loss"
_WINDOW = "section 4.5, Figure 7b, says so of a 1.5B language model's loss"
_WINDOW_OF_HEADS = "section 4.5: a window of 2 is sufficient for induction heads"
_INDUCTION = (INDUCTION1, INDUCTION2)
_OURS = "a prediction of our own"
_AS_FAST = "{} is learned as fast with the {} shift alone, within a factor of 1.25."
_HALVES = "The shifting of key and value both play an important role: without the {} shift, {} is learned later."


class Figure7(Comparison):
    """K only and V only against KV shifting, and windows of 3 and 4 against 2."""

    name = "figure7"
    title = "Keys or values alone, and longer windows"
    variants = (VANILLA, KV, K, V, WINDOW3, WINDOW4)
    settings = (INDUCTION1, INDUCTION2, NO_POSITIONS2, NGRAM, RECALL1, RECALL2)
    declared = "2026-11-22"
    many = (INDUCTION1, NGRAM, RECALL1)
    questions = (
        *(
            Question(setting, one, "slower", KV, _HALVES.format(half, what), _ABLATION)
            for setting, what in ((INDUCTION1, "induction with one layer"), (NGRAM, "a table of 3-grams"))
            for one, half in ((V, "key"), (K, "value"))
        ),
        *(
            Question(
                setting, one, "not faster", KV, f"A longer shift window ({one}) does not improve: {setting}.",
                _WINDOW_OF_HEADS if setting in _INDUCTION else _WINDOW, of_paper=setting in _INDUCTION,
            )
            for setting in (INDUCTION1, INDUCTION2, NGRAM, RECALL1)
            for one in (WINDOW3, WINDOW4)
        ),
        Question(INDUCTION1, K, "equal", KV, _AS_FAST.format("Induction with one layer", "key"), _OURS),
        Question(NGRAM, V, "equal", KV, _AS_FAST.format("A table of 3-grams", "value"), _OURS),
        Question(RECALL1, K, "equal", KV, _AS_FAST.format("Recall", "key"), _OURS),
        Question(
            RECALL2, WINDOW3, "much faster", KV,
            "A window of 3 learns what one of 2 does not where the value is two places after its key.", _OURS,
        ),
    )  # fmt: skip
