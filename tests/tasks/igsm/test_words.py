"""The words of iGSM: how many, no two alike, each a single token."""

from collections import Counter

import pytest

from tasks.igsm.words import CATEGORIES, CATEGORY_OF, FUNCTION_WORDS, LETTERS, NOUNS, SPECIAL, read_nouns

CATEGORY_WORDS = [category for categories in CATEGORIES.values() for category in categories]


def test_nouns_are_read_by_category_and_theme():
    text = "# a comment\n\nTrees\n  one theme: A B C\n  another: D\n\nBirds\n  one: E\n"
    assert read_nouns(text) == {"Trees": (("A", "B", "C"), ("D",)), "Birds": (("E",),)}


def test_six_domains_of_four_categories_of_five_pools_of_twenty_nouns():
    assert len(CATEGORIES) == 6
    assert all(len(categories) == 4 for categories in CATEGORIES.values())
    assert list(NOUNS) == CATEGORY_WORDS
    assert [[len(pool) for pool in pools] for pools in NOUNS.values()] == [[20] * 5] * 24


@pytest.mark.parametrize("form", FUNCTION_WORDS)
def test_no_word_of_the_vocabulary_has_two_meanings(form):
    nouns = [noun for pools in NOUNS.values() for pool in pools for noun in pool]
    numbers = [str(number) for number in range(100)]
    words = [*SPECIAL, *FUNCTION_WORDS[form], *LETTERS, *numbers, *CATEGORY_WORDS, *nouns]
    assert [word for word, count in Counter(words).items() if count > 1] == []
    assert len(nouns) == 2400


def test_nouns_and_categories_differ_by_more_than_capitals():
    function_words = {word.lower() for word in FUNCTION_WORDS["natural"]}
    words = [*function_words, *(word.lower() for word in (*CATEGORY_OF, *CATEGORY_WORDS))]
    assert [word for word, count in Counter(words).items() if count > 1] == []


def test_nouns_and_categories_are_capitalised_words_of_plain_letters():
    odd = [
        word
        for word in (*CATEGORY_OF, *CATEGORY_WORDS)
        if not (word.isascii() and word.isalpha() and word[0].isupper() and len(word) > 1)
    ]
    assert odd == []


def test_a_nouns_category_is_the_one_that_lists_it():
    assert CATEGORY_OF["Bergen"] == "Harbours"
    assert CATEGORY_OF["Frigate"] == "Ships"
    assert CATEGORY_OF["Radiator"] == "Parts"
    assert sorted(CATEGORY_OF) == sorted(noun for pools in NOUNS.values() for pool in pools for noun in pool)
    assert all(any(noun in pool for pool in NOUNS[category]) for noun, category in CATEGORY_OF.items())
