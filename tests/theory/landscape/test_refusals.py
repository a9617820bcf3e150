"""Bad input to Theorem 3.4's functions ends in one sentence."""

import math
from typing import Any

import pytest

from ihlab.theory import landscape
from tasks import ConfigError

POINT = {"alpha1": 0.0, "alpha2": 1.0, "beta1": 1.0, "beta2": 0.0}
ALL = ("loss", "gradient", "descend", "basins", "field")
BY_POINT = ("loss", "gradient", "descend", "simulate")
FORMS = ("loss", "gradient", "descend")
GIVEN: dict[str, dict[str, Any]] = {
    **{name: {**POINT, "n_tokens": 9} for name in FORMS},
    "simulate": {**POINT, "n_tokens": 9, "d_model": 8},
    "basins": {"n_tokens": 9},
    "field": {"n_tokens": 9},
}

REFUSED = [
    (ALL, {"n_tokens": 4}, "n_tokens is 4, but must be"),
    (("loss", "gradient"), {"n_tokens": 7.5}, "n_tokens is 7.5, but must be a whole number"),
    (FORMS, {"n_tokens": None}, "The exact form needs one size"),
    (FORMS, {"other": 3}, "other is 3, but the exact form has no O(T)"),
    (FORMS, {"form": "printed", "other": 3}, "The printed form needs one size"),
    (FORMS, {"form": "printed", "other": -0.5, "n_tokens": None}, "other is -0.5, but"),
    (FORMS, {"form": "exakt"}, "There is no form 'exakt'; did you mean 'exact'?"),
    (BY_POINT, {"alpha1": math.nan}, "alpha1 holds a number that is not finite"),
    (["descend"], {"lr": 0.0}, "lr is 0.0, but must be positive"),
    (["simulate"], {"repeat": 8}, "repeat is 8, but must lie between 2 and n_tokens - 2 = 7"),
    (["simulate"], {"d_model": 0}, "d_model is 0, but must be at least 1"),
    (["simulate"], {"samples": 1}, "samples is 1, but an error bar needs at least 2"),
]


@pytest.mark.parametrize(("functions", "change", "said"), REFUSED, ids=str)
def test_bad_input_gets_one_sentence(functions, change, said):
    for name in functions:
        with pytest.raises(ConfigError) as refusal:
            getattr(landscape, name)(**{**GIVEN[name], **change})
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)
