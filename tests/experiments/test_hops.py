"""The hop horizon: interpolation by hand, the published curves, and the verdicts of laws that hold and do not."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from ihlab.experiments.claims import NOT_TESTED, Claim, judged
from ihlab.experiments.figure8 import DEPTHS, Figure8, origin
from ihlab.experiments.figure8_law import DEPTHS as LAW_DEPTHS
from ihlab.experiments.figure8_law import Figure8Law
from ihlab.experiments.hops import gap_claim, hop_horizon, horizons, layer_claim, predicted


def test_the_crossing_is_interpolated_in_log2_of_hops():
    assert hop_horizon([1, 2, 3, 4], [0, 0, 0.2, 0.9]) == (pytest.approx((1 + np.log2(3)) / 2), "")
    assert hop_horizon([1, 2, 3, 4], [0, 0.1, 0.1, 0.5]) == (pytest.approx(np.log2(3)), ""), "0.1 does not exceed 0.1"
    assert hop_horizon([1, 2, 3], [0.05, 0.15, 0.0]) == (pytest.approx(0.5), ""), "the first crossing counts"


def test_beyond_the_hops_of_a_row_there_is_only_a_bound():
    assert hop_horizon([1, 2, 3, 4], [0, 0, 0.05, 0.1]) == (2.0, "above")
    assert hop_horizon([1, 2], [0.4, 0.5]) == (0.0, "below")


def test_published_vanilla_models_go_a_little_beyond_the_construction():
    table = horizons(origin().assign(attention="vanilla", seed=0)).set_index("n_layers")
    assert (2 ** table["log2_hops"]).round(1).tolist() == [1.6, 3.5, 6.8, 9.9, 16.0]
    assert table["bound"].tolist() == ["", "", "", "", "above"]
    assert all(2**log2 > predicted(("vanilla", depth)) for depth, log2 in table["log2_hops"].items() if depth < 6)


def planted(horizon, depths, hops=16, noise=0.02, seeds=5):
    """Errors that grow evenly with log2 k and pass 0.1 at 2^horizon(attention, L) hops, or near it: seeds differ."""
    rng, rows = np.random.default_rng(0), []
    for kind in ("vanilla", "KV shifting", "K only", "V only"):
        for depth in depths:
            for seed in range(seeds):
                at = horizon(kind, depth) + noise * rng.normal()
                errors = np.clip(0.1 + 0.08 * (np.log2(np.maximum(np.arange(hops + 1), 0.5)) - at), 0, 1)
                facts = {"attention": kind, "n_layers": depth, "seed": seed}
                rows.append(pd.DataFrame({**facts, "hops": range(hops + 1), "error": errors}))
    return pd.concat(rows, ignore_index=True)


def law(kind, depth):
    return depth - (1.0 if kind in {"KV shifting", "K only"} else 2.0) + 0.2


def no_law(kind, depth):
    """A layer is worth half a doubling, the shift next to nothing, and each half of it more than both."""
    return 0.5 * depth + {"vanilla": 0.0, "KV shifting": 0.1, "K only": 1.0, "V only": 0.5}[kind]


def at_the_margin(kind, depth):
    return 0.7 * depth + {"vanilla": 0.0, "KV shifting": 0.7, "K only": 1.0, "V only": 0.3}[kind]


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [
        (law, ["holds"] * 6),
        (no_law, ["fails"] * 6),
        (at_the_margin, [*["undecided"] * 3, "holds", *["undecided"] * 2]),
    ],
)
def test_the_law_is_judged_by_its_steps(horizon, expected):
    claims = judged(Figure8Law().claims(planted(horizon, LAW_DEPTHS["laptop"]), "laptop"))
    assert [claim.verdict for claim in claims] == expected


@pytest.mark.parametrize(("horizon", "expected"), [(law, ["holds"] * 4), (no_law, ["fails"] * 4)])
def test_figure_8_has_the_law_of_its_two_deepest(horizon, expected):
    data = planted(horizon, DEPTHS["laptop"])
    claims = Figure8().claims(data[data["attention"].isin(["vanilla", "KV shifting"])], "laptop")
    assert [claim.verdict for claim in claims if claim.source == "The hop horizon k*"] == expected


def test_a_bound_is_not_judged():
    claim = partial(Claim, source="", seeds=5, declared="2026-11-22")
    table = horizons(planted(law, (2, 3, 4), hops=6))
    deepest = layer_claim(table, claim, "KV shifting", 3, 4)
    assert (deepest.verdict, deepest.seeds) == (NOT_TESTED, 0)
    assert deepest.why == "k* lies outside the hops that rows have: KV shifting with 4 layers."
    gap = gap_claim(table, claim, "", [("KV shifting", 4)], [("vanilla", 4)], 1)
    assert gap.verdict == NOT_TESTED
    assert layer_claim(table, claim, "vanilla", 3, 4).verdict == "holds"


def test_all_four_attentions_are_planned_at_every_depth_on_rows_with_enough_hops():
    planned = Figure8Law().runs("laptop")
    kinds = {(plan.config.model.attention, plan.config.model.n_layers) for plan in planned}
    assert kinds == {(kind, depth) for kind in ("vanilla", "kv_shift", "k_shift", "v_shift") for depth in (1, 2, 3)}
    assert len({plan.config.digest for plan in planned}) == len(planned) == 12 * 16
    assert all(plan.config.task.max_hops > predicted(("KV shifting", 3)) for plan in planned)
    assert all(plan.config.model.d_vocab == plan.config.task.vocab_size for plan in planned)


def test_the_picture_and_the_sentence_follow_from_the_table():
    data = planted(law, LAW_DEPTHS["laptop"])
    (axes,) = Figure8Law().draw(data, "laptop").axes
    assert {text.get_text() for text in axes.get_legend().get_texts()} >= {"vanilla", "V only", "vanilla, published"}
    said = Figure8Law().summary(data, "laptop")
    assert said.endswith(
        "vanilla 1.0, 1.2, 2.3; KV shifting 1.1, 2.3, 4.6; K only 1.1, 2.3, 4.6; V only 1.0, 1.1, 2.3."
    )
