"""History of published claims: it keeps each claim that a figure no longer makes or that has another verdict now.

`figures/<name>/history.json` stores each claim as it was last published, with the scale and two more fields:
`replaced`, the date of its replacement, and `commit`, the commit that replaced it ("" if unknown).
"""

import json
import re
from collections.abc import Sequence
from datetime import date
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ihlab.claims.claim import NOT_TESTED
from ihlab.files import write_json

Row = dict[str, Any]

WENT = ("scale", "replaced", "commit")
"""Fields that only the rows of a history file have."""


def replaced(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the old claims that the new ones do not contain with the same verdict.

    The `first` version of a claim counts as a separate claim, among the old and the new. Two claims are the same if
    they have the same threshold, side and sentence. A reworded claim is recognised by the same threshold, side and
    value, if the value is not a whole number (many claims have 0 or 1). Each new claim matches at most one old claim:
    the one with the most similar measure, ignoring the numbers in it. An untested claim is replaced only if its
    sentence is gone.
    """
    before, now = _with_first(old), _with_first(new)
    pairs = [(i, j) for i, one in enumerate(before) for j, other in enumerate(now) if _same(one, other)]
    heir: dict[int, int] = {}
    for i, j in sorted(pairs, key=lambda pair: _likeness(before[pair[0]], now[pair[1]]), reverse=True):
        if i not in heir and j not in heir.values():
            heir[i] = j
    sentences = {row["sentence"] for row in now}
    return [
        row
        for i, row in enumerate(before)
        if (
            row["sentence"] not in sentences
            if row["verdict"] == NOT_TESTED
            else i not in heir or now[heir[i]]["verdict"] != row["verdict"]
        )
    ]


def read_history(path: Path) -> list[Row]:
    """Return the rows of a history file; an empty list if there is no file."""
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def keep_replaced(path: Path, old: Sequence[Row], new: Sequence[Row], scale: str) -> None:
    """Add the `replaced` claims of a scale to a history file, without duplicates."""
    rows, went = read_history(path), {"scale": scale, "replaced": date.today().isoformat(), "commit": ""}
    known = [_published(row) for row in rows if row["scale"] == scale]
    added = [{**row, **went} for row in map(_published, replaced(old, new)) if row not in known]
    if added:
        write_json(path, [*rows, *added])


def _published(row: Row) -> Row:
    """Return a claim as it was published, without its `first` version, which has a separate row."""
    return {name: value for name, value in row.items() if name not in (*WENT, "first", "changed")}


def _with_first(claims: Sequence[Row]) -> list[Row]:
    return [row for claim in claims for row in (claim, claim.get("first")) if row is not None]


def _same(one: Row, other: Row) -> bool:
    if any(one[name] != other[name] for name in ("threshold", "right_side")):
        return False
    value = one["value"]
    return one["sentence"] == other["sentence"] or (value is not None and value % 1 != 0 and value == other["value"])


def _likeness(one: Row, other: Row) -> tuple[bool, float, bool]:
    """Return a sort key that is larger for more similar claims."""
    mine, others = (re.sub(r"[\d.]+", "#", row["measure"]) for row in (one, other))
    likeness = SequenceMatcher(None, mine, others, autojunk=False).ratio()
    return one["sentence"] == other["sentence"], likeness, one["verdict"] == other["verdict"]
