"""Checks of any causal model of transformers. Each compares the model's output with its output in a
simpler setting.

The simpler setting is the whole sequence at once, a document alone, a sequence without padding, or
no cache.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from ihlab.hf.conformance import caches, gradients, modes, packing
from ihlab.hf.conformance.compare import (
    CLOSE,
    ROUGH,
    ROWS,
    Check,
    NotApplicableError,
    generated,
    in_chunks,
    logits,
    method,
    numbering,
    off,
    padded,
    positions_of,
    precise,
    read,
    same,
    same_as_alone,
    same_generation,
    takes,
    tokens,
)

MANY = 130
"""Number of tokens that are read one by one, larger than the length at which a cache might truncate
a state.
"""
LONG = 530
"""Number of tokens in one pass, larger than the blocks of 256 or 512 in which code may work."""


def chunks(model: Any) -> None:
    """Read the same tokens in one pass, one by one, and in chunks of several sizes; then a
    longer sequence in one pass and one by one.
    """
    ids = tokens(model, 2, 10)
    for sizes in ([1] * 10, [5, *[1] * 5], [5, 5], [1, 4, 5], [8, 1, 1], [3, 2, 2, 3]):
        same(in_chunks(model, ids, sizes), logits(model, ids), f"in chunks of {sizes}")
    many = int(min(MANY, positions_of(model)))
    _read_long(model, [1] * many, f"{many} tokens, one by one")


def _read_long(model: Any, sizes: list[int], what: str) -> None:
    """Compare many tokens in chunks and in one pass: in float64, where rounding selects no experts."""
    model = precise(model)
    ids = tokens(model, 1, sum(sizes))
    same(in_chunks(model, ids, sizes), logits(model, ids), what, ROUGH)


def long(model: Any) -> None:
    """Read a long sequence in one pass, and in chunks of at most 90 tokens."""
    most = int(min(LONG, positions_of(model)))
    if most <= 256:
        raise NotApplicableError(f"it has {most} positions")
    sizes = [90] * (most // 90) + [most % 90] * (most % 90 > 0)
    _read_long(model, sizes, f"{most} tokens in one pass")


def _positions(model: Any, mask: Tensor) -> list[dict[str, Tensor]]:
    """Return the inputs to try with a mask: its `position_ids`, and also none if the position
    encoding is relative.
    """
    inputs = [numbering(model, mask)]
    if takes(model, "position_ids"):
        ids = tokens(model, 1, 5)
        later = logits(model, ids, position_ids=torch.arange(5)[None] + 3)
        if off(later, logits(model, ids)) <= CLOSE:
            inputs.append({})
    return inputs


def padding(model: Any) -> None:
    """Read a padded batch, and a padded sequence alone."""
    for side in ("left", "right"):
        for lengths in ([9, 6, 2], [9, 8]):
            both = padded(model, lengths, left=side == "left")
            for some in (slice(None), slice(1, 2)):
                ids, mask = (x[some] for x in both)
                for positions in _positions(model, mask):
                    results = logits(model, ids, attention_mask=mask, **positions)
                    same_as_alone(model, results, ids, mask, f"padded on the {side}")


def after_padding(model: Any) -> None:
    """Read a prompt that is padded on the right, in one or two chunks, and then further tokens."""
    prompt, mask = padded(model, [4, 3, 2], left=False)  # within a window, which counts padding
    ids = torch.cat([prompt, tokens(model, 3, 2, seed=4)], dim=1)
    mask = torch.cat([mask, mask.new_ones(3, 2)], dim=1)
    for sizes in ([4, 1, 1], [2, 2, 1, 1]):
        results = in_chunks(model, ids, sizes, mask=mask, **numbering(model, mask))
        same_as_alone(model, results, ids, mask, "decoding after padding on the right")


def rows(model: Any) -> None:
    """Read many rows, of one length in chunks, and of different lengths with padding."""
    ids, sizes = tokens(model, ROWS, 7), [4, 1, 2]
    right = torch.cat([in_chunks(model, row[None], sizes) for row in ids])
    same(in_chunks(model, ids, sizes), right, f"{ROWS} rows, in chunks", ROUGH)
    ids, mask = padded(model, [2 + row % 6 for row in range(ROWS)], left=True)
    results = logits(model, ids, attention_mask=mask, **numbering(model, mask))
    same_as_alone(model, results, ids, mask, f"{ROWS} rows, padded on the left", ROUGH)


def embeds(model: Any) -> None:
    """Pass the embeddings of the tokens instead of their ids."""
    if not takes(model, "inputs_embeds"):
        raise NotApplicableError("it takes no inputs_embeds")
    ids, mask = padded(model, [8, 6], left=True)
    vectors = model.get_input_embeddings()(ids)
    same(logits(model, vectors), logits(model, ids), "inputs_embeds")
    sizes = [5, 1, 1, 1]
    same(in_chunks(model, vectors, sizes), in_chunks(model, ids, sizes), "inputs_embeds in chunks")
    real = mask.bool()
    of_vectors, right = (
        logits(model, sequence, attention_mask=mask)[real] for sequence in (vectors, ids)
    )
    same(of_vectors, right, "inputs_embeds with padding")


def uneven(model: Any) -> None:
    """Generate from a batch that is padded on the left."""
    ids, mask = padded(model, [7, 4, 1], left=True)
    options = {"max_new_tokens": 5, "do_sample": False}
    new, chosen = generated(model, ids, attention_mask=mask, **options)
    for i, real in enumerate(mask.bool()):
        row = slice(i, i + 1)
        single, right = generated(model, ids[row, real], **options)
        of_row = new[row, -5:], chosen[:, row]
        same_generation(
            of_row, (single[:, -5:], right), "a batch padded on the left, and a sequence alone"
        )


def interleaved(model: Any) -> None:
    """Read two sequences alternately, each with its own cache."""
    ids, sizes = tokens(model, 2, 8), [4, 1, 1, 1, 1]
    held: list[Any] = [None, None]
    results: list[list[Tensor]] = [[], []]
    for chunk in ids.split(sizes, dim=1):
        for which, row in enumerate(chunk[:, None]):
            out, held[which] = read(model, held[which], row)
            results[which].append(out)
    for result, row in zip(results, ids[:, None], strict=True):
        right = in_chunks(model, row, sizes)
        same(torch.cat(result, dim=1), right, "two interleaved sequences")


def prefix(model: Any) -> None:
    """Continue a copied cache twice."""
    prompt = tokens(model, 1, 6)
    _, cache = read(model, None, prompt)
    for seed in (6, 7):
        more = tokens(model, 1, 4, seed)
        result = in_chunks(model, more, [1] * 4, copy.deepcopy(cache))
        right = in_chunks(model, torch.cat([prompt, more], dim=1), [6, 1, 1, 1, 1])[:, 6:]
        same(result, right, "a copied cache of a prompt, continued")


def rollback(model: Any) -> None:
    """Crop tokens that were read while the cache recorded its past, and read others."""
    ids, other = tokens(model, 3, 11), tokens(model, 3, 5, seed=5)
    for gone, step in ((3, 3), (2, 3), (3, 1)):
        _, cache = read(model, None, ids[:, :8])
        said = (
            ""
            if getattr(cache, "is_croppable", True)
            else ", though the cache says is_croppable=False"
        )
        method(cache, "activate_past_recording")()
        for chunk in ids[:, 8:].split(step, dim=1):
            _, cache = read(model, cache, chunk)
        cache.crop(-gone)
        result = in_chunks(model, other, [1] * 5, cache)
        right = in_chunks(model, torch.cat([ids[:, :-gone], other], dim=1), [8, *[1] * (8 - gone)])[
            :, 11 - gone :
        ]
        same(result, right, f"after crop(-{gone}){said}")


def assisted(model: Any) -> None:
    """Generate with an assistant model and with prompt look-up, which take back rejected tokens."""
    ids = tokens(model, 1, 14)
    helper = copy.deepcopy(model)
    weight = helper.get_output_embeddings().weight
    weight.add_(
        weight.std() * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
    )
    greedy, right = generated(model, ids, max_new_tokens=12, do_sample=False)
    for what, options in (
        ("an assistant", {"assistant_model": helper}),
        ("prompt look-up", {"prompt_lookup_num_tokens": 3}),
    ):
        new, chosen = generated(model, ids, max_new_tokens=12, do_sample=False, **options)
        same_generation((new, chosen[:12]), (greedy, right), f"with {what}, and by greedy decoding")


def beams(model: Any) -> None:
    """Check generation by beam search and of several sampled sequences."""
    ids = tokens(model, 2, 5)
    options: dict[str, dict[str, Any]] = {
        "beam search": {"num_beams": 4, "num_return_sequences": 2, "do_sample": False},
        "sampling": {"num_return_sequences": 3, "do_sample": True},
    }
    for what, arguments in options.items():
        results = {}
        for use_cache in (True, False):
            torch.manual_seed(0)
            results[use_cache] = generated(
                model, ids, max_new_tokens=8, use_cache=use_cache, **arguments
            )
        same_generation(results[True], results[False], f"{what} with a cache, and without")


def window(model: Any) -> None:
    """Read beyond a sliding window: nearly all of the window in one chunk, then a few steps."""
    width = getattr(model.config, "sliding_window", None)
    kinds = getattr(model.config, "layer_types", None) or ["sliding"]
    if not width or not any("sliding" in kind for kind in kinds):
        raise NotApplicableError("it has no sliding window")
    ids = tokens(model, 2, width + 7)
    right = logits(model, ids)
    for sizes in ([width - 2, *[1] * 9], [width, 7], [width + 3, 1, 1, 2], [width - 1, 1, 7]):
        same(
            in_chunks(model, ids, sizes), right, f"beyond a window of {width}, in chunks of {sizes}"
        )


CHECKS: dict[str, Check] = {
    "chunks": Check(
        "one pass = token by token = chunks of any sizes",
        chunks,
        "a chunk starts its state anew, or takes it from the wrong tokens, instead of reading it from the cache",
    ),
    "long": Check(
        "a long sequence in one pass: as in chunks",
        long,
        "one pass works in blocks, and does not pass the state from one to the next",
        ("chunks",),
    ),
    "window": Check(
        "sliding window: the state before it survives",
        window,
        "the state leaves the cache with the keys outside the window",
        ("chunks",),
    ),
    "padding": Check(
        "padding on the left and right: each sequence as alone",
        padding,
        "the first real token takes the state of the padding before it",
    ),
    "after_padding": Check(
        "decoding after padding on the right: each sequence as alone",
        after_padding,
        "the cache stores the state of the last column, which is padding, not that of the last real token",
        ("chunks", "padding"),
    ),
    "rows": Check(
        "many rows: each as alone",
        rows,
        "a row takes the state or the mask of another row",
        ("chunks", "padding"),
    ),
    "uneven": Check(
        "decoding sequences of different lengths: each as alone",
        uneven,
        "a generated token takes the state of another sequence of the batch, or of padding",
        ("chunks", "padding"),
    ),
    **packing.CHECKS,
    "embeds": Check(
        "inputs_embeds: as the tokens",
        embeds,
        "the code that makes the state reads input_ids, which are not there",
    ),
    "interleaved": Check(
        "two interleaved generations do not disturb each other",
        interleaved,
        "the model holds the state, not the cache",
    ),
    "prefix": Check(
        "a cached prompt continued twice",
        prefix,
        "a copy of the cache lacks the state, or shares it",
    ),
    "rollback": Check(
        "crop: as if the removed tokens had never been read",
        rollback,
        "crop removes keys and values, but not the state of the removed tokens",
    ),
    "assisted": Check(
        "assisted generation: as greedy decoding",
        assisted,
        "crop removes keys and values, but not the state of the rejected tokens",
        ("chunks", "rollback"),
    ),
    **caches.CHECKS,
    "beams": Check(
        "beams and returned sequences: the cache is reordered",
        beams,
        "reorder_cache moves keys and values, but not the state",
        ("chunks", "reorder"),
    ),
    **modes.CHECKS,
    **gradients.CHECKS,
}
"""Every check, keyed by its name, after those that it builds on."""
MUST_RUN = (
    "chunks",
    "long",
    "window",
    "padding",
    "rows",
    "uneven",
    "interleaved",
    "prefix",
    *modes.CHECKS,
    *gradients.CHECKS,
)
"""Checks of what each model must be able to do."""
MAY_REFUSE = set(CHECKS) - set(MUST_RUN)
"""Checks of features that a model may lack: a refusal is then no fault, if the model is not a
shifted one.
"""
