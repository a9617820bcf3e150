"""Effective attention and the keys' routes, against the values and scores that the model itself
computed.
"""

import pytest
import torch

from ihlab.interp.patterns import (
    effective_pattern,
    effective_patterns,
    gauge_fixed,
    raw_patterns,
    score_routes,
)
from tasks import ConfigError


def test_effective_pattern_is_the_sum_written_out():
    pattern, beta = torch.rand(4, 5, 5).tril().double(), torch.randn(2, 3).double()
    effective = effective_pattern(pattern, beta)
    for head in range(4):
        for q in range(5):
            for j in range(5):
                expected = sum(
                    beta[head // 2, b] * pattern[head, q, j + b] for b in range(3) if j + b < 5
                )
                torch.testing.assert_close(
                    effective[head, q, j], torch.as_tensor(expected).double()
                )


def test_readers_stack_all_layers(make_model, tokens):
    _, cache = make_model().run_with_cache(tokens)
    raw, effective = raw_patterns(cache), effective_patterns(cache)
    assert raw.shape == effective.shape == (2, 3, 4, 9, 9)
    for layer in range(2):
        assert torch.equal(raw[layer], cache["pattern", layer])
        assert torch.equal(
            effective[layer], effective_pattern(raw[layer], cache["beta", layer, "attn"])
        )


def score_bias(model, cache, layer):
    return model.layers[layer].attn.score_bias(cache["k", layer], slice(0, 9))[0]


@pytest.mark.parametrize(("window", "positional"), [(2, "rope"), (3, "alibi"), (4, "none")])
def test_score_routes_and_bias_sum_to_the_scores(make_model, tokens, window, positional):
    model = make_model(shift_window=window, positional=positional)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        routes = score_routes(cache, layer)
        assert routes.shape == (window, 3, 4, 9, 9)
        scores = routes.sum(dim=0) + score_bias(model, cache, layer)
        torch.testing.assert_close(scores, cache["attn_scores", layer], rtol=0, atol=1e-6)


def test_each_score_route_is_what_is_left_when_the_others_are_off(make_model, tokens):
    """The model itself, with one column of alpha kept."""
    model = make_model()
    _, cache = model.run_with_cache(tokens)
    for column in range(3):

        def keep(alpha, hook, column=column):
            return alpha * (torch.arange(3) == column)

        with model.hooks(fwd_hooks=[("blocks.0.attn.hook_alpha", keep)]):
            _, alone = model.run_with_cache(tokens)
        route = score_routes(cache, 0)[column] + score_bias(model, cache, 0)
        torch.testing.assert_close(route, alone["attn_scores", 0])


def test_the_fixed_gauge_does_not_depend_on_the_gauge():
    beta = torch.tensor([[1.0, -3.0], [0.5, 0.25], [0.0, 0.0]])
    expected = torch.tensor([[-0.25, 0.75], [2 / 3, 1 / 3], [0.0, 0.0]])
    for c in (1.0, -1.0, 7.5, -0.01):
        torch.testing.assert_close(gauge_fixed(c * beta), expected)


@pytest.mark.parametrize(
    ("pattern", "beta", "message"),
    [
        (
            torch.rand(5, 5),
            torch.rand(1, 2),
            r"shape \[5, 5\], but must be \[\.\.\., head, query, key\]",
        ),
        (torch.rand(4, 5, 5), torch.rand(2), r"beta has the shape \[2\]"),
        (torch.rand(4, 5, 5), torch.rand(3, 2), "4 heads, which beta's 3"),
    ],
)
def test_wrong_ranks_are_refused(pattern, beta, message):
    with pytest.raises(ConfigError, match=message):
        effective_pattern(pattern, beta)


def test_a_cache_that_lacks_something_is_refused(make_model, tokens):
    model = make_model()
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_z"))
    for read in (raw_patterns, effective_patterns):
        with pytest.raises(ConfigError, match=r"lacks blocks\.0\.attn\.hook_pattern"):
            read(cache)
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    with pytest.raises(ConfigError, match=r"lacks blocks\.0\.attn\.hook_beta"):
        effective_patterns(cache)
    with pytest.raises(ConfigError, match=r"lacks blocks\.0\.attn\.hook_rot_q"):
        score_routes(cache, 0)


def test_scores_need_the_batch_axis_and_whole_rows(make_model, tokens):
    """Of positions 2 to 6 it cannot be told that they are 2 to 6: keys would be rotated as if at 0
    to 4.
    """
    _, cache = make_model().run_with_cache(tokens[:1], remove_batch_dim=True)
    with pytest.raises(ConfigError, match=r"must be \[batch, pos, head, d_head\]"):
        score_routes(cache, 0)
    _, cache = make_model().run_with_cache(tokens, pos_slice=(2, 7))
    with pytest.raises(ConfigError, match=r"holds 5 of the 9 positions, but must hold all"):
        score_routes(cache, 0)
