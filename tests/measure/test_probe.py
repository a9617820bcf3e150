"""Probes: sequences like those that a model was trained on."""

import numpy as np
import pytest
import torch

from ihlab.measure.heads import prefix_matches
from ihlab.measure.probe import model_tokens, probe_rows, repeated_batch, task_probe, task_tokens
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks import IGNORE, Batch, IGSMTask, InductionTask, MQARTask, MultiHopTask, NGramTask, Task
from tasks.config import config

BEGINNING: dict[str, Task] = {
    "induction": InductionTask(vocab_size=64, length=33, bos=True),
    "mqar": MQARTask(vocab_size=64, length=33, bos=True),
    "ngram": NGramTask(vocab_size=64, length=33, bos=True),
    "multihop": MultiHopTask(length=40, alphabet=6, vocab_size=30),
    "igsm": IGSMTask(difficulty="mini", format="pairs", letters="ordered", ops="<=3", length=128),
}


@pytest.mark.parametrize("name", BEGINNING)
def test_a_probe_begins_as_rows_do_and_draws_content_alone(name):
    """Compared with drawn rows: what is first in them is never inside a probe, nor is what they
    mark or fill with.
    """
    task = BEGINNING[name]
    drawn = task.batch(200, np.random.default_rng(1)).inputs
    probe = task_probe(task)
    assert probe is not None
    tokens = probe.tokens
    assert torch.equal(probe.matches, prefix_matches(tokens))
    first = set(drawn[:, 0].tolist())
    assert set(tokens[:, 0].tolist()) <= first
    special = first | ({0, 1, 2, 3, 4} if name == "igsm" else set())
    assert not special & set(tokens[:, 1:].unique().tolist())
    assert set(tokens.unique().tolist()) <= set(drawn.ravel().tolist())
    rows = probe_rows(task_tokens(task), 4, 5)
    assert rows.shape[1] <= task.length
    period = (rows.shape[1] - 1) // 4
    assert torch.equal(rows[:, 1:], rows[:, 1 : 1 + period].repeat(1, 4))
    assert all(len(set(row)) == period for row in rows[:, 1 : 1 + period].tolist())


def test_a_task_that_says_nothing_begins_with_what_is_always_first():
    @config
    class Own:
        kind = "own"
        vocab_size: int = 20
        length: int = 17
        first: int = 3

        def batch(self, size, rng):
            rows = rng.integers(10, 20, (size, self.length))
            rows[:, 0] = self.first
            return Batch(rows, rows)

        def show(self, batch, row):
            return ""

    assert task_tokens(Own()).begin == (3,)
    assert task_tokens(Own()).content == list(range(10, 20))
    assert task_tokens(Own(first=12)).begin == ()  # it is content, too


def test_a_probe_is_as_long_as_the_rows_of_the_training():
    model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=160, n_ctx=512))
    assert probe_rows(model_tokens(model), 4, 2).shape == (2, 128)  # its training is unknown
    model.trained_on = InductionTask(vocab_size=160, length=32)
    assert probe_rows(model_tokens(model), 4, 2).shape == (2, 32)
    assert probe_rows(model_tokens(model), 4, 2, length=64).shape == (2, 64)
    assert model_tokens(model).content == list(range(11, 160))


def test_a_batch_of_repeats_asks_from_the_second_repeat_on():
    for begin in ((), (9,)):
        batch = repeated_batch(torch.tensor([[*begin, 1, 2, 3, 1, 2, 3]]), 2, len(begin))
        assert batch.targets[0].tolist() == [IGNORE] * (len(begin) + 2) + [1, 2, 3, IGNORE]
