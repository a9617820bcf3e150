"""Which attention a config makes, and what its cache holds."""

from pathlib import Path

import pytest
import torch

from ihlab.model.decode import Decoder
from tests.model.covering import BUILT_IN

CACHED = {
    "qkv_shift, window 3": ({"attention": "qkv_shift", "shift_window": 3}, 2 * 2 * 6, 2 * 8 * 6),
    "key_offset": ({"attention": "key_offset", "d_head": 8}, 2 * 2 * 8, 2 * 8),
    "canon ABCD": ({"canon": "ABCD"}, 2 * 2 * 6, 3 * (20 + 8 * 6 + 20 + 2 * 14)),
    "smeared embedding": ({"smear": "embedding"}, 2 * 2 * 6, 20),
}
"""How many numbers the first layer's cache holds: of each token, and however many tokens there are.
"""


@pytest.mark.parametrize("name", CACHED)
def test_a_cache_holds_no_more_than_decoding_needs(make_model, tokens, name):
    """Measured on everything that the cache keeps."""
    fields, of_token, fixed = CACHED[name]
    model = make_model(**(fields or {"attention": name}))
    for n_pos in (9, 6):
        assert held(model, tokens[:, :n_pos]) == 3 * (n_pos * of_token + fixed)


def held(model, tokens):
    """Return how many numbers the first layer's cache holds once it has read all it has room for."""
    decoder = Decoder(model, *tokens.shape)
    decoder.forward(tokens)
    cache = decoder.caches[0]
    kept = [x for x in [*vars(cache).values(), *cache.raw.values()] if isinstance(x, torch.Tensor)]
    return sum(x.numel() for x in kept)


def test_the_page_of_variants_has_every_one():
    page = (Path(__file__).parents[3] / "docs" / "variants.md").read_text(encoding="utf-8")
    assert [name for name in BUILT_IN if f"`{name}`" not in page] == []
