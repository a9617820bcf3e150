"""Routes against loops over equations 4 to 6 with a weight removed, and on the Theorem 3.3 head."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.interp.routes import Route, route_contributions, route_effects
from tasks import IGNORE, Batch
from tasks.config import ConfigError

WINDOW, HEADS, GROUPS, D_HEAD, POS = 3, 4, 2, 6, 9


def rotated(x, position, base):
    """One head's vector of every sequence, rotated by its position's angles, as complex numbers."""
    half = x.shape[-1] // 2
    angles = position / base ** (torch.arange(half) / half)
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.exp(1j * angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


def loop_z(model, cache, layer, head, alpha, beta_of_alpha):
    """Equations 4 to 6 for one head, a token at a time: sum of z over (alpha, beta) pairs.

    `beta_of_alpha` is a list of (alpha, beta): each pair's pattern reads its own weighted columns.
    """
    group = head // (HEADS // GROUPS)
    q = cache["q", layer][:, :, head]
    k = cache["k_raw", layer, "attn"][:, :, group]
    v = cache["v_raw", layer, "attn"][:, :, group]
    z = torch.zeros_like(q)
    slope = 2.0 ** (-8 * (head + 1) / HEADS)
    rope, alibi = (model.cfg.positional == name for name in ("rope", "alibi"))
    for alpha_used, beta_used in beta_of_alpha:
        keys, values = [], []
        for s in range(POS):
            key = sum(alpha_used[b] * k[:, s - b] for b in range(WINDOW) if s - b >= 0)
            keys.append(rotated(key, s, model.cfg.rotary_base) if rope else key)
            values.append(sum(beta_used[b] * v[:, s - b] for b in range(WINDOW) if s - b >= 0))
        for t in range(POS):
            query = rotated(q[:, t], t, model.cfg.rotary_base) if rope else q[:, t]
            scores = []
            for s in range(t + 1):
                bias = -slope * (t - s) if alibi else 0.0
                scores.append((query * keys[s]).sum(-1) / math.sqrt(D_HEAD) + bias)
            weights = torch.stack(scores).softmax(dim=0)
            z[:, t] += torch.einsum("sb,sbd->bd", weights, torch.stack(values[: t + 1]))
    return z


def split(route, alpha, beta):
    """The (alpha, beta) pairs whose sum a head without the route is."""
    alpha_less = alpha.clone()
    if route.key is not None:
        alpha_less[route.key] = 0
    if route.value is None:
        return [(alpha_less, beta)] if route.key is not None else []
    column, others = torch.zeros_like(beta), beta.clone()
    column[route.value] = beta[route.value]
    others[route.value] = 0
    return [(alpha, others)] + ([(alpha_less, column)] if route.key is not None else [])


@torch.no_grad()
@pytest.mark.parametrize(("positional", "layer"), [("rope", 0), ("alibi", 1)])
def test_every_route_of_every_head_is_what_loops_give(make_model, tokens, positional, layer):
    model = make_model(positional=positional)
    _, cache = model.run_with_cache(tokens)
    contributions = route_contributions(model, tokens, layer)
    assert len(contributions) == 16
    for head in range(HEADS):
        attn = model.layers[layer].attn
        alpha, beta = attn.alpha[head // 2], attn.beta[head // 2]
        for route, contribution in contributions.items():
            without = loop_z(model, cache, layer, head, alpha, split(route, alpha, beta))
            torch.testing.assert_close(
                (cache["z", layer] - contribution)[:, :, head], without, rtol=1e-5, atol=1e-6
            )  # rotary tables are float32


def test_effects_are_the_rise_of_the_loss_and_the_fall_of_accuracy(make_model, tokens):
    model, rng = make_model(), np.random.default_rng(0)
    drawn = rng.integers(0, 40, (2, 3, POS))
    targets, answers = np.where(rng.random((2, 3, POS)) < 0.5, drawn, IGNORE)
    routes = [Route(2, None), Route(0, 1)]
    table = route_effects(model, Batch(tokens.numpy(), targets, answers), routes)
    assert table["layer"].tolist() == [0] * 8 + [1] * 8
    contributions = route_contributions(model, tokens, 1, routes)

    def graded(head=None, part=None):
        def put(z, hook):
            z[:, :, head] -= part[:, :, head]
            return z

        hooks = [] if part is None else [("blocks.1.attn.hook_z", put)]
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        aims = torch.from_numpy(targets)
        loss = F.cross_entropy(logits.mT, aims, ignore_index=IGNORE)
        return loss.item(), (logits.argmax(-1).numpy() == answers)[answers != IGNORE].mean()

    loss, accuracy = graded()
    rows = table[table["layer"] == 1].itertuples()
    for head in range(HEADS):
        for names, route in (("2 before", "all"), routes[0]), (("own", "previous"), routes[1]):
            row, after = next(rows), graded(head, contributions[route])
            assert (row.head, row.key, row.value) == (head, *names)
            assert row.loss_rise == pytest.approx(after[0] - loss, abs=1e-5)
            assert row.accuracy_fall == pytest.approx(accuracy - after[1], abs=1e-12)


@torch.no_grad()
def test_together_takes_a_route_from_all_heads_of_a_layer(make_model, tokens):
    """For a key route: the model whose alpha has that column 0."""
    batch = Batch(tokens.numpy(), tokens.flip(1).numpy())
    table = route_effects(make_model(), batch, routes=[Route(1, None)], together=True)
    assert table["head"].tolist() == ["all", "all"]
    before = F.cross_entropy(make_model()(tokens).mT, tokens.flip(1))
    for layer in range(2):
        changed = make_model()
        changed.layers[layer].attn.alpha[:, 1] = 0
        after = F.cross_entropy(changed(tokens).mT, tokens.flip(1))
        assert table["loss_rise"][layer] == pytest.approx((after - before).item(), abs=1e-5)


# Bad input


def test_what_cannot_be_ablated_is_named(make_model, tokens):
    model, vanilla = make_model(), make_model(attention="vanilla")
    for route, message in (
        (Route(3, None), "key column of .* is 3, but the shift has columns 0 to 2"),
        (Route(0, -1), "value column of .* is -1, but the shift has columns 0 to 2"),
    ):
        with pytest.raises(ConfigError, match=message):
            route_contributions(model, tokens, 0, [route])
    with pytest.raises(ConfigError, match="attention is 'vanilla', which has no routes"):
        route_contributions(vanilla, tokens, 0)
    with pytest.raises(ConfigError, match="Layer 2 does not exist: the model has layers 0 to 1"):
        route_contributions(model, tokens, 2)
