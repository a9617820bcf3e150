import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
OF_FAMILY = {"mistral": {"sliding_window": 6}, "qwen3": {"head_dim": 8}}


def plain(family="llama"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SIZES, **OF_FAMILY.get(family, {}))
    return AutoModelForCausalLM.from_config(config).eval()


def maker(family="llama", **shift):
    from ihlab.hf import add_shift  # after tests/conftest.py has decided whether shapes are checked

    return lambda: add_shift(plain(family), **shift)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr("transformers.trainer.Trainer.log", _noted)
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _noted(trainer, logs, *args):
    trainer.state.log_history.append({**logs, "step": trainer.state.global_step})
