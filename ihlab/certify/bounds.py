"""A sound lower bound of the margin of two vanilla attention-only layers, where only the last token is a repeat.

A question is a query, its answer and the position of the query's earlier occurrence; the other tokens can be anything.
The first layer's attention at a position (its row) computes a weighted mean over positions, and each position's weight
and value depend only on the token there. So the minimum of a linear function of a row's output is a smallest weighted
mean over free choices of tokens, which Dinkelbach's method finds.

1. The second layer's score is linear in the query's row and in the key's. Fix a pair of tokens, at the key and before
   it. For each term of the query's row, take the largest score at this key minus the smallest at the right key. The
   largest mean of these differences over the query's row bounds the key's score minus the right key's.
2. Take the least that a key's value and the query's own stream can add to the margin. At the right key this is the
   weight. At any other key, the weight is this times the exponential of the bound if it is negative, and 0 otherwise.
3. The lightest walk through these pairs (`ihlab.certify.walks`) is below the margin times a positive number.

In each row, only the tokens of the pair and of the question are fixed. They occur nowhere else in the row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from ihlab.certify.rows import pair_weights
from ihlab.certify.walks import Automaton, lightest
from ihlab.model.transformer import Transformer
from tasks.config import require

TOLERANCE = 1e-7
"""A bound counts as positive above this fraction of the largest weight, which is far above the rounding of float64."""


@dataclass(frozen=True, eq=False)
class TwoLayers:
    """The arrays from which the bound is computed, for one length of sequences.

    - `mass` [row, token, pos, token]: e^(score - largest score of the row), of the query at `row` and the key at `pos`;
    - `stream` [pos, token, d_model]: embeddings; `write` [pos, token, d_model]: each sent through the first head's OV;
    - `asks`, `keys` [d_model, d_head], `values` [d_model, d_model]: the second head's maps;
    - `direction` [output, d_model]: the direction of each token's logit in the residual stream.
    """

    mass: Float[np.ndarray, "row token pos token"]
    stream: Float[np.ndarray, "pos token d_model"]
    write: Float[np.ndarray, "pos token d_model"]
    asks: Float[np.ndarray, "d_model d_head"]
    keys: Float[np.ndarray, "d_model d_head"]
    values: Float[np.ndarray, "d_model d_model"]
    direction: Float[np.ndarray, "output d_model"]


@torch.no_grad()
def two_layers(model: Transformer, length: int) -> TwoLayers:
    """Return the tables of a model. Raises `ConfigError` for a model to which the bound does not apply."""
    cfg = model.cfg
    wanted = {
        "n_layers": 2, "n_heads": 1, "norm": "none", "mlp": "none", "attention": "vanilla", "positional": "learned",
        "residual": True, "bias": False, "qk_norm": False, "mask": "causal", "stream_shift": "none", "canon": "",
        "smear": "none", "bigram_table": 0,
    }  # fmt: skip
    for name, value in wanted.items():
        require(getattr(cfg, name) == value, f"{name} is {getattr(cfg, name)!r}, but this bound needs {value!r}.")
    require(4 <= length <= cfg.n_ctx, f"The length is {length}, but must be from 4 to n_ctx={cfg.n_ctx}.")
    first, second = (
        {name: getattr(block.attn, name)[0].double().cpu().numpy() for name in ("W_Q", "W_K", "W_V", "W_O")}
        for block in model.layers
    )
    tokens, places = model.embed.weight.double().cpu().numpy(), model.pos_embed.weight.double().cpu().numpy()  # type: ignore[union-attr]
    stream = tokens + places[:length, None]
    width = first["W_Q"].shape[1] ** 0.5
    scores = np.einsum("rad,pbd->rapb", stream @ first["W_Q"], stream @ first["W_K"]) / width
    scores[np.triu_indices(length, 1)[0], :, np.triu_indices(length, 1)[1]] = -np.inf
    return TwoLayers(
        mass=np.exp(scores - scores.max(axis=(2, 3), keepdims=True)),
        stream=stream,
        write=stream @ first["W_V"] @ first["W_O"],
        asks=second["W_Q"] / width,
        keys=second["W_K"],
        values=second["W_V"] @ second["W_O"],
        direction=model.tokens_to_residual_directions(torch.arange(cfg.d_vocab)).double().cpu().numpy(),
    )


def margin_bound(tables: TwoLayers, query: int, answer: int, place: int) -> float:
    """Return a lower bound, over all fillers, of the margin divided by the right key's attention weight.

    `place` is the position of the query's earlier occurrence, from 0 to n - 3. Only the sign counts: above 0 is proved.
    """
    length, n_tokens = tables.stream.shape[:2]
    atoms = (tables.stream[-1, query] + tables.write) @ tables.asks  # [pos, token, d_head]: the terms of the query
    direct = np.einsum("pad,kbd->pakb", atoms, tables.stream @ tables.keys)
    written = np.einsum("pad,kbd->pakb", atoms, tables.write @ tables.keys)
    rivals = np.delete(np.arange(len(tables.direction)), answer)
    towards = tables.direction[answer] - tables.direction[rivals]  # [rival, d_model]
    rows = np.concatenate([tables.stream, tables.write]) @ tables.values @ towards.T
    streams, writes = np.moveaxis(rows, -1, 0)[:, :length].copy(), np.moveaxis(rows, -1, 0)[:, length:].copy()
    base = np.moveaxis((tables.stream[-1, query] + tables.write) @ towards.T, -1, 0).copy()
    weights = pair_weights(tables.mass, direct, written, base, streams, writes, query, answer, place)
    largest = np.abs(weights[np.isfinite(weights)]).max()
    free = Automaton(
        np.zeros(n_tokens, int), np.zeros((1, n_tokens), int), np.zeros((1, n_tokens), int), np.array([True])
    )
    ones = np.ones((length, n_tokens, n_tokens + 1))
    bounds = [lightest(ones, gain, 0.0, free, query, length)[length] for gain in weights]
    return float(min(bounds) - TOLERANCE * largest)


def proved_fraction(model: Transformer, length: int, questions: Int[np.ndarray, "question 3"] | None = None) -> float:
    """Return the fraction of questions (query, answer, place) that are proved right for all fillers.

    Every question has the same number of sequences, so over all questions this is a lower bound of the accuracy.
    """
    tables = two_layers(model, length)
    chosen = every_question(model.cfg.d_vocab, length) if questions is None else questions
    return float(np.mean([margin_bound(tables, *question) > 0 for question in chosen.tolist()]))


def every_question(n_tokens: int, length: int) -> Int[np.ndarray, "question 3"]:
    """Return all questions (query, answer, place) of a length."""
    grid = np.stack(np.meshgrid(np.arange(n_tokens), np.arange(n_tokens), np.arange(length - 2), indexing="ij"), -1)
    return grid[grid[..., 0] != grid[..., 1]]
