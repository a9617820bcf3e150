"""Compute the last layer at query positions only, in training and evaluation.

A loss reads only the logits of scored positions. For these, the last layer needs keys and values of
every position, but queries, outputs and the MLP only at scored positions. All earlier layers work
on every position.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ihlab.model.attend import Stream, at_positions, is_hooked
from ihlab.model.documents import Documents, documents_of
from ihlab.model.network import Block, Network
from ihlab.model.variants.make_attention import reads_queries_alone

AT_EVERY_POSITION = (
    "hook_resid_pre",
    "hook_resid_shift",
    "ln1.hook_scale",
    "ln1.hook_normalized",
    "attn.hook_q_raw",
    "attn.hook_gamma",
    "attn.hook_k_raw",
    "attn.hook_v_raw",
    "attn.hook_alpha",
    "attn.hook_beta",
    "attn.hook_k",
    "attn.hook_v",
    "attn.hook_rot_k",
)
"""Hook points of the last layer that see all positions even when queries are gathered."""


def residual_at(
    model: Network,
    tokens: Int[Tensor, "batch pos"],
    index: Int[Tensor, " scored"],
    queries: Int[Tensor, "batch query"] | None = None,
    document_starts: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, "scored d_model"]:
    """Return `final_residual` at the positions `index` of the flattened [batch * pos].

    - `queries`: the query positions of each sequence; None: all. It must include every position in
      `index`: a missing one would get another position's result. Positions that are not in `index`
      only cost time;
    - `document_starts`: the first token of each packed document (`ihlab.model.documents`); None:
      whole sequences.

    If a hook would see fewer positions, the full forward pass runs instead.
    """
    documents = documents_of(model, tokens, document_starts)
    x, last = model.before_last_layer(tokens, documents), model.layers[-1]
    if not may_gather(model):
        return model.ln_final(last(x, documents)).flatten(0, 1)[index]
    x = last.entering(x, documents)
    # ALiBi's bias has a head axis. With the queries of each sequence it would be as large as the
    # pattern.
    if queries is None or model.cfg.positional == "alibi" or not reads_queries_alone(last.attn):
        x = last.add_attention(x, last.attend(x, documents))
    else:
        x = _attend_at(last, x, queries, documents)
        index = _among(queries, index, tokens.shape[1])
    return model.ln_final(last.add_mlp(x.flatten(0, 1)[index][None]))[0]


def may_gather(model: Network) -> bool:
    """Return True if no hook would miss positions: all are before the last layer or at
    `AT_EVERY_POSITION`.

    A hook at any other point turns gathering off, so new hook points are safe. Return False also if
    what the last layer adds to the residual stream mixes tokens: it then reads positions that are
    not scored.
    """
    last = len(model.blocks) - 1
    if model.layers[last].adds_neighbours:
        return False
    earlier = ("hook_embed", "hook_pos_embed", *(f"blocks.{layer}." for layer in range(last)))
    for name, point in model.hook_dict.items():
        sees_all = (
            name.startswith(earlier) or name.removeprefix(f"blocks.{last}.") in AT_EVERY_POSITION
        )
        if is_hooked(point) and not sees_all:
            return False
    return True


def _attend_at(
    block: Block, x: Stream, queries: Int[Tensor, "batch query"], documents: Documents | None
) -> Float[Tensor, "batch query d_model"]:
    normalised = block.attention_input(x, documents)
    q = block.attn.queries(normalised, queries, documents)
    k, v = block.attn.keys_values(normalised, documents)
    attn_out = block.attn.read(q, k, v, queries, documents)
    return block.add_attention(at_positions(x, queries), attn_out)


def _among(
    queries: Int[Tensor, "batch query"], index: Int[Tensor, " scored"], n_pos: int
) -> Int[Tensor, " scored"]:
    """Turn indices into the flattened [batch * pos] into indices into the flattened `queries`."""
    n_queries = queries.shape[1]
    nth = torch.arange(n_queries, device=queries.device).expand_as(queries)
    nth_at = torch.zeros((len(queries), n_pos), dtype=torch.int64, device=queries.device).scatter(
        1, queries, nth
    )
    return index // n_pos * n_queries + nth_at.flatten()[index]
