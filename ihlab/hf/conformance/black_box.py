"""Checks of any causal model of transformers. Each compares the model's output with its output in a simpler setting.

The simpler setting is the whole sequence at once, a document alone, a sequence without padding, or no cache.
"""

import copy
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DataCollatorWithFlattening

from ihlab.hf.conformance import caches
from ihlab.hf.conformance.compare import (
    CLOSE,
    FaultError,
    NotApplicableError,
    counted,
    demand,
    in_chunks,
    logits,
    method,
    off,
    padded,
    read,
    same,
    takes,
    tokens,
)
from ihlab.hf.conformance.parts import without_attention, without_convolutions

LONG = 130
"""Number of tokens that are read one by one, larger than the length at which a cache might truncate a state."""
ROUGH = 1e-3
"""Largest difference of logits after `LONG` steps, in which rounding adds up."""
STEP = 1e-3
"""Finite difference of a parameter, as a fraction of its root mean square."""


def chunks(model: Any) -> None:
    """Read the same tokens in one pass, one by one, and in chunks of several sizes; then more tokens one by one."""
    ids = tokens(model, 2, 10)
    for sizes in ([1] * 10, [5, *[1] * 5], [5, 5], [1, 4, 5], [8, 1, 1], [3, 2, 2, 3]):
        same(in_chunks(model, ids, sizes), logits(model, ids), f"in chunks of {sizes}")
    many = min(LONG, getattr(model.config, "max_position_embeddings", None) or LONG)
    ids = tokens(model, 1, many)
    same(in_chunks(model, ids, [1] * many), logits(model, ids), f"{many} tokens, one by one", ROUGH)


def _positions(model: Any, mask: Tensor) -> list[dict[str, Tensor]]:
    """Return the inputs to try with a mask: its `position_ids`, and also none if the position encoding is relative."""
    if not takes(model, "position_ids"):
        return [{}]
    ids = tokens(model, 1, 5)
    later = logits(model, ids, position_ids=torch.arange(5)[None] + 3)
    numbers = {"position_ids": counted(mask)}
    return [numbers, {}] if off(later, logits(model, ids)) <= CLOSE else [numbers]


def padding(model: Any) -> None:
    """Read a padded batch, and a padded sequence alone."""
    for left in (True, False):
        for lengths in ([9, 6, 2], [9, 8]):
            ids, mask, places = padded(model, lengths, left)
            for rows in (slice(None), slice(1, 2)):
                for positions in _positions(model, mask[rows]):
                    results = logits(model, ids[rows], attention_mask=mask[rows], **positions)
                    for row, alone, place in zip(results, ids[rows], places[rows], strict=True):
                        right = logits(model, alone[None, place])[0]
                        same(row[place], right, f"padded on the {'left' if left else 'right'}")


def after_padding(model: Any) -> None:
    """Read a prompt that is padded on the right, in one or two chunks, and then further tokens."""
    ids, mask, places = padded(model, [4, 3, 2], left=False)  # within a window, which counts padding
    more = tokens(model, 3, 2, seed=4)
    mask = torch.cat([mask, torch.ones_like(more)], dim=1)
    positions = counted(mask) if takes(model, "position_ids") else None
    for sizes in ([4, 1, 1], [2, 2, 1, 1]):
        results = in_chunks(model, torch.cat([ids, more], dim=1), sizes, mask=mask, position_ids=positions)
        for row, alone, place, new in zip(results, ids, places, more, strict=True):
            right = logits(model, torch.cat([alone[place], new])[None])[0, -2:]
            same(row[-2:], right, "decoding after padding on the right")


def mask_4d(model: Any) -> None:
    """Pass a mask [batch, 1, query, key], of a padded batch and of packed documents, in one pass and in chunks."""
    _, mask, _ = padded(model, [5, 4, 2], left=True)
    documents = torch.tensor([[1, 1, 1, 1, 2, 3, 3, 3]])
    for what, sequence in (("padding", mask), ("documents", documents)):  # the sequence of each token, 0 is padding
        ids = tokens(model, *sequence.shape)
        visible = (sequence[:, None, :, None] == sequence[:, None, None]).tril()
        positions = visible[:, 0].sum(dim=2) - 1 if takes(model, "position_ids") else None
        bias = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
        for sizes in ([ids.shape[1]], [3, 1, ids.shape[1] - 4]):
            results = in_chunks(model, ids, sizes, mask=bias, position_ids=positions)
            for row in range(len(ids)):
                for name in range(1, int(sequence[row].max()) + 1):
                    alone = sequence[row] == name
                    right = logits(model, ids[row, alone][None])[0]
                    same(results[row, alone], right, f"{what} by a mask with four dimensions, in chunks of {sizes}")


def embeds(model: Any) -> None:
    """Pass the embeddings of the tokens instead of their ids."""
    if not takes(model, "inputs_embeds"):
        raise NotApplicableError("it takes no inputs_embeds")
    ids, mask, _ = padded(model, [8, 6], left=True)
    vectors = model.get_input_embeddings()(ids)
    same(logits(model, vectors), logits(model, ids), "inputs_embeds")
    same(in_chunks(model, vectors, [5, 1, 1, 1]), logits(model, ids), "inputs_embeds in chunks")
    real = mask.bool()
    of_vectors, right = (logits(model, sequence, attention_mask=mask)[real] for sequence in (vectors, ids))
    same(of_vectors, right, "inputs_embeds with padding")


def packed(model: Any, **convention: bool) -> None:
    """Read documents in one sequence, with the inputs that transformers' collator of packed documents makes.

    If a document alone has other logits, the message also gives the errors without attention and without convolutions.
    """
    sizes = [4, 1, 5, 2]
    ids = tokens(model, 1, sum(sizes))
    documents = ids.split(sizes, dim=1)
    collate = DataCollatorWithFlattening(return_tensors="pt", **convention)
    collated = collate([{"input_ids": document[0].tolist()} for document in documents])
    inputs = {name: value for name, value in collated.items() if name not in ("input_ids", "labels")}

    def error(one: Any) -> float:
        results = logits(one, ids, **inputs).split(sizes, dim=1)
        return max(off(row, logits(one, alone)) for row, alone in zip(results, documents, strict=True))

    if (worst := error(model)) > CLOSE:
        parts = [f"{error(without_attention(copy.deepcopy(model))):.1e} without attention"]
        if any(isinstance(module, nn.Conv1d) for module in model.modules()):
            parts.append(f"{error(without_convolutions(copy.deepcopy(model))):.1e} without convolutions")
        raise FaultError(f"documents of a packed sequence: logits differ by {worst:.1e} ({', '.join(parts)})")


def uneven(model: Any) -> None:
    """Generate from a batch that is padded on the left."""
    ids, mask, places = padded(model, [7, 4, 2], left=True)
    many = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    for row, place, new in zip(ids, places, many[:, 7:], strict=True):
        alone = model.generate(row[None, place], max_new_tokens=5, do_sample=False)[0, -5:]
        demand(torch.equal(new, alone), "a batch padded on the left generates other tokens than its sequences alone")


def interleaved(model: Any) -> None:
    """Read two sequences alternately, each with its own cache."""
    ids = tokens(model, 2, 8)
    caches: list[Any] = [None, None]
    results: list[list[Tensor]] = [[], []]
    for chunk in ids.split([4, 1, 1, 1, 1], dim=1):
        for which in (0, 1):
            out, caches[which] = read(model, caches[which], chunk[which : which + 1])
            results[which].append(out)
    for which in (0, 1):
        same(torch.cat(results[which], dim=1), logits(model, ids[which : which + 1]), "two interleaved sequences")


def prefix(model: Any) -> None:
    """Continue a copied cache twice."""
    prompt = tokens(model, 1, 6)
    _, cache = read(model, None, prompt)
    for seed in (6, 7):
        more = tokens(model, 1, 4, seed)
        result = in_chunks(model, more, [1] * 4, copy.deepcopy(cache))
        same(result, logits(model, torch.cat([prompt, more], dim=1))[:, 6:], "a copied cache of a prompt, continued")


def rollback(model: Any) -> None:
    """Crop tokens that were read while the cache recorded its past, and read others."""
    ids, other = tokens(model, 1, 11), tokens(model, 1, 5, seed=5)
    for gone, step in ((3, 3), (2, 3), (3, 1)):
        _, cache = read(model, None, ids[:, :8])
        croppable = getattr(cache, "is_croppable", True)
        method(cache, "activate_past_recording")()
        for chunk in ids[:, 8:].split(step, dim=1):
            _, cache = read(model, cache, chunk)
        cache.crop(-gone)
        result = in_chunks(model, other, [1] * 5, cache)
        right = logits(model, torch.cat([ids[:, :-gone], other], dim=1))[:, 11 - gone :]
        same(result, right, f"after crop(-{gone}){'' if croppable else ', though the cache says is_croppable=False'}")


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
        generated = model.generate(ids, max_new_tokens=12, do_sample=False, **options)
        demand(torch.equal(generated, greedy), f"with {what}, other tokens than greedy decoding")


def beams(model: Any) -> None:
    """Search with beams, and sample several sequences."""
    ids = tokens(model, 2, 5)
    options: dict[str, dict[str, Any]] = {
        "beam search": {"num_beams": 4, "num_return_sequences": 2, "do_sample": False},
        "sampling": {"num_return_sequences": 3, "do_sample": True},
    }
    for what, arguments in options.items():
        generated = []
        for use_cache in (True, False):
            torch.manual_seed(0)
            generated.append(model.generate(ids, max_new_tokens=8, use_cache=use_cache, **arguments))
        demand(torch.equal(*generated), f"{what} with a cache gives other tokens than without")


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


@torch.enable_grad()
def gradient(model: Any) -> None:
    """Compare the gradient along a random direction of each parameter with a finite difference, in float64."""
    model = model.double()
    ids = tokens(model, 2, 6)
    weights = {name: x for name, x in model.named_parameters() if x.requires_grad and x.is_floating_point()}
    random = torch.Generator().manual_seed(0)

    def loss() -> Tensor:
        return nn.functional.cross_entropy(logits(model, ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    try:
        start = loss()
    except RuntimeError as error:
        raise NotApplicableError("it does not run in float64") from error
    gradients = torch.autograd.grad(start, list(weights.values()), allow_unused=True)
    slopes = {}
    for (name, weight), slope in zip(weights.items(), gradients, strict=True):
        before = weight.detach().clone()
        direction = torch.randn(weight.shape, generator=random, dtype=weight.dtype) * before.pow(2).mean().sqrt()
        losses = []
        for step in (STEP, -STEP, STEP / 2, -STEP / 2):
            weight.data = before + step * direction
            losses.append(loss().item())
        weight.data = before
        wide, narrow = (losses[0] - losses[1]) / (2 * STEP), (losses[2] - losses[3]) / STEP
        slopes[name] = (0.0 if slope is None else (slope * direction).sum().item(), narrow, abs(wide - narrow))
    largest = max(abs(right) for _, right, _ in slopes.values())
    for name, (slope, right, spread) in slopes.items():  # a router that selects other experts makes the error large
        demand(
            abs(slope - right) <= 0.02 * max(abs(right), 0.05 * largest) + 2 * spread,
            f"along a random direction of {name}, the gradient is {slope:.3g}, a finite difference {right:.3g}",
        )


def bf16(model: Any) -> None:
    """Load the model in bf16 and read token by token: as near to float32 as one pass in bf16 is."""
    ids = tokens(model, 4, 32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        half = type(model).from_pretrained(folder, dtype=torch.bfloat16).eval()
    right, results = logits(model, ids), (logits(half, ids), in_chunks(half, ids, [1] * 32))
    once, steps = (float((result.float() - right).abs().mean()) for result in results)
    demand(steps <= 1.5 * once, f"in bf16, a mean error of {steps:.1e} token by token, {once:.1e} in one pass")


CHECKS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "chunks": ("one pass = token by token = chunks of any sizes", chunks),
    "padding": ("padding on the left and right: each sequence as alone", padding),
    "after_padding": ("decoding after padding on the right: each sequence as alone", after_padding),
    "positions": ("documents packed by position_ids: each as alone", packed),
    "seq_idx": ("documents packed by seq_idx, too", partial(packed, return_seq_idx=True)),
    "cu_seqlens": (
        "documents packed by seq_idx and cu_seq_lens, too",
        partial(packed, return_seq_idx=True, return_flash_attn_kwargs=True),
    ),
    "mask_4d": ("a mask with four dimensions: each sequence and document as alone", mask_4d),
    "embeds": ("inputs_embeds: as the tokens", embeds),
    "uneven": ("decoding sequences of different lengths: each as alone", uneven),
    "interleaved": ("two interleaved generations do not disturb each other", interleaved),
    "prefix": ("a cached prompt continued twice", prefix),
    "rollback": ("crop: as if the removed tokens had never been read", rollback),
    "assisted": ("assisted generation: as greedy decoding", assisted),
    "beams": ("beams and returned sequences: the cache is reordered", beams),
    **caches.CHECKS,
    "window": ("sliding window: the state before it survives", window),
    "bf16": ("bf16 token by token: as exact as one pass", bf16),
    "gradient": ("the gradient: as finite differences", gradient),
}
"""The requirement and the function of each check, keyed by its name."""
MAY_REFUSE = set(CHECKS) - {"chunks", "padding", "uneven", "interleaved", "prefix", "window", "bf16", "gradient"}
"""Checks of features that a model may lack: a refusal is then no fault, if the model is not a shifted one."""
