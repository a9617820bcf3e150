"""Scores of every head of a model, in one table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.ablation import ablation_sweep
from ihlab.interp.copying import copying
from ihlab.interp.head_model import PATTERN_KINDS, HeadModel, Reading
from ihlab.interp.sources import GivenPatterns, opened, with_batch_axis
from ihlab.measure.columns import explained
from ihlab.measure.heads import follows, mean_attention, pattern_scores, prefix_matches
from ihlab.measure.probe import PREFIX_REPEATS, STRIPE_REPEATS, rolled
from tasks import Batch
from tasks.config import require

Scores = dict[str, Float[Tensor, "layer head"]]


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

    `model` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face causal LM. The last two
    have no shift: their effective patterns are the raw ones. A model is measured in evaluation mode. Afterwards its
    mode and its attention implementation are what they were.

    Heads are probed with `rows` sequences of distinct random tokens, repeated 4 times (`induction_stripe`: twice) up to
    `length`. By default that is n_ctx; for a model of another library it is at most
    `ihlab.interp.head_model.LONGEST_PROBE` positions, and no more than a sliding window sees. Tokens are drawn from
    `ids`: by default those that a run was trained on, and else the vocabulary without the special tokens that a Hugging
    Face config names. The scores from ablation (`ablation_sweep`) need a task's `batch`. Both rows of a head have the
    same scores from weights and from ablation.

    Copying scores are NaN where it is not known what heads write: for a custom attention unless it has hook_z, W_V and
    W_O; eigenvalue_copying also for another library's values that are not linear in attention's input. Effective
    patterns are those of `gauge_fixed(beta)`; those of a vanilla model are the raw ones.

    Instead of a model, precomputed patterns are scored on their `tokens`: an `ActivationCache`, or a tensor, array or
    tuple [layer][batch, head, query, key]. They have the columns of `pattern_scores` only, and one row for each head
    unless they are a cache.

    Raises `ConfigError` where fewer than 3 distinct tokens would be repeated, for a `length` over n_ctx or over a
    sliding window, for patterns without tokens or with a `batch`, for tokens that do not fit the patterns or do not
    repeat, and for another `model`, naming its type.

    The columns:
    """
    source = opened(model)
    if isinstance(source, GivenPatterns):
        return given_scores(source, tokens, batch, ids)
    require(tokens is None, "tokens are given, but a model is probed with its own: give `ids`, or its patterns.")
    probe = source.probe_rows(PREFIX_REPEATS, rows, length, ids, seed)
    twice = source.probe_rows(STRIPE_REPEATS, rows, length, ids, seed)
    scores, reading = probe_scores(source, probe, seed)
    stripe = source.read(twice).patterns
    unknown = torch.full((source.n_layers, source.n_heads), torch.nan)
    of_weights = {"eigenvalue_copying": source.eigenvalue_copying() if source.writes_known else unknown}
    last = probe.shape[1] // PREFIX_REPEATS
    for kind, patterns in reading.patterns.items():
        scores[kind] |= {
            "induction_stripe": mean_attention(stripe[kind], follows(twice.to(patterns.device))),
            "copying": copying(source, reading.z, patterns, probe, last) if source.writes_known else unknown,
            **of_weights,
        }
    table = _by_head(scores)
    return table if batch is None else table.merge(_causal_scores(source, batch), on=["layer", "head"])


head_scores.__doc__ = f"{head_scores.__doc__}\n{explained('    ')}"


def probe_scores(
    model: HeadModel, probe: Int[Tensor, "rows pos"], seed: int = 0, kinds: Sequence[str] = PATTERN_KINDS
) -> tuple[dict[str, Scores], Reading]:
    """Score patterns on sequences of `probe_rows`, by kind; return what was read there, too.

    The scores are those of `pattern_scores` and the control fixed_distance: the attention between the same positions
    when the last repeat is rolled, so that they are no prefix matches.
    """
    reading = model.read(probe, kinds)
    control = model.read(rolled(probe, probe.shape[1] // PREFIX_REPEATS, seed), kinds).patterns
    scores = {}
    for kind, patterns in reading.patterns.items():
        tokens = probe.to(patterns.device)
        scores[kind] = pattern_scores(patterns, tokens)
        scores[kind]["fixed_distance"] = mean_attention(control[kind], prefix_matches(tokens))
    return scores, reading


def given_scores(given: GivenPatterns, tokens: Any, batch: Batch | None, ids: Sequence[int] | None) -> pd.DataFrame:
    """Score patterns on their tokens: the columns of `pattern_scores`, a row for each head and kind of pattern.

    Raises `ConfigError` for what needs a model, and for tokens that are missing, do not fit or do not repeat.
    """
    require(
        batch is None and ids is None,
        "batch and ids are given, but only a model can be run on them: patterns alone cannot be ablated.",
    )
    require(tokens is not None, "tokens are not given, but patterns can only be judged by their tokens.")
    return _by_head({kind: pattern_scores(*with_batch_axis(given.patterns(kind), tokens)) for kind in given.kinds})


def _by_head(scores: dict[str, Scores]) -> pd.DataFrame:
    """Return a table of the scores of each kind of pattern, a head's rows one after the other."""
    tables = []
    for kind, of_kind in scores.items():
        layer, head = np.indices(next(iter(of_kind.values())).shape).reshape(2, -1)
        columns = {name: score.flatten().double().cpu().numpy() for name, score in of_kind.items()}
        tables.append(pd.DataFrame({"layer": layer, "head": head, "pattern": kind, **columns}))
    return pd.concat(tables).sort_values(["layer", "head"], kind="stable", ignore_index=True)


def _causal_scores(model: HeadModel, batch: Batch) -> pd.DataFrame:
    """Zero- and mean-ablate every head on a task; see `ablation_sweep`."""
    zero, mean = (ablation_sweep(model, batch, how).drop(columns="how") for how in ("zero", "mean"))
    table = zero.merge(mean, on=["layer", "head"], suffixes=("_zero", "_mean"))
    return table.drop(columns="loss_rise_error_zero").rename(columns={"loss_rise_error_mean": "loss_rise_mean_error"})


def mean_patterns(
    model: HeadModel, rows: int = 16, length: int | None = None, seed: int = 0
) -> dict[str, Float[np.ndarray, "layer head query key"]]:
    """Return every head's pattern by kind, averaged over sequences of random tokens read twice."""
    patterns = model.read(model.probe_rows(STRIPE_REPEATS, rows, length, None, seed)).patterns
    return {kind: of_kind.mean(dim=1).cpu().numpy() for kind, of_kind in patterns.items()}
