"""The closed vocabulary of a difficulty and a format: strings to token ids and back.

Ids, in this order: special tokens (`<pad>` is 0), function words, numbers, letters, category words, nouns; in the
format "pairs", pairs in place of category words and nouns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Int64

from tasks.config import choose
from tasks.igsm.difficulty import Difficulty
from tasks.igsm.words import CATEGORIES, FUNCTION_WORDS, JOINT, LETTERS, NOUNS, SPECIAL

DEPTH = 4
"""Categories of a domain."""


@dataclass(frozen=True)
class Language:
    """A vocabulary, in the order of its ids."""

    difficulty: Difficulty
    format: str
    modulus: int

    @property
    def categories(self) -> tuple[str, ...]:
        """Category words, four per domain."""
        domains = list(CATEGORIES.values())[: self.difficulty.domains]
        return tuple(category for domain in domains for category in domain)

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """Special tokens, function words, numbers, letters, then category words and nouns, or pairs."""
        numbers = tuple(str(number) for number in range(self.modulus))
        names = ((), self.pairs) if self.format == "pairs" else (self.categories, self.nouns)
        return SPECIAL, FUNCTION_WORDS[self.format], numbers, LETTERS, *names

    @property
    def nouns(self) -> tuple[str, ...]:
        """Nouns, category by category."""
        return tuple(noun for category in self.categories for noun in self._nouns_of(category))

    @property
    def pairs(self) -> tuple[str, ...]:
        """Every owner with each noun one category below and with each category below, in that order."""
        found = []
        for start in range(0, len(self.categories), DEPTH):
            domain = self.categories[start : start + DEPTH]
            for level, category in enumerate(domain[:-1], 1):
                owned = (*self._nouns_of(domain[level]), *domain[level:])
                found += [f"{owner}{JOINT}{y}" for owner in self._nouns_of(category) for y in owned]
        return tuple(found)

    def _nouns_of(self, category: str) -> tuple[str, ...]:
        pools = NOUNS[category][: self.difficulty.pools]
        return tuple(noun for pool in pools for noun in pool[: self.difficulty.pool_size])

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every token as a string; its index is its id."""
        return tuple(word for part in self.parts for word in part)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {word: number for number, word in enumerate(self.vocabulary)}

    def encode(self, text: str | Sequence[str]) -> Int64[np.ndarray, " pos"]:
        """Return the ids of tokens, or of a text with spaces between them.

        Raises `ConfigError` for a token that is not of this vocabulary, naming the nearest one.
        """
        tokens = text.split() if isinstance(text, str) else text
        for token in tokens:
            if token not in self.ids:
                choose("iGSM token", token, self.ids)
        return np.array([self.ids[token] for token in tokens], np.int64)

    def decode(self, ids: Int64[np.ndarray, " pos"]) -> list[str]:
        """Return ids as tokens, without the padding."""
        return [self.vocabulary[number] for number in ids.tolist() if number != 0]


@lru_cache
def language(difficulty: Difficulty, format: str, modulus: int) -> Language:
    """Return the vocabulary, made once."""
    return Language(difficulty, format, modulus)
