"""Head scores while a model is trained, by ihlab, by a loop, and by transformers."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM

from ihlab import ModelConfig, Transformer
from ihlab.interp import HeadMonitor, head_scores
from tasks import ConfigError


def ours():
    return Transformer(
        ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=30, n_ctx=16, attention="kv_shift")
    )


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        attention_dropout=0.1,
    )
    return LlamaForCausalLM(config)


@pytest.mark.parametrize("make", [ours, llama])
def test_it_measures_what_head_scores_does_and_leaves_the_training_alone(make):
    model = make().train()
    monitor = HeadMonitor(model, every=5, rows=4, seed=3)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    for step in range(11):
        monitor(step)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert sorted(monitor.table["step"].unique()) == [0, 5, 10]
    right = head_scores(model, rows=4, seed=3).query("pattern == 'effective'")
    last = monitor.table.query("step == 10").drop(columns="step")
    np.testing.assert_array_equal(last, right[last.columns])
    with pytest.raises(ConfigError, match="step is 3, but step 10 was measured already"):
        monitor(3)


def test_it_follows_the_weights_and_finds_the_onset_of_a_planted_head():
    """A hook blends a perfect induction head in from step 200 on."""
    model, amount = ours(), {"now": 0.0}

    def blended(pattern, hook):
        planted = torch.zeros_like(pattern)
        for query in range(16):
            planted[:, 1, query, max(query - 3, 0)] = (
                1  # the token after the copy, at a period of 4
            )
        planted[:, 0] = pattern[:, 0]
        return (1 - amount["now"]) * pattern + amount["now"] * planted

    model.add_hook("blocks.0.attn.hook_pattern", blended, is_permanent=True)
    with torch.no_grad():
        model.layers[0].attn.beta[:] = torch.tensor([1.0, 0.0])
    monitor = HeadMonitor(model, every=20)
    for step in range(0, 401, 10):
        amount["now"] = min(max((step - 180) / 40, 0), 1)
        monitor(step)
    found = monitor.onsets()
    assert found[["layer", "head"]].to_numpy().tolist()[0] == [0, 1]
    assert 160 <= found["start"][0] <= 200 <= found["middle"][0] + 20 <= 240
    assert found["start"][1:].isna().all()
    assert not found["matches_prefix"].any()  # it goes by distance: the control says so


def test_too_few_measurements_and_none_say_so():
    monitor = HeadMonitor(ours())
    with pytest.raises(ConfigError, match="Nothing was measured yet"):
        _ = monitor.table
    monitor(0)
    with pytest.raises(ConfigError, match="The curve has 1 values, but a change needs at least 12"):
        monitor.onsets()


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        ids = torch.arange(16) % 29 + 1
        return {"input_ids": ids, "labels": ids}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_trainer_of_transformers_calls_it(tmp_path):
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    model = llama()
    monitor = HeadMonitor(model, every=2)
    arguments = TrainingArguments(
        tmp_path, max_steps=5, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True
    )
    Trainer(model, arguments, train_dataset=Rows(), callbacks=[monitor.callback()]).train()
    assert sorted(monitor.table["step"].unique()) == [0, 2, 4]
