"""Text to ids and back: iGSM's words, the text task's bytes and BPE, and tasks that have ids only."""

import numpy as np
import pytest
import torch

from ihlab import ModelConfig, Transformer
from tasks import ConfigError, IGSMTask, InductionTask, TextTask


def model_of(task):
    model = Transformer(
        ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=task.vocab_size, n_ctx=64)
    ).eval()
    model.trained_on = task
    return model


@pytest.fixture(scope="module", params=["igsm", "bytes", "bpe"])
def task(request):
    return {
        "igsm": IGSMTask,
        "bytes": lambda: TextTask(corpus="sample", length=16),
        "bpe": lambda: TextTask(corpus="sample", length=16, vocab_size=400),
    }[request.param]()


def test_text_and_ids_are_each_others_inverse(task):
    model, row = model_of(task), np.arange(65, 81)  # letters, or words of iGSM
    text = model.to_string(row)
    words = model.to_str_tokens(row)
    assert words == task.words(row)
    assert model.to_string(row[None]) == [text]
    assert model.to_str_tokens([row, row[:3]]) == [words, words[:3]]
    assert model.tokenizer.decode(model.tokenizer.encode(text)) == text
    ids = model.to_tokens(text)
    assert torch.equal(model(text), model(ids))
    assert model.to_str_tokens(text) == model.to_str_tokens(ids)


def test_a_task_without_words_has_numbers():
    model = model_of(InductionTask(vocab_size=20, length=8))
    assert model.tokenizer is None
    assert model.to_str_tokens(torch.tensor([[3, 7]])) == ["3", "7"]
    assert model.to_str_tokens([3, 7]) == ["3", "7"]
    assert model.to_string([3, 7]) == "3 7"
    with pytest.raises(
        ConfigError, match="The text 'a b' has no ids: the task 'induction' has no words"
    ):
        model("a b")
    with pytest.raises(ConfigError, match="must be one sequence"):
        model.to_str_tokens(torch.tensor([[3], [7]]).repeat(1, 2))


def test_an_unknown_word_is_refused():
    model = model_of(IGSMTask())
    with pytest.raises(ConfigError, match="iGSM token"):
        model.to_tokens("<bos> unheard")
    model.trained_on = None
    with pytest.raises(ConfigError, match="no task whose words are known"):
        model.to_tokens("a")
