"""Both graphs as text, for a problem worked by hand; every kind of definition."""

import textwrap

import pytest

from tasks.igsm.definition import Definition
from tasks.igsm.graphs import dependency_text, formula, structure_text
from tasks.igsm.problem import Problem

PROMPT = """
Bergen Sloop = 3 .
Riga Ketch = 7 .
Ketch CodBox = 2 * ( Sloop CodBox + Bergen Sloop ) .
Sloop CodBox = Bergen Sloop - Bergen Ketch .
Bergen Ketch = 5 + Bergen Sloop .
Bergen Crates ?
""".split()


def test_structure():
    problem = Problem.parse(PROMPT, 23)
    assert structure_text(problem) == textwrap.dedent(
        """\
        Harbours have Ships
          Bergen: Sloop, Ketch
          Riga: Ketch
        Ships have Crates
          Sloop: CodBox
          Ketch: CodBox"""
    )


def test_dependencies():
    """8 = 5 + 3; 18 = 3 - 8; 19 = 2 (18 + 3); the query is 3 * 18 + 8 * 19 = 206 = 22, all modulo
    23.
    """
    lines = dependency_text(Problem.parse(PROMPT, 23)).splitlines()
    assert lines[0] == "needed"
    assert sorted(lines[1:-3]) == sorted(
        [
            "  Bergen's Sloop  =  3 <- 3",
            "  Bergen's Ketch  =  8 <- 5 + Bergen's Sloop",
            "  Sloop's CodBox  = 18 <- Bergen's Sloop - Bergen's Ketch",
            "  Sloop's Crates  = 18 <- Sloop's CodBox",
            "  Ketch's CodBox  = 19 <- 2 * (Sloop's CodBox + Bergen's Sloop)",
            "  Ketch's Crates  = 19 <- Ketch's CodBox",
        ]
    )
    terms = "Bergen's Sloop * Sloop's Crates + Bergen's Ketch * Ketch's Crates"
    assert lines[-3:] == [
        f"? Bergen's Crates = 22 <- {terms}",
        "not needed",
        "  Riga's Ketch    =  7 <- 7",
    ]


def test_a_flat_problem_has_no_structure_and_may_need_everything():
    problem = Problem.parse(
        "Bergen Sloop = 3 . Sloop Bergen = 4 * Bergen Sloop . Sloop Bergen ?".split(), 7, flat=True
    )
    assert structure_text(problem) == "A flat problem has no structure."
    assert dependency_text(problem).splitlines() == [
        "needed",
        "  Bergen's Sloop = 3 <- 3",
        "? Sloop's Bergen = 5 <- 4 * Bergen's Sloop",
    ]


A, B, C = ("A", "x"), ("B", "x"), ("C", "x")


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (Definition(constant=4), "4"),
        (Definition(((A,), (B,)), "-"), "A's x - B's x"),
        (Definition(((A,),), constant=4, applied="*"), "4 * A's x"),
        (Definition(((A,), (B,), (C,)), "+", 4, "*"), "4 * (A's x + B's x + C's x)"),
        (Definition(((A, B), (C, B))), "A's x * B's x + C's x * B's x"),
    ],
)
def test_formulas(definition, text):
    assert formula(definition) == text
