"""The words of iGSM problems and their token ids. No word has two meanings.

A domain names four categories, from top to bottom: harbours have ships, ships have crates, crates have
tools. A category has five pools of 20 nouns, each with a theme. A problem uses one domain, some neighbouring
categories of it, and one pool of each category:

    The number of each Bergen 's Sloop equals 5 more than each Bergen 's Ketch .

Numbers are the words "0", "1", ... below the modulus.

Source: the scheme of Ye et al. 2024, arXiv 2407.20311, with a vocabulary of our own.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from tasks.config import choose
from tasks.igsm.difficulty import Difficulty

SPECIAL = ("<pad>", "<bos>", "<sol>", "<ans>", "<eos>")

JOINT = "/"
"""Joins the two words of a pair that is one token: "Sloop/TeaChest"."""

_NATURAL = (
    "The number of each 's equals the sum and difference more than times as much How many does have Define so "
    ". , ? ; = + - *"
)
_COMPACT = ". ? ; = + - * ( )"

# Function words and punctuation of each format.
FUNCTION_WORDS: dict[str, tuple[str, ...]] = {
    "natural": tuple(_NATURAL.split()),
    "compact": tuple(_COMPACT.split()),
    "pairs": tuple(_COMPACT.split()),
}

# Letters stand for values in a solution.
LETTERS: tuple[str, ...] = tuple(string.ascii_letters)

CATEGORIES: dict[str, tuple[str, str, str, str]] = {
    "harbour": ("Harbours", "Ships", "Crates", "Tools"),
    "orchestra": ("Orchestras", "Sections", "Cases", "Accessories"),
    "galaxy": ("Galaxies", "Systems", "Planets", "Minerals"),
    "farm": ("Farms", "Fields", "Beds", "Insects"),
    "kitchen": ("Kitchens", "Shelves", "Jars", "Spices"),
    "city": ("Cities", "Depots", "Vehicles", "Parts"),
}


def read_nouns(text: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Read the pools of each category: an empty line, the category, then lines such as "a theme: Oak Elm"."""
    nouns = {}
    for block in text.rstrip().split("\n\n")[1:]:
        category, *pools = block.splitlines()
        nouns[category] = tuple(tuple(pool.partition(":")[2].split()) for pool in pools)
    return nouns


NOUNS = read_nouns(Path(__file__).with_name("nouns.txt").read_text(encoding="utf-8"))

CATEGORY_OF: dict[str, str] = {}
for _category, _pools in NOUNS.items():
    CATEGORY_OF |= dict.fromkeys(chain(*_pools), _category)


def read_pair(token: str) -> tuple[str, str] | None:
    """Return the two words of a pair that is one token, or None for any other token."""
    owner, _, owned = token.partition(JOINT)
    if owner in CATEGORY_OF and (owned in CATEGORY_OF or owned in NOUNS):
        return owner, owned
    return None


@dataclass(frozen=True)
class Language:
    """The closed vocabulary of a difficulty and a format: maps strings to token ids and back.

    Ids are in this order: special tokens (`<pad>` is 0), function words, numbers, letters, category words, nouns. The
    format "pairs" has pairs in place of category words and nouns.
    """

    difficulty: Difficulty
    format: str
    modulus: int

    @property
    def categories(self) -> tuple[str, ...]:
        """Category words, four per domain."""
        domains = list(CATEGORIES.values())[: self.difficulty.domains]
        return tuple(chain(*domains))

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """Words of each kind, in the order of the class's docstring; the format "pairs" has no category words."""
        numbers = tuple(map(str, range(self.modulus)))
        categories, names = self.categories, self.nouns
        if self.format == "pairs":
            categories, names = (), self.pairs
        return SPECIAL, FUNCTION_WORDS[self.format], numbers, LETTERS, categories, names

    @property
    def nouns(self) -> tuple[str, ...]:
        """Nouns, category by category."""
        return tuple(chain(*map(self._nouns_of, self.categories)))

    @property
    def pairs(self) -> tuple[str, ...]:
        """Pairs of every owner with each noun one category below, then with each category below."""
        pairs: list[str] = []
        for domain in list(CATEGORIES.values())[: self.difficulty.domains]:
            for level, category in enumerate(domain[:-1], 1):
                owned = (*self._nouns_of(domain[level]), *domain[level:])
                pairs += [f"{owner}{JOINT}{y}" for owner in self._nouns_of(category) for y in owned]
        return tuple(pairs)

    def _nouns_of(self, category: str) -> tuple[str, ...]:
        pools = NOUNS[category][: self.difficulty.pools]
        return tuple(chain(*(pool[: self.difficulty.pool_size] for pool in pools)))

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every token as a string; its index is its id."""
        return tuple(chain(*self.parts))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {word: number for number, word in enumerate(self.vocabulary)}

    def encode(self, text: str | Sequence[str]) -> Int64[np.ndarray, " pos"]:
        """Return the ids of tokens, or of a text with spaces between tokens.

        Raises `ConfigError` for a token outside this vocabulary, and names the nearest one.
        """
        tokens = text.split() if isinstance(text, str) else text
        for token in tokens:
            if token not in self.ids:
                choose("iGSM token", token, self.ids)
        return np.array([self.ids[token] for token in tokens], np.int64)

    def decode(self, ids: Int64[np.ndarray, " pos"]) -> list[str]:
        """Return ids as tokens, without the padding."""
        return [self.vocabulary[number] for number in ids.tolist() if number != 0]


language = lru_cache(Language)
"""Return the vocabulary, which is built once."""
