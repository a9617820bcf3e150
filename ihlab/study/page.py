"""The page of one figure as Markdown: what was asked, its pictures, what came out, and how sure it
is.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from ihlab.storage.files import write_text
from ihlab.storage.stored import read_json
from ihlab.study.claim import NOT_TESTED, margin
from ihlab.study.experiment import SCALES
from ihlab.study.ledger import Folder
from ihlab.study.markdown import (
    MARKS,
    SHORT,
    escaped,
    lines,
    measured,
    needed,
    table,
    verdict_counts,
)
from tasks.config import require

WRITTEN_BY = "<!-- Written by `ihlab reproduce`: do not edit. -->"

COLUMNS = ("claim", "measured", "needed", "verdict")

MOST_WORDS = 420
"""Words of a page's tables. With more, the summary is a link to its file."""

WITHOUT_DETAILS = re.compile(r" \([^()]*\)")
"""What a page leaves out of a measure: rates and numbers of seeds in brackets, which claims.json
has.
"""


def page(home: Path, heading: str = "") -> str:
    """Return the page of a figure's folder as Markdown: each stored scale, and smoke scale only
    without another.
    """
    folders = published([Folder(home, scale) for scale in SCALES])
    index = ""  # the page of results, in the folder above or one farther up
    for steps, above in enumerate(home.absolute().parents[:2], 1):
        if _is_ours(above / "README.md"):
            index = "../" * steps
    return template(Path(__file__).with_name("page.md.jinja")).render(
        heading=heading or stored_heading(home),
        written_by=WRITTEN_BY,
        frozen=frozen(home),
        name=home.name,
        index=index,
        sections=map(_section, folders),
        marks=MARKS,
    )


def published(folders: Sequence[Folder]) -> list[Folder]:
    """Return the folders that have claims; those of smoke scale only if there are no others."""
    with_claims = [folder for folder in folders if (folder.path / "claims.json").exists()]
    return [folder for folder in with_claims if folder.scale != "smoke"] or with_claims


def write_page(home: Path, heading: str = "") -> Path:
    """Write the page of a figure to its folder and return its path. Raises `ConfigError` as
    `require_own`.
    """
    path = home / "README.md"
    require_own(path)
    write_text(path, page(home, heading))
    return path


def require_own(path: Path) -> None:
    """Raise `ConfigError` for a page that exists and was not written by ihlab."""
    require(
        not path.exists() or _is_ours(path),
        f"{path} was not written by 'ihlab reproduce' and is kept; the page of the figure needs its place.",
    )


def _is_ours(path: Path) -> bool:
    return path.exists() and WRITTEN_BY in path.read_text(encoding="utf-8")


def stored_heading(home: Path) -> str:
    """Return the heading of a stored page. Without a page, the name "my_study" becomes "My study"."""
    path = home / "README.md"
    first = path.read_text(encoding="utf-8").partition("\n")[0] if path.exists() else ""
    return first.removeprefix("# ") or home.name.replace("_", " ").capitalize()


def link_text(home: Path) -> str:
    """Return the text of links to a stored figure, the part of its heading before a colon: "Figure
    1a".
    """
    return stored_heading(home).partition(":")[0]


def frozen(home: Path) -> dict[str, str] | None:
    """Return the version and commit that made a frozen figure, and a note if it has one; None for a
    live figure.
    """
    path = home / "manifest.json"
    return read_json(path).get("frozen") if path.exists() else None


@cache
def template(path: Path) -> Template:
    """Return the template of a page of Markdown. Lines of only a tag leave no line, and a misspelt
    name raises.
    """
    pages = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    pages.filters["two"] = lambda number: f"{number:z.2f}"
    pages.filters["three"] = lambda number: f"{number:.3f}"
    return pages.from_string(path.read_text(encoding="utf-8"))


def _section(folder: Folder) -> dict[str, Any]:
    """Return what the page shows of one scale."""
    claims = folder.claims()
    papers, ours = (table(COLUMNS, _rows(claims, of_paper)) for of_paper in (True, False))
    summary = folder.summary()
    if not summary.startswith("| "):
        summary = escaped(summary)
    words = (summary + papers + ours).replace("|", " ").replace("---", " ").split()
    return {
        "scale": folder.scale,
        "folder": "" if folder.path == folder.home else f"{folder.scale}/",
        "pictures": [picture.relative_to(folder.home).as_posix() for picture in folder.pictures],
        "counts": verdict_counts(claims),
        "summary": "" if len(words) > MOST_WORDS else summary,
        "papers": papers,
        "ours": ours,
        "replaced": len(folder.history()),
    }


def _rows(claims: Sequence[dict[str, Any]], of_paper: bool) -> list[list[str]]:
    """Return one table row per statement of the paper, or of ours: claims that share the first part
    of their ids make one statement.
    """
    statements: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        if claim["of_paper"] == of_paper:
            name = claim.get("id", claim["sentence"]).partition(".")[0]
            statements.setdefault(name, []).append(claim)
    return [_row(of_one) for of_one in statements.values()]


def _row(claims: Sequence[dict[str, Any]]) -> list[str]:
    """Return the row of one statement: its sentence, the least favourable number, and how many
    claims hold.
    """
    numbered = [
        claim for claim in claims if claim["verdict"] != NOT_TESTED and claim["value"] is not None
    ]
    claim = min(numbered, key=margin, default=claims[0])
    sentence, condition, source = claim["sentence"], "", claim["source"]
    if len(claims) > 1:
        if len({_apart(each)[0] for each in claims}) == 1:
            sentence, condition = _apart(claim)
        else:
            source += f"; least favourable of {len(claims)} tests"
    if condition:
        condition = f"*{escaped(condition)}*"
    measure = escaped(WITHOUT_DETAILS.sub("", claim["measure"]))
    return [
        lines([escaped(sentence), f"<sub>{escaped(source)}</sub>"]),
        lines([condition, measure, measured(claim)]),
        needed(claim),
        _verdicts(claims),
    ]


def _verdicts(claims: Sequence[dict[str, Any]]) -> str:
    """Return the verdict of one claim, or how many of several have each verdict; also as first
    declared, if other.
    """
    now = _counted(claims)
    first = _counted([claim.get("first", claim) for claim in claims])
    declared = f"<sub>as first declared: {first}</sub>" if first != now else ""
    contrary = ""
    if any(claim.get("against") for claim in claims):
        contrary = "<sub>the paper says the contrary</sub>"
    return lines([now, declared, contrary])


def _counted(claims: Sequence[dict[str, Any]]) -> str:
    counted = Counter(claim["verdict"] for claim in claims)
    words = []
    for verdict, mark in MARKS.items():
        if counted[verdict]:
            number = f"&nbsp;{counted[verdict]}" if len(claims) > 1 else ""
            words.append(f"{mark}&nbsp;{SHORT[verdict]}{number}")
    return ", ".join(words)


def _apart(claim: dict[str, Any]) -> tuple[str, str]:
    """Return a sentence without its setting, and the setting, if each condition is in brackets or
    follows a colon.
    """
    sentence, conditions = claim["sentence"], list(claim.get("setting", {}).values())
    for condition in conditions:
        shorter = sentence.replace(f" ({condition})", "").replace(f": {condition}.", ".")
        if shorter == sentence:
            return claim["sentence"], ""
        sentence = shorter
    return sentence, "; ".join(conditions)
