"""The page on how claims are measured, with every claim that was replaced and every measure that
was changed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ihlab.storage.stored import read_json
from ihlab.study.ledger import Folder
from ihlab.study.markdown import MARKS, escaped, measured, needed, table, verdict
from ihlab.study.page import WRITTEN_BY, link_text, template

CHANGED = ("figure", "claim", "changed", "now", "as first declared")
GONE = ("claim", "needed", "replaced: its last number and verdict")


def measured_page(folders: Sequence[Folder], root: Path) -> str:
    """Return the page as Markdown."""
    changed, replaced, unrecorded = [], [], []
    for folder in folders:
        if claims := _unrecorded(folder):
            unrecorded.append(f"{_link(folder, root)} ({claims})")
        changed += _changed(folder, root)
        if history := folder.history():
            replaced.append(_replaced(folder, history, root))
    return template(Path(__file__).with_name("measured.md.jinja")).render(
        written_by=WRITTEN_BY,
        marks=MARKS,
        changed=table(CHANGED, changed),
        figures=replaced,
        unrecorded=", ".join(unrecorded),
    )


def _unrecorded(folder: Folder) -> int:
    """Return how many claims declared.json does not have."""
    path = folder.path / "declared.json"
    recorded = {name.split(".")[0] for name in (read_json(path) if path.exists() else {})}
    return sum(_family(claim) not in recorded for claim in folder.claims())


def _changed(folder: Folder, root: Path) -> list[list[str]]:
    """Return a row for each change of a measure, with all settings in which the claim was tested."""
    claims = [claim for claim in folder.claims() if "first" in claim]
    rows = []
    for (_, change), group in _grouped(claims, lambda claim: (_family(claim), claim["changed"])):
        now = _lines(group, _result)
        first = _lines(
            [{**claim["first"], "setting": claim.get("setting", {})} for claim in group], _result
        )
        words = [escaped(group[0]["sentence"]), escaped(change)]
        rows.append([_link(folder, root), *words, now, first])
    return rows


def _result(claim: dict[str, Any]) -> str:
    if claim["value"] is None:
        return verdict(claim)
    return f"{measured(claim)} {verdict(claim)}"


def _dated_result(claim: dict[str, Any]) -> str:
    """Return the date on which a claim was replaced, with non-breaking hyphens, and its result."""
    return f"{claim['replaced'].replace('-', '&#8209;')}: {_result(claim)}"


def _replaced(folder: Folder, history: Sequence[dict[str, Any]], root: Path) -> dict[str, str]:
    """Return the table of a figure's replaced claims: a row for each claim and threshold."""
    rows = []
    for (_, threshold), group in _grouped(history, lambda claim: (_family(claim), needed(claim))):
        lines = _lines(group, _dated_result)
        rows.append([escaped(group[0]["sentence"]), threshold, lines])
    return {"link": _link(folder, root), "gone": table(GONE, rows)}


def _grouped(
    claims: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], tuple[str, str]]
) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """Return the claims by key, in the order of each key's first claim."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(key(claim), []).append(claim)
    return list(groups.items())


def _family(claim: dict[str, Any]) -> str:
    """Return a claim's id without its setting."""
    family: str = claim["id"].split(".")[0]
    return family


def _lines(claims: Sequence[dict[str, Any]], said: Callable[[dict[str, Any]], str]) -> str:
    """Return a line a claim: its setting, unless it is that of the first one, and what is said."""
    lines = []
    for claim in claims:
        setting = ""
        if _setting(claim) != _setting(claims[0]):
            setting = f" ({escaped(_setting(claim))})"
        lines.append(f"{said(claim)}{setting}")
    return "<br>".join(lines)


def _setting(claim: dict[str, Any]) -> str:
    return ", ".join(map(str, claim.get("setting", {}).values()))


def _link(folder: Folder, root: Path) -> str:
    return f"[{link_text(folder.home)}]({folder.home.relative_to(root).as_posix()}/README.md)"
