"""Routes against models whose weights of the route are 0."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.interp.ablation import row_scores, totals
from ihlab.interp.routes import Route, route_contributions, route_effects
from tasks import IGNORE, Batch
from tasks.config import ConfigError

HEADS, POS = 4, 9
COLUMNS = range(3)


@torch.no_grad()
def z_without(make_model, tokens, layer, alpha=(), beta=(), **fields):
    """z of a model in which these columns of a layer's alpha and beta are 0."""
    model = make_model(**fields)
    attn = model.layers[layer].attn
    attn.alpha[:, list(alpha)] = 0
    attn.beta[:, list(beta)] = 0
    return model.run_with_cache(tokens)[1]["z", layer]


@torch.no_grad()
@pytest.mark.parametrize(("positional", "layer"), [("rope", 0), ("alibi", 1)])
def test_every_route_is_what_models_without_its_weights_lack(make_model, tokens, positional, layer):
    """Without a route, its values are read with the pattern of keys without it, others as before."""
    model = make_model(positional=positional)
    whole = z_without(make_model, tokens, layer, positional=positional)
    contributions = route_contributions(model, tokens, layer)
    assert len(contributions) == 16
    for (key, value), contribution in contributions.items():
        read = COLUMNS if value is None else [value]
        others = [column for column in COLUMNS if column not in read]
        without = z_without(make_model, tokens, layer, (), read, positional=positional)
        if key is not None:
            without += z_without(make_model, tokens, layer, [key], others, positional=positional)
        torch.testing.assert_close(whole - contribution, without)


def test_effects_are_the_rise_of_the_loss_and_the_fall_of_accuracy(make_model, tokens):
    model, rng = make_model(), np.random.default_rng(0)
    drawn = rng.integers(0, 40, (2, 3, POS))
    targets, answers = np.where(rng.random((2, 3, POS)) < 0.5, drawn, IGNORE)
    routes = [Route(2, None), Route(0, 1)]
    batch = Batch(tokens.numpy(), targets, answers)
    table = route_effects(model, batch, routes)
    assert table["layer"].tolist() == [0] * 8 + [1] * 8
    contributions = route_contributions(model, tokens, 1, routes)

    before = totals(row_scores(model, batch))
    rows = table[table["layer"] == 1].itertuples()
    for head in range(HEADS):
        for names, route in (("2 before", "all"), routes[0]), (("own", "previous"), routes[1]):

            def put(z, hook, head=head, part=contributions[route]):
                z[:, :, head] -= part[:, :, head]
                return z

            with model.hooks(fwd_hooks=[("blocks.1.attn.hook_z", put)]):
                after = totals(row_scores(model, batch))
            row = next(rows)
            assert (row.head, row.key, row.value) == (head, *names)
            assert row.loss_rise == pytest.approx(after["loss"] - before["loss"], abs=1e-5)
            assert row.accuracy_fall == pytest.approx(before["accuracy"] - after["accuracy"])


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
    for route in (Route(3, None), Route(0, -1)):
        with pytest.raises(
            ConfigError, match="column that the shift lacks: its columns are 0 to 2"
        ):
            route_contributions(make_model(), tokens, 0, [route])
    with pytest.raises(ConfigError, match="Layer 2 does not exist: the model has layers 0 to 1"):
        route_contributions(make_model(), tokens, 2)
    with pytest.raises(ConfigError, match="attention is 'vanilla', which has no routes"):
        route_contributions(make_model(attention="vanilla"), tokens, 0)
