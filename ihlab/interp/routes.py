"""Routes through a shifted head: which token's key is matched, and which token's value is read.

A head with windows of w columns has w x w routes, (key: own | previous | ...) x (value: own |
previous | ...). Let A(alpha) be the pattern, and Shift_s(V) the values of s tokens earlier. Then

    z = sum over s of A(alpha) beta_s Shift_s(V).

Ablating a route:

- key route r: alpha_r = 0. The scores lose alpha_r q . k[t - r], and the softmax is recomputed;
- value route s: beta_s = 0;
- both routes (r, s): value column s is read with the pattern of alpha_r = 0, the other columns as
  before.

A route's contribution is what its ablation removes from z. It depends only on the layer's input.
All heads' contributions come from running the model with changed `hook_alpha` and `hook_beta`, so
whatever the model does with keys (rotary, ALiBi, masks, groups) applies to routes too. Each query
head has its own contributions, also with grouped-query attention.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.ablation import check_measurable
from ihlab.interp.checks import require_routes, transformer_only
from ihlab.measure.gathered import evaluation_batch
from ihlab.measure.metrics import held_out
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from tasks import Batch
from tasks.config import require


class Route(NamedTuple):
    """A column of alpha and a column of beta; None stands for all of them.

    Column 0 is the token itself, 1 the previous one. `Route(1, None)` is the key route of the
    previous token with all values read through it. `Route(None, 0)` is the value route of the token
    itself. `Route(1, 0)` combines the two (induction). `Route(None, None)` is the whole head.
    """

    key: int | None
    value: int | None


def column_name(column: int | None) -> str:
    """Name a column: "own", "previous", "2 before", ..., or "all" for None."""
    return {None: "all", 0: "own", 1: "previous"}.get(column, f"{column} before")


@transformer_only
@in_eval_mode
def route_contributions(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    layer: int,
    routes: Sequence[Route] = (),
) -> dict[Route, Float[Tensor, "batch pos head d_head"]]:
    """Return each route's contribution to each head's z, which ablation removes. Without `routes`,
    of all routes.

    A route with weight 0 contributes exactly 0.0, and the contributions of the value routes sum to
    z. Those of the key routes do not, because a softmax is not linear. Raises `ConfigError` for a
    layer without shift, for a column outside its window, and as `require_routes` does.
    """
    window, contributions = _window(model, layer), {}
    columns = (None, *range(window))
    by_value = dict[int | None, Tensor]()
    for key, value in routes or product(columns, repeat=2):
        route = Route(key, value)
        require(
            {key, value} <= {*columns},
            f"{route} names a column that the shift lacks: its columns are 0 to {window - 1}.",
        )
        # With one column of values alone, z is what this column contributes.
        others = [column for column in range(window) if value not in (None, column)]
        if value not in by_value:
            by_value[value] = _z(model, tokens, layer, beta=others)
        contribution = by_value[value]
        if key is not None:
            contribution = contribution - _z(model, tokens, layer, beta=others, alpha=[key])
        contributions[route] = contribution
    return contributions


@transformer_only
@in_eval_mode
@torch.no_grad()
def route_effects(
    model: Transformer,
    batch: Batch,
    routes: Sequence[Route] = (),
    together: bool = False,
) -> pd.DataFrame:
    """Ablate each route of each head on a batch, and return a table with one row per ablation.

    Columns: layer, head, key, value (the route, see `column_name`; "all", "all" is the whole head),
    loss_rise (nats per target) and accuracy_fall (over all answers), both against the clean run.
    Without `routes`, all are ablated. Redundant heads compensate for each other, so ablating one alone may
    show no effect. `together` ablates the route in all heads of a layer at once (head is "all").
    Padding must come last in each sequence. Raises `ConfigError` as `route_contributions` does, and
    for a batch without targets or answers.
    """
    check_measurable(batch)
    rows = evaluation_batch(batch, model.W_E.device)
    before = held_out(model, [rows])
    heads: dict[Any, slice] = {head: slice(head, head + 1) for head in range(model.cfg.n_heads)}
    if together:
        heads = {"all": slice(None)}
    effects = []
    for layer in range(model.cfg.n_layers):
        contributions = route_contributions(model, rows.tokens, layer, routes)
        for head, these in heads.items():
            for route, contribution in contributions.items():
                with model.hooks(fwd_hooks=[(_hook_z(layer), _without(contribution, these))]):
                    after = held_out(model, [rows])
                rise, fall = (
                    after["eval_loss"] - before["eval_loss"],
                    before["accuracy"] - after["accuracy"],
                )
                effects.append((layer, head, *map(column_name, route), rise, fall))
    columns = ["layer", "head", "key", "value", "loss_rise", "accuracy_fall"]
    return pd.DataFrame(effects, columns=columns)


def _without(contribution: Tensor, heads: slice) -> Callable[..., Tensor]:
    def hook(z: Tensor, hook: Any) -> Tensor:
        z = z.clone()
        z[:, :, heads] -= contribution[:, :, heads]
        return z

    return hook


def _z(
    model: Transformer, tokens: Tensor, layer: int, **zeroed: Sequence[int]
) -> Float[Tensor, "batch pos head d_head"]:
    """Return a layer's z with some columns of alpha or beta set to 0."""
    hooks = [_zeroing(model, layer, name, columns) for name, columns in zeroed.items()]
    with model.hooks(fwd_hooks=hooks):
        _, cache = model.run_with_cache(tokens, names_filter=_hook_z(layer))
    return cache["z", layer]


def _zeroing(
    model: Transformer, layer: int, name: str, columns: Sequence[int]
) -> tuple[str, Callable[[Tensor, Any], Tensor]]:
    """Return a hook point and the hook that sets columns of alpha or beta to 0 there.

    If the model does not learn these weights, they are (1, 0, ...), and the keys or values are
    scaled instead.
    """
    attn, point = model.layers[layer].attn, f"blocks.{layer}.attn.hook_"

    def zeroed(weight: Tensor) -> Tensor:
        return weight.index_fill(
            1, torch.tensor(columns, dtype=torch.long, device=weight.device), 0
        )

    if name in model.cfg.learned_shifts:
        return f"{point}{name}", lambda weight, hook: zeroed(weight)
    scale = zeroed(getattr(attn, name))[:, 0]
    mixed = {"alpha": "k", "beta": "v"}[name]
    return f"{point}{mixed}", lambda x, hook: x * scale[:, None].to(x.dtype)


def _hook_z(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_z"


def _window(model: Transformer, layer: int) -> int:
    require_routes(model.cfg)
    require(
        model.cfg.shifted,
        f"The model's attention is {model.cfg.attention!r}, which has no routes; 'kv_shift' has routes.",
    )
    n_layers = model.cfg.n_layers
    require(
        0 <= layer < n_layers,
        f"Layer {layer} does not exist: the model has layers 0 to {n_layers - 1}.",
    )
    return model.cfg.shift_window
