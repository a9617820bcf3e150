"""The induction heads machine against Definition 3.1 written out as a loop."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ihlab.theory.function import IH
from tasks import ConfigError


def machine_by_loops(rows, sigma, slope, first, last):
    """Definition 3.1 in plain Python: tokens count from 1, the token before the first is 0."""
    n, d = len(rows), len(rows[0])
    x = {0: [0.0] * d, **{s: rows[s - 1] for s in range(1, n + 1)}}
    scores = {
        s: sum(a * b for a, b in zip(x[n], x[s - 1], strict=True)) / sigma - slope * (n - s)
        for s in range(first, last + 1)
    }
    total = sum(math.exp(score) for score in scores.values())
    return [sum(math.exp(scores[s]) / total * x[s][i] for s in scores) for i in range(d)]


@given(
    st.integers(3, 9),
    st.integers(1, 4),
    st.floats(0.2, 3.0),
    st.floats(0.0, 2.0),
    st.integers(0, 1000),
)
def test_every_set_of_keys_equals_the_loop(n, d, sigma, slope, seed):
    x = torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    for keys, first, last in (("inner", 2, n - 1), ("earlier", 1, n - 1), ("all", 1, n)):
        expected = machine_by_loops(x.tolist(), sigma, slope, first, last)
        assert IH(x, sigma, slope, keys).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sigma": 0.0}, "sigma is 0.0, but must be positive"),
        ({"keys": "iner"}, "There is no set of keys 'iner'; did you mean 'inner'?"),
        ({"x": torch.full((4, 2), torch.nan)}, "not finite"),
        ({"slope": math.inf}, "not finite"),
        ({"x": torch.ones(4, 2), "sigma": 1e-320}, "not finite"),
        ({"x": torch.zeros(2, 3)}, "x has 2 tokens, but IH with keys='inner' needs 3"),
    ],
)
def test_bad_input_gets_one_sentence(change, said):
    with pytest.raises(ConfigError) as refusal:
        IH(**{"x": torch.zeros(4, 2), "sigma": 1.0, "slope": 0.1, **change})
    assert said in str(refusal.value)
