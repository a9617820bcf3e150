"""The one rule of verdicts, alone and among other claims, and claims as JSON."""

import json
import math
from dataclasses import replace
from decimal import Decimal
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
    ("low", "high", "threshold", "right_side", "verdict"),
    [
        (0.6, 0.8, 0.5, "above", "holds"),
        (0.4, 0.8, 0.5, "above", "undecided"),
        (0.1, 0.4, 0.5, "above", "fails"),
        (0.1, 0.4, 0.5, "below", "holds"),
        (0.6, 0.8, 0.5, "below", "fails"),
        (0.5, 0.5, 0.5, "above", "undecided"),
        (2.0, math.inf, 1.0, "below", "fails"),
    ],
)
def test_verdict_of_a_claim_by_itself(low, high, threshold, right_side, verdict):
    assert claim(known(low, high), threshold, right_side).verdict == verdict


@pytest.mark.parametrize(
    ("value", "right_side", "verdict"),
    [
        (2.0, "above", "holds"),
        (2.0, "below", "fails"),
        (1.0, "above", "fails"),
        (1.5, "above", "undecided"),
    ],
)
def test_what_is_counted_is_compared_directly(value, right_side, verdict):
    counted = claim(stats.exact(value), 1.5, right_side)
    assert counted.p is None
    assert counted.verdict == verdict
    [among_others] = judged([counted])
    assert (among_others.p_holm, among_others.verdict) == (None, verdict)


def test_what_is_not_known_is_undecided():
    for unknown in (
        stats.unknown(),
        stats.unknown(0.9, stats.SHARE),
        stats.exact(math.nan),
        stats.mean([0.9]),
    ):
        for side in ("above", "below"):
            assert claim(unknown, 0.5, side).verdict == "undecided"
            assert judged([claim(unknown, 0.5, side)])[0].verdict == "undecided"


def test_what_a_scale_cannot_test_has_no_number_and_a_reason():
    why = "None is as large."
    without = Claim(
        id="large", source="somewhere", sentence="Of a large model.", declared="2026-11-22", why=why
    )
    assert without.verdict == NOT_TESTED
    assert without.p is None
    assert judged([without]) == [without]
    stored = json.loads(json.dumps(without.to_dict()))
    assert stored["why"] == "None is as large."
    assert stored["verdict"] == "not tested at this scale"
    assert [stored[key] for key in ("value", "interval", "threshold", "p", "p_holm")] == [
        None,
        [None, None],
        None,
        None,
        None,
    ]


# Ids


def test_two_claims_cannot_have_one_id():
    with pytest.raises(
        ConfigError, match=r"Two claims have the id 'faster\.rope', but each claim needs its own\."
    ):
        judged(
            [claim(None, id="faster.rope"), claim(None, id="faster"), claim(None, id="faster.rope")]
        )


def test_a_claim_and_its_first_version_are_stored_with_id_setting_and_statement():
    identity = {"id": "faster.rope", "setting": {"positions": "RoPE"}, "statement": 9}
    stored = claim(
        known(0.4, 0.8), first=claim(known(0.6, 0.8)), changed="later: why", **identity
    ).to_dict()
    for row in (stored, stored["first"]):
        assert {name: row[name] for name in identity} == identity
    assert {"setting", "statement"}.isdisjoint(claim(None).to_dict())


# Among other claims


def test_what_is_not_tested_keeps_its_place_among_the_claims():
    """Or a row that is taken out after the runs would make the others more significant."""
    rows = [claim(stats.share(8, 8)) for _ in range(2)]
    floor = claim(stats.share(4, 8), why="Neither learns.")
    assert [c.verdict for c in judged([*rows, floor])] == ["holds", "holds", NOT_TESTED]
    assert judged([*rows, floor])[0].p_holm == pytest.approx(3 * rows[0].p)


@pytest.mark.parametrize(
    ("sides", "guess", "expected"),
    [
        ((0.0, FLOOR), 0.0, True),
        ((0.0, 0.06), 0.0, False),
        ((0.2, 0.24), 0.2, True),
        ((0.3, 0.1), 0.2, False),
    ],
)
def test_both_sides_are_at_the_floor_where_neither_is_better_than_guessing(sides, guess, expected):
    assert at_floor(*sides, guess=guess) is expected


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


@pytest.mark.parametrize(("threshold", "verdict"), [(0.9, "holds"), (1.0, "undecided")])
def test_perfect_seeds_decide_and_leave_their_neighbour_its_verdict(threshold, verdict):
    """One-sided, five of five are .031; eight of eight .0039, which also counts for two claims."""
    [alone] = judged([claim(stats.mean([1.0] * 5, stats.SHARE), threshold)])
    assert (alone.verdict, alone.to_dict()["interval"]) == (verdict, [1.0, 1.0])
    close = replace(share(17, 23), estimate=known(0.6, 0.8))
    perfect, neighbour = judged([claim(stats.mean([1.0] * 8, stats.SHARE), 0.9), close])
    assert (perfect.verdict, neighbour.verdict) == ("holds", close.verdict)
    assert neighbour.p_holm == neighbour.p


# As JSON


@pytest.mark.parametrize(
    "estimate",
    [
        stats.exact(2.5),
        stats.share(3, 16),
        stats.ratio_of_times([math.inf] * 5, [math.inf] * 5, 1000.0),
        stats.shift([1.0, math.nan, 2.0], [0.0] * 3),
    ],
)
def test_a_claim_reads_back_from_json(estimate):
    """Every number has ten digits, and unbounded ends, which JSON has not, are None."""
    [made] = judged([claim(estimate, 0.4, "below", why="")])
    stored = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert stored == made.to_dict()
    ends = [-math.inf if stored["interval"][0] is None else stored["interval"][0]]
    ends.append(math.inf if stored["interval"][1] is None else stored["interval"][1])
    assert ends == pytest.approx([estimate.low, estimate.high], rel=5e-10)
    assert (stored["value"] is None) == math.isnan(estimate.value)
    assert stored["value"] is None or stored["value"] == pytest.approx(estimate.value, rel=5e-10)
    digits = [
        Decimal(repr(x)).normalize().as_tuple().digits
        for x in (stored["value"], *stored["interval"])
        if x
    ]
    assert all(len(each) <= 10 for each in digits)
    assert stored["confidence"] == pytest.approx(estimate.confidence, abs=1e-4)
    assert stored["verdict"] == made.verdict
    assert (stored["threshold"], stored["right_side"], stored["seeds"]) == (0.4, "below", 5)
    assert stored["declared"] == "2026-11-22"
    assert "why" not in stored
    for key, p in (("p", made.p), ("p_holm", made.p_holm)):
        assert stored[key] == (None if p is None else pytest.approx(p, rel=0.005))


def test_a_stored_p_value_never_contradicts_the_verdict():
    """Rounded to three digits, a p-value just above .05 may not read as one that decides."""
    for hits, of in ((15, 20), (14, 20), (19, 27), (21, 30), (30, 30)):
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
    assert alone.first.verdict == "holds"
    assert alone.first.p_holm == 2 * alone.first.p
    assert judged([one])[0].p_holm == one.p
    stored = alone.to_dict()
    assert stored["verdict"] == "undecided"
    assert stored["first"] == replace(alone.first, id=alone.id).to_dict()
    assert stored["changed"] == "2026-11-23: an artefact"
    assert "first" not in other.to_dict()
