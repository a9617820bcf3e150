"""Figure 9: an equivalence has to be shown, not merely a difference missed; and runs that learn
sooner.
"""

import pandas as pd
import pytest

from figures.figure9.study import FIGURE9, LAPTOP_SIZES, MARGIN, SIZES, SMALLEST, measure, ngram_run
from ihlab.model.transformer import Transformer
from ihlab.study.claim import NOT_TESTED, judged

pytestmark = pytest.mark.slow


class Rising:
    """A run whose accuracy rises in a line to its end, of 10 steps, and stays there."""

    config, done = (
        FIGURE9.config({"curve": f"KV shifting, {SMALLEST}"}).replace(
            steps=100, schedule="constant"
        ),
        {"n_params": 800},
    )

    def __init__(self, end: float) -> None:
        self.metrics = pd.DataFrame({"step": [0, 5, 10], "accuracy": [0.0, end / 2, end]})


def curves(kv: float, vanilla: float, spread: float = 0.0) -> pd.DataFrame:
    """Every curve of the laptop's sizes rises in a line to `kv` or `vanilla`; seeds lie apart by
    `spread`.
    """
    parts = []
    for size in LAPTOP_SIZES:
        seeds = 16 if size == SMALLEST else 8
        for who, final in (("KV shifting", kv), ("vanilla", vanilla)):
            for seed in range(seeds):
                end = final + spread * (seed - (seeds - 1) / 2)
                parts.append(
                    {"curve": f"{who}, {size}", "seed": seed, "lr": 0.01, **measure(Rising(end))}
                )
    return pd.DataFrame(parts)


def verdicts(data: pd.DataFrame) -> list[str]:
    return [claim.verdict for claim in judged(FIGURE9.claims(data, "laptop"))]


def test_equal_curves_are_equivalent():
    assert verdicts(curves(0.95, 0.95, spread=0.002)) == ["holds"] * 4 + [
        NOT_TESTED,
        "fails",
        "fails",
    ]


def test_noise_is_no_equivalence():
    """No difference can be shown, and none can be excluded."""
    assert verdicts(curves(0.5, 0.5, spread=0.05))[:4] == ["undecided"] * 4


@pytest.mark.parametrize(("kv", "vanilla"), [(0.9, 0.7), (0.7, 0.9)])
def test_a_difference_either_way_is_no_equivalence(kv, vanilla):
    data = curves(kv, vanilla, spread=0.002)
    assert verdicts(data)[:4] == ["fails"] * 4
    claims = FIGURE9.claims(data, "laptop")
    assert [claim.estimate.value for claim in claims[:2]] == pytest.approx(
        [0.2, 0.1]
    )  # a line's mean is half its end
    assert claims[0].threshold == MARGIN


def test_sizes_have_the_parameters_that_they_are_named_for():
    stated = {"0.8K": 0.8e3, "0.4M": 0.4e6, "50M": 50e6}
    for name, (n_layers, d_model, _) in SIZES.items():
        model = ngram_run({"curve": f"vanilla, {name}"}).model
        if d_model <= 128:  # the largest is counted by hand: 12 d^2 a layer
            assert Transformer(model).n_params == pytest.approx(stated[name], rel=0.2)
        else:
            assert n_layers * 12 * d_model**2 == pytest.approx(stated[name], rel=0.2)
