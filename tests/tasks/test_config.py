"""The `config` decorator: typos, types, limits."""

import math
from typing import ClassVar, Literal

import numpy as np
import pytest

from tasks.config import ConfigError, choose, config, require, shown, visible


@config
class Oven:
    kind: ClassVar[str] = "oven"

    degrees: int
    hours: float = 1.0
    mode: Literal["top", "bottom"] = "top"
    fan: bool = False
    name: str = "oven"
    timer: int | None = None
    light: Literal["warm", "cold"] | None = None

    def __post_init__(self):
        require(self.degrees <= 300, f"Oven.degrees is {self.degrees}, but must be at most 300.")


@config
class Kitchen:
    oven: Oven


def refusal(**given):
    with pytest.raises(ConfigError) as error:
        Oven(**given)
    return str(error.value)


# The dataclass


# Names


def test_a_misspelt_field_gets_the_nearest_name():
    assert refusal(degres=200) == "There is no Oven field 'degres'; did you mean 'degrees'?"


def test_a_field_like_no_other_gets_the_list():
    expected = "There is no Oven field 'zzz'; known: degrees, fan, hours, light, mode, name, timer."
    assert refusal(degrees=200, zzz=1) == expected


def test_a_typo_inside_a_nested_config_names_the_inner_class():
    with pytest.raises(ConfigError, match="no Oven field 'hour'; did you mean 'hours'"):
        Kitchen(oven=Oven(degrees=200, hour=1))


# Types


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("degrees", 200.0, "a whole number"),
        ("degrees", "200", "a whole number"),
        ("degrees", None, "a whole number"),
        ("degrees", True, "a whole number"),
        ("hours", "long", "a number"),
        ("hours", True, "a number"),
        ("fan", 1, "a bool"),
        ("fan", "yes", "a bool"),
        ("name", 5, "a str"),
        ("mode", "sideways", "one of 'top', 'bottom'"),
        ("mode", None, "one of 'top', 'bottom'"),
        ("timer", 1.5, "a whole number"),
        ("timer", True, "a whole number"),
        ("light", "blue", "one of 'warm', 'cold'"),
    ],
)
def test_a_wrong_type_is_refused(field, value, right):
    assert refusal(**{"degrees": 200, field: value}) == f"Oven.{field} is {value!r}, but must be {right}."


@pytest.mark.parametrize(
    ("field", "value"),
    [("hours", 2), ("timer", None), ("timer", 5), ("light", None), ("light", "cold"), ("mode", "bottom")],
)
def test_a_right_type_is_kept(field, value):
    assert getattr(Oven(**{"degrees": 200, field: value}), field) == value


# Limits


def test_the_own_post_init_runs_after_the_types_were_checked():
    """`"hot" <= 300` would be a TypeError."""
    assert "whole number" in refusal(degrees="hot")


# choose


def test_choose_names_the_nearest():
    with pytest.raises(ConfigError, match=r"^There is no task 'inducton'; did you mean 'induction'\?$"):
        choose("task", "inducton", ["induction", "ngram"])


def test_choose_lists_all_when_nothing_is_near():
    with pytest.raises(ConfigError, match=r"^There is no task 'xyz'; known: induction, ngram\.$"):
        choose("task", "xyz", ["ngram", "induction"])


# What is stored


@config
class Grill(Oven):
    """One more field of each kind that holds others."""

    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[float, ...] | None = None
    each: bool | tuple[bool, ...] = True


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        ("degrees", np.int64(180), 180),
        ("degrees", np.uint8(180), 180),
        ("hours", np.float32(0.1), float(np.float32(0.1))),
        ("hours", np.int16(2), 2.0),
        ("fan", np.bool_(True), True),
        ("name", np.str_("b"), "b"),
        ("pair", [0, np.float64(0.5)], (0.0, 0.5)),
        ("many", [1, 2, 3], (1.0, 2.0, 3.0)),
        ("many", (), ()),
        ("each", [True, False], (True, False)),
    ],
)
def test_exact_values_are_stored_as_plain_ones(field, value, stored):
    got = getattr(Grill(**{"degrees": 180, field: value}), field)
    assert got == stored
    assert type(got) is type(stored)
    assert not isinstance(got, np.generic)


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("degrees", np.float64(180.0), "a whole number"),
        ("degrees", np.array(180), "a whole number"),
        ("degrees", 2**64, "below 2 to the power of 64"),
        pytest.param("degrees", 10**5000, "below 2 to the power of 64", id="enormous"),
        ("hours", math.inf, "a finite number"),
        ("hours", math.nan, "a finite number"),
        ("hours", 10**400, "a finite number"),
        ("hours", np.longdouble(1), "a number"),
        ("hours", np.array([1.0]), "a number"),
        ("mode", ["top"], "one of 'top', 'bottom'"),
        ("mode", np.array(["top", "top"]), "one of 'top', 'bottom'"),
        ("pair", 0.5, "two finite numbers"),
        ("pair", (0.5,), "two finite numbers"),
        ("pair", ("a", "b"), "two finite numbers"),
        ("pair", (0.5, math.nan), "two finite numbers"),
        ("pair", np.zeros(2), "two finite numbers"),
        ("pair", {0.1, 0.2}, "two finite numbers"),
        ("many", 0, "a list of finite numbers"),
        ("each", 1, "a bool or a list of bools"),
        ("each", (True, 1), "a list of bools"),
    ],
)
def test_values_of_no_use_are_refused_in_a_sentence(field, value, right):
    with pytest.raises(ConfigError) as caught:
        Grill(**{"degrees": 180, field: value})
    assert str(caught.value).startswith(f"Grill.{field} is ")
    assert str(caught.value).endswith(f"but must be {right}.")
    assert str(caught.value).isprintable()


def test_values_are_shown_on_one_short_line():
    class Rude:
        def __repr__(self):
            raise ZeroDivisionError

    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (Rude(), deep, list(range(10**6)), "x" * 10**6, {"a\nb": "\x1b[31m"}, 10**5000, np.zeros((50, 50))):
        assert len(shown(value)) <= 1000
        assert shown(value).isprintable()
    assert shown((0.5, "a")) == "(0.5, 'a')"
    assert visible("a\x1b\nb\u202eé") == "a\\x1b\\nb\\u202eé"


def test_choose_takes_names_of_any_length():
    with pytest.raises(ConfigError) as caught:
        choose("task", "ngram" * 10**6, ["ngram"])
    assert len(str(caught.value)) < 500


def test_fields_without_their_names_are_refused_with_the_first_ones_name():
    with pytest.raises(ConfigError, match=r"^Grill takes its fields by name: degrees=180, and so on\.$"):
        Grill(180, True)


def test_a_class_in_place_of_its_object_is_refused():
    @config
    class Kitchen:
        grill: Grill

    with pytest.raises(ConfigError, match=r"Kitchen\.grill is .*Grill'>, but must be the fields of a Grill\."):
        Kitchen(grill=Grill)
