"""Figure 9: an equivalence has to be shown, not merely a difference missed; and runs that learn sooner."""

import numpy as np
import pandas as pd
import pytest

from figures.figure9.study import FIGURE9, LAPTOP_SIZES, MARGIN, SIZES, SMALLEST, measure, ngram_run
from ihlab.model.transformer import Transformer
from ihlab.study.claim import NOT_TESTED, judged

pytestmark = pytest.mark.slow


class Rising:
    """A run whose accuracy rises in a line to its end, of 10 steps, and stays there."""

    config, done = (
        FIGURE9.config({"curve": f"KV shifting, {SMALLEST}"}).replace(steps=100, schedule="constant"),
        {"n_params": 800},
    )

    def __init__(self, end: float) -> None:
        self.metrics = pd.DataFrame({"step": [0, 5, 10], "accuracy": [0.0, end / 2, end]})


def curves(kv: float, vanilla: float, spread: float = 0.0) -> pd.DataFrame:
    """Every curve of the laptop's sizes rises in a line to `kv` or `vanilla`; seeds lie apart by `spread`."""
    parts = []
    for size in LAPTOP_SIZES:
        seeds = 16 if size == SMALLEST else 8
        for who, final in (("KV shifting", kv), ("vanilla", vanilla)):
            for seed in range(seeds):
                end = final + spread * (seed - (seeds - 1) / 2)
                parts.append({"curve": f"{who}, {size}", "seed": seed, "lr": 0.01, **measure(Rising(end))})
    return pd.DataFrame(parts)


def verdicts(data: pd.DataFrame) -> list[str]:
    return [claim.verdict for claim in judged(FIGURE9.claims(data, "laptop"))]


def test_equal_curves_are_equivalent():
    assert verdicts(curves(0.95, 0.95, spread=0.002)) == ["holds"] * 4 + [NOT_TESTED, "fails", "fails"]


@pytest.mark.parametrize(
    ("kv", "vanilla", "sooner"), [(0.95, 0.5, "holds"), (0.5, 0.95, "fails"), (0.5, 0.5, NOT_TESTED)]
)
def test_what_learns_alone_learns_sooner(kv, vanilla, sooner):
    assert verdicts(curves(kv, vanilla, spread=0.002))[5:] == [sooner] * 2


def test_noise_is_no_equivalence():
    """No difference can be shown, and none can be excluded."""
    assert verdicts(curves(0.5, 0.5, spread=0.05))[:4] == ["undecided"] * 4


@pytest.mark.parametrize(("kv", "vanilla"), [(0.9, 0.7), (0.7, 0.9)])
def test_a_difference_either_way_is_no_equivalence(kv, vanilla):
    data = curves(kv, vanilla, spread=0.002)
    assert verdicts(data)[:4] == ["fails"] * 4
    claims = FIGURE9.claims(data, "laptop")
    assert [claim.estimate.value for claim in claims[:2]] == pytest.approx([0.2, 0.1])  # a line's mean is half its end
    assert claims[0].threshold == MARGIN


def test_runs_in_two_heaps_are_no_equivalence():
    """12 of 16 learn and 4 of 16 do: medians far apart, and no shift between them that every pair bears out."""
    data = curves(0.9, 0.9, spread=0.0)
    lost = data["curve"].str.endswith(SMALLEST) & np.where(
        data["curve"].str.startswith("KV"), data["seed"] < 4, data["seed"] < 12
    )
    data.loc[lost, "final"] *= 0.2
    assert verdicts(data)[0] == "undecided"


def test_the_sentence_about_50m_is_not_tested_without_a_model_of_that_size():
    claims = FIGURE9.claims(curves(0.9, 0.9, spread=0.002), "laptop")
    said = [claim for claim in claims if claim.of_paper]
    sizes_said = [claim.setting["size"] for claim in said]
    assert sizes_said == ["0.8K", "0.8K", "0.4M", "0.4M", "50M"]
    assert [claim.verdict for claim in said] == ["holds"] * 4 + [NOT_TESTED]
    assert said[-1].why


def test_sizes_have_the_parameters_that_they_are_named_for():
    stated = {"0.8K": 0.8e3, "0.4M": 0.4e6, "50M": 50e6}
    for name, (n_layers, d_model, _) in SIZES.items():
        model = ngram_run({"curve": f"vanilla, {name}"}).model
        if d_model <= 128:  # the largest is counted by hand: 12 d^2 a layer
            assert Transformer(model).n_params == pytest.approx(stated[name], rel=0.2)
        else:
            assert n_layers * 12 * d_model**2 == pytest.approx(stated[name], rel=0.2)
