"""Slopes of made-up costs, FLOPs by hand, and one axis measured for real."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from cost_curves import Point, slope, slopes
from torch.nn import functional as F
from workers import flops

from tests.forked import python

pytestmark = pytest.mark.slow

SIZES = (2, 4, 8)
MEASURE = """
import sys; sys.path.append(sys.argv[1])
import cost_curves
print(cost_curves.costs({"length": (32, 64)}, 1)[0].to_json(orient="records"))
"""


def made_up(exponents):
    """Time as x to the given powers, one a turn; memory as x; FLOPs as x^2, bytes as x^3."""
    seconds = {Point("length", x): np.array([float(x) ** e for e in exponents]) for x in SIZES}
    points = [{"axis": "length", "value": x, "mib": 5.0 * x, "counted_gflop": x**2, "counted_mib": x**3} for x in SIZES]
    return pd.DataFrame(points), seconds


def test_the_slope_of_a_power_is_its_exponent():
    x = np.array([1, 3, 9, 100])
    assert slope(x, 7.0 * x**1.5) == pytest.approx(1.5)
    assert slope(x, np.full(4, 2.0)) == pytest.approx(0)


def test_slopes_are_of_each_turn_and_of_what_was_counted():
    found = slopes(*made_up([1.0, 1.2, 2.0])).set_index("cost")
    assert list(found.loc["time", ["measured", "min", "max", "counted"]]) == pytest.approx([1.2, 1.0, 2.0, 2.0])
    assert list(found.loc["memory", ["measured", "counted"]]) == pytest.approx([1.0, 3.0])


def test_flops_of_products_and_of_fused_attention():
    """A product of [m, k] and [k, n] takes 2 m n k; attention is two products for each row and head."""
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    assert flops(lambda: a @ b) == 2 * 3 * 5 * 7
    q = torch.ones(2, 4, 16, 8)  # [batch, head, pos, d_head]
    attention = flops(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    assert attention == 2 * (2 * 2 * 4 * 16 * 16 * 8)


def test_one_axis_measured():
    """Twice the length: twice the FLOPs of projections and MLP, and a little more for attention."""
    folder = Path(__file__).parents[2] / "benchmarks"
    done = python(MEASURE, str(folder))
    assert done.returncode == 0, done.stderr
    points = pd.DataFrame(json.loads(done.stdout))
    assert list(points["value"]) == [32, 64]
    assert (points[["ms", "mib", "counted_mib"]] > 0).all(axis=None)
    short, long = points["counted_gflop"]
    assert 2 < long / short < 2.5
