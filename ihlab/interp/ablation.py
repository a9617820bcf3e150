"""Zero-, mean- or resample-ablate heads, and measure the task's loss and accuracy."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ihlab.interp.checks import require_heads
from ihlab.interp.head_model import HeadModel
from ihlab.interp.sources import opened_model
from ihlab.measure.batches import require_whole
from ihlab.measure.padding import moved_batch
from ihlab.model.lens.padding import Mask
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks import IGNORE, Batch
from tasks.config import choose, require

Head = tuple[int, int]
"""(layer, head), counted from 0."""

HOWS = ("zero", "mean", "resample")

EFFECTS = ("loss_rise", "loss_rise_error", "accuracy_fall")

WHY_A_MODEL = "heads are ablated by running a model without them"


@own_settings()
def ablate_heads(
    model: Any,
    batch: Batch,
    heads: Sequence[Head],
    how: str = "mean",
    seed: int = 0,
    attention_mask: Any = None,
) -> dict[str, float]:
    """Return loss over targets and accuracy over answers with these heads ablated together.

    `model` is a `Run`, a `Transformer`, a `TransformerBridge` or a Hugging Face causal LM, whose z
    is the input of attention's output projection.

    `how` names what replaces the heads' z. The replacement is computed on the clean run:

    - "zero": zeros;
    - "mean": the head's mean z over all sequences and positions, one vector. It keeps the constant
      part that the rest of the model may rely on. A mean per position would also keep positional
      information;
    - "resample": the head's z at the same position of another sequence, paired at random by `seed`.
      It stays in distribution, but carries the wrong information. Past the end of a shorter
      sequence, its last z is used.

    `attention_mask` [batch, pos] is 1 at tokens and 0 at padding, which may come before or after
    the tokens. Means leave padding out. Without a mask, padding is recognised by the padding id of
    the model's task.

    If `heads` is empty, the model is not changed. Hooks are removed afterwards. Raises
    `ConfigError` for a head that does not exist, an unknown `how`, a batch without targets or
    answers, a single sequence to resample from, and patterns without a model.
    """
    run = AblatableRun(opened_model(model, WHY_A_MODEL), batch, attention_mask)
    return totals(run.without(heads, how, seed))


@own_settings()
def ablation_sweep(
    model: Any,
    batch: Batch,
    how: str = "mean",
    seed: int = 0,
    attention_mask: Any = None,
    heads: Sequence[Head] | None = None,
) -> pd.DataFrame:
    """Ablate each of `heads` (default: all) alone.

    Columns: layer, head, how, loss_rise, loss_rise_error, accuracy_fall.

    `loss_rise` is the rise of the summed loss per target, `loss_rise_error` its standard error over
    sequences. The other arguments and the errors are those of `ablate_heads`.
    """
    run = AblatableRun(opened_model(model, WHY_A_MODEL), batch, attention_mask)
    if heads is None:
        heads = every_head(run.model)
    table = []
    for head in tracked(heads, "ablating heads"):
        table.append((*head, how, *run.effect([head], how, seed).values()))
    return pd.DataFrame(table, columns=["layer", "head", "how", *EFFECTS])


@own_settings()
def ablate_together(
    model: Any,
    batch: Batch,
    heads: Any,
    how: str = "mean",
    controls: int = 3,
    seed: int = 0,
    attention_mask: Any = None,
) -> pd.DataFrame:
    """Ablate heads together, and random sets of equally many other heads as controls. Return one
    row per set.

    A redundant head costs little when ablated alone, and a random head can cost more than twice its
    error. So ablate all induction heads together, and compare with equally many random heads, from
    any layers or the same layers.

    `heads`: pairs (layer, head), or a table with the columns layer, head and matches_prefix
    (`locate_induction_heads`), of which only matching heads are used. Columns:

    - `heads`: "these", the given heads; "random", equally many others; or "same layers", equally
      many others from each of the same layers (all others, if a layer has fewer);
    - `draw`: 0, 1, ... of `controls` draws; `n`: the number of heads in the set;
    - `loss`, the task's loss; `loss_rise`, `loss_rise_error` and `accuracy_fall`, as in
      `ablation_sweep`.

    Raises `ConfigError` without heads, and as `ablate_heads` does.
    """
    opened = opened_model(model, WHY_A_MODEL)
    these = _pairs(opened, heads)
    require(bool(these), "There are no heads to ablate: no head is prefix-matching.")
    run = AblatableRun(opened, batch, attention_mask)
    rng = np.random.default_rng(seed)
    others = [head for head in every_head(opened) if head not in set(these)]
    sets: list[tuple[str, int, list[Head]]] = [("these", 0, these)]
    n_of_layer = sorted(Counter(layer for layer, _ in these).items())
    for draw in range(controls):
        sets.append(("random", draw, _some(others, len(these), rng)))
        near = []
        for layer, n in n_of_layer:
            in_layer = [head for head in others if head[0] == layer]
            near += _some(in_layer, n, rng)
        sets.append(("same layers", draw, near))
    clean_loss = run.clean_scores["loss"].sum() / run.clean_scores["targets"].sum()
    rows = []
    for name, draw, chosen in tracked(sets, "ablating sets of heads"):
        effect = run.effect(chosen, how, seed)
        loss = clean_loss + effect["loss_rise"]
        rows.append((name, draw, len(chosen), loss, *effect.values()))
    return pd.DataFrame(rows, columns=["heads", "draw", "n", "loss", *EFFECTS])


def every_head(size: Any) -> list[Head]:
    """Return all heads of a model, layer by layer; `size` has `n_layers` and `n_heads`."""
    return list(product(range(size.n_layers), range(size.n_heads)))


class AblatableRun:
    """A model's run on a batch, clean and with heads ablated. Each sequence's padding is moved to
    its end.
    """

    def __init__(self, model: HeadModel, batch: Batch, attention_mask: Any = None) -> None:
        check_measurable(batch)
        self.model = model
        self.batch, self.real = moved_batch(batch, model.mask(tokens_of(batch), attention_mask))
        self.z = model.z(tokens_of(self.batch))

    @cached_property
    def clean_scores(self) -> pd.DataFrame:
        """The `row_scores` of the clean model."""
        return self.without([], "zero", 0)

    def without(self, heads: Sequence[Head], how: str, seed: int) -> pd.DataFrame:
        """Return the `row_scores` with these heads ablated together."""
        require_heads(self.model, heads)
        of_layer = defaultdict[int, list[int]](list)
        for layer, head in heads:
            of_layer[layer].append(head)
        replace = {}
        for layer, those in of_layer.items():
            replace[layer] = replacer(those, replacement(self.z[layer], how, seed, real=self.real))
        with self.model.replacing(replace):
            return row_scores(self.model, self.batch)

    def effect(self, heads: Sequence[Head], how: str, seed: int) -> dict[str, float]:
        """Return the rise of the loss with its standard error, and the fall of the accuracy, if
        these are ablated.
        """
        rows = self.without(heads, how, seed)
        rise, error = _ratio(rows["loss"] - self.clean_scores["loss"], rows["targets"])
        fall, _ = _ratio(self.clean_scores["right"] - rows["right"], rows["answers"])
        return dict(zip(EFFECTS, (rise, error, fall), strict=True))


def replacement(
    z: Float[Tensor, "batch pos head d_head"],
    how: str,
    seed: int = 0,
    real: Mask | None = None,
) -> Float[Tensor, "batch pos head d_head"]:
    """Return what replaces z when heads are ablated. `how` and the `ConfigError`s are those of
    `ablate_heads`.

    `real` marks tokens; padding comes after them.
    """
    choose("ablation", how, HOWS)
    if how == "zero":
        return torch.zeros_like(z)
    if real is None:
        real = torch.ones(z.shape[:2], dtype=torch.bool)
    if how == "mean":
        counted = real.to(z.device)[:, :, None, None]
        # A sum in float16 would overflow.
        wide = torch.promote_types(z.dtype, torch.float32)
        total = (z * counted).sum((0, 1), True, dtype=wide)
        return (total / counted.sum().clamp_min(1)).to(z).expand_as(z)
    require(
        len(z) >= 2,
        "The batch has one sequence, but resampling needs at least 2: it takes the values of another one.",
    )
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(z)))
    source = torch.empty_like(order)
    source[order] = order.roll(1)  # one cycle through all sequences: none is its own source
    source = source.to(z.device)
    last = real.to(z.device).sum(dim=1)[source, None] - 1
    positions = torch.arange(z.shape[1], device=z.device).expand(len(z), -1).minimum(last)
    return z[source[:, None], positions]


def row_scores(model: Any, batch: Batch) -> pd.DataFrame:
    """Return the summed loss and the number of correct answers of each sequence.

    Columns: `loss`, and the counts `targets`, `right` (correct answers) and `answers`. Padding, if
    any, must come last.
    """
    check_measurable(batch)
    logits = opened_model(model, WHY_A_MODEL).logits(tokens_of(batch))
    known = batch.targets[batch.targets != IGNORE]
    require(
        known.min() >= 0 and known.max() < logits.shape[-1],
        f"The targets have ids from {known.min()} to {known.max()}, but the vocabulary is 0 to {logits.shape[-1] - 1}: "
        f"positions without a target hold {IGNORE}.",
    )
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
    require_whole(batch)
    inputs = list(np.shape(batch.inputs))
    for name, ids in (("targets", batch.targets), ("answers", batch.answers)):
        shape = list(np.shape(ids))
        require(
            shape == inputs,
            f"The batch's {name} have the shape {shape}, but its inputs are {inputs}.",
        )
        known = bool((ids != IGNORE).any())
        require(known, f"The batch has no {name}: nothing can be measured on it.")


def totals(rows: pd.DataFrame) -> dict[str, float]:
    """Return the loss over all targets and the accuracy over all answers, from `row_scores`."""
    total = rows.sum()
    return {
        "loss": float(total["loss"] / total["targets"]),
        "accuracy": float(total["right"] / total["answers"]),
    }


def replacer(
    heads: list[int], values: Float[Tensor, "batch pos head d_head"]
) -> Callable[[Tensor], Tensor]:
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
    """Return sum(amounts) / sum(counts) over independent sequences, and its standard error to first
    order.
    """
    ratio = amounts.sum() / counts.sum()
    spread = (amounts - ratio * counts).std(ddof=1) * len(amounts) ** 0.5
    return float(ratio), float(spread / counts.sum())


def _pairs(size: HeadModel, heads: Any) -> list[Head]:
    if isinstance(heads, pd.DataFrame):
        heads = heads.loc[heads["matches_prefix"], ["layer", "head"]].to_numpy()
    pairs = heads.tolist() if isinstance(heads, np.ndarray) else list(heads)
    require_heads(size, pairs)
    return list(dict.fromkeys((int(layer), int(head)) for layer, head in pairs))


def _some(heads: list[Head], n: int, rng: np.random.Generator) -> list[Head]:
    return [heads[i] for i in sorted(rng.permutation(len(heads))[:n])]
