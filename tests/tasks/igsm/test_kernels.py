"""Pieces of the generator, each against its law, by counting all cases.

They are compiled anew in each process, for a minute. Checksums tell whether any row has changed
(`tests/tasks/test_every_task.py`).
"""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tasks.igsm.kernels import bits
from tasks.igsm.kernels.operands import draw_equation
from tasks.igsm.kernels.problem import no_draft

pytestmark = pytest.mark.rare


@pytest.fixture
def stream():
    return np.array([7], np.uint64)


# Steps F and I


@pytest.mark.parametrize(
    ("pool", "start", "n_operands"),
    [({1, 4, 6}, set(), 2), ({1, 4, 6}, {4}, 3), ({0, 2, 3, 9}, {9}, 3), ({5}, set(), 1)],
)
def test_operands_have_the_law_of_step_f(pool, start, n_operands, stream):
    """The constant with probability 1/2 where there is room, the others uniform, the constant still
    among them.
    """
    law, left = Counter(), n_operands - len(start)
    for constant in (["constant"], []):
        options = [*(pool - start), *({"constant"} - set(constant))]
        chosen = list(combinations(options, left - len(constant)))
        for extra in chosen:
            law[frozenset([*start, *extra, *constant])] += 0.5 / len(chosen)
    equations, seen = no_draft().equations, Counter()
    given, must = (sum(1 << i for i in members) for members in (pool, start))
    for _ in range(10_000):
        draw_equation(7, n_operands, given, must, True, 23, equations, stream)
        terms = equations.terms[7, : equations.n_terms[7]].tolist()
        seen[frozenset(terms + ["constant"] * (equations.constant[7] >= 0))] += 1
    assert seen.keys() <= law.keys()
    assert chisquare([seen[case] for case in law], [10_000 * p for p in law.values()]).pvalue > 1e-3


# Step G


@given(st.integers(1, 4), st.sets(st.integers(0, 51), max_size=8), st.integers(0, 2**64 - 1))
def test_a_constant_that_lost_its_coin_is_not_drawn_again(n_operands, pool, seed):
    """With one coin a sentence has a constant and n - 1 terms, or n terms; all of both where no
    more are to be had.
    """
    equations, stream = no_draft().equations, np.array([seed], np.uint64)
    n_operands = min(n_operands, len(pool) + 1)
    draw_equation(0, n_operands, sum(1 << i for i in pool), 0, False, 23, equations, stream)
    terms, constant = (
        equations.terms[0, : equations.n_terms[0]].tolist(),
        equations.constant[0] >= 0,
    )
    assert len(set(terms)) == len(terms) == n_operands - constant
    assert set(terms) <= pool
    coin = bits.coin(np.array([seed], np.uint64))
    assert constant == (coin or n_operands == len(pool) + 1)
