"""Induction by position: what the cut leaves possible, both ways built by hand, verdicts on made-up tables."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.claims.claim import judged
from ihlab.studies.by_position import CUT, FREE, NO_MLP, ONLY, SETTING, TASK, ByPosition, moved
from ihlab.training.clamp_hooks import install

V, L = TASK.vocab_size, TASK.length
TOKEN, POSITION, FOUND = slice(0, V), slice(V, V + L), slice(V + L, 2 * V + L)
SHARP = 60.0


def cut_model(positional="learned"):
    cfg = ModelConfig(n_layers=2, d_model=32, n_heads=2, d_vocab=V, n_ctx=L, positional=positional)
    model = Transformer(cfg, seed=0).double()
    install(model, [CUT])
    return model


def read(weight, rows, columns):
    weight[rows, columns] = torch.eye(rows.stop - rows.start, columns.stop - columns.start).double()


@torch.no_grad()
def by_hand(way):
    """Return a model that does induction by position, or with a previous-token head, in the same space.

    Layer 0 writes into FOUND, and layer 1 adds the answer to the logits.
    """
    width = 2 * V + L
    cfg = ModelConfig(
        n_layers=2, d_model=width, n_heads=1, d_vocab=V, n_ctx=L, positional="learned", norm="none", mlp="none"
    )
    model = Transformer(cfg).double()
    for weight in model.parameters():
        weight.zero_()
    read(model.embed.weight, slice(0, V), TOKEN)
    read(model.pos_embed.weight, slice(0, L), POSITION)
    first, second = (layer.attn for layer in model.layers)
    head, sharp = slice(0, V), SHARP * width**0.5
    if way == "position":  # the last token finds its like, not itself, and reads its position
        read(first.q_proj.weight, TOKEN, TOKEN)
        read(first.k_proj.weight, TOKEN, TOKEN)
        first.q_proj.weight[V + L, POSITION.stop - 1] = 1  # the last position avoids itself
        first.k_proj.weight[V + L, POSITION.stop - 1] = -2
        read(first.v_proj.weight, slice(0, L), POSITION)
        read(second.q_proj.weight, slice(1, L), slice(FOUND.start, FOUND.start + L - 1))  # adds 1
        read(second.k_proj.weight, slice(0, L), POSITION)
    else:
        read(first.q_proj.weight, slice(0, L - 1), slice(POSITION.start + 1, POSITION.stop))
        read(first.k_proj.weight, slice(0, L), POSITION)
        read(first.v_proj.weight, head, TOKEN)
        read(second.q_proj.weight, head, TOKEN)
        read(second.k_proj.weight, head, FOUND)
        second.q_proj.weight[V + L, POSITION.stop - 1] = 1  # the first token found itself: it is avoided
        second.k_proj.weight[V + L, POSITION.start] = -2
    read(first.o_proj.weight, FOUND, head)
    read(second.v_proj.weight, head, TOKEN)
    read(second.o_proj.weight, TOKEN, head)
    second.o_proj.weight.mul_(2)  # more than the last token's own embedding
    for attn in (first, second):
        attn.q_proj.weight.mul_(sharp)
    read(model.unembed.weight, slice(0, V), TOKEN)
    return model


@torch.no_grad()
@pytest.mark.parametrize(("way", "followed"), [("position", 1.0), ("previous", 1 / 6)])
def test_the_answer_follows_the_position_only_in_induction_by_position(way, followed):
    model, batch = by_hand(way), TASK.batch(300, np.random.default_rng(3))
    assert (model(torch.as_tensor(batch.inputs))[:, -1].argmax(dim=1).numpy() == batch.targets[:, -1]).all()
    assert moved(model) == pytest.approx(followed, abs=0.1)


@torch.no_grad()
def test_the_cut_ends_the_previous_token_way_and_no_other():
    batch = TASK.batch(300, np.random.default_rng(3))
    for way, least, most in (("position", 1.0, 1.0), ("previous", 0.0, 0.3)):
        model = by_hand(way)
        install(model, [CUT])
        right = (model(torch.as_tensor(batch.inputs))[:, -1].argmax(dim=1).numpy() == batch.targets[:, -1]).mean()
        assert least <= right <= most


@torch.no_grad()
def test_under_the_cut_no_key_or_value_holds_another_token():
    model, inputs = cut_model(), torch.as_tensor(TASK.batch(20, np.random.default_rng(0)).inputs)
    other = inputs.clone()
    other[:, 3] = (inputs[:, 3] + 1) % V
    one, two = (model.run_with_cache(tokens)[1] for tokens in (inputs, other))
    kept = [0, 1, 2, 4, 5, 6]
    for name in ("k", "v"):
        assert torch.equal(one[name, 1][:, kept], two[name, 1][:, kept])
        assert not torch.equal(one[name, 1][:, 3], two[name, 1][:, 3])


@torch.no_grad()
@pytest.mark.parametrize(("positional", "sees"), [("none", False), ("learned", True)])
def test_under_the_cut_only_positions_tell_the_order(positional, sees):
    model = cut_model(positional)
    inputs = torch.as_tensor(TASK.batch(20, np.random.default_rng(0)).inputs)
    shuffled = torch.cat([inputs[:, :-1].flip(1), inputs[:, -1:]], dim=1)
    alike = torch.allclose(model(inputs)[:, -1], model(shuffled)[:, -1], atol=1e-9)
    assert alike is not sees


def table(taken, followed):
    """A laptop table: steps to 90% (inf: never) and the fraction that follows the position, by arm."""
    rng, rows = np.random.default_rng(0), []
    for arm in (FREE, ONLY, NO_MLP):
        for kind, seeds in (("tuning", (100, 101)), ("run", range(10))):
            for seed in seeds:
                noise = rng.uniform(0.9, 1.1)
                rows.append((kind, arm, SETTING, 8e-3, seed, taken[arm] * noise, followed[arm] * noise, 1000))
    return pd.DataFrame(rows, columns=["kind", "variant", "setting", "lr", "seed", "steps_to_90", "moved", "horizon"])


def verdicts(data):
    return [claim.verdict for claim in judged(ByPosition().claims(data, "laptop"))]


def test_verdicts_can_come_out_either_way():
    learned = table({FREE: 100.0, ONLY: 400.0, NO_MLP: 500.0}, {FREE: 0.1, ONLY: 0.9, NO_MLP: 0.9})
    assert verdicts(learned) == ["holds"] * 5
    never = table({FREE: 100.0, ONLY: math.inf, NO_MLP: math.inf}, {FREE: 0.9, ONLY: 0.1, NO_MLP: 0.1})
    assert verdicts(never) == ["fails"] * 4 + ["holds"]
    alike = table(dict.fromkeys((FREE, ONLY, NO_MLP), 100.0), {FREE: 0.5, ONLY: 0.8, NO_MLP: 0.8})
    assert verdicts(alike) == ["holds", "holds", "undecided", "undecided", "fails"]


def test_only_the_arms_without_the_usual_way_are_cut():
    configs = {arm: ByPosition().cell_config((arm, SETTING), "laptop") for arm in (FREE, ONLY, NO_MLP)}
    assert [config.clamped for config in configs.values()] == [(), (CUT,), (CUT,)]
    assert [config.model.mlp for config in configs.values()] == ["swiglu", "swiglu", "none"]
