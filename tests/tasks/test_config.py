"""The `config` decorator: typos, types, limits."""

import math
from typing import ClassVar, Literal

import numpy as np
import pytest

from tasks.config import ConfigError, config, require, shown, visible


@config
class Oven:
    """A field of each kind."""

    kind: ClassVar[str] = "oven"

    degrees: int
    hours: float = 1.0
    mode: Literal["top", "bottom"] = "top"
    fan: bool = False
    name: str = "oven"
    timer: int | None = None
    light: Literal["warm", "cold"] | None = None
    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[float, ...] | None = None
    each: bool | tuple[bool, ...] = True

    def __post_init__(self):
        require(self.degrees <= 300, f"Oven.degrees is {self.degrees}, but must be at most 300.")


@config
class Kitchen:
    oven: Oven


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"degres": 200}, "There is no Oven field 'degres'; did you mean 'degrees'?"),
        (
            {"degrees": 200, "zzz": 1},
            "There is no Oven field 'zzz'; known: degrees, each, fan, hours, light, many, mode, name, pair, timer.",
        ),
        ({"degrees": 301}, "Oven.degrees is 301, but must be at most 300."),
    ],
)
def test_what_is_wrong_is_one_sentence(fields, sentence):
    with pytest.raises(ConfigError) as refusal:
        Oven(**fields)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        ("degrees", np.int64(180), 180),
        ("hours", 2, 2.0),
        ("hours", np.float32(0.1), float(np.float32(0.1))),
        ("timer", None, None),
        ("pair", [0, np.float64(0.5)], (0.0, 0.5)),
        ("many", [1, 2, 3], (1.0, 2.0, 3.0)),
        ("each", [True, False], (True, False)),
    ],
)
def test_exact_values_are_stored_as_plain_ones(field, value, stored):
    value = getattr(Oven(**{"degrees": 180, field: value}), field)
    assert value == stored
    assert type(value) is type(stored)


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("degrees", 200.0, "a whole number"),
        ("degrees", True, "a whole number"),
        ("degrees", np.array(180), "a whole number"),
        ("degrees", 2**64, "below 2 to the power of 64"),
        pytest.param("degrees", 10**5000, "below 2 to the power of 64", id="enormous"),
        ("hours", True, "a number"),
        ("hours", math.nan, "a finite number"),
        ("hours", 10**400, "a finite number"),
        ("name", 5, "a str"),
        ("mode", "sideways", "one of 'top', 'bottom'"),
        ("mode", np.array(["top", "top"]), "one of 'top', 'bottom'"),
        ("pair", (0.5, math.nan), "two finite numbers"),
        ("each", (True, 1), "a list of bools"),
    ],
)
def test_other_values_are_refused_in_a_sentence(field, value, right):
    with pytest.raises(ConfigError) as refusal:
        Oven(**{"degrees": 180, field: value})
    assert str(refusal.value).startswith(f"Oven.{field} is ")
    assert str(refusal.value).endswith(f"but must be {right}.")
    assert str(refusal.value).isprintable()


def test_values_are_shown_on_one_short_line():
    class Rude:
        def __repr__(self):
            raise ZeroDivisionError

    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (
        Rude(),
        deep,
        list(range(10**6)),
        "x" * 10**6,
        {"a\nb": "\x1b[31m"},
        10**5000,
        np.zeros((50, 50)),
    ):
        assert len(shown(value)) <= 1000
        assert shown(value).isprintable()
    assert shown((0.5, "a")) == "(0.5, 'a')"
    assert visible("a\x1b\nb\u202eé") == "a\\x1b\\nb\\u202eé"


def test_fields_without_their_names_are_refused_with_the_first_ones_name():
    with pytest.raises(
        ConfigError, match=r"^Oven takes its fields by name: degrees=180, and so on\.$"
    ):
        Oven(180, True)


def test_a_class_in_place_of_its_object_is_refused():
    with pytest.raises(
        ConfigError, match=r"Kitchen\.oven is .*Oven'>, but must be the fields of a Oven\."
    ):
        Kitchen(oven=Oven)
