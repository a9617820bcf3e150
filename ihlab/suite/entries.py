"""Entries of the bench: JSON files that are checked when they are read, and can be measured again.

An entry has a `method`, the version `standard_set` and its `digest`, `estimates` (per key of a
setting, one number per node in the order of `Problem.nodes`), `scores` (per key, in the order of
`SCORES`), `passes` (forward and backward, mean over settings with heads) and `notes` (per key, why
a method refused the setting). Only method, standard_set and estimates are needed, so that estimates
can come from anywhere. To enter a circuit, give true or false for each node.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ihlab.attribution.methods import METHODS
from ihlab.storage.stored import read_json
from ihlab.suite.bench import SCORES, TRUTHS, Entry, new_entry, run_bench, settings
from ihlab.suite.standard import VERSION
from tasks.config import ConfigError, choose, require, shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
"""Names of entries: each is the name of a file, and a cell of a table."""

SAME_SCORE, SAME_ESTIMATE = 0.02, 0.01
"""The largest differences when an entry is measured again; of estimates, as a fraction of the
largest one.
"""


def require_name(method: Any) -> None:
    """Raise `ConfigError` for a name that cannot be the name of an entry."""
    formed = isinstance(method, str) and NAME.fullmatch(method)
    require(
        bool(formed),
        f"method is {shown(method)}, but must be a name of at most 60 letters, digits, '.', '_' and '-', such as "
        "'my-method'.",
    )


def read_entries(paths: Iterable[str | Path]) -> dict[str, Entry]:
    """Return the entries of files by the name of their method. Raises `ConfigError` as
    `read_entry`, and for two of one name."""
    entries: dict[str, Entry] = {}
    for path in paths:
        entry = read_entry(path)
        name = entry["method"]
        require(
            name not in entries,
            f"{path}: there is another entry of the method {name!r}: keep one of them.",
        )
        entries[name] = entry
    return entries


def read_entry(path: str | Path) -> Entry:
    """Read an entry. Raises `ConfigError` for a file that is not one, and for settings or numbers
    that are wrong.
    """
    content = read_json(Path(path))
    try:
        return checked(content)
    except ConfigError as wrong:
        raise ConfigError(f"{path}: {wrong}") from None


def checked(content: dict[str, Any]) -> Entry:
    """Return the entry that a file contains. Raises `ConfigError` as `read_entry`."""
    for name in content:
        choose("field", name, new_entry(""))
    version = content.get("standard_set")
    require(
        version == VERSION and not isinstance(version, bool),
        f"standard_set is {shown(version)}, but this ihlab has version {VERSION} of the standard set.",
    )
    require_name(content.get("method"))
    require(
        "estimates" in content, "estimates is missing: it maps a setting to one number per node."
    )
    entry = new_entry(content["method"])
    digest = content.get("digest", entry["digest"])
    require(
        digest == entry["digest"],
        f"digest is {shown(digest)}, but the standard set here has {entry['digest']}: numbers cannot be compared.",
    )
    entry |= content
    for field in ("estimates", "scores", "notes"):
        require(
            isinstance(entry[field], dict),
            f"{field} is {shown(entry[field])}, but must be an object by setting.",
        )
    _require_known({**entry["estimates"], **entry["scores"], **entry["notes"]})
    for key, values in entry["estimates"].items():
        _require_numbers(f"the estimates of {key}", values)
        require(
            bool(values), f"the estimates of {key} are empty, but must have one number per node."
        )
    for key, values in entry["scores"].items():
        _require_numbers(f"the scores of {key}", values, missing=True)
        right = len(values) == len(SCORES)
        require(
            right,
            f"{key} has {len(values)} scores, but must have {len(SCORES)}: leave out the scores.",
        )
    for key, note in entry["notes"].items():
        require(
            isinstance(note, str), f"the note of {key} is {shown(note)}, but must be a sentence."
        )
    if entry["passes"] is not None:
        _require_numbers("passes", entry["passes"])
        require(
            len(entry["passes"]) == 2,
            f"passes is {shown(entry['passes'])}, but must be [forward, backward].",
        )
    return entry


def _require_known(keys: Iterable[str]) -> None:
    known = set(settings()["key"])
    for key in set(keys) - known:
        near = get_close_matches(key, known, 1)
        end = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(f"there is no setting {shown(key)}{end}")


def _require_numbers(what: str, values: Any, missing: bool = False) -> None:
    require(isinstance(values, list), f"{what} are {shown(values)}, but must be a list of numbers.")
    for value in values:
        finite = isinstance(value, int | float) and isfinite(value)
        require(
            finite or (missing and value is None),
            f"{what} have {shown(value)}, but must be finite numbers.",
        )


def entry_text(entry: Entry) -> str:
    """Return an entry as JSON with one line per setting."""
    parts = []
    for name, value in entry.items():
        text = json.dumps(value)
        if isinstance(value, dict) and value:
            lines = ",\n".join(
                f"  {json.dumps(key)}: {json.dumps(numbers)}" for key, numbers in value.items()
            )
            text = f"{{\n{lines}\n}}"
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def differences(
    entry: Entry, members: Sequence[str] = (), report: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Measure an entry again, and return in words what differs: an empty list if all is as stored.

    Scores are computed again from the stored estimates, and must agree to `SAME_SCORE`. If the
    method `is_known`, it is run again, also where the entry has a note: its scores must agree to
    `SAME_SCORE`, its estimates to `SAME_ESTIMATE` of the largest one, and its passes exactly.
    Raises `ConfigError` if nothing can be measured again.
    """
    name, every, measurable = entry["method"], settings(members=members), is_known(entry)
    table = every[every["key"].isin({*entry["estimates"], *entry["scores"]})]
    require(
        len(table) > 0,
        f"the entry {name!r} has no estimates or scores of these members: nothing to measure again",
    )
    require(
        bool(entry["estimates"]) or measurable,
        f"estimates is empty, and {name!r} is no method of ihlab: there is nothing to measure again.",
    )
    differ = []
    if entry["estimates"]:
        scored = run_bench({name: entry}, table, report)[name]
        for key, note in scored["notes"].items():
            if note != entry["notes"].get(key):
                differ.append(f"{key}: {note}")
        differ += _differ(entry, scored, "scores", table)
    if measurable:
        table = every[every["key"].isin({*table["key"], *entry["notes"]})]
        measured = run_bench({name: None}, table, report)[name]
        for field in ("estimates", "scores"):
            differ += _differ(entry, measured, field, table)
        for key in measured["scores"]:
            if key not in {**entry["estimates"], **entry["scores"]}:
                differ.append(
                    f"{key}: the entry has a note in place of numbers, but it is measured now"
                )
        if not members and entry["passes"] not in (None, measured["passes"]):
            differ.append(
                f"the passes are {measured['passes']}, but the entry has {entry['passes']}"
            )
    return differ


def is_known(entry: Entry) -> bool:
    """Return whether the method of an entry can be run."""
    return entry["method"] in METHODS or entry["method"] in TRUTHS


def _differ(entry: Entry, again: Entry, field: str, table: pd.DataFrame) -> list[str]:
    differ = []
    for key in table["key"]:
        stored, values = entry[field].get(key), again[field].get(key)
        if stored is None:
            continue
        if values is None:
            differ.append(f"{key}: the entry has {field}, but they are missing now")
            continue
        x, y = np.array(stored, dtype=float), np.array(values, dtype=float)
        allowed = SAME_SCORE if field == "scores" else SAME_ESTIMATE * np.abs(y).max() + 1e-9
        if x.shape != y.shape or not np.allclose(x, y, rtol=0, atol=allowed, equal_nan=True):
            differ.append(f"{key}: the {field} are {values}, but the entry has {stored}")
    return differ
