"""The kernels against the same law written a second time, in plain Python: whole problems, read from their words."""

import random
from functools import cache

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tasks.igsm import IGSMTask
from tests.tasks.igsm.plain import draw_row
from tests.tasks.igsm.reading import Row

pytestmark = pytest.mark.slow

TASKS = {
    "med": IGSMTask(ops="15", format="compact", length=1024),
    "hard, test": IGSMTask(ops="24", difficulty="hard", split="test", format="compact", length=1024),
    "toy": IGSMTask(ops="4", difficulty="toy", format="compact", length=200),
}
MEASURES = {
    "sentences": lambda row: len(row.sentences),
    "steps": lambda row: len(row.steps),
    "tokens": lambda row: len(row.words),
    "owners": lambda row: len({x for x, _ in row.equations}),
    "an abstract query": lambda row: row.is_abstract(row.query),
    "abstract steps": lambda row: sum(map(row.is_abstract, row.defined)),
    "the longest chain to the query": lambda row: depth(row, row.query),
    "constants": lambda row: sum(right.constant is not None for right in row.equations.values()),
    "factors": lambda row: sum(right.sign == "*" for right in row.equations.values()),
    "differences": lambda row: sum(right.minus for right in row.equations.values()),
    "terms of unnecessary sentences": lambda row: sum(len(row.equations[p].terms) for p in unnecessary(row)),
    "constants beside terms in unnecessary sentences": lambda row: sum(
        row.equations[p].constant is not None and bool(row.equations[p].terms) for p in unnecessary(row)
    ),
    "abstract terms": lambda row: sum(row.is_abstract(q) for right in row.equations.values() for q in right.terms),
    "terms": lambda row: sum(len(right.terms) for right in row.equations.values()),
    "final value": lambda row: int(row.final),
}


def depth(row, parameter):
    """How many parameters one after another lead to this one."""
    known = {}
    for p in row.defined:
        known[p] = 1 + max((known[q] for q in row.needs(p)), default=0)
    return known[parameter]


def unnecessary(row):
    return set(row.equations) - set(row.defined)


@cache
def both(name, size=600):
    task = TASKS[name]
    rng = random.Random(0)
    plain = [Row(draw_row(task, rng), task.language.modulus) for _ in range(size)]
    drawn = task.prompts(5 * size, np.random.default_rng(0)).tokens
    return [Row(task.decode(tokens), task.language.modulus) for tokens in drawn], plain


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", TASKS)
def test_both_have_one_law(name, measure):
    """By the test of Kolmogorov and Smirnov; 45 of them."""
    ours, plain = ([float(MEASURES[measure](row)) for row in rows] for rows in both(name))
    assert ks_2samp(ours, plain).pvalue > 1e-3


@pytest.mark.parametrize("name", TASKS)
def test_the_plain_one_keeps_the_rules(name):
    for row in both(name)[1][:100]:
        assert set(row.defined) == row.ancestors(row.query)
        assert sum(map(row.cost, row.defined)) == len(row.clauses) == TASKS[name].most_ops
        assert int(row.final) == row.value(row.query)
