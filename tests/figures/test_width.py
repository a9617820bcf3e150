"""Widths: what grows with the width, and verdicts on made-up tables."""

import numpy as np

from figures.width.study import WIDTH, WIDTHS
from ihlab.recipes.induction import KV1, V2
from tests.figures.made_up import table, verdicts


def judge(steps):
    found = verdicts(
        WIDTH, table(WIDTH, lambda cell: {"steps_to_90": steps[cell["variant"]], "best": 0.95})
    )
    assert len(found) == len(WIDTHS)
    return set(found.values())


def test_verdicts_can_come_out_either_way_with_these_seeds():
    assert judge({KV1: 60, V2: 300}) == {"holds"}
    assert judge({KV1: 60, V2: np.inf}) == {"holds"}
    assert judge({KV1: 200, V2: 300}) == {"fails"}
    assert judge({KV1: np.inf, V2: 300}) == {"fails"}
    assert judge({KV1: 150, V2: 300}) == {"undecided"}
    assert judge({KV1: np.inf, V2: np.inf}) == {"not tested at this scale"}
