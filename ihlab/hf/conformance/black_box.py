"""Checks of any causal model of transformers. Each compares a result with the model's own in a simpler setting.

The simpler setting is the whole sequence at once, a document alone, a sequence without padding, or no cache.
"""

import copy
import inspect
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DataCollatorWithFlattening

from ihlab.hf.conformance.compare import (
    CLOSE,
    FaultError,
    NotApplicableError,
    counted,
    demand,
    in_chunks,
    logits,
    off,
    padded,
    read,
    same,
    tokens,
)
from ihlab.hf.conformance.parts import without_attention, without_convolutions


def chunks(model: Any) -> None:
    """Read the same tokens in one pass, one by one, and in chunks of several sizes."""
    ids = tokens(model, 2, 10)
    for sizes in ([1] * 10, [5, *[1] * 5], [5, 5], [1, 4, 5], [8, 1, 1], [3, 2, 2, 3]):
        same(in_chunks(model, ids, sizes), logits(model, ids), f"in chunks of {sizes}")


def _positions(model: Any, mask: Tensor) -> list[dict[str, Tensor]]:
    """Return position numbers to pass beside a mask; also none, if only distances between positions matter."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return [{}]
    ids = tokens(model, 1, 5)
    later = logits(model, ids, position_ids=torch.arange(5)[None] + 3)
    given = {"position_ids": counted(mask)}
    return [given, {}] if off(later, logits(model, ids)) <= CLOSE else [given]


def padding(model: Any) -> None:
    """Read a padded batch, and a padded sequence alone."""
    for left in (True, False):
        for lengths in ([9, 6, 2], [9, 8]):
            ids, mask, places = padded(model, lengths, left)
            for rows in (slice(None), slice(1, 2)):
                for positions in _positions(model, mask[rows]):
                    found = logits(model, ids[rows], attention_mask=mask[rows], **positions)
                    for row, alone, place in zip(found, ids[rows], places[rows], strict=True):
                        right = logits(model, alone[None, place])[0]
                        same(row[place], right, f"padded on the {'left' if left else 'right'}")


def packed(model: Any, **convention: bool) -> None:
    """Read documents in one sequence, with the inputs that transformers' collator of packed documents makes.

    If a document's logits differ from the document's alone, the message says how far without each suspect.
    """
    sizes = [4, 1, 5, 2]
    ids = tokens(model, 1, sum(sizes))
    documents = ids.split(sizes, dim=1)
    collate = DataCollatorWithFlattening(return_tensors="pt", **convention)
    given = collate([{"input_ids": document[0].tolist()} for document in documents])
    inputs = {name: value for name, value in given.items() if name not in ("input_ids", "labels")}

    def error(one: Any) -> float:
        found = logits(one, ids, **inputs).split(sizes, dim=1)
        return max(off(row, logits(one, alone)) for row, alone in zip(found, documents, strict=True))

    if (worst := error(model)) > CLOSE:
        state, attention = (error(remove(copy.deepcopy(model))) for remove in (without_attention, without_convolutions))
        raise FaultError(
            f"documents of a packed sequence: logits differ by {worst:.1e} ({state:.1e} without attention, "
            f"{attention:.1e} without convolutions)"
        )


def uneven(model: Any) -> None:
    """Generate from a batch that is padded on the left."""
    ids, mask, places = padded(model, [7, 4, 2], left=True)
    many = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    for row, place, new in zip(ids, places, many[:, 7:], strict=True):
        alone = model.generate(row[None, place], max_new_tokens=5, do_sample=False)[0, -5:]
        demand(torch.equal(new, alone), "a batch padded on the left generates other tokens than its sequences alone")


def interleaved(model: Any) -> None:
    """Read two sequences in turns."""
    ids = tokens(model, 2, 8)
    caches: list[Any] = [None, None]
    found: list[list[Tensor]] = [[], []]
    for part in ids.split([4, 1, 1, 1, 1], dim=1):
        for which in (0, 1):
            out, caches[which] = read(model, caches[which], part[which : which + 1])
            found[which].append(out)
    for which in (0, 1):
        same(torch.cat(found[which], dim=1), logits(model, ids[which : which + 1]), "two interleaved sequences")


def prefix(model: Any) -> None:
    """Continue a copied cache twice."""
    prompt = tokens(model, 1, 6)
    _, cache = read(model, None, prompt)
    for seed in (6, 7):
        more = tokens(model, 1, 4, seed)
        found = in_chunks(model, more, [1] * 4, copy.deepcopy(cache))
        same(found, logits(model, torch.cat([prompt, more], dim=1))[:, 6:], "a copied cache of a prompt, continued")


def rollback(model: Any) -> None:
    """Take back tokens that were read while the cache recorded its past."""
    ids, other = tokens(model, 1, 11), tokens(model, 1, 5, seed=5)
    for gone, step in ((3, 3), (2, 3), (3, 1)):
        _, cache = read(model, None, ids[:, :8])
        croppable = getattr(cache, "is_croppable", True)
        cache.activate_past_recording()
        for part in ids[:, 8:].split(step, dim=1):
            _, cache = read(model, cache, part)
        cache.crop(-gone)
        found = in_chunks(model, other, [1] * 5, cache)
        right = logits(model, torch.cat([ids[:, :-gone], other], dim=1))[:, 11 - gone :]
        same(found, right, f"after crop(-{gone}){'' if croppable else ', though the cache says is_croppable=False'}")


def assisted(model: Any) -> None:
    """Generate with an assistant model and with prompt look-up, which take back rejected tokens."""
    ids = tokens(model, 1, 14)
    helper = copy.deepcopy(model)
    weight = helper.get_output_embeddings().weight
    weight.add_(weight.std() * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))
    greedy = model.generate(ids, max_new_tokens=12, do_sample=False)
    for what, options in (
        ("an assistant", {"assistant_model": helper}),
        ("prompt look-up", {"prompt_lookup_num_tokens": 3}),
    ):
        found = model.generate(ids, max_new_tokens=12, do_sample=False, **options)
        demand(torch.equal(found, greedy), f"with {what}, other tokens than greedy decoding")


def beams(model: Any) -> None:
    """Search with beams, sample several sequences, and change the batch of a cache."""
    ids = tokens(model, 2, 5)
    options: dict[str, dict[str, Any]] = {
        "beam search": {"num_beams": 4, "num_return_sequences": 2, "do_sample": False},
        "sampling": {"num_return_sequences": 3, "do_sample": True},
    }
    for what, given in options.items():
        generated = []
        for use_cache in (True, False):
            torch.manual_seed(0)
            generated.append(model.generate(ids, max_new_tokens=8, use_cache=use_cache, **given))
        demand(torch.equal(*generated), f"{what} with a cache gives other tokens than without")
    changes: dict[str, tuple[Callable[[Any], None], list[int]]] = {
        "reorder_cache": (lambda cache: cache.reorder_cache(torch.tensor([1, 0])), [1, 0]),
        "batch_select_indices": (lambda cache: cache.batch_select_indices(torch.tensor([1, 0])), [1, 0]),
        "batch_repeat_interleave": (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1]),
    }
    for what, (change, rows) in changes.items():
        _, cache = read(model, None, ids)
        change(cache)
        more = tokens(model, len(rows), 2, seed=4)
        found = in_chunks(model, more, [1, 1], cache)
        same(found, logits(model, torch.cat([ids[rows], more], dim=1))[:, 5:], f"after {what}")


def window(model: Any) -> None:
    """Read beyond a sliding window: nearly all of the window in one chunk, then a few steps."""
    width = getattr(model.config, "sliding_window", None)
    kinds = getattr(model.config, "layer_types", None) or ["sliding"]
    if not width or not any("sliding" in kind for kind in kinds):
        raise NotApplicableError("it has no sliding window")
    ids = tokens(model, 2, width + 7)
    right = logits(model, ids)
    for sizes in ([width - 2, *[1] * 9], [width, 7], [width + 3, 1, 1, 2], [width - 1, 1, 7]):
        same(in_chunks(model, ids, sizes), right, f"beyond a window of {width}, in chunks of {sizes}")


def bf16(model: Any) -> None:
    """Load the model in bf16 and read token by token: as near to float32 as one pass in bf16 is."""
    ids = tokens(model, 4, 32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        half = type(model).from_pretrained(folder, dtype=torch.bfloat16).eval()
    right, results = logits(model, ids), (logits(half, ids), in_chunks(half, ids, [1] * 32))
    once, steps = (float((found.float() - right).abs().mean()) for found in results)
    demand(steps <= 1.5 * once, f"in bf16, a mean error of {steps:.1e} token by token, {once:.1e} in one pass")


CHECKS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "chunks": ("one pass = token by token = chunks of any sizes", chunks),
    "padding": ("padding on the left and right: each sequence as alone", padding),
    "positions": ("documents packed by position_ids: each as alone", packed),
    "seq_idx": ("documents packed by seq_idx, too", partial(packed, return_seq_idx=True)),
    "cu_seqlens": (
        "documents packed by seq_idx and cu_seq_lens, too",
        partial(packed, return_seq_idx=True, return_flash_attn_kwargs=True),
    ),
    "uneven": ("decoding sequences of different lengths: each as alone", uneven),
    "interleaved": ("two interleaved generations do not disturb each other", interleaved),
    "prefix": ("a cached prompt continued twice", prefix),
    "rollback": ("crop: as if the removed tokens had never been read", rollback),
    "assisted": ("assisted generation: as greedy decoding", assisted),
    "beams": ("beams and returned sequences: the cache is reordered", beams),
    "window": ("sliding window: the state before it survives", window),
    "bf16": ("bf16 token by token: as exact as one pass", bf16),
}
"""The requirement and the check, by name."""
MAY_REFUSE = {"positions", "seq_idx", "cu_seqlens", "rollback", "assisted", "beams"}
"""Checks of features that a model may lack: an error is then no fault, if the model is not a shifted one."""
