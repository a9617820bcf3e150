"""The printed ledger, and what publishing an experiment leaves in its folder."""

import io
import json

import pandas as pd
import pytest
from rich.console import Console

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.ledger import Folder, print_ledger, verdict_table
from ihlab.plots.style import new_figure
from tasks import ConfigError

MEASURED = {
    "sentence": "Heads form [early].",
    "source": "equation [5]",
    "measure": "steps [0, 10]",
    "value": None,
    "interval": [None, None],
    "confidence": 0.95,
    "p": 1.0,
    "p_holm": 1.0,
    "threshold": 0.5,
    "right_side": "above",
    "verdict": "undecided",
    "seeds": 2,
}


def printed(tmp_path, *claims: dict[str, object]) -> str:
    folder = Folder(tmp_path, "figure1a", "smoke")
    folder.path.mkdir(parents=True)
    (folder.path / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    console = Console(file=io.StringIO(), width=300)
    print_ledger(console, [folder])
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_an_unbounded_interval_is_printed_and_square_brackets_are_text(tmp_path):
    text = printed(tmp_path, MEASURED)
    measured = "steps [0, 10]: nothing [unbounded, unbounded] 95%, 2 seeds, p = 1"
    for part in ("Heads form [early].", "equation [5]", measured, "> 0.5", "undecided"):
        assert part in text


def test_a_counted_number_has_no_interval_and_no_p(tmp_path):
    counted = {"value": 2.0, "interval": [2.0, 2.0], "confidence": 1.0, "p": None, "p_holm": None, "seeds": 0}
    text = printed(tmp_path, {**MEASURED, **counted, "verdict": "holds", "right_side": "below", "threshold": 3.0})
    assert "steps [0, 10]: 2 counted" in text
    assert "p =" not in text
    assert "seeds" not in text
    assert "< 3" in text


def test_another_verdict_by_the_measure_first_declared_stands_beside_it(tmp_path):
    text = printed(tmp_path, {**MEASURED, "first": {**MEASURED, "verdict": "fails"}}, {**MEASURED, "first": MEASURED})
    assert text.count("undecided (as declared: fails)") == text.count("(as declared") == 1
    assert "2 claims: 2 undecided." in text
    table = verdict_table(Folder(tmp_path, "figure1a", "smoke"))
    assert "undecided (as declared: fails)" in table.to_html()


def test_what_is_not_tested_gives_its_reason_and_no_number(tmp_path):
    nothing = {"measure": "", "confidence": 0.0, "p": None, "p_holm": None, "threshold": None, "seeds": 0}
    why = {"verdict": "not tested at this scale", "why": "No model [here] is as large."}
    text = printed(tmp_path, {**MEASURED, **nothing, **why})
    for part in ("No model [here] is as large.", "not tested at this scale"):
        assert part in text
    for part in ("nothing", "unbounded", ">"):
        assert part not in text


def test_on_a_screen_a_claim_has_one_line_of_its_width(tmp_path):
    folder = Folder(tmp_path, "figure1a", "laptop")
    folder.path.mkdir(parents=True)
    long = {**MEASURED, "sentence": "Heads form early, and " * 9, "value": 0.25, "verdict": "fails"}
    nothing = {**MEASURED, "threshold": None, "verdict": "not tested at this scale", "why": "No model is as large."}
    (folder.path / "claims.json").write_text(json.dumps([long, nothing]), encoding="utf-8")
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    print_ledger(console, [folder])
    _, first, second, counts = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(first) <= 80
    assert first.startswith("figure1a  fails       Heads form early, and Heads")
    assert first.rstrip().endswith("…  0.25      > 0.5")
    assert second.split() == ["not", "tested", "Heads", "form", "[early]."]
    assert counts == "2 claims: 1 fail, 1 not tested at this scale."


class Made:
    """An experiment of three claims about a column of numbers."""

    name = "made"

    def runs(self, scale):
        return []

    def gather(self, trained, scale):
        raise NotImplementedError

    def claims(self, data, scale):
        mean = stats.mean(data["x"].tolist())
        fields = {"source": "here", "sentence": "It is above.", "measure": "x", "seeds": len(data), "declared": "2026"}
        return [
            Claim(**fields, estimate=mean, threshold=0.5),
            Claim(**fields, estimate=mean, threshold=9.0),
            Claim(**fields, estimate=stats.exact(float(data["x"].max())), threshold=0.0),
        ]

    def summary(self, data, scale):
        return f"x is {data['x'].mean():.1f} on average."

    def draw(self, data, scale):
        return new_figure(2.0, 2.0)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path, "made", "smoke")


def test_publishing_stores_the_table_the_adjusted_claims_the_sentence_and_the_picture(folder):
    data = pd.DataFrame({"x": [0.9, 1.1, 1.3, 0.1 + 0.2]})
    folder.publish(Made(), data, {"scale": "smoke"})
    assert {path.name for path in folder.path.iterdir()} == {
        "data.csv", "claims.json", "summary.md", "manifest.json", "made-smoke.svg", "made-smoke.png",
    }  # fmt: skip
    assert folder.data().equals(data)
    assert (folder.path / "summary.md").read_text() == "x is 0.9 on average.\n"
    near, far, counted = folder.claims()
    assert [claim["verdict"] for claim in (near, far, counted)] == ["undecided", "fails", "holds"]
    assert far["p_holm"] == pytest.approx(2 * far["p"], rel=0.01)
    assert near["p_holm"] == near["p"]
    assert counted["p_holm"] is None


def test_further_pictures_are_stored_beside_the_first(folder):
    class More(Made):
        def draw_more(self, data, scale):
            return {"errors": new_figure(2.0, 2.0)}

    folder.publish(More(), pd.DataFrame({"x": [0.9, 1.1]}))
    assert [path.name for path in folder.pictures] == ["made-smoke.png", "made-smoke-errors.png"]
    assert (folder.path / "made-smoke-errors.svg").exists()


def test_a_table_that_is_not_there_names_the_command_that_makes_it(folder):
    with pytest.raises(ConfigError, match="'ihlab reproduce made --scale smoke' makes it"):
        folder.data()
