"""The one rule of verdicts."""

import math

import pytest

from ihlab.experiments.claims import Claim
from ihlab.experiments.stats import Estimate


def claim(low: float, high: float, threshold: float, right_side: str) -> Claim:
    return Claim(
        source="somewhere",
        sentence="Something.",
        measure="a number",
        estimate=Estimate((low + high) / 2, low, high),
        threshold=threshold,
        right_side=right_side,  # type: ignore[arg-type]
        seeds=5,
    )


@pytest.mark.parametrize(
    ("low", "high", "threshold", "right_side", "verdict"),
    [
        (0.6, 0.8, 0.5, "above", "holds"),
        (0.4, 0.8, 0.5, "above", "undecided"),
        (0.1, 0.4, 0.5, "above", "fails"),
        (0.1, 0.4, 0.5, "below", "holds"),
        (0.4, 0.8, 0.5, "below", "undecided"),
        (0.6, 0.8, 0.5, "below", "fails"),
        (0.5, 0.5, 0.5, "above", "undecided"),
        (0.0, math.inf, 1.0, "below", "undecided"),
        (2.0, math.inf, 1.0, "above", "holds"),
        (-math.inf, math.inf, 1.0, "above", "undecided"),
    ],
)
def test_verdict(low, high, threshold, right_side, verdict):
    assert claim(low, high, threshold, right_side).verdict == verdict


def test_unbounded_ends_are_written_as_null():
    written = claim(2.0, math.inf, 1.0, "above").to_dict()
    assert written["interval"] == [2.0, None]
    assert written["value"] is None
    assert written["verdict"] == "holds"
