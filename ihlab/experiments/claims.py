"""A claim: a sentence of the paper, a number measured over seeds with its interval, and a verdict."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from ihlab.experiments.stats import Estimate

Verdict = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    The verdict has one rule. The claim *holds* if the whole interval lies on the right side of the
    threshold, *fails* if it lies wholly on the other side, and is *undecided* in between.
    """

    source: str  # where the paper says it
    sentence: str  # what it says
    measure: str  # the number that stands for it
    estimate: Estimate
    threshold: float
    right_side: Literal["above", "below"]
    seeds: int  # 0 for what needs no training

    @property
    def verdict(self) -> Verdict:
        """holds, fails or undecided."""
        sign = 1 if self.right_side == "above" else -1
        ends = sorted((sign * (self.estimate.low - self.threshold), sign * (self.estimate.high - self.threshold)))
        if ends[0] > 0:
            return "holds"
        return "fails" if ends[1] < 0 else "undecided"

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON types; an unbounded end becomes None."""
        ends = (self.estimate.value, self.estimate.low, self.estimate.high)
        value, low, high = (x if math.isfinite(x) else None for x in ends)
        return {
            "source": self.source,
            "sentence": self.sentence,
            "measure": self.measure,
            "value": value,
            "interval": [low, high],
            "confidence": round(self.estimate.confidence, 4),
            "threshold": self.threshold,
            "right_side": self.right_side,
            "seeds": self.seeds,
            "verdict": self.verdict,
        }
