"""Cuts of what one token reads, against sequences in which there is nothing else to read."""

from contextlib import ExitStack
from functools import partial

import pytest
import torch

from ihlab import ModelConfig, Transformer, suite
from ihlab.paper.studies.recurrences import DELTA_CONV, MODELS, without_convolutions, without_state

TOKENS = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(0))
TOKEN, ROWS = torch.tensor([4, 7, 2]), torch.arange(3)


def made(name):
    """Return a model without positions."""
    cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=11, n_ctx=9, positional="none", **MODELS[name])
    return Transformer(cfg)


def logits_with_cuts(model, tokens, token, routes):
    with torch.no_grad(), ExitStack() as cuts:
        for route in routes:
            layers = (range(model.cfg.n_layers),) if route is without_state else ()
            cuts.enter_context(route(model, token, *layers))
        return model(tokens)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_without_state_and_convolutions_is_a_sequence_of_its_own(name):
    model = made(name)
    cut = logits_with_cuts(model, TOKENS, TOKEN, (without_convolutions, without_state))
    with torch.no_grad():
        alone, whole = model(TOKENS[ROWS, TOKEN][:, None])[:, 0], model(TOKENS)
    torch.testing.assert_close(cut[ROWS, TOKEN], alone)
    for row, token in enumerate(TOKEN):
        torch.testing.assert_close(cut[row, :token], whole[row, :token])
        assert not torch.allclose(cut[row, token + 1 :], whole[row, token + 1 :])
    torch.testing.assert_close(logits_with_cuts(model, TOKENS, TOKEN, ()), whole)


def test_one_route_is_left_if_the_other_is_cut():
    both, *one = [
        logits_with_cuts(made(DELTA_CONV), TOKENS, TOKEN, routes)[ROWS, TOKEN]
        for routes in ((without_convolutions, without_state), (without_convolutions,), (without_state,))
    ]
    assert all(not torch.allclose(each, both) for each in one)


@torch.no_grad()
def test_of_two_tokens_seen_the_far_taps_are_cut():
    model = made(DELTA_CONV)
    whole, near = model(TOKENS), logits_with_cuts(model, TOKENS, TOKEN, (partial(without_convolutions, seen=2),))
    assert not torch.allclose(near, whole)
    for name, taps in model.named_parameters():
        if "convolution" in name:
            taps[:, 2:] = 0  # [group, tap, channel]
    whole, near = model(TOKENS), logits_with_cuts(model, TOKENS, TOKEN, (partial(without_convolutions, seen=2),))
    torch.testing.assert_close(near, whole)


def test_induction_by_hand_needs_attention_at_the_follower_only():
    """Theorem 3.2's model, whose first layer reads the token before."""
    model = suite.load("hand-set-two-layers")
    problem = suite.problem(model)
    pair, rows = problem.metric.pair, torch.arange(len(problem.clean))
    right = {
        name: (
            logits_with_cuts(model, pair.clean, token, (without_state,))[rows, pair.position].argmax(-1) == pair.answer
        )
        for name, token in {"follower": pair.earlier + 1, "before": pair.earlier}.items()
    }
    assert right["before"].all()
    assert right["follower"].float().mean() < 0.2
