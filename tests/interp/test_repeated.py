"""Random tokens read twice: what the commands draw for a model of another library."""

import numpy as np
import pytest

from ihlab import ModelConfig, Transformer
from ihlab.interp.head_model import OurModel
from ihlab.interp.prompt_pair import prompt_pair
from ihlab.interp.repeated import RepeatedTokens
from tasks import IGNORE, ConfigError


def tokens_of(bos):
    model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=33))
    model.special_tokens = {"bos_token_id": 1, "eos_token_id": 2}
    return RepeatedTokens(OurModel(model, prepend_bos=bos))


@pytest.mark.parametrize("bos", [True, False])
def test_each_sequence_is_read_twice_after_its_bos_token_without_special_ids(bos):
    task = tokens_of(bos)
    batch = task.batch(50, np.random.default_rng(0))
    start = int(bos)
    first, second = np.split(batch.inputs[:, start : start + 32], 2, axis=1)
    assert np.array_equal(first, second)
    assert (batch.inputs[:, :start] == 1).all()
    assert not np.isin(first, [1, 2]).any()
    assert all(len(set(row)) == 16 for row in first.tolist())
    assert (batch.targets[:, : start + 15] == IGNORE).all()
    assert np.array_equal(batch.targets[:, start + 15 : -1], batch.inputs[:, start + 16 :])
    assert task.described(batch).startswith("sequences of 16 random tokens read twice")


@pytest.mark.parametrize("corrupt", ["key", "answer", "absent", "resample"])
def test_its_prompts_can_be_corrupted_and_keep_their_bos_token(corrupt):
    pair = prompt_pair(tokens_of(bos=True), 20, 0, corrupt)
    assert (pair.corrupted[:, 0] == 1).all()
    for clean, position, answer in zip(pair.clean, pair.position, pair.answer, strict=True):
        earlier = (clean[:position] == clean[position]).nonzero()[-1].item()
        assert clean[earlier + 1] == answer
    assert (pair.answer != pair.other).all()


def test_a_sequence_too_long_for_the_model_is_refused():
    with pytest.raises(
        ConfigError, match="length is 40, but must be at most the model's n_ctx, 33"
    ):
        RepeatedTokens(tokens_of(False).model, 40).drawn(2, 0)
