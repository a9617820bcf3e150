"""Clamps in a model: the forward reads them, no gradient passes, and moments are forgotten."""

import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.training.clamp import Clamp
from ihlab.training.clamp_hooks import impose, install

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


def by_hand(name: str, strict: bool = False) -> list[list[float]]:
    """A named pattern, entry by entry."""
    rows = []
    for query in range(N_POS):
        seen = range(query if strict else query + 1)
        if name == "zero":
            chosen = []
        elif name == "uniform":
            chosen = list(seen)
        else:
            chosen = [query - 1] if query > 0 else list(seen)
        rows.append([1 / len(chosen) if key in chosen else 0.0 for key in range(N_POS)])
    return rows


@pytest.mark.parametrize("mask", ["causal", "strict"])
@pytest.mark.parametrize("name", ["previous", "uniform", "zero"])
def test_a_clamped_head_has_the_pattern_and_its_neighbours_keep_theirs(name, mask):
    cfg = GROUPED.replace(mask=mask)
    plain, clamped = Transformer(cfg), Transformer(cfg)
    install(clamped, [Clamp(what="pattern", layer=0, head=2, value=name)])
    before = plain.run_with_cache(TOKENS)[1]["pattern", 0]
    after = clamped.run_with_cache(TOKENS)[1]["pattern", 0]
    expected = torch.tensor(by_hand(name, strict=mask == "strict"))
    torch.testing.assert_close(after[:, 2], expected.expand(3, -1, -1))
    assert torch.equal(after[:, [0, 1, 3]], before[:, [0, 1, 3]])


@pytest.mark.parametrize(("what", "other"), [("alpha", "beta"), ("beta", "alpha")])
@pytest.mark.parametrize(("head", "column"), [(None, None), (1, None), (None, 1), (0, 1)])
def test_a_held_entry_is_read_unchanged_and_only_its_gradient_is_gone(what, other, head, column):
    free, held = Transformer(GROUPED), Transformer(GROUPED)
    install(held, [Clamp(what=what, layer=1, head=head, column=column)])
    assert torch.equal(free(TOKENS), held(TOKENS))
    gradients = []
    for model in (free, held):
        model(TOKENS).square().sum().backward()
        attention = model.layers[1].attn
        gradients.append([getattr(attention, name).grad for name in (what, other)])
    (theirs, unclamped), (ours, same) = gradients
    assert torch.equal(unclamped, same)
    assert (theirs != 0).all()
    expected = theirs.clone()
    expected[head if head is not None else slice(None), slice(None) if column is None else 1] = 0
    assert torch.equal(ours, expected)


def test_values_are_written_and_moments_forgotten_in_order():
    model = Transformer(GROUPED)
    before, name = model.layers[0].attn.alpha.tolist(), "blocks.0.attn.key_shift.weight"
    moments, others = (f"exp_avg/{name}", f"exp_avg_sq/{name}"), ("exp_avg/embed.weight", "step")
    state = {key: torch.ones(2, 2) for key in (*moments, *others)}
    clamps = [
        Clamp(what="alpha", layer=0, column=1, value=-1),
        Clamp(what="alpha", layer=0, head=1, column=1, value=0.5),  # the later one holds
        Clamp(what="alpha", layer=0, head=0, column=0),  # as it is
        Clamp(what="pattern", layer=0, value="zero"),  # nothing to write
    ]
    impose(model, state, clamps)
    assert model.layers[0].attn.alpha.tolist() == [[before[0][0], -1.0], [before[1][0], 0.5]]
    assert all(state[key].tolist() == [[0.0, 0.0], [1.0, 0.0]] for key in moments)
    assert all((state[key] == 1).all() for key in others)


def test_clamps_stay_through_resets_and_go_when_asked():
    model, plain = Transformer(GROUPED), Transformer(GROUPED)
    install(model, [Clamp(what="pattern", layer=0, value="zero")])
    model.reset_hooks()
    assert not torch.equal(model(TOKENS), plain(TOKENS))
    model.reset_hooks(including_permanent=True)
    assert torch.equal(model(TOKENS), plain(TOKENS))
