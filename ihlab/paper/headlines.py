"""The paper's main claims in one sentence each, and the stored claims that decide them.

A headline's verdicts and numbers are read from the figures.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ihlab.study.claim import NOT_TESTED, as_stated
from ihlab.study.markdown import MARKS, SHORT, Unit, escaped, interval, needed, value

ClaimsOf = Callable[[str], Sequence[dict[str, Any]]]
"""Maps an experiment to its stored claims."""


class Asked(NamedTuple):
    """Selects the claims that decide a headline or a part of it.

    It selects all claims of `experiment`, and of `also`, whose id is `id` or starts with it and a dot: every setting,
    the paper's and our own. `number` is the text for their value, in which {} is replaced by the number, or by the
    range over all claims. The number has the unit `unit`. Claims against the paper are turned round.
    """

    experiment: str
    id: str
    number: str
    unit: Unit = ""
    also: str = ""

    def of(self, claims_of: ClaimsOf) -> list[dict[str, Any]]:
        """Return the selected claims, each with the name of its experiment."""
        return [
            as_stated({**claim, "experiment": experiment})
            for experiment in filter(None, (self.experiment, self.also))
            for claim in claims_of(experiment)
            if f"{claim.get('id')}.".startswith(f"{self.id}.")
        ]


HEADLINES: dict[str, tuple[Asked, ...]] = {
    "One vanilla layer does not learn induction. One with KV shifting does, perfectly, and so do two vanilla layers.": (
        Asked("figure1a", "vanilla1_hard", "accuracy of one vanilla layer {}", also="figure1a_learned"),
        Asked("figure1a", "kv1_perfect", "KV shifting {}", also="figure1a_learned"),
        Asked("figure1a", "vanilla2_perfect", "two vanilla layers {}", also="figure1a_learned"),
    ),
    "One layer with KV shifting learns induction in less than half the steps of two vanilla layers.": (
        Asked("figure1a", "faster", "{} of the steps at one learning rate", also="figure1a_learned"),
        Asked("robustness", "faster", "{} at each model's own learning rate"),
    ),
    "Four vanilla layers learn induction no faster than two.": (
        Asked("figure1a", "four_layers_no_faster", "{} of the steps at one learning rate", also="figure1a_learned"),
        Asked("robustness", "four_layers_no_faster", "{} at each model's own learning rate"),
    ),
    "With d_model = 8, two vanilla layers rarely learn induction, and one layer with KV shifting does.": (
        Asked("figure1b", "narrow.share", "{} more of the runs learn it", " points", also="figure1b_learned"),
        Asked("figure1b", "narrow.accuracy", "accuracy higher by {}", also="figure1b_learned"),
    ),
    "Gradient descent makes a head read the previous token's key and the current token's value.": (
        Asked("figure2", "leads_to_0_1", "from {} of the starts in the exact theory", "%"),
        Asked("basin_map", "induction_heads_mean_0_1", "in {} of the one-head models that learn induction", "%"),
    ),
    "KV shifting neither helps nor hurts the learning of 3-grams.": (
        Asked("figure9", "no_effect_on_3_grams", "accuracy differs, by number of parameters: {}"),
    ),
    "With the same number of layers, KV shifting makes fewer errors on multi-hop induction.": (
        Asked("figure8", "multi_hop_bias", "error changes by {}"),
        Asked("figure8_learned", "multi_hop_bias", "with learned positions {}"),
    ),
    "Both halves of the shift matter, for induction and for 3-grams.": (
        Asked("figure7", "both_halves.key", "without shifted keys {} times the steps"),
        Asked("figure7", "both_halves.value", "without shifted values {}"),
    ),
    "On longer sequences one layer with KV shifting keeps its accuracy, better than two vanilla layers.": (
        Asked("lengths", "helps", "with learned positions higher by {} at eight times the length"),
        Asked("lengths", "keeps", "its own accuracy changes by {}"),
    ),
    "KV shifting lowers the loss on real text.": (Asked("text", "better_on_text", "bits per byte change by {}"),),
    "A shift elsewhere (residual stream, Canon layers) does not let a narrow layer learn induction.": (
        Asked("elsewhere", "no_alleviation", "accuracy below KV shifting's by {}"),
    ),
    "KV shifting solves more iGSM problems (arithmetic in several steps).": (
        Asked("table4", "solves_more", "fraction solved changes by {} with more steps than in training", " points"),
        Asked("table4", "solves_more_in_training_range", "by {} with as many as in training", " points"),
    ),
}
"""At most twelve, in the order of the paper."""


def answer(
    asked: Sequence[Asked], claims_of: ClaimsOf, link: Callable[[str, str], str] = lambda number, experiment: number
) -> tuple[str, str] | None:
    """Return the verdict and the numbers of a headline as Markdown, with the threshold where a claim fails.

    None if it has no stored claims. `link` makes a number a link to its experiment.
    """
    answers = [(question, claims) for question in asked if (claims := question.of(claims_of))]
    if not answers:
        return None
    counted = Counter(claim["verdict"] for _, claims in answers for claim in claims)
    verdicts = [
        f"{mark}&nbsp;{SHORT[verdict]}{'' if len(counted) == 1 else f'&nbsp;({counted[verdict]})'}"
        for verdict, mark in MARKS.items()
        if counted[verdict]
    ]
    numbers = [
        escaped(question.number).format(number)
        for question, claims in answers
        if (number := _number(claims, question.unit, link))
    ]
    failed = ((claim, question.unit) for question, claims in answers for claim in claims if claim["verdict"] == "fails")
    thresholds = " and ".join(dict.fromkeys(needed(claim, unit=unit) for claim, unit in failed))
    return ", ".join(verdicts), "; ".join([*numbers, *([f"needed: {thresholds}"] if thresholds else [])])


def _number(claims: Sequence[dict[str, Any]], unit: Unit, link: Callable[[str, str], str]) -> str:
    """Return the number of one claim with its interval, or the minimum and maximum of several with their settings.

    Return "" if no claim has a number.
    """
    known = sorted(
        (claim for claim in claims if claim["verdict"] != NOT_TESTED and claim["value"] is not None),
        key=lambda claim: float(claim["value"]),
    )
    if not known:
        return ""
    first, last, ends = known[0], known[-1], []
    if value(first, unit) == value(last, unit):
        return link(value(first, unit), first["experiment"]) + (interval(first, unit) if len(known) == 1 else "")
    for claim in (first, last):
        number = link(value(claim, unit), claim["experiment"])
        setting = "; ".join(words for name, words in claim.get("setting", {}).items() if _differs(name, known))
        ends.append(f"{number} ({escaped(setting)})" if setting else number)
    return " to ".join(ends)


def _differs(condition: str, claims: Sequence[dict[str, Any]]) -> bool:
    return len({claim.get("setting", {}).get(condition) for claim in claims}) > 1
