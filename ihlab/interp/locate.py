"""Locate induction heads in models of this or another library, in a cache, or in any attention patterns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ihlab.interp.ablation import Track, require_batch
from ihlab.interp.heads import head_scores, with_ablation
from ihlab.interp.sources import opened_model
from tasks import Batch
from tasks.config import require

PREFIX_LEAST = 0.5
"""A head matches prefixes if at least half of its attention goes to prefix matches, on tokens that occur four times.
Uniform attention scores at most a third, on the shortest sequence allowed. The number of repeats matters: on tokens
that occur twice (`induction_stripe`), fewer heads reach a half."""

RISE_LEAST = 0.001
"""A head is needed if ablating it raises the task's loss by at least this many nats. The threshold is small, because
several heads often share a job: with four that match prefixes, ablating one may cost 0.004. `ihlab.interp.together`
ablates them all."""

ERRORS_LEAST = 2.0
"""The rise must also exceed twice its standard error over sequences: about one chance in forty for a head that does
nothing."""

FEW = 32
"""Models with up to this many heads have each head ablated alone; larger ones, only heads that match prefixes."""

VERDICTS = {
    "induction": "matches prefixes, and the loss rises without it",
    "not needed": "matches prefixes, but the loss does not rise without it: several heads often share a job",
    "suppresses": "matches prefixes, and the loss falls without it",
    "matches": "matches prefixes, and was not ablated",
    "": "does not match prefixes",
}
"""The values of the column `verdict`."""


def locate_induction_heads(
    source: Any,
    tokens: Any = None,
    batch: Batch | None = None,
    seed: int = 0,
    ids: Sequence[int] | None = None,
    *,
    rows: int = 16,
    length: int | None = None,
    bos: bool | None = None,
    probes: int = 1,
    attention_mask: Any = None,
    copying: bool = False,
) -> pd.DataFrame:
    """Rank every head, most likely induction head first. The column `induction` holds the verdict.

    `source` is a model, or patterns or a cache with their `tokens`; see `head_scores`. Patterns are
    [layer, head, query, key] with tokens [pos], or [layer, batch, head, query, key] with tokens [batch, pos]. The
    columns are those of `head_scores` for effective patterns (raw ones if only those are known), and four more:

    - `matches_prefix`: prefix_matching is at least `PREFIX_LEAST`, and in a model same_distance_control is below that.
      With several `probes`, prefix_matching minus its standard deviation over them must reach `PREFIX_LEAST`;
    - `needed`: the loss rises when the head is ablated alone on a task's `batch`: loss_rise is at least `RISE_LEAST`
      and exceeds `ERRORS_LEAST` standard errors. In a model with more than `FEW` heads, only those that match prefixes
      are ablated. None for heads that were not ablated (`ihlab.interp.together` ablates heads together);
    - `verdict`: matches_prefix and needed in a word of `VERDICTS`;
    - `induction`: both are true. Without a `batch` it is matches_prefix alone, and `verdict` says "matches".

    Heads are ranked by prefix_matching. The other arguments are those of `head_scores`. `tokens` should be a random
    sequence, repeated at least once. Equally spaced repeats cannot tell an induction head from one that attends by
    position. Raises `ConfigError` for a `batch` of a single sequence, and as `head_scores` does.
    """
    probe: dict[str, Any] = {"rows": rows, "length": length, "bos": bos, "probes": probes, "copying": copying}
    table = scored_heads(source, batch, ids=ids, seed=seed, tokens=tokens, attention_mask=attention_mask, **probe)
    table = table[table["pattern"] == table["pattern"].iloc[-1]]  # effective, where it is known
    return table.drop(columns="pattern").reset_index(drop=True)


def scored_heads(
    source: Any,
    batch: Batch | None = None,
    attention_mask: Any = None,
    track: Track = iter,
    **probe: Any,
) -> pd.DataFrame:
    """Return `head_scores` of every kind of pattern, ranked and judged as in `locate_induction_heads`.

    `track` may show the progress of ablation; `probe` holds other arguments of `head_scores`.
    """
    if batch is None:
        return judged(head_scores(source, attention_mask=attention_mask, **probe))
    require_batch(batch)
    require(
        len(batch.inputs) >= 2,
        f"The batch needs at least 2 sequences, but has {len(batch.inputs)}: the rise of "
        "the loss is compared with its standard error over sequences.",
    )
    model = opened_model(source, "heads are ablated by running a model without them", probe.pop("bos", None))
    scores = head_scores(model, **probe)
    heads = None
    if model.n_layers * model.n_heads > FEW:
        found = judged(scores).query("matches_prefix")[["layer", "head"]].drop_duplicates()
        heads = list(zip(found["layer"], found["head"], strict=True))
    return judged(with_ablation(scores, model, batch, attention_mask, heads, track))


def judged(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `head_scores`, ranked, with the columns matches_prefix, needed, verdict and induction."""
    last = scores[scores["pattern"] == scores["pattern"].iloc[-1]]
    last = last.sort_values("prefix_matching", ascending=False, kind="stable")
    least = last["prefix_matching"] - last.get("prefix_matching_sd", 0.0)
    matches = least >= PREFIX_LEAST
    if "same_distance_control" in last:
        matches &= last["same_distance_control"] < PREFIX_LEAST
    rise = last.get("loss_rise", pd.Series(np.nan, index=last.index))
    error = ERRORS_LEAST * last.get("loss_rise_error", pd.Series(np.nan, index=last.index))
    known = rise.notna()
    costs = (rise >= RISE_LEAST) & (rise > error)
    needed = costs.astype(object).where(known, None)  # True, False or None
    suppresses = (rise <= -RISE_LEAST) & (-rise > error)
    verdict = np.select(
        [~matches, ~known, costs, suppresses], ["", "matches", "induction", "suppresses"],
        "not needed",
    )  # fmt: skip
    names = ["layer", "head"]
    verdicts = last[names].assign(
        matches_prefix=matches, needed=needed, verdict=verdict, induction=np.isin(verdict, ["induction", "matches"])
    )
    return verdicts.merge(scores, on=names)[[*scores, "matches_prefix", "needed", "verdict", "induction"]]
