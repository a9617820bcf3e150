"""The report by hand on hand-set shifts, and its indifference to the gauge."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab.interp.shifts import quadrant_table, shift_report
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks.config import ConfigError
from tests.interp.conftest import regauged

FREE = ["angle", "share", "larger"]
"""Ends of the columns that must not depend on the gauge."""


@torch.no_grad()
def with_shifts(alpha, beta):
    """One layer, a head for each pair."""
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": len(alpha), "d_head": 2}
    cfg = ModelConfig(**sizes, d_vocab=9, n_ctx=5, attention="kv_shift")
    model = Transformer(cfg).double()
    model.layers[0].attn.alpha.copy_(torch.tensor(alpha))
    model.layers[0].attn.beta.copy_(torch.tensor(beta))
    return model


# By hand


def test_angles_and_shares_by_hand():
    alpha = [[2.0, 0.0], [0.0, -3.0], [1.0, 1.0], [-1.0, 1.0], [-4.0, 3.0], [0.0, 0.0]]
    report = shift_report(with_shifts(alpha, alpha))
    expected = {
        "_angle": [0, math.pi / 2, math.pi / 4, 3 * math.pi / 4, math.pi - math.atan(3 / 4)],
        "_share": [0, 1, 0.5, 0.5, 3 / 7],
    }
    for name in ("alpha", "beta"):
        for column, numbers in expected.items():
            np.testing.assert_allclose(report[name + column], [*numbers, math.nan], atol=1e-15)
        assert report[[f"{name}1", f"{name}2"]].to_numpy().tolist() == alpha
        larger = ["own", "previous", "previous", "previous", "own", "previous"]
        raw = ["own", "own", "previous", "previous", "previous", "previous"]
        assert report[f"{name}_larger"].tolist() == larger
        assert report[f"{name}_raw"].tolist() == raw


# The gauge


def test_the_report_does_not_change_with_the_gauge_nor_does_the_model(make_model, tokens):
    model = make_model(shift_window=2)
    other = regauged(model)
    torch.testing.assert_close(other(tokens), model(tokens))
    before, after = shift_report(model), shift_report(other)
    free = [name for name in before.columns if name.rsplit("_")[-1] in FREE]
    assert len(free) == 6
    pd.testing.assert_frame_equal(after[free], before[free], rtol=1e-9)
    assert not np.allclose(after["alpha1"], before["alpha1"])


# Table 5


def test_quadrants_by_hand():
    #         own, own      own, previous   previous, own   as stored the other way round   a tie
    alpha = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [-0.9, -0.1], [0.5, 0.5]]
    beta = [[0.7, 0.3], [0.0, 1.0], [1.0, 0.0], [0.7, 0.3], [0.7, 0.3]]
    table = quadrant_table([with_shifts(alpha, beta), with_shifts(alpha[:1], beta[:1])])
    assert table["key"].tolist() == ["own", "own", "previous", "previous"]
    assert table["value"].tolist() == ["own", "previous"] * 2
    assert table["raw"].tolist() == [2, 1, 3, 0]
    assert table["gauge_free"].tolist() == [3, 1, 2, 0]
    # Signs changed: (own, own) x 2 -> (previous, previous), (own, previous) -> (previous, own) and
    # so on.
    assert table["flipped"].tolist() == [0, 2, 1, 3]


def test_models_without_the_shifts_of_table_5_are_refused(make_model):
    with pytest.raises(ConfigError, match="attention is 'vanilla', which has no alpha and beta"):
        shift_report(make_model(attention="vanilla"))
    with pytest.raises(ConfigError, match="shift_window is 3, but Table 5 compares two"):
        quadrant_table([make_model()])
