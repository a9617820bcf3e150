"""Checks of inputs that say which tokens belong together: packed documents, and masks with four
dimensions.
"""

import copy
from functools import partial
from typing import Any

import torch
from transformers import DataCollatorWithFlattening

from ihlab.hf.conformance.compare import (
    CLOSE,
    ROUGH,
    ROWS,
    Check,
    FaultError,
    NotApplicableError,
    in_chunks,
    logits,
    off_alone,
    padded,
    positions_of,
    read,
    same,
    same_as_alone,
    takes,
    tokens,
)
from ihlab.hf.conformance.parts import without_attention

ALL = {"return_seq_idx": True, "return_flash_attn_kwargs": True}
"""All that transformers' collator of packed documents can say about them."""
TREES = torch.tensor([[-1, 0, 1, 1, 2, 3, 2], [-1, 0, 1, 1, 3, 2, 3]])
"""The parent of each token of two trees. The first two tokens are a prompt."""


def collated(sizes: list[int], **convention: bool) -> dict[str, Any]:
    """Return what transformers' collator says of packed documents, besides their tokens."""
    collate = DataCollatorWithFlattening(return_tensors="pt", **convention)
    inputs = collate([{"input_ids": [1] * size} for size in sizes])
    return {name: value for name, value in inputs.items() if name not in ("input_ids", "labels")}


def numbered(sizes: list[list[int]]) -> torch.Tensor:
    """Return which document of its row each token is in [row, pos], counted from 1."""
    return torch.stack(
        [torch.arange(1, len(row) + 1).repeat_interleave(torch.tensor(row)) for row in sizes]
    )


def packed(model: Any, **convention: bool) -> None:
    """Read documents in one sequence: a few, many, and long ones.

    If a packed document has other logits than alone, the message also gives the error with
    attention switched off: that of the local state.
    """

    def error(one: Any) -> float:
        return off_alone(one, logits(one, ids, **inputs), ids, numbered([sizes]))

    for sizes, most in (([4, 1, 5, 2], CLOSE), ([1, 2] * 10, CLOSE), ([200, 3, 100, 230], ROUGH)):
        if max(sizes) > positions_of(model):
            continue
        ids, inputs = tokens(model, 1, sum(sizes)), collated(sizes, **convention)
        if (worst := error(model)) > most:
            local = error(without_attention(copy.deepcopy(model)))
            raise FaultError(
                f"documents of a packed sequence: logits differ by {worst:.1e} "
                f"({local:.1e} without attention)"
            )


def packed_rows(model: Any, seq_idx: bool = False) -> None:
    """Read a batch of many rows, each with two documents that meet elsewhere."""
    if not takes(model, "position_ids"):
        raise NotApplicableError("it takes no position_ids")
    ids = tokens(model, ROWS, 8)
    sizes = [[1 + row % 7, 7 - row % 7] for row in range(ROWS)]
    each = [collated(row, return_seq_idx=seq_idx) for row in sizes]
    results = logits(
        model, ids, **{name: torch.cat([inputs[name] for inputs in each]) for name in each[0]}
    )
    same_as_alone(model, results, ids, numbered(sizes), f"documents in {ROWS} rows", ROUGH)


def by_seq_idx(model: Any) -> None:
    """Read documents with `seq_idx`, in one sequence and in many rows."""
    packed(model, return_seq_idx=True)
    if takes(model, "position_ids"):
        packed_rows(model, seq_idx=True)


def bias_of(visible: torch.Tensor) -> torch.Tensor:
    """Return a mask [batch, 1, query, key] that is added to scores."""
    return torch.where(visible, 0.0, torch.finfo(torch.float32).min)[:, None]


def mask_4d(model: Any) -> None:
    """Call the model with a mask [batch, 1, query, key], once for a padded batch and once for packed
    documents, whole and in chunks.
    """
    _, padding = padded(model, [5, 4, 2], left=True)
    for what, sequences in (("padding", padding), ("documents", numbered([[4, 1, 3]]))):
        ids = tokens(model, *sequences.shape)
        visible = (sequences[:, :, None] == sequences[:, None]).tril()
        positions = visible.sum(dim=2) - 1 if takes(model, "position_ids") else None
        for sizes in ([ids.shape[1]], [3, 1, ids.shape[1] - 4]):
            results = in_chunks(model, ids, sizes, mask=bias_of(visible), position_ids=positions)
            text = f"{what} by a mask with four dimensions, in chunks of {sizes}"
            same_as_alone(model, results, ids, sequences, text)


def tree(model: Any) -> None:
    """Read branches of a prompt in one chunk, and then children of an earlier branch. The prompt
    needs no mask.
    """
    if not takes(model, "position_ids"):
        raise NotApplicableError("it takes no position_ids")
    rows, n = TREES.shape
    ids = tokens(model, rows, n)
    visible = torch.eye(n, dtype=torch.bool).repeat(rows, 1, 1)
    for row, parents in enumerate(TREES.tolist()):
        for token, parent in enumerate(parents[1:], start=1):
            visible[row, token] |= visible[row, parent]
    bias = bias_of(visible)
    positions = visible.sum(dim=2) - 1
    for masked_prompt in (False, True):
        cache = None
        for start, stop in ((0, 2), (2, 4), (4, 5), (5, 7)):  # all within a small sliding window
            inputs = {}
            if start or masked_prompt:
                inputs = {
                    "attention_mask": bias[:, :, start:stop, :stop],
                    "position_ids": positions[:, start:stop],
                }
            results, cache = read(model, cache, ids[:, start:stop], **inputs)
            for row in range(rows):
                for token in range(start, stop):
                    path = logits(model, ids[row, visible[row, token]][None])
                    same(
                        results[row, token - start],
                        path[0, -1],
                        f"token {token} of a tree of continuations",
                    )


CHECKS: dict[str, Check] = {
    "positions": Check(
        "documents packed by position_ids: each as alone",
        packed,
        "the state does not start again where position_ids do",
    ),
    "packed_rows": Check(
        "many rows packed by position_ids: each document as alone",
        packed_rows,
        "the documents of one row are used for all rows",
        ("positions",),
    ),
    "seq_idx": Check(
        "documents packed by seq_idx, too",
        by_seq_idx,
        "the state does not start again where seq_idx changes",
    ),
    "cu_seqlens": Check(
        "documents packed by seq_idx and cu_seq_lens, too",
        partial(packed, **ALL),
        "the state does not start again at cu_seq_lens_q",
    ),
    "mask_4d": Check(
        "a mask with four dimensions: each sequence and document as alone",
        mask_4d,
        "the state passes through what the mask hides, because only a mask [batch, token] is read",
        ("chunks",),
    ),
    "tree": Check(
        "a tree of continuations in the cache: each path as alone",
        tree,
        "the cache gives each new token the state of the token that was read last, not that of its parent",
        ("chunks", "mask_4d"),
    ),
}
