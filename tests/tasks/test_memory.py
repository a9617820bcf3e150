"""Sizes that cannot be are refused at once; those that can be are not."""

import numpy as np
import pytest

from tasks import (
    CheckerTask,
    ConfigError,
    IGSMTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    PairTask,
    RepeatTask,
    TextTask,
    TriggerTask,
)
from tasks.memory import in_units, machine_memory, require_memory, rows_memory

TASKS = [
    InductionTask(vocab_size=40, length=12),
    NGramTask(vocab_size=40, length=12),
    MQARTask(vocab_size=40, length=16),
    MultiHopTask(),
    IGSMTask(difficulty="toy", ops="<=3", length=200),
    TriggerTask(vocab_size=40, length=12),
    CheckerTask(vocab_size=40, length=12),
    PairTask(),
    RepeatTask(),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_rows_that_cannot_be_are_refused(task):
    with pytest.raises(ConfigError, match=r"^A batch of 1000000000000 sequences of .* takes at least .* of memory"):
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
    ],
)
def test_tables_that_cannot_be_are_refused(task, words):
    with pytest.raises(ConfigError, match=words):
        task.batch(1, np.random.default_rng(0))


def test_ids_that_the_kernel_cannot_hold_are_refused():
    """Ids of induction are drawn in 32 bits: larger ones came out as others."""
    with pytest.raises(ConfigError, match="must be at most 2147483648"):
        InductionTask(vocab_size=2**31 + 1, length=12)
    high = InductionTask(vocab_size=2**31, min_token=2**31 - 20, length=12).batch(4, np.random.default_rng(0)).inputs
    assert (high >= 2**31 - 20).all()
    assert (high < 2**31).all()


def test_an_order_whose_contexts_cannot_be_counted_is_refused():
    with pytest.raises(ConfigError, match=r"NGramTask.order is \d+, but vocab_size"):
        NGramTask(order=2**40, length=2**41)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_rows_take_no_less_than_is_said(task):
    batch = task.batch(3, np.random.default_rng(0))
    assert rows_memory(task, 3) <= batch.inputs.size * 8 + batch.targets.size * 8


def test_the_limit_is_the_machines():
    require_memory("All of it", machine_memory())
    with pytest.raises(ConfigError, match=r"^More takes at least .*, but there are "):
        require_memory("More", machine_memory() + 1)


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [(0, "0 bytes"), (1023, "1.02e+03 bytes"), (1024, "1 KiB"), (3 * 2**39, "1.5 TiB"), (2**70, "1.02e+03 EiB")],
)
def test_bytes_in_units(n_bytes, shown):
    assert in_units(n_bytes) == shown


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("task", [*TASKS, TextTask(corpus="sample")], ids=lambda task: task.kind)
@pytest.mark.parametrize(
    ("size", "rng", "said"),
    [
        (4, 0, r"rng is 0, but must be a numpy\.random\.Generator, such as numpy\.random\.default_rng\(0\)\."),
        (4.0, np.random.default_rng(0), r"size is 4\.0, but must be a whole number of sequences\."),
        (-1, np.random.default_rng(0), r"size is -1, but must be a whole number of sequences\."),
    ],
)
def test_rows_are_drawn_from_a_generator(task, size, rng, said):
    with pytest.raises(ConfigError, match=said):
        task.batch(size, rng)
