"""The hand-built models against the formulas they stand for."""

import math
from itertools import pairwise

import pytest
import torch

from ihlab.theory.constructions import (
    checker,
    kv_shift_induction_head,
    meta_learner,
    shifted_head,
    two_layer_induction_head,
)
from ihlab.theory.function import IH
from tasks import ConfigError

SIGMA, SLOPE = 0.3, 0.1


def random_rows(n, d, seed):
    """Entries in [-1, 1], as Theorem 3.2's bound needs them."""
    return (
        torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    )


@torch.no_grad()
def outputs(model, n):
    """What the model writes at every token of the row 0 .. n - 1, so that x is its embedding."""
    return model.final_residual(torch.arange(n)[None])[0]


# Theorem 3.3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("mask", "keys"), [("causal", "all"), ("strict", "earlier")])
def test_one_kv_shifting_layer_is_the_induction_heads_machine(seed, mask, keys):
    x = random_rows(11, 5, seed)
    out = outputs(kv_shift_induction_head(x, 11, SIGMA, SLOPE, mask), 11)
    for n in range(2, 12):
        torch.testing.assert_close(out[n - 1], IH(x[:n], SIGMA, SLOPE, keys), rtol=0, atol=1e-10)


# Theorem 3.2


def error_of_two_layers(p, seed, mask="strict", keys="earlier", d=4, n=9):
    x = random_rows(n, d, seed)
    out = outputs(two_layer_induction_head(x, n, SIGMA, SLOPE, float(p), mask), n)
    return max(
        float((out[m - 1, :d] - IH(x[:m], SIGMA, SLOPE, keys)).abs().max()) for m in range(2, n + 1)
    )


@pytest.mark.parametrize("p", [1, 4, 12])
def test_two_layers_err_less_than_the_bound(p):
    bound = 4 * 4 / SIGMA * math.exp(-p) / (1 - math.exp(-p))
    assert max(error_of_two_layers(p, seed) for seed in range(5)) < bound


def test_the_error_falls_as_exp_minus_p():
    errors = [max(error_of_two_layers(p, seed) for seed in range(5)) for p in range(5, 13)]
    falls = [math.log(a / b) for a, b in pairwise(errors)]
    assert falls == pytest.approx([1.0] * 7, abs=0.03)


def test_a_first_layer_that_sees_its_own_token_does_not_approach_the_machine():
    """What the proof leaves out of its sum: y_s would tend to x_s."""
    errors = [error_of_two_layers(p, 0, "causal", "all") for p in (4, 8, 12)]
    assert min(errors) > 0.5
    assert errors[2] == pytest.approx(errors[1], rel=0.01)


# Equations 11 and 12


def test_the_meta_learner_is_equation_11_with_the_value_that_follows():
    x = random_rows(8, 5, 3)
    out = outputs(meta_learner(x, 8, 0.4), 8)
    for n in range(1, 9):
        torch.testing.assert_close(out[n - 1], IH(x[:n], 0.4, 0.0, "all"), rtol=0, atol=1e-10)


def test_the_checker_is_equation_12():
    x = random_rows(8, 5, 3)
    out, before = outputs(checker(x, 8, 0.4), 8), torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    assert not out[0].any()
    for n in range(1, 8):
        expected = (x[:n] @ x[n] / 0.4).softmax(dim=0) @ before[:n]
        torch.testing.assert_close(out[n], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("build", [kv_shift_induction_head, two_layer_induction_head])
def test_a_temperature_of_zero_is_refused(build):
    more = {"first_slope": 1.0} if build is two_layer_induction_head else {}
    with pytest.raises(ConfigError, match=r"sigma is 0.0, but must be positive"):
        build(torch.eye(4), 4, sigma=0.0, slope=0.1, **more)


def test_a_head_needs_two_numbers_a_side():
    with pytest.raises(ConfigError, match=r"alpha is \[0\.5\] .* each needs two numbers"):
        shifted_head(torch.eye(4), 4, [0.5], [1.0, 0.0])
