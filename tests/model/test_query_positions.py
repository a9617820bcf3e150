"""Which hooks turn off gathering: a hook sees the same, gathered or not (`test_contracts.py`)."""

from transformer_lens.hook_points import HookPoint

from ihlab.model.query_positions import AT_EVERY_POSITION, may_gather


def test_queries_are_gathered_only_where_every_hook_sees_the_same(make_model):
    """Also at a point that nobody thought of, which is on no list."""
    model = make_model(attention="kv_shift")
    model.blocks[-1].attn.hook_new = HookPoint()
    model.setup()
    assert may_gather(model)
    for name in model.hook_dict:
        with model.hooks(fwd_hooks=[(name, lambda x, hook: None)]):
            last = name.removeprefix("blocks.1.")
            assert may_gather(model) == (
                name.startswith(("hook_embed", "blocks.0.")) or last in AT_EVERY_POSITION
            ), name
