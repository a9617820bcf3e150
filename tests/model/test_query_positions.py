"""The last layer at scored positions only, against all positions."""

import pytest
import torch
from transformer_lens.hook_points import HookPoint

from ihlab import ModelConfig, Transformer
from ihlab.model.config import GPT2
from ihlab.model.query_positions import AT_EVERY_POSITION, may_gather


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
