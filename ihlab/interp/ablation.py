"""Zero-, mean- and resample-ablation of heads: a task's loss and accuracy without them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ihlab.interp.circuits import require_heads
from ihlab.interp.head_model import HeadModel
from ihlab.interp.sources import opened_model
from tasks import IGNORE, Batch
from tasks.config import choose, require

Head = tuple[int, int]
"""(layer, head), counted from 0."""

HOWS = ("zero", "mean", "resample")

NEEDED = "heads are ablated by running a model without them"


def ablate_heads(model: Any, batch: Batch, heads: Sequence[Head], how: str = "mean", seed: int = 0) -> dict[str, float]:
    """Return loss over targets and accuracy over answers with these heads ablated together.

    `model` is a `Run`, a `Transformer`, a `TransformerBridge` or a Hugging Face causal LM, whose z is the input of
    attention's output projection.

    `how` names the replacement of their z, which is computed on the clean run:

    - "zero": zeros;
    - "mean": the head's mean z over all sequences and positions, one vector. It keeps the constant part on which the
      rest of the model may rely; a mean for each position would also keep positional information;
    - "resample": the head's z at the same position of another sequence, paired at random by `seed`. It stays
      in distribution, but its information is false.

    Without heads, the model is not changed. Hooks are removed afterwards. Raises `ConfigError` for a head that does
    not exist, an unknown `how`, a batch without targets or answers, a single sequence to resample from, and patterns
    that are given without a model.
    """
    model = opened_model(model, NEEDED)
    return totals(_ablated_rows(model, batch, heads, model.z(tokens_of(batch)), how, seed))


def ablation_sweep(model: Any, batch: Batch, how: str = "mean", seed: int = 0) -> pd.DataFrame:
    """Ablate every head alone. Columns: layer, head, how, loss_rise, loss_rise_error, accuracy_fall.

    `loss_rise_error` is the standard error of the rise over the batch's sequences (a ratio of sums over sequences).
    `model` is as in `ablate_heads`, and so is what is raised.
    """
    model = opened_model(model, NEEDED)
    z = model.z(tokens_of(batch))
    whole = _ablated_rows(model, batch, [], z, how, seed)
    table = []
    for layer in range(model.n_layers):
        for head in range(model.n_heads):
            rows = _ablated_rows(model, batch, [(layer, head)], z, how, seed)
            rise, error = _ratio(rows["loss"] - whole["loss"], rows["targets"])
            fall, _ = _ratio(whole["right"] - rows["right"], rows["answers"])
            table.append(
                {"layer": layer, "head": head, "how": how}
                | {"loss_rise": rise, "loss_rise_error": error, "accuracy_fall": fall}
            )
    return pd.DataFrame(table)


def _ablated_rows(
    model: HeadModel,
    batch: Batch,
    heads: Sequence[Head],
    z: list[Float[Tensor, "batch pos head d_head"]],
    how: str,
    seed: int,
) -> pd.DataFrame:
    """Return `row_scores` with these heads ablated; `z` is that of the clean run."""
    require_heads(model, heads)
    replace = {}
    for layer in sorted({layer for layer, _ in heads}):
        those = [head for at, head in heads if at == layer]
        replace[layer] = replaced(those, replacement(z[layer], how, seed))
    with model.replacing(replace):
        return row_scores(model, batch)


def replacement(
    z: Float[Tensor, "batch pos head d_head"], how: str, seed: int = 0, mean_over: tuple[int, ...] = (0, 1)
) -> Float[Tensor, "batch pos head d_head"]:
    """Return the replacement of z under ablation; see `ablate_heads`. Raises `ConfigError` as that does."""
    choose("ablation", how, HOWS)
    if how == "zero":
        return torch.zeros_like(z)
    if how == "mean":
        return z.mean(dim=mean_over, keepdim=True).expand_as(z)
    require(len(z) >= 2, "The batch has one row, but resampling takes another row's values: it needs at least 2.")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(z)))
    source = torch.empty_like(order)
    source[order] = order.roll(1)  # one cycle through all sequences: none is its own source
    return z[source.to(z.device)]


def row_scores(model: Any, batch: Batch) -> pd.DataFrame:
    """Score each sequence: `loss` summed over its `targets` (a count), and how many of its `answers` are `right`."""
    check_measurable(batch)
    logits = opened_model(model, NEEDED).logits(tokens_of(batch))
    targets = torch.from_numpy(np.ascontiguousarray(batch.targets)).to(logits.device)
    losses = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE, reduction="none")
    hit = logits.argmax(dim=-1).cpu().numpy() == batch.answers  # never where the answer is IGNORE
    return pd.DataFrame(
        {
            "loss": losses.double().sum(dim=1).cpu().numpy(),
            "targets": (batch.targets != IGNORE).sum(axis=1),
            "right": hit.sum(axis=1),
            "answers": (batch.answers != IGNORE).sum(axis=1),
        }
    )


def check_measurable(batch: Batch) -> None:
    """Raise `ConfigError` for a batch on which loss or accuracy cannot be measured."""
    for name in ("targets", "answers"):
        require(
            bool((getattr(batch, name) != IGNORE).any()), f"The batch has no {name}: nothing can be measured on it."
        )


def totals(rows: pd.DataFrame) -> dict[str, float]:
    """Return loss over all targets and accuracy over all answers of `row_scores`."""
    total = {name: float(column.sum()) for name, column in rows.items()}
    return {"loss": total["loss"] / total["targets"], "accuracy": total["right"] / total["answers"]}


def replaced(heads: list[int], values: Float[Tensor, "batch pos head d_head"]) -> Callable[[Tensor], Tensor]:
    """Return a function of z that replaces these heads' z by `values`."""

    def function(z: Tensor) -> Tensor:
        changed = z.clone()
        changed[:, :, heads] = values[:, :, heads].to(z)
        return changed

    return function


def tokens_of(batch: Batch) -> Int[Tensor, "batch pos"]:
    """Return the batch's tokens."""
    return torch.from_numpy(np.ascontiguousarray(batch.inputs))


def _ratio(amounts: pd.Series, counts: pd.Series) -> tuple[float, float]:
    """Return sum(amounts) / sum(counts) over independent sequences, and its standard error to first order."""
    ratio = amounts.sum() / counts.sum()
    spread = (amounts - ratio * counts).std(ddof=1) * len(amounts) ** 0.5
    return float(ratio), float(spread / counts.sum())
