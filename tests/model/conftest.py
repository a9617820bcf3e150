"""Small models that reveal a swapped axis or an unused weight."""

import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer

# Grouped-query attention, and heads that together are wider than the residual stream.
SIZES = {
    "n_layers": 2,
    "d_model": 20,
    "n_heads": 4,
    "n_key_value_heads": 2,
    "d_head": 6,
    "d_mlp": 14,
    "d_vocab": 19,
    "n_ctx": 12,
}


@pytest.fixture(autouse=True)
def _same_numbers_each_run():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_config():
    """ModelConfigs of SIZES with some fields changed."""

    def make(**changes):
        return ModelConfig(**{**SIZES, **changes})

    return make


@pytest.fixture(scope="session")
def make_model(make_config):
    """Transformers of SIZES with some fields changed, with norm weights that are not 1 and biases
    that are not 0.
    """

    def make(seed=0, **changes):
        model = Transformer(make_config(**changes), seed=seed)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith(".w"):
                    weight.uniform_(0.5, 1.5, generator=generator)
                if name.endswith((".b", ".bias")):
                    weight.normal_(generator=generator)
        return model

    return make


@pytest.fixture(scope="session")
def tokens():
    """Tokens [3, 9] of the SIZES vocabulary."""
    return torch.randint(19, (3, 9), generator=torch.Generator().manual_seed(2))
