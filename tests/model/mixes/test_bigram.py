"""The hash table of pairs: its rows, and the model without it."""

import pytest
import torch

from ihlab import Transformer
from ihlab.interp.patterns import effective_patterns
from ihlab.model.config import GPT2
from ihlab.model.conversion import to_gpt2, to_llama
from tasks import ConfigError


@pytest.fixture
def make(make_model):
    """Models in float64, with a table that is not 0."""

    def filled(**changes):
        model = make_model(**changes).double()
        if model.bigram is not None:
            torch.nn.init.normal_(model.bigram.weight, generator=torch.Generator().manual_seed(3))
        return model

    return filled


def test_a_table_of_zeros_is_the_model_without_and_it_starts_as_zeros(make_config, tokens):
    model, vanilla = (Transformer(make_config(bigram_table=rows)) for rows in (50, 0))
    assert torch.equal(model(tokens), vanilla(tokens))
    assert model.n_params == vanilla.n_params  # an embedding, as the paper counts
    assert model.decayed_parameters() - vanilla.decayed_parameters() == {"bigram.weight"}


def test_what_does_not_know_the_table_refuses_it(make, tokens):
    _, cache = make(bigram_table=50).run_with_cache(tokens)
    with pytest.raises(ConfigError, match="The model has bigram_table=50, which mixes"):
        effective_patterns(cache)
    for convert, block in ((to_llama, {}), (to_gpt2, GPT2)):
        with pytest.raises(ConfigError, match="bigram_table"):
            convert(make(bigram_table=50, **block))
    with pytest.raises(ConfigError, match="bigram_table is 1, but must be 0 or at least 2"):
        make(bigram_table=1)
