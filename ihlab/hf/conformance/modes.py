"""Checks of the ways to run a model: implementations of attention, training mode, autocast and
bf16.
"""

import copy
import tempfile
from typing import Any

import torch
from torch import Tensor

from ihlab.hf.conformance.compare import (
    Check,
    NotApplicableError,
    demand,
    in_chunks,
    logits,
    padded,
    same,
    takes,
    tokens,
)
from ihlab.hf.conformance.packing import ALL, collated

SIZES = [4, 5]
"""Documents of the packed sequences."""


def inputs_of(model: Any) -> list[tuple[str, Tensor, dict[str, Any], Tensor]]:
    """Return inputs of each kind: its name, tokens, arguments, and which tokens count. Refused ones
    are left out.
    """
    ids, mask = padded(model, [9, 6], left=True)
    every = torch.ones_like(mask)
    kinds = [("", ids, {}, every), ("padded on the left, ", ids, {"attention_mask": mask}, mask)]
    if takes(model, "position_ids"):
        kinds += [("packed, ", ids[:1], collated(SIZES, **given), every[:1]) for given in ({}, ALL)]
    accepted = []
    for kind in kinds:
        try:
            logits(model, kind[1], **kind[2])
        except Exception:  # another check says so
            continue
        accepted.append(kind)
    return accepted


def attention(model: Any) -> None:
    """Run eager and fused attention, in one pass and in chunks."""
    kinds, results = inputs_of(model), {}
    for name in ("eager", "sdpa"):
        one = copy.deepcopy(model)
        try:
            one.set_attn_implementation(name)
            parts = [logits(one, ids, **given)[real.bool()] for _, ids, given, real in kinds]
        except (ValueError, ImportError):
            continue
        results[name] = [*parts, in_chunks(one, tokens(one, 2, 8), [4, 1, 3])]
    if len(results) < 2:
        raise NotApplicableError("it has one implementation of attention")
    for eager, fused in zip(*results.values(), strict=True):
        same(eager, fused, "eager and fused attention")


def without_dropout(model: Any) -> Any:
    """Set all probabilities of dropout, and noise in a router, to 0, in place, and return the
    model.
    """
    for owner in (model.config, *model.modules()):
        for name, value in list(vars(owner).items()):
            random = isinstance(owner, torch.nn.Dropout) and name == "p"
            if isinstance(value, float) and (
                random or any(part in name for part in ("dropout", "layerdrop", "jitter"))
            ):
                setattr(owner, name, 0.0)
    return model


@torch.enable_grad()
def training(model: Any) -> None:
    """Compare training mode without dropout with evaluation mode, and change tokens that earlier
    ones must not see.
    """
    kinds = inputs_of(model)
    right = [logits(model, ids, **given) for _, ids, given, _ in kinds]
    ids = kinds[0][1]
    later = torch.cat([ids[:, :5], ids[:, 5:].flip(0)], dim=1)
    model, gradients = without_dropout(model).train(), []
    for checkpointing in (False, True):
        if checkpointing and not model.supports_gradient_checkpointing:
            break
        if checkpointing:
            getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
        where = f"in training mode{', with gradient checkpointing' * checkpointing}"
        for labels in ({}, {"labels": ids}):
            earlier = logits(model, later, **labels)[:, :5]
            same(earlier, logits(model, ids, **labels)[:, :5], f"{where}, tokens see later ones")
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        of_weights = torch.autograd.grad(loss, weights, materialize_grads=True)
        gradients.append(torch.cat([gradient.flatten() for gradient in of_weights]))
        same(gradients[-1], gradients[0], f"{where}, other gradients")
        for (what, given_ids, given, real), expected in zip(kinds, right, strict=True):
            result = logits(model, given_ids, **given)
            same(
                result[real.bool()], expected[real.bool()], f"{what}{where} and in evaluation mode"
            )


def _mean(result: Tensor, right: Tensor) -> float:
    """Return the mean error, as a fraction of the logits' standard deviation."""
    return float((result.float() - right).abs().mean() / right.std())


def bf16(model: Any) -> None:
    """Load the model in bf16 and read token by token: as near to float32 as one pass in bf16 is."""
    ids = tokens(model, 4, 32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        half = type(model).from_pretrained(folder, dtype=torch.bfloat16).eval()
    once = _mean(logits(half, ids), logits(model, ids))
    steps = _mean(in_chunks(half, ids, [1] * 32), in_chunks(model, ids, [1] * 32))
    demand(
        steps <= 1.5 * once,
        f"in bf16, a mean error of {steps:.1e} token by token, {once:.1e} in one pass",
    )


def autocast(model: Any) -> None:
    """Run in autocast, in one pass and token by token: as near to float32 as weights in bf16 are."""
    ids, sizes = tokens(model, 4, 16), [1] * 16
    right, steps = logits(model, ids), in_chunks(model, ids, sizes)
    rounded = copy.deepcopy(model)
    for weight in rounded.parameters():
        weight.copy_(weight.bfloat16())
    most = AUTOCAST * _mean(logits(rounded, ids), right)
    with torch.autocast("cpu", torch.bfloat16):
        errors = _mean(logits(model, ids), right), _mean(in_chunks(model, ids, sizes), steps)
    for what, error in zip(("one pass", "token by token"), errors, strict=True):
        demand(
            error <= most,
            f"in autocast, {what}: a mean error of {error:.1e} of the logits' standard deviation",
        )


AUTOCAST = 6
"""Largest error in autocast, as a multiple of the error with rounded weights."""
CHECKS: dict[str, Check] = {
    "attention": Check(
        "eager attention: as fused attention",
        attention,
        "the state is computed in one implementation of attention only",
    ),
    "training": Check(
        "training mode without dropout: as evaluation mode, and no token sees a later one",
        training,
        "the code has a branch for training, which reads other tokens",
    ),
    "bf16": Check(
        "bf16 token by token: as exact as one pass",
        bf16,
        "the state is rounded more coarsely in the cache than in one pass",
    ),
    "autocast": Check(
        "autocast: nearly as float32",
        autocast,
        "the state is skipped, or rounded too early, in autocast",
    ),
}
