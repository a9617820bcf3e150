"""Group stored claims that make the same statement under several conditions, such as learning rates or head counts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CONDITION = re.compile(r" \(([^()]*)\)|: ([^:]*?)(?=\.?$)")
"""A condition in a claim's sentence: in brackets, or after a colon at its end."""


@dataclass(frozen=True)
class Fact:
    """The common part of several claims' sentences, and each claim with its own condition ("": none)."""

    sentence: str
    claims: list[tuple[str, dict[str, Any]]]


def facts(claims: Sequence[dict[str, Any]]) -> list[Fact]:
    """Group claims whose sentences differ only in their conditions. Groups keep the order of their first claims."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(CONDITION.sub("", claim["sentence"]), []).append(claim)
    return [_fact(common, group) for common, group in groups.items()]


def _fact(common: str, group: list[dict[str, Any]]) -> Fact:
    if len({claim["sentence"] for claim in group}) == 1:
        return Fact(group[0]["sentence"], [("", claim) for claim in group])
    return Fact(common, [(condition(claim["sentence"]), claim) for claim in group])


def condition(sentence: str) -> str:
    """Return the conditions in a sentence: "2 heads; recall" for "It learns (2 heads): recall."."""
    return "; ".join(inside or after for inside, after in CONDITION.findall(sentence))
