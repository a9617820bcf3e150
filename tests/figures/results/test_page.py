"""The pages of results: what a code host shows of them, and the committed pages against the
committed folders.
"""

import html
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from figures.results.headlines import HEADLINES, Asked, answer
from figures.results.measured import measured_page
from figures.results.page import (
    THEMES,
    corrected,
    result_folders,
    results_page,
    with_verdicts,
    write_results_pages,
)
from ihlab.study import page as figure_page
from ihlab.study.find import declared, stored
from ihlab.study.ledger import Folder
from ihlab.study.markdown import Unit, escaped
from ihlab.study.page import link_text, stored_heading
from tasks import ConfigError
from tests.published import NOT_TESTED, claim, store

ROOT = Path(__file__).parents[3]
FIGURES = ROOT / "figures"
PAGE = FIGURES / "README.md"


def shown(markdown: str) -> str:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)


def words(markup: str) -> str:
    return (
        html.unescape(re.sub(r"<[^>]+>", "", markup.replace("<br>", "\n")))
        .replace("\xa0", " ")
        .replace("\u2011", "-")
    )


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table, as a reader sees them."""
    found = re.findall(r"<tr>(.*?)</tr>", shown(page), flags=re.DOTALL)
    return [
        [words(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, flags=re.DOTALL)]
        for row in found
    ]


def page_of(root: Path, name: str) -> str:
    return figure_page.page(stored(root)[name])


def claim_rows(page: str) -> list[list[str]]:
    """The rows of tables of claims, and of headlines."""
    return [row for row in rows(page) if len(row) in (3, 4)]


def published(root: Path, *claims: dict[str, object], **more: str) -> Path:
    """Store claims of a figure at laptop scale."""
    store(root, "figure1a", "laptop", *claims, **more)
    return root


def cells(root: Path, name: str = "figure1a") -> list[str]:
    """The cells of the last claim on a figure's page."""
    return claim_rows(page_of(root, name))[-1]


@pytest.fixture
def made_up(tmp_path):
    published(tmp_path, claim(), claim(verdict="undecided"), summary="One layer learns it.\n")
    others = (claim(verdict="fails"), claim(of_paper=False), NOT_TESTED)
    store(tmp_path, "basin_map", "laptop", *others)
    store(tmp_path, "figure1a", "smoke", claim(verdict="fails"))
    return tmp_path


def test_a_figures_page_has_picture_sentence_and_the_papers_claims_before_ours(made_up):
    write_results_pages(made_up)
    page = page_of(made_up, "basin_map")
    assert re.findall(r"^#+ .*", page, flags=re.M) == [
        "# Basin map",
        "## At laptop scale",
        "### The paper's claims",
        "### Our own questions",
    ]
    section = page.partition("## At laptop scale")[2].split("\n\n")
    assert section[1] == "![Basin map (laptop scale)](basin_map.svg)"
    assert words(section[2]).endswith(
        "Claims, the paper's + our own: ✔ holds 0+1, ✘ fails 1, – not tested 1."
    )
    assert section[3] == "It does."
    assert [row[3] for row in claim_rows(page)] == ["✘ fails 1, – not tested 1", "✔ holds"]
    assert_links_lead_somewhere(page, made_up / "basin_map")


def test_the_claims_of_one_statement_are_one_row_with_the_least_favourable_number(tmp_path):
    claims = []
    for heads, value in (("1 head", 0.99), ("2 heads", 0.95), ("4 heads", 0.97)):
        setting = {"heads": heads, "task": "recall"}
        sentence = f"It ({heads}) does: recall."
        claims.append(claim(id=f"a.{heads}", setting=setting, sentence=sentence, value=value))
    claims[2]["verdict"] = "undecided"
    published(tmp_path, *claims, claim(id="b", sentence="It ends at (0, 1)."))
    first, second = claim_rows(page_of(tmp_path, "figure1a"))
    assert first[0] == "It does.\nsection 3.2"
    assert first[1] == "2 heads; recall\nfinal accuracy\n0.95 [0.912, 1], 5 seeds"
    assert first[3] == "✔ holds 2, ? undecided 1"
    assert second[0] == "It ends at (0, 1).\nsection 3.2"


def test_a_statement_whose_sentences_differ_shows_the_least_favourable_of_them(tmp_path):
    other = claim(id="a.2", sentence="Two do.", value=0.1, verdict="fails")
    sentence, number, _, verdict = cells(published(tmp_path, claim(id="a.1"), other))
    assert sentence == "Two do.\nsection 3.2; least favourable of 2 tests"
    assert number.startswith("final accuracy\n0.1 ")
    assert verdict == "✔ holds 1, ✘ fails 1"


def test_a_measure_that_was_changed_after_the_runs_shows_the_first_verdict_beside_it(tmp_path):
    first = claim(value=0.5, interval=[0.4, 0.6], verdict="fails")
    published(tmp_path, claim(verdict="undecided", first=first, changed="2026-11-23: step 9"))
    assert cells(tmp_path)[3] == "? undecided\nas first declared: ✘ fails"
    counted = "Claims, the paper's + our own: ? undecided 1. As first declared: ✘ fails 1.\n"
    assert counted in words(shown(results_page(tmp_path)))
    page = measured_page(result_folders(tmp_path), tmp_path)
    assert rows(page.partition("## Measures that")[2])[1][2:] == [
        "2026-11-23: step 9",
        "0.988 [0.912, 1], 5 seeds ? undecided",
        "0.5 [0.4, 0.6], 5 seeds ✘ fails",
    ]


def test_a_replaced_claim_stands_on_the_page_on_how_claims_are_measured(tmp_path):
    when = {"scale": "laptop", "replaced": "2026-01-03", "commit": ""}
    gone = claim(sentence="It did.", verdict="fails", value=0.5) | when
    history = published(tmp_path, claim()) / "figure1a" / "history.json"
    history.write_text(json.dumps([gone]), encoding="utf-8")
    page = measured_page(result_folders(tmp_path), tmp_path)
    assert rows(page.partition("## Replaced claims")[2])[1] == [
        "It did.",
        "> 0.9",
        "2026-01-03: 0.5 [0.912, 1], 5 seeds ✘ fails",
    ]


def test_a_long_table_is_a_link(tmp_path):
    published(tmp_path, claim(), summary="| a | b |\n| --- | --- |\n" + "| 1 | 2 |\n" * 300)
    assert "[The table of this figure](summary.md)" in page_of(tmp_path, "figure1a")


def test_scales_stand_apart_and_smoke_is_left_out_unless_there_is_nothing_else(made_up, tmp_path):
    assert [folder.experiment for folder in result_folders(made_up)] == ["figure1a", "basin_map"]
    store(made_up, "figure1a", "gpu", claim())
    scales = [("figure1a", "laptop"), ("basin_map", "laptop"), ("figure1a", "gpu")]
    assert [(folder.experiment, folder.scale) for folder in result_folders(made_up)] == scales
    page = results_page(made_up)
    assert "All figures at gpu scale" in page
    assert "smoke" not in page
    assert "[Figure1a (gpu scale)](figure1a/README.md)" in page
    store(tmp_path / "alone", "figure1a", "smoke", claim())
    assert "[Figure1a (smoke scale)](figure1a/README.md)" in results_page(tmp_path / "alone")


def test_the_first_page_counts_verdicts_and_links_to_pages(made_up):
    write_results_pages(made_up)
    page = results_page(made_up)
    first = "**The paper's figures and tables**<br>\n[Figure1a](figure1a/README.md)\n\n"
    then = "**What makes induction fast**<br>\n[Basin map](basin_map/README.md)\n\n"
    assert f"(2)</summary>\n\n{first}{then}" in page
    assert "our own: ✔ holds 1+1, ✘ fails 1, ? undecided 1, – not tested 1." in words(page)
    assert_links_lead_somewhere(page, made_up)
    assert "![Figure1a](figure1a/figure1a.svg)" in page


def assert_links_lead_somewhere(page: str, folder: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page) if not link.startswith("https://")]
    assert links
    for link in links:
        assert (folder / link.partition("#")[0]).is_file(), link


def test_how_many_verdicts_survive_a_correction_over_the_whole_page(tmp_path):
    """By Holm .01 x 4 alone; by Benjamini and Hochberg .04 x 4 / 4: all."""
    store(tmp_path, "table5", "laptop", *(claim(p=p) for p in (0.01, 0.02, 0.03)))
    store(tmp_path, "table15", "laptop", claim(p=0.04), claim(p=None))
    said = corrected(result_folders(tmp_path), tmp_path)
    assert said.startswith("4 of 5 tests have a p-value")
    by_method = "1 stay at most 0.05 by Holm's method, 4 by Benjamini and Hochberg's. 1 have none"
    assert by_method in said
    assert said.endswith("(1 in [Table15](table15/README.md)).")
    assert corrected([], tmp_path) == ""


# The headlines


def answered(*claims: dict[str, object], number: str = "accuracy {}", unit: Unit = ""):
    found = answer((Asked("figure1a", "learns", number, unit),), lambda experiment: claims)
    return None if found is None else (words(found[0]), words(found[1]))


def of(n: int, verdict: str, **setting: str) -> dict[str, object]:
    return claim(id=f"learns.{n}", setting=setting, value=n / 10, verdict=verdict)


HEADS = [
    of(2, "holds", heads="2 heads", task="recall"),
    of(1, "undecided", heads="1 head", task="recall"),
]
SIZES = [
    of(3, "fails", size="1K", task="a"),
    of(4, "fails", size="1K", task="b"),
    of(5, "holds", size="1M", task="a"),
]
BELOW = {"right_side": "below", "threshold": 0.5}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (
            [claim(), claim(id="learns_fast", verdict="fails")],
            ("✔ Yes", "accuracy 0.988; needed: > 0.9"),
        ),
        (HEADS, ("✔ Yes (1 of 2 undecided)", "accuracy 0.1 [0.912, 1] (1 head); needed: > 0.9")),
        (
            [*HEADS, of(4, "fails", heads="4 heads")],
            (
                "It depends: 1 yes, 1 undecided, 1 no (4 heads)",
                "accuracy 0.1 [0.912, 1] (1 head, recall); needed: > 0.9",
            ),
        ),
        (
            SIZES,
            (
                "It depends: 1 yes, 2 no (1K parameters)",
                "accuracy 0.3 (1K parameters, a); needed: > 0.9",
            ),
        ),
        (
            [claim(value=0.3, **BELOW), claim(value=0.4, **BELOW)],
            ("✔ Yes", "accuracy 0.4; needed: < 0.5"),
        ),
        ([{**NOT_TESTED, "first": claim()}], ("– Not tested", "")),
        ([claim(id="late")], None),
    ],
    ids=["one", "undecided", "depends", "one condition", "nearest", "not tested", "none"],
)
def test_a_headline_has_the_verdicts_and_numbers_of_its_claims(claims, expected):
    assert answered(*claims) == expected


def test_a_headline_may_be_in_percent():
    assert answered(claim(), number="{} of all", unit="%")[1] == "98.8% of all; needed: > 90%"


def test_every_headline_finds_its_claims_in_the_committed_figures():
    homes = stored(FIGURES)
    assert len(HEADLINES) <= 12
    for sentence, asked in HEADLINES.items():
        for part in asked:
            assert part.of(lambda name: Folder(homes[name]).claims()), (sentence, part)


def test_a_headline_reads_every_figure_that_asks_its_question():
    """A figure asks the same if its question has the same name and answers the same statement of
    the paper.
    """
    every = {name: Folder(home).claims() for name, home in stored(FIGURES).items()}

    def questions(claims):
        return {
            (claim["id"].split(".")[0], claim["statement"])
            for claim in claims
            if "statement" in claim
        }

    for sentence, asked in HEADLINES.items():
        read = {name for part in asked for name in (part.experiment, part.also)}
        mine = questions(claim for part in asked for claim in part.of(every.__getitem__))
        left_out = [
            name for name, claims in every.items() if name not in read and mine & questions(claims)
        ]
        assert not left_out, f"{sentence} leaves out {left_out}"


# A claim on its figure's page


@pytest.mark.parametrize(
    ("fields", "number", "needs"),
    [
        ({}, "0.988 [0.912, 1], 5 seeds", "> 0.9"),
        (BELOW, "0.988 [0.912, 1], 5 seeds", "< 0.5"),
        (
            {"interval": [None, 1.0], "confidence": 0.9375, "threshold": -1250.4},
            "0.988 [unbounded, 1] at 94%, 5 seeds",
            "> -1250",
        ),
        (
            {"interval": [-0.00012345, None], "seeds": 1, "bound": "at least"},
            "at least 0.988 [-0.000123, unbounded], 1 seed",
            "> 0.9",
        ),
        ({"value": -0.0, "confidence": 1.0, "seeds": 0}, "0, counted", "> 0.9"),
    ],
)
def test_a_claim_is_shown_with_what_is_known_of_it(tmp_path, fields, number, needs):
    said, measured, needed, verdict = cells(published(tmp_path, claim(**fields)))
    assert said == "It learns.\nsection 3.2"
    assert measured == f"final accuracy\n{number}"
    assert (needed, verdict) == (needs, "✔ holds")


def test_a_claim_that_is_not_tested_says_why(tmp_path):
    assert cells(published(tmp_path, NOT_TESTED))[1:] == [
        "It needs 10B tokens.",
        "",
        "– not tested",
    ]


NASTY = (
    "|alpha_2| > |alpha_1| & *beta* at $5 and $6",
    "a <b>tag</b>, <!-- a comment -->, &lt; and a `code|span`",
    r"back\slash, \| and \\",
    "[^1], [link](x), ![picture](y), ~one~ and ~~two~~",
    "$`x`$ and $$y$$, __init__ and **bold**",
)


@pytest.mark.parametrize("text", NASTY)
def test_characters_of_markdown_are_shown_as_they_are(tmp_path, text):
    everywhere = claim(sentence=text, source=text, measure=text)
    sentence, measured, *_ = cells(published(tmp_path, everywhere, summary=f"{text}\n"))
    assert sentence == f"{text}\n{text}"
    assert measured.startswith(f"{text}\n0.988")
    assert words(shown(escaped(text))) == f"{text}\n"
    assert f"{text}\n" in words(shown(page_of(tmp_path, "figure1a")))
    assert cells(published(tmp_path, NOT_TESTED | {"why": text}))[1] == text


def test_every_figure_has_a_question_as_its_heading_a_link_of_its_own_and_a_theme(tmp_path):
    homes = stored(FIGURES)
    assert stored_heading(homes["mqar"]) == "MQAR: does the shift help?"
    assert link_text(homes["mqar"]) == "MQAR"
    assert stored_heading(tmp_path / "a_study") == link_text(tmp_path / "a_study") == "A study"
    assert len({link_text(home) for home in homes.values()}) == len(homes)
    assert all(stored_heading(home).endswith("?") for home in homes.values())
    assert sorted(name for names in THEMES.values() for name in names) == sorted(homes)


@pytest.mark.parametrize("between", ["", "\nholds 0 · fails 9\n"])
def test_verdicts_stand_between_the_markers(made_up, between):
    store(made_up, "robustness", "laptop", claim(id="faster"))
    new = with_verdicts(f"Before\n<!-- verdicts -->{between}<!-- /verdicts -->\nafter", made_up)
    assert new.startswith(
        "Before\n<!-- verdicts -->\n\n- One layer with KV shifting learns induction in less than half"
    )
    link = f"[0.988]({made_up.name}/robustness/README.md)"
    answer = f"two vanilla layers. **✔&nbsp;Yes**: {link} times the steps at each model's "
    assert answer in new
    assert "learning rate; needed: &gt;&nbsp;0.9.\n\nOf 48 statements of the" in new
    assert with_verdicts(new, made_up) == new
    assert with_verdicts("holds 0", made_up) == "holds 0"


@pytest.mark.parametrize("where", [".", "basin_map"])
def test_the_pages_do_not_replace_somebody_elses(made_up, where):
    path = made_up / where / "README.md"
    path.write_text("# My project\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"README\.md was not written by 'ihlab reproduce' and is kept"
    ):
        write_results_pages(made_up)
    assert [each.read_text(encoding="utf-8") for each in made_up.rglob("README.md")] == [
        "# My project\n"
    ]


def test_the_committed_pages_are_current():
    overview = PAGE.read_text(encoding="utf-8")
    again = "`python -m figures.results` writes the pages again"
    assert overview == results_page(FIGURES), again
    assert_links_lead_somewhere(overview, FIGURES)
    for name, home in stored(FIGURES).items():
        text = (home / "README.md").read_text(encoding="utf-8")
        assert text == page_of(FIGURES, name), again
        assert_links_lead_somewhere(text, home)


def test_a_frozen_page_says_how_to_run_its_study_and_a_live_one_does_not():
    frozen = [
        name
        for name, home in stored(FIGURES).items()
        if "This figure is frozen" in page_of(FIGURES, name)
    ]
    assert sorted(frozen) == sorted(stored(FIGURES).keys() - declared(FIGURES).keys())
    start = page_of(FIGURES, "shifts").partition("## At")[0]
    assert "ihlab 0.4.0 made it, at commit `3b9f945e`" in start
    assert (
        "git worktree add ../ihlab-shifts 3b9f945e\nmake -C ../ihlab-shifts reproduce FIGURES=shifts\n"
        in start
    )


def test_the_first_page_is_short_and_the_verdicts_in_the_readme_are_current():
    words = re.findall(r"\S*\w\S*", PAGE.read_text(encoding="utf-8"))
    assert len(words) < 900
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_verdicts(readme, FIGURES) == readme
