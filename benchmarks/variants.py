"""The cost of each attention variant relative to vanilla: training step, decoding, memory,
parameters, FLOPs.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from paired import ratio, timed
from train_step import Side, prepare
from workers import by_turns

from ihlab.model.config import ModelConfig
from ihlab.recipes.labels import K_ONLY, KV, V_ONLY, VANILLA
from ihlab.training.config import RunConfig
from tasks import InductionTask

sys.path.append(str(Path(__file__).parents[1]))
from figures.variants.study import ZOO_VARIANTS

MODEL = ModelConfig(n_layers=2, d_model=64, n_heads=4, d_vocab=512, n_ctx=64)
RUN = RunConfig(task=InductionTask(vocab_size=512, length=64), model=MODEL, batch_size=64)
PROMPT, NEW = 16, 48
TABLE = (
    "Attention variants against vanilla: two layers, d_model 64, 4 heads, vocabulary 512, length 64, "
    "batch 64, eager"
)


TOKEN_SHIFTS: dict[str, dict[str, Any]] = {
    VANILLA: {},
    KV: {"attention": "kv_shift"},
    K_ONLY: {"attention": "k_shift"},
    "K only, first own": {"attention": "k_shift", "shift_first": "own"},
    V_ONLY: {"attention": "v_shift"},
    "partial key offset": {"attention": "key_offset"},
    "smear, embedding": {"smear": "embedding"},
    "conv K": {"canon": "K"},
    "conv V": {"canon": "V"},
    "conv attention out": {"canon": "O"},
    "conv MLP out": {"canon": "M"},
    "conv all four": {"canon": "KVOM"},
    "conv all four, identity start": {"canon": "KVOM", "shift_start": "identity"},
    "filters of Q, K, V": {"attention": "qkv_shift", "shift_window": 4},
}
"""Fields of the model that make variants of the frozen study `shifts`, by their labels."""


@dataclass(frozen=True)
class Cache:
    """Floats of a layer's cache, per token and per sequence of any length; parameters of the model."""

    a_token: float
    a_row: float
    parameters: int


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the ratios to vanilla of every variant of the studies of attention and of token shifts;
    when quick, of two.
    """
    variants = {VANILLA: {}} | ZOO_VARIANTS | TOKEN_SHIFTS
    sides = {
        name: Side(RUN, compiled=False, fields=variants[name], steps=1)
        for name in list(variants)[: 3 if quick else None]
    }
    seconds, steps = by_turns(prepare, sides, 1 if quick else 10)
    decoding, caches = by_turns(_decoder, sides, 1 if quick else 5)
    step, cache = steps.pop(VANILLA), caches.pop(VANILLA)
    rows = []
    for name in steps:
        its_step, its_cache = steps[name], caches[name]
        counted = (
            f"{its_cache.parameters - cache.parameters:+,} parameters; FLOPs x {its_step.flops / step.flops:.3f}; "
            f"memory x {its_step.memory / step.memory:.2f}"
        )
        growth = its_cache.a_token / cache.a_token
        kept = f"{growth:.3g} x the cache of a token, and {its_cache.a_row:.0f} floats a layer"
        for what, times, note in (
            ("training step", seconds, counted),
            (f"{NEW} new tokens", decoding, kept),
        ):
            row = ratio(
                TABLE, f"{name}: {what}", times[name][0], times[VANILLA][0], against=VANILLA
            )
            rows.append(row | {"note": note})
    return pd.DataFrame(rows)


def _decoder(side: Side) -> tuple[Cache, Callable[[], float]]:
    """Build a side. Return its `Cache`, and a function that returns the seconds of decoding one
    sequence.
    """
    import torch

    from ihlab.model.transformer import Transformer

    model = Transformer(side.config.model)
    prompt = torch.randint(MODEL.d_vocab, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    return _cache(model, prompt), timed(lambda: model.generate(prompt, NEW))


def _cache(model: Any, prompt: Any) -> Cache:
    """Count the floats of the first layer's cache after the prompt."""
    from ihlab.model.decode import Decoder

    decoder = Decoder(model, batch=1, capacity=prompt.shape[1])
    decoder.forward(prompt)
    layer = decoder.caches[0]
    growing = sum(part.numel() for part in vars(layer).values() if hasattr(part, "numel"))
    return Cache(
        a_token=growing / prompt.shape[1],
        a_row=sum(part.numel() for part in layer.raw.values()),
        parameters=sum(p.numel() for p in model.parameters()),
    )
