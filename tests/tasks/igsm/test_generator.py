"""Generated problems against the rules of iGSM and the official generator's numbers. (Solutions:
`test_verify.py`.)
"""

import hashlib
import re
import string
from functools import cache

import numpy as np
import pytest

from tasks.igsm import IGSMTask
from tasks.igsm.problem import Problem
from tasks.igsm.words import CATEGORY_OF

pytestmark = pytest.mark.slow

TASKS = {
    "med": {"ops": "<=15", "length": 1024},
    "op 15": {"ops": "15", "length": 1024},
    "hard": {"ops": "24", "difficulty": "hard", "length": 1024},
    "toy": {"ops": "<=4", "difficulty": "toy", "length": 128},
    "test": {"ops": "<=15", "split": "test", "length": 1024},
    "flat": {"kind": "igsm_flat", "ops": "<=21", "length": 1024},
}


@cache
def drawn(name, size=400):
    """Problems with their steps, each a header X Y v and clauses, and the number of operations."""
    task = IGSMTask(**TASKS[name], format="compact")
    rows = task.prompts(size, np.random.default_rng(0))
    texts = [" ".join(task.decode(rows.solution(row))) for row in range(size)]
    steps = [[step.split(" ; ") for step in re.split(r" \. ", text)[:-1]] for text in texts]
    modulus, flat = task.language.modulus, task.flat
    problems = [
        Problem.parse(task.decode(rows.prompt(row)), modulus, flat=flat) for row in range(size)
    ]
    return list(zip(problems, steps, rows.ops.tolist(), strict=True))


# The split


def template(steps):
    """The solution with I and A for names, 0 for numbers and a, b, c, ... for letters."""
    letters, text = {}, ""
    for header, *clauses in steps:
        _, owned, letter = header.split()
        text += "I" if owned in CATEGORY_OF else "A"
        for word in re.findall(r"\d+|.", ";".join([letter, *clauses]).replace(" ", "")):
            if word in string.ascii_letters:
                text += letters.setdefault(word, string.ascii_letters[len(letters)])
            else:
                text += "0" if word.isdigit() else word
        text += "."
    return text


@pytest.mark.parametrize("name", TASKS)
def test_the_hash_of_the_template_says_the_split(name):
    for _, steps, ops in drawn(name):
        if ops >= 3:
            bucket = int(hashlib.sha256(template(steps).encode()).hexdigest(), 16) % 23
            assert (bucket >= 16) == (name == "test")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("ops", ["1", "2"])
def test_with_few_operations_the_hash_of_the_row_says_the_split(ops, split):
    task = IGSMTask(ops=ops, difficulty="toy", format="compact", length=128, split=split)
    problems = task.prompts(100, np.random.default_rng(0))
    for tokens, size in zip(problems.tokens.tolist(), problems.size, strict=True):
        message = b"".join(token.to_bytes(2, "big") for token in tokens[:size])
        bucket = int(hashlib.sha256(message).hexdigest(), 16) % 23
        assert (bucket >= 16) == (split == "test")


# The distribution


@pytest.mark.parametrize(
    ("name", "sentences", "steps"),
    [
        ("op 15", (4, 6, 8, 10, 13, 17, 20), (7, 8, 10, 11, 13, 14, 15)),
        ("hard", (6, 7, 10, 13, 17, 23, 28), (10, 11, 14, 16, 18, 20, 24)),
    ],
)
def test_quantiles_are_those_of_the_official_generator(name, sentences, steps):
    """At 0/5/25/50/75/95/100 %, within the bands of Dvoretzky, Kiefer and Wolfowitz (1e-3, two
    samples of 2000).
    """
    task = IGSMTask(**TASKS[name], format="compact")
    problems = task.prompts(2000, np.random.default_rng(0))
    stops = problems.tokens == task.language.ids["."]
    in_prompt = np.arange(stops.shape[1]) < problems.prompt_size[:, None]
    band = 2 * np.sqrt(np.log(2 / 1e-3) / (2 * 2000))
    for part, expected in ((in_prompt, sentences), (~in_prompt, steps)):
        sizes = (stops & part).sum(axis=1)
        for quantile, size in zip((0, 0.05, 0.25, 0.5, 0.75, 0.95, 1), expected, strict=True):
            assert (sizes < size).mean() - band <= quantile <= (sizes <= size).mean() + band
