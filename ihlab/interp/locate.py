"""Location of induction heads: in our models, in a TransformerLens cache, or in any attention patterns."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.heads import as_table, head_scores
from ihlab.interp.patterns import effective_patterns
from ihlab.measure.heads import pattern_scores
from ihlab.model.transformer import Transformer
from tasks import Batch
from tasks.config import ConfigError, require

PREFIX_LEAST = 0.5
"""An induction head spends most of its attention on prefix matches. Uniform attention scores less: a third at most, on
the shortest sequence allowed."""

ERRORS_LEAST = 2.0
"""Ablating an induction head raises the task's loss by more than twice its standard error over rows: about one chance
in forty for a head that does nothing. The size of the rise does not matter, since several heads often share a job."""


def locate_induction_heads(
    source: Any,
    tokens: Tensor | None = None,
    batch: Batch | None = None,
    seed: int = 0,
    ids: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Rank every head, the likeliest induction head first, with the verdict in the column `induction`.

    `source` is one of

    - a `Transformer`: probed with random repeated tokens (of `ids`, by default those it was trained on), giving the
      columns of `head_scores` for effective patterns. With a task's `batch`, the causal score has to agree;
    - patterns [layer, head, query, key] with their `tokens` [pos], or [layer, batch, head, query, key] with
      [batch, pos], of any model: the columns of `pattern_scores`;
    - a TransformerLens `ActivationCache` with its `tokens`: the same, of effective patterns if the model is shifted.

    Heads are ranked by prefix_matching, and are induction heads from `PREFIX_LEAST` on. In a `Transformer`, their
    fixed_distance must also be below that, and with a `batch`, loss_rise_mean must exceed `ERRORS_LEAST` of its
    standard errors. Given tokens should be a random sequence, repeated at least once; if all repeats are equally far
    apart, they cannot tell an induction head from one that attends by position. Raises `ConfigError` for other
    sources and ranks, tokens that do not fit the patterns or do not repeat, and as `head_scores` does.
    """
    if isinstance(source, Transformer):
        require(tokens is None, "tokens are given, but a Transformer is probed with its own: give `ids`, or patterns.")
        table = head_scores(source, batch, ids=ids, seed=seed)
        table = table[table["pattern"] == "effective"].drop(columns="pattern")
    else:
        require(batch is None and ids is None, "batch and ids are given, but only a Transformer can be run on them.")
        if tokens is None:
            raise ConfigError("tokens are not given, but patterns can only be judged by their tokens.")
        table = as_table(pattern_scores(*_fitting(_patterns(source), tokens)))
    induction = table["prefix_matching"] >= PREFIX_LEAST
    if "fixed_distance" in table:
        induction &= table["fixed_distance"] < PREFIX_LEAST
    if "loss_rise_mean" in table:
        induction &= table["loss_rise_mean"] > ERRORS_LEAST * table["loss_rise_mean_error"]
    return table.assign(induction=induction).sort_values(
        "prefix_matching", ascending=False, kind="stable", ignore_index=True
    )


def _patterns(source: Any) -> Tensor:
    if isinstance(source, ActivationCache):
        return effective_patterns(source, fix_gauge=True)
    require(
        isinstance(source, Tensor) and source.is_floating_point(),
        f"The source is a {type(source).__name__}, but must be a Transformer, an ActivationCache, or a tensor "
        "[layer, head, query, key] of floats.",
    )
    return source


def _fitting(
    patterns: Tensor, tokens: Tensor
) -> tuple[Float[Tensor, "layer batch head query key"], Int[Tensor, "batch pos"]]:
    """Return patterns and tokens, both with a batch axis."""
    shape, given = list(patterns.shape), list(tokens.shape)
    require(
        patterns.ndim in (4, 5),
        f"The patterns have the shape {shape}, but must be [layer, head, query, key] or "
        "[layer, batch, head, query, key].",
    )
    require(
        shape[-1] == shape[-2], f"The patterns have {shape[-2]} queries and {shape[-1]} keys: whole rows are needed."
    )
    wanted = shape[1:-3] + shape[-1:]
    if patterns.ndim == 4 and given == [1, shape[-1]]:  # one row with its batch axis
        tokens, given = tokens[0], given[1:]
    require(given == wanted, f"The tokens have the shape {given}, but patterns of shape {shape} need {wanted}.")
    require(not tokens.is_floating_point(), f"The tokens are {tokens.dtype}, but must be whole numbers.")
    if patterns.ndim == 4:
        patterns, tokens = patterns[:, None], tokens[None]
    return patterns, tokens.to(patterns.device)
