"""No published claim disappears: what counts as replaced, and what publishing keeps."""

import json
from datetime import date

import pandas as pd
import pytest

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.figure_page import figure_page
from ihlab.claims.history import replaced
from ihlab.claims.ledger import Folder
from ihlab.plots.style import new_figure


def claim(sentence="It learns.", value=0.95, verdict="holds", **fields):
    return {
        "source": "here", "sentence": sentence, "measure": "accuracy at step 100", "value": value, "threshold": 0.9,
        "right_side": "above", "verdict": verdict, **fields,
    }  # fmt: skip


UNTESTED = claim(value=None, verdict="not tested at this scale", threshold=None)


@pytest.mark.parametrize(
    "new",
    [
        claim(),
        claim(value=0.97, measure="accuracy at step 120"),
        claim("It does learn."),
        claim(verdict="undecided", threshold=0.5, first=claim()),
        {**UNTESTED, "first": claim(value=0.93)},
    ],
    ids=["the same", "other numbers", "other words, the same number", "kept as declared first", "not tested since"],
)
def test_a_claim_with_the_same_verdict_is_not_replaced(new):
    assert replaced([claim()], [claim("Another."), new]) == []


@pytest.mark.parametrize(
    "new",
    [
        claim(verdict="undecided"),
        claim(threshold=0.8),
        claim(right_side="below"),
        claim("It does learn.", value=0.97),
        UNTESTED,
    ],
    ids=["another verdict", "another threshold", "the other side", "another claim", "no verdict"],
)
def test_what_the_new_claims_do_not_say_is_replaced(new):
    assert replaced([claim()], [new]) == [claim()]


def test_a_whole_number_does_not_make_two_claims_the_same():
    assert replaced([claim("All of A do.", 1.0)], [claim("All of B do.", 1.0)]) == [claim("All of A do.", 1.0)]


def test_one_new_claim_stands_for_one_old_one():
    fast, slow = claim(measure="at its own rate of 0.1"), claim(measure="at the common rate of 0.2")
    assert replaced([fast, slow], [{**slow, "measure": "at the common rate of 0.3"}]) == [fast]
    undecided = {**slow, "verdict": "undecided"}
    assert replaced([fast, slow], [undecided, fast]) == [slow]


def test_a_claim_that_was_declared_first_is_kept_too():
    old = claim(verdict="undecided", threshold=0.5, first=claim())
    assert replaced([old], [claim(verdict="undecided", threshold=0.5)]) == [claim()]


def test_what_was_not_tested_is_replaced_only_if_its_sentence_is_gone():
    assert replaced([UNTESTED], [claim()]) == []
    assert replaced([UNTESTED], [claim("Another.")]) == [UNTESTED]


class Made:
    """An experiment with one claim, that the mean is above a threshold."""

    name = "made"

    def __init__(self, threshold):
        self.threshold = threshold

    def claims(self, data, scale):
        mean = stats.mean(data["x"].tolist())
        fields = {"source": "here", "sentence": "It is above.", "measure": "x", "seeds": len(data), "declared": "2026"}
        return [Claim(**fields, estimate=mean, threshold=self.threshold)]

    def summary(self, data, scale):
        return "It was measured."

    def draw(self, data, scale):
        return new_figure(1.0, 1.0)


DATA = pd.DataFrame({"x": [0.9, 1.1, 1.3]})


def test_publishing_keeps_the_claims_that_it_replaces_once_each_and_the_page_shows_them(tmp_path):
    folder = Folder(tmp_path, "made", "laptop")
    folder.publish(Made(0.0), DATA)
    folder.publish(Made(0.0), DATA)
    assert folder.history() == []
    assert not (tmp_path / "made" / "history.json").exists()
    [old] = folder.claims()
    for threshold in (0.5, 0.0, 0.5):  # back, and there again
        folder.publish(Made(threshold), DATA)
    went = {"scale": "laptop", "replaced": date.today().isoformat(), "commit": ""}
    assert [row["threshold"] for row in folder.history()] == [0.0, 0.5]
    assert folder.history()[0] == {**old, **went}
    page = figure_page("", [folder])
    assert "<summary>Replaced claims (2)</summary>" in page
    assert page.count("It is above.") == 3


def test_smoke_scale_has_no_history_and_scales_have_their_own(tmp_path):
    for scale in ("smoke", "laptop", "gpu"):
        Folder(tmp_path, "made", scale).publish(Made(0.0), DATA)
        Folder(tmp_path, "made", scale).publish(Made(0.5), DATA)
    assert [row["scale"] for row in json.loads((tmp_path / "made" / "history.json").read_text())] == ["laptop", "gpu"]
    assert len(Folder(tmp_path, "made", "gpu").history()) == 1
