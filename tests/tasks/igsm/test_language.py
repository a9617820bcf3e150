"""The vocabulary and the formats: one problem in each, translated into another's words."""

import numpy as np
import pytest

from tasks import ConfigError
from tasks.igsm import IGSMTask
from tasks.igsm.problem import Problem
from tasks.igsm.words import LETTERS, SPECIAL


@pytest.mark.parametrize("fields", [{}, {"kind": "igsm_flat"}, {"difficulty": "hard", "ops": "24"}])
def test_natural_and_compact_rows_state_the_same_problems(fields):
    """(With fewer than 3 operations the split looks at the words, and problems differ.)"""
    read = {}
    for format in ("natural", "compact"):
        task = IGSMTask(**fields, format=format, length=1100)
        problems = task.prompts(300, np.random.default_rng(0))
        for row in np.flatnonzero(problems.ops >= 3).tolist():
            words = task.decode(problems.prompt(row))
            parsed = Problem.parse(words, task.language.modulus, task.flat)
            read.setdefault(row, []).append((parsed.stated, parsed.definitions, parsed.query))
    assert all(natural == compact for natural, compact in read.values())


@pytest.mark.parametrize("format", ["natural", "compact", "pairs"])
def test_ordered_letters_are_the_alphabet_in_order_of_first_use(format):
    fields = {"ops": "8", "difficulty": "toy", "format": format, "length": 500}
    ordered, random = (IGSMTask(**fields, letters=letters) for letters in ("ordered", "random"))
    rows, others = (
        task.prompts(100, np.random.default_rng(0)).tokens for task in (ordered, random)
    )
    for tokens, other in zip(rows, others, strict=True):
        words = ordered.decode(tokens)
        letters = [word for word in words[words.index("<sol>") :] if word in LETTERS]
        assert list(dict.fromkeys(letters)) == list(LETTERS[:8])
        renamed, names = [], {}
        for word in random.decode(other):
            renamed.append(names.setdefault(word, LETTERS[len(names)]) if word in LETTERS else word)
        assert renamed == words


# The vocabulary


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({}, 5 + 29 + 23 + 52 + 24 + 2400),
        ({"modulus": 7, "format": "compact"}, 5 + 9 + 7 + 52 + 24 + 2400),
        (
            {"difficulty": "mini", "ops": "4", "format": "pairs"},
            5 + 9 + 7 + 52 + 3 * 16 + 4 * (3 + 2 + 1),
        ),
    ],
)
def test_the_vocabulary_holds_special_tokens_function_words_numbers_letters_categories_and_nouns(
    fields, size
):
    task = IGSMTask(**fields)
    vocabulary = task.language.vocabulary
    assert len(set(vocabulary)) == len(vocabulary) == task.vocab_size == size
    assert vocabulary[:5] == SPECIAL


def test_an_unknown_word_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no iGSM token 'Bergem'; did you mean 'Bergen'\?"):
        IGSMTask().encode("each Bergem 's Sloop")
