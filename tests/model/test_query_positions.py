"""The last layer at scored positions only, against all positions."""

import pytest
import torch
from transformer_lens.hook_points import HookPoint

from ihlab import ModelConfig, Transformer
from ihlab.model.config import GPT2
from ihlab.model.query_positions import AT_EVERY_POSITION, may_gather

SCORED_SHAPES = (
    {},
    {"attention": "kv_shift", "n_key_value_heads": 1},
    {"residual": (True, False)},
    {"mlp": "none"},
    {"norm": "none", "unembedding": "none", "d_model": 16},
    {**GPT2, "dropout": 0.0},
    {"positional": "alibi"},
    {"positional": "alibi", "mask": "strict", "attention": "kv_shift"},
    {"positional": "none", "mask": "strict"},
)


@pytest.mark.parametrize("changes", SCORED_SHAPES)
@pytest.mark.parametrize("queries", [None, [[0, 4, 1], [4, 0, 0], [2, 8, 7]]])
def test_the_residual_at_some_positions_is_that_of_all(changes, queries):
    cfg = ModelConfig(**{"n_layers": 2, "d_model": 16, "n_heads": 2, "d_vocab": 11, "n_ctx": 9, **changes})
    model = Transformer(cfg).double()
    tokens, index = torch.arange(27).reshape(3, 9) % 11, torch.tensor([4, 0, 26, 13, 4])
    weights = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    at = None if queries is None else torch.tensor(queries)
    gradients = []
    for residual in (model.residual_at(tokens, index, at), model.final_residual(tokens).flatten(0, 1)[index]):
        gradients.append(torch.autograd.grad((residual * weights).sum(), model.parameters(), allow_unused=True))
        assert torch.allclose(residual, model.final_residual(tokens).flatten(0, 1)[index], atol=1e-12)
    for some, every in zip(*gradients, strict=True):
        assert some is every is None or torch.allclose(some, every, atol=1e-12)


@pytest.mark.parametrize(
    "changes", [{"attention": "kv_shift"}, GPT2 | {"dropout": 0.0}, {"mlp": "none", "norm": "none"}]
)
def test_whatever_is_listened_to_is_what_it_always_is(changes):
    cfg = ModelConfig(**{"n_layers": 2, "d_model": 16, "n_heads": 2, "d_vocab": 11, "n_ctx": 9, **changes})
    model, tokens = Transformer(cfg), torch.arange(27).reshape(3, 9) % 11
    index, queries = torch.tensor([4, 26]), torch.tensor([[4], [0], [8]])
    plain, seen = model.residual_at(tokens, index, queries), []
    for name in model.hook_dict:
        for run in (model, lambda tokens: model.residual_at(tokens, index, queries)):
            with model.hooks(fwd_hooks=[(name, lambda x, hook: seen.append(x))]):
                out = run(tokens)
        always, now = seen[-2:]
        torch.testing.assert_close(now, always)
        torch.testing.assert_close(out, plain)
    assert len(seen) == 2 * len(model.hook_dict)


def test_queries_are_gathered_only_where_every_hook_sees_the_same(make_model):
    """Also at a point that nobody thought of, which is on no list."""
    model = make_model(attention="kv_shift")
    model.blocks[-1].attn.hook_new = HookPoint()
    model.setup()
    assert may_gather(model)
    for name in model.hook_dict:
        with model.hooks(fwd_hooks=[(name, lambda x, hook: None)]):
            last = name.removeprefix("blocks.1.")
            assert may_gather(model) == (name.startswith(("hook_embed", "blocks.0.")) or last in AT_EVERY_POSITION), (
                name
            )
