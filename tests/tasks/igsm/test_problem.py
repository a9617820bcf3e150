"""Problems read from their prompts: against one worked by hand, counting by objects, and every form
of a sentence.
"""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import ConfigError
from tasks.igsm.definition import Definition
from tasks.igsm.problem import Problem
from tasks.igsm.words import NOUNS
from tests.tasks.igsm.by_hand import PROBLEMS


@pytest.fixture(scope="module", params=PROBLEMS)
def by_hand(request):
    return Problem.parse(PROBLEMS[request.param][0], 23)


# One problem by hand


def test_values_by_hand(by_hand):
    assert by_hand.values == {
        ("Bergen", "Frigate"): 3,
        ("Bergen", "Corvette"): 8,
        ("Tromso", "Corvette"): 7,
        ("Frigate", "CodBox"): 18,
        ("Corvette", "CodBox"): 15,
        ("Corvette", "EelBox"): 18,
        ("Bergen", "Ships"): 11,
        ("Tromso", "Ships"): 7,
        ("Frigate", "Crates"): 18,
        ("Corvette", "Crates"): 10,
        ("Bergen", "Crates"): (3 * 18 + 8 * 10) % 23,
        ("Tromso", "Crates"): 7 * 10 % 23,
    }
    assert by_hand.query == ("Bergen", "Crates")
    assert by_hand.answer == 19


@pytest.mark.parametrize("format", PROBLEMS)
def test_a_whole_row_may_be_given(format):
    prompt, solution = PROBLEMS[format]
    row = ["<bos>", *prompt, "<sol>", *solution, "<pad>", "<pad>"]
    assert Problem.parse(row, 23) == Problem.parse(prompt, 23)
    assert Problem.parse(row, 23).format == format


# Abstract parameters

LAYERS = [
    ["Bergen", "Tromso", "Aarhus"],
    ["Frigate", "Corvette"],
    ["CodBox", "EelBox"],
    list(NOUNS["Tools"][0][:2]),
]
WORDS = ["Harbours", "Ships", "Crates", "Tools"]


@given(st.data())
def test_abstract_parameters_count_things(data):
    """Build every harbour with its ships, every ship with its crates, ..., and count what lies in
    it.
    """
    edges = [edge for above, below in pairwise(LAYERS) for edge in product(above, below)]
    chosen = data.draw(st.lists(st.sampled_from(edges), min_size=1, unique=True))
    counts = {edge: data.draw(st.integers(0, 4)) for edge in chosen}
    words = [word for (x, y), n in counts.items() for word in (x, y, "=", str(n), ".")]
    problem = Problem.parse([*words, *chosen[0], "?"], 7)

    def inside(item):
        """All things that one item holds, directly or not: a list of names."""
        things = []
        for (x, y), n in counts.items():
            if x == item:
                for _ in range(n):
                    things += [y, *inside(y)]
        return things

    present = [[item for item in layer if any(item in edge for edge in chosen)] for layer in LAYERS]
    for depth, below in product(range(4), range(4)):
        for item in present[depth]:
            if below <= depth or not present[below]:
                assert (item, WORDS[below]) not in problem.values
            elif all(present[depth:below]):
                n = sum(thing in LAYERS[below] for thing in inside(item))
                assert problem.values[item, WORDS[below]] == n % 7


# Every form of a sentence

P, Q, R, S = (
    ("Frigate", "CodBox"),
    ("Frigate", "EelBox"),
    ("Corvette", "CodBox"),
    ("Corvette", "Crates"),
)
DEFINITIONS = [
    # natural, compact, the definition, its cost, its value modulo 23 where P = 5, Q = 7, R = 11 and
    # S = R
    ("4", "4", Definition(constant=4), 1, 4),
    ("P", "P", Definition(((P,),)), 1, 5),
    ("the sum of P , Q and R", "P + Q + R", Definition(((P,), (Q,), (R,))), 2, 0),
    ("the difference of P and Q", "P - Q", Definition(((P,), (Q,)), "-"), 1, 21),
    ("4 more than P", "4 + P", Definition(((P,),), constant=4), 1, 9),
    ("4 times as much as P", "4 * P", Definition(((P,),), constant=4, applied="*"), 1, 20),
    (
        "4 times as much as the difference of P and Q",
        "4 * ( P - Q )",
        Definition(((P,), (Q,)), "-", 4, "*"),
        2,
        (4 * -2) % 23,
    ),
    (
        "4 times as much as the sum of P , Q and S",
        "4 * ( P + Q + S )",
        Definition(((P,), (Q,), (S,)), "+", 4, "*"),
        3,
        4 * 23 % 23,
    ),
]
OTHERS = {P: 5, Q: 7, R: 11}


@pytest.mark.parametrize(("natural", "compact", "definition", "cost", "value"), DEFINITIONS)
def test_a_sentence_is_read(natural, compact, definition, cost, value):
    names = dict(zip("PQRS", (P, Q, R, S), strict=True))
    right_side = {
        "natural": [
            f"each {names[word][0]} 's {names[word][1]}" if word in names else word
            for word in natural.split()
        ],
        "compact": [" ".join(names[word]) if word in names else word for word in compact.split()],
    }
    sentence = {"natural": "The number of each {} 's {} equals {} .", "compact": "{} {} = {} ."}
    question = {
        "natural": "How many Frigate does each Bergen have ?",
        "compact": "Bergen Frigate ?",
    }
    for format, words in right_side.items():
        sentences = [sentence[format].format(*parameter, n) for parameter, n in OTHERS.items()]
        sentences += [
            sentence[format].format("Bergen", "Frigate", " ".join(words)),
            question[format],
        ]
        problem = Problem.parse(" ".join(sentences).split(), 23)
        assert problem.definitions["Bergen", "Frigate"] == definition
        assert problem.definitions["Bergen", "Frigate"].cost == cost
        assert problem.answer == value


# igsm_flat


def test_flat_problems_have_no_layers_and_no_abstract_parameters():
    words = "Bergen CodBox = 3 . CodBox Frigate = 2 * Bergen CodBox . Frigate Bergen = 1 . CodBox Frigate ?".split()
    problem = Problem.parse(words, 23, flat=True)
    assert problem.values == {
        ("Bergen", "CodBox"): 3,
        ("CodBox", "Frigate"): 6,
        ("Frigate", "Bergen"): 1,
    }
    assert problem.layers == {}
    assert problem.necessary == {("Bergen", "CodBox"), ("CodBox", "Frigate")}
    with pytest.raises(ConfigError, match="each Bergen's Ships, but no sentence defines it"):
        Problem.parse("Bergen Frigate = 3 . Bergen Ships ?".split(), 23, flat=True)


# Bad prompts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not the question of the format compact"),
        ("Bergen Frigate = 23 . Bergen Frigate ?", "23 is not a number below the modulus"),
        (
            "Bergen Frigate = 3 Bergen Frigate ?",
            "'Bergen Frigate = 3 Bergen Frigate ?' is not the question",
        ),
        (
            "Bergen Frigate = 3 . Bergen Frigate = 3 . Bergen Frigate ?",
            "each Bergen's Frigate again",
        ),
        ("Bergen Ships = 3 . Bergen Ships ?", "'Ships' is not a noun"),
        ("Bergen Frigate = Bergen 3 . Bergen Frigate ?", "'3' is not a noun or a category"),
        (
            "Bergen Frigate = 3 . Frigate CodBox = 3 + ( Bergen Frigate ) . Bergen Frigate ?",
            "is not a sentence",
        ),
        (
            "Bergen CodBox = 3 . Bergen CodBox ?",
            "each Bergen's CodBox, but Crates are not the category below Harbours",
        ),
        (
            "Bergen Frigate = 3 . Bergen Crates ?",
            "each Bergen's Crates, but no sentence defines it",
        ),
        ("Bergen Frigate = Bergen Corvette . Bergen Frigate ?", "each Bergen's Corvette, but"),
        ("Bergen Frigate = 1 + Bergen Ships . Bergen Frigate ?", "in terms of itself"),
        (
            "Bergen Frigate = 3 . Bergen Ladybird ?",
            "Ladybird, but a problem stays in one domain: Harbours, Ships, Crates, Tools",
        ),
        (
            "The number of each Bergen 's Frigate equals Bergen 's Frigate . How",
            "is not a sentence of the format natural",
        ),
        (
            "Bergen/Frigate = 3 . Bergen Frigate ?",
            "'Bergen Frigate ?' is not the question of the format pairs",
        ),
    ],
)
def test_a_bad_prompt_is_refused_with_the_place(text, said):
    with pytest.raises(ConfigError) as refusal:
        Problem.parse(text.split(), 23)
    assert said in str(refusal.value)


def test_a_modulus_below_2_is_refused():
    with pytest.raises(ConfigError, match="modulus is 1, but must be at least 2"):
        Problem.parse("Bergen Frigate = 0 . Bergen Frigate ?".split(), 1)
