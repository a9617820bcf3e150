"""Routes against loops over equations 4 to 6 with a weight removed, and on the Theorem 3.3 head."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.interp.routes import Route, route_contributions, route_effects
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks import IGNORE, Batch
from tasks.config import ConfigError

WINDOW, HEADS, GROUPS, D_HEAD, POS = 3, 4, 2, 6, 7


def random_model(positional="rope", **changes):
    fields = {
        "n_layers": 2,
        "d_model": 20,
        "n_heads": HEADS,
        "n_key_value_heads": GROUPS,
        "d_head": D_HEAD,
    }
    fields |= {
        "d_mlp": 14,
        "d_vocab": 19,
        "n_ctx": 12,
        "attention": "kv_shift",
        "shift_window": WINDOW,
    }
    model = Transformer(
        ModelConfig(**{**fields, "positional": positional, **changes}), seed=3
    ).double()
    with torch.no_grad():
        for layer in model.layers:
            if layer.attn.shifted:
                layer.attn.alpha.normal_(generator=torch.Generator().manual_seed(4))
                layer.attn.beta.normal_(generator=torch.Generator().manual_seed(5))
    return model.eval()


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(19, (3, POS), generator=torch.Generator().manual_seed(2))


def rotated(x, position, base):
    """One head's vector of every row, rotated by its position's angles, pair by pair."""
    width = x.shape[-1]
    half = width // 2
    y = x.clone()
    for i in range(half):
        angle = position / base ** (2 * i / width)
        y[:, i] = x[:, i] * math.cos(angle) - x[:, i + half] * math.sin(angle)
        y[:, i + half] = x[:, i + half] * math.cos(angle) + x[:, i] * math.sin(angle)
    return y


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
            z[:, t] += sum(
                w[:, None] * value for w, value in zip(weights, values[: t + 1], strict=True)
            )
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
@pytest.mark.parametrize("positional", ["rope", "alibi"])
@pytest.mark.parametrize("layer", [0, 1])
def test_every_route_of_every_head_is_what_loops_give(tokens, positional, layer):
    model = random_model(positional)
    _, cache = model.run_with_cache(tokens)
    contributions = route_contributions(model, tokens, layer)
    assert set(contributions) == {
        Route(key, value) for key, value in itertools.product((None, 0, 1, 2), repeat=2)
    }
    for head in range(HEADS):
        attn = model.layers[layer].attn
        alpha, beta = attn.alpha[head // 2], attn.beta[head // 2]
        for route, contribution in contributions.items():
            without = loop_z(model, cache, layer, head, alpha, split(route, alpha, beta))
            torch.testing.assert_close(
                (cache["z", layer] - contribution)[:, :, head], without, rtol=1e-5, atol=1e-6
            )  # rotary tables are float32


# The Theorem 3.3 head: key of the token before, value of its own


def test_effects_are_the_rise_of_the_loss_and_the_fall_of_accuracy():
    model = random_model().float()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 19, (6, POS))
    targets = np.where(rng.random((6, POS)) < 0.5, rng.integers(0, 19, (6, POS)), IGNORE)
    answers = np.where(rng.random((6, POS)) < 0.5, rng.integers(0, 19, (6, POS)), IGNORE)
    batch = Batch(inputs=tokens, targets=targets, answers=answers)
    table = route_effects(model, batch, routes=[Route(2, None), Route(0, 1)])
    assert list(table.columns) == ["layer", "head", "key", "value", "loss_rise", "accuracy_fall"]
    table = table[table["layer"] == 1]
    expected_rows = [
        (1, head, *names)
        for head in range(HEADS)
        for names in (("2 before", "all"), ("own", "previous"))
    ]
    assert (
        list(table[["layer", "head", "key", "value"]].itertuples(index=False, name=None))
        == expected_rows
    )

    def graded_by_hand(logits):
        loss = F.cross_entropy(
            logits.flatten(0, 1), torch.from_numpy(targets).flatten(), ignore_index=IGNORE
        )
        right = (logits.argmax(-1).numpy() == answers)[answers != IGNORE]
        return loss.item(), right.mean()

    ids = torch.from_numpy(tokens)
    loss, accuracy = graded_by_hand(model(ids))
    contributions = route_contributions(model, ids, 1)
    routes = [Route(2, None), Route(0, 1)] * HEADS
    for row, route in zip(table.itertuples(), routes, strict=True):

        def put(z, hook, head=row.head, part=contributions[route]):
            z = z.clone()
            z[:, :, head] -= part[:, :, head]
            return z

        after = graded_by_hand(model.run_with_hooks(ids, fwd_hooks=[("blocks.1.attn.hook_z", put)]))
        assert row.loss_rise == pytest.approx(after[0] - loss, abs=1e-5)
        assert row.accuracy_fall == pytest.approx(accuracy - after[1], abs=1e-12)


@torch.no_grad()
def test_together_takes_a_route_from_all_heads_of_a_layer():
    """For a key route: the model whose alpha has that column 0."""
    model = random_model()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 19, (6, POS))
    batch = Batch(inputs=tokens, targets=rng.integers(0, 19, (6, POS)))
    table = route_effects(model, batch, routes=[Route(1, None)], together=True)
    assert table[["layer", "head", "key", "value"]].to_numpy().tolist() == [
        [0, "all", "previous", "all"],
        [1, "all", "previous", "all"],
    ]
    before = F.cross_entropy(
        model(torch.from_numpy(tokens)).flatten(0, 1), torch.from_numpy(batch.targets).flatten()
    )
    for layer in range(2):
        changed = random_model()
        changed.layers[layer].attn.alpha[:, 1] = 0
        logits = changed(torch.from_numpy(tokens))
        after = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).flatten())
        assert table["loss_rise"][layer] == pytest.approx((after - before).item(), abs=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"routes": [Route(3, None)]}, r"key column of .* is 3, but the shift has columns 0 to 2"),
        ({"routes": [Route(0, -1)]}, r"value column of .* is -1, but the shift has columns 0 to 2"),
        (
            {"batch": Batch(np.zeros((2, POS), dtype=np.int64), np.full((2, POS), IGNORE))},
            "has no targets",
        ),
        (
            {"model": random_model(attention="vanilla")},
            "attention is 'vanilla', which has no routes",
        ),
    ],
)
def test_what_cannot_be_ablated_is_named(tokens, change, message):
    batch = Batch(tokens.numpy(), tokens.numpy())
    with pytest.raises(ConfigError, match=message):
        route_effects(**{"model": random_model(), "batch": batch, **change})
    with pytest.raises(ConfigError, match="Layer 2 does not exist: the model has layers 0 to 1"):
        route_contributions(random_model(), tokens, 2)
