"""The statements of the paper, one row each: which figure answers it with which verdicts, or why none does.

`statements.csv` has the statements, and stored claims have the number of the one that they answer. The page cannot
disagree with the figures.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ihlab.claims.ledger import Folder, link_text
from ihlab.claims.markdown import MARKS, escaped, table

FIGURE, EXACT, OPEN, OUT = "figure", "exact", "not answered yet", "out of reach"
KINDS = (FIGURE, EXACT, OPEN, OUT)
"""How a statement is answered."""


@dataclass(frozen=True)
class Statement:
    """A statement of the paper.

    - `where`: its place in the paper;
    - `kind`: one of `KINDS`;
    - `figure`: the figure whose claims answer it; "" for none;
    - `also`: the number of another statement whose claims answer this one, too; "" for none;
    - `remark`: for a statement without a figure, the answer or the reason.
    """

    number: str
    sentence: str
    where: str
    kind: str
    figure: str
    also: str
    remark: str


def _read() -> tuple[Statement, ...]:
    with (Path(__file__).parent / "statements.csv").open(encoding="utf-8", newline="") as file:
        return tuple(Statement(**row) for row in csv.DictReader(file))


STATEMENTS = _read()


def kinds(figures: Path, scale: str = "laptop") -> Counter[str]:
    """Count the statements by `kind`. One whose figure is not stored counts as not yet answered."""
    return Counter(OPEN if s.kind == FIGURE and not verdicts(s, figures, scale) else s.kind for s in STATEMENTS)


def verdicts(statement: Statement, figures: Path, scale: str = "laptop") -> Counter[str]:
    """Count the verdicts of the claims that answer a statement."""
    folder = Folder(figures, statement.figure, scale)  # type: ignore[arg-type]
    if not statement.figure or not (folder.path / "claims.json").exists():
        return Counter()
    numbers = {statement.number, statement.also}
    return Counter(claim["verdict"] for claim in folder.claims() if str(claim.get("statement")) in numbers)


def counted(figures: Path) -> str:
    """Return a sentence with the number of statements of each kind."""
    found = kinds(figures)
    return (
        f"Of the paper's {len(STATEMENTS)} statements, {found[FIGURE]} are answered by a figure, {found[EXACT]} are "
        f"checked without training, {found[OPEN]} are open, and {found[OUT]} are out of reach here."
    )


def coverage_page(figures: Path) -> str:
    """Return the page of all statements as Markdown."""
    rows = []
    for statement in STATEMENTS:
        found = verdicts(statement, figures)
        answer = " ".join(f"{mark} {found[verdict]}" for verdict, mark in MARKS.items() if found[verdict])
        link = f"[{link_text(statement.figure)}](../figures/{statement.figure}/README.md)" if found else ""
        kind = f"*{statement.kind}*." if statement.kind in (OPEN, OUT) else ""
        remark = " ".join(filter(None, [kind, statement.remark]))
        rows.append([statement.number, escaped(statement.sentence), statement.where, answer, link, remark])
    legend = ", ".join(f"{mark} {verdict}" for verdict, mark in MARKS.items())
    explanation = (
        f"Verdicts count claims: {legend}. A statement that was tested in several settings has several. The figure's "
        "page has the numbers. The verdicts are about the small models that were trained here."
    )
    columns = ["", "statement", "where", "verdicts", "figure", "remark"]
    return "\n\n".join(["# Every statement of the paper", counted(figures), explanation, table(columns, rows)]) + "\n"
