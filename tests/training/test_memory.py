"""A run that cannot be in memory is refused before it has a folder, and one that fits is not."""

import pytest
import torch

from ihlab import ModelConfig, RunConfig, Transformer, train
from ihlab.training.memory import _trained_bytes, require_fits
from tasks import ConfigError, InductionTask

CPU = torch.device("cpu")


def config_of(batch_size, length, vocab_size, **model):
    task = InductionTask(vocab_size=vocab_size, length=length)
    shape = {"n_layers": 2, "d_model": 64, "n_heads": 4, **model}
    return RunConfig(
        task=task,
        model=ModelConfig(**shape, d_vocab=vocab_size, n_ctx=length),
        batch_size=batch_size,
        eval_rows=1,
    )


@pytest.mark.parametrize(
    "shape",
    [
        {"attention": "key_offset"},
        {"mlp": "gelu", "norm": "layer", "positional": "learned"},
        {"mlp": "none", "n_key_value_heads": 1},
        {"tied_embeddings": True},
    ],
    ids=str,
)
def test_no_model_has_fewer_weights_than_are_counted(shape):
    """Or a model that fits would be refused."""
    model = ModelConfig(n_layers=2, d_model=64, n_heads=4, d_vocab=200, n_ctx=12, **shape)
    held = sum(p.numel() * p.element_size() for p in Transformer(model).parameters())
    assert 0.3 * held < _trained_bytes(model) <= held


@pytest.mark.parametrize(
    ("change", "of_model", "words"),
    [
        ({"batch_size": 10**12}, {}, "batch_size"),
        ({"eval_rows": 10**12}, {}, "eval_rows"),
        ({}, {"n_layers": 10**8}, "n_layers=100000000"),
        ({}, {"d_vocab": 10**12}, "d_vocab=1000000000000"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_it_has_a_folder(tmp_path, change, of_model, words):
    config = config_of(1, 8, 40)
    config = config.replace(model=config.model.replace(**of_model), **change)
    for members in (None, 2):
        with pytest.raises(ConfigError, match=rf"at least .* of memory, most of it for .*{words}"):
            train(config, tmp_path, "cpu", members=members)
    assert not list(tmp_path.iterdir())


def test_attention_patterns_of_a_long_context_count(tmp_path, monkeypatch):
    """One sequence of 4,000 positions has 256 MB of patterns in four heads, the 16 of the probe have
    4 GB.
    """
    long = config_of(1, 4_000, 4_011, d_model=8)
    for memory, said in ((2**27, r"24\d MiB .* of 1 seq"), (2**29, r"3\.8\d GiB .* of 16 seq")):
        monkeypatch.setattr("ihlab.training.memory.machine_memory", lambda memory=memory: memory)
        with pytest.raises(ConfigError, match=said):
            train(long, tmp_path, "cpu")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("ihlab.training.memory.machine_memory", lambda: 2**33)
    require_fits(long, CPU)


def test_more_members_than_folders_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="members is 100000000, but must be from 1 to 10000"):
        train(config_of(1, 8, 40), tmp_path, "cpu", members=10**8)
