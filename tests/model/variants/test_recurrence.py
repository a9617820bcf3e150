"""Linear recurrences: how they start, what the delta rule forgets, and what reads their weights."""

import math

import pytest
import torch
from torch.nn import functional as F

from ihlab import Transformer
from ihlab.interp.circuits import qk_circuit
from ihlab.interp.heads import head_scores
from ihlab.interp.patching import without_key_path
from ihlab.interp.patterns import raw_patterns, score_routes
from tasks import ConfigError

EACH = pytest.mark.parametrize("name", ["gated_linear", "gated_delta"])


@EACH
def test_it_starts_with_write_gates_of_1_and_slow_decays(make_config, name):
    model = Transformer(make_config(attention=name))
    for block in model.layers:
        torch.testing.assert_close(
            F.softplus(block.attn.write(torch.ones(1, 1, 20))), torch.ones(1, 1, 2)
        )
        assert (
            (block.attn.log_rate > math.log(0.001)) & (block.attn.log_rate < math.log(0.1))
        ).all()
    assert not torch.equal(model.layers[0].attn.log_rate, model.layers[1].attn.log_rate)


# What the tools say of them


@EACH
@torch.no_grad()
def test_the_kernel_is_causal_and_cut_along_queries(make, tokens, name):
    kernel, cut = (
        make(attention=name).run_with_cache(tokens, pos_slice=part)[1]["blocks.1.attn.hook_kernel"]
        for part in (None, (2, 5))
    )
    assert not kernel.triu(1).any()
    torch.testing.assert_close(cut, kernel[:, :, 2:5])


@EACH
def test_what_asks_for_a_pattern_says_that_there_is_none(make, tokens, name):
    model = make(attention=name)
    _, cache = model.run_with_cache(tokens)
    for ask in (lambda: raw_patterns(cache), lambda: head_scores(model, length=12, rows=2)):
        with pytest.raises(
            ConfigError,
            match=r"lacks blocks\.0\.attn\.hook_pattern: .*A recurrence has hook_kernel",
        ):
            ask()
    with pytest.raises(ConfigError, match=f"'{name}', whose scores are not one sum"):
        score_routes(cache, 0)
    with pytest.raises(
        ConfigError, match=f"attention='{name}', a recurrence: its heads have no pattern"
    ):
        without_key_path(model, tokens, (0, 0), (1, 0))
    with pytest.raises(ConfigError, match=f"attention='{name}': a norm stands between"):
        qk_circuit(model, 0, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"positional": "alibi"},
            "positional is 'alibi'.*'gated_delta' is a recurrence.*'rope' or 'learned' or 'none'",
        ),
        ({"mask": "strict"}, "mask is 'strict'.*must be 'causal'"),
        ({"qk_norm": True}, "qk_norm is True.*must be False"),
    ],
)
def test_fields_that_say_something_of_scores_are_refused(make_config, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(attention="gated_delta", **changes)
