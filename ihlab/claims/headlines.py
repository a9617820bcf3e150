"""The paper's main claims in one sentence each, and the stored claims that decide them.

A headline's verdicts and numbers are read from the figures.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ihlab.claims.claim import NOT_TESTED, on_statement
from ihlab.claims.markdown import MARKS, SHORT, escaped, short


class Asked(NamedTuple):
    """Selects the claims that decide a headline or a part of it.

    It selects the claims of `experiment` whose id is `id` or starts with it and a dot: the paper's, or our own if none
    is the paper's. `number` is the text for their value, in which {} is replaced by the number, or by the range over
    all claims (as a percentage if `percent`).
    """

    experiment: str
    id: str
    number: str
    percent: bool = False

    def of(self, claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the selected claims of an experiment."""
        found = [claim for claim in claims if f"{claim.get('id')}.".startswith(f"{self.id}.")]
        return [claim for claim in found if claim["of_paper"]] or found


HEADLINES: dict[str, tuple[Asked, ...]] = {
    "One vanilla layer does not learn induction; one layer with KV shifting does.": (
        Asked("figure1a", "vanilla1_hard", "accuracy {} (vanilla)"),
        Asked("figure1a", "kv1_perfect", "{} (KV shifting)"),
    ),
    "One layer with KV shifting learns induction in less than half the steps of two vanilla layers.": (
        Asked("figure1a", "faster", "{} of the steps"),
        Asked("robustness", "faster", "with each model's own learning rate {}"),
    ),
    "Two vanilla layers learn induction perfectly.": (Asked("figure1a", "vanilla2_perfect", "accuracy {}"),),
    "Four vanilla layers learn induction no faster than two.": (
        Asked("figure1a", "four_layers_no_faster", "{} of the steps"),
        Asked("robustness", "four_layers_no_faster", "with each model's own learning rate {}"),
    ),
    "With d_model = 8, two vanilla layers rarely learn induction, and one layer with KV shifting does.": (
        Asked("figure1b", "narrow.share.rope", "{} more of the runs learn it", percent=True),
        Asked("figure1b", "narrow.share.learned", "with learned positions {}", percent=True),
    ),
    "Gradient descent makes a head read the previous token's key and the current token's value.": (
        Asked("figure2", "leads_to_0_1", "from {} of the starts in theory", percent=True),
        Asked("basin_map", "induction_heads_mean_0_1", "in {} of trained models", percent=True),
    ),
    "KV shifting neither helps nor hurts the learning of 3-grams.": (
        Asked("figure9", "no_effect_on_3_grams.final", "accuracy differs, by number of parameters: {}"),
    ),
    "With the same number of layers, KV shifting makes fewer errors on multi-hop induction.": (
        Asked("figure8", "multi_hop_bias", "error changes by {}"),
        Asked("figure8_learned", "multi_hop_bias", "with learned positions {}"),
    ),
    "Both halves of the shift matter: shifted keys for induction, shifted values for 3-grams.": (
        Asked("figure7", "both_halves.key.induction_1_layer", "{} times the steps without shifted keys (induction)"),
        Asked("figure7", "both_halves.value.3_grams_1_layer", "{} times without shifted values (3-grams)"),
    ),
    "KV shifting lowers the loss on real text.": (Asked("text", "better_on_text", "bits per byte change by {}"),),
    "A shift elsewhere (of the residual stream, Canon layers) does not let a narrow layer learn induction.": (
        Asked("elsewhere", "no_alleviation", "accuracy below KV shifting's by {}"),
    ),
    "KV shifting solves more iGSM problems (arithmetic word problems of several steps).": (
        Asked("table4", "solves_more.lenient", "fraction of problems solved changes by {}", percent=True),
    ),
}
"""At most twelve, in the order of the paper."""


def answer(
    asked: Sequence[Asked], claims_of: Callable[[str], Sequence[dict[str, Any]]]
) -> tuple[str, str, list[str]] | None:
    """Return the verdict and the number of a headline as Markdown, and the experiments that they come from.

    None if it has no stored claims. `claims_of` maps an experiment to claims.
    """
    found = [(part, claims) for part in asked if (claims := part.of(claims_of(part.experiment)))]
    if not found:
        return None
    counted = Counter(on_statement(claim) for _, claims in found for claim in claims)
    verdicts = [
        f"{mark}&nbsp;{SHORT[verdict]}{'' if len(counted) == 1 else f' ({counted[verdict]})'}"
        for verdict, mark in MARKS.items()
        if counted[verdict]
    ]
    numbers = [
        escaped(part.number.format(values)) for part, claims in found if (values := _range(claims, part.percent))
    ]
    experiments = list(dict.fromkeys(part.experiment for part, _ in found))
    return ", ".join(verdicts), "; ".join(numbers), experiments


def _range(claims: Sequence[dict[str, Any]], percent: bool) -> str:
    """Return the value of one claim, or the minimum and maximum of several with their settings; "" for none."""
    known = sorted(
        (claim for claim in claims if claim["verdict"] != NOT_TESTED and claim["value"] is not None),
        key=lambda claim: float(claim["value"]),
    )
    ends = []
    for claim in known if len(known) < 2 else (known[0], known[-1]):
        number = f"{short(100 * claim['value'])}%" if percent else short(claim["value"])
        setting = "; ".join(value for name, value in _setting(claim).items() if _differs(name, known))
        ends.append(f"{number} ({setting})" if setting else number)
    return " to ".join(dict.fromkeys(ends))


def _setting(claim: dict[str, Any]) -> dict[str, str]:
    return dict(claim.get("setting", {}))


def _differs(condition: str, claims: Sequence[dict[str, Any]]) -> bool:
    return len({_setting(claim).get(condition) for claim in claims}) > 1
