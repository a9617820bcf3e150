"""Figure 11: queries shifted as well (Appendix G).

"Not as good as KV shifting, and not even as vanilla" is said there of the benchmarks of a model of 19B, whose losses
are "similar": asked of the steps of toy tasks, both are questions of our own.
"""

from ihlab.claims.comparison import Comparison, Question
from ihlab.claims.variants import INDUCTION1, INDUCTION2, KV, MDHA, NGRAM, QKV, RECALL1, VANILLA

_SOURCE = "Appendix G"
_OURS = "Appendix G says it of benchmarks of a 19B model"


class Figure11(Comparison):
    """QKV shifting against KV shifting and vanilla attention, with Primer's convolutions beside them."""

    name = "figure11"
    title = "Queries shifted as well"
    variants = (VANILLA, KV, QKV, MDHA)
    settings = (INDUCTION1, INDUCTION2, NGRAM, RECALL1)
    declared = "2026-11-22"
    many = (INDUCTION1, NGRAM, RECALL1)
    questions = (
        *(
            Question(
                setting, QKV, "not faster", KV,
                f"The shifting of Q is difficult to contribute to the formation of induction heads: {setting}.",
                _SOURCE, of_paper=True,
            )
            for setting in (INDUCTION1, INDUCTION2, RECALL1)
        ),
        *(
            Question(
                setting, QKV, "slower", KV, f"Shifting QKV is not as good as shifting KV: {setting}.", _OURS,
            )
            for setting in settings
        ),
        *(
            Question(
                setting, QKV, "slower", VANILLA, f"Shifting QKV is not even as good as vanilla attention: {setting}.",
                _OURS,
            )
            for setting in (INDUCTION2, NGRAM)
        ),
    )  # fmt: skip
