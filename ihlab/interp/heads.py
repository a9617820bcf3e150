"""Scores of every head of a model, in one table."""

from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.ablation import ablation_sweep
from ihlab.interp.copying import copying, eigenvalue_copying
from ihlab.interp.patterns import effective_patterns, raw_patterns
from ihlab.measure.heads import follows, mean_attention, pattern_scores, prefix_matches
from ihlab.measure.probe import PREFIX_REPEATS, STRIPE_REPEATS, probe_rows, rolled
from ihlab.model.modes import evaluated
from ihlab.model.transformer import Transformer
from tasks import Batch


def head_scores(
    model: Transformer,
    batch: Batch | None = None,
    rows: int = 16,
    length: int | None = None,
    ids: Sequence[int] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Score every head in two rows: its raw pattern (`pattern` = "raw") and its effective one ("effective").

    On `rows` rows of distinct random tokens, repeated 4 times up to `length` (None: n_ctx):

    - prefix_matching: from each token of the last repeat to the tokens right after its earlier occurrences;
    - fixed_distance: the attention between the same positions when the last repeat is rolled, so that they are no
      prefix matches: a control for heads that attend by position, whatever the tokens;
    - previous_token, duplicate_token, first_position: see `pattern_scores`;
    - copying: see `copying`, over the last repeat.

    On rows repeated once, up to the same length:

    - induction_stripe: from each token of the second half to the position right after its occurrence in the first.

    From the weights: eigenvalue_copying, the same in both rows. With a task's `batch`, also loss_rise_zero,
    loss_rise_mean, loss_rise_mean_error, accuracy_fall_zero and accuracy_fall_mean of `ablation_sweep`, the same in
    both rows.

    Effective patterns are those of `gauge_fixed(beta)`; with a vanilla model they are the raw ones. Tokens are drawn
    from `ids`, by default those that the model was trained on (of a model that is not a run's: the whole vocabulary).
    Raises `ConfigError` where fewer than 3 distinct tokens would be repeated, or `length` is over n_ctx.
    """
    prefix_rows = probe_rows(model, PREFIX_REPEATS, rows, length, ids, seed)
    stripe_rows = probe_rows(model, STRIPE_REPEATS, rows, length, ids, seed)
    prefix_cache, stripe_cache = probed(model, prefix_rows), probed(model, stripe_rows)
    last = prefix_rows.shape[1] // PREFIX_REPEATS
    rolled_cache = probed(model, rolled(prefix_rows, last, seed))
    matches = prefix_matches(prefix_rows)
    of_weights = {"eigenvalue_copying": eigenvalue_copying(model)}
    tables = []
    for kind in ("raw", "effective"):
        patterns = pattern_of(prefix_cache, kind)
        scores = {
            **pattern_scores(patterns, prefix_rows),
            "fixed_distance": mean_attention(pattern_of(rolled_cache, kind), matches),
            "induction_stripe": mean_attention(pattern_of(stripe_cache, kind), follows(stripe_rows)),
            "copying": copying(model, prefix_cache, patterns, prefix_rows, last),
        }
        tables.append(as_table(scores | of_weights).assign(pattern=kind))
    table = pd.concat(tables).sort_values(["layer", "head"], kind="stable", ignore_index=True)
    table.insert(2, "pattern", table.pop("pattern"))
    return table if batch is None else table.merge(causal_scores(model, batch), on=["layer", "head"])


def causal_scores(model: Transformer, batch: Batch) -> pd.DataFrame:
    """Zero- and mean-ablate every head on a task; see `ablation_sweep`."""
    zero, mean = (ablation_sweep(model, batch, how).drop(columns="how") for how in ("zero", "mean"))
    table = zero.merge(mean, on=["layer", "head"], suffixes=("_zero", "_mean"))
    return table.drop(columns="loss_rise_error_zero").rename(columns={"loss_rise_error_mean": "loss_rise_mean_error"})


@evaluated
@torch.no_grad()
def probed(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> ActivationCache:
    """Run the model on tokens and cache what the scores need: patterns, z and beta."""
    needed = ("hook_pattern", "hook_z", "hook_beta")
    return model.run_with_cache(tokens, names_filter=lambda name: name.endswith(needed))[1]


def pattern_of(cache: ActivationCache, kind: str) -> Float[Tensor, "layer *batch head query key"]:
    """Return all layers' "raw" or "effective" patterns, the latter with beta's gauge fixed."""
    return raw_patterns(cache) if kind == "raw" else effective_patterns(cache, fix_gauge=True)


def as_table(scores: dict[str, Float[Tensor, "layer head"]]) -> pd.DataFrame:
    """Return a table with one row per head: layer, head and its scores."""
    n_layers, n_heads = next(iter(scores.values())).shape
    heads = [{"layer": layer, "head": head} for layer in range(n_layers) for head in range(n_heads)]
    columns = {name: score.flatten().double().cpu().numpy() for name, score in scores.items()}
    return pd.DataFrame(heads).assign(**columns)
