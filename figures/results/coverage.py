"""Make the page of the paper's statements: for each, the figures that test it and their verdicts,
or why none does.

`statements.csv` lists the statements. A stored claim names the number of the statement that it
tests. The page is made from the claims of the figures and of the notebook about the paper's printed
tables, so it cannot disagree with them.
"""

from collections import Counter
from itertools import starmap
from pathlib import Path
from typing import Any

import pandas as pd

from ihlab.study.claim import as_stated
from ihlab.study.find import stored
from ihlab.study.history import read_claims
from ihlab.study.markdown import MARKS, escaped, lines, table
from ihlab.study.page import link_text

FIGURE, EXACT, OPEN, OUT = "figure", "exact", "not answered yet", "out of reach"
KINDS = (FIGURE, EXACT, OPEN, OUT)
"""How a statement is answered."""


STATEMENTS = pd.read_csv(
    Path(__file__).with_name("statements.csv"), dtype=str, keep_default_na=False
)
"""The paper's statements. Columns: `number`; `sentence`; `quote`, the paper's words, abridged;
`where` they stand; `kind`, one of `KINDS`; `remark`, which parts are tested or, without a figure,
the answer or why there is none."""

PRINTED, PRINTED_CLAIMS = (
    "notebooks/15_printed_tables.ipynb",
    "notebooks/data/printed_tables_claims.json",
)
"""Paths of the notebook about the paper's printed tables and of its claims, in a clone of the
repository.
"""


def verdicts(figures: Path) -> dict[str, dict[str, Counter[str]]]:
    """Count the verdicts on each statement that has claims, keyed by its number and by a link to
    their page.

    A claim that holds and is `against` the statement counts as one that fails.
    """
    links = {}
    for _, home in sorted(stored(figures).items()):
        page = f"../figures/{home.relative_to(figures).as_posix()}/README.md"
        links[home / "claims.json"] = f"[{link_text(home)}]({page})"
    links[figures.absolute().parent / PRINTED_CLAIMS] = f"[printed tables](../{PRINTED})"
    counts: dict[str, dict[str, Counter[str]]] = {}
    for path, link in links.items():
        if not path.exists():
            continue
        for claim in read_claims(path):
            if "statement" in claim:
                by_link = counts.setdefault(str(claim["statement"]), {})
                by_link.setdefault(link, Counter())[as_stated(claim)["verdict"]] += 1
    return counts


def kinds(figures: Path) -> Counter[str]:
    """Count the statements by `kind`. A statement whose figure is not stored counts as not yet
    answered.
    """
    answered = verdicts(figures)
    kind = STATEMENTS["kind"]
    unanswered = (kind == FIGURE) & ~STATEMENTS["number"].isin(answered)
    return Counter(kind.mask(unanswered, OPEN))


def counted(figures: Path) -> str:
    """Return a sentence with the number of statements of each kind."""
    number = kinds(figures)
    return (
        f"Of {len(STATEMENTS)} statements of the paper, {number[FIGURE]} are tested in a figure, {number[EXACT]} "
        f"without training; {number[OUT]} are out of reach of small models, {number[OPEN]} open."
    )


def coverage_page(figures: Path) -> str:
    """Return the page of all statements as Markdown."""
    rows, answered = [], verdicts(figures)
    each: Any = STATEMENTS.itertuples()
    for statement in each:
        quote = f"<sub>“{escaped(statement.quote)}” ({statement.where})</sub>"
        sentence = lines([escaped(statement.sentence), quote])
        answers = lines(list(starmap(_answer, answered.get(statement.number, {}).items())))
        remark = statement.remark
        if statement.kind in (OPEN, OUT):
            remark = f"*{statement.kind}*. {remark}".rstrip()
        rows.append([statement.number, sentence, answers, remark])
    legend = ", ".join(f"{mark} {verdict}" for verdict, mark in MARKS.items())
    explanation = (
        f"Verdicts count claims: {legend}. A statement that was tested in several settings has several claims. A claim "
        "that says the contrary of the statement counts the other way round. The figure's page has the numbers. The "
        "verdicts are about small models that were trained here, or about the paper's printed tables if the remark "
        "says so."
    )
    answers = table(["", "statement", "verdicts", "remark"], rows)
    return f"# The paper's statements\n\n{counted(figures)}\n\n{explanation}\n\n{answers}\n"


def _answer(link: str, counts: Counter[str]) -> str:
    """Return a link with the verdicts of its claims."""
    marks = [f"{mark}&nbsp;{counts[verdict]}" for verdict, mark in MARKS.items() if counts[verdict]]
    return f"{link} {'&nbsp;'.join(marks)}"
