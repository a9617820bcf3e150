"""Stored claims as text that renders alike on a code host and the documentation site: cells,
tables, numbers.
"""

import html
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from ihlab.study.claim import as_stated

Unit = Literal["", "%", " points"]
"""The unit of a number. Points are percentage points: the difference of two percentages."""

MARKS = {"holds": "✔", "fails": "✘", "undecided": "?", "not tested at this scale": "–"}
"""The mark of each verdict. It is readable without colour."""

SHORT = {verdict: verdict.removesuffix(" at this scale") for verdict in MARKS}
"""Short form of each verdict, for tables."""


def escaped(text: str) -> str:
    r"""Return text as one line of Markdown that renders literally, also in a table cell.

    A code host reads dollar signs as mathematics, with or without a backslash; a span prevents
    this.
    """
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", line).replace("$", "<span>$</span>")


def plain(cell: str) -> str:
    """Return a cell of `needed` as plain text for a terminal, without Markdown and HTML."""
    return html.unescape(cell).replace("**", "").replace("\xa0", " ")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, or "" if there are no rows."""
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def lines(parts: Sequence[str]) -> str:
    """Return the parts that are not empty as lines of one cell."""
    return "<br>".join(filter(None, parts))


def verdict(claim: dict[str, Any]) -> str:
    """Return the mark and the word of a claim's verdict, with a note if the paper says the
    contrary.
    """
    text = f"{MARKS[claim['verdict']]}&nbsp;{SHORT[claim['verdict']]}"
    if claim.get("against"):
        return lines([text, "<sub>the paper says the contrary</sub>"])
    return text


def verdict_counts(claims: Sequence[dict[str, Any]]) -> str:
    """Count the paper's claims + our own with each verdict, now and, if that differs, as first
    declared.
    """
    now, first = _counts(claims), _counts([claim.get("first", claim) for claim in claims])
    counts = f"Claims, the paper's + our own: {now}."
    if first != now:
        counts += f" As first declared: {first}."
    return counts


def _counts(claims: Sequence[dict[str, Any]]) -> str:
    papers = Counter(as_stated(claim)["verdict"] for claim in claims if claim["of_paper"])
    ours = Counter(claim["verdict"] for claim in claims if not claim["of_paper"])
    counts = []
    for verdict, mark in MARKS.items():
        number = f"{papers[verdict]}"
        if ours[verdict]:
            number += f"+{ours[verdict]}"
        if number != "0":
            counts.append(f"{mark}&nbsp;{SHORT[verdict]}&nbsp;{number}")
    return ", ".join(counts)


def measured(claim: dict[str, Any]) -> str:
    """Return the number with its interval, the interval's level unless it is 95%, and the seeds; or
    the reason why the claim is not tested.
    """
    if claim.get("why"):
        return escaped(claim["why"])
    number = value(claim)
    if claim["value"] is not None:
        number = f"**{number}**"
    level = f" at {claim['confidence']:.0%}"
    if claim["confidence"] == 1:
        level = ", counted"
    elif level == " at 95%":
        level = ""
    seeds = {0: "", 1: ", 1 seed"}.get(claim["seeds"], f", {claim['seeds']} seeds")
    return f"{number}{interval(claim)}{level}{seeds}"


def value(claim: dict[str, Any], unit: Unit = "") -> str:
    """Return the measured number as text, with its unit, and with "at least" or the like if it is
    only a bound.

    The number of a claim with a unit is a fraction, or the difference of two: 0.25 is 25% or 25
    points.
    """
    if claim["value"] is None:
        return "nothing"
    return " ".join(filter(None, [claim.get("bound"), f"{_in(unit, claim['value'])}{unit}"]))


def interval(claim: dict[str, Any], unit: Unit = "") -> str:
    """Return the two ends of the interval after a space; "" if the number is counted."""
    if claim["confidence"] == 1:
        return ""
    low, high = claim["interval"]
    return f" [{_in(unit, low)}, {_in(unit, high)}]"


def _in(unit: Unit, x: float | None) -> str:
    if unit and x is not None:
        x *= 100
    return short(x)


def needed(claim: dict[str, Any], unit: Unit = "") -> str:
    """Return the threshold and the side that is right; "" if the claim has no threshold."""
    if claim["threshold"] is None:
        return ""
    sign = {"above": "&gt;", "below": "&lt;"}[claim["right_side"]]
    return f"{sign}&nbsp;{_in(unit, claim['threshold'])}{unit}"


def short(x: float | None) -> str:
    """Format with three significant digits, without an exponent below a million. None is an
    unbounded end.
    """
    if x is None:
        return "unbounded"
    return f"{float(f'{x:.3g}') + 0.0:g}"
