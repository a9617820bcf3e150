"""Checks of shifted keys and values. Each looks for a fault seen in public code.

Requirements of the model, besides those of `ihlab.hf.conformance`:

- it subclasses the unshifted model's class and uses its parameter names (or it has a method
  `unshifted()`);
- each attention, or its shift module, has `alpha` and `beta` [kv_head, window], with the current
  token in column 0;
- `config.shift_first` is "zero" or "own" (absent: "zero").

The checks draw these taps themselves. They compare the model with the unshifted one, to whose
projections a plain loop over tokens applies the shift.
"""

import copy
import tempfile
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ihlab.hf.conformance.compare import (
    CLOSE,
    Check,
    counted,
    demand,
    in_chunks,
    logits,
    off,
    off_alone,
    padded,
    same,
    tokens,
)
from ihlab.hf.model import unshifted


def taps_of(model: nn.Module, *names: str) -> list[Tensor]:
    """Return the taps of these names in a model; default: all alphas and betas."""
    found = {}
    for module, name in product(model.modules(), names or ("alpha", "beta")):
        taps = getattr(module, name, None)
        if isinstance(taps, Tensor) and taps.ndim == 2:
            found[id(taps)] = taps
    return list(found.values())


@torch.no_grad()
def draw_taps(model: Any) -> None:
    """Draw all taps from U(-1, 1)."""
    random = torch.Generator().manual_seed(1)
    for taps in taps_of(model):
        taps.copy_(torch.rand(taps.shape, generator=random) * 2 - 1)


def loop(weights: Tensor, first: str) -> Any:
    """Return a hook that mixes a projection's outputs, token by token, with weights [channel,
    tokens back].
    """

    def hook(module: nn.Module, args: Any, raw: Tensor) -> Tensor:
        mixed = torch.zeros_like(raw)
        for t in range(raw.shape[1]):
            for back in range(min(t + 1, weights.shape[1])):
                mixed[:, t] += weights[:, back] * raw[:, t - back]
        if first == "own":
            mixed[:, 0] = raw[:, 0]
        return mixed

    return hook


def shift_by_loop(model: Any) -> Any:
    """Return the oracle: the unshifted model, to whose projections a loop over tokens applies the
    shift.
    """
    plain, first = unshifted(model), getattr(model.config, "shift_first", "zero")
    ours, theirs = (
        [module for module in one.modules() if hasattr(module, "k_proj")] for one in (model, plain)
    )
    for shifted, attention in zip(ours, theirs, strict=True):
        for name, projection in (("alpha", attention.k_proj), ("beta", attention.v_proj)):
            for taps in taps_of(shifted, name):
                weights = taps.repeat_interleave(attention.head_dim, dim=0)
                projection.register_forward_hook(loop(weights, first))
    return plain


def equation_5(model: Any) -> None:
    """Compare the model with equation 5, computed by a loop over tokens."""
    rule = getattr(model.config, "shift_first", "zero")
    demand(rule in ("zero", "own"), f"config.shift_first is {rule!r}")
    model = model.double()
    ids = tokens(model, 2, 9)
    oracle = logits(shift_by_loop(model), ids)
    demand(
        off(logits(unshifted(model), ids), oracle) > 1e-3,
        "the shift hardly shows: give the model larger weights",
    )
    same(logits(model, ids), oracle, "against a loop over tokens in float64", 1e-10)


def identity(model: Any) -> None:
    """Check that identity taps leave the logits unchanged, bit for bit."""
    for taps in taps_of(model):
        taps.zero_()[:, 0] = 1
    ids, mask = padded(model, [9, 6], left=True)
    for given in (None, mask):
        result, right = (
            logits(one, ids, attention_mask=given) for one in (model, unshifted(model))
        )
        demand(torch.equal(result, right), "logits are not the unshifted model's, bit for bit")


def padded_chunk(model: Any) -> None:
    """Read a padded chunk after another padded chunk."""
    for left in (True, False):  # the second chunk is padded too
        parts = padded(model, [3, 1], left=True), padded(model, [2, 1], left)
        ids, mask = (torch.cat(both, dim=1) for both in zip(*parts, strict=True))
        for one in (unshifted(model), model):
            result = in_chunks(one, ids, [3, 2], mask=mask, position_ids=counted(mask))
            worst = off_alone(one, result, ids, mask)
            if worst > CLOSE and one is not model:
                break  # the unshifted model cannot do this either
            demand(worst <= CLOSE, f"after a second, padded chunk: logits differ by {worst:.1e}")


def parameters(model: Any) -> None:
    """Check that the shift adds taps for each key/value head, and no other parameters."""
    config, plain = model.config, unshifted(model)
    new = model.num_parameters() - plain.num_parameters()
    sides = sum(map(Tensor.numel, taps_of(model)))
    demand(new == sides, f"the shift adds {new} parameters, of which {sides} are taps")
    for taps in taps_of(model):
        heads, size = config.num_key_value_heads, getattr(config, "shift_window", 2)
        demand(
            taps.shape == (heads, size), f"taps are {list(taps.shape)}, for {heads} key/value heads"
        )


def taps_float32(model: Any) -> None:
    """Check that taps stay float32 in bf16 and fp16, and at most double the error of half
    precision.
    """
    before = [taps.detach().clone() for taps in taps_of(model)]
    plain, ids = unshifted(model), tokens(model, 4, 32)
    for dtype in (torch.bfloat16, torch.float16):
        errors = []
        for one in (model, plain):
            half = copy.deepcopy(one).to(dtype)
            errors.append(
                float(
                    (logits(half, ids).float() - logits(one, ids)).abs().mean()
                    / logits(one, ids).std()
                )
            )
            if one is model:
                unchanged = all(map(torch.equal, taps_of(half), before))
                demand(unchanged, f"taps are not the float32 ones after .to({dtype})")
        demand(
            errors[0] <= 2 * errors[1],
            f"{dtype}: an error of {errors[0]:.1e}, {errors[1]:.1e} without the shift",
        )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    demand(
        all(map(torch.equal, taps_of(loaded), before)),
        "taps are not the float32 ones when loaded in bf16",
    )


BACKEND = "inductor"
"""The backend of torch.compile in `lifecycle`."""


def lifecycle(model: Any) -> None:
    """Save, load and compile the model, resize its vocabulary, and train it."""
    ids, mask = padded(model, [9, 6], left=True)
    right = logits(model, ids, attention_mask=mask)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    demand(
        torch.equal(logits(loaded, ids, attention_mask=mask), right),
        "a loaded model's logits are not the saved one's",
    )
    size = model.config.vocab_size
    loaded.resize_token_embeddings(size + 8)
    result = logits(loaded, ids, attention_mask=mask)
    demand(result.shape[-1] == size + 8, "resize_token_embeddings leaves the logits as they are")
    same(result[..., :size], right, "after resize_token_embeddings")
    torch.compiler.reset()  # the limit of recompilations is per process
    compiled = torch.compile(model, fullgraph=True, backend=BACKEND)
    same(logits(compiled, ids), logits(model, ids), "compiled")
    same(logits(compiled, ids, attention_mask=mask), right, "compiled, with padding")
    trained(model)


def trained(model: Any) -> None:
    """Raise `FaultError` unless transformers' Trainer trains a model, including its taps, for 20
    steps.
    """
    from transformers import PrinterCallback, Trainer, TrainingArguments

    before = [x.detach().clone() for x in taps_of(model)]
    rows = [{"input_ids": row, "labels": row} for row in tokens(model, 4, 12)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=20,
            learning_rate=1e-2,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1,
        )
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    demand(
        len(losses) == 20 and losses[-1] < losses[0],
        f"20 steps of Trainer leave the loss at {losses[-1]}",
    )
    moved = all(not torch.equal(a, b) for a, b in zip(before, taps_of(model), strict=True))
    demand(moved, "20 steps of Trainer leave taps where they are")


def no_decay(model: Any) -> None:
    """Check that transformers' Trainer applies no weight decay to taps."""
    from transformers import Trainer

    taps, decayed = set(map(id, taps_of(model))), Trainer.get_decay_parameter_names(None, model)
    wrong = [name for name, x in model.named_parameters() if id(x) in taps and name in decayed]
    demand(not wrong, f"Trainer's weight decay acts on {', '.join(wrong[:2])}")


CHECKS: dict[str, Check] = {
    "equation_5": Check(
        "equals equation 5 as a loop over tokens",
        equation_5,
        "the taps are swapped, or the first token has the other rule",
    ),
    "identity": Check(
        "identity taps: the unshifted model's logits, bit for bit",
        identity,
        "the shift rounds, scales or reorders keys and values even where its taps are (1, 0)",
    ),
    "padded_chunk": Check(
        "a padded chunk after another: as the unshifted model's",
        padded_chunk,
        "the mask of earlier chunks, or that of another sequence, is used for the new one",
        ("chunks", "padding"),
    ),
    "parameters": Check(
        "taps of each key/value head, and no other parameters",
        parameters,
        "heads share taps, or taps belong to query heads",
    ),
    "taps_float32": Check(
        "bf16 and fp16: taps stay float32", taps_float32, "the taps are cast with the other weights"
    ),
    "lifecycle": Check(
        "save, load, resize, compile, Trainer",
        lifecycle,
        "a config field or the taps are not saved, or the forward pass branches on the values of a tensor",
        ("padding",),
    ),
    "no_decay": Check(
        "no weight decay on taps in Trainer",
        no_decay,
        "the names of the taps do not end in a name that Trainer exempts, such as norm",
    ),
}
