"""The printed ledger, and what publishing an experiment leaves in its folder."""

import io
import re
from contextlib import suppress

import pandas as pd
import pytest
from rich.console import Console

from ihlab.study.ledger import Folder, print_ledger, verdict_table
from tasks import ConfigError
from tests.published import NOT_TESTED, Made, claim, store

UNDECIDED = claim(
    sentence="Heads form [early].", source="equation [5]", measure="steps [0, 10]", value=None, interval=[None, None],
    p=1.0, p_holm=1.0, threshold=0.5, seeds=2, verdict="undecided",
)  # fmt: skip


def printed(tmp_path, *claims: dict[str, object]) -> str:
    store(tmp_path, "figure1a", "smoke", *claims)
    console = Console(file=io.StringIO(), width=20)  # in a file, lines are as long as they must be
    print_ledger(console, [Folder(tmp_path / "figure1a", "smoke")])
    return console.file.getvalue()  # type: ignore[attr-defined]


NUMBER = {"value": 2.0, "confidence": 1.0, "verdict": "holds", "right_side": "below"}
UNTESTED = {"verdict": NOT_TESTED["verdict"], "why": "None."}


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ({}, ["undecided", "nothing [unbounded, unbounded]", "> 0.5"]),
        (NUMBER, ["holds", "2", "< 0.5"]),
        (UNTESTED, ["not tested at this scale"]),
    ],
)
def test_a_claim_is_printed_with_what_is_known_of_it(tmp_path, fields, known):
    lines = printed(tmp_path, {**UNDECIDED, **fields}).splitlines()
    verdict, *number = known
    expected = ["figure1a smoke", verdict, "Heads form [early].", *number]
    assert re.split("  +", lines[1].strip()) == expected


def test_another_verdict_by_the_measure_first_declared_stands_beside_it(tmp_path):
    text = printed(
        tmp_path,
        {**UNDECIDED, "first": {**UNDECIDED, "verdict": "fails"}},
        {**UNDECIDED, "first": UNDECIDED},
    )
    assert text.count("undecided (as declared: fails)") == text.count("(as declared") == 1
    assert "Claims, the paper's + our own: ? undecided 2." in text
    table = verdict_table(Folder(tmp_path / "figure1a", "smoke"))
    assert "undecided (as declared: fails)" in table.to_html()


DATA = pd.DataFrame({"x": [0.9, 1.1, 1.3, 0.1 + 0.2]})


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "made", "smoke")


def test_publishing_stores_the_table_the_adjusted_claims_the_summary_and_one_picture(folder):
    folder.publish(Made(0.5, 9.0), DATA, {"scale": "smoke"})
    assert {path.name for path in folder.path.iterdir()} == {
        "data.csv",
        "claims.json",
        "summary.md",
        "manifest.json",
        "made.svg",
    }
    assert folder.data().equals(DATA)
    assert folder.summary() == "It was measured."
    near, far = folder.claims()
    assert [claim["verdict"] for claim in (near, far)] == ["undecided", "fails"]
    assert far["p_holm"] == pytest.approx(2 * far["p"], rel=0.01)
    assert near["p_holm"] == near["p"]
    assert [claim["id"] for claim in (near, far)] == ["above_1", "above_2"]


def test_a_summary_may_be_a_table(folder):
    table = pd.DataFrame(
        {"model": ["a|b", "c"], "steps, of 600": [1 / 3, float("nan")], "seeds": [8, 12]}
    )
    folder.publish(Made(summary=table), DATA)
    assert folder.summary().splitlines() == [
        "| model | steps, of 600 | seeds |",
        "| --- | --- | --- |",
        r"| a\|b | 0.333 | 8 |",
        "| c |  | 12 |",
    ]


def test_a_notebook_shows_the_picture_and_the_summary(folder):
    folder.publish(Made(summary="| a |\n| --- |\n| 1 |"), DATA)
    page = folder._repr_mimebundle_()["text/markdown"]
    assert page.startswith('<img style="max-width: 100%" src="data:image/svg+xml;base64,PD94b')
    assert page.endswith('">\n\n| a |\n| --- |\n| 1 |')


def test_a_table_that_is_not_there_names_the_command_that_makes_it(folder):
    with pytest.raises(ConfigError, match="'ihlab reproduce made --scale smoke' makes it"):
        folder.data()


@pytest.mark.parametrize("content", [b"x\n0.8\n1.1\n1.3\n0.30000000000000004\n", b"\x00\xff"])
def test_a_table_that_was_edited_is_not_the_one_of_the_claims_until_its_manifest_is_deleted(
    folder, content
):
    folder.publish(Made(0.5), DATA, {"scale": "smoke"})
    (folder.path / "data.csv").write_bytes(content)
    with pytest.raises(
        ConfigError,
        match=r"data\.csv \(\d+ lines, .*\) is not the table .* \(5 lines, .*or delete .*json",
    ):
        folder.data()
    (folder.path / "manifest.json").unlink()
    with suppress(ConfigError):
        assert not folder.data().equals(DATA)


def test_a_table_with_other_line_ends_or_published_again_from_itself_is_the_same(folder):
    folder.publish(Made(0.5), DATA, {"scale": "smoke", "table": "older"})
    path = folder.path / "data.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    folder.publish(Made(0.5), folder.data())
    assert folder.data().equals(DATA)
    assert folder._described("data.csv")["lines"] == 5


@pytest.mark.parametrize("content", ['[{"id": "cut', "", '[{"id": "learns"}]'])
def test_claims_that_were_cut_are_named_and_made_again(tmp_path, content):
    folder = Folder(tmp_path / "made")
    folder.publish(Made(0.5), DATA, {})
    (folder.path / "claims.json").write_text(content)
    with pytest.raises(
        ConfigError, match=r"claims\.json (is empty|is not JSON|does not hold claims)"
    ):
        folder.claims()
    with pytest.warns(UserWarning, match="The history does not get the replaced claims"):
        folder.publish(Made(0.5), folder.data())
    assert [claim["id"] for claim in folder.claims()] == ["above_1"]
