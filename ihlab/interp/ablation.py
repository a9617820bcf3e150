"""Zero-, mean- and resample-ablation of heads: a task's loss and accuracy without them."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformer_lens.hook_points import HookPoint

from ihlab.model.modes import evaluated
from ihlab.model.transformer import Transformer
from tasks import IGNORE, Batch
from tasks.config import choose, require

Head = tuple[int, int]
"""(layer, head), counted from 0."""

HOWS = ("zero", "mean", "resample")


def ablate_heads(
    model: Transformer, batch: Batch, heads: Sequence[Head], how: str = "mean", seed: int = 0
) -> dict[str, float]:
    """Return loss over targets and accuracy over answers with these heads ablated together.

    `how` names the replacement of their z, which is computed on the clean run:

    - "zero": zeros;
    - "mean": the head's mean z over all rows and all positions, one vector. It keeps the constant part on which the
      rest of the model may rely; a mean for each position would also keep positional information;
    - "resample": the head's z at the same position of another row, rows paired at random by `seed`. It stays
      in distribution, but its information is false.

    Without heads, the model is not changed. Hooks are removed afterwards. Raises `ConfigError` for a head that does
    not exist, an unknown `how`, a batch without targets or answers, or a single row to resample from.
    """
    return totals(ablated_rows(model, batch, heads, clean_z(model, batch), how, seed))


def ablation_sweep(model: Transformer, batch: Batch, how: str = "mean", seed: int = 0) -> pd.DataFrame:
    """Ablate every head alone. Columns: layer, head, how, loss_rise, loss_rise_error, accuracy_fall.

    `loss_rise_error` is the standard error of the rise over the batch's rows (a ratio of sums over rows).
    Raises what `ablate_heads` raises.
    """
    z = clean_z(model, batch)
    whole = ablated_rows(model, batch, [], z, how, seed)
    table = []
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            rows = ablated_rows(model, batch, [(layer, head)], z, how, seed)
            rise, error = _ratio(rows["loss"] - whole["loss"], rows["targets"])
            fall, _ = _ratio(whole["right"] - rows["right"], rows["answers"])
            table.append(
                {"layer": layer, "head": head, "how": how}
                | {"loss_rise": rise, "loss_rise_error": error, "accuracy_fall": fall}
            )
    return pd.DataFrame(table)


@evaluated
@torch.no_grad()
def clean_z(model: Transformer, batch: Batch) -> list[Float[Tensor, "batch pos head d_head"]]:
    """Return each layer's z on the clean run."""
    _, cache = model.run_with_cache(tokens_of(batch, model), names_filter=lambda name: name.endswith("hook_z"))
    return [cache["z", layer] for layer in range(model.cfg.n_layers)]


def ablated_rows(
    model: Transformer,
    batch: Batch,
    heads: Sequence[Head],
    z: list[Float[Tensor, "batch pos head d_head"]],
    how: str,
    seed: int = 0,
) -> pd.DataFrame:
    """Return `row_scores` with these heads ablated; `z` is that of the clean run (`clean_z`)."""
    check_heads(model, heads)
    hooks = []
    for layer in sorted({layer for layer, _ in heads}):
        those = [head for at, head in heads if at == layer]
        hooks.append((f"blocks.{layer}.attn.hook_z", replace_heads(those, replacement(z[layer], how, seed))))
    with model.hooks(fwd_hooks=hooks):
        return row_scores(model, batch)


def replacement(
    z: Float[Tensor, "batch pos head d_head"], how: str, seed: int = 0
) -> Float[Tensor, "batch pos head d_head"]:
    """Return the replacement of z under ablation; see `ablate_heads`."""
    choose("ablation", how, HOWS)
    if how == "zero":
        return torch.zeros_like(z)
    if how == "mean":
        return z.mean(dim=(0, 1), keepdim=True).expand_as(z)
    return another_row(z, seed)


def another_row(values: Float[Tensor, " batch *rest"], seed: int) -> Float[Tensor, " batch *rest"]:
    """Return for each row the values of another row, paired at random. Raises `ConfigError` for a single row."""
    require(len(values) >= 2, "The batch has one row, but resampling takes another row's values: it needs at least 2.")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(values)))
    source = torch.empty_like(order)
    source[order] = order.roll(1)  # one cycle through all rows: none is its own source
    return values[source.to(values.device)]


@evaluated
@torch.no_grad()
def row_scores(model: Transformer, batch: Batch) -> pd.DataFrame:
    """Score each row: `loss` summed over its `targets` (a count), and how many of its `answers` are `right`."""
    check_measurable(batch)
    logits = model(tokens_of(batch, model))
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
    """Loss over all targets and accuracy over all answers of `row_scores`."""
    total = {name: float(column.sum()) for name, column in rows.items()}
    return {"loss": total["loss"] / total["targets"], "accuracy": total["right"] / total["answers"]}


def check_heads(model: Transformer, heads: Sequence[Head]) -> None:
    """Raise `ConfigError` for a head that the model does not have."""
    layers, width = model.cfg.n_layers, model.cfg.n_heads
    for layer, head in heads:
        require(
            0 <= layer < layers and 0 <= head < width,
            f"There is no head {layer}.{head}: the model has layers 0 to {layers - 1} with heads 0 to {width - 1}.",
        )


def replace_heads(
    heads: list[int], values: Float[Tensor, "batch pos head d_head"]
) -> Callable[[Tensor, HookPoint], Tensor]:
    """Return a hook for hook_z that replaces these heads' z by `values`."""

    def hook(z: Tensor, hook: HookPoint) -> Tensor:
        replaced = z.clone()
        replaced[:, :, heads] = values[:, :, heads]
        return replaced

    return hook


def tokens_of(batch: Batch, model: Transformer) -> Int[Tensor, "batch pos"]:
    """Return the batch's tokens on the model's device."""
    return torch.from_numpy(np.ascontiguousarray(batch.inputs)).to(model.embed.weight.device)


def _ratio(amounts: pd.Series, counts: pd.Series) -> tuple[float, float]:
    """sum(amounts) / sum(counts) over independent rows, and its standard error to first order."""
    ratio = amounts.sum() / counts.sum()
    spread = (amounts - ratio * counts).std(ddof=1) * len(amounts) ** 0.5
    return float(ratio), float(spread / counts.sum())
