"""Configs as plain values and back: whatever a config may hold, in JSON's words and in TOML's."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from tasks import TASKS, ConfigError, IGSMTask, InductionTask, StoredTask, Task, register_task
from tasks.codec import from_plain, to_plain
from tasks.config import config
from tasks.registry import kinds, require_registered


@config
class Shelf:
    height: float = 1.0
    books: tuple[int, ...] = ()
    mode: Literal["none", "full"] = "full"


@config
class Room:
    size: tuple[float, float]
    shelves: tuple[Shelf, ...] = ()
    doors: bool | tuple[bool, ...] = True
    owner: str | None = None
    first: Shelf | None = None


ROOM = Room(
    size=(2.0, 3.5),
    shelves=(Shelf(books=(1, 2)), Shelf(mode="none")),
    doors=(True, False),
    first=Shelf(),
)
PLAIN = {
    "size": [2.0, 3.5],
    "shelves": [
        {"height": 1.0, "books": [1, 2], "mode": "full"},
        {"height": 1.0, "books": [], "mode": "none"},
    ],
    "doors": [True, False],
    "owner": None,
    "first": {"height": 1.0, "books": [], "mode": "full"},
}


def test_configs_in_configs_and_tuples_are_mappings_and_lists():
    assert to_plain(ROOM) == PLAIN
    assert from_plain(Room, json.loads(json.dumps(PLAIN))) == ROOM
    assert hash(from_plain(Room, PLAIN)) == hash(ROOM)


def test_a_word_stands_for_none_where_a_field_may_be_none_and_nowhere_else():
    made = from_plain(
        Room, {"size": [1, 1], "owner": "none", "shelves": [{"mode": "none"}]}, null="none"
    )
    assert made == Room(size=(1, 1), shelves=(Shelf(mode="none"),))
    assert (
        from_plain(Room, {"size": [1, 1], "owner": "none"}).owner == "none"
    )  # JSON has a null of its own


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ({"siz": [1, 1]}, "There is no Room field 'siz'; did you mean 'size'?"),
        (
            {"size": [1, 1], "first": {"heigth": 1}},
            "There is no Shelf field 'heigth'; did you mean 'height'?",
        ),
        ({}, "size is missing."),
        ({"size": [1]}, "Room.size is (1,), but must be two finite numbers."),
        ({"size": 1}, "Room.size is 1, but must be two finite numbers."),
        ({"size": [1, 1], "shelves": [3]}, "shelves is 3, but must be the fields of a Shelf."),
        (
            {"size": [1, 1], "first": {"height": "tall"}},
            "Shelf.height is 'tall', but must be a number.",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(plain, sentence):
    with pytest.raises(ConfigError) as caught:
        from_plain(Room, plain)
    assert str(caught.value) == sentence


# Tasks


def test_a_kind_that_is_a_field_needs_no_entry_of_its_own():
    task = IGSMTask(kind="igsm_flat", ops="<=9")
    assert kinds()["igsm_flat"] is kinds()["igsm"] is IGSMTask
    assert from_plain(Task, to_plain(task)) == task
    assert set(kinds()) == {*TASKS, "igsm_flat"}


def test_a_task_of_an_unknown_kind_is_stored_as_it_was_read():
    stored = {"kind": "elsewhere", "rule": 3, "depth": [1, 2]}
    fields = {"rule": 3, "depth": [1, 2]}
    assert to_plain(StoredTask(kind="elsewhere", fields=fields, vocab_size=8, length=8)) == stored


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ({"kind": "inducton"}, r"There is no task 'inducton'; did you mean 'induction'\?"),
        ({"length": 9}, r"The task's kind is None, but must be a name"),
        (
            {"kind": "induction", "lenght": 9},
            r"There is no InductionTask field 'lenght'; did you mean 'length'\?",
        ),
        (3, r"task is 3, but must be the fields of a Task"),
    ],
)
def test_what_is_no_task_is_named(plain, sentence):
    with pytest.raises(ConfigError, match=sentence):
        from_plain(Task, plain, name="task")


def test_a_value_of_another_tasks_kind_is_taken():
    flat = type(
        "Flat", (), {"kind": "igsm_flat", "batch": None, "show": None, "vocab_size": 8, "length": 8}
    )
    with pytest.raises(
        ConfigError, match="There is a task 'igsm_flat' already, IGSMTask: Flat needs another kind"
    ):
        register_task(dataclass(flat))


def test_a_task_that_takes_anothers_kind_for_its_field_is_refused():
    @dataclass(frozen=True)
    class Two(InductionTask):
        kind: Literal["two", "igsm_flat"] = "two"

    with pytest.raises(ConfigError, match="There is a task 'igsm_flat' already"):
        register_task(Two)


def test_a_subclass_is_not_the_task_that_it_extends():
    """It has the kind of its parent, so its run would be the parent's."""

    @dataclass(frozen=True)
    class Mine(InductionTask):
        pass

    with pytest.raises(ConfigError, match="The task 'induction' is not registered"):
        require_registered(Mine(vocab_size=40, length=12))
