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
    CheckerTask,
    ConfigError,
    DepoTask,
    IGSMTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    PairTask,
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
    DepoTask(),
    IGSMTask(**TOY),
    IGSMTask(kind="igsm_flat", length=640),
    *WITH_BOS,
]
TOGETHER = [
    InductionTask(vocab_size=40, length=12, period=3),
    TriggerTask(vocab_size=20, length=9, triggers=3),
    CheckerTask(vocab_size=40, length=12),
    PairTask(vocab_size=6, length=24, letters=3),
    RepeatTask(),
    TextTask(corpus="sample", vocab_size=256, length=24),
]
EVERY = pytest.mark.parametrize("task", SEEDED + TOGETHER, ids=lambda task: task.kind)


def arrays(batch):
    return [
        batch.inputs,
        batch.targets,
        batch.answers,
        *(values for _, values in sorted(batch.groups.items())),
    ]


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
def test_tokens_are_int64_rows_of_the_length_with_ids_of_the_vocabulary(task):
    for size in (0, 3):
        batch = task.batch(size, np.random.default_rng(0))
        for tokens in (batch.inputs, batch.targets, batch.answers):
            assert tokens.dtype == np.int64
            assert tokens.shape == (size, task.length)
            assert ((tokens == IGNORE) | (tokens >= 0) & (tokens < task.vocab_size)).all()
        assert (batch.inputs != IGNORE).all()
        assert all(
            values.shape in ((size,), (size, task.length)) for values in batch.groups.values()
        )


@EVERY
def test_a_batch_is_a_function_of_the_generator_which_moves_on(task):
    rng = np.random.default_rng(3)
    one, later = task.batch(5, rng), task.batch(5, rng)
    assert same(one, task.batch(5, np.random.default_rng(3)))
    assert not np.array_equal(one.inputs, later.inputs)


@pytest.mark.parametrize("task", SEEDED, ids=lambda task: task.kind)
def test_a_row_depends_on_its_own_seed_only(task):
    """Not on the rows drawn before it, nor on the size of the batch."""
    rng, batch = np.random.default_rng(3), task.batch(20, np.random.default_rng(3))
    for row in range(20):
        assert same(task.batch(1, rng), batch.rows(row, row + 1))


@EVERY
def test_a_stored_task_is_made_again(task):
    assert from_plain(Task, json.loads(json.dumps(to_plain(task)))) == task


CHECKSUMS = {
    "induction": (2, 2842173980),
    "multihop": (1, 3044533113),
    "ngram": (1, 1159673225),
    "mqar": (1, 3180317340),
    "depo": (1, 3885859934),
    "igsm": (2, 2731727899),
    "trigger": (1, 987942598),
    "checker": (1, 970850455),
    "pairs": (1, 3868088365),
    "repeat": (1, 2449936559),
}
"""The version of each task's drawing rule, and the checksum of eight rows of its defaults."""


@pytest.mark.parametrize("kind", CHECKSUMS)
def test_stored_runs_can_be_compared_as_long_as_the_rule_is_the_same(kind):
    """Other rows need another `rule`: a stored run was trained on those that the generator drew
    then.
    """
    task = TASKS[kind]()
    batch = task.batch(8, np.random.default_rng(0))
    rows = np.stack([batch.inputs, batch.targets, batch.answers]).astype("<i8")
    assert (rule_of(task), zlib.crc32(rows.tobytes())) == CHECKSUMS[kind]


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


def named(letters, numbers):
    return [letters[number].strip() for number in numbers]


def repeats_and_forced(batch):
    repeats = batch.answers[2] != IGNORE
    forced = np.append(False, repeats[:-1])
    return ["R" if r else "F" if f else "" for r, f in zip(repeats, forced, strict=True)]


@pytest.mark.parametrize(
    ("task", "roles"),
    [
        *(
            (InductionTask(vocab_size=60, length=40, score=s), repeats_and_forced)
            for s in ("all", "first", "tokens")
        ),
        (
            MQARTask(length=36),
            lambda batch: [*"KV" * 4, *named(["", "Q"], (batch.targets[2, 8:] != IGNORE) + 0)],
        ),
        (NGramTask(vocab_size=9000, length=20), lambda batch: (["x1", "x2", "x3"] * 7)[:20]),
        (
            PairTask(vocab_size=4, length=12, letters=2),
            lambda batch: [*"abfabfab", "", "a", "b", ""],
        ),
        (PairTask(vocab_size=4, length=11, letters=2), lambda batch: [*"abfabfab", "", "a", "b"]),
        (
            CheckerTask(length=12),
            lambda batch: [*"KV" * 3, *named(" RTF", batch.groups["question"][2, 6:])],
        ),
        (
            TriggerTask(vocab_size=20, length=9, triggers=3),
            lambda batch: named(" GT", batch.groups["source"][2]),
        ),
        (RepeatTask(), None),
        (MultiHopTask(), None),
        (DepoTask(), None),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_show_writes_tokens_roles_and_targets(task, roles):
    batch = task.batch(3, np.random.default_rng(0))
    cells = shown(task.show(batch, 2))
    assert cells["position"] == [str(t) for t in range(task.length)]
    words = (
        dict(enumerate(task.words(np.arange(task.vocab_size)))) if hasattr(task, "words") else {}
    )
    assert len(set(words.values())) == len(words)
    assert cells["token"] == [words.get(token, str(token)) for token in batch.inputs[2]]
    graded = batch.answers if "answer" in cells else batch.targets
    assert cells.get("answer", cells.get("target")) == [
        words.get(t, str(t)) if t != IGNORE else "" for t in graded[2]
    ]
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
    ("task", "words"),
    [
        (MQARTask(vocab_size=2**60, length=16), "ids"),
        (NGramTask(vocab_size=2**31, table_size=2**61, length=12), "NGramTask.table_size"),
        (MultiHopTask(vocab_size=2**50, alphabet=2**49), "ids"),
        (TriggerTask(vocab_size=2**50), "ids"),
        (CheckerTask(vocab_size=2**50), "ids"),
        (PairTask(vocab_size=2**50), "ids"),
        (RepeatTask(vocab_size=2**50), "ids"),
        (DepoTask(names=2**50, length=2**53, vocab_size=2**51), "ids"),
    ],
)
def test_tables_that_cannot_be_are_refused(task, words):
    with pytest.raises(ConfigError, match=words):
        task.batch(1, np.random.default_rng(0))


@pytest.mark.usefixtures("unchecked")
@EVERY
@pytest.mark.parametrize(
    ("size", "rng", "said"),
    [
        (
            4,
            0,
            r"rng is 0, but must be a numpy\.random\.Generator, such as numpy\.random\.default_rng\(0\)\.",
        ),
        (4.0, np.random.default_rng(0), r"size is 4\.0, but must be a whole number of sequences\."),
        (-1, np.random.default_rng(0), r"size is -1, but must be a whole number of sequences\."),
    ],
)
def test_rows_are_drawn_from_a_generator(task, size, rng, said):
    with pytest.raises(ConfigError, match=said):
        task.batch(size, rng)


# Bad settings


@pytest.mark.parametrize(
    ("cls", "fields", "said"),
    [
        (InductionTask, {"length": 2}, "InductionTask.length is 2, ... at least 3"),
        (
            InductionTask,
            {"length": 3, "bos": True},
            "InductionTask.length is 2, ... (InductionTask.bos is True",
        ),
        (InductionTask, {"min_token": -1}, "InductionTask.min_token is -1, ... start at 0"),
        (InductionTask, {"period": 1}, "InductionTask.period is 1, ... at least 2"),
        (InductionTask, {"period": 512}, "InductionTask.period is 512, ... below the length, 512"),
        (
            InductionTask,
            {"vocab_size": 13, "length": 9, "period": 3},
            "vocab_size is 13, ... at least 14",
        ),
        (
            InductionTask,
            {"vocab_size": 74, "length": 64},
            "InductionTask.vocab_size is 74, ... at least 75",
        ),
        (InductionTask, {"vocab_size": 2**31 + 1}, "must be at most 2147483648"),
        (
            MultiHopTask,
            {"max_hops": 17},
            "MultiHopTask.vocab_size is 23, ... max_hops=17 ... need 24 ... 18 hop",
        ),
        (MultiHopTask, {"max_hops": -1}, "MultiHopTask.max_hops is -1, ... not be negative"),
        (MultiHopTask, {"alphabet": 1}, "MultiHopTask.alphabet is 1, ... at least 2"),
        (MultiHopTask, {"length": 18}, "MultiHopTask.length is 18, ... at least 19"),
        (
            NGramTask,
            {"vocab_size": 1, "table_size": 1},
            "NGramTask.vocab_size is 1, ... at least 2",
        ),
        (NGramTask, {"order": 1}, "NGramTask.order is 1, ... at least 2"),
        (NGramTask, {"length": 2}, "NGramTask.length is 2, ... at least order=3"),
        (NGramTask, {"table_size": 0}, "NGramTask.table_size is 0, ... at least 1"),
        (
            NGramTask,
            {"table_size": 101, "vocab_size": 10},
            "table_size is 101, ... only 100 different contexts",
        ),
        (NGramTask, {"order": 12}, "NGramTask.order is 12, ... vocab_size=64"),
        (
            NGramTask,
            {"order": 2**40, "length": 2**41},
            "NGramTask.order is 1099511627776, but vocab_size",
        ),
        (MQARTask, {"pairs": 0}, "MQARTask.pairs is 0, ... at least 1"),
        (MQARTask, {"pairs": 17}, "MQARTask.length is 64, ... at least 68 ... pairs=17"),
        (MQARTask, {"vocab_size": 9}, "MQARTask.vocab_size is 9, ... at least 10 ... pairs=4"),
        (MQARTask, {"value_gap": 0}, "MQARTask.value_gap is 0, ... at least 1"),
        (
            MQARTask,
            {"bos": True, "length": 16},
            "MQARTask.length is 15, ... at least 16 ... MQARTask.bos is True",
        ),
        (MQARTask, {"power_a": 0}, "MQARTask.power_a is 0.0, ... above 0"),
        (MQARTask, {"power_a": 1.5}, "MQARTask.power_a is 1.5, ... at most 1"),
        (TriggerTask, {"length": 2}, "TriggerTask.length is 2, but must be at least 3."),
        (TriggerTask, {"triggers": 0}, "TriggerTask.triggers is 0, but must be at least 1."),
        (TriggerTask, {"table_seed": -1}, "TriggerTask.table_seed is -1, but must be at least 0."),
        (
            TriggerTask,
            {"vocab_size": 12},
            "TriggerTask.vocab_size is 12, ... at least 13: triggers=8",
        ),
        (CheckerTask, {"length": 4}, "CheckerTask.length is 4, ... a multiple of 4 and at least 8"),
        (
            CheckerTask,
            {"vocab_size": 18},
            "CheckerTask.vocab_size is 18, ... at least 19: length=32 takes 16",
        ),
        (
            PairTask,
            {"letters": 1},
            "PairTask.letters is 1, but must be at least 2: a context has 2 different letters.",
        ),
        (PairTask, {"vocab_size": 7}, "PairTask.vocab_size is 7, ... at least 8: half of the ids"),
        (PairTask, {"length": 37}, "PairTask.length is 37, ... at least 38: the first query"),
        (
            RepeatTask,
            {"length": 2},
            "RepeatTask.length is 2, but a repeat needs at least 3 positions.",
        ),
        (
            RepeatTask,
            {"vocab_size": 6},
            "RepeatTask.vocab_size is 6, ... at least 7: a sequence of length=8",
        ),
        (RepeatTask, {"followers": 4}, "RepeatTask.followers is 4, ... from 1 to 3 ... length=8"),
        (DepoTask, {"max_hops": 0}, "DepoTask.max_hops is 0, ... at least 1"),
        (
            DepoTask,
            {"names": 3},
            "DepoTask.names is 3, ... above max_hops=3 ... no walk returns to its start",
        ),
        (DepoTask, {"vocab_size": 10}, "DepoTask.vocab_size is 10, ... leaves 5 ids for names=6"),
        (
            DepoTask,
            {"length": 15},
            "DepoTask.length is 15, ... at least 16 ... names=6 take 2 positions",
        ),
        (
            TextTask,
            {"vocab_size": 255},
            "vocab_size is 255, but must be at least 256, which is bytes",
        ),
        (TextTask, {"vocab_size": 2**17}, "at most 65536"),
        (TextTask, {"length": 0}, "length is 0, but must be at least 1"),
        (TextTask, {"corpus": ""}, "corpus is empty"),
        (IGSMTask, {"ops": "99"}, "IGSMTask.ops is '99' ... difficulty='med' ... 1 to 40"),
        (IGSMTask, {"ops": "<=abc"}, "IGSMTask.ops is '<=abc' ... '15', or '<=15'"),
        (IGSMTask, {"ops": "٣"}, "IGSMTask.ops is '٣'"),
        (
            IGSMTask,
            {"ops": "21", "difficulty": "toy"},
            "IGSMTask.ops is '21' ... difficulty='toy' ... 1 to 20",
        ),
        (
            IGSMTask,
            {"ops": "<=3", "kind": "igsm_flat"},
            "ops is '<=3' ... kind='igsm_flat' ... 4 to 21",
        ),
        (
            IGSMTask,
            {"ops": "17", "kind": "igsm_flat"},
            "ops is '17' ... kind='igsm_flat' ... 4 to 16",
        ),
        (IGSMTask, {"modulus": 1}, "IGSMTask.modulus is 1, ... at least 2"),
        (IGSMTask, {"modulus": 1001}, "IGSMTask.modulus is 1001, ... at most 1000"),
        (IGSMTask, {"length": 3}, "IGSMTask.length is 3, ... at least 4"),
        (
            IGSMTask,
            {"draw": "even", "kind": "igsm_flat"},
            "IGSMTask.draw is 'even' ... kind='igsm_flat'",
        ),
        (
            IGSMTask,
            {"letters": "parts"},
            "IGSMTask.letters is 'parts' ... format='natural' ... format='pairs'",
        ),
        (
            IGSMTask,
            {"format": "pairs"},
            "IGSMTask.format is 'pairs' ... difficulty='med' ... one of toy, mini",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_settings_are_refused_with_what_would_be_right(cls, fields, said):
    with pytest.raises(ConfigError) as refusal:
        cls(**fields)
    assert all(part in str(refusal.value) for part in said.split(" ... ")), str(refusal.value)
