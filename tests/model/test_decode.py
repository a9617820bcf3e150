"""Decoding with a cache against the full forward, a loop of full forwards and Hugging Face's Llama."""

import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.decode import Decoder, generate
from ihlab.model.transformer import Transformer
from tasks import ConfigError


@torch.no_grad()
def greedy_by_full_forwards(model, tokens, max_new_tokens):
    """The rule itself: the whole row is read again for each token."""
    for _ in range(max_new_tokens):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(dim=-1)], dim=1)
    return tokens


# Parity with the full forward


@pytest.mark.parametrize("kind", [{"attention": "kv_shift", "shift_window": 5, "mask": "strict"}])
def test_hook_points_hold_the_part_of_the_full_forward_that_the_chunk_is(make_model, tokens, kind):
    """All of them: their positions are the chunk's, and the keys of scores and pattern those up to
    the chunk's end.
    """
    model = make_model(**kind)
    _, whole = model.run_with_cache(tokens)
    decoder, seen = Decoder(model, 3, 9), {}
    with model.hooks(
        fwd_hooks=[(name, lambda x, hook: seen.update({hook.name: x})) for name in model.hook_dict]
    ):
        start = 0
        for size in (4, 1, 1, 3):
            seen.clear()
            end = start + size
            decoder.forward(tokens[:, start:end])
            assert seen.keys() == whole.keys()
            for name, x in seen.items():
                expected = whole[name]
                if name.endswith(("scores", "pattern")):
                    expected = expected[:, :, start:end, :end]
                elif not name.endswith(("alpha", "beta")):
                    expected = expected[:, start:end]
                torch.testing.assert_close(x, expected, rtol=1e-5, atol=1e-5, msg=name)
            start = end


# Generating


def test_the_prompt_is_read_once_and_then_one_token_at_a_time(make_model, tokens):
    model, seen = make_model(), []
    with model.hooks(
        fwd_hooks=[("hook_embed", lambda x, hook: seen.append((x.shape[1], x.is_inference())))]
    ):
        model.generate(tokens, 3)
    assert seen == [(9, True), (1, True), (1, True)]


# Stopping


@pytest.fixture
def counting():
    """A model that continues t with t + 1, by hand: no layer writes anything, the unembedding
    predicts t + 1.
    """
    cfg = ModelConfig(
        n_layers=1, d_model=19, n_heads=1, d_head=2, d_vocab=19, n_ctx=12, norm="none", mlp="none"
    )
    model = Transformer(cfg)
    with torch.no_grad():
        model.blocks[0].attn.o_proj.weight.zero_()
        model.embed.weight.copy_(torch.eye(19))
        model.unembed.weight.copy_(torch.eye(19).roll(1, dims=0))
    return model


def rows(*texts):
    return torch.tensor([[int(t) for t in text.split()] for text in texts])


STOPS = {
    "rows that have stopped repeat the stop": ({"stop": 6}, ["3 4 5 6 6", "1 2 3 4 5"]),
    "or are padded": ({"stop": 6, "pad": 0}, ["3 4 5 6 0", "1 2 3 4 5"]),
    "tokens end when all rows have stopped": ({"stop": 4, "pad": 0}, ["3 4 0 0", "1 2 3 4"]),
    "a stop in the prompt does not count": ({"stop": 3}, ["3 4 5 6 7", "1 2 3 3 3"]),
}


@pytest.mark.parametrize(("given_stop", "expected"), STOPS.values(), ids=STOPS)
def test_stopping(counting, given_stop, expected):
    assert torch.equal(counting.generate(rows("3", "1"), 4, **given_stop), rows(*expected))


# Modes


def test_dropout_is_off_while_generating_and_modes_are_kept(make_model, tokens):
    model = make_model(dropout=0.5).train()
    model.blocks[1].eval()
    before = {name: module.training for name, module in model.named_modules()}
    made = model.generate(tokens, 3)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert torch.equal(made, greedy_by_full_forwards(model.eval(), tokens, 3))


# Refusals

REFUSED_PROMPTS = {
    "context full": (
        {"max_new_tokens": 4},
        r"9 tokens and max_new_tokens is 4, together 13, .* n_ctx is 12",
    ),
    "pad": (
        {"max_new_tokens": 1, "stop": 1, "pad": -1},
        "pad is -1, but must be a token id from 0 to 18",
    ),
    "pad alone": ({"max_new_tokens": 1, "pad": 1}, "pad is 1, but without stop"),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED_PROMPTS.values(), ids=REFUSED_PROMPTS)
def test_what_generate_refuses(make_model, tokens, arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        generate(make_model(), tokens, **arguments)


@pytest.mark.parametrize("bad", [-1, 19])
def test_ids_outside_the_vocabulary_are_refused(make_model, tokens, bad):
    tokens = tokens.clone()
    tokens[1, 2] = bad
    sentence = f"Token id {bad} is outside the vocabulary"
    with pytest.raises(ConfigError, match=sentence):
        make_model().generate(tokens, 2)
    with pytest.raises(ConfigError, match=sentence):
        Decoder(make_model(), 3, 9).forward(tokens)


def test_chunks_that_do_not_fit_are_refused(make_model, tokens):
    with pytest.raises(ConfigError, match=r"capacity is 13, but must be from 1 to .* n_ctx, 12"):
        Decoder(make_model(), 3, 13)
    decoder = Decoder(make_model(), 3, 5)
    with pytest.raises(ConfigError, match=r"\[2, 4\], but must be 3 sequences"):
        decoder.forward(tokens[:2, :4])
    decoder.forward(tokens[:, :4])
    with pytest.raises(
        ConfigError, match="has 2 tokens per sequence, but the decoder has room for 1 more"
    ):
        decoder.forward(tokens[:, 4:6])
    decoder.forward(tokens[:, 4:5])


def test_sampling_follows_the_softmax_of_the_logits_over_the_temperature(make_model):
    model = make_model()
    prompt = torch.tensor([[3, 1, 4]]).expand(8000, 3)
    drawn = model.generate(prompt, 1, temperature=0.2, generator=torch.Generator().manual_seed(0))[
        :, 3
    ]
    expected = (model(prompt[:1])[0, -1] / 0.2).softmax(dim=-1)
    found = torch.bincount(drawn, minlength=len(expected)) / len(drawn)
    assert (found - expected).abs().max() < 5 * (0.25 / len(drawn)) ** 0.5  # five standard errors


def test_sampling_at_almost_no_temperature_is_greedy(make_model):
    model, tokens = make_model(), torch.tensor([[3, 1, 4], [1, 5, 9]])
    assert torch.equal(model.generate(tokens, 5, temperature=1e-6), model.generate(tokens, 5))
    with pytest.raises(ConfigError, match=r"temperature is -1, but must be 0 \(greedy\) or above"):
        model.generate(tokens, 1, temperature=-1)
