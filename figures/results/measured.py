"""The page on how claims are measured, with every claim that was replaced and every measure that
was changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ihlab.study.ledger import Folder
from ihlab.study.markdown import MARKS, escaped, measured, needed, table, unbroken, verdict
from ihlab.study.page import WRITTEN_BY, link_text, template

CHANGED = ("figure", "claim", "changed", "now", "as first declared")
GONE = ("claim", "number", "needed", "last verdict", "replaced")


def measured_page(folders: Sequence[Folder], root: Path) -> str:
    """Return the page as Markdown."""
    changed, replaced = [], []
    for folder in folders:
        changed += _changed(folder, root)
        if history := folder.history():
            replaced.append(_replaced(folder, history, root))
    return template(Path(__file__).with_name("measured.md.jinja")).render(
        written_by=WRITTEN_BY, marks=MARKS, changed=table(CHANGED, changed), figures=replaced
    )


def _changed(folder: Folder, root: Path) -> list[list[str]]:
    rows = []
    for claim in folder.claims():
        if "first" in claim:
            words = [escaped(claim["sentence"]), escaped(claim["changed"])]
            rows.append([_link(folder, root), *words, _result(claim), _result(claim["first"])])
    return rows


def _result(claim: dict[str, Any]) -> str:
    if claim["value"] is None:
        return verdict(claim)
    return f"{measured(claim)} {verdict(claim)}"


def _replaced(folder: Folder, history: Sequence[dict[str, Any]], root: Path) -> dict[str, str]:
    rows = []
    for claim in history:
        when = unbroken(claim["replaced"])
        words = [escaped(claim["sentence"]), measured(claim)]
        rows.append([*words, needed(claim), verdict(claim), when])
    return {"link": _link(folder, root), "gone": table(GONE, rows)}


def _link(folder: Folder, root: Path) -> str:
    return f"[{link_text(folder.home)}]({folder.home.relative_to(root).as_posix()}/README.md)"
