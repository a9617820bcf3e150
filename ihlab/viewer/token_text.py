"""The text of a token id on a page. Different ids have different texts."""

from collections.abc import Callable
from typing import Any

from tasks.config import visible
from tasks.text.prepared import byte_of_character

Text = Callable[[int], str]
"""Maps an id to its text."""

SPACE = "\u2423"
"""Shown for a space at the start of a token, which would be invisible on a page."""

WORD_STARTS = ("\u2581", "\u0120")
"""How SentencePiece and byte-level BPE write the space before a word."""

UNKNOWN = "\ufffd"
"""The result of decoding bytes that are not a complete character."""


class Distinct:
    """The text of each id, with the id appended if another id on the page has the same text."""

    def __init__(self, text: Text) -> None:
        self.plain = text
        self._texts: dict[int, str] = {}
        self._owners: dict[str, int] = {}

    def __call__(self, i: int) -> str:
        """Return the text of an id."""
        if i not in self._texts:
            text = self.plain(i)
            while self._owners.setdefault(text, i) != i:
                text = f"{text}#{i}"
            self._texts[i] = text
        return self._texts[i]


def tokenizer_text(tokenizer: Any) -> Text:
    """Return a function from an id to its text, using a tokenizer.

    Leading spaces are shown as `SPACE`, a control character as its escape, and an incomplete
    character as bytes, such as <0xE6>. If the tokenizer has no `convert_ids_to_tokens`, only its
    `decode` is used.
    """
    raw_of = getattr(tokenizer, "convert_ids_to_tokens", None)

    def text(i: int) -> str:
        raw = decoded = str(tokenizer.decode([i]))
        if raw_of is not None:
            raw = str(raw_of(i))
        if UNKNOWN in decoded and raw != decoded:
            return _as_bytes(raw)
        if raw.startswith(WORD_STARTS) and not decoded.startswith(" "):
            decoded = f" {decoded}"  # decoding a single token drops the space
        rest = decoded.lstrip(" ")
        spaces = SPACE * (len(decoded) - len(rest))
        return spaces + visible(rest) or raw

    return text


def _as_bytes(raw: str) -> str:
    """Return a token of byte-level BPE as its bytes. A token that names its byte, <0xE6>, is
    returned unchanged.
    """
    known = byte_of_character()
    if not set(raw) <= set(known):
        return raw
    return "".join(f"<0x{known[c]:02X}>" for c in raw)
