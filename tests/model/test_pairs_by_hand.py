"""Induction by two tokens in one layer: taps (1, 1/2) of the queries and (0, 1, 1/2) of the keys do
it exactly.
"""

import numpy as np
import torch

from ihlab import ModelConfig, Transformer
from tasks import IGNORE, PairTask

TASK, SHARP = PairTask(), 240.0


@torch.no_grad()
def by_hand(query_taps, key_taps):
    """Return a layer whose queries, keys and values are the one-hot tokens, mixed by these taps."""
    size = TASK.vocab_size
    cfg = ModelConfig(
        n_layers=1,
        d_model=size,
        n_heads=1,
        d_vocab=size,
        n_ctx=TASK.length,
        attention="qkv_shift",
        shift_window=3,
        query_window=2,
        positional="none",
        norm="none",
        mlp="none",
        residual=False,
        unembedding="none",
    )
    model = Transformer(cfg).double()
    attn = model.layers[0].attn
    for weight in (
        model.embed.weight,
        attn.q_proj.weight,
        attn.k_proj.weight,
        attn.v_proj.weight,
        attn.o_proj.weight,
    ):
        weight.copy_(torch.eye(size))
    attn.q_proj.weight.mul_(SHARP * size**0.5)
    attn.gamma[:], attn.alpha[:], attn.beta[:] = (
        torch.tensor([taps]) for taps in (query_taps, key_taps, (1.0, 0.0, 0.0))
    )
    return model


@torch.no_grad()
def run(model, inputs):
    """Return the logits and the scores [batch, query, key] in units of a match of two single
    tokens.
    """
    logits, cache = model.run_with_cache(torch.as_tensor(inputs))
    return logits, cache["attn_scores", 0][:, 0] / SHARP


def test_the_taps_of_the_paper_answer_every_query_exactly():
    batch = TASK.batch(200, np.random.default_rng(0))
    logits, _ = run(by_hand((1.0, 0.5), (0.0, 1.0, 0.5)), batch.inputs)
    asked = torch.as_tensor(batch.targets != IGNORE)
    wanted = torch.nn.functional.one_hot(
        torch.as_tensor(batch.targets)[asked], TASK.vocab_size
    ).double()
    torch.testing.assert_close(logits[asked], wanted, atol=1e-12, rtol=0)
