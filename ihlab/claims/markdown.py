"""Stored claims as text that renders alike on a code host and the documentation site: cells, tables, numbers."""

import html
import re
from collections.abc import Sequence
from typing import Any

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
    """Return a cell of `measured` or `needed` as it is read, for a terminal."""
    return html.unescape(cell).replace("**", "").replace("\xa0", " ")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "---") -> str:
    """Return a Markdown table, or "" if there are no rows. `align` applies to all columns except the first."""
    lines = [header, ["---", *[align] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""


def lines(parts: Sequence[str]) -> str:
    """Return the parts that are not empty as lines of one cell."""
    return "<br>".join(filter(None, parts))


def verdict(claim: dict[str, Any]) -> str:
    """Return the mark and the word of a claim's verdict, with a note if the paper says the contrary."""
    contrary = "<sub>the paper says the contrary</sub>" if claim.get("against") else ""
    return lines([f"{MARKS[claim['verdict']]}&nbsp;{SHORT[claim['verdict']]}", contrary])


def measured(claim: dict[str, Any]) -> str:
    """Return the number with interval, seeds and p-value, or the reason why the claim is not tested."""
    if claim.get("why"):
        return escaped(claim["why"])
    number = value(claim) if claim["value"] is None else f"**{value(claim)}**"
    level = "" if claim["confidence"] == 0.95 else f" at {claim['confidence']:.0%}"
    spread = ", counted" if claim["confidence"] == 1 else f" {interval(claim)}{level}"
    seeds = f"{claim['seeds']} seed{'s' if claim['seeds'] > 1 else ''}" if claim["seeds"] else ""
    return ", ".join(filter(None, [f"{number}{spread}", seeds, _p_value(claim)]))


def value(claim: dict[str, Any]) -> str:
    """Return the measured number."""
    return "nothing" if claim["value"] is None else short(claim["value"])


def interval(claim: dict[str, Any]) -> str:
    """Return the two ends of the interval."""
    return f"[{', '.join(map(short, claim['interval']))}]"


def needed(claim: dict[str, Any], declared: str = "") -> str:
    """Return the threshold, with its date of declaration in small print; "" if the claim has no threshold."""
    if claim["threshold"] is None:
        return ""
    sign = "&gt;" if claim["right_side"] == "above" else "&lt;"
    return lines([f"{sign}&nbsp;{short(claim['threshold'])}", f"<sub>{unbroken(declared)}</sub>" if declared else ""])


def unbroken(date: str) -> str:
    """Return a date with non-breaking hyphens."""
    return date.replace("-", "&#8209;")


def short(x: float | None) -> str:
    """Format with three significant digits, without an exponent below a million. None is an unbounded end."""
    return "unbounded" if x is None else f"{float(f'{x:.3g}') + 0.0:g}"


def _p_value(claim: dict[str, Any]) -> str:
    if claim["p"] is None:
        return ""
    adjusted = "" if claim["p_holm"] is None else f" (Holm&nbsp;{_probability(claim['p_holm'])})"
    return f"p&nbsp;{_probability(claim['p'], '=&nbsp;')}{adjusted}"


def _probability(p: float, equal: str = "") -> str:
    return "&lt;&nbsp;0.001" if p < 0.001 else f"{equal}{short(p)}"
