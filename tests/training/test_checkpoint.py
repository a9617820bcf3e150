"""Checkpoints that cannot be trusted are refused in one sentence."""

import pytest
import torch

from ihlab import Transformer
from ihlab.training import checkpoint
from tasks import ConfigError


def test_round_trip(small, tmp_path):
    model, other = Transformer(small.model, seed=1), Transformer(small.model, seed=2)
    path = tmp_path / "m.safetensors"
    checkpoint.save(path, checkpoint.model_state(model))
    checkpoint.load_model_state(other, checkpoint.load(path), path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_tied_embeddings_round_trip(small, tmp_path):
    tied = small.model.but(tied_embeddings=True)
    model, other = Transformer(tied, seed=1), Transformer(tied, seed=2)
    path = tmp_path / "m.safetensors"
    checkpoint.save(path, checkpoint.model_state(model))
    checkpoint.load_model_state(other, checkpoint.load(path), path)
    assert torch.equal(other.unembed.weight, model.embed.weight)


def test_half_a_file_is_refused(small, tmp_path):
    path = tmp_path / "m.safetensors"
    checkpoint.save(path, checkpoint.model_state(Transformer(small.model)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"m\.safetensors cannot be read"):
        checkpoint.load(path)
    assert path.read_bytes() == whole[: len(whole) // 2]


def test_missing_and_foreign_files_are_refused(small, tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(ConfigError, match="There is no checkpoint"):
        checkpoint.load(path)
    checkpoint.save(path, checkpoint.model_state(Transformer(small.model.but(d_model=16))))
    with pytest.raises(ConfigError, match="holds another model"):
        checkpoint.load_model_state(Transformer(small.model), checkpoint.load(path), path)
