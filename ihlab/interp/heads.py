"""Score every head of a model in one table, and decide which heads are induction heads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.ablation import WHY_A_MODEL, ablation_sweep
from ihlab.interp.head_model import PATTERN_KINDS, HeadModel
from ihlab.interp.patterns_alone import PatternsAlone
from ihlab.interp.sources import opened, opened_model
from ihlab.measure.batches import require_whole
from ihlab.measure.columns import explained
from ihlab.measure.heads import best_offset, follows, mean_attention, pattern_scores, prefix_matches
from ihlab.measure.probe import PREFIX_REPEATS, STRIPE_REPEATS, rolled
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks import Batch
from tasks.config import require, require_integer

Scores = dict[str, Float[Tensor, "layer head"]]

PREFIX_LEAST = 0.5
"""A head matches prefixes if at least half of its attention goes to prefix matches, on tokens that
occur four times. Uniform attention scores at most a third, on the shortest sequence allowed. The
number of repeats matters: on tokens that occur twice (`induction_stripe`), fewer heads reach a
half."""

RISE_LEAST = 0.001
"""A head is needed if ablating it raises the task's loss by at least this many nats. The threshold
is small, because several heads often share a job: with four prefix-matching heads, ablating one may
cost 0.004. `ablate_together` ablates them all."""

ERRORS_LEAST = 2.0
"""The rise of the loss must also exceed twice its standard error over sequences. A head without
effect passes this test about once in forty; with two sequences once in seven."""

FEW = 32
"""In models with at most this many heads, each head is ablated alone; in larger ones, only
prefix-matching heads.
"""

VERDICTS = {
    "induction": "matches prefixes, and the loss rises without it",
    "not needed": "matches prefixes, but the loss does not rise without it: several heads often share a job",
    "suppresses": "matches prefixes, and the loss falls without it",
    "matches": "matches prefixes, and was not ablated",
    "": "does not match prefixes",
}
"""The values of the column `verdict`."""


@own_settings()
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
) -> pd.DataFrame:
    """Score every head in two rows: one for its raw pattern (`pattern` = "raw"), one for the
    effective ("effective").

    `model` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face
    causal LM. Of the last two, only a `KVShiftForCausalLM` has a shift: for others, effective
    patterns equal raw ones. A model is measured in evaluation mode. Its mode and its attention
    implementation are restored afterwards.

    Heads are probed with `rows` sequences of distinct random tokens, repeated 4 times
    (`induction_stripe`: twice) up to `length`. By default the sequences resemble the training
    sequences: they have the task's length, content ids and first token. If a model's training is
    unknown, they have at most `ihlab.measure.probe.LONGEST_PROBE` positions, fit in a sliding
    window, and use the vocabulary without the special tokens of the model's config. They begin with
    a bos token if the tokenizer stored with the model adds one; `bos` overrides this. Tokens are
    drawn from `ids` if given. With several `probes`, prefix_matching and same_distance_control are
    means over that many seeds.

    The scores from ablation (`ablation_sweep`, mean) need a task's `batch`. `attention_mask` marks
    its padding (1: a token, 0: padding); a task's own padding is recognised without it. Both rows
    of a head have the same scores from weights and from ablation.

    eigenvalue_copying is NaN for models of other libraries (convert them) and for a custom
    attention without hook_z, W_V or W_O. Effective patterns use `gauge_fixed(beta)`; those of a
    vanilla model are the raw ones.

    `model` may also be precomputed patterns, scored on their `tokens`: an `ActivationCache`, or a
    tensor, array or tuple [layer][batch, head, query, key]. The table then has only the columns of
    `scores_of_patterns`, and one row per head (two for a cache). `attention_mask` then marks the
    padding of the tokens.

    Raises `ConfigError` if fewer than 3 distinct tokens would be repeated, for a `length` over
    n_ctx or over a sliding window, for patterns without tokens or with a `batch`, for tokens that
    do not fit the patterns or do not repeat, for patterns that are not those of a causal model, and
    for any other `model`, naming its type.

    The columns:
    """
    source = opened(model, bos)
    if isinstance(source, PatternsAlone):
        return scores_of_patterns(source, tokens, batch, ids, attention_mask)
    require(
        tokens is None,
        "tokens are given, but a model is probed with tokens of its own: give `ids`, or its patterns or a cache with "
        "these tokens.",
    )
    require(
        batch is not None or attention_mask is None,
        "attention_mask is given without a batch, but the model's own probe has no padding: leave it out.",
    )
    require_integer("probes", probes, 1)
    scores = random_scores(source, rows, length, ids, seed)
    if probes > 1:
        every = [scores]
        for i in range(seed + 1, seed + probes):
            probe = source.probe_rows(PREFIX_REPEATS, rows, length, ids, i)
            every.append(probe_scores(source, probe, i))
        for kind, of_kind in scores.items():
            prefix, control = (
                torch.stack([each[kind][name] for each in every])
                for name in ("prefix_matching", "same_distance_control")
            )
            of_kind["prefix_matching"] = prefix.mean(dim=0)
            of_kind["prefix_matching_sd"] = prefix.std(dim=0)
            of_kind["same_distance_control"] = control.mean(dim=0)
    table = _by_head(scores)
    return table if batch is None else with_ablation(table, source, batch, attention_mask)


head_scores.__doc__ = f"{head_scores.__doc__}\n{explained('    ')}"


def locate_induction_heads(
    source: Any,
    tokens: Any = None,
    batch: Batch | None = None,
    seed: int = 0,
    ids: Sequence[int] | None = None,
    *,
    rows: int = 16,
    probes: int = 1,
    attention_mask: Any = None,
) -> pd.DataFrame:
    """Rank every head, most likely induction head first. The column `induction` holds the verdict.

    `source` is a model, or patterns or a cache with their `tokens`; see `head_scores`. Patterns are
    [layer, head, query, key] with tokens [pos], or [layer, batch, head, query, key] with tokens
    [batch, pos]. The columns are those of `head_scores` for effective patterns (raw ones if only
    those are known), and four more:

    - `matches_prefix`: prefix_matching is at least `PREFIX_LEAST`, and for a model
      same_distance_control is below it. With several `probes`, prefix_matching minus its standard
      deviation over them must reach `PREFIX_LEAST`;
    - `needed`: the loss rises when the head is ablated alone on a task's `batch`: loss_rise is at
      least `RISE_LEAST` and exceeds `ERRORS_LEAST` standard errors. In a model with more than `FEW`
      heads, only those that match prefixes are ablated. None for heads that were not ablated
      (`ablate_together` ablates heads together);
    - `verdict`: one of `VERDICTS`; it follows from matches_prefix, needed, and whether ablation
      lowers the loss;
    - `induction`: matches_prefix and needed are true. Without a `batch`, it equals matches_prefix
      (verdict "matches").

    Heads are ranked by prefix_matching. The other arguments are those of `head_scores`. `tokens`
    should be a random sequence, repeated at least once. Equally spaced repeats cannot tell an
    induction head from one that attends by position. Raises `ConfigError` for a `batch` of a single
    sequence, and as `head_scores` does.
    """
    table = scored_heads(
        source, batch, attention_mask, rows=rows, ids=ids, seed=seed, tokens=tokens, probes=probes
    )
    table = table[table["pattern"] == table["pattern"].iloc[-1]]  # effective, where it is known
    return table.drop(columns="pattern").reset_index(drop=True)


@own_settings()
def scored_heads(
    source: Any,
    batch: Batch | None = None,
    attention_mask: Any = None,
    **probe: Any,
) -> pd.DataFrame:
    """Return `head_scores` of every kind of pattern, ranked and with the verdicts of
    `locate_induction_heads`.

    `probe` holds other arguments of `head_scores`.
    """
    if batch is None:
        return judged(head_scores(source, attention_mask=attention_mask, **probe))
    require_whole(batch)
    require(
        len(batch.inputs) >= 2,
        f"The batch needs at least 2 sequences, but has {len(batch.inputs)}: the rise of "
        "the loss is compared with its standard error over sequences.",
    )
    model = opened_model(source, WHY_A_MODEL, probe.pop("bos", None))
    scores = head_scores(model, **probe)
    heads = None
    if model.n_layers * model.n_heads > FEW:
        matching = judged(scores).query("matches_prefix")[["layer", "head"]].drop_duplicates()
        heads = list(zip(matching["layer"], matching["head"], strict=True))
    return judged(with_ablation(scores, model, batch, attention_mask, heads))


def judged(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `head_scores`, ranked, with the columns matches_prefix, needed, verdict and
    induction.
    """
    last = scores[scores["pattern"] == scores["pattern"].iloc[-1]]
    last = last.sort_values("prefix_matching", ascending=False, kind="stable")
    least = last["prefix_matching"] - last.get("prefix_matching_sd", 0.0)
    matches = least >= PREFIX_LEAST
    if "same_distance_control" in last:
        matches &= last["same_distance_control"] < PREFIX_LEAST
    missing = pd.Series(np.nan, index=last.index)
    rise = last.get("loss_rise", missing)
    error = ERRORS_LEAST * last.get("loss_rise_error", missing)
    known = rise.notna()
    costs = (rise >= RISE_LEAST) & (rise > error)
    needed = costs  # bool, so that ~needed negates it
    if not known.all():
        needed = costs.astype(object).where(known, None)
    suppresses = (rise <= -RISE_LEAST) & (-rise > error)
    words = ["", "matches", "induction", "suppresses"]
    verdict = np.select([~matches, ~known, costs, suppresses], words, "not needed")
    names = ["layer", "head"]
    verdicts = last[names].assign(
        matches_prefix=matches,
        needed=needed,
        verdict=verdict,
        induction=np.isin(verdict, ["induction", "matches"]),
    )
    columns = [*scores, "matches_prefix", "needed", "verdict", "induction"]
    return verdicts.merge(scores, on=names)[columns]


def random_scores(
    source: HeadModel, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
) -> dict[str, Scores]:
    """Return every score from random tokens and from weights, keyed by kind of pattern; see
    `head_scores`.
    """
    twice = source.probe_rows(STRIPE_REPEATS, rows, length, ids, seed)
    scores = probe_scores(source, source.probe_rows(PREFIX_REPEATS, rows, length, ids, seed), seed)
    eigenvalues = source.eigenvalue_copying()
    for kind, patterns in source.read(twice).items():
        stripe = mean_attention(patterns, follows(twice.to(patterns.device)))
        scores[kind] |= {"induction_stripe": stripe, "eigenvalue_copying": eigenvalues}
    return scores


def probe_scores(
    model: HeadModel,
    probe: Int[Tensor, "rows pos"],
    seed: int = 0,
    kinds: Sequence[str] = PATTERN_KINDS,
) -> dict[str, Scores]:
    """Return scores of the patterns on sequences of `probe_rows`, keyed by kind of pattern.

    The scores are those of `pattern_scores`, the offset of `best_offset`, and
    same_distance_control: the attention between the same positions when the last repeat is rolled,
    so that they are not prefix matches. Offsets are measured on the rolled sequences too.
    """
    period = (probe.shape[1] - len(model.tokens.begin)) // PREFIX_REPEATS
    moved = rolled(probe, period, seed)
    by_kind, control = (
        model.read(rows, kinds) for rows in tracked((probe, moved), "reading random tokens")
    )
    scores: dict[str, Scores] = {}
    for kind, patterns in by_kind.items():
        if scores and patterns is by_kind[kinds[0]]:  # without a shift, effective is raw
            scores[kind] = dict(scores[kinds[0]])
            continue
        tokens = probe.to(patterns.device)
        offset, weight = best_offset(control[kind], moved.to(patterns.device))
        same_distance = mean_attention(control[kind], prefix_matches(tokens))
        scores[kind] = {
            **pattern_scores(patterns, tokens),
            "same_distance_control": same_distance,
            "best_offset": offset,
            "best_offset_weight": weight,
        }
    return scores


def scores_of_patterns(
    source: PatternsAlone,
    tokens: Any,
    batch: Batch | None,
    ids: Sequence[int] | None,
    attention_mask: Any = None,
) -> pd.DataFrame:
    """Score patterns on their tokens: `pattern_scores` and `best_offset`, one row per head and kind
    of pattern.

    Raises `ConfigError` for arguments that need a model, for tokens that are missing, do not fit or
    do not repeat, and for patterns that are not those of a causal model.
    """
    require(
        batch is None and ids is None,
        "batch and ids are given, but only a model can be run on them: patterns alone cannot be ablated.",
    )
    require(
        tokens is not None,
        "tokens are not given, but patterns can only be scored with their tokens.",
    )
    by_kind, rows, real = source.on(tokens, attention_mask)
    scores = {}
    for kind, patterns in by_kind.items():
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
) -> pd.DataFrame:
    """Return the table with the effects of mean-ablating each of `heads` (default: all) alone; see
    `ablation_sweep`.
    """
    effects = ablation_sweep(model, batch, "mean", attention_mask=attention_mask, heads=heads)
    return table.merge(effects.drop(columns="how"), on=["layer", "head"], how="left")


def _by_head(scores: dict[str, Scores]) -> pd.DataFrame:
    """Return a table of the scores, one row per head and kind of pattern, sorted by head."""
    tables = {kind: per_head(of_kind) for kind, of_kind in scores.items()}
    for kind, table in tables.items():
        table.insert(2, "pattern", kind)
    return pd.concat(tables.values()).sort_values(
        ["layer", "head"], kind="stable", ignore_index=True
    )


def per_head(scores: Scores) -> pd.DataFrame:
    """Return a table with one row per head: layer, head and a column for each score."""
    layer, head = np.indices(next(iter(scores.values())).shape).reshape(2, -1)
    columns = {name: score.flatten().double().cpu().numpy() for name, score in scores.items()}
    return pd.DataFrame({"layer": layer, "head": head, **columns})
