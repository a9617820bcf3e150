"""The pages of results: what a code host shows of them, and the committed pages against the
committed folders.
"""

import html
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
from ihlab.study.markdown import escaped
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


def test_scales_stand_apart_and_smoke_is_left_out_unless_there_is_nothing_else(made_up, tmp_path):
    assert [folder.experiment for folder in result_folders(made_up)] == ["figure1a", "basin_map"]
    store(made_up, "figure1a", "gpu", claim())
    scales = [("figure1a", "laptop"), ("basin_map", "laptop"), ("figure1a", "gpu")]
    assert [(folder.experiment, folder.scale) for folder in result_folders(made_up)] == scales
    store(tmp_path / "alone", "figure1a", "smoke", claim())
    assert "[Figure1a (smoke scale)](figure1a/README.md)" in results_page(tmp_path / "alone")


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


def answered(*claims: dict[str, object]):
    found = answer((Asked("figure1a", "learns", "accuracy {}"),), lambda experiment: claims)
    return found and tuple(map(words, found))


def of(n: int, verdict: str, **setting: str) -> dict[str, object]:
    return claim(id=f"learns.{n}", setting=setting, value=n / 10, verdict=verdict)


HEADS = [
    of(2, "holds", heads="2 heads", task="recall"),
    of(1, "undecided", heads="1 head", task="recall"),
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
            [claim(value=0.3, **BELOW), claim(value=0.4, **BELOW)],
            ("✔ Yes", "accuracy 0.4; needed: < 0.5"),
        ),
        ([{**NOT_TESTED, "first": claim()}], ("– Not tested", "")),
        ([claim(id="late")], None),
    ],
    ids=["one", "undecided", "depends", "nearest", "not tested", "none"],
)
def test_a_headline_has_the_verdicts_and_numbers_of_its_claims(claims, expected):
    assert answered(*claims) == expected


def test_a_headline_finds_its_claims_and_reads_every_figure_that_asks_its_question():
    """A figure asks the same if its question has the same name and answers the same statement of
    the paper.
    """
    every = {name: Folder(home).claims() for name, home in stored(FIGURES).items()}
    assert len(HEADLINES) <= 12

    def questions(claims):
        return {
            (claim["id"].split(".")[0], claim.get("statement", claim["id"])) for claim in claims
        }

    for sentence, asked in HEADLINES.items():
        read, mine = set(), set()
        for part in asked:
            read |= {part.experiment, part.also}
            found = part.of(every.__getitem__)
            assert found, (sentence, part)
            mine |= questions(found)
        for name in every.keys() - read:
            assert not mine & questions(every[name]), f"{sentence} leaves out {name}"


# A claim on its figure's page


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
    assert stored_heading(tmp_path / "a_study") == link_text(tmp_path / "a_study") == "A study"
    assert len({link_text(home) for home in homes.values()}) == len(homes)
    assert all(stored_heading(home).endswith("?") for home in homes.values())
    assert sorted(name for names in THEMES.values() for name in names) == sorted(homes)


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
    measured = (FIGURES / "measured.md").read_text(encoding="utf-8")
    assert measured == measured_page(result_folders(FIGURES), FIGURES), again
    assert_links_lead_somewhere(overview, FIGURES)
    for name, home in stored(FIGURES).items():
        text = (home / "README.md").read_text(encoding="utf-8")
        assert text == page_of(FIGURES, name), again
        assert_links_lead_somewhere(text, home)


def test_a_frozen_page_says_how_to_run_its_study_and_a_live_one_does_not():
    pages = {name: page_of(FIGURES, name) for name in stored(FIGURES)}
    frozen = {name for name, page in pages.items() if "\ngit worktree add ../ihlab-" in page}
    assert frozen == pages.keys() - declared(FIGURES).keys()


def test_the_first_page_is_short_and_the_verdicts_in_the_readme_are_current():
    words = re.findall(r"\S*\w\S*", PAGE.read_text(encoding="utf-8"))
    assert len(words) < 900
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_verdicts(readme, FIGURES) == readme
    assert with_verdicts("holds 0", FIGURES) == "holds 0"
