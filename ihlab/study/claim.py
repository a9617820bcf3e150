"""A claim: a sentence of the paper, a number measured over seeds with its interval, and a verdict."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ihlab.study.stats import CONFIDENCE, Estimate, holm
from tasks.config import require

Verdict = Literal["holds", "fails", "undecided", "not tested at this scale"]
NOT_TESTED: Verdict = "not tested at this scale"

DIGITS, P_DIGITS = 10, 3
"""Digits that are stored: the last ones of a number depend on the processor, those of a p-value on
its search.
"""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the ledger: a sentence, the number that decides it, its threshold and the verdict.

    One rule gives the verdict. The p-value tests the number against the threshold, with Holm's
    correction for the other claims of the experiment (`judged`). If it is at most .05, the claim
    *holds* when the number is on the right side of the threshold and *fails* when it is on the
    other side. Otherwise the claim is *undecided*. A number that is counted and not sampled is
    compared directly. If nothing at this scale can confirm or refute the sentence, the claim is
    *not tested*. The p-value of an untested claim, if it has one, still counts in the correction of
    the other claims.

    - `id`: the claim's name, unique in its experiment, by which headlines, the paper's statements
      and the history find it. Claims that make the same statement under several conditions share
      the part before the first dot;
    - `setting`: the conditions of the claim, such as {"positions": "learned positions"};
    - `statement`: the number of the statement that it answers (`figures/results/statements.csv`);
      None for none;
    - `against`: whether the paper says the contrary: if the claim holds, the paper's statement does
      not;
    - `of_paper`: whether the paper makes the statement or gives the number; otherwise it is our own
      question;
    - `declared`: the date (ISO) on which measure, threshold and side were fixed, before the runs
      that they judge;
    - `first`: the claim as first declared, if its measure was changed after the runs. Its verdict
      is not counted;
    - `changed`: the date of that change and the reason;
    - `seeds`: 0 if the claim needs no training;
    - `why`: the reason why the claim is not tested; "" if it is tested.
    """

    id: str
    setting: Mapping[str, str] = field(default_factory=dict)
    statement: int | None = None
    against: bool = False
    source: str  # the place in the paper
    sentence: str  # the paper's statement, or our own
    measure: str = ""  # a description of the measured number
    estimate: Estimate | None = None  # None: not tested
    threshold: float = math.nan
    right_side: Literal["above", "below"] = "above"
    seeds: int = 0
    declared: str
    why: str = ""
    of_paper: bool = True
    first: "Claim | None" = None
    changed: str = ""
    p_holm: float | None = None

    @property
    def p(self) -> float | None:
        """P-value of the threshold (`Estimate.p_value`), for this claim alone; None if the number
        is not sampled.
        """
        return None if self.estimate is None else self.estimate.p_value(self.threshold)

    @property
    def verdict(self) -> Verdict:
        """Verdict: holds, fails, undecided or not tested at this scale."""
        if self.estimate is None or self.why:
            return NOT_TESTED
        value, p_value = self.estimate.value, self.p_holm
        if p_value is None:  # not judged among others
            p_value = self.p
        if (
            math.isnan(value)
            or value == self.threshold
            or (p_value is not None and p_value > 1 - CONFIDENCE)
        ):
            return "undecided"
        return "holds" if (value > self.threshold) == (self.right_side == "above") else "fails"

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as JSON types: numbers with ten significant digits, and None for an
        unbounded end of the interval.

        If `value` is only a bound of the number, `bound` says which
        (`ihlab.study.stats.ratio_of_times`).
        """
        estimate = self.estimate or Estimate(math.nan, -math.inf, math.inf, 0.0)
        row = {
            "id": self.id,
            "setting": dict(self.setting),
            "statement": self.statement,
            "against": self.against,
            "source": self.source,
            "of_paper": self.of_paper,
            "sentence": self.sentence,
            "measure": self.measure,
            "value": _rounded(estimate.value, DIGITS),
            "bound": estimate.bound,
            "interval": [_rounded(estimate.low, DIGITS), _rounded(estimate.high, DIGITS)],
            "confidence": round(estimate.confidence, 4),
            "p": _rounded(self.p, P_DIGITS),
            "p_holm": _rounded(self.p_holm, P_DIGITS),
            "threshold": _rounded(self.threshold, 17),
            "right_side": self.right_side,
            "seeds": self.seeds,
            "declared": self.declared,
            "verdict": self.verdict,
            "why": self.why,
        }
        for name in ("setting", "statement", "against", "bound", "why"):
            if not row[name]:
                del row[name]
        if self.first:
            first = replace(self.first, id=self.id, setting=self.setting, statement=self.statement)
            row |= {"changed": self.changed, "first": first.to_dict()}
        return row


def as_stated(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a stored claim as a verdict on the paper's statement: verdict and side are reversed if
    it is `against`.
    """
    if not claim.get("against"):
        return claim
    verdict = {"holds": "fails", "fails": "holds"}.get(claim["verdict"], claim["verdict"])
    right_side = {"above": "below", "below": "above"}[claim["right_side"]]
    return {**claim, "verdict": verdict, "right_side": right_side}


def margin(claim: dict[str, Any]) -> float:
    """Return how far a stored number is beyond its threshold, relative to the threshold; negative
    if it misses it.
    """
    threshold = claim["threshold"] or 0.0
    distance = (claim["value"] - threshold) / (abs(threshold) or 1.0)
    return float(distance if claim["right_side"] == "above" else -distance)


FLOOR = 0.05
"""A model has learned nothing if its accuracy is at most this far above guessing."""


def at_floor(*sides: float, guess: float = 0.0) -> bool:
    """Return whether neither side of a comparison has learned anything, so that their difference
    tests nothing.

    The sides are accuracies, or fractions of runs that learned. This is true if all are at most
    `FLOOR` above `guess`.
    """
    return max(sides) <= guess + FLOOR


def judged(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims of one experiment with their p-values adjusted by Holm (1979).

    The `first` versions are adjusted too, together with the unchanged claims: the family as it was
    first declared. Raises `ConfigError` if two claims have the same id.
    """
    ids = Counter(claim.id for claim in claims)
    for id, number in ids.items():
        require(number == 1, f"Two claims have the id '{id}', but each claim needs its own.")
    as_declared = _adjusted([claim.first or claim for claim in claims])
    now = _adjusted(claims)
    for i, first in enumerate(as_declared):
        if now[i].first is not None:
            now[i] = replace(now[i], first=first)
    return now


def slug(sentence: str) -> str:
    """Return the letters and digits of a sentence as an id: "it_learns" for "It learns."."""
    return "_".join(re.findall(r"[^\W_]+", sentence.lower()))


def _adjusted(claims: Sequence[Claim]) -> list[Claim]:
    p_values = {i: claim.p for i, claim in enumerate(claims)}
    sampled = {i: p_value for i, p_value in p_values.items() if p_value is not None}
    adjusted = dict(zip(sampled, holm(list(sampled.values())), strict=True))
    return [replace(claim, p_holm=adjusted.get(i)) for i, claim in enumerate(claims)]


def _rounded(x: float | None, digits: int) -> float | None:
    """Round a number to significant digits. Values that JSON cannot hold, such as infinity, become
    None.
    """
    if x is None or not math.isfinite(x):
        return None
    return float(f"{x:.{digits}g}")
