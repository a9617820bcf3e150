"""Time of head scores: ours score all sequences at once, TransformerLens' head detector reads them one by one."""

from typing import Any

import pandas as pd
from paired import Bar, figure, ratio, take_turns, timed

SHAPE = {"n_layers": 4, "d_model": 128, "n_heads": 4, "d_vocab": 512, "n_ctx": 129}
ROWS, LENGTH = 16, 128
KINDS = {  # ours -> the detector's
    "previous_token": "previous_token_head",
    "duplicate_token": "duplicate_token_head",
    "prefix_matching": "induction_head",
}
TABLE = f"Head scores, {SHAPE['n_layers']} layers of {SHAPE['n_heads']} heads, {ROWS} rows of {LENGTH} tokens"


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of the three scores that both have, and of the whole table of `head_scores`."""
    import torch

    from ihlab.interp.heads import head_scores
    from ihlab.measure.probe import repeated_rows
    from ihlab.model.config import ModelConfig
    from ihlab.model.transformer import Transformer

    torch.set_num_threads(1)
    model = Transformer(ModelConfig(**SHAPE, attention="kv_shift"))
    rows = repeated_rows(range(SHAPE["d_vocab"]), ROWS, LENGTH // 2, repeats=2)
    _check_same_scores(rows, _ours(model, rows), _detected(model, rows))
    seconds = take_turns(
        {
            "ours, the detector's three": timed(lambda: _ours(model, rows)),
            "TransformerLens detect_head": timed(lambda: _detected(model, rows)),
            "head_scores, all columns, raw and effective": timed(lambda: head_scores(model, rows=ROWS, length=LENGTH)),
        },
        rounds=3 if quick else 21,
    )
    ours, theirs, _ = seconds.values()
    return pd.DataFrame(
        [
            *(figure(TABLE, name, 1e3 * times, "ms") for name, times in seconds.items()),
            ratio(TABLE, "ours / detect_head, the same three", ours, theirs, Bar(1.0)),
        ]
    )


def _ours(model: Any, rows: Any) -> dict[str, Any]:
    """Return the attention to each kind of source position, by layer and head."""
    from ihlab.interp.patterns import pattern_of, probed
    from ihlab.measure.heads import pattern_scores

    return pattern_scores(pattern_of(probed(model, rows), "raw"), rows)


def _detected(model: Any, rows: Any) -> dict[str, Any]:
    """Return the detector's scores, averaged over sequences. Each sequence's cache is used for all three."""
    import torch
    from transformer_lens.head_detector import detect_head

    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    with torch.no_grad():
        for row in rows.split(1):
            cache = model.run_with_cache(row, remove_batch_dim=True)[1]
            for ours, theirs in KINDS.items():
                found[ours].append(detect_head(model, row, theirs, cache=cache))
    return {kind: torch.stack(scores).mean(0) for kind, scores in found.items()}


def _check_same_scores(rows: Any, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Check that both give the same scores.

    The detector divides by all queries, ours only by queries with a source position: the repeated half. For
    previous-token heads, the detector counts the second query, whose previous token is also the first; ours does not.
    These scores agree to a few percent.
    """
    length = rows.shape[1]
    for kind in ("duplicate_token", "prefix_matching"):
        apart = (ours[kind] - theirs[kind] * length / (length // 2)).abs().max().item()
        assert apart < 1e-5, f"{kind}: ours and the detector's scores are {apart:.2g} apart"
    apart = (ours["previous_token"] - theirs["previous_token"]).abs().max().item()
    assert apart < 0.02, f"previous_token: ours and the detector's scores are {apart:.2g} apart"
