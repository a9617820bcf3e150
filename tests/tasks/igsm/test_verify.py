"""The verifier: right solutions pass, and every kind of wrong one fails for what is wrong with it."""

import random
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.igsm import IGSMTask
from tasks.igsm.problem import Problem
from tasks.igsm.verify import ERRORS, verify
from tasks.igsm.words import LETTERS
from tests.tasks.igsm.by_hand import PROBLEMS

pytestmark = pytest.mark.slow

FORMATS = ("natural", "compact", "pairs")
TASKS = {
    "natural": IGSMTask(ops="15", format="natural", length=1023),
    "compact": IGSMTask(ops="<=15", format="compact", length=1023),
    "hard": IGSMTask(ops="24", difficulty="hard", split="test", length=1023),
    "toy": IGSMTask(ops="<=4", difficulty="toy", format="compact", length=128),
    "pairs": IGSMTask(ops="<=6", difficulty="mini", format="pairs", letters="ordered", length=200),
}


@cache
def generated(name, size):
    """(prompt, solution, Problem) of generated problems, and how many operations each was asked to have."""
    task = TASKS[name]
    rows = task.prompts(size, np.random.default_rng(5))
    words = [(task.decode(rows.prompt(i)), task.decode(rows.solution(i))) for i in range(size)]
    return [(p, s, Problem.parse(p, task.language.modulus)) for p, s in words], rows.ops.tolist()


def judge(solution, prompt="Bergen Frigate = 3 . Bergen Corvette = 4 . Bergen Ships ?", flat=False):
    return verify(Problem.parse(prompt.split(), 23, flat=flat), solution.split())


# Right solutions


@pytest.mark.parametrize("format", FORMATS)
def test_the_solution_by_hand_passes(format):
    prompt, solution = PROBLEMS[format]
    verdict = verify(Problem.parse(prompt, 23), solution)
    assert verdict == (True, True, (), 0)
    assert verdict.strict
    assert verdict.minimal


@pytest.mark.parametrize("name", TASKS)
def test_generated_solutions_pass(name):
    """60 of each kind. Their ops, from the prompt alone, are those that the generator was asked for."""
    rows, ops = generated(name, 60)
    for (_, solution, problem), asked in zip(rows, ops, strict=True):
        assert verify(problem, solution) == (True, True, (), 0)
        assert problem.ops == asked


# Wrong solutions


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        ("B = 5 + a = 5 + 3 = 8", "B = 6 + a = 6 + 3 = 9", "wrong operator or constant"),
        ("a = 3 .", "a = 4 .", "wrong operator or constant"),
        ("B = 5 + a = 5 + 3 = 8", "B = 5 + a = 4 + 3 = 7", "wrong copied value"),
        ("c = a - B = 3 - 8 = 18", "c = a + B = 3 + 8 = 11", "wrong operator or constant"),
        ("c = a - B = 3 - 8 = 18", "c = B - a = 8 - 3 = 5", "wrong operator or constant"),
        ("h = d + g = 15 + 18 = 10", "h = d + g = 15 * 18 = 10", "wrong operator or constant"),
        ("c = a - B = 3 - 8 = 18", "c = a = 3", "missing dependency"),
        ("f = c = 18", "f = a = 3", "missing dependency"),
        ("f = c = 18", "f = c + a = 18 + 3 = 21", "extra dependency"),
        ("f = c = 18", "f = c = 17", "wrong copied value"),
        ("h = d + g = 15 + 18 = 10", "h = d + g = 15 + 18 = 11", "wrong arithmetic"),
        ("f = c = 18", "f = z = 18", "undefined symbol"),
        ("j = a * f = 3 * 18 = 8", "B = a * f = 3 * 18 = 8", "duplicate symbol"),
        ("<ans> 19", "<ans> 18", "wrong copied value"),
        ("<ans> 19 ", "", "format"),
        (" <eos>", "", "format"),
    ],
)
def test_a_changed_clause_fails_for_its_reason(format, right, wrong, error):
    prompt, solution = PROBLEMS[format]
    written = " ".join(solution)
    assert right in written
    verdict = verify(Problem.parse(prompt, 23), written.replace(right, wrong).split())
    assert set(verdict.errors) == {error}
    assert not verdict.minimal


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("change", "errors"),
    [
        (lambda steps: [*steps[:3], steps[4], steps[3], *steps[5:]], ()),
        (lambda steps: [re.sub(r"\b[a-kB]\b", lambda letter: letter[0].swapcase(), step) for step in steps], ()),
        (lambda steps: [*steps[:5], *steps[6:]], ("undefined symbol",)),
        (lambda steps: [steps[1], steps[0], *steps[2:]], ("undefined symbol",)),
        (lambda steps: [steps[0], re.sub(r"\ba\b", "z", steps[0]), *steps[1:]], ("redefinition",)),
        (lambda steps: [*steps[:-2], steps[-1]], ("query not last",)),
        (
            lambda steps: [re.sub(r"Corvette(\W.{,3}EelBox)", r"Frigate\1", step) for step in steps],
            ("nonexistent parameter",),
        ),
    ],
)
def test_changed_steps_by_hand(format, change, errors):
    """Other orders and letters are right; a step that is missing, early, repeated or of no parameter is not."""
    prompt, solution = PROBLEMS[format]
    written = " . ".join(change(" ".join(solution).split(" . "))).split()
    assert verify(Problem.parse(prompt, 23), written).errors == errors


@pytest.mark.parametrize("name", TASKS)
def test_no_single_token_can_be_changed_unseen(name):
    """Any token for any other of the row, the letters and the numbers: a solution of as many tokens is never right."""
    rng = random.Random(0)
    for prompt, solution, problem in generated(name, 60)[0][:40]:
        words = sorted({*prompt, *solution, *LETTERS[:5], *map(str, range(problem.modulus))})
        for t in rng.sample(range(len(solution)), min(25, len(solution))):
            other = rng.choice([word for word in words if word != solution[t]])
            written = [*solution[:t], other, *solution[t + 1 :]]
            assert not verify(problem, written).strict, f"{' '.join(prompt)}\n{' '.join(written)}"


@given(st.data())
def test_what_passes_is_true_however_it_came_about(data):
    """Solutions with pieces moved, copied, dropped and renamed: none upsets the verifier, and what it lets pass
    has, read plainly, true values everywhere and the query in the end.
    """
    prompt, solution, problem = data.draw(st.sampled_from(generated("compact", 60)[0][:60]))
    words = list(solution)
    for _ in range(data.draw(st.integers(0, 3))):
        start, size, to = (data.draw(st.integers(0, len(words))) for _ in range(3))
        piece = words[start : start + size % 20]
        how = data.draw(st.sampled_from(["move", "copy", "drop", "rename"]))
        if how in ("move", "drop"):
            del words[start : start + size % 20]
        if how in ("move", "copy"):
            words[to:to] = piece
        if how == "rename":
            old, new = (data.draw(st.sampled_from([*solution, *prompt])) for _ in range(2))
            words = [new if word == old else word for word in words]
    verdict = verify(problem, words)
    assert set(verdict.errors) <= set(ERRORS)
    if verdict.strict:
        steps = " ".join(words[: words.index("<ans>")]).removesuffix(" .").split(" . ")
        for step in steps:
            owner, owned, *_, value = step.split()
            assert str(problem.values[owner, owned]) == value
        assert tuple(steps[-1].split()[:2]) == problem.query
        assert words[words.index("<ans>") :][:3] == ["<ans>", str(problem.answer), "<eos>"]
        assert verdict.lenient
        assert verdict.final


@pytest.mark.parametrize("format", FORMATS)
def test_a_solution_in_the_other_format_is_not_read(format):
    other = FORMATS[FORMATS.index(format) - 1]
    verdict = verify(Problem.parse(PROBLEMS[format][0], 23), PROBLEMS[other][1])
    assert verdict.errors == ("format",)
    assert not verdict.lenient


@pytest.mark.parametrize(
    ("solution", "errors"),
    [
        # Nothing, or nothing but the answer.
        ("", ("format",)),
        ("<eos>", ("format",)),
        ("<ans> 7 <eos>", ("query not last",)),
        # An end that is not ANS, a number, EOS.
        ("Bergen Frigate a ; a = 3 . <ans> 3 4 <eos>", ("format",)),
        ("Bergen Frigate a ; a = 3 . <ans> <eos>", ("format",)),
        ("Bergen Frigate a ; a = 3 . <ans> a <eos>", ("format",)),
        # The letter of the header is not the one that the last clause gives.
        ("Bergen Frigate a ; b = 3 . <ans> 3 <eos>", ("format",)),
        ("Bergen Frigate a . <ans> 3 <eos>", ("format",)),
        (". <ans> 3 <eos>", ("format",)),
        # A constant is not repeated, and the last clause alone may be a constant or a copy.
        ("Bergen Frigate a ; a = 3 = 3 . <ans> 3 <eos>", ("format",)),
        ("Bergen Frigate a ; b = 3 ; a = b = 3 . <ans> 3 <eos>", ("format",)),
        # A step is judged by its first error, each step for itself.
        (
            "Bergen Frigate a ; a = 4 . Bergen Corvette b ; b = a = 4 . <ans> 4 <eos>",
            ("wrong operator or constant", "extra dependency", "query not last"),
        ),
        # A value in place of a letter.
        (
            "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 4 . "
            "Bergen Ships c ; c = 3 + b = 3 + 4 = 7 . <ans> 7 <eos>",
            ("missing dependency",),
        ),
        # Parameters that the prompt has no place for.
        ("Bergen Crates a ; a = 0 . <ans> 7 <eos>", ("nonexistent parameter",)),
        ("Tromso Ships a ; a = 0 . <ans> 7 <eos>", ("nonexistent parameter",)),
        ("Ladybird Scarab a ; a = 0 . <ans> 7 <eos>", ("nonexistent parameter",)),
    ],
)
def test_errors_by_hand(solution, errors):
    assert judge(solution).errors == errors


# The three accuracies


def test_lenient_asks_only_for_the_query_and_its_value():
    lucky = "Bergen Ships c ; c = x * q = 1 + 1 = 7 ."
    assert judge(lucky) == (True, False, ("undefined symbol", "format"), 0)
    assert judge(f"{lucky} <ans> 6 <eos>") == (True, False, ("undefined symbol", "wrong copied value"), 0)
    assert judge(f"garbage . {lucky} garbage") == (True, False, ("format",), 0)
    assert not judge("Bergen Ships c ; c = 6 . <ans> 7 <eos>").lenient
    assert not judge("Bergen Frigate c ; c = 7 . <ans> 7 <eos>").lenient
    assert not judge("Bergen Ships c ; c = x * q = 1 + 1 = 7").lenient, "the step does not end"


def test_final_asks_only_for_the_value_behind_ans():
    assert judge("garbage . <ans> 7 <eos>").final
    assert judge("<ans> 7").final
    assert not judge("<ans>").final
    assert not judge("7 <eos>").final
    assert not judge("<eos> <ans> 7").final


def test_what_stands_behind_the_end_is_not_read():
    steps = "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 4 . Bergen Ships c ; c = a + b = 3 + 4 = 7 ."
    solution = f"{steps} <ans> 7 <eos>"
    assert judge(f"{solution} <pad> <pad>").strict
    assert judge(f"{solution} <eos> Bergen").strict
    assert not judge(f"<pad> {solution}").strict


# Unnecessary parameters


def test_abstract_parameters_nobody_speaks_of_may_be_computed():
    prompt = "Bergen Frigate = 3 . Bergen Corvette = 4 . Frigate CodBox = 5 . Bergen Frigate ?"
    extra = "Corvette Crates c ; c = 0 . Frigate CodBox d ; d = 5 . Frigate Crates f ; f = d = 5 ."
    verdict = judge(f"{extra} Bergen Frigate a ; a = 3 . <ans> 3 <eos>", prompt)
    assert verdict == (True, True, (), 3)
    assert verdict.strict
    assert not verdict.minimal
    assert judge(f"Bergen Frigate a ; a = 3 . {extra} <ans> 3 <eos>", prompt).errors == ("query not last",)


# igsm_flat

FLAT = "Bergen Frigate = 3 . Frigate CodBox = 2 * Bergen Frigate . Bergen Corvette = 4 . Frigate CodBox ?"


@pytest.mark.parametrize(
    ("solution", "errors"),
    [
        ("Bergen Frigate a ; a = 3 . Frigate CodBox b ; b = 2 * a = 2 * 3 = 6 . <eos>", ()),
        # The query need not be last.
        ("Bergen Frigate a ; a = 3 . Frigate CodBox b ; b = 2 * a = 2 * 3 = 6 . Bergen Corvette c ; c = 4 . <eos>", ()),
        ("Bergen Frigate a ; a = 3 . Bergen Corvette c ; c = 4 . <eos>", ("query not last",)),
        ("Bergen Frigate a ; a = 3 . Frigate CodBox b ; b = 2 * a = 2 * 3 = 6 . <ans> 6 <eos>", ("format",)),
        ("Bergen Frigate a ; a = 3 . Bergen Ships b ; b = a = 3 . <eos>", ("nonexistent parameter",)),
    ],
)
def test_flat_solutions_end_without_an_answer(solution, errors):
    verdict = judge(solution, FLAT, flat=True)
    assert verdict.errors == errors
    assert verdict.lenient == verdict.final == ("= 6 ." in solution)
    assert verdict.unnecessary == solution.count("Bergen Corvette c")


def test_generated_flat_solutions_pass():
    task = IGSMTask(kind="igsm_flat", length=1023)
    rows = task.prompts(200, np.random.default_rng(0))
    for i in range(60):
        problem = Problem.parse(task.decode(rows.prompt(i)), 23, flat=True)
        verdict = verify(problem, task.decode(rows.solution(i)))
        assert verdict == (True, True, (), len(problem.stated) - len(problem.necessary))
        assert sum(definition.cost for definition in problem.definitions.values()) == rows.ops[i]


def test_a_part_goes_by_a_letter_even_where_values_go_by_their_pair():
    stated = "<bos> Frigate/AppleCrate = 5 + ( Cruiser/PearCrate + Frigate/PearCrate ) . Cruiser/PearCrate = 1 . "
    stated += "Frigate/PearCrate = 2 . Frigate/AppleCrate ? <sol>"
    problem = Problem.parse(stated.split(), 7)
    known = "Cruiser/PearCrate ; Cruiser/PearCrate = 1 . Frigate/PearCrate ; Frigate/PearCrate = 2 . "
    step = "Frigate/AppleCrate ; {0} = Cruiser/PearCrate + Frigate/PearCrate = 1 + 2 = 3 ; "
    step += "Frigate/AppleCrate = 5 + {0} = 5 + 3 = 1 . <ans> 1 <eos>"
    assert verify(problem, (known + step.format("a")).split()).strict
    assert "format" in verify(problem, (known + step.format("Frigate/Crates")).split()).errors
