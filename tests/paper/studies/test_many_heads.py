"""Many heads: which starts are planned, distances measured on the model, verdicts on made-up tables."""

import math

import numpy as np
import pytest

from ihlab import train
from ihlab.paper.studies.many_heads import HEADS, MANY_HEADS, ONE, OWN, correlation
from tests.paper.studies import made_up

COUNTS = (1, *HEADS)
FASTER, ALIKE = {1: 200, 2: 170, 4: 140, 8: 120}, dict.fromkeys(COUNTS, 200)


def table(own, one, related=0.0):
    """Steps by number of heads, give or take; `related` of the spread follows the distance."""
    data = made_up.table(
        MANY_HEADS, lambda cell: {"steps_to_90": {OWN: own, ONE: one}[cell["starts"]][cell["heads"]]}, noise=0.0
    )
    rng = np.random.default_rng(0)
    distance, noise = rng.uniform(size=len(data)), 0.05 * (1 - abs(related)) * rng.normal(size=len(data))
    return data.assign(
        distance=distance, steps_to_90=data["steps_to_90"] * (1 + 0.1 * related * (distance - 0.5) + noise)
    )


def verdicts(data):
    return [*made_up.verdicts(MANY_HEADS, data).values()]


def test_every_head_count_is_trained_with_both_kinds_of_start():
    planned = MANY_HEADS.runs("laptop")
    by = {(p.config.model.n_heads, p.config.init_shift is None, p.config.seed) for p in planned}
    assert len(planned) == len(by) == 24 * 7
    assert {p.config.model.d_head for p in planned} == {8}
    assert {p.config.model.n_heads for p in planned if OWN in p.cell_name} == {2, 4, 8}
    starts = {p.config.seed: set() for p in planned}
    for p in planned:
        assert (OWN in p.cell_name) == (p.config.init_shift is None)
        starts[p.config.seed].add(p.config.init_shift)
    assert all(len(found - {None}) == 1 for found in starts.values()), "one start for all heads, and for a single head"
    drawn = np.array([(found - {None}).pop() for found in starts.values()])
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert drawn.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.2)


def test_verdicts_can_come_out_either_way():
    assert verdicts(table(FASTER, ALIKE, related=0.8)) == ["holds"] * 5
    assert verdicts(table(ALIKE, FASTER, related=-0.8)) == ["fails"] * 5
    assert verdicts(table(FASTER, FASTER))[:3] == ["holds", "fails", "fails"], "more parameters, whatever the starts"
    assert verdicts(table(ALIKE, ALIKE))[:3] == ["fails", "holds", "fails"]


def test_models_that_never_learn_decide_nothing():
    never = dict.fromkeys(COUNTS, math.inf)
    assert verdicts(table(never, never)) == ["not tested at this scale"] * 3 + ["undecided"] * 2


def test_the_correlation_is_within_a_number_of_heads():
    """Across numbers of heads, steps fall where distances do; within each number they are unrelated, or opposed."""
    data = table(FASTER, ALIKE)
    rank = data.groupby(["starts", "heads"]).cumcount() % 24
    data["distance"] = 1 / data["heads"] + 0.001 * rank
    for sign in (1, -1):
        data["steps_to_90"] = 1000 / data["heads"] + sign * rank
        assert correlation(data, OWN).value == pytest.approx(sign)
    shuffled = data.assign(steps_to_90=np.random.default_rng(0).permutation(len(data)))
    assert correlation(shuffled, OWN).low < 0 < correlation(shuffled, OWN).high


def test_the_distance_is_that_of_the_nearest_head_of_the_model(tmp_path):
    planned = [p for p in MANY_HEADS.runs("smoke") if p.config.seed == 0]
    trained = [(p.cell_name, train(p.config, tmp_path)) for p in planned]
    data = MANY_HEADS.gather(trained, "smoke")
    assert data[["heads", "starts"]].to_numpy().tolist() == [[1, ONE], [2, OWN], [2, ONE]]
    for (_, run), distance in zip(trained, data["distance"], strict=True):
        attn = run.model(0).layers[0].attn
        each = [math.hypot(a, 1 - b) for a, b in zip(attn.alpha[:, 0].tolist(), attn.beta[:, 0].tolist(), strict=True)]
        assert distance == pytest.approx(min(each), abs=1e-5)
    assert data["distance"][0] == data["distance"][2] != data["distance"][1]
