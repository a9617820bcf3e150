"""The words of iGSM: how many, no two alike, each a single token."""

from collections import Counter

import pytest

from tasks.igsm.words import CATEGORIES, CATEGORY_OF, FUNCTION_WORDS, LETTERS, NOUNS, SPECIAL, read_pools

CATEGORY_WORDS = [category for categories in CATEGORIES.values() for category in categories]


def test_pools_are_read_by_theme():
    assert read_pools("\n  one theme: A B\n    C\n  another: D\n") == (("A", "B", "C"), ("D",))


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


def test_every_word_is_one_word():
    every = (*SPECIAL, *LETTERS, *CATEGORY_OF, *CATEGORY_WORDS, *FUNCTION_WORDS["natural"], *FUNCTION_WORDS["compact"])
    assert [word for word in every if word.split() != [word]] == []


def test_the_padding_comes_first():
    assert SPECIAL == ("<pad>", "<bos>", "<sol>", "<ans>", "<eos>")


def test_letters_are_the_52_of_the_alphabet():
    assert len(set(LETTERS)) == 52
    assert all(letter.isascii() and letter.isalpha() and len(letter) == 1 for letter in LETTERS)


def test_a_nouns_category_is_the_one_that_lists_it():
    assert CATEGORY_OF["Bergen"] == "Harbours"
    assert CATEGORY_OF["Frigate"] == "Ships"
    assert CATEGORY_OF["Radiator"] == "Parts"
    assert sorted(CATEGORY_OF) == sorted(noun for pools in NOUNS.values() for pool in pools for noun in pool)
    assert all(any(noun in pool for pool in NOUNS[category]) for noun, category in CATEGORY_OF.items())


@pytest.mark.parametrize("form", FUNCTION_WORDS)
def test_a_sentence_of_the_format_is_in_its_vocabulary(form):
    sentences = {
        "natural": "The number of each Bergen 's Sloop equals 3 times as much as the difference of "
        "each Bergen 's Ketch and each Sloop 's Tools . How many Tools does each Bergen have ? "
        "Define Bergen 's Sloop as v ; w = a - b = 3 - 4 = 6 ; so v = 3 * w = 3 * 6 = 4 . "
        "5 more than the sum of each Sloop 's Ketch , + ",
        "compact": "Bergen Sloop = 3 * ( Bergen Ketch - Sloop Tools ) . Bergen Tools ? a = b + c = 1 + 2 = 3 ;",
        "pairs": "a = b + c = 1 + 2 = 3 ; . ? ( ) - *",  # pairs themselves are the language's
    }
    numbers = {str(number) for number in range(23)}
    known = {*SPECIAL, *FUNCTION_WORDS[form], *LETTERS, *numbers, *CATEGORY_WORDS, *CATEGORY_OF}
    assert set(sentences[form].split()) <= known
    assert set(FUNCTION_WORDS[form]) <= set(sentences[form].split())
