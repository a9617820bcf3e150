"""Fusion or decoupling: what the two layers read, and verdicts on made-up tables."""

import numpy as np
import pytest
import torch

from ihlab.model.transformer import Transformer
from ihlab.paper.studies.fusion import ADDED, APART, CONCATENATED, FUSED, FUSION, GIVEN, NARROW, NOTHING, config
from ihlab.training.clamp_hooks import impose, install
from tests.paper.studies.made_up import table, verdicts


def activations(given):
    """A model with what is given, and its activations."""
    run = config({"given": given, "setting": NARROW}, "laptop")
    model, tokens = Transformer(run.model, seed=3), run.task.batch(4, np.random.default_rng(0)).inputs
    impose(model, {}, run.clamped)
    install(model, run.clamped)
    return model, model.run_with_cache(torch.as_tensor(tokens))[1]


@pytest.mark.parametrize("given", [APART, CONCATENATED, ADDED])
def test_only_keys_of_layer_1_hold_other_tokens(given):
    model, cache = activations(given)
    assert not cache["blocks.0.hook_attn_out"].any()
    attention, x = model.blocks[1].attn, cache["blocks.1.ln1.hook_normalized"]
    own, key = attention.k_proj(x)[:, 1:], cache["blocks.1.attn.hook_k"][:, 1:, 0]
    previous = attention.k_proj(x)[:, :-1]
    torch.testing.assert_close(cache["blocks.1.attn.hook_v"][:, :, 0], attention.v_proj(x))
    if given == CONCATENATED:
        assert torch.stack([key == own, key == previous]).float().mean(dim=(1, 2, 3)).tolist() == [0.5, 0.5]
    else:
        torch.testing.assert_close(key, previous if given == APART else (own + previous) / 2**0.5)


def test_the_given_head_attends_to_the_previous_token():
    pattern = activations(FUSED)[1]["blocks.0.attn.hook_pattern"][0, 0]
    assert torch.equal(pattern[1:].argmax(dim=1), torch.arange(len(pattern) - 1))


def test_all_have_the_same_parameters_except_clamped_ones():
    sizes = {given: sum(p.numel() for p in activations(given)[0].parameters()) for given in GIVEN}
    assert {given: size - sizes[NOTHING] for given, size in sizes.items() if size != sizes[NOTHING]} == {
        APART: 4,
        ADDED: 4,
    }


def judge(nothing, fused, apart, concatenated, added):
    """The verdict of each question, the same in all settings."""
    steps = dict(zip(GIVEN, (nothing, fused, apart, concatenated, added), strict=True))
    found = verdicts(FUSION, table(FUSION, lambda cell: {"steps_to_90": steps[cell["given"]], "best": 0.95}))
    names = dict.fromkeys(each.partition(".")[0] for each in found)
    each = [{found[id] for id in found if id.startswith(name)} for name in names]
    assert len(found) == 10
    assert all(len(verdict) == 1 for verdict in each)
    return [verdict.pop() for verdict in each]


def test_verdicts_can_come_out_either_way():
    assert judge(300, 250, 60, 200, 900) == ["holds"] * 4
    assert judge(300, 100, 90, 95, 110) == ["fails"] * 4
    assert judge(300, 150, 75, 150, 300) == ["undecided"] * 4
    assert judge(np.inf, 100, 90, 95, np.inf) == ["fails", "fails", "fails", "holds"]
