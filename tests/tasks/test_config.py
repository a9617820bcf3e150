"""The `config` decorator: typos, types, limits."""

from dataclasses import FrozenInstanceError, asdict
from typing import ClassVar, Literal

import pytest

from tasks.config import ConfigError, choose, config, require


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


def test_fields_and_defaults():
    assert asdict(Oven(degrees=200, fan=True)) == {
        "degrees": 200,
        "hours": 1.0,
        "mode": "top",
        "fan": True,
        "name": "oven",
        "timer": None,
        "light": None,
    }


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Oven(degrees=200).degrees = 100


def test_it_is_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        Oven(200)


def test_equal_settings_are_equal_and_hash_alike():
    assert Oven(degrees=200) == Oven(degrees=200, hours=1.0)
    assert len({Oven(degrees=200), Oven(degrees=200), Oven(degrees=100)}) == 2


# Names


def test_a_misspelt_field_gets_the_nearest_name():
    assert refusal(degres=200) == "There is no Oven field 'degres'; did you mean 'degrees'?"


def test_a_field_like_no_other_gets_the_list():
    expected = "There is no Oven field 'zzz'; known: degrees, fan, hours, light, mode, name, timer."
    assert refusal(degrees=200, zzz=1) == expected


def test_a_class_variable_is_no_field():
    assert "no Oven field 'kind'" in refusal(degrees=200, kind="grill")


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


def test_a_nested_config_is_kept():
    oven = Oven(degrees=200)
    assert Kitchen(oven=oven).oven is oven


# Limits


def test_the_own_post_init_runs():
    assert refusal(degrees=301) == "Oven.degrees is 301, but must be at most 300."


def test_the_own_post_init_runs_after_the_types_were_checked():
    """`"hot" <= 300` would be a TypeError."""
    assert "whole number" in refusal(degrees="hot")


# choose


def test_choose_returns_what_is_known():
    assert choose("task", "ngram", ["induction", "ngram"]) == "ngram"


def test_choose_names_the_nearest():
    with pytest.raises(ConfigError, match=r"^There is no task 'inducton'; did you mean 'induction'\?$"):
        choose("task", "inducton", ["induction", "ngram"])


def test_choose_lists_all_when_nothing_is_near():
    with pytest.raises(ConfigError, match=r"^There is no task 'xyz'; known: induction, ngram\.$"):
        choose("task", "xyz", ["ngram", "induction"])


def test_a_config_error_is_a_value_error():
    assert issubclass(ConfigError, ValueError)
