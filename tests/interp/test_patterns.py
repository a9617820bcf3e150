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


def test_effective_patterns_read_raw_values_as_the_model_reads_mixed_ones(make_model, tokens):
    _, cache = make_model().run_with_cache(tokens)
    raw, effective = raw_patterns(cache), effective_patterns(cache)
    for layer in range(2):
        assert torch.equal(raw[layer], cache["pattern", layer])
        read = torch.einsum(
            "bhqk,bkhd->bqhd",
            effective[layer],
            cache["v_raw", layer, "attn"].repeat_interleave(2, dim=2),
        )
        torch.testing.assert_close(read, cache["z", layer])


@pytest.mark.parametrize(("window", "positional"), [(2, "rope"), (3, "alibi"), (4, "none")])
def test_each_score_route_is_what_is_left_when_the_others_are_off(
    make_model, tokens, window, positional
):
    """The model itself, with one column of alpha kept."""
    model = make_model(shift_window=window, positional=positional)
    _, cache = model.run_with_cache(tokens)
    bias = model.layers[1].attn.score_bias(cache["k", 1], slice(0, 9))[0]
    for column, route in enumerate(score_routes(cache, 1)):

        def keep(alpha, hook, column=column):
            return alpha * (torch.arange(window) == column)

        with model.hooks(fwd_hooks=[("blocks.1.attn.hook_alpha", keep)]):
            _, alone = model.run_with_cache(tokens)
        torch.testing.assert_close(route + bias, alone["attn_scores", 1], rtol=0, atol=1e-6)


def test_the_fixed_gauge_does_not_depend_on_the_gauge():
    beta = torch.tensor([[1.0, -3.0], [0.5, 0.25], [0.0, 0.0]])
    expected = torch.tensor([[-0.25, 0.75], [2 / 3, 1 / 3], [0.0, 0.0]])
    for c in (1.0, -1.0, 7.5, -0.01):
        torch.testing.assert_close(gauge_fixed(c * beta), expected)


@pytest.mark.parametrize(
    ("pattern", "beta", "message"),
    [
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
