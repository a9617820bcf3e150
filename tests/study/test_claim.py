"""The one rule of verdicts, alone and among other claims, and claims as JSON."""

import json
import math
from dataclasses import replace
from itertools import count

import pytest

from ihlab.study import stats
from ihlab.study.claim import FLOOR, NOT_TESTED, Claim, at_floor, judged
from ihlab.study.stats import Estimate
from tasks import ConfigError

NUMBERS = count()


def claim(
    estimate: Estimate | None, threshold: float = 0.5, right_side: str = "above", **more: object
) -> Claim:
    return Claim(
        id=str(more.pop("id", next(NUMBERS))),
        source="somewhere",
        sentence="Something.",
        measure="a number",
        estimate=estimate,
        threshold=threshold,
        right_side=right_side,  # type: ignore[arg-type]
        seeds=5,
        declared="2026-11-22",
        **more,  # type: ignore[arg-type]
    )


def known(low: float, high: float) -> Estimate:
    """A number with this interval at 95% and a little more: what it excludes has a p-value of .049."""
    wide = (-99.0, 99.0)
    return Estimate(
        (low + high) / 2,
        low,
        high,
        interval_at=lambda level: (low, high) if level <= 0.951 else wide,
    )


@pytest.mark.parametrize(
    ("estimate", "threshold", "right_side", "verdict"),
    [
        (known(0.6, 0.8), 0.5, "above", "holds"),
        (known(0.4, 0.8), 0.5, "above", "undecided"),
        (known(0.1, 0.4), 0.5, "above", "fails"),
        (known(0.1, 0.4), 0.5, "below", "holds"),
        (known(2.0, math.inf), 1.0, "below", "fails"),
        (stats.exact(2.0), 1.5, "below", "fails"),
        (stats.exact(1.5), 1.5, "above", "undecided"),
    ],
)
def test_the_verdict_of_a_claim_by_itself(estimate, threshold, right_side, verdict):
    """What is counted has no p-value and is compared directly."""
    alone = claim(estimate, threshold, right_side)
    [judged_alone] = judged([alone])
    assert alone.verdict == judged_alone.verdict == verdict
    assert (alone.p is None) == (estimate.interval_at is None)


@pytest.mark.parametrize("estimate", [stats.unknown(0.9, stats.SHARE), stats.exact(math.nan)])
def test_what_is_not_known_is_undecided(estimate):
    assert judged([claim(estimate)])[0].verdict == "undecided"


def test_what_a_scale_cannot_test_has_no_number_and_a_reason():
    without = claim(None, math.nan, why="None is as large.")
    assert (without.verdict, without.p) == (NOT_TESTED, None)
    stored = json.loads(json.dumps(judged([without])[0].to_dict()))
    assert (stored["why"], stored["verdict"]) == ("None is as large.", "not tested at this scale")
    assert [stored[key] for key in ("value", "threshold", "p", "p_holm")] == [None] * 4
    assert stored["interval"] == [None, None]


# Ids


def test_two_claims_cannot_have_one_id():
    with pytest.raises(ConfigError, match=r"Two claims have the id 'a\.b', but each claim needs"):
        judged([claim(None, id="a.b"), claim(None, id="a"), claim(None, id="a.b")])


# Among other claims


def test_what_is_not_tested_keeps_its_place_among_the_claims():
    """Or a row that is taken out after the runs would make the others more significant."""
    rows = [claim(stats.share(8, 8)) for _ in range(2)]
    floor = claim(stats.share(4, 8), why="Neither learns.")
    assert [c.verdict for c in judged([*rows, floor])] == ["holds", "holds", NOT_TESTED]
    assert judged([*rows, floor])[0].p_holm == pytest.approx(3 * rows[0].p)


def test_both_sides_are_at_the_floor_where_neither_is_better_than_guessing():
    assert at_floor(0.0, FLOOR)
    assert not at_floor(0.0, FLOOR + 0.01)
    assert at_floor(0.2, 0.2 + FLOOR / 2, guess=0.2)


def share(hits: int, of: int) -> Claim:
    return claim(stats.share(hits, of))


def test_holm_over_the_sampled_claims_only_in_their_order():
    raw = [share(30, 30), claim(stats.exact(1.0)), share(17, 23), claim(None), share(2, 20)]
    after = judged(raw)
    assert [c.p_holm is None for c in after] == [False, True, False, True, False]
    by_hand = [3 * raw[0].p, 2 * raw[4].p, raw[2].p]
    assert [after[i].p_holm for i in (0, 4, 2)] == pytest.approx(by_hand, rel=5e-10)
    assert [c.verdict for c in after] == ["holds", "holds", "holds", NOT_TESTED, "fails"]
    assert [c.sentence for c in after] == [c.sentence for c in raw]


# As JSON


@pytest.mark.parametrize(
    "estimate", [stats.share(3, 16), stats.shift([1.0, math.nan, 2.0], [0.0] * 3)]
)
def test_a_claim_reads_back_from_json(estimate):
    """Every number has ten digits, and unbounded ends, which JSON has not, are None."""
    [made] = judged([claim(estimate, 0.4, "below", setting={"positions": "RoPE"}, statement=9)])
    stored = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    numbers = [estimate.value, estimate.low, estimate.high]
    rounded = [float(f"{x:.10g}") if math.isfinite(x) else None for x in numbers]
    assert [stored["value"], *stored["interval"]] == rounded
    assert stored["confidence"] == pytest.approx(estimate.confidence, abs=1e-4)
    assert stored["p"] == pytest.approx(made.p, rel=0.005)
    same = ("id", "setting", "statement", "verdict", "threshold", "right_side", "seeds", "declared")
    assert {name: stored[name] for name in same} == {name: getattr(made, name) for name in same}
    assert not {"why", "first", "against", "bound"} & stored.keys()


def test_a_stored_p_value_never_contradicts_the_verdict():
    """Rounded to three digits, a p-value just above .05 may not read as one that decides."""
    for hits, of in ((15, 20), (14, 20), (21, 30)):
        stored = share(hits, of).to_dict()
        assert (stored["p"] <= 0.05) == (stored["verdict"] != "undecided")


def test_a_claim_as_it_was_first_declared_is_judged_beside_the_others_and_not_counted():
    """In the family of which it was one: the same but for the claims whose measures were changed."""
    clear, at_the_edge = (
        Estimate(0.9, 0.8, 1.0, interval_at=lambda level: (0.8, 1.0)),
        known(0.6, 0.8),
    )
    one = claim(at_the_edge, first=claim(clear), changed="2026-11-23: an artefact")
    alone, other = judged([one, claim(at_the_edge)])
    assert [alone.p, alone.p_holm, alone.verdict] == [other.p, other.p_holm, "undecided"]
    assert (alone.first.verdict, alone.first.p_holm) == ("holds", 2 * alone.first.p)
    stored = alone.to_dict()
    assert stored["first"] == replace(alone.first, id=alone.id).to_dict()
    assert (stored["verdict"], stored["changed"]) == ("undecided", "2026-11-23: an artefact")
