"""Figure 9: an equivalence has to be shown, not merely a difference missed; and a small difference can be one too."""

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.measure.batches import EVAL_SEED
from ihlab.measure.gathered import evaluation_batch
from ihlab.measure.metrics import held_out
from ihlab.model.transformer import Transformer
from ihlab.studies.figure9 import CARRIES, MARGIN, ROUTES, SIZES, SMALLEST, Figure9, ngram_run, sizes

pytestmark = pytest.mark.slow

CARRIED = (0.5, 0.05)
"""The falls of accuracy without the previous value and without the previous key, as the explanation has them."""


def curves(kv: float, vanilla: float, spread: float = 0.0, falls=CARRIED, apart: float = 0.01) -> pd.DataFrame:
    """Every curve of the laptop's sizes rises in a line to `kv` or `vanilla`; seeds lie apart by `spread`."""
    parts = []
    for size in sizes("laptop"):
        seeds = 16 if size == SMALLEST else 8
        for who, final in (("KV shifting", kv), ("vanilla", vanilla)):
            for seed in range(seeds):
                end = final + spread * (seed - (seeds - 1) / 2)
                part = pd.DataFrame({"step": [0, 5, 10], "accuracy": [0.0, end / 2, end]})
                part["accuracy_first"], part["horizon"] = part["accuracy"], 100
                part = part.assign(
                    curve=f"{who}, {size}", seed=seed, n_params=800, lr=0.01, **dict.fromkeys(ROUTES, np.nan)
                )
                if (who, size) == ("KV shifting", SMALLEST):
                    value, key = (fall + apart * (seed - 7.5) for fall in falls)
                    part["without_previous_value"] = [np.nan, np.nan, value]
                    part["without_previous_key"] = [np.nan, np.nan, key]
                parts.append(part)
    return pd.concat(parts, ignore_index=True)


def verdicts(data: pd.DataFrame) -> list[str]:
    return [claim.verdict for claim in judged(Figure9().claims(data, "laptop"))]


def test_equal_curves_are_equivalent_and_none_is_ahead():
    explained = ["holds", "holds"]
    found = verdicts(curves(0.95, 0.95, spread=0.002))
    assert found == ["holds", "undecided"] * 4 + [NOT_TESTED, *["fails"] * 2, *explained]  # and none learns sooner


@pytest.mark.parametrize(
    ("kv", "vanilla", "sooner"), [(0.95, 0.5, "holds"), (0.5, 0.95, "fails"), (0.5, 0.5, NOT_TESTED)]
)
def test_what_learns_alone_learns_sooner(kv, vanilla, sooner):
    assert verdicts(curves(kv, vanilla, spread=0.002))[9:11] == [sooner] * 2


def test_noise_is_no_equivalence():
    """No difference can be shown, and none can be excluded."""
    assert verdicts(curves(0.5, 0.5, spread=0.05))[:8] == ["undecided"] * 8


@pytest.mark.parametrize(("kv", "vanilla", "ahead"), [(0.9, 0.7, "holds"), (0.7, 0.9, "fails")])
def test_a_difference_either_way_is_no_equivalence(kv, vanilla, ahead):
    data = curves(kv, vanilla, spread=0.002)
    assert verdicts(data)[:8] == ["fails", ahead] * 4
    claims = Figure9().claims(data, "laptop")
    assert [claims[i].estimate.value for i in (0, 2)] == pytest.approx([0.2, 0.1])  # a line's mean is half its end
    assert [claims[i].estimate.value for i in (1, 3)] == pytest.approx([kv - vanilla, (kv - vanilla) / 2])
    assert claims[0].threshold == MARGIN


def test_a_difference_can_be_shown_and_be_small():
    """4 points ahead at the end, half of it on the way, and no seed of one among those of the other."""
    assert verdicts(curves(0.74, 0.7, spread=0.0002))[:8] == ["holds", "holds"] * 4
    assert verdicts(curves(0.7, 0.74, spread=0.0002))[:8] == ["holds", "fails"] * 4


def test_runs_in_two_heaps_are_no_equivalence():
    """12 of 16 learn and 4 of 16 do: medians far apart, and no shift between them that every pair bears out."""
    data = curves(0.9, 0.9, spread=0.0)
    lost = data["curve"].str.endswith(SMALLEST) & np.where(
        data["curve"].str.startswith("KV"), data["seed"] < 4, data["seed"] < 12
    )
    data.loc[lost, "accuracy"] *= 0.2
    assert verdicts(data)[0] == "undecided"


@pytest.mark.parametrize(
    ("falls", "apart", "expected"),
    [
        (CARRIED, 0.01, ["holds", "holds"]),
        ((0.05, 0.5), 0.01, ["fails", "fails"]),
        ((0.31, 0.31), 0.01, ["undecided", "undecided"]),
    ],
)
def test_the_explanation_can_come_out_each_way(falls, apart, expected):
    data = curves(0.9, 0.9, spread=0.002, falls=falls, apart=apart)
    assert verdicts(data)[-2:] == expected
    value, key = Figure9().claims(data, "laptop")[-2:]
    assert (value.estimate.value, key.estimate.value) == pytest.approx(falls)
    assert (value.threshold, value.right_side, key.right_side) == (CARRIES, "above", "below")


def test_the_sentence_about_50m_is_not_tested_without_a_model_of_that_size():
    claims = Figure9().claims(curves(0.9, 0.9, spread=0.002), "laptop")
    said = [claim for claim in claims if claim.of_paper]
    sizes_said = [claim.setting["size"] for claim in said]
    assert sizes_said == ["0.8K", "0.8K", "0.4M", "0.4M", "50M"]
    assert [claim.verdict for claim in said] == ["holds"] * 4 + [NOT_TESTED]
    assert said[-1].why


def test_sizes_have_the_parameters_that_they_are_named_for():
    stated = {"0.8K": 0.8e3, "0.4M": 0.4e6, "50M": 50e6}
    for name, (n_layers, d_model, n_heads) in SIZES.items():
        model = ngram_run("paper", "50M").model.replace(n_layers=n_layers, d_model=d_model, n_heads=n_heads)
        if d_model <= 128:  # the largest is counted by hand: 12 d^2 a layer
            assert Transformer(model).n_params == pytest.approx(stated[name], rel=0.2)
        else:
            assert n_layers * 12 * d_model**2 == pytest.approx(stated[name], rel=0.2)


# Made at smoke scale


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("figure9")


def test_falls_are_those_of_models_with_a_column_set_to_nothing(made, trained):
    """Only in the last row of the smallest shifted runs. One layer: a route's part is what its column adds."""
    runs, data = [run for _, run in trained("figure9")], made[1].data()
    known = data.dropna(subset=list(ROUTES), how="all")
    assert known["curve"].unique().tolist() == [f"KV shifting, {SMALLEST}"]
    assert known.groupby("seed").size().tolist() == [1, 1]
    for row in known.itertuples():
        [run] = [
            run
            for run in runs
            if (run.config.seed, run.config.model.attention, run.config.model.d_model) == (row.seed, "kv_shift", 8)
        ]
        assert row.step == run.config.steps
        batch = run.config.task.batch(256, np.random.default_rng(EVAL_SEED))
        rows = evaluation_batch(batch, torch.device("cpu"))
        with torch.no_grad():
            whole = held_out(run.model(), [rows])["accuracy"]
            for name, (key, value) in ROUTES.items():
                model = run.model()
                attention = model.blocks[0].attn
                (attention.alpha if value is None else attention.beta)[:, value if key is None else key] = 0
                fall = whole - held_out(model, [rows])["accuracy"]
                assert getattr(row, name) == pytest.approx(fall, abs=1e-5), name
