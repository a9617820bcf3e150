"""Stored claims as text that renders alike on a code host and the documentation site: cells, tables, numbers."""

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

    A code host reads dollar signs as mathematics, with or without a backslash; a span prevents this.
    """
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", line).replace("$", "<span>$</span>")


def plain(cell: str) -> str:
    """Return a cell of `needed` as plain text for a terminal, without Markdown and HTML."""
    return html.unescape(cell).replace("**", "").replace("\xa0", " ")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, or "" if there are no rows."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""


def lines(parts: Sequence[str]) -> str:
    """Return the parts that are not empty as lines of one cell."""
    return "<br>".join(filter(None, parts))


def verdict(claim: dict[str, Any]) -> str:
    """Return the mark and the word of a claim's verdict, with a note if the paper says the contrary."""
    contrary = "<sub>the paper says the contrary</sub>" if claim.get("against") else ""
    return lines([f"{MARKS[claim['verdict']]}&nbsp;{SHORT[claim['verdict']]}", contrary])


def verdict_counts(claims: Sequence[dict[str, Any]]) -> str:
    """Count the paper's claims + our own with each verdict, now and, if that differs, as first declared."""
    now, first = _counts(claims), _counts([claim.get("first", claim) for claim in claims])
    return f"Claims, the paper's + our own: {now}." + (f" As first declared: {first}." if first != now else "")


def _counts(claims: Sequence[dict[str, Any]]) -> str:
    stated = (as_stated(claim) if claim["of_paper"] else claim for claim in claims)
    counted = Counter((claim["verdict"], claim["of_paper"]) for claim in stated)
    numbers = [(verdict, counted[verdict, True], counted[verdict, False]) for verdict in MARKS]
    return ", ".join(
        f"{MARKS[verdict]}&nbsp;{SHORT[verdict]}&nbsp;{paper}{f'+{ours}' if ours else ''}"
        for verdict, paper, ours in numbers
        if paper or ours
    )


def value(claim: dict[str, Any], unit: Unit = "") -> str:
    """Return the measured number as text, with its unit, and with "at least" or the like if it is only a bound.

    The number of a claim with a unit is a fraction, or the difference of two: 0.25 is 25% or 25 points.
    """
    if claim["value"] is None:
        return "nothing"
    return " ".join(filter(None, [claim.get("bound"), f"{_in(unit, claim['value'])}{unit}"]))


def interval(claim: dict[str, Any], unit: Unit = "") -> str:
    """Return the two ends of the interval after a space; "" if the number is counted."""
    return "" if claim["confidence"] == 1 else f" [{', '.join(_in(unit, end) for end in claim['interval'])}]"


def _in(unit: Unit, x: float | None) -> str:
    return short(100 * x if unit and x is not None else x)


def needed(claim: dict[str, Any], unit: Unit = "") -> str:
    """Return the threshold and the side that is right; "" if the claim has no threshold."""
    if claim["threshold"] is None:
        return ""
    sign = "&gt;" if claim["right_side"] == "above" else "&lt;"
    return f"{sign}&nbsp;{_in(unit, claim['threshold'])}{unit}"


def unbroken(date: str) -> str:
    """Return a date with non-breaking hyphens."""
    return date.replace("-", "&#8209;")


def short(x: float | None) -> str:
    """Format with three significant digits, without an exponent below a million. None is an unbounded end."""
    return "unbounded" if x is None else f"{float(f'{x:.3g}') + 0.0:g}"
