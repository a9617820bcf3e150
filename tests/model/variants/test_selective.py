"""Selective attention: a head that finds copies, built by hand, and what reads its activations."""

import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.interp.heads import head_scores
from ihlab.interp.patching import without_key_path
from ihlab.interp.patterns import score_bias, score_routes
from ihlab.model.decode import Decoder
from tasks import ConfigError


@pytest.fixture
def make(make):
    """Models with this attention, in float64."""
    return lambda **changes: make(**{"attention": "selective", **changes})


CASES = {
    "the paper's": {},
    "a head each": {"n_key_value_heads": 4},
    "strict, no positions": {"mask": "strict", "positional": "none"},
    "ALiBi": {"positional": "alibi"},
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@torch.no_grad()
def test_a_first_head_that_finds_copies_masks_all_but_the_last_occurrence():
    """The second head, without scores of its own, then reads the last occurrences, and the exempt key 0, evenly."""
    vocab, n_ctx = 7, 9
    cfg = ModelConfig(
        n_layers=1, d_model=vocab, n_heads=2, d_head=vocab, d_vocab=vocab, n_ctx=n_ctx, attention="selective",
        positional="none", norm="none", mlp="none", residual=False, unembedding="none",
    )  # fmt: skip
    model, eye = Transformer(cfg).double(), torch.eye(vocab, dtype=torch.float64)
    attn = model.layers[0].attn
    for weight in model.parameters():
        weight.zero_()
    model.embed.weight.copy_(eye)
    attn.q_proj.weight[:vocab] = 1e5 * eye
    attn.k_proj.weight[:vocab] = eye
    attn.v_proj.weight[vocab:] = eye
    attn.o_proj.weight[:, vocab:] = eye
    rows = torch.tensor([[0, 1, 2, 1, 3, 1, 2, 0, 4], [5, 5, 5, 6, 6, 5, 1, 1, 6]])
    _, cache = model.run_with_cache(rows)
    for row, pattern in zip(rows.tolist(), cache["pattern", 0][:, 1], strict=True):
        for t in range(n_ctx):
            read = [j == 0 or row[j] not in row[j + 1 : t] for j in range(t + 1)]
            wanted = torch.tensor(read + [False] * (n_ctx - t - 1)).double() / sum(read)
            torch.testing.assert_close(pattern[t], wanted, atol=1e-12, rtol=0)


def test_a_cache_holds_what_was_selected(make, tokens):
    """The sum over queries of the last layer's selection, whatever the chunks."""
    model = make()
    _, cache = model.run_with_cache(tokens)
    decoder = Decoder(model, 3, 12)
    for piece in tokens.split(4, dim=1):
        decoder.forward(piece)
    held = decoder.caches[1].selection
    torch.testing.assert_close(held[:, :9], cache["blocks.1.attn.hook_selection"].sum(dim=1), atol=1e-12, rtol=0)
    assert (held[:, 9:] == 0).all()


# What reads its weights and activations


@EVERY
def test_a_token_masks_earlier_ones_for_later_ones(make, case, tokens):
    model = make(**case)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        selection, masked = (cache[f"blocks.{layer}.attn.hook_{name}"] for name in ("selection", "masked"))
        for t in range(9):
            torch.testing.assert_close(masked[:, t], selection[:, :t].sum(dim=1))
        assert (selection >= 0).all()
        assert (selection.triu() == 0).all()
        assert (selection[..., 0] == 0).all()


def test_head_scores_run_and_paths_into_one_head_are_refused(make, tokens):
    """The first head's queries and keys act on every head's pattern."""
    model = make()
    assert head_scores(model, length=12, rows=2).notna().all(axis=None)
    with pytest.raises(ConfigError, match="attention='selective': its first head masks for all"):
        without_key_path(model, tokens, [], (1, 0))


def test_a_cache_of_activations_is_cut_along_queries(make, tokens):
    _, whole = make().run_with_cache(tokens)
    _, cut = make().run_with_cache(tokens, pos_slice=(2, 5))
    for name in ("selection", "masked"):
        name_of = f"blocks.0.attn.hook_{name}"
        torch.testing.assert_close(cut[name_of], whole[name_of][:, 2:5])


def test_what_makes_no_sense_of_masked_scores_is_refused(make, tokens):
    model = make()
    _, cache = model.run_with_cache(tokens)
    for measure in (score_routes, score_bias):
        with pytest.raises(ConfigError, match="'selective', whose scores are not one sum"):
            measure(cache, 0)
    attn, x = model.layers[0].attn, torch.randn(3, 9, 20, dtype=torch.float64)
    at = torch.tensor([[4], [0], [8]])
    with pytest.raises(ConfigError, match="queries of consecutive tokens only"):
        attn.read(attn.queries(x, at=at), *attn.keys_values(x), at)
