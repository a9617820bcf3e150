"""Whether the shift is worth a layer: verdicts on planted horizons that are, and are not, a layer apart."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.experiment import SCALES
from ihlab.studies.hops import KINDS, by_pointers, predicted
from ihlab.studies.saved_layer import DEPTH, STEPS, SavedLayer

CELLS = (("KV shifting", 3), ("vanilla", 3), ("vanilla", 4))


def planted(hops, seeds=5, cells=CELLS, apart=0.03):
    """Errors that cross .1 at so many hops (a number for each cell), a little apart in each seed."""
    rows = []
    for (kind, depth), crossing in zip(cells, hops, strict=True):
        for seed in range(seeds):
            k = np.arange(9)
            at = crossing * 2 ** (apart * (seed - (seeds - 1) / 2))
            errors = np.clip(0.1 + 0.5 * (np.log2(np.maximum(k, 0.5)) - np.log2(at)), 0, 1)
            facts = {"attention": kind, "n_layers": depth, "seed": seed}
            rows.append(pd.DataFrame({**facts, "hops": k, "error": errors}))
    return pd.concat(rows, ignore_index=True)


H, F, U, N = "holds", "fails", "undecided", NOT_TESTED


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ((7.0, 3.2, 7.0), [H, H, N, H, H, H, N, H, U]),  # by hand: 7 is not beyond 7
        ((4.4, 2.2, 4.4), [H, H, N, H, H, H, N, F, F]),  # pointers alone
        ((3.2, 3.2, 7.0), [U, F, N, F, H, H, N, F, F]),  # the shift does nothing; equality is no more
        ((5.3, 3.2, 5.5), [H, U, N, H, H, U, N, H, F]),  # .73 and .78 of a doubling, to be told from .7
        ((7.5, 3.2, 4.0), [H, H, N, H, F, F, N, H, H]),  # it is worth more than a vanilla layer
    ],
)
def test_each_verdict_can_come_out_each_way(hops, expected):
    found = [claim.verdict for claim in judged(SavedLayer().claims(planted(hops), "laptop"))]
    assert found == expected
    first = [claim.first.verdict for claim in judged(SavedLayer().claims(planted(hops), "laptop")) if claim.first]
    assert first == [H, H], "as declared, no horizon that rows of 8 hops can show is more than a layer"


def test_both_constructions_give_the_shift_the_worth_of_a_layer():
    """So that the question needs no answer to which of the two is learned."""
    for layers in range(1, 6):
        assert predicted(("KV shifting", layers)) == predicted(("vanilla", layers + 1))
        assert by_pointers(("KV shifting", layers)) == by_pointers(("vanilla", layers + 1))


@pytest.mark.parametrize("scale", SCALES)
def test_rows_have_a_hop_more_than_is_followed_by_hand(scale):
    runs = SavedLayer().runs(scale)
    layers = DEPTH[scale]
    names = {label: kind for kind, label in KINDS.items()}
    cells = {(names[kind], depth + layers - 3) for kind, depth in CELLS}
    assert {(run.config.model.attention, run.config.model.n_layers) for run in runs} == cells
    [hops] = {run.config.task.max_hops for run in runs}
    assert hops == predicted(("KV shifting", layers)) + 1
    assert {run.config.steps for run in runs} == {STEPS[scale]}, "the same for all"
    assert len({run.config.digest for run in runs}) == len(runs)


def test_the_sentence_and_the_picture_follow_from_the_table():
    data = planted((5.3, 3.2, 5.5))
    said = SavedLayer().summary(data, "laptop")
    assert "vanilla with 3 layers 3.1, 3.1, 3.2, 3.3, 3.3 (whole hops 3, 3, 3, 3, 3; by hand 3, by pointers" in said
    (axes,) = SavedLayer().draw(data, "laptop").axes
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()][-2:] == ["vanilla", "KV shifting"]
