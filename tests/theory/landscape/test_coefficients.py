"""The exact learning coefficients: by the volume near each minimum, by quadrature, and by Gaussian integrals."""

import math

import numpy as np
import pytest
import torch

from ihlab.theory.landscape.coefficients import CROSSING, DECAY, MINIMA, N_TOKENS, REGULAR, Minimum, log_probabilities
from ihlab.theory.landscape.forms import evaluate

POINTS = 3_000_000


def around(minimum: Minimum, n: int, half: float) -> torch.Tensor:
    """Draw points from the box of this half width around a minimum, in its free parameters."""
    generator = torch.Generator().manual_seed(0)
    w = torch.tensor(minimum.at, dtype=torch.float64)[:, None].repeat(1, n)
    w[list(minimum.free)] += half * (2 * torch.rand(len(minimum.free), n, generator=generator, dtype=torch.float64) - 1)
    return w


def test_the_first_probability_is_theorem_3_4s_and_the_four_sum_to_one():
    w = 2 * torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = log_probabilities(w)
    torch.testing.assert_close(-found[0], torch.from_numpy(evaluate(w.numpy(), N_TOKENS)[0]))
    torch.testing.assert_close(found.exp().sum(dim=0), torch.ones(50, dtype=torch.float64))


@pytest.mark.parametrize("name", MINIMA)
def test_every_point_is_a_minimum_of_value_0(name):
    minimum = MINIMA[name]
    at = torch.tensor(minimum.at, dtype=torch.float64, requires_grad=True)
    value = minimum.excess(at)
    (slope,) = torch.autograd.grad(value, at)
    assert value.item() == pytest.approx(0, abs=1e-14)
    assert slope.abs().max() < 1e-9
    assert minimum.excess(around(minimum, 10_000, 0.5)).min() > -1e-15


def test_the_regular_point_minimises_the_loss_with_weight_decay():
    minimum = MINIMA[REGULAR]
    w = around(minimum, 100, 0.5)
    decayed, least = (
        evaluate(x, N_TOKENS)[0] + DECAY / 2 * (x**2).sum(axis=0) for x in (w.numpy(), np.array(minimum.at))
    )
    torch.testing.assert_close(minimum.excess(w), torch.from_numpy(decayed - least))


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIMA)
def test_the_volume_below_a_small_loss_scales_with_the_coefficient(name):
    """V(eps) ~ eps^lambda (log 1/eps)^(m - 1): the slope of log V, less that of the logarithm, is lambda."""
    minimum = MINIMA[name]
    k = minimum.excess(around(minimum, POINTS, 0.5)).clamp_min(0).sort().values / minimum.stiffness
    few, many = 300, 3000
    small, large = float(k[few]), float(k[many])
    width = math.log(large / small)
    logarithm = math.log(math.log(1 / large) / math.log(1 / small)) / width
    assert math.log(many / few) / width - (minimum.multiplicity - 1) * logarithm == pytest.approx(
        minimum.coefficient, abs=0.05
    )


@pytest.mark.slow
def test_tempered_equals_quadrature_at_the_crossing():
    minimum, n_beta, localization = MINIMA[CROSSING], 1000 / MINIMA[CROSSING].stiffness, 1.0
    axis = torch.linspace(-5, 5, 2001, dtype=torch.float64)
    w = torch.tensor(minimum.at, dtype=torch.float64)[:, None, None].repeat(1, 2001, 2001)
    w[1], w[2] = w[1] + axis[:, None], w[2] + axis
    k = minimum.excess(w)
    density = (-n_beta * k - localization / 2 * (axis[:, None] ** 2 + axis**2)).exp()
    expected = n_beta * float((k * density).sum() / density.sum())
    assert minimum.tempered(n_beta, localization) == pytest.approx(expected, rel=0.03)
