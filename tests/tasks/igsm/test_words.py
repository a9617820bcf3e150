"""The words of iGSM: how many, no two alike, each a single token."""

from collections import Counter

import pytest

from tasks.igsm.words import CATEGORIES, FUNCTION_WORDS, LETTERS, NOUNS, SPECIAL

CATEGORY_WORDS = [category for categories in CATEGORIES.values() for category in categories]


@pytest.mark.parametrize("form", FUNCTION_WORDS)
def test_no_word_of_the_vocabulary_has_two_meanings(form):
    nouns = [noun for pools in NOUNS.values() for pool in pools for noun in pool]
    numbers = [str(number) for number in range(100)]
    words = [*SPECIAL, *FUNCTION_WORDS[form], *LETTERS, *numbers, *CATEGORY_WORDS, *nouns]
    assert [word for word, count in Counter(words).items() if count > 1] == []
    assert len(nouns) == 2400
