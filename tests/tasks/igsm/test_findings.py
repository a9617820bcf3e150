"""Findings, a step each: by hand, and together against the verdict on the whole."""

import numpy as np
import pytest

from tasks import IGSMTask
from tasks.igsm.problem import Problem
from tasks.igsm.verify import ERRORS, findings, verify

FINE = ["no error"] * 4
COMPACT = Problem.parse("Sloop TeaChest = 5 . Sloop SilkChest = 4 + Sloop TeaChest . Sloop Crates ?".split(), 7)
RIGHT = (
    "Sloop TeaChest k ; k = 5 . Sloop SilkChest b ; b = 4 + k = 4 + 5 = 2 . Sloop Crates P ; P = k + b = 5 + 2 = 0 . "
    "<ans> 0 <eos>"
)
FLAT = Problem.parse("Bergen Sloop = 3 . Sloop Bergen = 4 * Bergen Sloop . Sloop Bergen ?".split(), 7, flat=True)


@pytest.mark.parametrize(
    ("problem", "solution", "expected"),
    [
        (COMPACT, RIGHT, FINE),
        # 4 + 5 = 9 = 2 modulo 7, not 3; the wrong 3 is carried on to 5 + 3 = 1
        (
            COMPACT,
            "Sloop TeaChest k ; k = 5 . Sloop SilkChest b ; b = 4 + k = 4 + 5 = 3 . "
            "Sloop Crates P ; P = k + b = 5 + 3 = 1 . <ans> 1 <eos>",
            ["no error", "wrong arithmetic", "no error", "no error; the answer is 0"],
        ),
        (COMPACT, RIGHT.replace("k = 5 .", "k = 4 .", 1), ["wrong operator or constant", *FINE[1:]]),
        (COMPACT, RIGHT.replace("<ans> 0", "<ans> 1"), [*FINE[:3], "wrong copied value; the answer is 0"]),
        (COMPACT, RIGHT.removesuffix(" <eos>"), [*FINE[:3], "format"]),
        (COMPACT, RIGHT.removesuffix(" <ans> 0 <eos>"), [*FINE[:3], "format; the answer is 0"]),
        (COMPACT, RIGHT.replace("b ; b", "b ; ;"), ["no error", "format", "not judged", "not judged"]),
        (COMPACT, "Sloop TeaChest k ; k = 5 . <ans> 0 <eos>", ["no error", "query not last"]),
        (COMPACT, "<eos>", ["format; the answer is 0"]),
        (
            FLAT,
            "Bergen Sloop a ; a = 3 . Sloop Bergen b ; b = 4 * a = 4 * 3 = 5 . <eos>",
            FINE[:3],
        ),
    ],
)
def test_findings_by_hand(problem, solution, expected):
    assert findings(problem, solution.split()) == expected


def test_a_right_step_that_the_query_does_not_rest_on_says_so():
    asks_sloop = Problem.parse("Riga Ketch = 7 . Bergen Sloop = 3 . Bergen Sloop ?".split(), 23)
    solution = "Riga Ketch a ; a = 7 . Bergen Sloop b ; b = 3 . <ans> 3 <eos>"
    assert findings(asks_sloop, solution.split()) == ["no error, not needed", "no error", "no error"]


@pytest.mark.parametrize("format", ["natural", "compact"])
def test_together_the_findings_are_the_errors_of_the_whole(format):
    """On solutions with one to three tokens replaced, dropped or doubled."""
    task = IGSMTask(difficulty="toy", ops="<=4", format=format, length=300)
    rng = np.random.default_rng(1)
    problems = task.prompts(150, rng)
    wrong = 0
    for row in range(150):
        problem = Problem.parse(task.decode(problems.prompt(row)), 7)
        solution = task.decode(problems.solution(row))
        for _ in range(rng.integers(1, 4)):
            at, other = rng.integers(0, len(solution), 2)
            change = ([solution[other]], [], 2 * [solution[at]])[rng.integers(3)]
            solution[at : at + 1] = change
        found = findings(problem, solution)
        named = [part for finding in found for part in finding.partition(";")[0].split(", ") if part in ERRORS]
        assert named == list(verify(problem, solution).errors)
        wrong += bool(named)
    assert wrong > 75
