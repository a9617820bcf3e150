"""Heads ablated together, beside as many others."""

import numpy as np
import pytest

from ihlab.interp import locate_induction_heads
from ihlab.interp.ablation import ablate_heads, ablate_together
from tasks import ConfigError


def test_the_sets_are_as_large_and_their_losses_those_of_ablating_them(make_model, batch):
    model = make_model(n_layers=3)
    these = [(0, 1), (2, 0), (2, 3)]
    table = ablate_together(model, batch, these, controls=2, seed=3)
    assert table["heads"].tolist() == ["these", "random", "same layers", "random", "same layers"]
    assert table["n"].tolist() == [3] * 5
    right = ablate_heads(model, batch, these)
    assert table["loss"][0] == pytest.approx(right["loss"])
    assert table["loss_rise"][0] == pytest.approx(right["loss"] - ablate_heads(model, batch, [])["loss"])


def test_where_a_layer_has_no_others_the_control_is_smaller(make_model, batch):
    every = [(1, head) for head in range(4)]
    table = ablate_together(make_model(), batch, every, controls=1)
    assert table["n"].tolist() == [4, 4, 0]
    assert table["loss_rise"][2] == 0


def test_the_head_that_knows_the_answers_is_found_by_its_absence(theorem_3_2, batch):
    located = locate_induction_heads(theorem_3_2, batch=batch)
    assert located["verdict"].tolist() == ["induction", ""]
    table = ablate_together(theorem_3_2, batch, located)
    assert table["n"][0] == 1
    assert table["loss_rise"][0] > 10 * table["loss_rise_error"][0]
    assert np.isclose(table["loss_rise"][0], located["loss_rise"][0])
    with pytest.raises(ConfigError, match="none matches prefixes"):
        ablate_together(theorem_3_2, batch, located[located["head"] > 0])


def test_heads_may_be_an_array_or_lists_and_anything_else_is_refused(make_model, batch):
    model = make_model()
    given = [[0, 1], [1, 2], [0, 1]]
    tables = [ablate_together(model, batch, heads, controls=0) for heads in (given, np.array(given))]
    assert [table["n"].tolist() for table in tables] == [[2], [2]]
    with pytest.raises(ConfigError, match=r"heads holds 'L0H1', but must be pairs"):
        ablate_together(model, batch, ["L0H1"])
    with pytest.raises(ConfigError, match=r"There is no head 0\.-1"):
        ablate_together(model, batch, [(0, -1)])
    with pytest.raises(ConfigError, match="controls is -1, but must be at least 0"):
        ablate_together(model, batch, given, controls=-1)
