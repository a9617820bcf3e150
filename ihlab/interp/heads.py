"""Scores of every head of a model, in one table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.ablation import Track, ablation_sweep
from ihlab.interp.copying import copying as copying_of
from ihlab.interp.head_model import PATTERN_KINDS, HeadModel, Reading
from ihlab.interp.sources import GivenPatterns, opened
from ihlab.measure.columns import explained
from ihlab.measure.heads import follows, mean_attention, pattern_scores, prefix_matches
from ihlab.measure.offsets import best_offset
from ihlab.measure.probe import PREFIX_REPEATS, STRIPE_REPEATS, rolled
from tasks import Batch
from tasks.config import require, require_integer

Scores = dict[str, Float[Tensor, "layer head"]]


def head_scores(
    model: Any,
    batch: Batch | None = None,
    rows: int = 16,
    length: int | None = None,
    ids: Sequence[int] | None = None,
    seed: int = 0,
    tokens: Any = None,
    *,
    attention_mask: Any = None,
    bos: bool | None = None,
    probes: int = 1,
    copying: bool = False,
) -> pd.DataFrame:
    """Score every head in two rows: its raw pattern (`pattern` = "raw") and its effective one ("effective").

    `model` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face causal LM. The last two
    have no shift: their effective patterns are the raw ones. A model is measured in evaluation mode. Its mode and its
    attention implementation are restored afterwards.

    Heads are probed with `rows` sequences of distinct random tokens, repeated 4 times (`induction_stripe`: twice) up to
    `length`. By default the sequences resemble the training sequences: they have the task's length, content ids and
    first token. If a model's training is unknown, they have at most `ihlab.measure.probe.LONGEST_PROBE` positions, fit
    in a sliding window, and use the vocabulary without the special tokens of the model's config. They begin with its
    bos token if the tokenizer stored with the model adds one; `bos` overrides this. Tokens are drawn from `ids` if
    given. With several `probes`, prefix_matching and its control are means over that many seeds.

    The scores from ablation (`ablation_sweep`, mean) need a task's `batch`. `attention_mask` marks its
    padding (1: a token, 0: padding); a task's own padding is recognised without it. Both rows of a head have the same
    scores from weights and from ablation.

    `copying` is slow on a large vocabulary, so it is computed on request only. Copying scores are NaN where it is not
    known what heads write, as for a custom attention without hook_z, W_V or W_O. eigenvalue_copying is NaN also where
    another library's values are not linear in attention's input. Effective patterns use `gauge_fixed(beta)`; those of
    a vanilla model are the raw ones.

    `model` may also be precomputed patterns, scored on their `tokens`: an `ActivationCache`, or a tensor, array or
    tuple [layer][batch, head, query, key]. The table then has only the columns of `given_scores`, and one row per head
    (two for a cache). `attention_mask` then marks the padding of the tokens.

    Raises `ConfigError` if fewer than 3 distinct tokens would be repeated, for a `length` over n_ctx or over a
    sliding window, for patterns without tokens or with a `batch`, for tokens that do not fit the patterns or do not
    repeat, for patterns that are not those of a causal model, and for any other `model`, naming its type.

    The columns:
    """
    source = opened(model, bos)
    if isinstance(source, GivenPatterns):
        return given_scores(source, tokens, batch, ids, attention_mask)
    require(tokens is None, "tokens are given, but a model is probed with its own: give `ids`, or its patterns.")
    require(
        batch is not None or attention_mask is None,
        "attention_mask is given without a batch, but the model's own probe has no padding: leave it out.",
    )
    require_integer("probes", probes, 1)
    scores = random_scores(source, rows, length, ids, seed, copying)
    if probes > 1:
        more = [random_matching(source, rows, length, ids, seed + i) for i in range(1, probes)]
        for kind, of_kind in scores.items():
            for name in MATCHING:
                found = torch.stack([of_kind[name], *(each[kind][name] for each in more)])
                of_kind[name] = found.mean(dim=0)
                if name == "prefix_matching":
                    of_kind["prefix_matching_sd"] = found.std(dim=0)
    table = _by_head(scores)
    return table if batch is None else with_ablation(table, source, batch, attention_mask)


head_scores.__doc__ = f"{head_scores.__doc__}\n{explained('    ')}"


def random_scores(
    source: HeadModel, rows: int, length: int | None, ids: Sequence[int] | None, seed: int, with_copying: bool = False
) -> dict[str, Scores]:
    """Return every score from random tokens and from weights, by kind of pattern; see `head_scores`."""
    probe = source.probe_rows(PREFIX_REPEATS, rows, length, ids, seed)
    twice = source.probe_rows(STRIPE_REPEATS, rows, length, ids, seed)
    scores, reading = probe_scores(source, probe, seed, with_z=with_copying)
    stripe = source.read(twice).patterns
    unknown = torch.full((source.n_layers, source.n_heads), torch.nan)
    eigenvalues = source.eigenvalue_copying() if source.writes_known else unknown
    copied = dict.fromkeys(scores, unknown)
    if with_copying and source.unembeds:
        copied = copying_of(source, reading.z, reading.patterns, probe, source.period(probe, PREFIX_REPEATS))
    found = {}
    for kind, of_kind in scores.items():
        places = follows(twice.to(stripe[kind].device))
        found[kind] = {**of_kind, "induction_stripe": mean_attention(stripe[kind], places)}
        if with_copying:
            times = copied[kind] * source.d_vocab
            found[kind] |= {"copying": copied[kind], "copying_times_chance": times}
        found[kind]["eigenvalue_copying"] = eigenvalues
    return found


MATCHING = ("prefix_matching", "same_distance_control")
"""The scores that decide whether a head matches prefixes."""


def random_matching(
    source: HeadModel, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
) -> dict[str, Scores]:
    """Return the scores of `MATCHING` alone, on other random tokens."""
    scores, _ = probe_scores(source, source.probe_rows(PREFIX_REPEATS, rows, length, ids, seed), seed)
    return scores


def probe_scores(
    model: HeadModel,
    probe: Int[Tensor, "rows pos"],
    seed: int = 0,
    kinds: Sequence[str] = PATTERN_KINDS,
    with_z: bool = False,
) -> tuple[dict[str, Scores], Reading]:
    """Score patterns on sequences of `probe_rows`, by kind. Return the scores and the `Reading`.

    The scores are those of `pattern_scores`, the offset of `best_offset`, and same_distance_control: the attention
    between the same positions when the last repeat is rolled, so that they are not prefix matches. Offsets are measured
    on the rolled sequences too.
    """
    reading = model.read(probe, kinds, with_z=with_z)
    moved = rolled(probe, model.period(probe, PREFIX_REPEATS), seed)
    control = model.read(moved, kinds).patterns
    scores: dict[str, Scores] = {}
    for kind, patterns in reading.patterns.items():
        same = next((done for done in scores if reading.patterns[done] is patterns), None)
        if same is not None:  # without a shift, effective patterns are the raw ones
            scores[kind] = dict(scores[same])
            continue
        tokens = probe.to(patterns.device)
        offset, weight = best_offset(control[kind], moved.to(patterns.device))
        matching = mean_attention(control[kind], prefix_matches(tokens))
        scores[kind] = {
            **pattern_scores(patterns, tokens),
            "same_distance_control": matching,
            "best_offset": offset,
            "best_offset_weight": weight,
        }
    return scores, reading


def given_scores(
    given: GivenPatterns, tokens: Any, batch: Batch | None, ids: Sequence[int] | None, attention_mask: Any = None
) -> pd.DataFrame:
    """Score patterns on their tokens: `pattern_scores` and `best_offset`, one row per head and kind of pattern.

    Raises `ConfigError` for arguments that need a model, for tokens that are missing, do not fit or do not
    repeat, and for patterns that are not those of a causal model.
    """
    require(
        batch is None and ids is None,
        "batch and ids are given, but only a model can be run on them: patterns alone cannot be ablated.",
    )
    require(tokens is not None, "tokens are not given, but patterns can only be judged by their tokens.")
    found, rows, real = given.on(tokens, attention_mask)
    scores = {}
    for kind, patterns in found.items():
        offset, weight = best_offset(patterns, rows, real)
        offsets = {"best_offset": offset, "best_offset_weight": weight}
        scores[kind] = {**pattern_scores(patterns, rows, real), **offsets}
    return _by_head(scores)


def with_ablation(
    table: pd.DataFrame,
    model: HeadModel,
    batch: Batch,
    attention_mask: Any = None,
    heads: Sequence[tuple[int, int]] | None = None,
    track: Track = iter,
) -> pd.DataFrame:
    """Return the table with the effects of mean-ablating each of `heads` (default: all) alone; see `ablation_sweep`."""
    effects = ablation_sweep(model, batch, "mean", attention_mask=attention_mask, heads=heads, track=track)
    return table.merge(effects.drop(columns="how"), on=["layer", "head"], how="left")


def _by_head(scores: dict[str, Scores]) -> pd.DataFrame:
    """Return a table of the scores, one row per head and kind of pattern, sorted by head."""
    tables = []
    for kind, of_kind in scores.items():
        layer, head = np.indices(next(iter(of_kind.values())).shape).reshape(2, -1)
        columns = {name: score.flatten().double().cpu().numpy() for name, score in of_kind.items()}
        tables.append(pd.DataFrame({"layer": layer, "head": head, "pattern": kind, **columns}))
    return pd.concat(tables).sort_values(["layer", "head"], kind="stable", ignore_index=True)


def mean_patterns(
    model: HeadModel, rows: int = 16, length: int | None = None, seed: int = 0
) -> dict[str, Float[np.ndarray, "layer head query key"]]:
    """Return every head's pattern by kind, averaged over sequences of random tokens that repeat once."""
    patterns = model.read(model.probe_rows(STRIPE_REPEATS, rows, length, None, seed)).patterns
    return {kind: of_kind.mean(dim=1).cpu().numpy() for kind, of_kind in patterns.items()}
