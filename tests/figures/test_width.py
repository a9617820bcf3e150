"""Widths: what grows with the width, and verdicts on made-up tables."""

import numpy as np

from figures.width.study import WIDTH, WIDTHS
from ihlab.recipes.induction import KV1, V2
from tests.figures.made_up import table, verdicts


def test_only_the_width_differs_and_heads_and_mlp_grow_with_it():
    models = {plan.cell_name: plan.config.model for plan in WIDTH.runs("laptop")}
    assert len(models) == 2 * len(WIDTHS)
    for variant in (KV1, V2):
        small, *wider = (models[f"{variant} | {width}"] for width in WIDTHS)
        for model in wider:
            sizes = {"d_model": model.d_model, "d_head": model.d_model // 4, "d_mlp": model.usual_mlp_width}
            assert model == small.replace(**sizes)


def judge(steps):
    found = verdicts(WIDTH, table(WIDTH, lambda cell: {"steps_to_90": steps[cell["variant"]], "best": 0.95}))
    assert len(found) == len(WIDTHS)
    return set(found.values())


def test_verdicts_can_come_out_either_way_with_these_seeds():
    assert judge({KV1: 60, V2: 300}) == {"holds"}
    assert judge({KV1: 60, V2: np.inf}) == {"holds"}
    assert judge({KV1: 200, V2: 300}) == {"fails"}
    assert judge({KV1: np.inf, V2: 300}) == {"fails"}
    assert judge({KV1: 150, V2: 300}) == {"undecided"}
    assert judge({KV1: np.inf, V2: np.inf}) == {"not tested at this scale"}
