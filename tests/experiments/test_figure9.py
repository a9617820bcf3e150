"""Figure 9: an equivalence has to be shown, not merely a difference missed. And MQAR, the control."""

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ihlab.experiments.figure9 import MARGIN, SIZES, Figure9, base, sizes
from ihlab.experiments.mqar import HELP, MQAR
from ihlab.experiments.reproduce import ON_REQUEST, reproduce
from ihlab.model.transformer import Transformer


def curves(final, names, seeds=5, spread=0.0):
    """Curves that rise in a line to `final[curve]`, seeds apart by `spread`."""
    rows = [
        {"curve": name, "seed": seed, "step": step, "accuracy": step / 10 * (final[name] + spread * (seed - 2))}
        for name in names
        for seed in range(seeds)
        for step in (0, 5, 10)
    ]
    return pd.DataFrame(rows)


def of_sizes(kv, vanilla):
    return {
        f"{who}, {size}": value
        for size in sizes("laptop")
        for who, value in (("KV shifting", kv), ("vanilla", vanilla))
    }


def test_equal_curves_are_equivalent():
    final = of_sizes(0.9, 0.9)
    claims = Figure9().claims(curves(final, final, spread=0.005), "laptop")
    assert [claim.verdict for claim in claims] == ["holds"] * 6


def test_noise_is_no_equivalence():
    """No difference can be shown, and none can be excluded."""
    final = of_sizes(0.6, 0.6)
    claims = Figure9().claims(curves(final, final, spread=0.2), "laptop")
    assert [claim.verdict for claim in claims] == ["undecided"] * 6


def test_a_difference_either_way_fails():
    for kv, vanilla in ((0.9, 0.7), (0.7, 0.9)):
        final = of_sizes(kv, vanilla)
        claims = Figure9().claims(curves(final, final, spread=0.002), "laptop")
        assert [claim.verdict for claim in claims] == ["fails"] * 6
        assert claims[0].estimate.value == pytest.approx(0.2)
        assert claims[1].estimate.value == pytest.approx(0.1)  # the mean of a line up to it
        assert claims[0].threshold == MARGIN


def test_the_papers_sizes_have_its_parameters():
    stated = {"0.8K": 0.8e3, "0.4M": 0.4e6, "50M": 50e6}
    for name, (n_layers, d_model, n_heads) in SIZES.items():
        model = base("paper").model.but(n_layers=n_layers, d_model=d_model, n_heads=n_heads)
        if d_model <= 128:  # the largest is counted by hand: 12.5 d^2 a layer
            assert Transformer(model).n_params == pytest.approx(stated[name], rel=0.2)
        else:
            assert n_layers * 12 * d_model**2 == pytest.approx(stated[name], rel=0.2)


def test_both_are_made_at_smoke_scale(tmp_path):
    folders = reproduce(
        ["figure9", "mqar"], "smoke", runs=tmp_path / "runs", figures=tmp_path / "figures", console=Console(quiet=True)
    )
    for folder, n_curves in zip(folders, (4, 3), strict=True):
        data = folder.data()
        assert data["curve"].nunique() == n_curves
        assert data.groupby("curve")["seed"].nunique().eq(2).all()
        assert {path.suffix for path in folder.path.iterdir()} == {".csv", ".json", ".svg", ".png"}


def test_the_control_is_made_only_if_it_is_named():
    assert "mqar" in ON_REQUEST


@pytest.mark.parametrize(("kv", "verdicts"), [(0.99, ["holds", "undecided"]), (0.2, ["fails", "fails"])])
def test_mqar_asks_whether_the_shift_helps(kv, verdicts):
    from ihlab.experiments import mqar

    final = {
        f"{who}, {setting}": value
        for setting in mqar.SETTINGS
        for who, value in ((mqar.KV1, kv), (mqar.V1, 0.2), (mqar.V2, 0.99 - HELP))
    }
    claims = MQAR().claims(curves(final, final, seeds=3, spread=0.001), "laptop")
    assert [claim.verdict for claim in claims] == verdicts * 2
    assert np.isfinite([claim.estimate.low for claim in claims]).all()
