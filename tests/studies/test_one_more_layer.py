"""One more layer with the shift: verdicts on planted horizons that grow with it, stand still, and shrink."""

import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES
from ihlab.studies.one_more_layer import SEEDS, OneMoreLayer
from ihlab.studies.saved_layer import DEPTH, SavedLayer
from tests.studies.test_saved_layer import planted as planted_cells

CELLS = ("KV shifting", 4), ("KV shifting", 3), ("vanilla", 4), ("K only", 4), ("V only", 4)
H, F, U = "holds", "fails", "undecided"


def planted(*hops, halves=(8.9, 7.5)):
    """Errors of eight models of each cell that cross .1 at so many hops, a little apart in each seed."""
    return planted_cells((*hops, *halves), seeds=8, cells=CELLS, apart=0.02)


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ((15.0, 7.5, 7.5), [H, H, H]),  # by hand: only that it is more is seen
        ((8.9, 4.5, 4.5), [H, H, H]),  # pointers alone
        ((7.5, 4.5, 4.5), [H, H, F]),
        ((4.5, 4.5, 7.5), [F, U, F]),  # a layer more teaches nothing; equality is no more
        ((4.5, 7.5, 4.5), [U, F, F]),  # it is too deep to be trained
        ((15.0, 15.0, 15.0), [U, U, H]),  # all follow what there is: nothing is told apart
    ],
)
def test_each_verdict_can_come_out_each_way(hops, expected):
    assert [claim.verdict for claim in judged(OneMoreLayer().claims(planted(*hops), "laptop"))][:3] == expected


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        ((8.9, 7.5), [H, H]),  # by hand, as far as is seen: 8 or more, and 7
        ((7.5, 4.5), [H, U]),  # the keys follow more, but not beyond vanilla by hand
        ((7.5, 7.5), [U, U]),  # equality is no more
        ((4.5, 8.9), [F, F]),
    ],
)
def test_verdicts_on_halves_can_come_out_each_way(halves, expected):
    claims = judged(OneMoreLayer().claims(planted(8.9, 4.5, 4.5, halves=halves), "laptop"))
    assert [claim.verdict for claim in claims][3:] == expected


def test_five_models_of_either_half_can_decide():
    data = planted(8.9, 4.5, 4.5)
    five = data[~data["attention"].isin(("K only", "V only")) | (data["seed"] < 5)]
    claims = judged(OneMoreLayer().claims(five, "laptop"))
    assert [claim.verdict for claim in claims][3:] == [H, H]
    assert "(5 of 5 and 0 of 5; by Fisher's exact test p 0.0079)" in claims[4].measure


def test_half_of_the_models_following_all_hops_is_undecided():
    data = planted(8.5, 4.5, 4.5)
    half = (data["attention"] == "KV shifting") & (data["n_layers"] == 4) & (data["seed"] < 4) & (data["hops"] > 6)
    data.loc[half, "error"] = 0.9
    claim = judged(OneMoreLayer().claims(data, "laptop"))[2]
    assert (claim.estimate.value, claim.verdict) == (0.5, U)


@pytest.mark.parametrize("scale", SCALES)
def test_runs_beside_it_are_those_of_saved_layer(scale):
    runs, beside = OneMoreLayer().runs(scale), {run.config for run in SavedLayer().runs(scale)}
    new = [run.config for run in runs if run.config not in beside]
    assert [run.model.attention for run in new].count("kv_shift") == SEEDS[scale]
    assert {run.model.attention for run in new} == {"kv_shift", "k_shift", "v_shift"}
    assert {run.model.n_layers for run in new} == {DEPTH[scale] + 1}
    assert len({run.config.name for run in runs}) == len(runs)
    [task] = {run.config.task for run in runs}
    assert task.max_hops == 2 ** DEPTH[scale]


def test_the_sentence_and_the_picture_follow_from_the_table():
    data = planted(7.5, 4.5, 4.5)
    said = OneMoreLayer().summary(data, "laptop")
    assert "KV shifting with 4 layers 7.1, 7.2, 7.3, 7.4, 7.6, 7.7, 7.8, 7.9 (whole hops" in said
    assert "by hand 15, by pointers alone 8)" in said
    (axes,) = OneMoreLayer().draw(data, "laptop").axes
    assert axes.get_title().startswith("One more layer (laptop scale; 8 seeds")
