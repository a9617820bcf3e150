"""Sixteen checks of an implementation of shifted keys and values. Each is about a fault seen in public code.

    python -m ihlab.hf.conformance my_module:make_model

`make_model()` returns a shifted Hugging Face causal LM, small enough to be run often. Requirements:

- it subclasses the unshifted model's class and uses its parameter names (or it has a method `unshifted()`);
- each attention, or its shift module, has `alpha` and `beta` [kv_head, window], with the current token in column 0;
- `config.shift_first` is "zero" or "own" (absent: "zero"); `config.shift_rule` "taps" or "partial_key_offset";
- its weights are large enough that the shift shows in the logits (for a small random model, initializer_range=0.3).

The suite draws the taps itself. It compares the model with the unshifted one, whose projections a loop over tokens
shifts, or with the model's own result in a simpler setting: the whole sequence at once, a document alone, no cache.
"""

import copy
import importlib
import math
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ihlab.hf.model import unshifted
from tasks.config import require

MakeModel = Callable[[], Any]
CLOSE = 1e-5
"""Largest difference of float32 logits, as a fraction of the largest logit (at least 1)."""


class Result(NamedTuple):
    """The outcome of one check: "pass", "FAIL" or "-" (does not apply), and why."""

    number: int
    requirement: str
    outcome: str
    detail: str = ""


class NotApplicableError(Exception):
    """A check does not apply to this model."""


class FaultError(AssertionError):
    """The requirement of a check is not met."""


def demand(condition: bool, message: str) -> None:
    """Raise `FaultError` unless a condition holds."""
    if not condition:
        raise FaultError(message)


# Helpers of the checks


def taps_of(model: nn.Module) -> list[Tensor]:
    """Return all alphas and betas of a model."""
    found = [getattr(part, name, None) for part in model.modules() for name in ("alpha", "beta")]
    return list({id(taps): taps for taps in found if isinstance(taps, Tensor) and taps.ndim == 2}.values())


def with_taps(model: nn.Module) -> list[Tensor]:
    """Return all alphas and betas. Raises `NotApplicableError` for a model without any."""
    if not taps_of(model):
        raise NotApplicableError("it has no taps")
    return taps_of(model)


@torch.no_grad()
def prepared(make: MakeModel, identity: bool = False) -> Any:
    """Return a fresh model in evaluation mode, with random taps or with identity taps."""
    model = make().eval()
    random = torch.Generator().manual_seed(1)
    for taps in taps_of(model):
        taps.copy_(torch.rand(taps.shape, generator=random) * 2 - 1)
        if identity:
            taps.zero_()[:, 0] = 1
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model


def shift_by_loop(model: Any) -> Any:
    """Return the oracle: the unshifted model, with projections that a loop over tokens shifts."""
    plain, first = unshifted(model), getattr(model.config, "shift_first", "zero")
    ours = [part for part in model.modules() if hasattr(part, "k_proj") and hasattr(part, "v_proj")]
    theirs = [part for part in plain.modules() if hasattr(part, "k_proj") and hasattr(part, "v_proj")]

    def looped(taps: Tensor, d_head: int) -> Any:
        def hook(module: nn.Module, args: Any, raw: Tensor) -> Tensor:
            mixed = torch.zeros_like(raw)
            for row in range(raw.shape[0]):
                for t in range(raw.shape[1]):
                    for head, weights in enumerate(taps.tolist()):
                        channels = slice(head * d_head, (head + 1) * d_head)
                        for back, weight in enumerate(weights):
                            if t >= back:
                                mixed[row, t, channels] += weight * raw[row, t - back, channels]
                        if t == 0 and first == "own":
                            mixed[row, t, channels] = raw[row, t, channels]
            return mixed

        return hook

    def offset(d_head: int) -> Any:
        def hook(module: nn.Module, args: Any, raw: Tensor) -> Tensor:
            mixed = raw.clone()
            for channel in range(raw.shape[2]):
                if 4 * (channel % d_head) // d_head in (1, 3):
                    mixed[:, 1:, channel] = raw[:, :-1, channel]
                    mixed[:, 0, channel] = raw[:, 0, channel] if first == "own" else 0
            return mixed

        return hook

    def stopped(module: Any, args: Any, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        cos, sin = angles[0].clone(), angles[1].clone()
        for channel in range(cos.shape[-1]):
            if 4 * channel // cos.shape[-1] in (1, 3):
                cos[..., channel], sin[..., channel] = module.attention_scaling, 0.0
        return cos, sin

    for shifted, plain_attention in zip(ours, theirs, strict=True):
        holder = next((part for part in shifted.modules() if isinstance(getattr(part, "alpha", None), Tensor)), None)
        holder = holder or next((p for p in shifted.modules() if isinstance(getattr(p, "beta", None), Tensor)), None)
        for name, projection in (("alpha", plain_attention.k_proj), ("beta", plain_attention.v_proj)):
            taps = getattr(holder, name, None)
            if isinstance(taps, Tensor):
                projection.register_forward_hook(looped(taps, plain_attention.head_dim))
        if getattr(model.config, "shift_rule", "taps") == "partial_key_offset":
            plain_attention.k_proj.register_forward_hook(offset(plain_attention.head_dim))
    if getattr(model.config, "shift_rule", "taps") == "partial_key_offset":
        plain.base_model.rotary_emb.register_forward_hook(stopped)
    return plain


def tokens(model: Any, rows: int, length: int, seed: int = 0) -> Tensor:
    """Return random tokens [rows, length], none of them 0."""
    return torch.randint(1, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, ids: Tensor, **inputs: Any) -> Tensor:
    """Return the logits of a forward pass without a cache."""
    return model(input_ids=ids, use_cache=False, **inputs).logits


def off(found: Tensor, right: Tensor) -> float:
    """Return the largest difference, as a fraction of the largest correct value (at least 1). Infinite for NaN."""
    difference = ((found - right).abs().max() / right.abs().max().clamp(min=1)).item()
    return math.inf if math.isnan(difference) else difference


def same(found: Tensor, right: Tensor, what: str, most: float = CLOSE) -> None:
    """Raise `FaultError` unless two results agree."""
    demand(off(found, right) <= most, f"{what}: logits differ by {off(found, right):.1e}")


def read(model: Any, cache: Any, ids: Tensor, **inputs: Any) -> tuple[Tensor, Any]:
    """Return the logits of the next tokens, and the cache with them."""
    output = model(input_ids=ids, past_key_values=cache, use_cache=True, **inputs)
    return output.logits, output.past_key_values


def in_chunks(model: Any, ids: Tensor, sizes: Iterable[int], cache: Any = None) -> Tensor:
    """Return the logits of tokens that are read in chunks, with an optional cache of earlier tokens."""
    found = []
    for chunk in ids.split(list(sizes), dim=1):
        part, cache = read(model, cache, chunk)
        found.append(part)
    return torch.cat(found, dim=1)


def padded(model: Any, lengths: list[int], left: bool) -> tuple[Tensor, Tensor, list[slice]]:
    """Return tokens and mask [rows, longest], and each sequence's slice. Padding consists of random tokens."""
    ids = tokens(model, len(lengths), max(lengths), seed=3)
    places = [slice(max(lengths) - n, max(lengths)) if left else slice(0, n) for n in lengths]
    mask = torch.zeros_like(ids)
    for row, place in enumerate(places):
        mask[row, place] = 1
    return ids, mask, places


def counted(mask: Tensor) -> Tensor:
    """Return position numbers that do not count padding, as `generate` computes them."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


# The checks


def equation_5(make: MakeModel, backend: str) -> None:
    """1: equation 5 by a loop."""
    model = prepared(make).double()
    ids = tokens(model, 2, 9)
    oracle = logits(shift_by_loop(model), ids)
    demand(off(logits(unshifted(model), ids), oracle) > 1e-3, "the shift hardly shows: give the model larger weights")
    same(logits(model, ids), oracle, "against a loop over tokens in float64", 1e-10)


def identity(make: MakeModel, backend: str) -> None:
    """2: identity taps change nothing."""
    model = prepared(make, identity=True)
    with_taps(model)
    ids, mask, _ = padded(model, [9, 6], left=True)
    plain = unshifted(model)
    demand(torch.equal(logits(model, ids), logits(plain, ids)), "logits are not the unshifted model's, bit for bit")
    found, right = (logits(one, ids, attention_mask=mask) for one in (model, plain))
    demand(torch.equal(found, right), "with padding, logits are not the unshifted model's, bit for bit")


def chunks(make: MakeModel, backend: str) -> None:
    """3: chunks of any size."""
    model = prepared(make)
    ids = tokens(model, 2, 10)
    for sizes in ([1] * 10, [5, 5], [1, 4, 5], [8, 1, 1], [3, 2, 2, 3]):
        same(in_chunks(model, ids, sizes), logits(model, ids), f"in chunks of {sizes}")


def padding(make: MakeModel, backend: str) -> None:
    """4: padding on both sides."""
    model = prepared(make)
    for lengths in ([9, 6, 2], [9, 8]):
        for left in (True, False):
            ids, mask, places = padded(model, lengths, left)
            for rows in (slice(None), slice(1, 2)):
                for positions in (None, counted(mask[rows])):
                    found = logits(model, ids[rows], attention_mask=mask[rows], position_ids=positions)
                    for row, alone, place in zip(found, ids[rows], places[rows], strict=True):
                        right = logits(model, alone[None, place])[0]
                        same(row[place], right, f"padded on the {'left' if left else 'right'}")


def packed(make: MakeModel, backend: str) -> None:
    """5: packed documents."""
    model = prepared(make)
    sizes = [4, 1, 5, 2]
    ids = tokens(model, 1, sum(sizes))
    positions = torch.cat([torch.arange(n) for n in sizes])[None]
    found = logits(model, ids, position_ids=positions).split(sizes, dim=1)
    for number, (row, alone) in enumerate(zip(found, ids.split(sizes, dim=1), strict=True)):
        same(row, logits(model, alone), f"document {number} of a packed sequence")


def uneven(make: MakeModel, backend: str) -> None:
    """6: decoding rows of different lengths."""
    model = prepared(make)
    ids, mask, places = padded(model, [7, 4, 2], left=True)
    many = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    for row, place, new in zip(ids, places, many[:, 7:], strict=True):
        alone = model.generate(row[None, place], max_new_tokens=5, do_sample=False)[0, -5:]
        demand(torch.equal(new, alone), "a batch padded on the left generates other tokens than its sequences alone")
    for left in (True, False):  # the second chunk is padded too
        ids, mask, places = padded(model, [3, 1], left=True)
        more, wide, further = padded(model, [2, 1], left)
        both = torch.cat([mask, wide], dim=1)
        for one in (unshifted(model), model):
            _, cache = read(one, None, ids, attention_mask=mask, position_ids=counted(mask))
            found, _ = read(one, cache, more, attention_mask=both, position_ids=counted(both)[:, 3:])
            right = [
                logits(one, torch.cat([ids[row, places[row]], more[row, further[row]]])[None])[
                    0, places[row].stop - places[row].start :
                ]
                for row in range(2)
            ]
            worst = max(off(found[row, further[row]], right[row]) for row in range(2))
            if worst > CLOSE and one is not model:
                break  # the unshifted model cannot do this either
            demand(worst <= CLOSE, f"after a second, padded chunk: logits differ by {worst:.1e}")


def interleaved(make: MakeModel, backend: str) -> None:
    """7: two generations at once."""
    model = prepared(make)
    ids = tokens(model, 2, 8)
    caches: list[Any] = [None, None]
    found: list[list[Tensor]] = [[], []]
    for part in ids.split(2, dim=1):
        for which in (0, 1):
            out, caches[which] = read(model, caches[which], part[which : which + 1])
            found[which].append(out)
    for which in (0, 1):
        same(torch.cat(found[which], dim=1), logits(model, ids[which : which + 1]), "two interleaved sequences")


def rollback(make: MakeModel, backend: str) -> None:
    """8: crop and assisted generation."""
    model = prepared(make)
    ids, other = tokens(model, 1, 14), tokens(model, 1, 14, seed=5)
    for gone, step in ((3, 3), (2, 3), (3, 1)):
        _, cache = read(model, None, ids[:, :8])
        cache.activate_past_recording()
        for part in ids[:, 8:11].split(step, dim=1):
            _, cache = read(model, cache, part)
        cache.crop(-gone)
        found, _ = read(model, cache, other)
        right = logits(model, torch.cat([ids[:, : 11 - gone], other], dim=1))[:, 11 - gone :]
        same(found, right, f"after crop(-{gone})")
    helper = copy.deepcopy(model)
    with torch.no_grad():
        helper.lm_head.weight.add_(
            helper.lm_head.weight.std()
            * torch.randn(helper.lm_head.weight.shape, generator=torch.Generator().manual_seed(2))
        )
    greedy = model.generate(ids, max_new_tokens=12, do_sample=False)
    for what, options in (
        ("an assistant", {"assistant_model": helper}),
        ("prompt look-up", {"prompt_lookup_num_tokens": 3}),
    ):
        found = model.generate(ids, max_new_tokens=12, do_sample=False, **options)
        demand(torch.equal(found, greedy), f"with {what}, other tokens than greedy decoding")


def beams(make: MakeModel, backend: str) -> None:
    """9: beams and returned sequences."""
    model = prepared(make)
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
        "batch_repeat_interleave": (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1]),
        "batch_select_indices": (lambda cache: cache.batch_select_indices(torch.tensor([1])), [1]),
    }
    for what, (change, rows) in changes.items():
        _, cache = read(model, None, ids)
        change(cache)
        more = tokens(model, len(rows), 2, seed=4)
        found, _ = read(model, cache, more)
        same(found, logits(model, torch.cat([ids[rows], more], dim=1))[:, 5:], f"after {what}")


def window(make: MakeModel, backend: str) -> None:
    """10: sliding-window attention."""
    model = prepared(make)
    width = getattr(model.config, "sliding_window", None)
    if not width or "sliding_attention" not in getattr(model.config, "layer_types", ["sliding_attention"]):
        raise NotApplicableError("it has no sliding window")
    ids = tokens(model, 2, width + 7)
    right = logits(model, ids)
    for sizes in ([1] * (width + 7), [width, 7], [width + 3, 1, 1, 2], [width - 1, 1, 7]):
        same(in_chunks(model, ids, sizes), right, f"beyond a window of {width}, in chunks of {sizes}")


def first_token(make: MakeModel, backend: str) -> None:
    """11: the first token's rule."""
    model = prepared(make).double()
    rule = getattr(model.config, "shift_first", "zero")
    demand(rule in ("zero", "own"), f"config.shift_first is {rule!r}")
    ids = tokens(model, 1, 3)
    right = logits(shift_by_loop(model), ids)
    same(logits(model, ids)[:, :1], right[:, :1], f"the first token under the rule {rule!r}", 1e-10)
    ahead = torch.cat([ids, ids], dim=1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1]])
    found = logits(model, ahead, attention_mask=mask, position_ids=counted(mask))[:, 3:4]
    same(found, right[:, :1], f"the first token after padding under the rule {rule!r}")
    found = logits(model, ahead, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]))[:, 3:4]
    same(found, right[:, :1], f"the first token of a packed document under the rule {rule!r}")


def parameters(make: MakeModel, backend: str) -> None:
    """12: taps for each key/value head."""
    model = prepared(make)
    config, plain = model.config, unshifted(model)
    new = sum(x.numel() for x in model.parameters()) - sum(x.numel() for x in plain.parameters())
    sides = sum(taps.numel() for taps in taps_of(model))
    demand(new == sides, f"the shift adds {new} parameters, of which {sides} are taps")
    for taps in taps_of(model):
        heads, size = config.num_key_value_heads, getattr(config, "shift_window", 2)
        demand(taps.shape == (heads, size), f"taps are {list(taps.shape)}, for {heads} key/value heads")


def half_precision(make: MakeModel, backend: str) -> None:
    """13: bf16 and fp16."""
    model = prepared(make)
    with_taps(model)
    before = [taps.detach().clone() for taps in taps_of(model)]
    plain, ids = unshifted(model), tokens(model, 4, 32)
    for dtype in (torch.bfloat16, torch.float16):
        errors = []
        for one in (model, plain):
            half = copy.deepcopy(one).to(dtype)
            errors.append(float((logits(half, ids).float() - logits(one, ids)).abs().mean() / logits(one, ids).std()))
            if one is model:
                kept = all(map(torch.equal, taps_of(half), before))
                demand(kept, f"taps are not the float32 ones after .to({dtype})")
        demand(errors[0] <= 2 * errors[1], f"{dtype}: an error of {errors[0]:.1e}, {errors[1]:.1e} without the shift")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    demand(all(map(torch.equal, taps_of(loaded), before)), "taps are not the float32 ones when loaded in bf16")


def lifecycle(make: MakeModel, backend: str) -> None:
    """14: save, load, resize, compile, checkpoint, train."""
    model = prepared(make)
    ids, mask, _ = padded(model, [9, 6], left=True)
    right = logits(model, ids, attention_mask=mask)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    demand(
        torch.equal(logits(loaded, ids, attention_mask=mask), right), "a loaded model's logits are not the saved one's"
    )
    size = model.config.vocab_size
    loaded.resize_token_embeddings(size + 8)
    found = logits(loaded, ids, attention_mask=mask)
    demand(found.shape[-1] == size + 8, "resize_token_embeddings leaves the logits as they are")
    same(found[..., :size], right, "after resize_token_embeddings")
    torch.compiler.reset()  # the limit of recompilations is per process
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    same(logits(compiled, ids), logits(model, ids), "compiled")
    same(logits(compiled, ids, attention_mask=mask), right, "compiled, with padding")
    gradients = []
    for checkpointing in (False, True):
        one = copy.deepcopy(model).train()
        if checkpointing:
            one.gradient_checkpointing_enable()
        one(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        gradients.append([x.grad for x in one.parameters() if x.grad is not None])
    demand(len(gradients[0]) == len(list(model.parameters())), "some parameters get no gradient")
    same_all = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))
    demand(same_all, "gradients differ under gradient checkpointing")
    trained(model)


def trained(model: Any) -> None:
    """Raise `FaultError` unless transformers' Trainer trains a model, including its taps, for 20 steps."""
    from transformers import Trainer, TrainingArguments

    before = [x.detach().clone() for x in taps_of(model)]
    rows = [{"input_ids": row, "labels": row} for row in tokens(model, 4, 12)]
    with tempfile.TemporaryDirectory() as folder:
        given = {"output_dir": folder, "max_steps": 20, "learning_rate": 1e-2, "report_to": [], "save_strategy": "no"}
        arguments = TrainingArguments(**given, use_cpu=True, disable_tqdm=True, logging_steps=1)
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    demand(len(losses) == 20 and losses[-1] < losses[0], f"20 steps of Trainer leave the loss at {losses[-1]}")
    moved = all(not torch.equal(a, b) for a, b in zip(before, taps_of(model), strict=True))
    demand(moved, "20 steps of Trainer leave taps where they are")


def no_decay(make: MakeModel, backend: str) -> None:
    """15: no weight decay on taps."""
    from transformers import Trainer

    model = prepared(make)
    taps = {id(x) for x in with_taps(model)}
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    wrong = [name for name, x in model.named_parameters() if id(x) in taps and name in decayed]
    demand(not wrong, f"Trainer's weight decay acts on {', '.join(wrong[:2])}")


def prefix(make: MakeModel, backend: str) -> None:
    """16: a cached prompt continued twice."""
    model = prepared(make)
    prompt = tokens(model, 1, 6)
    _, cache = read(model, None, prompt)
    for seed in (6, 7):
        more = tokens(model, 1, 4, seed)
        found = in_chunks(model, more, [2, 2], copy.deepcopy(cache))
        same(found, logits(model, torch.cat([prompt, more], dim=1))[:, 6:], "a copied cache of a prompt, continued")


ROWS: dict[int, tuple[str, Callable[[MakeModel, str], None]]] = {
    1: ("equals equation 5 as a loop over tokens", equation_5),
    2: ("identity taps: the unshifted model's logits, bit for bit", identity),
    3: ("one pass = token by token = chunks of any sizes", chunks),
    4: ("padding on the left and right: each sequence as alone", padding),
    5: ("packed documents: each as alone", packed),
    6: ("decoding sequences of different lengths: each as alone", uneven),
    7: ("two interleaved generations do not disturb each other", interleaved),
    8: ("crop and assisted generation: as greedy decoding", rollback),
    9: ("beams and returned sequences: the cache is reordered", beams),
    10: ("sliding window: the raw key before it survives", window),
    11: ("the first token follows config.shift_first", first_token),
    12: ("taps of each key/value head, and no other parameters", parameters),
    13: ("bf16 and fp16: taps stay float32", half_precision),
    14: ("save, load, resize, compile, checkpoint, Trainer", lifecycle),
    15: ("no weight decay on taps in Trainer", no_decay),
    16: ("a cached prompt continued twice", prefix),
}
"""The requirement and the check function, by number."""


def run(make: MakeModel, rows: Iterable[int] = tuple(ROWS), backend: str = "inductor") -> list[Result]:
    """Return the outcome of each check for the models that `make()` returns; `backend` is torch.compile's."""
    results = []
    for number in rows:
        requirement, check = ROWS[number]
        outcome, detail = "pass", ""
        try:
            with torch.set_grad_enabled(check is lifecycle):
                check(make, backend)
        except NotApplicableError as reason:
            outcome, detail = "-", str(reason)
        except Exception as error:  # an implementation may fail in any way
            said = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
            outcome, detail = "FAIL", str(error) if isinstance(error, FaultError) else said
        results.append(Result(number, requirement, outcome, detail))
    return results


def table(results: Iterable[Result]) -> str:
    """Return results as text, one line per check."""
    return "\n".join(
        f"{row.number:>2}  {row.outcome:<4}  {row.requirement}{': ' if row.detail else ''}{row.detail}"
        for row in results
    )


def main(arguments: list[str]) -> int:
    """Print the table of `module:function`, and return 1 if a check fails."""
    require(
        len(arguments) == 1 and arguments[0].count(":") == 1, "Usage: python -m ihlab.hf.conformance module:function"
    )
    module, function = arguments[0].split(":")
    results = run(getattr(importlib.import_module(module), function))
    print(table(results))
    return int(any(row.outcome == "FAIL" for row in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
