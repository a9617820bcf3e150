"""Sources of a page (a run, a model, a cache or patterns), and their activations on one sequence."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache

from ihlab.interp.head_model import HeadModel, OurModel
from ihlab.interp.patterns import raw_patterns, score_routes
from ihlab.interp.sources import attention_patterns, opened_model, require_opened
from ihlab.model.config import ModelConfig
from ihlab.runtime.modes import evaluating
from ihlab.training.config import even_choice
from ihlab.training.run import Run
from ihlab.viewer.training import described
from tasks import Task
from tasks.config import require


@dataclass(frozen=True)
class Opened:
    """A source with its headings, and which tokens it can read.

    - `source`: a run, a `HeadModel`, or a cache or patterns as given. Sources other than runs have
      one step, 0;
    - `task`: the task it was trained on, if known; `vocabulary`: the model's, None without a model;
    - `strict`: true if a query does not see its own position.
    """

    source: Any
    title: str
    steps: list[int]
    about: str = ""
    task: Task | None = None
    vocabulary: int | None = None
    strict: bool = False

    def model(self, step: int) -> Any:
        """Return the `HeadModel` of a step, or the cache or patterns."""
        return OurModel(self.source.model(step)) if isinstance(self.source, Run) else self.source


def opened(source: Any, checkpoints: int) -> Opened:
    """Return a source as `Opened`. Raises `ConfigError` for a run without checkpoints and for
    unsupported modules.
    """
    require_opened(source)
    task: Task | None
    if isinstance(source, Run):
        require(
            bool(source.checkpoints),
            f"{source.folder} has no checkpoints: there is nothing to view.",
        )
        source.require_checkpoint()  # a finished run's page ends where the run did
        title, steps = source.folder.name, even_choice(source.checkpoints, checkpoints)
        cfg, task = source.config.model, source.config.task
    elif isinstance(source, nn.Module):
        source = opened_model(source)
        title, steps = source.name, [0]
        if not isinstance(source, OurModel):
            return Opened(source, title, steps, vocabulary=source.d_vocab)
        cfg, task = source.module.cfg, source.module.trained_on
    else:
        title = "Cached attention" if isinstance(source, ActivationCache) else "Attention patterns"
        read_by = getattr(getattr(source, "model", None), "cfg", None)
        return Opened(source, title, [0], strict=getattr(read_by, "mask", "") == "strict")
    return Opened(
        source,
        title,
        steps,
        described(cfg, task),
        task,
        cfg.d_vocab,
        cfg.mask == "strict",
    )


@dataclass(frozen=True)
class Shown:
    """Activations of a source on one sequence at one step.

    - `panels`: `pattern`, and if alpha and beta are known, `key1` .. `keyW` (`score_routes`);
    - `norms`: `value`, the norm of the value at each key; for shifted values also `raw`, the norm
      before the shift;
    - `alpha`, `beta` [layer, kv_head, window]: None unless they fully describe how keys and values
      mix tokens;
    - `logits`: None if the source has none.
    """

    panels: dict[str, Float[np.ndarray, "layer head query key"]]
    norms: dict[str, Float[np.ndarray, "layer head key"]] = field(default_factory=dict)
    alpha: list[Any] | None = None
    beta: list[Any] | None = None
    logits: Float[Tensor, "pos d_vocab"] | None = None


def reader(
    source: Any, rows: list[Int[np.ndarray, " _"]]
) -> Callable[[int, Int[np.ndarray, " pos"]], Shown]:
    """Return a function that reads a sequence, given its index and ids. It runs a model, or looks
    up patterns.

    Raises `ConfigError` for sequences that do not fit the patterns or cache.
    """
    if isinstance(source, HeadModel):
        if hasattr(source.module, "run_with_cache"):  # ours, or a bridge: both have hook points
            return lambda row, ids: _of_hooked(source, ids)
        return lambda row, ids: _of_unhooked(source, ids)
    if isinstance(source, ActivationCache):
        n, held = len(rows), 1
        if source.has_batch_dim:
            held = raw_patterns(source).shape[1]
        require(
            n == held,
            f"tokens has {n} sequences, but the cache has {held}: give those of the cache.",
        )
        return lambda row, ids: _of_cache(source, row, None)
    lengths = sorted(set(map(len, rows)))
    if getattr(source, "ndim", None) == 3:  # one layer of one sequence
        source = source[None]
    require(
        len(lengths) == 1,
        f"The sequences have {lengths[0]} to {lengths[-1]} tokens, but patterns must be of one length.",
    )
    patterns = attention_patterns(source, torch.from_numpy(np.stack(rows)))
    return lambda row, ids: _of_patterns(patterns[:, row])


def _of_patterns(patterns: Float[Tensor, "layer head query key"]) -> Shown:
    return Shown({"pattern": patterns.detach().float().cpu().numpy()})


def _of_unhooked(model: HeadModel, ids: Int[np.ndarray, " pos"]) -> Shown:
    tokens = torch.from_numpy(ids)[None]
    patterns = model.read(tokens, kinds=("raw",))["raw"][:, 0]
    return replace(_of_patterns(patterns), logits=model.logits(tokens)[0].cpu())


@torch.no_grad()
def _of_hooked(model: HeadModel, ids: Int[np.ndarray, " pos"]) -> Shown:
    tokens = model.on_device(torch.from_numpy(ids)[None])
    with evaluating(model.module):
        logits, cache = model.module.run_with_cache(tokens)  # type: ignore[operator]
        return _of_cache(cache, 0, logits[0].float().cpu())


@torch.no_grad()
def _of_cache(
    cache: ActivationCache, row: int, logits: Float[Tensor, "pos d_vocab"] | None
) -> Shown:

    def of_row(x: Tensor) -> np.ndarray:
        if cache.has_batch_dim:
            x = x.select(1, row)
        return x.detach().float().cpu().numpy()

    def stored(kind: str) -> list[Tensor]:
        found = []
        for layer in range(n_layers):
            name = f"blocks.{layer}.attn.hook_{kind}"
            if name in cache.cache_dict:
                found.append(cache[name])
        return found

    cfg = cache.model.cfg
    n_layers = cfg.n_layers
    panels = {"pattern": of_row(raw_patterns(cache))}
    n_heads = panels["pattern"].shape[1]
    norms = {}
    for name, kind in (("value", "v"), ("raw", "v_raw")):
        values = stored(kind)
        if len(values) == n_layers:
            sizes = of_row(torch.stack(values).float().norm(dim=-1))  # [layer, pos, kv_head]
            norms[name] = sizes.transpose(0, 2, 1).repeat(n_heads // sizes.shape[2], axis=1)
    if not (_says_all(cfg) and cache.has_batch_dim):
        norms.pop("raw", None)
        return Shown(panels, norms, logits=logits)
    if "raw" not in norms and "beta" in cfg.learned_shifts:
        norms.pop("value", None)  # of mixed values, not of the token's own
    # A complete cache, whose scores are a sum over routes:
    if len(stored("k_raw") + stored("alpha")) == 2 * n_layers and not cfg.qk_norm:
        last_key = -1 if cfg.mask == "strict" else 0
        routes = torch.stack([score_routes(cache, layer) for layer in range(n_layers)], dim=1)
        routes = routes.tril(last_key).select(2, row).cpu()
        for back, scores in enumerate(routes.numpy()):
            panels[f"key{back + 1}"] = scores
    alpha = [block.attn.alpha.tolist() for block in cache.model.blocks]
    beta = [block.attn.beta.tolist() for block in cache.model.blocks]
    return Shown(panels, norms, alpha, beta, logits)


def _says_all(cfg: Any) -> bool:
    """Return True if one alpha and beta per head fully describe how a model's keys and values mix
    tokens.
    """
    shifts = isinstance(cfg, ModelConfig) and bool(cfg.learned_shifts)
    return shifts and cfg.mixes_tokens is None
