"""What usually causes a failed check, and which checks build on which, for the end of a report."""

from collections.abc import Collection

CAUSES = {
    "chunks": "a chunk starts its state anew, or takes it from the wrong tokens, instead of reading it from the cache",
    "padding": "the first real token takes the state of the padding before it",
    "after_padding": "the cache stores the state of the last column, which is padding, not that of the last real token",
    "positions": "the state does not start again where position_ids do",
    "seq_idx": "the state does not start again where seq_idx changes",
    "cu_seqlens": "the state does not start again at cu_seq_lens_q",
    "mask_4d": "the state passes through what the mask hides, because only a mask [batch, token] is read",
    "embeds": "the code that makes the state reads input_ids, which are not there",
    "uneven": "a generated token takes the state of another sequence of the batch, or of padding",
    "interleaved": "the model holds the state, not the cache",
    "prefix": "a copy of the cache lacks the state, or shares it",
    "rollback": "crop removes keys and values, but not the state of the removed tokens",
    "assisted": "crop removes keys and values, but not the state of the rejected tokens",
    "beams": "reorder_cache moves keys and values, but not the state",
    "reorder": "reorder_cache moves keys and values, but not the state",
    "select": "batch_select_indices selects keys and values, but not the state",
    "repeat": "batch_repeat_interleave repeats keys and values, but not the state",
    "reset": "reset empties keys and values, but not the state",
    "static": "a step with a static cache reads or writes the wrong slot, or takes empty slots for tokens",
    "compiled": "a number of the first step is fixed in the compiled code, or the code has a branch for compilation",
    "window": "the state leaves the cache with the keys outside the window",
    "bf16": "the state is rounded more coarsely in the cache than in one pass",
    "gradient": "the state is detached, or its backward pass is wrong",
    "long": "one pass works in blocks, and does not pass the state from one to the next",
    "rows": "a row takes the state or the mask of another row",
    "packed_rows": "the documents of one row are used for all rows",
    "tree": "the cache gives each new token the state of the token that was read last, not that of its parent",
    "attention": "the state is computed in one implementation of attention only",
    "training": "the code has a branch for training, which reads other tokens",
    "autocast": "the state is skipped, or rounded too early, in autocast",
    "cached_gradient": "the state is detached when the cache stores it",
    "equation_5": "the taps are swapped, or the first token has the other rule",
    "identity": "the shift rounds, scales or reorders keys and values even where its taps are (1, 0)",
    "padded_chunk": "the mask of earlier chunks, or that of another sequence, is used for the new one",
    "parameters": "heads share taps, or taps belong to query heads",
    "taps_float32": "the taps are cast with the other weights",
    "lifecycle": "a config field or the taps are not saved, or the forward pass branches on the values of a tensor",
    "no_decay": "the names of the taps do not end in a name that Trainer exempts, such as norm",
}
"""The usual cause of a failure, keyed by the name of the check."""

BUILDS_ON = {
    "long": ("chunks",),
    "window": ("chunks",),
    "after_padding": ("chunks", "padding"),
    "rows": ("chunks", "padding"),
    "uneven": ("chunks", "padding"),
    "packed_rows": ("positions",),
    "mask_4d": ("chunks",),
    "tree": ("chunks", "mask_4d"),
    "assisted": ("chunks", "rollback"),
    "compiled": ("static",),
    "beams": ("chunks", "reorder"),
    "cached_gradient": ("chunks", "gradient"),
    "padded_chunk": ("chunks", "padding"),
    "lifecycle": ("padding",),
}
"""The checks whose failure may make another fail, keyed by the name of that other."""


def root(check: str, failed: Collection[str]) -> str:
    """Return the first of the failed checks that a failed check builds on, or the check itself."""
    earlier = [name for name in BUILDS_ON.get(check, ()) if name in failed]
    return root(earlier[0], failed) if earlier else check
