"""Clamps: what they accept, and what fits which model."""

import pytest

from ihlab import ModelConfig
from ihlab.training.clamp import Clamp
from tasks import ConfigError

# Grouped: four query heads, two key/value heads.
SHIFTED = ModelConfig(
    n_layers=2,
    d_model=8,
    n_heads=4,
    n_key_value_heads=2,
    d_vocab=5,
    n_ctx=5,
    attention="kv_shift",
    shift_window=3,
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"what": "alhpa"}, ["clamp 'alhpa'", "did you mean 'alpha'?"]),
        ({"value": "zero"}, ["Clamp.value", "'zero'", "alpha needs a finite number"]),
        ({"what": "pattern"}, ["Clamp.value", "None", "previous, uniform, zero, last"]),
        ({"what": "pattern", "value": "previus"}, ["'previus'", "did you mean 'previous'?"]),
        ({"what": "pattern", "column": 1, "value": "zero"}, ["Clamp.column", "1", "no columns"]),
        ({"layer": 2}, ["Clamp.layer is 2", "0 .. 1", "n_layers is 2"]),
        ({"what": "beta", "head": 2}, ["Clamp.head is 2", "0 .. 1", "n_key_value_heads is 2"]),
        ({"column": 3}, ["Clamp.column is 3", "0 .. 2", "shift_window is 3"]),
        (
            {"what": "pattern", "head": 4, "value": "zero"},
            ["Clamp.head is 4", "0 .. 3", "n_heads is 4"],
        ),
    ],
)
def test_a_bad_field_or_what_the_model_lacks_is_named(fields, words):
    with pytest.raises(ConfigError) as caught:
        Clamp(**{"what": "alpha", "layer": 0} | fields).check(SHIFTED)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_vanilla_model_has_patterns_to_clamp_but_no_alpha():
    vanilla = SHIFTED.replace(attention="vanilla")
    Clamp(what="pattern", layer=0, value="zero").check(vanilla)
    with pytest.raises(
        ConfigError, match=r"'alpha', but a vanilla model has no such weights; 'kv_shift' has"
    ):
        Clamp(what="alpha", layer=0).check(vanilla)
