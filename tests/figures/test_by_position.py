"""Induction by position: what the cut leaves possible, and both ways built by hand."""

import numpy as np
import pytest
import torch

from figures.by_position.study import CUT, TASK, moved
from ihlab import ModelConfig, Transformer
from ihlab.training.clamp_hooks import install

V, L = TASK.vocab_size, TASK.length
TOKEN, POSITION, FOUND = slice(0, V), slice(V, V + L), slice(V + L, 2 * V + L)
SHARP = 60.0


def read(weight, rows, columns):
    weight[rows, columns] = torch.eye(rows.stop - rows.start, columns.stop - columns.start).double()


@torch.no_grad()
def by_hand(way):
    """Return a model that does induction by position, or with a previous-token head, in the same
    space.

    Layer 0 writes into FOUND, and layer 1 adds the answer to the logits.
    """
    width = 2 * V + L
    cfg = ModelConfig(
        n_layers=2,
        d_model=width,
        n_heads=1,
        d_vocab=V,
        n_ctx=L,
        positional="learned",
        norm="none",
        mlp="none",
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
        second.q_proj.weight[V + L, POSITION.stop - 1] = (
            1  # the first token found itself: it is avoided
        )
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
    assert (
        model(torch.as_tensor(batch.inputs))[:, -1].argmax(dim=1).numpy() == batch.targets[:, -1]
    ).all()
    assert moved(model) == pytest.approx(followed, abs=0.1)


@torch.no_grad()
def test_the_cut_ends_the_previous_token_way_and_no_other():
    batch = TASK.batch(300, np.random.default_rng(3))
    for way, least, most in (("position", 1.0, 1.0), ("previous", 0.0, 0.3)):
        model = by_hand(way)
        install(model, [CUT])
        right = (
            model(torch.as_tensor(batch.inputs))[:, -1].argmax(dim=1).numpy()
            == batch.targets[:, -1]
        ).mean()
        assert least <= right <= most
