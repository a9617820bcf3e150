"""The verifier: right solutions pass, and every kind of wrong one fails for what is wrong with it."""

import random
from functools import cache

import numpy as np
import pytest

from figures.table4.verify import ERRORS, findings, verify
from tasks.igsm import IGSMTask
from tasks.igsm.problem import Problem
from tasks.igsm.words import LETTERS
from tests.tasks.igsm.by_hand import PROBLEMS

pytestmark = pytest.mark.slow

TASKS = {
    "natural": IGSMTask(ops="15", format="natural", length=1023),
    "compact": IGSMTask(ops="<=15", format="compact", length=1023),
    "pairs": IGSMTask(ops="<=6", difficulty="mini", format="pairs", letters="ordered", length=200),
    "flat": IGSMTask(kind="igsm_flat", length=1023),
}


@cache
def generated(name):
    """(prompt, solution, Problem, operations asked for) of generated problems."""
    task = TASKS[name]
    rows = task.prompts(60, np.random.default_rng(5))
    found = []
    for i, ops in enumerate(rows.ops.tolist()):
        prompt, solution = task.decode(rows.prompt(i)), task.decode(rows.solution(i))
        found.append(
            (prompt, solution, Problem.parse(prompt, task.language.modulus, task.flat), ops)
        )
    return found


SHIPS = "Bergen Frigate = 3 . Bergen Corvette = 4 . Bergen Ships ?"


def judge(solution, prompt=SHIPS, flat=False):
    return verify(Problem.parse(prompt.split(), 23, flat=flat), solution.split())


@pytest.mark.parametrize("format", PROBLEMS)
def test_the_solution_by_hand_passes(format):
    prompt, solution = PROBLEMS[format]
    verdict = verify(Problem.parse(prompt, 23), solution)
    assert verdict == (True, True, (), 0)
    assert verdict.strict
    assert verdict.minimal


@pytest.mark.parametrize("name", TASKS)
def test_generated_solutions_pass_and_have_the_operations_asked_for(name):
    """A flat solution computes everything that is stated."""
    for _, solution, problem, asked in generated(name):
        unnecessary = len(problem.stated) - len(problem.necessary) if problem.flat else 0
        assert verify(problem, solution) == (True, True, (), unnecessary)
        computed = problem.definitions if problem.flat else problem.necessary
        assert sum(problem.definitions[parameter].cost for parameter in computed) == asked


@pytest.mark.parametrize("format", PROBLEMS)
@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        ("B = 5 + a = 5 + 3 = 8", "B = 6 + a = 6 + 3 = 9", "wrong operator or constant"),
        ("B = 5 + a = 5 + 3 = 8", "B = 5 + a = 4 + 3 = 7", "wrong copied value"),
        ("c = a - B = 3 - 8 = 18", "c = B - a = 8 - 3 = 5", "wrong operator or constant"),
        ("f = c = 18", "f = a = 3", "missing dependency"),
        ("f = c = 18", "f = c + a = 18 + 3 = 21", "extra dependency"),
        ("h = d + g = 15 + 18 = 10", "h = d + g = 15 + 18 = 11", "wrong arithmetic"),
        ("f = c = 18", "f = z = 18", "undefined symbol"),
        ("j = a * f = 3 * 18 = 8", "B = a * f = 3 * 18 = 8", "duplicate symbol"),
        ("<ans> 19", "<ans> 18", "wrong copied value"),
        (" <eos>", "", "format"),
    ],
)
def test_a_changed_clause_fails_for_its_reason(format, right, wrong, error):
    prompt, solution = PROBLEMS[format]
    written = " ".join(solution)
    assert right in written
    verdict = verify(Problem.parse(prompt, 23), written.replace(right, wrong).split())
    assert set(verdict.errors) == {error}


@pytest.mark.parametrize("name", TASKS)
def test_no_token_can_be_changed_and_no_piece_can_be_left_out_unseen(name):
    """Any token for any other of the row, the letters and the numbers: never right. Flat solutions
    may leave out a step.
    """
    rng = random.Random(0)
    for prompt, solution, problem, _ in generated(name)[:40]:
        words = sorted({*prompt, *solution, *LETTERS[:5], *map(str, range(problem.modulus))})
        for t in rng.sample(range(len(solution)), min(25, len(solution))):
            other = rng.choice([word for word in words if word != solution[t]])
            changed = [[*solution[:t], other, *solution[t + 1 :]]]
            if not problem.flat:
                changed.append([*solution[:t], *solution[t + rng.randint(1, 20) :]])
            for written in changed:
                verdict = verify(problem, written)
                assert not verdict.strict, f"{' '.join(prompt)}\n{' '.join(written)}"
                assert set(verdict.errors) <= set(ERRORS)


@pytest.mark.parametrize(
    ("solution", "errors"),
    [
        ("<eos>", ("format",)),
        ("<ans> 7 <eos>", ("query not last",)),
        ("Bergen Frigate a ; a = 3 . <ans> 3 4 <eos>", ("format",)),
        # The letter of the header is not the one that the last clause gives.
        ("Bergen Frigate a ; b = 3 . <ans> 3 <eos>", ("format",)),
        # A constant is not repeated, and the last clause alone may be a constant or a copy.
        ("Bergen Frigate a ; a = 3 = 3 . <ans> 3 <eos>", ("format",)),
        ("Bergen Frigate a ; b = 3 ; a = b = 3 . <ans> 3 <eos>", ("format",)),
        # A step is judged by its first error, each step for itself.
        (
            "Bergen Frigate a ; a = 4 . Bergen Corvette b ; b = a = 4 . <ans> 4 <eos>",
            ("wrong operator or constant", "extra dependency", "query not last"),
        ),
        # Another order is right; a step that is early or repeated is not.
        (
            "Bergen Corvette b ; b = 4 . Bergen Frigate a ; a = 3 . "
            "Bergen Ships c ; c = a + b = 3 + 4 = 7 . <ans> 7 <eos>",
            (),
        ),
        (
            "Bergen Frigate a ; a = 3 . Bergen Ships c ; c = a + b = 3 + 4 = 7 . "
            "Bergen Corvette b ; b = 4 . <ans> 7 <eos>",
            ("undefined symbol", "query not last"),
        ),
        (
            "Bergen Frigate a ; a = 3 . Bergen Frigate z ; z = 3 . Bergen Corvette b ; b = 4 . "
            "Bergen Ships c ; c = a + b = 3 + 4 = 7 . <ans> 7 <eos>",
            ("redefinition",),
        ),
        # A parameter that the prompt has no place for.
        ("Tromso Ships a ; a = 0 . <ans> 7 <eos>", ("nonexistent parameter",)),
        # A wrong value may be carried on, or the right one may be used in its place.
        (
            "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 5 . "
            "Bergen Ships c ; c = a + b = 3 + 5 = 8 . <ans> 8 <eos>",
            ("wrong operator or constant",),
        ),
        (
            "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 5 . "
            "Bergen Ships c ; c = a + b = 3 + 4 = 7 . <ans> 7 <eos>",
            ("wrong operator or constant",),
        ),
    ],
)
def test_errors_by_hand(solution, errors):
    assert judge(solution).errors == errors


SUMS = "Bergen Frigate = 3 . Bergen Corvette = 4 . Bergen Sloop = 5 . "
GIVEN = "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 4 . Bergen Sloop c ; c = 5 . "
TWO = "Bergen Frigate + Bergen Corvette"


@pytest.mark.parametrize(
    ("definition", "clauses", "errors"),
    [
        # Sums in any order and bracketed in any way, factors in any order.
        (f"2 + ( {TWO} )", "e = 2 + b = 2 + 4 = 6 ; d = a + e = 3 + 6 = 9", ()),
        (f"2 * ( {TWO} )", "e = b + a = 4 + 3 = 7 ; d = e * 2 = 7 * 2 = 14", ()),
        # Nothing else, though the value be the same.
        (
            "2 + ( Bergen Corvette - Bergen Frigate )",
            "e = 2 + b = 2 + 4 = 6 ; d = e - a = 6 - 3 = 3",
            ("wrong operator or constant",),
        ),
        (TWO, "e = a + b = 3 + 4 = 7 ; d = e = 7", ("extra dependency",)),
        ("Bergen Frigate", "d = 3", ("missing dependency",)),
        ("Bergen Frigate", "d = 0 + a = 0 + 3 = 3", ("wrong operator or constant",)),
        # A letter may not be used within the clause that gives it, nor be given twice.
        (TWO, "d = a + d = 3 + 4 = 7", ("undefined symbol",)),
        (TWO, "d = a + b = 3 + 4 = 7 ; d = a + b = 3 + 4 = 7", ("duplicate symbol",)),
    ],
)
def test_what_counts_as_the_definition(definition, clauses, errors):
    prompt = f"{SUMS} Bergen Schooner = {definition} . Bergen Schooner ?"
    value = Problem.parse(prompt.split(), 23).answer
    verdict = judge(f"{GIVEN} Bergen Schooner d ; {clauses} . <ans> {value} <eos>", prompt)
    assert verdict.errors == errors
    assert verdict.lenient
    assert verdict.final


def test_a_part_of_an_earlier_step_may_not_be_used():
    prompt = f"{SUMS} Bergen Schooner = 2 * ( {TWO} ) . Bergen Ketch = {TWO} . Bergen Ketch ?"
    step = "Bergen Schooner d ; e = a + b = 3 + 4 = 7 ; d = 2 * e = 2 * 7 = 14 . "
    wrong = judge(f"{GIVEN} {step} Bergen Ketch f ; f = e = 7 . <ans> 7 <eos>", prompt)
    assert wrong.errors == ("missing dependency",)


# The three accuracies


LUCKY = "Bergen Ships c ; c = x * q = 1 + 1 = 7 ."


@pytest.mark.parametrize(
    ("solution", "lenient", "final"),
    [
        (f"{LUCKY} <ans> 6 <eos>", True, False),
        (f"garbage . {LUCKY} garbage", True, False),
        ("Bergen Frigate c ; c = 7 . <ans> 7 <eos>", False, True),
        ("garbage . <ans> 7 <eos>", False, True),
        ("<eos> <ans> 7", False, False),
    ],
)
def test_lenient_asks_for_the_query_and_its_value_and_final_for_the_value_behind_ans(
    solution, lenient, final
):
    verdict = judge(solution)
    assert (verdict.lenient, verdict.final, verdict.strict) == (lenient, final, False)


def test_abstract_parameters_nobody_speaks_of_may_be_computed():
    prompt = "Bergen Frigate = 3 . Bergen Corvette = 4 . Frigate CodBox = 5 . Bergen Frigate ?"
    extra = "Corvette Crates c ; c = 0 . Frigate CodBox d ; d = 5 . Frigate Crates f ; f = d = 5 ."
    verdict = judge(f"{extra} Bergen Frigate a ; a = 3 . <ans> 3 <eos> <pad>", prompt)
    assert verdict == (True, True, (), 3)
    assert verdict.strict
    assert not verdict.minimal


FLAT = "Bergen Frigate = 3 . Frigate CodBox = 2 * Bergen Frigate . Bergen Corvette = 4 . Frigate CodBox ?"


@pytest.mark.parametrize(
    ("end", "errors"),
    [
        # The query need not be last.
        ("Frigate CodBox b ; b = 2 * a = 2 * 3 = 6 . Bergen Corvette c ; c = 4 . <eos>", ()),
        ("Bergen Corvette c ; c = 4 . <eos>", ("query not last",)),
        ("Frigate CodBox b ; b = 2 * a = 2 * 3 = 6 . <ans> 6 <eos>", ("format",)),
    ],
)
def test_flat_solutions_end_without_an_answer(end, errors):
    verdict = judge(f"Bergen Frigate a ; a = 3 . {end}", FLAT, flat=True)
    assert verdict.errors == errors
    assert verdict.lenient == verdict.final == ("= 6 ." in end)
    assert verdict.unnecessary == end.count("Bergen Corvette c")


def test_a_part_goes_by_a_letter_even_where_values_go_by_their_pair():
    stated = "<bos> Frigate/AppleCrate = 5 + ( Cruiser/PearCrate + Frigate/PearCrate ) . Cruiser/PearCrate = 1 . "
    stated += "Frigate/PearCrate = 2 . Frigate/AppleCrate ? <sol>"
    problem = Problem.parse(stated.split(), 7)
    known = (
        "Cruiser/PearCrate ; Cruiser/PearCrate = 1 . Frigate/PearCrate ; Frigate/PearCrate = 2 . "
    )
    step = "Frigate/AppleCrate ; {0} = Cruiser/PearCrate + Frigate/PearCrate = 1 + 2 = 3 ; "
    step += "Frigate/AppleCrate = 5 + {0} = 5 + 3 = 1 . <ans> 1 <eos>"
    assert verify(problem, (known + step.format("a")).split()).strict
    assert "format" in verify(problem, (known + step.format("Frigate/Crates")).split()).errors


# Findings


RIGHT = "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 4 . Bergen Ships c ; c = a + b = 3 + 4 = 7 . <ans> 7 <eos>"


def test_findings_by_hand():
    problem = Problem.parse(SHIPS.split(), 23)
    ok = "no error"
    wrong = RIGHT.replace("= 7 . <ans> 7", "= 8 . <ans> 8").split()
    assert findings(problem, wrong) == [ok, ok, "wrong arithmetic", f"{ok}; the answer is 7"]
    unread = RIGHT.replace("b ; b", "b ; ;").split()
    assert findings(problem, unread) == [ok, "format", "not judged", "not judged"]
