"""No published claim disappears: what counts as replaced, and what publishing keeps."""

from datetime import date

import pandas as pd
import pytest

from ihlab.study.history import replaced
from ihlab.study.ledger import Folder
from ihlab.study.page import page
from tests.published import NOT_TESTED, Made, claim

OTHER = claim(id="other")


@pytest.mark.parametrize(
    "new",
    [
        claim(),
        claim(sentence="It does learn.", measure="another", value=0.93),
        claim(verdict="undecided", threshold=0.5, first=claim()),
    ],
)
def test_a_claim_with_the_same_verdict_is_not_replaced(new):
    assert replaced([claim()], [OTHER, new]) == []


@pytest.mark.parametrize(
    "new",
    [
        claim(verdict="undecided"),
        claim(threshold=0.8),
        claim(right_side="below"),
        claim(id="learns.late"),
        claim(first=claim(verdict="undecided")),
        NOT_TESTED,
    ],
)
def test_what_the_new_claims_do_not_say_is_replaced(new):
    assert replaced([claim()], [OTHER, new]) == [claim()]


def test_a_claim_that_was_declared_first_is_kept_too():
    old = claim(verdict="undecided", threshold=0.5, first=claim())
    assert replaced([old], [claim(verdict="undecided", threshold=0.5)]) == [claim()]
    assert replaced([old], [old]) == []
    assert replaced([old], [OTHER]) == [old, claim()]


def test_a_claim_that_was_not_tested_is_replaced_only_if_it_is_gone():
    assert replaced([NOT_TESTED], [claim()]) == []
    assert replaced([NOT_TESTED], [OTHER]) == [NOT_TESTED]


DATA = pd.DataFrame({"x": [0.9, 1.1, 1.3]})


def test_publishing_keeps_the_claims_that_it_replaces_once_each_and_the_page_shows_them(tmp_path):
    folder = Folder(tmp_path / "made")
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
    assert "Replaced claims: 2, in [history.json](history.json)." in page(folder.home)


def test_smoke_scale_has_no_history_and_scales_have_their_own(tmp_path):
    folders = [Folder(tmp_path / "made", scale) for scale in ("smoke", "laptop", "gpu")]
    for folder in folders:
        folder.publish(Made(0.0), DATA)
        folder.publish(Made(0.5), DATA)
    assert [[row["scale"] for row in folder.history()] for folder in folders] == [
        [],
        ["laptop"],
        ["gpu"],
    ]
