"""A map of heads: every head has its cell, of every score its map."""

import numpy as np
import pandas as pd
import pytest

from ihlab.plots.head_map import head_map
from tasks import ConfigError


def table(n_layers, n_heads):
    layer, head = np.indices((n_layers, n_heads)).reshape(2, -1)
    scores = pd.DataFrame(
        {"layer": layer, "head": head, "prefix_matching": layer / 40 + head / 400}
    )
    scores["loss_rise"] = np.where(head == 2, -0.3, np.nan)
    scores["induction"] = (layer == 3) & (head == 1)
    return scores


def test_every_head_has_its_cell_and_induction_heads_a_frame():
    scores = pd.concat([table(30, 9).assign(pattern=kind) for kind in ("raw", "effective")])
    scores.loc[scores["pattern"] == "raw", "prefix_matching"] = 0
    figure = head_map(scores.sample(frac=1, random_state=0), "a model")  # in any order
    maps = [axes for axes in figure.axes if axes.images and axes.get_title()]
    assert [axes.get_title() for axes in maps] == ["prefix_matching", "loss_rise"]
    values = maps[0].images[0].get_array()
    assert values.shape == (30, 9)
    assert values[7, 4] == pytest.approx(7 / 40 + 4 / 400)
    rises = np.ma.filled(maps[1].images[0].get_array(), np.nan)
    assert np.isnan(rises[:, 0]).all()
    assert (rises[:, 2] == -0.3).all()
    assert maps[1].images[0].get_clim() == pytest.approx((-0.3, 0.3))
    for axes in maps:
        [frame] = axes.patches
        assert frame.get_xy() == (0.5, 2.5)
    assert max(figure.get_size_inches()) <= 24


def test_without_a_known_score_nothing_is_drawn():
    with pytest.raises(
        ConfigError, match="There is no score 'prefx'; did you mean 'prefix_matching'"
    ):
        head_map(table(2, 2), "a model", ("prefx",))
