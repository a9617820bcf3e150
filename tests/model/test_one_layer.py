"""Which recurrences can do induction in one layer: weights that do it exactly, and why a sum over
tokens cannot.

A row of induction ends with a token that it has once before; the answer is the token that followed
it there.
"""

import math

import pytest
import torch

from ihlab import ModelConfig, Transformer

PLAIN = {"n_layers": 1, "positional": "none", "norm": "none", "mlp": "none"}


def zeroed(**fields):
    """A one-layer model in float64 without positions, norms and MLP, whose matrices are 0."""
    model = Transformer(ModelConfig(**{**PLAIN, **fields})).double()
    with torch.no_grad():
        for weight in (
            p for name, p in model.named_parameters() if "proj" in name or "embed" in name
        ):
            weight.zero_()
        model.layers[0].attn.log_rate.fill_(-math.inf)  # no decay
        model.layers[0].attn.write.bias.fill_(math.log(math.e - 1))  # softplus of it is 1
    return model


@torch.no_grad()
@pytest.mark.parametrize("attention", ["gated_linear", "gated_delta"])
def test_with_a_convolution_of_keys_a_recurrence_does_it_exactly(attention):
    """The key is the token before, the value this token: S maps each token to those that followed
    it.

    The sum counts all followers. The delta rule with b = 1 keeps the last one.
    """
    vocab, n_pos = 16, 40
    fields = {
        "d_model": vocab,
        "n_heads": 1,
        "d_vocab": vocab,
        "n_ctx": n_pos,
        "residual": False,
        "unembedding": "none",
    }
    model, eye = (
        zeroed(attention=attention, canon="B", **fields),
        torch.eye(vocab, dtype=torch.float64),
    )
    attn = model.layers[0].attn
    model.embed.weight.copy_(eye)
    for part in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj):
        part.weight.copy_(eye)
    for convolution in attn.convolution.values():
        convolution.weight.zero_()
    attn.convolution["key"].weight[:, 0], attn.convolution["key"].weight[:, 1] = -1, 1
    if attention == "gated_delta":
        attn.erase.bias.fill_(50)
    rows = torch.randint(vocab, (20, n_pos))
    for row, logits in zip(rows.tolist(), model(rows), strict=True):
        for t in range(n_pos):
            followers = [row[s + 1] for s in range(t) if row[s] == row[t]]
            kept = followers[-1:] if attention == "gated_delta" else followers
            wanted = torch.bincount(torch.tensor(kept, dtype=torch.int64), minlength=vocab).double()
            torch.testing.assert_close(logits[t], wanted, atol=1e-12, rtol=0)


FOUR = torch.tensor([[0, 1, 2, 3, 0], [2, 3, 0, 1, 0], [2, 1, 0, 3, 0], [0, 3, 2, 1, 0]])
"""Rows over the tokens a, b, c, e = 0, 1, 2, 3. The answer is b in the first two, and e in the
others.
"""


def margins(model):
    """Return the logit of b less that of e at the ends of the four rows."""
    logits = model(FOUR)[:, -1]
    return logits[:, 1] - logits[:, 3]


@pytest.mark.parametrize("positional", ["none", "rope"])
@torch.no_grad()
def test_a_sum_over_tokens_cannot_do_it(positional):
    """With gates that are the same for all tokens, no weights do it, whatever the code of
    positions.

    The logits at the end are then a sum over the tokens before it, of a function of the token, of
    its place and of the last token. At every place, the first two of the four rows have together
    the tokens of the last two. So the sums of their margins are equal. But the first two margins
    should be positive, and the last two negative.

    This is for a layer without an MLP behind it: an MLP sees the sum of all tokens at once.
    """
    assert all(
        torch.equal(FOUR[:2, place].sort().values, FOUR[2:, place].sort().values)
        for place in range(5)
    )
    for seed in range(5):
        fields = {"d_model": 8, "n_heads": 2, "d_vocab": 4, "n_ctx": 5, "attention": "gated_linear"}
        cfg = ModelConfig(**{**PLAIN, **fields, "positional": positional})
        right = margins(Transformer(cfg, seed=seed).double())
        torch.testing.assert_close(right[:2].sum(), right[2:].sum(), atol=1e-12, rtol=0)
        assert (right[:2].min() > 0) + (right[2:].max() < 0) < 2
