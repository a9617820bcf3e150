"""Many heads: which starts are planned, distances measured on the model, verdicts on made-up tables."""

import math

import numpy as np
import pandas as pd
import pytest

from ihlab import train
from ihlab.claims.claim import judged
from ihlab.studies.many_heads import HEADS, ONE, OWN, ManyHeads, correlation, start, steps

COUNTS = HEADS["laptop"]


def table(own, one, related=0.0):
    """A laptop table: steps by number of heads, give or take 5%; `related` of the spread follows the distance."""
    rng, rows = np.random.default_rng(0), []
    for starts, of in ((OWN, own), (ONE, one)):
        for heads in COUNTS:
            for seed in range(24 if heads > 1 or starts == ONE else 0):
                distance = rng.uniform()
                noise = 0.05 * (1 - abs(related)) * rng.normal()
                taken = of[heads] * (1 + 0.1 * related * (distance - 0.5) + noise)
                rows.append((heads, starts, 8e-3, seed, taken, 0.9, 1000, distance))
    columns = ["heads", "starts", "lr", "seed", "steps_to_90", "accuracy_first", "horizon", "distance"]
    return pd.DataFrame(rows, columns=columns)


FASTER, ALIKE = {1: 200, 2: 170, 4: 140, 8: 120}, dict.fromkeys(COUNTS, 200)


def verdicts(data):
    return [claim.verdict for claim in judged(ManyHeads().claims(data, "laptop"))]


def test_every_head_count_is_trained_with_both_kinds_of_start():
    planned = ManyHeads().runs("laptop")
    by = {(p.config.model.n_heads, p.config.init_shift is None, p.config.seed) for p in planned}
    assert len(planned) == len(by) == 24 * 7
    assert {p.config.model.d_head for p in planned} == {8}
    for p in planned:
        assert p.config.init_shift == (start(p.config.seed) if ONE in p.curve else None)
        assert (OWN in p.curve) == (p.config.init_shift is None)
    assert {p.config.model.n_heads for p in planned if OWN in p.curve} == {2, 4, 8}


def test_starts_are_drawn_from_the_unit_square():
    drawn = np.array([start(seed) for seed in range(2000)])
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert drawn.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.02)
    assert drawn.std(axis=0) == pytest.approx([12**-0.5] * 2, abs=0.01)
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(0, abs=0.07)


def test_verdicts_can_come_out_either_way():
    assert verdicts(table(FASTER, ALIKE, related=0.8)) == ["holds"] * 5
    assert verdicts(table(ALIKE, FASTER, related=-0.8)) == ["fails"] * 5
    assert verdicts(table(FASTER, FASTER))[:3] == ["holds", "fails", "fails"], "more parameters, whatever the starts"
    assert verdicts(table(ALIKE, ALIKE))[:3] == ["fails", "holds", "fails"]


def test_models_that_never_learn_decide_nothing():
    never = dict.fromkeys(COUNTS, math.inf)
    assert verdicts(table(never, never)) == ["undecided"] * 5
    assert "never, never" in ManyHeads().summary(table(never, never), "laptop")
    assert ManyHeads().draw(table(never, never), "laptop")


def test_one_head_has_one_start_in_both_comparisons():
    data = table(FASTER, ALIKE)
    assert steps(data, OWN, 1) == steps(data, ONE, 1)
    assert steps(data, OWN, 8) != steps(data, ONE, 8)


def test_the_correlation_is_within_a_number_of_heads():
    """Across numbers of heads, steps fall where distances do; within each number they are unrelated, or opposed."""
    data = table(FASTER, ALIKE)
    rank = data.groupby(["starts", "heads"]).cumcount() % 24
    data["distance"] = 1 / data["heads"] + 0.001 * rank
    for sign in (1, -1):
        data["steps_to_90"] = 1000 / data["heads"] + sign * rank
        found = correlation(data, OWN, (2, 4, 8))
        assert found.value == pytest.approx(sign)
    shuffled = data.assign(steps_to_90=np.random.default_rng(0).permutation(len(data)))
    assert correlation(shuffled, OWN, (2, 4, 8)).low < 0 < correlation(shuffled, OWN, (2, 4, 8)).high


@pytest.mark.slow
def test_the_interval_of_the_correlation_covers_the_truth():
    """Starts that say nothing about the steps, shared by all numbers of heads as in the control."""
    rng, covered = np.random.default_rng(0), 0
    data = table(FASTER, ALIKE)
    data = data[(data["starts"] == ONE) & (data["heads"] > 1)]
    for _ in range(200):
        shared = np.tile(rng.uniform(size=24), 3)
        found = correlation(data.assign(distance=shared, steps_to_90=rng.uniform(size=72)), ONE, (2, 4, 8))
        covered += found.low <= 0 <= found.high
    assert 0.91 <= covered / 200 <= 0.99


def test_the_distance_is_that_of_the_nearest_head_of_the_model(tmp_path):
    planned = [p for p in ManyHeads().runs("smoke") if p.config.seed == 0]
    trained = [(p.curve, train(p.config, tmp_path)) for p in planned]
    data = ManyHeads().gather(trained, "smoke")
    assert data[["heads", "starts"]].to_numpy().tolist() == [[1, ONE], [2, OWN], [2, ONE]]
    for (_, run), distance in zip(trained, data["distance"], strict=True):
        attn = run.model(0).layers[0].attn
        each = [math.hypot(a, 1 - b) for a, b in zip(attn.alpha[:, 0].tolist(), attn.beta[:, 0].tolist(), strict=True)]
        assert distance == pytest.approx(min(each), abs=1e-5)
    assert data["distance"][0] == data["distance"][2], "one start for all heads, and for the single head"
    assert data["distance"][1] != data["distance"][2]


def test_the_picture_follows_from_the_table():
    data = table(FASTER, ALIKE)
    (axes,) = ManyHeads().draw(data, "laptop").axes
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert lines[OWN] == pytest.approx([200, 170, 140, 120], rel=0.05)
    assert lines[ONE] == pytest.approx([200] * 4, rel=0.05)
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == len(data)
