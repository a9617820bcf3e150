"""Stored claims as Markdown that renders alike on a code host and the documentation site: cells, tables, text."""

import re
from collections.abc import Sequence
from typing import Any

from ihlab.claims.ledger import number

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


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "---") -> str:
    """Return a Markdown table, or "" if there are no rows. `align` applies to all columns except the first."""
    lines = [header, ["---", *[align] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""


def verdict(claim: dict[str, Any]) -> str:
    """Return the mark and the word of a claim's verdict."""
    return f"{MARKS[claim['verdict']]}&nbsp;{SHORT[claim['verdict']]}"


def measured(claim: dict[str, Any]) -> str:
    """Return the number with interval, seeds and p-value, or the reason why the claim is not tested."""
    if claim.get("why"):
        return escaped(claim["why"])
    value = "nothing" if claim["value"] is None else f"**{number(claim['value'])}**"
    seeds = f"{claim['seeds']} seed{'s' if claim['seeds'] > 1 else ''}" if claim["seeds"] else ""
    return ", ".join(filter(None, [f"{value}{_interval(claim)}", seeds, _p_value(claim)]))


def needed(claim: dict[str, Any], declared: str) -> str:
    """Return the threshold, with its date of declaration in small print; "" if the claim has no threshold."""
    if claim["threshold"] is None:
        return ""
    sign = "&gt;" if claim["right_side"] == "above" else "&lt;"
    return f"{sign}&nbsp;{number(claim['threshold'])}" + (f"<br><sub>{unbroken(declared)}</sub>" if declared else "")


def unbroken(date: str) -> str:
    """Return a date with non-breaking hyphens."""
    return date.replace("-", "&#8209;")


def _interval(claim: dict[str, Any]) -> str:
    if claim["confidence"] == 1:
        return ", counted"
    low, high = map(number, claim["interval"])
    level = "" if claim["confidence"] == 0.95 else f" at {claim['confidence']:.0%}"
    return f" [{low}, {high}]{level}"


def _p_value(claim: dict[str, Any]) -> str:
    if claim["p"] is None:
        return ""
    adjusted = "" if claim["p_holm"] is None else f" (Holm&nbsp;{_probability(claim['p_holm'])})"
    return f"p&nbsp;{_probability(claim['p'], '=&nbsp;')}{adjusted}"


def _probability(p: float, equal: str = "") -> str:
    return "&lt;&nbsp;0.001" if p < 0.001 else f"{equal}{number(p)}"
