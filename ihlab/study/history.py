"""History of published claims: it keeps each claim that a figure no longer makes or that has
another verdict now.

`figures/<name>/history.json` stores each claim as it was last published, with the scale and two
more fields: `replaced`, the date of its replacement, and `commit`, the commit that replaced it (""
if unknown).
"""

import json
from collections.abc import Sequence
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import Any

from ihlab.storage.files import write_json
from ihlab.storage.stored import as_text, read_bytes
from ihlab.study.claim import NOT_TESTED
from tasks.config import ConfigError, require

Row = dict[str, Any]

WENT = ("scale", "replaced", "commit")
"""Fields that only the rows of a history file have."""


def replaced(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the old claims that the new ones do not contain with the same verdict.

    Claims are matched by id, and ask the same question if threshold and side are the same. The
    `first` version of a claim counts as a separate claim. If a measure was changed since, the old
    claim is compared with the new `first`. An untested claim is replaced only if its id is gone.
    """
    now = {claim["id"]: claim for claim in new}
    gone: list[Row] = []
    for claim in old:
        heir, first = now.get(claim["id"]), claim.get("first")
        if heir is None:
            gone += filter(None, [claim, first])
            continue
        pairs = [(claim, heir.get("first", heir))]
        if first:
            pairs = [(claim, heir), (first, heir.get("first"))]
        for row, other in pairs:
            if row["verdict"] != NOT_TESTED and not _same(row, other):
                gone.append(row)
    return gone


def _same(one: Row, other: Row | None) -> bool:
    decisive = itemgetter("threshold", "right_side", "verdict")
    return other is not None and decisive(one) == decisive(other)


def read_history(path: Path) -> list[Row]:
    """Return the rows of a history file; an empty list if there is no file. Raises `ConfigError` as
    `read_claims`.
    """
    if not path.exists():
        return []
    return read_claims(path, WENT)


NEEDED = [
    "id",
    "source",
    "of_paper",
    "sentence",
    "measure",
    "value",
    "interval",
    "p",
    "threshold",
    "right_side",
    "seeds",
    "declared",
    "verdict",
]
"""Fields of every stored claim."""


def read_claims(path: Path, more: Sequence[str] = ()) -> list[Row]:
    """Return the claims of a file. Raises `ConfigError` for a file that is cut or has other
    content.
    """
    try:
        rows = json.loads(as_text(read_bytes(path), path))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON ({error}): restore or delete it.") from None
    needed = {*NEEDED, *more}
    sound = isinstance(rows, list) and all(
        isinstance(row, dict) and needed <= {*row} for row in rows
    )
    require(
        sound,
        f"{path} does not hold claims with {', '.join((*NEEDED, *more))}: restore or delete it.",
    )
    return rows


def keep_replaced(path: Path, old: Sequence[Row], new: Sequence[Row], scale: str) -> None:
    """Add the `replaced` claims of a scale to a history file, without duplicates."""
    rows = read_history(path)
    known = [_published(row) for row in rows if row["scale"] == scale]
    went = {"scale": scale, "replaced": date.today().isoformat(), "commit": ""}
    added = []
    for row in map(_published, replaced(old, new)):
        if row not in known:
            added.append({**row, **went})
    if added:
        write_json(path, [*rows, *added])


def _published(row: Row) -> Row:
    """Return a claim as it was published, without its `first` version, which has a separate row."""
    return {name: value for name, value in row.items() if name not in (*WENT, "first", "changed")}
