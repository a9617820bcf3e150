"""The hop horizon: interpolation by hand, bounds, and the table of what models follow beside what
is known by hand.
"""

import numpy as np
import pandas as pd
import pytest

from ihlab.recipes.hop_horizon import Cell, hop_horizon, horizon_table
from ihlab.recipes.labels import KV, VANILLA


@pytest.mark.parametrize(
    ("errors", "followed", "log2_hops"),
    [
        ([0, 0, 0.2, 0.9], 2, (1 + np.log2(3)) / 2),
        ([0, 0.1, 0.1, 0.5], 3, np.log2(3)),  # 0.1 does not exceed 0.1
        ([0.05, 0.15, 0.0], 1, 0.5),  # the first crossing counts, and nothing after a gap
        ([0, 0, 0.05, 0.1], 4, 2.0),  # beyond the hops of a sequence there is only a bound
        ([0.2, 0.0], 0, 0.0),
    ],
)
def test_the_crossing_is_interpolated_in_log2_of_hops(errors, followed, log2_hops):
    assert hop_horizon(errors) == (followed, pytest.approx(log2_hops))


def test_the_table_has_what_is_known_by_hand_beside_the_median_model():
    """Vanilla models of three layers follow three hops by hand, and two with pointers alone."""
    assert (Cell(VANILLA, 5).by_pointers(), Cell(KV, 5).by_pointers()) == (8, 16), "the paper's"
    rows = []
    for cell in (Cell(VANILLA, 3), Cell(KV, 2)):
        for followed in (3, 4, 3, 4):
            errors = [0.01 if k <= followed else 0.5 for k in range(1, 9)]
            hops, log2 = hop_horizon(errors)
            rows.append({**cell._asdict(), "hops": hops, "log2_hops": log2})
    table = horizon_table(pd.DataFrame(rows))
    assert table["attention"].tolist() == [VANILLA, KV]
    row = table.iloc[0]
    known = (row["models"], row["by_hand"], row["pointers"], row["hops"])
    assert known == (4, 3, 2, "3 3 4 4")
    assert 3 < row["low"] < row["k_star"] < row["high"] < 5
