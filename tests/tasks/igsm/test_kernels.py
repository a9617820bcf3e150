"""The pieces of the generator, each against its law: by hand, by counting all cases, or by another
library.
"""

import hashlib
import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, halfnorm, kstest

from tasks.igsm.kernels import bits
from tasks.igsm.kernels.operands import draw_equation
from tasks.igsm.kernels.order import draw_necessary, draw_weighted, total_cost
from tasks.igsm.kernels.problem import no_draft
from tasks.igsm.kernels.split import PADDING, sha256_mod
from tasks.igsm.kernels.structure import Limits, Size, draw_size, draw_structure


@pytest.fixture
def stream():
    return np.array([7], np.uint64)


def numbers(mask):
    """A set of bits as a Python set."""
    return {i for i in range(63) if mask >> i & 1}


# Bits and draws


@pytest.mark.parametrize("mask", [1, 6, 1 << 51, (1 << 52) - 1, 0b1011000, 1 << 62 | 1])
def test_sets_of_bits(mask):
    members = sorted(numbers(mask))
    assert bits.count(mask) == len(members)
    assert bits.lowest(mask) == members[0]
    assert [bits.nth(mask, i) for i in range(len(members))] == members


def test_draws_have_their_laws(stream):
    mask = 0b101100000001
    picked = [bits.pick(mask, stream) for _ in range(4000)]
    assert set(picked) == numbers(mask)
    assert chisquare(np.unique(picked, return_counts=True)[1]).pvalue > 1e-3
    assert chisquare(np.bincount([bits.coin(stream) for _ in range(4000)])).pvalue > 1e-3
    assert kstest([bits.uniform(stream) for _ in range(4000)], "uniform").pvalue > 1e-3
    assert kstest([bits.half_normal(stream) for _ in range(4000)], halfnorm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("n", [0, 1, 3, 54, 55, 56, 63, 64, 65, 119, 120, 300])
def test_sha256_is_hashlibs(n):
    message = np.random.default_rng(n).integers(0, 256, n).astype(np.uint8)
    buffer = np.concatenate([message, np.full(PADDING, 255, np.uint8)])
    digest = int(hashlib.sha256(message.tobytes()).hexdigest(), 16)
    assert [sha256_mod(buffer.copy(), n, modulus) for modulus in (23, 2**31 - 1)] == [
        digest % 23,
        digest % (2**31 - 1),
    ]


# Step B


@pytest.mark.parametrize(("ops", "limits"), [(15, Limits(20, 4, 4)), (2, Limits(6, 3, 3))])
def test_sizes_have_the_law_of_step_b(ops, limits, stream):
    """Layers, two widths and the smaller of two uniform edge counts, cut: against the sum over all
    cases.
    """
    r = (ops - 1) / (limits.most_edges - 1)
    weight = {
        2: math.exp(-((r - 0.2) ** 2)),
        3: math.exp(-((r - 0.5) ** 2)),
        4: math.exp(-((r - 0.8) ** 2)),
    }
    depths, widths = range(2, limits.most_layers + 1), range(2, limits.most_width + 1)
    law = {}
    for d, a, b in product(depths, widths, widths):
        p = (
            weight[d]
            / sum(weight[i] for i in depths)
            * weight[a]
            * weight[b]
            / sum(weight[i] for i in widths) ** 2
        )
        low, high = min(a, b), max(a, b)
        counts = range((d - 1) * low, limits.most_edges + 1)
        for e, f in product(counts, counts):
            case = d, low, high, min(e, f, (d - 1) * high**2)
            law[case] = law.get(case, 0) + p / len(counts) ** 2
    drawn = [draw_size(ops, limits, stream) for _ in range(20_000)]
    observed = dict.fromkeys(law, 0)
    for size in drawn:
        observed[tuple(size[:4])] += 1
    likely = [case for case in law if 20_000 * law[case] >= 5]
    rest = 20_000 * (1 - sum(law[case] for case in likely))
    expected = [20_000 * law[case] for case in likely] + ([rest] if rest > 1e-6 else [])
    seen = [observed[case] for case in likely]
    seen += [20_000 - sum(seen)] if rest > 1e-6 else []
    assert chisquare(seen, expected).pvalue > 1e-3
    assert kstest([size.widen for size in drawn], "uniform").pvalue > 1e-3


# Step C


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("size", [(2, 2, 4, 9), (3, 2, 4, 20), (4, 3, 4, 28), (4, 2, 2, 6)])
def test_structures_have_the_edges_asked_for(size, seed):
    s = draw_structure(Size(*size, 0.5), np.array([seed], np.uint64))
    width = np.bincount(s.layer[: s.n_items])
    assert len(width) == s.n_layers == size[0]
    assert size[1] <= width.min()
    assert width.max() <= size[2]
    edges = list(zip(s.parent.tolist(), s.child.tolist(), strict=True))
    assert len(set(edges)) == size[3]
    assert all(s.layer[y] == s.layer[x] + 1 for x, y in edges)
    assert {y for _, y in edges} == {y for y in range(s.n_items) if s.layer[y] > 0}


# Steps D and E


def test_necessary_sets_are_closed_and_cost_what_was_asked():
    """As much as the structure's instances allow; abstract parameters and what they need within
    their budget.
    """
    for seed in range(200):
        stream = np.array([seed], np.uint64)
        abstract_ops = 1 + seed % 12
        s = draw_structure(Size(3, 2, 4, 12, 0.5), stream)
        chosen = draw_necessary(s, abstract_ops, 12, stream)
        members = numbers(chosen)
        assert all(numbers(s.needs[p]) <= members for p in members)
        cost = total_cost(s, chosen)
        assert cost == sum(s.cost[p] for p in members)
        assert cost <= 12
        assert cost == 12 or set(range(s.n_edges)) <= members
        deep = {p for p in members if p >= s.n_edges}
        with_needs = set().union(*(numbers(s.closure[p]) for p in deep))
        assert sum(s.cost[p] for p in with_needs) <= abstract_ops


def test_weights_multiply_for_abstract_and_for_not_on_the_stack(stream):
    pool, abstract, stack, bias = 0b111101, 0b110010, 0b010110, 3.0
    weight = {0: bias, 2: 1, 3: bias, 4: bias, 5: bias**2}
    drawn = [draw_weighted(pool, abstract, stack, bias, stream) for _ in range(10_000)]
    total = sum(weight.values())
    counts = np.bincount(drawn, minlength=6)
    assert counts[1] == 0
    assert (
        chisquare(counts[list(weight)], [10_000 * w / total for w in weight.values()]).pvalue > 1e-3
    )


# Steps F and I


@pytest.mark.parametrize(
    ("pool", "start", "n_operands"),
    [({1, 4, 6}, set(), 2), ({1, 4, 6}, {4}, 3), ({0, 2, 3, 9}, {9}, 3), ({5}, set(), 1)],
)
def test_operands_have_the_law_of_step_f(pool, start, n_operands, stream):
    """The constant with probability 1/2 where there is room, the others uniform, the constant still
    among them.
    """
    law = {}
    left = n_operands - len(start)
    for first in (True, False):
        options = sorted(pool - start) + ([] if first else ["constant"])
        chosen = list(combinations(options, left - first))
        for extra in chosen:
            case = frozenset(start | set(extra) | ({"constant"} if first else set()))
            law[case] = law.get(case, 0) + 0.5 / len(chosen)
    equations = no_draft().equations
    counts = dict.fromkeys(law, 0)
    for _ in range(10_000):
        draw_equation(
            7,
            n_operands,
            sum(1 << i for i in pool),
            sum(1 << i for i in start),
            True,
            23,
            equations,
            stream,
        )
        terms = equations.terms[7, : equations.n_terms[7]].tolist()
        counts[frozenset(terms + (["constant"] if equations.constant[7] >= 0 else []))] += 1
    assert chisquare(list(counts.values()), [10_000 * p for p in law.values()]).pvalue > 1e-3


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
