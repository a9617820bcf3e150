"""The page of the paper's statements: every one is answered by a stored claim or says why not."""

import re
from pathlib import Path

from figures.results.coverage import FIGURE, KINDS, STATEMENTS, coverage_page, verdicts

ROWS = list(STATEMENTS.itertuples())
ROOT = Path(__file__).parents[3]
FIGURES, PAGE = ROOT / "figures", ROOT / "docs" / "coverage.md"


def test_the_paper_has_48_statements_and_each_is_answered_or_says_why_not():
    assert len(ROWS) == 48
    assert len({statement.sentence for statement in ROWS}) == 48
    for statement in ROWS:
        assert statement.kind in KINDS
        assert statement.kind == FIGURE or statement.remark, statement.sentence
        assert 0 < len(statement.quote.split()) <= 21, statement.sentence
    assert [statement.number for statement in ROWS] == [
        str(n) for n in (*range(1, 20), 48, *range(20, 48))
    ]


def test_statements_with_a_figure_are_those_that_stored_claims_answer():
    assert verdicts(FIGURES).keys() == {
        statement.number for statement in ROWS if statement.kind == FIGURE
    }


def test_tests_and_modules_that_are_named_exist():
    for statement in ROWS:
        for name in re.findall(r"`([\w./]+)`", statement.remark):
            path = name if "/" in name else name.replace(".", "/") + ".py"
            assert (ROOT / path).exists(), name


def test_the_page_is_this_table():
    assert PAGE.read_text(encoding="utf-8") == coverage_page(FIGURES), (
        "`python -m figures.results` writes it"
    )
