"""Slopes of made-up costs, FLOPs by hand, and one axis measured for real."""

import numpy as np
import pandas as pd
import pytest
import torch
from cost_curves import Point, slopes
from torch.nn import functional as F
from workers import flops

pytestmark = pytest.mark.slow

SIZES = (2, 4, 8)


def made_up(exponents):
    """Time as x to the given powers, one a turn; memory as x; FLOPs as x^2, bytes as x^3."""
    seconds = {Point("length", x): np.array([float(x) ** e for e in exponents]) for x in SIZES}
    points = [
        {"axis": "length", "value": x, "mib": 5.0 * x, "counted_gflop": x**2, "counted_mib": x**3}
        for x in SIZES
    ]
    return pd.DataFrame(points), seconds


def test_slopes_are_of_each_turn_and_of_what_was_counted():
    found = slopes(*made_up([1.0, 1.2, 2.0])).set_index("cost")
    assert list(found.loc["time", ["measured", "min", "max", "counted"]]) == pytest.approx(
        [1.2, 1.0, 2.0, 2.0]
    )
    assert list(found.loc["memory", ["measured", "counted"]]) == pytest.approx([1.0, 3.0])


def test_flops_of_products_and_of_fused_attention():
    """A product of [m, k] and [k, n] takes 2 m n k; attention is two products for each row and
    head.
    """
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    assert flops(lambda: a @ b) == 2 * 3 * 5 * 7
    q = torch.ones(2, 4, 16, 8)  # [batch, head, pos, d_head]
    attention = flops(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    assert attention == 2 * (2 * 2 * 4 * 16 * 16 * 8)
