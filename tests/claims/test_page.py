"""The page of results: what a code host shows of it, and the committed page against the committed folders."""

import html
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ihlab.claims.page import (
    MARKS,
    counts,
    counts_table,
    escaped,
    result_folders,
    results_page,
    short_table,
    title,
    update_counts,
    write_results_page,
)
from ihlab.studies.registry import EXPERIMENTS
from tasks import ConfigError

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "figures"
PAGE = FIGURES / "README.md"


def claim(**fields: object) -> dict[str, object]:
    return {
        "source": "section 3.2",
        "sentence": "It learns.",
        "measure": "final accuracy",
        "value": 0.98765,
        "interval": [0.91234, 1.0],
        "confidence": 0.95,
        "p": 0.01234,
        "p_holm": 0.03702,
        "threshold": 0.9,
        "right_side": "above",
        "seeds": 5,
        "declared": "2026-01-02",
        "of_paper": True,
        "verdict": "holds",
        **fields,
    }


NOT_TESTED = claim(
    measure="", value=None, interval=[None, None], confidence=0.0, p=None, p_holm=None, threshold=None, seeds=0,
    verdict="not tested at this scale", why="It needs 10B tokens.",
)  # fmt: skip


def publish(root: Path, name: str, scale: str, *claims: dict[str, object], summary: str = "It does.\n") -> None:
    folder = root / name / scale
    folder.mkdir(parents=True)
    (folder / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    (folder / f"{name}-{scale}.png").touch()
    (folder / "summary.md").write_text(summary, encoding="utf-8")


def shown(markdown: str) -> str:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)


def words(markup: str) -> str:
    return (
        html.unescape(re.sub(r"<[^>]+>", "", markup.replace("<br>", "\n"))).replace("\xa0", " ").replace("\u2011", "-")
    )


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table, as a reader sees them."""
    found = re.findall(r"<tr>(.*?)</tr>", shown(page), flags=re.DOTALL)
    return [[words(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, flags=re.DOTALL)] for row in found]


def cells(root: Path) -> list[str]:
    """The cells of the last claim on the page."""
    return rows(results_page(root))[-1]


@pytest.fixture
def made_up(tmp_path):
    publish(tmp_path, "figure1a", "laptop", claim(), claim(verdict="undecided"), summary="One layer learns it.\n")
    publish(tmp_path, "basin_map", "laptop", claim(verdict="fails"), claim(of_paper=False), NOT_TESTED)
    publish(tmp_path, "figure1a", "smoke", claim(verdict="fails"))
    return tmp_path


def test_sections_come_in_order_with_picture_sentence_and_claims(made_up):
    page = results_page(made_up, ("figure8", "figure1a"))
    assert re.findall(r"^##+ .*", page, flags=re.M) == [
        "## Laptop scale (two CPU cores)",
        "### Figure 1a, laptop",
        "### Basin map, laptop",
    ]
    section = page.partition("### Figure 1a")[2].partition("###")[0].split("\n\n")
    assert section[1] == "![Figure 1a, laptop](figure1a/laptop/figure1a-laptop.png)"
    assert section[2] == "One layer learns it."
    assert section[3].count("\n") == 3
    assert page.endswith("|\n")


def test_a_measure_that_was_changed_after_the_runs_says_so_and_what_the_declared_one_gives(tmp_path):
    first = claim(measure="accuracy at step 100", value=0.5, interval=[0.4, 0.6], verdict="fails")
    publish(
        tmp_path, "figure1a", "laptop", claim(verdict="undecided", first=first, changed="2026-11-23: step 100 of 9")
    )
    _, measured, _, verdict = cells(tmp_path)
    assert "0.988 [0.912, 1]" in measured
    said = measured.split("\n")[-1]
    because = "Changed after the runs (2026-11-23: step 100 of 9). As declared: "
    assert said.startswith(f"{because}accuracy at step 100: 0.5 [0.4, 0.6]")
    assert said.endswith("✘ fails")
    assert verdict == "? undecided"
    assert counts(tmp_path)["laptop"]["fails"] == (0, 0)
    counted, declared = (row for row in rows(results_page(tmp_path)) if row and row[0].startswith("all"))
    assert counted == ["all, laptop", "0", "0", "1", "0"]
    assert declared == ["all, laptop, as first declared", "0", "1", "0", "0"]


def test_folders_that_no_order_names_come_alphabetically(made_up):
    assert [folder.experiment for folder in result_folders(made_up)] == ["basin_map", "figure1a"]


def test_scales_have_sections_of_their_own_and_smoke_is_left_out(made_up):
    publish(made_up, "figure1a", "paper", claim(verdict="fails"))
    publish(made_up, "figure1a", "gpu", claim())
    folders = result_folders(made_up, ("figure1a",))
    scales = [("figure1a", "laptop"), ("basin_map", "laptop"), ("figure1a", "gpu"), ("figure1a", "paper")]
    assert [(folder.experiment, folder.scale) for folder in folders] == scales
    assert "### Figure 1a, paper" in results_page(made_up)


def test_smoke_is_shown_if_there_is_nothing_else(tmp_path):
    publish(tmp_path, "figure1a", "smoke", claim())
    assert "### Figure 1a, smoke" in results_page(tmp_path)


def test_the_first_table_counts_verdicts_and_links_to_sections(made_up):
    page = results_page(made_up, ("figure1a",))
    assert rows(page)[1:4] == [
        ["Figure 1a, laptop", "1", "0", "1", "0"],
        ["Basin map, laptop", "0 + 1", "1", "0", "1"],
        ["all, laptop", "1 + 1", "1", "1", "1"],
    ]
    assert counts(made_up) == {"laptop": dict(zip(MARKS, ((1, 1), (1, 0), (1, 0), (1, 0)), strict=True))}
    assert_links_lead_somewhere(page, made_up)
    assert "[Figure 1a, laptop](figures/README.md#figure-1a-laptop)" in counts_table(made_up, page="figures/README.md")


def assert_links_lead_somewhere(page: str, root: Path) -> None:
    slugs = [
        re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^##+ (.*)", page, re.M)
    ]
    assert len(set(slugs)) == len(slugs)
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links
    for link in links:
        assert link[1:] in slugs if link.startswith("#") else (root / link).is_file(), link


def test_a_claim_is_shown_with_source_interval_seeds_and_p_values(made_up):
    publish(made_up, "table5", "laptop", claim(p=0.0000123, right_side="below", threshold=-1250.4))
    assert cells(made_up) == [
        "It learns.\nsection 3.2",
        "final accuracy:\n0.988 [0.912, 1], 5 seeds, p < 0.001 (Holm 0.037)",
        "< -1250\n2026-01-02",
        "✔ holds",
    ]


def test_a_question_of_our_own_says_so(tmp_path):
    publish(tmp_path, "table5", "laptop", claim(of_paper=False))
    assert cells(tmp_path)[0] == "It learns.\nour own question: section 3.2"


@pytest.mark.parametrize(
    ("fields", "measured"),
    [
        ({"interval": [None, 1.0], "confidence": 0.9375}, "0.988 [unbounded, 1] at 94%, 5 seeds"),
        ({"interval": [-0.00012345, None], "seeds": 1}, "0.988 [-0.000123, unbounded], 1 seed"),
        ({"p": 0.0201, "p_holm": 0.0402}, "0.988 [0.912, 1], 5 seeds, p = 0.0201 (Holm 0.0402)"),
        ({"p": 0.5}, "0.988 [0.912, 1], 5 seeds, p = 0.5"),
        ({"value": None, "interval": [None, None]}, "nothing [unbounded, unbounded], 5 seeds"),
        ({"value": -0.0, "interval": [0.0, 0.0], "confidence": 1.0, "seeds": 0}, "0, counted"),
    ],
)
def test_a_number_is_shown_with_what_is_known_of_it(tmp_path, fields, measured):
    publish(tmp_path, "figure1a", "laptop", claim(**{"p": None, "p_holm": None, **fields}))
    assert cells(tmp_path)[1] == f"final accuracy:\n{measured}"


def test_what_is_not_tested_says_why(tmp_path):
    publish(tmp_path, "figure1a", "laptop", NOT_TESTED)
    assert cells(tmp_path) == ["It learns.\nsection 3.2", "It needs 10B tokens.", "", "– not tested at this scale"]


NASTY = (
    "|alpha_2| > |alpha_1| & *beta* at $5 and $6",
    "a <b>tag</b>, <!-- a comment -->, &lt; and a `code|span`",
    r"back\slash, \| and \\",
    "[^1], [link](x), ![picture](y), ~one~ and ~~two~~",
    "$`x`$ and $$y$$, __init__ and **bold**",
)


@pytest.mark.parametrize("text", NASTY)
def test_characters_of_markdown_are_shown_as_they_are(tmp_path, text):
    publish(tmp_path, "figure1a", "laptop", claim(sentence=text, source=text, measure=text), summary=f"{text}\n")
    sentence, measured, *rest = cells(tmp_path)
    assert sentence == f"{text}\n{text}"
    assert measured.startswith(f"{text}:\n0.988")
    assert len(rest) == 2
    assert words(shown(escaped(text))) == f"{text}\n"
    assert f"{text}\n" in words(shown(results_page(tmp_path)))


def test_newlines_do_not_break_a_table():
    assert escaped("first\nsecond\r\n  third\n") == "first second third"


def test_dollars_are_never_next_to_what_would_make_them_mathematics(tmp_path):
    assert "$" not in escaped("$x$, $$ and $`y`$").replace("<span>$</span>", "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("figure1a", "Figure 1a"),
        ("table5", "Table 5"),
        ("figure12", "Figure 12"),
        ("basin_map", "Basin map"),
        ("mqar", "MQAR"),
    ],
)
def test_titles(name, expected):
    assert title(name) == expected


def test_titles_of_experiments_are_unlike():
    assert len({title(name) for name in EXPERIMENTS}) == len(EXPERIMENTS)


TABLE = """\
| scale | ✔ holds | ✘ fails | ? undecided | – not tested |
| --- | ---: | ---: | ---: | ---: |
| laptop | 1 | 1 | 1 | 1 |"""


@pytest.mark.parametrize("between", ["", "\n", "\nholds 0 · fails 9\n", "\n\n"])
def test_counts_stand_between_the_markers(made_up, between):
    old = f"Before\n<!-- verdicts -->{between}<!-- /verdicts -->\nafter"
    new = f"Before\n<!-- verdicts -->\n\n{TABLE}\n\n<!-- /verdicts -->\nafter"
    assert update_counts(old, made_up) == new
    assert update_counts(new, made_up) == new


def test_scales_are_counted_apart(made_up):
    publish(made_up, "figure1a", "gpu", claim())
    assert short_table(made_up) == f"{TABLE}\n| gpu | 1 | 0 | 0 | 0 |"
    assert [row[:2] for row in rows(counts_table(made_up))[4:]] == [["Figure 1a, gpu", "1"], ["all, gpu", "1"]]


def test_a_text_without_markers_stays_as_it_is(made_up):
    assert update_counts("holds 0", made_up) == "holds 0"


def test_the_page_is_written_beside_the_figures_and_written_again(made_up):
    path = write_results_page(made_up, ("figure1a",))
    assert path == made_up / "README.md"
    publish(made_up, "figure9", "laptop", claim())
    assert write_results_page(made_up, ("figure1a",)).read_text(encoding="utf-8") == results_page(
        made_up, ("figure1a",)
    )
    assert "Figure 9" in path.read_text(encoding="utf-8")


def test_the_page_does_not_replace_somebody_elses(made_up):
    (made_up / "README.md").write_text("# My project\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"README\.md was not written by 'ihlab reproduce' and is kept"):
        write_results_page(made_up)
    assert (made_up / "README.md").read_text(encoding="utf-8") == "# My project\n"


def test_a_root_without_figures_has_a_page_too(tmp_path):
    assert results_page(tmp_path).endswith("\n\nThere are no figures yet.\n")
    assert short_table(tmp_path) == ""


@pytest.mark.skipif(not PAGE.exists(), reason="figures/README.md has not been written yet")
def test_the_committed_page_is_current():
    page = PAGE.read_text(encoding="utf-8")
    assert page == results_page(FIGURES, tuple(EXPERIMENTS)), (
        "ihlab reproduce --from-data writes figures/README.md again"
    )
    assert_links_lead_somewhere(page, FIGURES)


def test_the_counts_in_the_readme_are_current():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert update_counts(readme, FIGURES) == readme
