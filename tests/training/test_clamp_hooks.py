"""Clamps in a model: the forward reads them, no gradient passes, and moments are forgotten."""

import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.training.clamp import Clamp
from ihlab.training.clamp_hooks import impose, install
from tasks import ConfigError

N_POS = 7
GROUPED = ModelConfig(
    n_layers=2,
    d_model=8,
    n_heads=4,
    n_key_value_heads=2,
    d_vocab=11,
    n_ctx=N_POS,
    attention="kv_shift",
)
TOKENS = torch.randint(11, (3, N_POS), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["previous", "uniform", "zero", "last"])
def test_a_clamped_head_has_the_pattern_and_its_neighbours_keep_theirs(name, strict):
    cfg = GROUPED.replace(mask="strict" if strict else "causal")
    plain, clamped = Transformer(cfg), Transformer(cfg)
    install(clamped, [Clamp(what="pattern", layer=0, head=2, value=name)])
    clamped.reset_hooks()  # of others
    before = plain.run_with_cache(TOKENS)[1]["pattern", 0]
    after = clamped.run_with_cache(TOKENS)[1]["pattern", 0]
    assert torch.equal(after[:, [0, 1, 3]], before[:, [0, 1, 3]])
    for query in range(N_POS):
        seen = range(query if strict else query + 1)
        row = torch.zeros(3, N_POS)
        if name == "uniform" and seen:
            row[:, seen] = 1 / len(seen)
        elif name == "previous" and seen:
            row[:, max(query - 1, 0)] = 1
        elif name == "last" and query == N_POS - 1:
            row = before[:, 2, -1]
        torch.testing.assert_close(after[:, 2, query], row)


def test_a_clamped_pattern_leaves_queries_and_keys_of_its_head_without_gradient():
    model = Transformer(GROUPED)
    install(model, [Clamp(what="pattern", layer=0, head=head, value="uniform") for head in (2, 3)])
    model(TOKENS).square().sum().backward()
    attention, d_head = model.layers[0].attn, 2
    queries = attention.q_proj.weight.grad.unflatten(0, (4, d_head))
    keys = attention.k_proj.weight.grad.unflatten(0, (2, d_head))  # heads 2 and 3 share keys 1
    assert torch.equal(queries[2:], torch.zeros_like(queries[2:]))
    assert torch.equal(keys[1], torch.zeros_like(keys[1]))
    assert torch.equal(attention.alpha.grad[1], torch.zeros(2))
    assert (queries[:2] != 0).all()
    assert (keys[0] != 0).all()
    assert (attention.beta.grad != 0).all()


@pytest.mark.parametrize("what", ["alpha", "beta"])
@pytest.mark.parametrize(("head", "column"), [(1, None), (None, 1)])
def test_a_held_entry_is_read_unchanged_and_only_its_gradient_is_gone(what, head, column):
    free, held = Transformer(GROUPED), Transformer(GROUPED)
    install(held, [Clamp(what=what, layer=1, head=head, column=column)])
    assert torch.equal(free(TOKENS), held(TOKENS))
    for model in (free, held):
        model(TOKENS).square().sum().backward()
    theirs, ours = getattr(free.layers[1].attn, what).grad, getattr(held.layers[1].attn, what).grad
    for row in range(2):
        for place in range(2):
            clamped = head in (None, row) and column in (None, place)
            assert theirs[row, place] != 0
            assert ours[row, place] == (0 if clamped else theirs[row, place])


def test_values_are_written_and_moments_forgotten_in_order():
    model = Transformer(GROUPED)
    before = model.layers[0].attn.alpha.tolist()
    names = [
        name for name, weight in model.named_parameters() if weight is model.layers[0].attn.alpha
    ]
    state = {f"{moment}/{names[0]}": torch.ones(2, 2) for moment in ("exp_avg", "exp_avg_sq")}
    state |= {f"step/{names[0]}": torch.tensor(7.0), "exp_avg/embed.weight": torch.ones(11, 8)}
    clamps = [
        Clamp(what="alpha", layer=0, column=1, value=-1),
        Clamp(what="alpha", layer=0, head=1, column=1, value=0.5),  # the later one holds
        Clamp(what="alpha", layer=0, head=0, column=0),  # as it is
        Clamp(what="pattern", layer=0, value="zero"),  # nothing to write
    ]
    impose(model, state, clamps)
    assert model.layers[0].attn.alpha.tolist() == [[before[0][0], -1.0], [before[1][0], 0.5]]
    for moment in ("exp_avg", "exp_avg_sq"):
        assert state[f"{moment}/{names[0]}"].tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert state[f"step/{names[0]}"] == 7
    assert (state["exp_avg/embed.weight"] == 1).all()


def test_a_clamped_pattern_of_packed_documents_is_refused():
    """It would attend from one document to another."""
    model = Transformer(GROUPED)
    starts = torch.zeros(3, N_POS, dtype=torch.bool)
    starts[:, [0, 4]] = True
    model.run_with_cache(TOKENS, document_starts=starts)
    install(model, [Clamp(what="pattern", layer=0, value="uniform")])
    with pytest.raises(ConfigError, match="a clamped pattern cannot"):
        model(TOKENS, document_starts=starts)


def test_a_head_clamped_up_to_the_last_token_is_not_decoded():
    """Each token is the last one when it is read: later layers would keep what it alone may see."""
    model = Transformer(GROUPED)
    install(model, [Clamp(what="pattern", layer=0, value="last")])
    with pytest.raises(ConfigError, match="is not decoded: read whole sequences"):
        model.generate(TOKENS[:, :4], max_new_tokens=2)
