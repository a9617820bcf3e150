"""The paper's main claims in one sentence each, and the stored claims that decide them.

A headline's verdicts and numbers are read from the figures.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ihlab.study.claim import NOT_TESTED, as_stated, margin
from ihlab.study.markdown import MARKS, Unit, escaped, interval, needed, value

ClaimsOf = Callable[[str], Sequence[dict[str, Any]]]
"""Maps an experiment to its stored claims."""


class Asked(NamedTuple):
    """Selects the claims that decide a headline or a part of it.

    It selects the claims of `experiment` and of `also` whose id is `id` or starts with `id` and a
    dot, in all settings: the paper's and our own. `number` describes the claim that is shown: {} is
    replaced by its value in `unit`, with its interval if it is undecided. A claim that contradicts
    the paper's sentence counts with its verdict inverted.
    """

    experiment: str
    id: str
    number: str
    unit: Unit = ""
    also: str = ""

    def of(self, claims_of: ClaimsOf) -> list[dict[str, Any]]:
        """Return the selected claims, each with the name of its experiment."""
        selected = []
        for experiment in filter(None, (self.experiment, self.also)):
            for claim in claims_of(experiment):
                if f"{claim.get('id')}.".startswith(f"{self.id}."):
                    selected.append(as_stated({**claim, "experiment": experiment}))
        return selected


HEADLINES: dict[str, tuple[Asked, ...]] = {
    "One vanilla layer does not learn induction. One with KV shifting does perfectly, and so do two vanilla layers.": (
        Asked(
            "figure1a", "vanilla1_hard", "accuracy of one vanilla layer {}", also="figure1a_learned"
        ),
        Asked(
            "figure1a",
            "kv1_perfect",
            "accuracy of one layer with KV shifting {}",
            also="figure1a_learned",
        ),
        Asked(
            "figure1a",
            "vanilla2_perfect",
            "accuracy of two vanilla layers {}",
            also="figure1a_learned",
        ),
    ),
    "One layer with KV shifting learns induction in less than half the steps of two vanilla layers.": (
        Asked(
            "figure1a", "faster", "{} times the steps at one learning rate", also="figure1a_learned"
        ),
        Asked(
            "robustness", "faster", "{} times the steps at each model's learning rate", also="width"
        ),
    ),
    "Four vanilla layers learn induction no faster than two.": (
        Asked(
            "figure1a",
            "four_layers_no_faster",
            "{} times the steps at one learning rate",
            also="figure1a_learned",
        ),
        Asked(
            "robustness",
            "four_layers_no_faster",
            "{} times the steps at each model's learning rate",
        ),
    ),
    "With d_model = 8, two vanilla layers rarely learn induction, and one layer with KV shifting does.": (
        Asked(
            "figure1b",
            "narrow.share",
            "{} more of the runs learn it",
            " points",
            also="figure1b_learned",
        ),
        Asked("figure1b", "narrow.accuracy", "accuracy higher by {}", also="figure1b_learned"),
    ),
    "Gradient descent makes a head read the previous token's key and the current token's value.": (
        Asked(
            "figure2",
            "leads_to_0_1",
            "from {} of the starts in the exact theory, each sum held at 1",
            "%",
        ),
        Asked(
            "basin_map",
            "induction_heads_mean_0_1",
            "in {} of the one-head models that learn induction",
            "%",
        ),
    ),
    "KV shifting neither helps nor hurts the learning of 3-grams.": (
        Asked("figure9", "no_effect_on_3_grams", "accuracy differs by {}"),
    ),
    "With the same number of layers, KV shifting makes fewer errors on multi-hop induction.": (
        Asked("figure8", "multi_hop_bias", "error changes by {}"),
        Asked("figure8_tuned", "multi_hop_bias", "error changes by {} after four times the steps"),
        Asked("figure8_learned", "multi_hop_bias", "with learned positions, error changes by {}"),
    ),
    "Both halves of the shift matter, for induction and for 3-grams.": (
        Asked("figure7", "both_halves.key", "{} times the steps"),
        Asked("figure7", "both_halves.value", "{} times the steps"),
    ),
    "On longer sequences one layer with KV shifting keeps its accuracy, better than two vanilla layers.": (
        Asked(
            "lengths_16",
            "helps.kv_shifting_1_layer",
            "accuracy higher by {} at eight times the length",
        ),
        Asked("untrained_positions", "helps", "accuracy higher by {} at eight times the length"),
        Asked("lengths", "helps", "accuracy higher by {} at eight times the length"),
        Asked("lengths", "keeps.kv1", "accuracy changes by {} at eight times the length"),
    ),
    "KV shifting lowers the loss on real text at equal numbers of tokens.": (
        Asked("text", "better_on_text", "bits per byte change by {}"),
    ),
    "A shift elsewhere (residual stream, Canon layers) does not let a narrow layer learn induction.": (
        Asked("elsewhere", "no_alleviation", "accuracy {} below that of KV shifting"),
    ),
    "KV shifting solves more iGSM problems (arithmetic in several steps).": (
        Asked(
            "table4",
            "solves_more",
            "fraction solved changes by {} with more steps than in training",
            " points",
        ),
        Asked(
            "table4",
            "solves_more_in_training_range",
            "by {} with as many as in training",
            " points",
        ),
    ),
}
"""The claims that decide each headline. There are at most twelve headlines, in the order of the
paper.
"""


def answer(
    asked: Sequence[Asked],
    claims_of: ClaimsOf,
    link: Callable[[str, str], str] = lambda number, experiment: number,
) -> tuple[str, str] | None:
    """Return a headline's answer, and its least favourable number with the setting, as Markdown.

    The answer is yes, no, undecided or not tested if all tested claims agree; otherwise it gives
    the number of claims with each verdict, and the settings in which the headline does not hold.
    The number is the one nearest to its threshold, or farthest on the wrong side, relative to the
    threshold. None if there are no stored claims. `link` makes a number a link to its experiment.
    """
    every, numbers = [], []
    for question in asked:
        for claim in question.of(claims_of):
            every.append(claim)
            if claim["verdict"] != NOT_TESTED and claim["value"] is not None:
                numbers.append((question, claim))
    if not every:
        return None
    number = _number(numbers, link) if numbers else ""
    return _in_words(every), number


def _in_words(claims: Sequence[dict[str, Any]]) -> str:
    counted = Counter(claim["verdict"] for claim in claims)
    undecided = counted["undecided"]
    if counted["holds"] and counted["fails"]:
        tests = [f"{counted['holds']} yes", f"{undecided} undecided", f"{counted['fails']} no"]
        if not undecided:
            del tests[1]
        settings = _failing(claims)
        listed = ""
        if all(settings) and len(settings) < SEVERAL:
            listed = f" ({'; '.join(settings)})"
        return f"It depends: {', '.join(tests)}{listed}"
    answers = {"holds": "Yes", "fails": "No", "undecided": "Undecided", NOT_TESTED: "Not tested"}
    verdict = next(verdict for verdict in answers if counted[verdict])
    note = ""
    if undecided and verdict != "undecided":
        note = f" ({undecided} of {counted.total() - counted[NOT_TESTED]} undecided)"
    return f"{MARKS[verdict]}&nbsp;{answers[verdict]}{note}"


def _failing(claims: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings of the claims that fail; if one condition separates them from claims that
    hold, only it.
    """
    failing = [claim for claim in claims if claim["verdict"] == "fails"]
    holding = [claim for claim in claims if claim["verdict"] == "holds"]
    for name in failing[0].get("setting", {}):
        values = _words_of(failing, name)
        if not values.keys() & _words_of(holding, name):
            return [_in_setting(name, words) for words in values if words]
    return list(dict.fromkeys(_setting(claim, claims) for claim in failing))


def _words_of(claims: Sequence[dict[str, Any]], condition: str) -> dict[str | None, None]:
    """Return the different values of a condition in the claims' settings, in order."""
    return dict.fromkeys(claim.get("setting", {}).get(condition) for claim in claims)


def _number(
    numbers: Sequence[tuple[Asked, dict[str, Any]]], link: Callable[[str, str], str]
) -> str:
    """Return the least favourable number of the headline, its setting and its threshold."""
    claims = [claim for _, claim in numbers]
    question, claim = min(numbers, key=lambda pair: margin(pair[1]))
    shown = link(value(claim, question.unit), claim["experiment"])
    if claim["verdict"] == "undecided":
        shown += interval(claim, question.unit)
    number = escaped(question.number).format(shown)
    if setting := _setting(claim, claims):
        number += f" ({setting})"
    limit = needed(claim, unit=question.unit)
    return f"{number}; needed: {limit}" if limit else number


def _setting(claim: dict[str, Any], claims: Sequence[dict[str, Any]]) -> str:
    """Return the conditions of a claim's setting that are not the same in all `claims`, in words."""
    told = []
    for name, words in claim.get("setting", {}).items():
        if len(_words_of(claims, name)) > 1:
            told.append(_in_setting(name, words))
    return ", ".join(told)


def _in_setting(name: str, words: str) -> str:
    return escaped(CONDITIONS.get(name, "{}").format(words))


CONDITIONS = {"size": "{} parameters", "width": "width {}", "without": "without shifted {}s"}
"""Formats for the conditions of a setting that cannot be understood without their names."""


SEVERAL = 4
"""From this number on, the settings in which a sentence does not hold are counted, not listed."""
