"""The page of one figure as Markdown: its pictures, what it shows, its claims, and how they were measured."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template

from ihlab.storage.files import write_text
from ihlab.storage.stored import read_json
from ihlab.study.experiment import SCALES
from ihlab.study.ledger import Folder
from ihlab.study.markdown import MARKS, escaped, lines, measured, needed, table, unbroken, verdict, verdict_counts
from tasks.config import require

WRITTEN_BY = "<!-- Written by `ihlab reproduce`: do not edit. -->"

COLUMNS = ("claim", "measured", "needed", "verdict")
GONE = ("claim", "measured", "needed", "last verdict", "replaced")


def page(home: Path, heading: str = "") -> str:
    """Return the page of a figure's folder as Markdown: each stored scale, and smoke scale only without another."""
    folders = [Folder(home, scale) for scale in SCALES if (Folder(home, scale).path / "claims.json").exists()]
    folders = [folder for folder in folders if folder.scale != "smoke"] or folders
    above = (parent / "README.md" for parent in reversed(home.absolute().parents[:2]))
    index = next((path for path in above if path.exists() and WRITTEN_BY in path.read_text(encoding="utf-8")), None)
    return template(Path(__file__).with_name("page.md.jinja")).render(
        heading=heading or stored_heading(home),
        written_by=WRITTEN_BY,
        frozen=frozen(home),
        name=home.name,
        index=index and "../" * len(home.absolute().relative_to(index.parent).parts) + "README.md",
        sections=[_section(folder) for folder in folders],
        marks=MARKS,
    )


def write_page(home: Path, heading: str = "") -> Path:
    """Write the page of a figure to its folder and return its path. Raises `ConfigError` as `require_own`."""
    path = home / "README.md"
    require_own(path)
    write_text(path, page(home, heading))
    return path


def require_own(path: Path) -> None:
    """Raise `ConfigError` for a page that exists and was not written by ihlab."""
    ours = not path.exists() or WRITTEN_BY in path.read_text(encoding="utf-8")
    require(ours, f"{path} was not written by 'ihlab reproduce' and is kept; the page of the figure needs its place.")


def stored_heading(home: Path) -> str:
    """Return the heading of a stored page. Without a page, the name "my_study" becomes "My study"."""
    path = home / "README.md"
    first = path.read_text(encoding="utf-8").partition("\n")[0] if path.exists() else ""
    return first.removeprefix("# ") or home.name.replace("_", " ").capitalize()


def link_text(home: Path) -> str:
    """Return the text of links to a stored figure, the part of its heading before a colon: "Figure 1a"."""
    return stored_heading(home).partition(":")[0]


def frozen(home: Path) -> dict[str, str] | None:
    """Return the version and the commit that made a frozen figure, whose code is gone; None for a live one."""
    path = home / "manifest.json"
    return read_json(path).get("frozen") if path.exists() else None


@cache
def template(path: Path) -> Template:
    """Return the template of a page of Markdown. Lines of only a tag leave no line."""
    text = path.read_text(encoding="utf-8")
    return Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True).from_string(text)


def _section(folder: Folder) -> dict[str, Any]:
    """Return what the page shows of one scale."""
    claims, summary = folder.claims(), folder.summary()
    papers, ours = ([claim for claim in claims if claim["of_paper"] == of] for of in (True, False))
    gone = folder.history()
    return {
        "scale": folder.scale,
        "pictures": [picture.relative_to(folder.home).as_posix() for picture in folder.pictures],
        "counts": verdict_counts(claims),
        "summary": summary if summary.startswith("| ") else escaped(summary),
        "papers": table(COLUMNS, _rows(papers, folder)),
        "ours": table(COLUMNS, _rows(ours, folder)),
        "n_ours": len(ours),
        "gone": table(GONE, [_gone(row) for row in gone]),
        "n_gone": len(gone),
    }


def _rows(claims: Sequence[dict[str, Any]], folder: Folder) -> list[list[str]]:
    """Return one table row per claim. Claims that share a statement (the first part of their ids) are grouped."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(claim.get("id", claim["sentence"]).partition(".")[0], []).append(claim)
    return [row for group in groups.values() for row in _group(group, folder)]


def _group(group: Sequence[dict[str, Any]], folder: Folder) -> list[list[str]]:
    """Return the rows of claims that share a statement. Text that repeats the row above is left out."""
    alike, measures = len({claim["sentence"] for claim in group}) == 1, {claim["measure"] for claim in group}
    shared = measures.pop() if len(measures) == 1 and len(group) > 1 else ""
    rows, above = [], ("", "")
    for claim in group:
        sentence, condition = (claim["sentence"], "") if alike else _apart(claim)
        said = [escaped(sentence), escaped(shared)] if sentence != above[0] else []
        said.append(f"<sub>{escaped(claim['source'])}</sub>" if (sentence, claim["source"]) != above else "")
        measure = "" if shared or not claim["measure"] else f"{escaped(claim['measure'])}:"
        value = [f"*{escaped(condition)}*" if condition else "", measure, measured(claim) + _first(claim)]
        rows.append([lines(said), lines(value), needed(claim, folder.declared(claim)), verdict(claim)])
        above = (sentence, claim["source"])
    return rows


def _apart(claim: dict[str, Any]) -> tuple[str, str]:
    """Return a sentence without its setting, and the setting, if each condition is in brackets or follows a colon."""
    sentence, conditions = claim["sentence"], list(claim.get("setting", {}).values())
    for condition in conditions:
        shorter = sentence.replace(f" ({condition})", "").replace(f": {condition}.", ".")
        if shorter == sentence:
            return claim["sentence"], ""
        sentence = shorter
    return sentence, "; ".join(conditions)


def _gone(row: dict[str, Any]) -> list[str]:
    """Return the table cells of a replaced claim, with the date and the commit of its replacement."""
    sentence = lines([escaped(row["sentence"]), f"<sub>{escaped(row['source'])}</sub>"])
    value = lines([f"{escaped(row['measure'])}:" if row["measure"] else "", measured(row)])
    when = lines([unbroken(row["replaced"]), f"`{row['commit']}`" if row["commit"] else ""])
    return [sentence, value, needed(row, row["declared"]), verdict(row), when]


def _first(claim: dict[str, Any]) -> str:
    """Return the number and verdict by the measure declared before the runs; "" if the measure was not changed."""
    if "first" not in claim:
        return ""
    first = claim["first"]
    sentence = f"“{escaped(first['sentence'])}” " if first["sentence"] != claim["sentence"] else ""
    text = f"Changed after the runs ({escaped(claim['changed'])}). As declared: {sentence}"
    numbers = [escaped(first["measure"]), measured(first), verdict(first)]
    return f"<br><sub>{text}{': '.join(filter(None, numbers))}</sub>"
