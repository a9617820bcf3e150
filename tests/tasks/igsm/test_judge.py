"""One step after another: which rearrangements are the definition, and where an error is reported."""

import pytest

from tasks.igsm.problem import Problem
from tasks.igsm.verify import verify


def judge(solution, prompt="Bergen Frigate = 3 . Bergen Corvette = 4 . Bergen Ships ?"):
    return verify(Problem.parse(prompt.split(), 23), solution.split())


SUMS = "Bergen Frigate = 3 . Bergen Corvette = 4 . Bergen Sloop = 5 . "
GIVEN = "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 4 . Bergen Sloop c ; c = 5 . "


@pytest.mark.parametrize(
    ("definition", "clauses", "error"),
    [
        # Sums in any order and bracketed in any way.
        ("Bergen Frigate + Bergen Corvette", "d = b + a = 4 + 3 = 7", None),
        ("Bergen Frigate + Bergen Corvette + Bergen Sloop", "e = b + c = 4 + 5 = 9 ; d = a + e = 3 + 9 = 12", None),
        ("2 + Bergen Frigate", "d = a + 2 = 3 + 2 = 5", None),
        ("2 + ( Bergen Frigate + Bergen Corvette )", "e = 2 + b = 2 + 4 = 6 ; d = a + e = 3 + 6 = 9", None),
        # Factors in any order.
        ("2 * Bergen Frigate", "d = a * 2 = 3 * 2 = 6", None),
        ("2 * ( Bergen Frigate + Bergen Corvette )", "e = b + a = 4 + 3 = 7 ; d = e * 2 = 7 * 2 = 14", None),
        # Nothing else, though the value be the same.
        ("2 + ( Bergen Corvette - Bergen Frigate )", "e = b - a = 4 - 3 = 1 ; d = 2 + e = 2 + 1 = 3", None),
        (
            "2 + ( Bergen Corvette - Bergen Frigate )",
            "e = 2 + b = 2 + 4 = 6 ; d = e - a = 6 - 3 = 3",
            "wrong operator or constant",
        ),
        (
            "2 * ( Bergen Frigate + Bergen Corvette )",
            "e = 2 * a = 2 * 3 = 6 ; f = 2 * b = 2 * 4 = 8 ; d = e + f = 6 + 8 = 14",
            "wrong operator or constant",
        ),
        ("Bergen Frigate + Bergen Corvette", "e = a + b = 3 + 4 = 7 ; d = e = 7", "extra dependency"),
        ("Bergen Frigate + Bergen Corvette", "e = b + a = 4 + 3 = 7 ; d = a + b = 3 + 4 = 7", "extra dependency"),
        ("2 * Bergen Frigate", "d = a + a = 3 + 3 = 6", "extra dependency"),
        ("3", "d = a = 3", "extra dependency"),
        ("Bergen Frigate", "d = 3", "missing dependency"),
        ("Bergen Frigate", "d = 0 + a = 0 + 3 = 3", "wrong operator or constant"),
        ("Bergen Frigate + Bergen Corvette", "d = 3 + b = 3 + 4 = 7", "missing dependency"),
        # A letter may not be given within its own step, nor twice.
        ("Bergen Frigate + Bergen Corvette", "d = a + d = 3 + 4 = 7", "undefined symbol"),
        ("Bergen Frigate + Bergen Corvette", "d = a + b = 3 + 4 = 7 ; d = a + b = 3 + 4 = 7", "duplicate symbol"),
    ],
)
def test_what_counts_as_the_definition(definition, clauses, error):
    prompt = f"{SUMS} Bergen Schooner = {definition} . Bergen Schooner ?"
    value = Problem.parse(prompt.split(), 23).answer
    verdict = judge(f"{GIVEN} Bergen Schooner d ; {clauses} . <ans> {value} <eos>", prompt)
    assert verdict.errors == ((error,) if error else ())
    assert verdict.lenient
    assert verdict.final


def test_a_part_of_an_earlier_step_may_not_be_used():
    prompt = (
        SUMS
        + "Bergen Schooner = 2 * ( Bergen Frigate + Bergen Corvette ) . "
        + "Bergen Ketch = Bergen Frigate + Bergen Corvette . Bergen Ketch ?"
    )
    step = "Bergen Schooner d ; e = a + b = 3 + 4 = 7 ; d = 2 * e = 2 * 7 = 14 . "
    right = judge(f"{GIVEN} {step} Bergen Ketch f ; f = a + b = 3 + 4 = 7 . <ans> 7 <eos>", prompt)
    wrong = judge(f"{GIVEN} {step} Bergen Ketch f ; f = e = 7 . <ans> 7 <eos>", prompt)
    assert right.errors == ()
    assert wrong.errors == ("missing dependency",)


def test_a_wrong_value_is_wrong_where_it_arises_and_not_where_it_is_carried_on():
    start = "Bergen Frigate a ; a = 3 . Bergen Corvette b ; b = 5 . "
    for carried in ("c = a + b = 3 + 5 = 8 . <ans> 8", "c = a + b = 3 + 4 = 7 . <ans> 7"):
        verdict = judge(f"{start} Bergen Ships c ; {carried} <eos>")
        assert verdict.errors == ("wrong operator or constant",)
        assert verdict.lenient == verdict.final == carried.endswith("7")
