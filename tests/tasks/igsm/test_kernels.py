"""The operands of a sentence against their law, by counting all cases.

The kernel is compiled anew in each process, for a minute. Checksums tell whether any row has changed
(`tests/tasks/test_every_task.py`).
"""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from tasks.igsm.kernels.operands import draw_equation
from tasks.igsm.kernels.problem import no_draft

pytestmark = pytest.mark.rare


@pytest.fixture
def stream():
    return np.array([7], np.uint64)


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
    equations, seen = no_draft(23).equations, Counter()
    given, must = (sum(1 << i for i in members) for members in (pool, start))
    for _ in range(10_000):
        draw_equation(7, n_operands, given, must, True, equations, stream)
        terms = equations.terms[7, : equations.n_terms[7]].tolist()
        seen[frozenset(terms + ["constant"] * int(equations.constant[7] >= 0))] += 1
    assert seen.keys() <= law.keys()
    assert chisquare([seen[case] for case in law], [10_000 * p for p in law.values()]).pvalue > 1e-3
