"""What a model does on one row: patterns, key routes, sizes of values, logits. Or the patterns alone, as given."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from ihlab.interp.foreign import ForeignModel
from ihlab.interp.patterns import raw_patterns, score_routes
from ihlab.interp.sources import HeadModel, OwnModel, attention_patterns
from ihlab.model.config import ModelConfig
from ihlab.model.modes import evaluating
from tasks.config import require


@dataclass(frozen=True)
class Reading:
    """What one row shows of a model at one step.

    - `panels`: `pattern`, and where alpha and beta say all, `key1` .. `keyW` (`score_routes`);
    - `norms`: `value`, the norm of the value at each key; of shifted values `raw`, too, of each token's own value;
    - `alpha`, `beta` [layer, kv_head, window]: where they say all of what keys and values hold, else None;
    - `logits`: None if the source has none.
    """

    panels: dict[str, Float[np.ndarray, "layer head query key"]]
    norms: dict[str, Float[np.ndarray, "layer head key"]] = field(default_factory=dict)
    alpha: list[Any] | None = None
    beta: list[Any] | None = None
    logits: Float[Tensor, "pos d_vocab"] | None = None


Reader = Callable[[int, Int[np.ndarray, " pos"]], Reading]
"""Reads a row: its number and its ids."""


def reader(source: Any, rows: list[Int[np.ndarray, " _"]]) -> Reader:
    """Return what reads rows of an opened source: a model reads each, patterns and caches already have.

    Raises `ConfigError` for rows that patterns or a cache are not of.
    """
    if isinstance(source, HeadModel):
        module = source.model if isinstance(source, OwnModel) else source.module
        if hasattr(module, "run_with_cache"):  # ours, or a bridge, which has hook points, too
            return lambda row, ids: _hooked(module, ids)
        return lambda row, ids: _unhooked(source, ids)
    if isinstance(source, ActivationCache):
        held = raw_patterns(source).shape[1] if source.has_batch_dim else 1
        require(len(rows) == held, f"tokens has {len(rows)} rows, but the cache is of {held}: give it the same rows.")
        return lambda row, ids: _of_cache(source, row, None)
    lengths = sorted({len(ids) for ids in rows})
    source = source[None] if getattr(source, "ndim", None) == 3 else source  # one layer of one row
    require(len(lengths) == 1, f"The rows have {lengths[0]} to {lengths[-1]} tokens, but patterns are of one length.")
    patterns = attention_patterns(source, torch.from_numpy(np.stack(rows)))
    return lambda row, ids: _of_patterns(patterns[:, row])


def says_all(cfg: Any) -> bool:
    """Return True if a model shifts, and one alpha and beta a head say all of what its keys and values hold."""
    shifts = isinstance(cfg, ModelConfig) and bool(cfg.learned_shifts)
    return shifts and cfg.shift_share != "channel" and cfg.values_mixed_elsewhere is None


def _of_patterns(patterns: Float[Tensor, "layer head query key"]) -> Reading:
    return Reading({"pattern": patterns.detach().float().cpu().numpy()})


def _unhooked(model: ForeignModel, ids: Int[np.ndarray, " pos"]) -> Reading:
    """Read a row with a model that has no hook points: its patterns, and its logits."""
    tokens = torch.from_numpy(ids)[None]
    patterns = model.read(tokens, kinds=("raw",)).patterns["raw"][:, 0]
    return replace(_of_patterns(patterns), logits=model.logits(tokens)[0].cpu())


@torch.no_grad()
def _hooked(model: Any, ids: Int[np.ndarray, " pos"]) -> Reading:
    with evaluating(model):
        device = next(model.parameters()).device
        logits, cache = model.run_with_cache(torch.from_numpy(ids)[None].to(device))
        return _of_cache(cache, 0, logits[0].float().cpu())


@torch.no_grad()
def _of_cache(cache: ActivationCache, row: int, logits: Float[Tensor, "pos d_vocab"] | None) -> Reading:
    """Read one row of a cache."""

    def of_row(x: Tensor, axis: int = 0) -> np.ndarray:
        return (x.select(axis, row) if cache.has_batch_dim else x).detach().float().cpu().numpy()

    def stored(kind: str) -> list[Tensor]:
        names = [f"blocks.{layer}.attn.hook_{kind}" for layer in range(n_layers)]
        return [cache[name] for name in names] if all(name in cache.cache_dict for name in names) else []

    cfg = cache.model.cfg
    n_layers = cfg.n_layers
    panels = {"pattern": of_row(raw_patterns(cache), axis=1)}
    n_heads = panels["pattern"].shape[1]
    norms = {}
    for name, kind in (("value", "v"), ("raw", "v_raw")):
        if values := stored(kind):
            sizes = np.stack([of_row(value.float().norm(dim=-1)) for value in values])  # [layer, pos, kv_head]
            norms[name] = sizes.transpose(0, 2, 1).repeat(n_heads // sizes.shape[2], axis=1)
    if not (says_all(cfg) and cache.has_batch_dim):
        norms.pop("raw", None)
        return Reading(panels, norms, logits=logits)
    if all(stored(kind) for kind in ("k_raw", "alpha")):  # a whole cache
        last_key = -1 if cfg.mask == "strict" else 0
        routes = torch.stack([score_routes(cache, layer) for layer in range(n_layers)], dim=1)
        routes = routes.tril(last_key).select(2, row).cpu()
        panels |= {f"key{back + 1}": scores.numpy() for back, scores in enumerate(routes)}
    attns = [block.attn for block in cache.model.blocks]
    alpha, beta = ([getattr(attn, name).tolist() for attn in attns] for name in ("alpha", "beta"))
    return Reading(panels, norms, alpha, beta, logits)
