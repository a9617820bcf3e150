"""Bad input to Theorem 3.4's functions ends in one sentence."""

import math
from typing import Any

import pytest

from ihlab.theory import landscape
from tasks import ConfigError

POINT = {"alpha1": 0.0, "alpha2": 1.0, "beta1": 1.0, "beta2": 0.0}
ALL = ("loss", "gradient", "descend", "simulate", "basins", "field")
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
    (FORMS, {"n_tokens": None}, "n_tokens is missing: the exact form needs the length T"),
    (FORMS, {"n_tokens": None, "form": "printed"}, "needs the length T or other"),
    (FORMS, {"other": 3}, "other is 3, but the exact form has no O(T)"),
    (FORMS, {"form": "printed", "other": 3}, "n_tokens and other are both given"),
    (FORMS, {"form": "printed", "other": -0.5, "n_tokens": None}, "other is -0.5, but"),
    (FORMS, {"form": "exakt"}, "There is no form 'exakt'; did you mean 'exact'?"),
    (BY_POINT, {"alpha1": math.nan}, "alpha1 holds a number that is not finite"),
    (FORMS, {"beta2": [0.0, math.inf]}, "beta2 holds a number that is not finite"),
    (
        BY_POINT,
        {"alpha1": [0.0, 1.0], "beta1": [0.0, 1.0, 2.0]},
        "alpha1 (2,), beta1 (3,) do not broadcast.",
    ),
    (["descend"], {"lr": 0.0}, "lr is 0.0, but must be positive"),
    (["descend"], {"steps": 0}, "steps is 0, but must be at least 1"),
    (["descend"], {"every": 0}, "every is 0, but must be at least 1"),
    (["descend"], {"alpha2": 0.5, "square": True}, "a start does not"),
    (["simulate"], {"repeat": 1}, "repeat is 1, but must lie between 2 and n_tokens - 2 = 7"),
    (["simulate"], {"repeat": 8}, "repeat is 8, but must lie between 2 and n_tokens - 2 = 7"),
    (["simulate"], {"d_model": 0}, "d_model is 0, but must be at least 1"),
    (["simulate"], {"samples": 1}, "samples is 1, but an error bar needs at least 2"),
    (["basins", "field"], {"points": 1}, "points is 1, but must be at least 2"),
]


@pytest.mark.parametrize(("functions", "change", "said"), REFUSED, ids=str)
def test_bad_input_gets_one_sentence(functions, change, said):
    for name in functions:
        with pytest.raises(ConfigError) as refusal:
            getattr(landscape, name)(**{**GIVEN[name], **change})
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)
