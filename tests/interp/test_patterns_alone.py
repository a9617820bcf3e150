"""Patterns from elsewhere: what is no pattern of a causal model is refused, and padding is left
out.
"""

import numpy as np
import pytest
import torch

from ihlab.interp import locate_induction_heads
from ihlab.interp.sources import attention_patterns
from tasks import ConfigError

TOKENS = np.tile(np.random.default_rng(0).permutation(50)[:8], 3)
N = len(TOKENS)


def perfect(tokens=TOKENS):
    """An induction head: alike on all matches, on the first token where there is none."""
    n = len(tokens)
    pattern = torch.zeros(1, 1, n, n)
    for q in range(n):
        keys = [k for k in range(1, q + 1) if tokens[k - 1] == tokens[q]] or [0]
        pattern[0, 0, q, keys] = 1 / len(keys)
    return pattern


def with_nan():
    pattern = perfect()
    pattern[0, 0, 5] = torch.nan
    return pattern


def with_a_negative_number():
    pattern = perfect()
    pattern[0, 0, 5, 1:3] += torch.tensor([-0.5, 0.5])
    return pattern


WRONG = {
    "a negative number": (with_a_negative_number, "holds negative numbers at query 5"),
    "a NaN row": (with_nan, "head 0.0 is not finite at query 5 of sequence 0: give attention_mask"),
    "scores": (lambda: torch.randn(1, 1, N, N).tril(), "does not sum to 1"),
    "[key, query]": (lambda: perfect().mT, r"must be \[query, key\]"),
    "a sum of a half": (lambda: perfect() / 2, "does not sum to 1"),
    "both directions": (lambda: torch.full((1, 1, N, N), 1 / N), "attends to later tokens"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_causal_pattern_is_refused(name):
    make, sentence = WRONG[name]
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=sentence):
        locate_induction_heads(make(), TOKENS)


def test_a_query_that_attends_to_nothing_is_taken():
    """The first token under a strict mask."""
    pattern = perfect()
    pattern[0, 0, 0] = 0
    assert locate_induction_heads(pattern, TOKENS)["induction"].item()


@pytest.mark.parametrize("at_padding", ["even", "nan", "zero"])
def test_a_padded_row_scores_what_it_scores_alone(at_padding):
    left = 10
    tokens = np.concatenate([np.zeros(left, int), TOKENS])
    fill = {"even": 1 / (N + left), "nan": torch.nan, "zero": 0.0}[at_padding]
    pattern = torch.zeros(1, 1, N + left, N + left)
    pattern[:, :, :left] = fill
    pattern[:, :, left:, left:] = perfect()
    mask = torch.cat([torch.zeros(left), torch.ones(N)])
    alone = locate_induction_heads(perfect(), TOKENS)
    padded = locate_induction_heads(pattern, tokens, attention_mask=mask)
    scores = slice("prefix_matching", "best_offset_weight")
    assert np.allclose(alone.loc[:, scores], padded.loc[:, scores])
    shown = attention_patterns(pattern, tokens, mask)[0, 0, 0]
    assert torch.equal(shown[left:, left:], perfect()[0, 0])
    assert shown[:left].abs().sum() == shown[:, :left].abs().sum() == 0
    pattern[0, 0, -1], pattern[0, 0, -1, 0], pattern[0, 0, -1, -8:] = 0, 0.5, 0.0625
    with pytest.raises(ConfigError, match="attends to padding at query 33 of sequence 0"):
        locate_induction_heads(pattern, tokens, attention_mask=mask)


IDS = torch.arange(3).repeat(2)
REFUSED = [
    ((), IDS, "holds no patterns: .*attn_implementation='eager'"),
    ([torch.rand(3, 4, 6, 6), torch.rand(3, 5, 6, 6)], IDS, "The layers' patterns have the shapes"),
    (torch.zeros(2, 4, 6, 6).long(), IDS, "The patterns are torch.int64, but must be floats"),
    (torch.rand(4, 6, 6), IDS, r"shape \[4, 6, 6\], but must be \[layer, head, query, key\]"),
    (torch.rand(2, 2, 4, 6, 6), IDS.expand(3, 6), r"need \[2, 6\]"),
    (torch.rand(0, 4, 6, 6), IDS, "they are empty"),
]


@pytest.mark.parametrize(("source", "tokens", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_patterns_and_tokens_that_do_not_fit_are_refused(source, tokens, sentence):
    with pytest.raises(ConfigError, match=sentence):
        locate_induction_heads(source, tokens)
