"""Forgetting attention and output gates: how they start, and what a closed gate forgets."""

import pytest
import torch

from ihlab import Transformer
from ihlab.interp.patterns import score_routes
from tasks import ConfigError


@pytest.mark.parametrize("name", ["forgetting", "output_gate"])
def test_its_gates_start_alike_for_all_tokens(make_config, name):
    own = dict(Transformer(make_config(attention=name)).named_parameters())
    gates = [
        weight for shared, weight in own.items() if ".forget." in shared or ".out_gate." in shared
    ]
    assert len(gates) == 4
    assert not any(weight.any() for weight in gates)


def test_a_gate_of_0_forgets_all_before(make, tokens):
    """Logits of one layer then do not depend on tokens before it."""
    model, changed = make(attention="forgetting", n_layers=1), tokens.clone()
    changed[:, :5] = (changed[:, :5] + 1) % 19

    def closed(gate, hook):
        gate[:, 5] = -1e9
        return gate

    one, other = (
        model.run_with_hooks(each, fwd_hooks=[("blocks.0.attn.hook_log_forget", closed)])
        for each in (tokens, changed)
    )
    torch.testing.assert_close(one[:, 5:], other[:, 5:], atol=1e-6, rtol=0)
    assert (one[:, :5] - other[:, :5]).abs().max() > 1e-3


def test_gated_scores_are_no_sum_over_routes(make, tokens):
    _, cache = make(attention="forgetting").run_with_cache(tokens)
    with pytest.raises(ConfigError, match="'forgetting', whose scores are not one sum"):
        score_routes(cache, 0)
