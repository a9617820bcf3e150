"""A run can say where alpha and beta start; nothing else of it changes then."""

import pytest
import torch

from ihlab import Transformer, train
from ihlab.training.config import from_dict, to_dict
from ihlab.training.initial import initial_model
from tasks import ConfigError


def test_heads_start_where_the_run_says(small):
    config = small.but(model=small.model.but(n_layers=2, shift_window=3), init_shift=(0.2, 0.6), seed=3)
    model, plain = initial_model(config), Transformer(config.model, seed=3)
    for block in model.layers:
        torch.testing.assert_close(block.attn.alpha, torch.tensor([[0.2, 0.4, 0.4]] * 2))
        torch.testing.assert_close(block.attn.beta, torch.tensor([[0.6, 0.2, 0.2]] * 2))
    theirs = dict(plain.named_parameters())
    for name, ours in model.named_parameters():
        assert ("shift" in name) != torch.equal(ours, theirs[name])


def test_the_run_starts_there_and_its_config_says_so(small, tmp_path):
    config = small.but(init_shift=(0, 1))
    run = train(config, tmp_path)
    first = run.metrics.iloc[0]
    columns = ("alpha1_0.0", "alpha2_0.1", "beta1_0.0", "beta2_0.1")
    assert [first[column] for column in columns] == [0, 1, 1, 0]
    assert from_dict(to_dict(config)) == config
    assert config.digest == small.but(init_shift=(0.0, 1.0)).digest != small.digest


@pytest.mark.parametrize("start", [0.5, (0.5,), (0.1, float("nan")), (0.1, "b"), (True, 0.2)])
def test_a_start_that_is_not_two_numbers_is_refused(small, start):
    with pytest.raises(ConfigError, match=r"init_shift is .*two finite numbers"):
        small.but(init_shift=start)


def test_a_model_without_shift_has_no_start(small):
    with pytest.raises(ConfigError, match="a vanilla model does not learn both alpha and beta"):
        small.but(model=small.model.but(attention="vanilla"), init_shift=(0.1, 0.2))
