"""Every word an iGSM problem is written with; each is one token, and no word has two meanings.

A domain names four categories, from top to bottom: harbours have ships, ships have crates, crates have
tools. A category has five pools of 20 nouns, each with a theme. A problem takes one domain, some of its
categories next to each other, and one pool of each:

    The number of each Bergen 's Sloop equals 5 more than each Bergen 's Ketch .

Numbers are the words "0", "1", ... below the modulus.

Source: the scheme of Ye et al. 2024, arXiv 2407.20311, with words of our own.
"""

import re
import string

from tasks.igsm.nouns import POOLS

SPECIAL = ("<pad>", "<bos>", "<sol>", "<ans>", "<eos>")

_NATURAL = (
    "The number of each 's equals the sum and difference more than times as much How many does have Define so "
    ". , ? ; = + - *"
)
_COMPACT = ". ? ; = + - * ( )"

JOINT = "/"
"""Between the two words of a pair that is one token, "Sloop/TeaChest"."""

# Function words and punctuation of each format.
FUNCTION_WORDS: dict[str, tuple[str, ...]] = {
    "natural": tuple(_NATURAL.split()),
    "compact": tuple(_COMPACT.split()),
    "pairs": tuple(_COMPACT.split()),
}

# Stand for the values in a solution.
LETTERS: tuple[str, ...] = tuple(string.ascii_letters)
LETTER_SET = frozenset(LETTERS)

CATEGORIES: dict[str, tuple[str, str, str, str]] = {
    "harbour": ("Harbours", "Ships", "Crates", "Tools"),
    "orchestra": ("Orchestras", "Sections", "Cases", "Accessories"),
    "galaxy": ("Galaxies", "Systems", "Planets", "Minerals"),
    "farm": ("Farms", "Fields", "Beds", "Insects"),
    "kitchen": ("Kitchens", "Shelves", "Jars", "Spices"),
    "city": ("Cities", "Depots", "Vehicles", "Parts"),
}


def read_pools(text: str) -> tuple[tuple[str, ...], ...]:
    """Read the words that follow each theme: "a theme: Oak Elm" gives (("Oak", "Elm"),). A theme begins a line."""
    return tuple(tuple(words.split()) for words in re.split(r"^.*:", text, flags=re.MULTILINE)[1:])


NOUNS: dict[str, tuple[tuple[str, ...], ...]] = {category: read_pools(text) for category, text in POOLS.items()}

CATEGORY_OF: dict[str, str] = {noun: category for category, pools in NOUNS.items() for pool in pools for noun in pool}


def is_symbol(token: str) -> bool:
    """Return whether a token can stand for a value in a solution: a letter, or a pair that is one token."""
    return token in LETTER_SET or read_pair(token) is not None


def read_pair(token: str) -> tuple[str, str] | None:
    """Return the two words of a pair that is one token, None for any other token."""
    owner, _, owned = token.partition(JOINT)
    return (owner, owned) if owner in CATEGORY_OF and (owned in CATEGORY_OF or owned in NOUNS) else None
