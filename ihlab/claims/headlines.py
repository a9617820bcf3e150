"""The paper's main claims in one sentence each, and the stored claims that decide them.

A headline's verdicts and numbers are read from the figures.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ihlab.claims.claim import NOT_TESTED
from ihlab.claims.facts import condition
from ihlab.claims.ledger import number
from ihlab.claims.markdown import MARKS, SHORT, escaped


class Asked(NamedTuple):
    """Selects the claims that decide a headline or a part of it: the paper's, and with `ours` also our own.

    It selects the claims of `experiment` whose sentence starts with `sentence` and whose measure matches the pattern
    `measure`. `number` is the text for their value, in which {} is replaced by the number, or by the range over all
    claims (as a percentage if `percent`).
    """

    experiment: str
    sentence: str
    number: str
    measure: str = ""
    ours: bool = False
    percent: bool = False

    def of(self, claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the selected claims of an experiment."""
        return [
            claim
            for claim in claims
            if claim["sentence"].startswith(self.sentence)
            and re.search(self.measure, claim.get("first", claim)["measure"])
            and (self.ours or claim["of_paper"])
        ]


@dataclass(frozen=True)
class Headline:
    """A sentence, and the claims that decide it."""

    sentence: str
    asked: tuple[Asked, ...]


class Answer(NamedTuple):
    """The verdict and the number of a headline as Markdown, and the experiments that they come from."""

    verdict: str
    number: str
    experiments: list[str]


HEADLINES = (
    Headline(
        "One vanilla layer does not learn induction; one layer with KV shifting does.",
        (
            Asked("figure1a", "It is difficult for a one-layer standard transformer", "accuracy {} (vanilla)"),
            Asked("figure1a", "1-layer KV shifting attention can perfectly learn", "{} (KV shifting)"),
        ),
    ),
    Headline(
        "One layer with KV shifting learns induction in less than half the steps of two vanilla layers.",
        (
            Asked("figure1a", "KV shifting attention converges much faster", "{} of the steps", "both at"),
            Asked(
                "robustness",
                "KV shifting attention converges much faster than two-layer transformers (",
                "with each model's own learning rate {}",
                ours=True,
            ),
        ),
    ),
    Headline(
        "Two vanilla layers learn induction perfectly.",
        (Asked("figure1a", "The 2-layer transformer can perfectly learn", "accuracy {}"),),
    ),
    Headline(
        "Four vanilla layers learn induction no faster than two.",
        (
            Asked("figure1a", "Increasing vanilla to 4 layers does not make", "{} of the steps", "both at"),
            Asked(
                "robustness",
                "Increasing vanilla to 4 layers does not make",
                "with each model's own learning rate {}",
                ours=True,
            ),
        ),
    ),
    Headline(
        "With d_model = 8, two vanilla layers rarely learn induction, and one layer with KV shifting does.",
        (
            Asked(
                "figure1b",
                "At hidden size 8 standard attention learns very poorly; KV shifting does not.",
                "{} more of the runs learn it",
                "share of runs that end at.*(?<!learned positions);",
                percent=True,
            ),
            Asked(
                "figure1b",
                "At hidden size 8 standard attention learns very poorly; KV shifting does not.",
                "with learned positions {}",
                "share of runs that end at.*learned positions",
                ours=True,
                percent=True,
            ),
        ),
    ),
    Headline(
        "Gradient descent makes a head read the previous token's key and the current token's value.",
        (
            Asked(
                "figure2", "Induction heads means (0, 1)", "from {} of the starts in theory", ours=True, percent=True
            ),
            Asked("basin_map", "Induction heads means (0, 1)", "in {} of trained models", percent=True),
        ),
    ),
    Headline(
        "KV shifting neither helps nor hurts the learning of 3-grams.",
        (
            Asked(
                "figure9",
                "KV shifting does not enhance the learning of 3-grams",
                "accuracy differs, by number of parameters: {}",
                "final",
            ),
        ),
    ),
    Headline(
        "With the same number of layers, KV shifting makes fewer errors on multi-hop induction.",
        (
            Asked("figure8", "KV shifting has a very good bias for learning multi-hop", "error changes by {}"),
            Asked(
                "figure8_learned",
                "KV shifting has a very good bias for learning multi-hop",
                "with learned positions {}",
                ours=True,
            ),
        ),
    ),
    Headline(
        "Both halves of the shift matter: shifted keys for induction, shifted values for 3-grams.",
        tuple(
            Asked(
                "figure7",
                f"The shifting of key and value both play an important role: without the {half} shift, {task}",
                number,
                ours=True,
            )
            for half, task, number in (
                ("key", "induction", "{} times the steps without shifted keys (induction)"),
                ("value", "a table of 3-grams", "{} times without shifted values (3-grams)"),
            )
        ),
    ),
    Headline(
        "KV shifting lowers the loss on real text.",
        (Asked("text", "KV shifting models text better than vanilla", "bits per byte change by {}"),),
    ),
    Headline(
        "A shift elsewhere (of the residual stream, Canon layers) does not let a narrow layer learn induction.",
        (Asked("elsewhere", "Shifting elsewhere can not alleviate", "accuracy below KV shifting's by {}"),),
    ),
    Headline(
        "KV shifting solves more iGSM problems (arithmetic word problems of several steps).",
        (
            Asked(
                "table4",
                "KV shifting attention solves more iGSM problems",
                "fraction of problems solved changes by {}",
                "some step gives the right value",
                percent=True,
            ),
        ),
    ),
)
"""At most twelve, in the order of the paper."""


def answer(headline: Headline, claims_of: Callable[[str], Sequence[dict[str, Any]]]) -> Answer | None:
    """Return the verdict on a headline; None if it has no stored claims. `claims_of` maps an experiment to claims."""
    found = [(asked, claims) for asked in headline.asked if (claims := asked.of(claims_of(asked.experiment)))]
    if not found:
        return None
    counted = Counter(claim["verdict"] for _, claims in found for claim in claims)
    alike = len(counted) == 1
    verdicts = [
        f"{mark}&nbsp;{SHORT[verdict]}{'' if alike else f' ({counted[verdict]})'}"
        for verdict, mark in MARKS.items()
        if counted[verdict]
    ]
    numbers = [
        escaped(asked.number.format(values)) for asked, claims in found if (values := _range(claims, asked.percent))
    ]
    experiments = list(dict.fromkeys(asked.experiment for asked, _ in found))
    return Answer(", ".join(verdicts), "; ".join(numbers), experiments)


def _range(claims: Sequence[dict[str, Any]], percent: bool) -> str:
    """Return the value of one claim, or the minimum and maximum of several with their conditions; "" for none."""
    known = sorted(
        (claim for claim in claims if claim["verdict"] != NOT_TESTED and claim["value"] is not None),
        key=lambda claim: float(claim["value"]),
    )
    unlike = len({claim["sentence"] for claim in known}) > 1
    ends = [
        (f"{number(100 * claim['value'])}%" if percent else number(claim["value"]))
        + (f" ({condition(claim['sentence'])})" if unlike else "")
        for claim in (known if len(known) < 2 else (known[0], known[-1]))
    ]
    return " to ".join(dict.fromkeys(ends))
