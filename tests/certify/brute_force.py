"""Small models, and what they do on every sequence, by enumeration in float64."""

from itertools import product

import numpy as np
import pandas as pd
import torch

from ihlab import InductionTask, ModelConfig, Transformer

TASK = InductionTask(vocab_size=4, length=4, min_token=0)
SMALL = {
    "n_layers": 1,
    "d_model": 8,
    "n_heads": 1,
    "mlp": "none",
    "attention": "kv_shift",
    "positional": "none",
}
QUESTION = ["length", "query", "answer"]


def small(seed, d_vocab=4, n_ctx=8, **fields):
    """A random model with random biases and gains."""
    cfg = ModelConfig(**{**SMALL, "d_vocab": d_vocab, "n_ctx": n_ctx, **fields})
    model, generator = Transformer(cfg, seed=seed), torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith((".bias", "norm.w", "ln1.w", "ln_final.w")):
            weight.data = 1 + 0.5 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def in_float64(model):
    """The model in float64, with rotary tables from the formula. (Its own are float32.)"""
    double, cfg = Transformer(model.cfg).double().eval(), model.cfg
    double.load_state_dict(model.state_dict())
    rotary = double.layers[0].attn.rotary
    if rotary is not None:
        half = torch.arange(0, cfg.head_width, 2, dtype=torch.float64) / cfg.head_width
        frequencies = cfg.rotary_frequencies or cfg.rotary_base**-half
        frequencies = torch.as_tensor(frequencies, dtype=torch.float64)
        turns = torch.arange(cfg.n_ctx, dtype=torch.float64)[:, None, None] * frequencies
        cos, sin = cfg.rotary_scale * turns.cos(), cfg.rotary_scale * turns.sin()
        rotary.cos, rotary.signed_sin = torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
    return double


@torch.no_grad()
def margins_of(model, tokens, answers):
    """The margin and the size of the logits after each sequence, before the final norm's scale
    divides them.
    """
    scales, hooks = [torch.ones(1)], []
    if model.cfg.norm == "rms":
        hooks = [("ln_final.hook_scale", lambda scale, hook: scales.append(scale[:, -1]))]
    logits = model.run_with_hooks(torch.tensor(tokens), fwd_hooks=hooks)[:, -1] * scales[-1]
    answer = torch.tensor(answers)[:, None]
    others = logits.scatter(1, answer, -torch.inf).amax(dim=1)
    margins = logits.gather(1, answer)[:, 0] - others
    return margins.numpy(), logits.abs().amax(dim=1).numpy()


def smallest_margins(model, vocabulary, lengths):
    """The `smallest` margin of each question at each length, and the `size` of its logits.

    In every sequence, each earlier query is followed by the answer, which is not the query.
    """
    double, found = in_float64(model), []
    for length in lengths:
        tokens = np.array(list(product(range(vocabulary), repeat=length)))
        earlier, follower = tokens[:, :-1] == tokens[:, -1:], tokens[:, 1:]
        highest = np.where(earlier, follower, -1).max(axis=1)
        lowest = np.where(earlier, follower, vocabulary).min(axis=1)
        asked = (highest == lowest) & (highest != tokens[:, -1])
        tokens, answers = tokens[asked], highest[asked]
        margins, size = margins_of(double, tokens, answers)
        columns = {"query": tokens[:, -1], "answer": answers, "smallest": margins, "size": size}
        found.append(pd.DataFrame({"length": length, **columns}))
    return pd.concat(found).groupby(QUESTION).agg({"smallest": "min", "size": "max"})


def is_induction(tokens, query, answer):
    """The rule in words: the query is last and has occurred before, and every earlier one is
    followed by the answer.
    """
    *before, last = tokens
    followers = [after for token, after in zip(before, tokens[1:], strict=True) if token == query]
    return last == query and len(followers) > 0 and set(followers) == {answer}
