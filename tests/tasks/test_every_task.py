"""What every task promises: its kind, shapes, ids, randomness, refused sizes and settings, and a
readable row.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from tasks import (
    IGNORE,
    TASKS,
    ConfigError,
    IGSMTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    RepeatTask,
    Task,
    TextTask,
    TriggerTask,
    rule_of,
)
from tasks.bos import without_bos
from tasks.codec import from_plain, to_plain
from tasks.memory import rows_memory
from tests.tasks.shown import shown

TOY = {"difficulty": "toy", "ops": "<=4", "format": "compact", "length": 128}
WITH_BOS = [
    InductionTask(vocab_size=64, length=17, bos=True),
    InductionTask(vocab_size=64, length=17, score="tokens", bos=True),
    InductionTask(vocab_size=14, length=12, min_token=11, period=2, bos=True),
    NGramTask(vocab_size=17, length=13, table_size=20, bos=True),
    MQARTask(vocab_size=33, length=25, pairs=3, value_gap=2, bos=True),
]
SEEDED = [  # a row is a function of its own seed
    InductionTask(),
    InductionTask(vocab_size=75, length=64),  # the smallest vocabulary
    InductionTask(vocab_size=40, length=12, score="first"),
    NGramTask(),
    NGramTask(vocab_size=40, length=12),
    MQARTask(),
    MQARTask(vocab_size=10, length=16),  # the smallest vocabulary and length
    MultiHopTask(),
    IGSMTask(**TOY),
    IGSMTask(kind="igsm_flat", length=640),
    *WITH_BOS,
]
TOGETHER = [
    InductionTask(vocab_size=40, length=12, period=3),
    TriggerTask(vocab_size=20, length=9, triggers=3),
    RepeatTask(),
    TextTask(corpus="sample", vocab_size=256, length=24),
]
EVERY = pytest.mark.parametrize("task", SEEDED + TOGETHER, ids=lambda task: task.kind)


def arrays(batch):
    groups = [values for _, values in sorted(batch.groups.items())]
    return [batch.inputs, batch.targets, batch.answers, *groups]


def same(one, other):
    return all(map(np.array_equal, arrays(one), arrays(other)))


@pytest.mark.parametrize("kind", TASKS)
def test_a_registered_task_is_a_task_under_its_kind(kind):
    task = TASKS[kind]()
    assert isinstance(task, Task)
    assert task.kind == kind


def test_every_registered_task_is_tested_here_and_in_the_guide():
    assert {task.kind for task in SEEDED + TOGETHER} == {*TASKS, "igsm_flat"}
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "train.md").read_text(encoding="utf-8")
    assert all(f"| `{cls.__name__}` | `{kind}`" in guide for kind, cls in TASKS.items())


@EVERY
def test_a_batch_has_ids_of_the_vocabulary_is_a_function_of_the_generator_and_is_stored(task):
    for size in (0, 3):
        batch = task.batch(size, np.random.default_rng(0))
        for tokens in (batch.inputs, batch.targets, batch.answers):
            assert tokens.dtype == np.int64
            assert tokens.shape == (size, task.length)
            assert ((tokens == IGNORE) | (tokens >= 0) & (tokens < task.vocab_size)).all()
        assert (batch.inputs != IGNORE).all()
        assert {values.shape for values in batch.groups.values()} <= {(size,), (size, task.length)}
    rng = np.random.default_rng(3)
    one, later = task.batch(5, rng), task.batch(5, rng)
    assert same(one, task.batch(5, np.random.default_rng(3)))
    assert not np.array_equal(one.inputs, later.inputs)
    assert from_plain(Task, json.loads(json.dumps(to_plain(task)))) == task


@pytest.mark.parametrize("task", SEEDED, ids=lambda task: task.kind)
def test_a_row_depends_on_its_own_seed_only(task):
    """Not on the rows drawn before it, nor on the size of the batch."""
    rng, batch = np.random.default_rng(3), task.batch(20, np.random.default_rng(3))
    for row in range(20):
        assert same(task.batch(1, rng), batch.rows(row, row + 1))


CHECKSUMS = {
    InductionTask(): (2, 2842173980),
    MultiHopTask(): (1, 3044533113),
    NGramTask(): (1, 1159673225),
    MQARTask(): (1, 3180317340),
    IGSMTask(): (2, 2731727899),
    IGSMTask(**TOY): (2, 1271768822),
    IGSMTask(difficulty="hard", ops="24", split="test", letters="ordered", length=1100): (
        2,
        3568195588,
    ),
    IGSMTask(kind="igsm_flat", length=640): (1, 1968386739),
    IGSMTask(**TOY | {"format": "pairs", "letters": "parts", "loss": "all"}): (2, 2218718727),
    TriggerTask(): (1, 987942598),
    RepeatTask(): (1, 2449936559),
}
"""The version of each task's drawing rule, and the checksum of eight rows."""


@pytest.mark.parametrize("task", CHECKSUMS, ids=lambda task: task.kind)
def test_stored_runs_can_be_compared_as_long_as_the_rule_is_the_same(task):
    """Other rows need another `rule`: a stored run was trained on those that the generator drew
    then.
    """
    batch = task.batch(8, np.random.default_rng(0))
    rows = np.stack([batch.inputs, batch.targets, batch.answers]).astype("<i8")
    assert (rule_of(task), zlib.crc32(rows.tobytes())) == CHECKSUMS[task]


# A token of its own at the beginning


@pytest.mark.parametrize("task", WITH_BOS, ids=lambda task: task.kind)
def test_what_follows_the_bos_is_a_row_of_the_task_without_it(task):
    batch, inner = (t.batch(8, np.random.default_rng(1)) for t in (task, without_bos(task)))
    assert (batch.inputs[:, 0] == task.vocab_size - 1).all()
    assert inner.inputs.max() < task.vocab_size - 1
    assert np.array_equal(batch.inputs[:, 1:], inner.inputs)
    for after, alone in ((batch.targets, inner.targets), (batch.answers, inner.answers)):
        assert (after[:, 0] == IGNORE).all()
        assert np.array_equal(after[:, 1:], alone)
    assert batch.groups.keys() == inner.groups.keys()
    for name, values in batch.groups.items():
        assert np.array_equal(values[:, 1:], inner.groups[name])
    roles = shown(task.show(batch, 0))["role"]
    assert roles == ["", *shown(without_bos(task).show(inner, 0))["role"]]


# A row for a person


def of_induction(batch):
    repeats = batch.answers[2] != IGNORE
    return np.where(repeats, "R", np.where(np.append(False, repeats[:-1]), "F", "")).tolist()


@pytest.mark.parametrize(
    ("task", "roles"),
    [
        (InductionTask(vocab_size=60, length=40, score="first"), of_induction),
        (NGramTask(vocab_size=9000, length=20), lambda batch: (["x1", "x2", "x3"] * 7)[:20]),
        (MultiHopTask(), None),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_show_writes_tokens_roles_and_targets(task, roles):
    batch, words = task.batch(3, np.random.default_rng(0)), {}
    if hasattr(task, "words"):
        words = dict(enumerate(task.words(np.arange(task.vocab_size))))
    assert len(set(words.values())) == len(words)
    cells = shown(task.show(batch, 2))
    assert cells["position"] == [str(t) for t in range(task.length)]
    assert cells["token"] == [words.get(token, str(token)) for token in batch.inputs[2]]
    graded = "answer" if "answer" in cells else "target"
    scored = [words.get(t, str(t)) if t != IGNORE else "" for t in vars(batch)[graded + "s"][2]]
    assert cells[graded] == scored
    assert cells.get("role") == (roles and roles(batch))


# Sizes that cannot be


@EVERY
def test_rows_take_no_less_than_is_said_and_too_many_are_refused(task):
    batch = task.batch(3, np.random.default_rng(0))
    assert rows_memory(task, 3) <= batch.inputs.size * 8 + batch.targets.size * 8
    with pytest.raises(
        ConfigError, match=r"^A batch of 1000000000000 sequences of .* takes at least .* of memory"
    ):
        task.batch(10**12, np.random.default_rng(0))


@pytest.mark.parametrize(
    "task",
    [
        MQARTask(vocab_size=2**60, length=16),
        NGramTask(vocab_size=2**31, table_size=2**61, length=12),
        MultiHopTask(vocab_size=2**50, alphabet=2**49),
        TriggerTask(vocab_size=2**50),
        RepeatTask(vocab_size=2**50),
    ],
)
def test_tables_that_cannot_be_are_refused(task):
    with pytest.raises(ConfigError, match=r"\(\w+, \d+ ids\)|NGramTask.table_size"):
        task.batch(1, np.random.default_rng(0))


@pytest.mark.usefixtures("unchecked")
@EVERY
def test_rows_are_drawn_from_a_generator(task):
    with pytest.raises(ConfigError, match=r"rng is 0, but must be a numpy\.random\.Generator"):
        task.batch(4, 0)
    for size in (4.0, -1):
        with pytest.raises(ConfigError, match=f"size is {size}, but must be a whole number"):
            task.batch(size, np.random.default_rng(0))


# Bad settings

BELOW = {
    InductionTask: [
        {"length": 2},
        {"min_token": -1},
        {"period": 1},
        {"vocab_size": 13, "length": 9, "period": 3},
        {"vocab_size": 74, "length": 64},
    ],
    MultiHopTask: [{"vocab_size": 22}, {"max_hops": -1}, {"alphabet": 1}, {"length": 18}],
    NGramTask: [
        {"order": 1, "table_size": 5},
        {"length": 2},
        {"table_size": 0},
        {"table_seed": -1},
    ],
    MQARTask: [{"pairs": 0}, {"length": 15}, {"vocab_size": 9}, {"value_gap": 0}],
    TriggerTask: [{"length": 2}, {"triggers": 0}, {"table_seed": -1}, {"vocab_size": 12}],
    RepeatTask: [{"length": 2}, {"vocab_size": 6}],
    TextTask: [{"vocab_size": 255}, {"length": 0}],
    IGSMTask: [{"modulus": 1}, {"length": 3}],
}
"""Fields one below their least value, the first one of each setting."""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("cls", BELOW)
def test_the_least_value_is_named_and_right(cls):
    for fields in BELOW[cls]:
        (name, value), *_ = fields.items()
        said = f"{name} is {value}, but must be at least {value + 1}"
        with pytest.raises(ConfigError, match=said):
            cls(**fields)
        cls(**{**fields, name: value + 1})


@pytest.mark.parametrize(
    ("cls", "fields", "said"),
    [
        (InductionTask, {"length": 3, "bos": True}, "length is 2, ... (InductionTask.bos is True"),
        (InductionTask, {"period": 512}, "InductionTask.period is 512, ... below the length, 512"),
        (InductionTask, {"vocab_size": 2**31 + 1}, "must be at most 2147483648"),
        (MultiHopTask, {"max_hops": 17}, "vocab_size is 23, ... at least 24: 18 hop tokens"),
        (NGramTask, {"table_size": 101, "vocab_size": 10}, "only 100 different contexts"),
        (NGramTask, {"order": 2**40, "length": 2**41}, "order is 1099511627776, but vocab_size"),
        (MQARTask, {"pairs": 17}, "MQARTask.length is 64, ... at least 68 ... pairs=17"),
        (MQARTask, {"power_a": 0}, "MQARTask.power_a is 0.0, ... above 0"),
        (MQARTask, {"power_a": 1.5}, "MQARTask.power_a is 1.5, ... at most 1"),
        (TextTask, {"vocab_size": 2**17}, "at most 65536"),
        (TextTask, {"corpus": ""}, "corpus is empty"),
        (IGSMTask, {"ops": "99"}, "IGSMTask.ops is '99' ... difficulty='med' ... 1 to 40"),
        (IGSMTask, {"ops": "٣"}, "IGSMTask.ops is '٣' ... '15', or '<=15'"),
        (IGSMTask, {"ops": "<=3", "kind": "igsm_flat"}, "kind='igsm_flat' ... 4 to 21"),
        (IGSMTask, {"ops": "17", "kind": "igsm_flat"}, "kind='igsm_flat' ... 4 to 16"),
        (IGSMTask, {"modulus": 1001}, "IGSMTask.modulus is 1001, ... at most 1000"),
        (IGSMTask, {"draw": "even", "kind": "igsm_flat"}, "draw is 'even' ... kind='igsm_flat'"),
        (IGSMTask, {"letters": "parts"}, "letters is 'parts' ... format='natural' ... 'pairs'"),
        (IGSMTask, {"format": "pairs"}, "format is 'pairs' ... difficulty='med' ... toy, mini"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_other_bad_settings_are_refused_with_what_would_be_right(cls, fields, said):
    with pytest.raises(ConfigError) as refusal:
        cls(**fields)
    assert all(part in str(refusal.value) for part in said.split(" ... ")), str(refusal.value)
