"""The hop horizon: interpolation by hand, the published curves, and the verdicts of laws that hold and do not."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES
from ihlab.studies.figure8 import origin
from ihlab.studies.figure8_law import DEPTHS as LAW_DEPTHS
from ihlab.studies.figure8_law import HOPS, STEPS, Figure8Law
from ihlab.studies.hops import (
    KINDS,
    by_pointers,
    followed,
    hop_horizon,
    hops_followed,
    horizon_table,
    horizons,
    predicted,
)


def test_the_crossing_is_interpolated_in_log2_of_hops():
    assert hop_horizon([1, 2, 3, 4], [0, 0, 0.2, 0.9]) == (pytest.approx((1 + np.log2(3)) / 2), "")
    assert hop_horizon([1, 2, 3, 4], [0, 0.1, 0.1, 0.5]) == (pytest.approx(np.log2(3)), ""), "0.1 does not exceed 0.1"
    assert hop_horizon([1, 2, 3], [0.05, 0.15, 0.0]) == (pytest.approx(0.5), ""), "the first crossing counts"


def test_beyond_the_hops_of_a_row_there_is_only_a_bound():
    assert hop_horizon([1, 2, 3, 4], [0, 0, 0.05, 0.1]) == (2.0, "above")
    assert hop_horizon([1, 2], [0.4, 0.5]) == (0.0, "below")


def test_published_vanilla_models_go_beyond_a_layer_for_the_token_before():
    """With 2 and 3 layers as far as the longer construction, with 4 and 5 between the two."""
    table = horizons(origin().assign(attention="vanilla", seed=0)).set_index("n_layers")
    assert (2 ** table["log2_hops"]).round(1).tolist() == [1.6, 3.5, 6.8, 9.9, 16.0]
    assert table["bound"].tolist() == ["", "", "", "", "above"]
    assert all(2**log2 > by_pointers(("vanilla", depth)) for depth, log2 in table["log2_hops"].items() if depth < 6)
    table = followed(origin().assign(attention="vanilla", seed=0)).set_index("n_layers")["hops"]
    assert table.to_dict() == {2: 1, 3: 3, 4: 6, 5: 9, 6: 16}
    assert [predicted(("vanilla", depth)) for depth in table.index] == [1, 3, 7, 15, 31]


def planted(hops, seeds=8, scale="laptop"):
    """Errors of .01 up to so many hops (attention, L, seed) and .5 beyond, in every cell of a scale."""
    rows = []
    for kind, depths in LAW_DEPTHS[scale].items():
        for depth in depths:
            for seed in range(seeds):
                errors = np.where(np.arange(HOPS[scale] + 1) <= hops(kind, depth, seed), 0.01, 0.5)
                facts = {"attention": kind, "n_layers": depth, "seed": seed}
                rows.append(pd.DataFrame({**facts, "hops": range(len(errors)), "error": errors}))
    return pd.concat(rows, ignore_index=True)


def by_hand(kind, depth, seed):
    return predicted((kind, depth))


def shifted_by_pointers(kind, depth, seed):
    """Vanilla as by hand, shifted keys as with pointers alone."""
    return (by_pointers if kind in {"KV shifting", "K only"} else predicted)((kind, depth))


def all_by_pointers(kind, depth, seed):
    """Vanilla, too, as if it needed a layer for the token before."""
    return by_pointers((kind, depth))


def beyond(kind, depth, seed):
    return by_hand(kind, depth, seed) + 1


def by_half_of_the_seeds(kind, depth, seed):
    return by_hand(kind, depth, seed) + seed % 2


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        (by_hand, [*["holds"] * 4, "fails", "fails"]),
        (shifted_by_pointers, ["holds", "fails", "fails", "holds", "holds", "fails"]),
        # two layers whose values alone are shifted are as by hand in either
        (all_by_pointers, ["fails", "fails", "fails", "undecided", "holds", "holds"]),
        (beyond, ["fails"] * 6),
        (by_half_of_the_seeds, [*["undecided"] * 4, "fails", "fails"]),
    ],
)
def test_the_law_is_judged_by_how_many_models_follow_it_exactly(hops, expected):
    claims = judged(Figure8Law().claims(planted(hops, scale="gpu"), "gpu"))
    assert [claim.verdict for claim in claims] == expected
    laptop = judged(Figure8Law().claims(planted(hops), "laptop"))
    asked = [claim.sentence.partition(" (L = ")[0] for claim in laptop]
    assert asked == [claim.sentence.partition(" (L = ")[0] for claim in claims]
    assert laptop[1].sentence.endswith(" (L = 2)"), "rows of 5 hops cannot show 7"


def test_hops_are_followed_without_a_gap():
    assert hops_followed([0.0, 0.1, 0.2, 0.05]) == 2, "0.1 is small, and what comes after a gap does not count"
    assert hops_followed([0.2, 0.0]) == 0
    assert hops_followed([0.0, 0.0]) == 2
    table = followed(planted(shifted_by_pointers)).set_index(["attention", "n_layers"])["hops"]
    assert set(table["KV shifting", 3]) == {4}
    assert set(table["vanilla", 3]) == {3}
    assert len(table) == 7 * 8


def test_the_table_has_what_is_known_by_hand_beside_the_median_model():
    table = horizon_table(planted(by_half_of_the_seeds)).set_index(["attention", "n_layers"])
    assert len(table) == 7
    row = table.loc[("vanilla", 3)]
    assert (row["models"], row["by_hand"], row["pointers"], row["hops"]) == (8, 3, 2, "3 3 3 3 4 4 4 4")
    assert 3 < row["low"] < row["k_star"] < row["high"] < 5
    for (kind, depth), known in table.iterrows():
        assert (known["by_hand"], known["pointers"]) == (predicted((kind, depth)), by_pointers((kind, depth)))


def test_attentions_are_planned_on_rows_with_more_hops_than_any_is_to_follow():
    law = Figure8Law()
    for scale in SCALES:
        planned = law.runs(scale)
        kinds = {(plan.config.model.attention, plan.config.model.n_layers) for plan in planned}
        names = {label: kind for kind, label in KINDS.items()}
        assert kinds == {(names[label], depth) for label, depths in LAW_DEPTHS[scale].items() for depth in depths}
        assert len({plan.config.digest for plan in planned}) == len(planned)
        most = max(by_pointers((label, depth)) for label, depths in LAW_DEPTHS[scale].items() for depth in depths)
        assert {plan.config.task.max_hops for plan in planned} == {most + 1}
        for plan in planned:
            assert plan.config.model.d_vocab == plan.config.task.vocab_size
            assert plan.config.steps == STEPS[scale][plan.config.model.n_layers]


def test_the_picture_and_the_sentence_follow_from_the_table():
    data = planted(by_hand)
    (axes,) = Figure8Law().draw(data, "laptop").axes
    assert {text.get_text() for text in axes.figure.legends[0].get_texts()} >= {
        "vanilla",
        "KV shifting",
        "vanilla, published",
    }
    said = Figure8Law().summary(data, "laptop")
    assert "vanilla with 3 layers 3, 3, 3, 3, 3, 3, 3, 3 (by hand 3)" in said
