"""Selective attention against a loop over tokens, and against the vanilla attention that it reduces to."""

import math

import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.interp.heads import head_scores
from ihlab.interp.patching import without_key_path
from ihlab.interp.patterns import effective_patterns, score_bias, score_routes
from ihlab.model.decode import Decoder
from ihlab.model.positions import Rotary
from tasks import ConfigError

CASES = {
    "the paper's": {},
    "a head each": {"n_key_value_heads": 4},
    "strict, no positions": {"mask": "strict", "positional": "none"},
    "ALiBi": {"positional": "alibi"},
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture
def make(make_model):
    """Models in float64."""
    return lambda **changes: make_model(**{"attention": "selective", **changes}).double()


def by_loop(attn, cfg, x):
    """Attention of one layer by the equations of the module: x [pos, d_model] to [pos, d_model]."""
    d, group, n = cfg.head_width, cfg.n_heads // cfg.kv_heads, len(x)
    turn = Rotary(d, cfg.n_ctx, cfg.rotary_base).double() if cfg.positional == "rope" else None

    def rotated(vector, t):
        return vector if turn is None else turn(vector[None, None, None], slice(t, t + 1))[0, 0, 0]

    def score(h, t, s):
        slope = 2.0 ** (-8 * (h + 1) / 4) if cfg.positional == "alibi" else 0.0
        q, k = rotated(x[t] @ attn.W_Q[h], t), rotated(x[s] @ attn.W_K[h // group], s)
        return q @ k / math.sqrt(d) - slope * (t - s)

    out = torch.zeros(n, cfg.d_model, dtype=x.dtype)
    for h in range(cfg.n_heads):
        values = x @ attn.W_V[h // group]
        for t in range(n):
            seen = range(t if cfg.mask == "strict" else t + 1)
            if not seen:
                continue
            masked = [sum(max(score(0, i, j).item(), 0) for i in range(j + 1, t)) if j else 0 for j in seen]
            scores = torch.stack([score(h, t, s) - masked[s] for s in seen])
            z = sum(share * values[s] for share, s in zip(scores.softmax(dim=0), seen, strict=True))
            out[t] += z @ attn.W_O[h]
    return out


@EVERY
@torch.no_grad()
def test_a_layer_equals_a_loop_over_tokens(make, case):
    model = make(**case)
    x = torch.randn(2, 7, 20, dtype=torch.float64)
    for block in model.layers:
        wanted = torch.stack([by_loop(block.attn, model.cfg, row) for row in x])
        torch.testing.assert_close(block.attn(x), wanted, atol=1e-12, rtol=1e-10)


def test_it_has_the_parameters_of_vanilla_attention_and_starts_as_it_does(make_config):
    selective, vanilla = (Transformer(make_config(attention=name)) for name in ("selective", "vanilla"))
    assert selective.state_dict().keys() == vanilla.state_dict().keys()
    for name, weight in vanilla.state_dict().items():
        assert torch.equal(selective.state_dict()[name], weight)


def test_where_nothing_is_selected_it_is_vanilla_attention(make, tokens):
    model, vanilla = make(), make(attention="vanilla")
    nothing = [(lambda name: name.endswith("hook_selection"), lambda x, hook: torch.zeros_like(x))]
    assert (model(tokens) - vanilla(tokens)).abs().max() > 1e-3
    torch.testing.assert_close(model.run_with_hooks(tokens, fwd_hooks=nothing), vanilla(tokens), atol=1e-12, rtol=0)


@torch.no_grad()
def test_where_the_first_heads_scores_are_never_positive_it_is_vanilla_attention(make, tokens):
    model, vanilla = (make(attention=name, bias=True, positional="none") for name in ("selective", "vanilla"))
    for each in (model, vanilla):
        for block in each.layers:
            block.attn.W_Q[0] = 0
            block.attn.b_Q[0] = 1
            block.attn.W_K[0] = 0
            block.attn.b_K[0] = -1
    torch.testing.assert_close(model(tokens), vanilla(tokens), atol=1e-12, rtol=0)


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
def test_the_pattern_is_that_of_the_masked_scores_and_what_values_are_read_by(make, case, tokens):
    model = make(**case)
    _, cache = model.run_with_cache(tokens)
    for layer, pattern in enumerate(effective_patterns(cache)):
        selection, masked = (cache[f"blocks.{layer}.attn.hook_{name}"] for name in ("selection", "masked"))
        for t in range(9):
            torch.testing.assert_close(masked[:, t], selection[:, :t].sum(dim=1))
        assert (selection >= 0).all()
        assert (selection.triu() == 0).all()
        assert (selection[..., 0] == 0).all()
        v = cache["v", layer].repeat_interleave(4 // model.cfg.kv_heads, dim=2)
        torch.testing.assert_close(torch.einsum("bhqk,bkhd->bqhd", pattern, v), cache["z", layer])
        if model.cfg.mask == "causal":
            torch.testing.assert_close(cache["attn_scores", layer].softmax(dim=-1), pattern)


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
