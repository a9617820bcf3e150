"""Which half of the shift: verdicts on planted horizons where it is the keys', both, neither, or the values'."""

import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES
from ihlab.studies.hops import predicted
from ihlab.studies.saved_layer import DEPTH, SavedLayer
from ihlab.studies.shift_halves import ShiftHalves
from tests.studies.test_saved_layer import planted as planted_cells

KEYS, VALUES = CELLS = ("K only", 3), ("V only", 3)
H, F, U = "holds", "fails", "undecided"


def planted(keys, values):
    """Errors of eight models of either half that cross .1 at so many hops, a little apart in each seed."""
    return planted_cells((keys, values), seeds=8, cells=CELLS, apart=0.02)


@pytest.mark.parametrize(
    ("keys", "values", "expected"),
    [
        (7.5, 3.5, [H, H, H, F, H]),  # both as by hand
        (4.5, 3.5, [H, F, H, H, F]),  # pointers alone, but for the values
        (4.5, 2.3, [H, F, F, H, F]),  # pointers alone: 4 hops are half a doubling of 3
        (3.5, 3.5, [U, F, H, F, F]),  # keys are worth nothing; equality is no more
        (3.5, 4.5, [F, F, F, F, F]),  # values are worth something
        (5.5, 3.5, [H, H, H, F, F]),  # .74 of a doubling in whole hops, and .65 as it was declared, interpolated
    ],
)
def test_each_verdict_can_come_out_each_way(keys, values, expected):
    found = [claim.verdict for claim in judged(ShiftHalves().claims(planted(keys, values), "laptop"))]
    assert found == expected


def test_one_model_that_stands_still_does_not_hide_the_difference():
    """As one of five models of both halves did, at the three hops of vanilla; their mean would be undecided."""
    data = planted(7.0, 3.2)
    stuck = (data["attention"] == "K only") & (data["seed"] == 0)
    data.loc[stuck, "error"] = data.loc[(data["attention"] == "V only") & (data["seed"] == 0), "error"].to_numpy()
    halves, layer, *_ = judged(ShiftHalves().claims(data, "laptop"))
    assert halves.verdict == H
    assert "7 of 8 and 0 of 8; by Fisher's exact test p 0.0014" in halves.measure
    assert (layer.verdict, layer.estimate.value, layer.first.verdict) == (U, 0.875, H)
    assert ShiftHalves().claims(data, "gpu")[1].first is None, "there it is as it was declared"


def test_what_is_known_by_hand_sets_the_halves_a_layer_apart():
    for layers in range(1, 6):
        assert predicted(("K only", layers)) == predicted(("V only", layers + 1))


@pytest.mark.parametrize("scale", SCALES)
def test_all_is_as_where_both_halves_are_shifted(scale):
    runs = ShiftHalves().runs(scale)
    assert {run.config.model.attention for run in runs} == {"k_shift", "v_shift"}
    assert {run.config.model.n_layers for run in runs} == {DEPTH[scale]}
    [both] = {
        run.config.but(name="same", seed=0, model=run.config.model.but(attention="vanilla"))
        for run in SavedLayer().runs(scale)
        if run.config.model.attention == "kv_shift"
    }
    assert {run.config.but(name="same", seed=0, model=run.config.model.but(attention="vanilla")) for run in runs} == {
        both
    }
    assert len({run.config.digest for run in runs}) == len(runs)


def test_the_sentence_and_the_picture_follow_from_the_table():
    data = planted(5.5, 3.5)
    said = ShiftHalves().summary(data, "laptop")
    assert "V only with 3 layers 3.3, 3.4, 3.4, 3.5, 3.5, 3.5, 3.5, 3.6 (whole hops 3, 3, 3, 3, 3, 3, 3, 3;" in said
    (axes,) = ShiftHalves().draw(data, "laptop").axes
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()][-2:] == ["K only", "V only"]
