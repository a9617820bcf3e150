"""Scores of every head of a model, in one table."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.interp.ablation import ablation_sweep
from ihlab.interp.copying import attended_share
from ihlab.interp.sources import KINDS, Held, fitting, opened
from ihlab.measure.heads import follows, mean_attention, pattern_scores, prefix_matches
from ihlab.measure.probe import PREFIX_REPEATS, STRIPE_REPEATS, rolled
from tasks import Batch
from tasks.config import require


def head_scores(
    model: Any,
    batch: Batch | None = None,
    rows: int = 16,
    length: int | None = None,
    ids: Sequence[int] | None = None,
    seed: int = 0,
    tokens: Any = None,
) -> pd.DataFrame:
    """Score every head in two rows: its raw pattern (`pattern` = "raw") and its effective one ("effective").

    `model` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a causal language model of
    transformers. The last two have no shift: their effective patterns are the raw ones. They are measured in evaluation
    mode, and left in the mode and with the attention implementation that they had.

    On `rows` rows of distinct random tokens, repeated 4 times up to `length` (None: n_ctx, of a model of another
    library at most `ihlab.interp.foreign.LONGEST_PROBE` positions, and no more than a sliding window sees):

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

    Copying scores are NaN where it is not known what heads write: for a custom attention unless it has hook_z, W_V and
    W_O; eigenvalue_copying also for a foreign one whose values are not linear in its input.

    Effective patterns are those of `gauge_fixed(beta)`; with a vanilla model they are the raw ones. Tokens are drawn
    from `ids`, by default those that a run was trained on, and else the whole vocabulary without the special tokens
    that a Hugging Face config names.

    Instead of a model, precomputed patterns are scored on their `tokens`: an `ActivationCache`, or a tensor,
    array or tuple [layer][batch, head, query, key]. They have the columns of `pattern_scores` only, and one row a head
    unless they are a cache.

    Raises `ConfigError` where fewer than 3 distinct tokens would be repeated, `length` is over n_ctx or over a sliding
    window, for patterns without tokens or with a `batch`, and for another `model`, naming its type.
    """
    source = opened(model)
    if isinstance(source, Held):
        return held_scores(source, tokens, batch, ids)
    require(tokens is None, "tokens are given, but a model is probed with its own: give `ids`, or its patterns.")
    prefix_rows = source.probe_rows(PREFIX_REPEATS, rows, length, ids, seed)
    stripe_rows = source.probe_rows(STRIPE_REPEATS, rows, length, ids, seed)
    prefix, stripe = source.read(prefix_rows), source.read(stripe_rows).patterns
    last = prefix_rows.shape[1] // PREFIX_REPEATS
    by_position = source.read(rolled(prefix_rows, last, seed)).patterns
    device = prefix.patterns["raw"].device
    prefix_rows, stripe_rows = prefix_rows.to(device), stripe_rows.to(device)
    matches = prefix_matches(prefix_rows)
    unknown = torch.full((source.n_layers, source.n_heads), torch.nan)
    of_weights = {"eigenvalue_copying": source.eigenvalue_copying() if source.writes_known else unknown}
    tables = []
    for kind in KINDS:
        patterns = prefix.patterns[kind]
        scores = {
            **pattern_scores(patterns, prefix_rows),
            "fixed_distance": mean_attention(by_position[kind], matches),
            "induction_stripe": mean_attention(stripe[kind], follows(stripe_rows)),
            "copying": attended_share(source.direct_logits, source.d_vocab, prefix.z, patterns, prefix_rows, last)
            if source.writes_known
            else unknown,
        }
        tables.append(as_table(scores | of_weights).assign(pattern=kind))
    table = _by_head(tables)
    return table if batch is None else table.merge(causal_scores(source, batch), on=["layer", "head"])


def held_scores(held: Held, tokens: Any, batch: Batch | None, ids: Sequence[int] | None) -> pd.DataFrame:
    """Score patterns on their tokens: the columns of `pattern_scores`, a row for each head and kind of pattern.

    Raises `ConfigError` for what needs a model, and for tokens that are missing, do not fit or do not repeat.
    """
    require(
        batch is None and ids is None,
        "batch and ids are given, but only a model can be run on them: patterns alone cannot be ablated.",
    )
    require(tokens is not None, "tokens are not given, but patterns can only be judged by their tokens.")
    kinds = {kind: pattern_scores(*fitting(held.patterns(kind), tokens)) for kind in held.kinds}
    return _by_head([as_table(scores).assign(pattern=kind) for kind, scores in kinds.items()])


def _by_head(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return one table of the kinds of patterns, a head's rows one after the other."""
    table = pd.concat(tables).sort_values(["layer", "head"], kind="stable", ignore_index=True)
    table.insert(2, "pattern", table.pop("pattern"))
    return table


def causal_scores(model: Any, batch: Batch) -> pd.DataFrame:
    """Zero- and mean-ablate every head on a task; see `ablation_sweep`."""
    zero, mean = (ablation_sweep(model, batch, how).drop(columns="how") for how in ("zero", "mean"))
    table = zero.merge(mean, on=["layer", "head"], suffixes=("_zero", "_mean"))
    return table.drop(columns="loss_rise_error_zero").rename(columns={"loss_rise_error_mean": "loss_rise_mean_error"})


def as_table(scores: dict[str, Float[Tensor, "layer head"]]) -> pd.DataFrame:
    """Return a table with one row per head: layer, head and its scores."""
    n_layers, n_heads = next(iter(scores.values())).shape
    heads = [{"layer": layer, "head": head} for layer in range(n_layers) for head in range(n_heads)]
    columns = {name: score.flatten().double().cpu().numpy() for name, score in scores.items()}
    return pd.DataFrame(heads).assign(**columns)
