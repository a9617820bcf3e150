"""Generated problems, read from their words alone, against the rules of iGSM and the official generator's numbers."""

import hashlib
from collections import Counter
from functools import cache

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from tasks.igsm import IGSMTask
from tasks.igsm.words import CATEGORIES, CATEGORY_OF, NOUNS
from tests.tasks.igsm.reading import APPLY, Row

pytestmark = pytest.mark.slow

TASKS = {
    "med": {"ops": "<=15", "length": 1024},
    "op 15": {"ops": "15", "length": 1024},
    "hard": {"ops": "24", "difficulty": "hard", "length": 1024},
    "toy": {"ops": "<=4", "difficulty": "toy", "length": 128},
    "test": {"ops": "<=15", "split": "test", "length": 1024},
    "flat": {"kind": "igsm_flat", "ops": "<=21", "length": 1024},
}
HIERARCHICAL = [name for name in TASKS if name != "flat"]


@cache
def rows(name, size=400, seed=0):
    """Rows as words, with the number of operations that the task says each has."""
    task = IGSMTask(**TASKS[name], format="compact")
    drawn = task.prompts(size, np.random.default_rng(seed))
    read = [Row(task.decode(tokens), task.language.modulus) for tokens in drawn.tokens]
    return list(zip(read, drawn.ops.tolist(), strict=True))


# The structure


@pytest.mark.parametrize("name", HIERARCHICAL)
def test_edges_join_neighbouring_layers_of_one_domain(name):
    """No edge has two sentences, and every item but the top ones has a parent."""
    for row, _ in rows(name):
        edges = [edge for edge, _ in row.sentences]
        assert len(set(edges)) == len(edges)
        (domain,) = {d for d, categories in CATEGORIES.items() for x, _ in edges if CATEGORY_OF[x] in categories}
        layer = {x: CATEGORIES[domain].index(CATEGORY_OF[x]) for edge in edges for x in edge}
        assert all(layer[y] == layer[x] + 1 for x, y in edges)
        top = min(layer.values())
        below = {x for x in layer if layer[x] > top}
        assert below == {y for _, y in edges}


@pytest.mark.parametrize("name", HIERARCHICAL)
def test_sizes_keep_their_limits(name):
    most_edges, most_layers, most_width = {"hard": (28, 4, 4), "toy": (6, 3, 3)}.get(name, (20, 4, 4))
    sizes = []
    for row, _ in rows(name):
        items = {x for edge, _ in row.sentences for x in edge}
        width = Counter(CATEGORY_OF[x] for x in items)
        sizes.append((len(row.sentences), len(width), max(width.values())))
    assert np.max(sizes, axis=0)[0] <= most_edges
    assert tuple(np.max(sizes, axis=0)[1:]) == (most_layers, most_width)
    assert min(size[1] for size in sizes) == 2


@pytest.mark.parametrize("name", HIERARCHICAL)
def test_a_layer_has_its_names_from_one_pool(name):
    pool_of = {noun: (c, i) for c, pools in NOUNS.items() for i, pool in enumerate(pools) for noun in pool}
    used = set()
    for row, _ in rows(name):
        pools = {}
        for edge, _ in row.sentences:
            for x in edge:
                pools.setdefault(CATEGORY_OF[x], set()).add(pool_of[x])
        assert all(len(found) == 1 for found in pools.values())
        used |= {pool for found in pools.values() for pool in found}
    assert len(used) == (20 if name == "toy" else 120)


# The solution


@pytest.mark.parametrize("name", TASKS)
def test_op_is_the_cost_of_the_steps_and_the_number_of_clauses(name):
    for row, ops in rows(name):
        assert sum(row.cost(parameter) for parameter in row.defined) == len(row.clauses) == ops


@pytest.mark.parametrize("name", HIERARCHICAL)
def test_a_solution_defines_the_ancestors_of_the_query_and_ends_with_it(name):
    for row, _ in rows(name):
        assert set(row.defined) == row.ancestors(row.query)
        assert len(set(row.defined)) == len(row.defined)
        assert row.defined[-1] == row.query


def test_a_flat_solution_defines_everything():
    for row, _ in rows("flat"):
        assert sorted(row.defined) == sorted(row.equations)
        assert row.query in row.equations
        assert row.final is None


@pytest.mark.parametrize("name", TASKS)
def test_every_sentence_can_be_computed(name):
    """Also those that the solution does not need: none depends on itself."""
    for row, _ in rows(name):
        for parameter in row.equations:
            row.ancestors(parameter)


@pytest.mark.parametrize("name", TASKS)
def test_values_are_true_by_the_sentences(name):
    """Each step's value, by plain recursion over the prompt; the final value is the query's."""
    for row, _ in rows(name):
        for parameter, _, clauses in row.steps:
            assert int(clauses[-1][-1]) == row.value(parameter)
        if name != "flat":
            assert int(row.final) == row.value(row.query)


@pytest.mark.parametrize("name", TASKS)
def test_clauses_calculate_with_the_values_of_their_letters(name):
    """`v = a op b = 3 op 4 = 7`, `v = a = 3` or `v = 5`; letters are defined once, before they are used."""
    for row, _ in rows(name):
        value = {}
        for clause in row.clauses:
            letter, *sides = " ".join(clause).split(" = ")
            if len(sides) > 1:
                copied = [str(value[word]) if word in value else word for word in sides[0].split()]
                assert sides[1] == " ".join(copied)
            if len(sides) == 3:
                a, sign, b = sides[1].split()
                assert int(sides[2]) == APPLY[sign](int(a), int(b)) % row.modulus
            assert letter not in value
            value[letter] = int(sides[-1])
        assert [step.letter for step in row.steps] == [step.clauses[-1][0] for step in row.steps]


@pytest.mark.parametrize("name", TASKS)
def test_steps_take_their_operands_in_the_order_of_the_rule(name):
    """A sum goes from left to right, then the constant comes in front; products come before their sum."""
    for row, _ in rows(name):
        letter = {}
        for parameter, last, clauses in row.steps:
            right = [clause[2:] if "=" not in clause[2:] else clause[2 : clause.index("=", 2)] for clause in clauses]
            assert right == expected(row, parameter, letter, [clause[0] for clause in clauses])
            letter[parameter] = last


def expected(row, parameter, letter, results):
    """What stands after the first = of each clause that defines the parameter, if `results` are their letters."""
    if not row.is_abstract(parameter):
        equation = row.equations[parameter]
        if not equation.terms:
            return [[str(equation.constant)]]
        clauses = chain([letter[term] for term in equation.terms], "-" if equation.minus else "+", results)
        if equation.constant is None:
            return clauses or [[letter[equation.terms[0]]]]
        under = results[len(clauses) - 1] if clauses else letter[equation.terms[0]]
        return [*clauses, [str(equation.constant), equation.sign, under]]
    x, category = parameter
    children = sorted(row.children(x), key=lambda y: order_of_use(row, x, y, results))
    if not children:
        return [["0"]]
    if row.level(parameter) == 1:
        return chain([letter[x, y] for y in children], "+", results) or [[letter[x, children[0]]]]
    products = [[letter[x, y], "*", letter[y, category]] for y in children]
    return products + chain(results[: len(children)], "+", results[len(children) :])


def order_of_use(row, x, y, results):
    """Where the step that ends with the last of `results` names I(x,y): the children may come in any order."""
    (letter,) = [step.letter for step in row.steps if step.parameter == (x, y)]
    words = [word for step in row.steps if step.letter == results[-1] for clause in step.clauses for word in clause]
    return words.index(letter)


def chain(terms, sign, results):
    """The clauses that join terms from left to right."""
    clauses, left = [], terms[0]
    for term, result in zip(terms[1:], results, strict=False):
        clauses.append([left, sign, term])
        left = result
    return clauses


@pytest.mark.parametrize("name", TASKS)
def test_instances_have_at_most_four_operands(name):
    """The constant included; and the first step of a solution has nothing but a constant."""
    counts = set()
    for row, _ in rows(name):
        for equation in row.equations.values():
            counts.add(len(equation.terms) + (equation.constant is not None))
            assert equation.constant is None or equation.constant < row.modulus
            assert equation.sign != "*" or equation.constant > 0
        assert not row.needs(row.defined[0])
    assert max(counts) == {"flat": 3}.get(name, 4)


# The split


@pytest.mark.parametrize("name", TASKS)
def test_the_hash_of_the_template_says_the_split(name):
    for row, ops in rows(name):
        if ops >= 3:
            bucket = int(hashlib.sha256(row.template().encode()).hexdigest(), 16) % 23
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


def test_the_number_of_operations_is_the_smaller_of_two_uniform_ones():
    batch = IGSMTask(ops="<=15", length=320, format="compact").batch(20_000, np.random.default_rng(0))
    expected = [20_000 * (2 * (15 - k) + 1) / 15**2 for k in range(1, 16)]
    assert chisquare(np.bincount(batch.groups["ops"], minlength=16)[1:], expected).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "what", "reference"),
    [
        ("op 15", "sentences", (4, 6, 8, 10, 13, 17, 20)),
        ("op 15", "steps", (7, 8, 10, 11, 13, 14, 15)),
        ("hard", "sentences", (6, 7, 10, 13, 17, 23, 28)),
        ("hard", "steps", (10, 11, 14, 16, 18, 20, 24)),
    ],
)
def test_quantiles_are_those_of_the_official_generator(name, what, reference):
    """At 0/5/25/50/75/95/100 %, within the bands of Dvoretzky, Kiefer and Wolfowitz (1e-3, two samples of 2000)."""
    values = np.array([len(getattr(row, what)) for row, _ in rows(name, 2000)])
    band = 2 * np.sqrt(np.log(2 / 1e-3) / (2 * len(values)))
    for quantile, value in zip((0, 0.05, 0.25, 0.5, 0.75, 0.95, 1), reference, strict=True):
        assert (values < value).mean() <= quantile + band
        assert (values <= value).mean() >= quantile - band


def test_the_query_is_abstract_and_the_answer_zero_as_often_as_in_the_official_generator():
    drawn = [row for row, _ in rows("op 15", 2000)]
    abstract = sum(row.is_abstract(row.query) for row in drawn)
    zero = sum(row.final == "0" for row in drawn)
    assert binomtest(abstract, 2000, 0.53).pvalue > 1e-3
    assert binomtest(zero, 2000, 0.13).pvalue > 1e-3


@pytest.mark.parametrize(("ops", "reference"), [("4", 0.396), ("8", 0.415), ("<=15", 0.411)])
def test_unneeded_sentences_have_a_constant_beside_terms_as_often_as_in_the_official_generator(ops, reference):
    """Its shares are of 800 problems, with a standard error of .013."""
    task = IGSMTask(ops=ops, format="compact", length=1024)
    tokens = task.prompts(2000, np.random.default_rng(0)).tokens
    drawn = [Row(task.decode(row), task.language.modulus) for row in tokens]
    unneeded = [row.equations[p] for row in drawn for p in set(row.equations) - set(row.defined)]
    with_terms = [equation for equation in unneeded if equation.terms]
    share = np.mean([equation.constant is not None for equation in with_terms])
    assert abs(share - reference) < 0.02


@pytest.mark.parametrize(
    ("fields", "mean", "length", "fitting"),
    [
        ({"ops": "<=15"}, 247, 512, 0.995),
        ({"ops": "15"}, 435, 1024, 1),
        ({"ops": "<=21", "difficulty": "hard"}, 314, 1024, 1),
        ({"ops": "24", "difficulty": "hard"}, 640, 1024, 1),
    ],
)
def test_rows_are_as_long_as_with_the_official_generator(fields, mean, length, fitting):
    size = IGSMTask(**fields, length=1100).prompts(4000, np.random.default_rng(0)).size
    assert abs(size.mean() - mean) < 4 * size.std() / np.sqrt(4000) + 0.5  # the reference is rounded
    assert abs((size <= length).mean() - fitting) < 4 * np.sqrt(0.005 / 4000)


def test_flat_problems_have_the_sizes_of_four_draws_from_1_to_3():
    counts = Counter(len(row.sentences) for row, _ in rows("flat", 2000))
    law = Counter(a + b + c + d for a in (1, 2, 3) for b in (1, 2, 3) for c in (1, 2, 3) for d in (1, 2, 3))
    sizes = sorted(law)
    assert chisquare([counts[n] for n in sizes], [2000 * law[n] / 81 for n in sizes]).pvalue > 1e-3


def test_flat_parameters_depend_on_up_to_three_earlier_ones():
    """All numbers of them equally likely; a constant multiplies one of three single dependencies."""
    n_terms, times = Counter(), Counter()
    for row, _ in rows("flat", 2000):
        for place, parameter in enumerate(row.defined):
            equation = row.equations[parameter]
            if place >= 3:
                n_terms[len(equation.terms)] += 1
            if len(equation.terms) == 1:
                times[equation.sign] += 1
            assert (equation.constant is not None) == (len(equation.terms) < 2)
            assert equation.constant != 0
    assert chisquare(list(n_terms.values())).pvalue > 1e-3
    assert binomtest(times["*"], times.total(), 1 / 3).pvalue > 1e-3
