"""The cost of each attention variant relative to vanilla: training step, decoding, memory, parameters, FLOPs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from paired import COLUMNS, ratio, take_turns, timed
from train_step import OURS, Shape, Side, prepare
from workers import workers

from ihlab.claims.labels import VANILLA
from ihlab.claims.token_shifts import VARIANTS as TOKEN_SHIFTS
from ihlab.studies.variants import ZOO_VARIANTS, variant_fields

SHAPE = Shape("larger", 512, 64, 64, n_layers=2)
ROUNDS = 30
PROMPT, NEW, DECODE_ROUNDS = 16, 48, 10


@dataclass(frozen=True)
class Cache:
    """Floats of a layer's cache, per token and per sequence of any length; parameters of the model."""

    a_token: float
    a_row: float
    parameters: int


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the ratios to vanilla of every variant of the zoo and of the study of token shifts; when quick, of two."""
    zoo = {name: variant_fields(name, SHAPE.n_heads) for name in ZOO_VARIANTS}
    tables = [{VANILLA: {}, **zoo}, TOKEN_SHIFTS][: 1 if quick else None]
    rows = [row for variants in tables for row in _ratios(variants, quick)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("table", kind="stable", ignore_index=True)


def _ratios(variants: dict[str, dict[str, Any]], quick: bool) -> list[dict[str, object]]:
    """Return the rows of variants, the first of which is vanilla."""
    names = list(variants)[: 3 if quick else None]
    sides = {name: Side(SHAPE, OURS, "eager", variants[name]) for name in names}
    with workers(prepare, list(sides.values())) as (turns, steps):
        seconds = take_turns(dict(zip(names, turns, strict=True)), 3 if quick else ROUNDS)
    with workers(_decoder, list(sides.values())) as (turns, caches):
        decoding = take_turns(dict(zip(names, turns, strict=True)), 2 if quick else DECODE_ROUNDS)
    (step, *_), (cache, *_) = steps, caches
    rows = []
    for name, its_step, its_cache in zip(names[1:], steps[1:], caches[1:], strict=True):
        table = f"Attention variants / vanilla, {SHAPE.title}"
        note = (
            f"{its_cache.parameters - cache.parameters:+,} parameters; FLOPs x {its_step.flops / step.flops:.3f}; "
            f"memory x {its_step.memory / step.memory:.2f}"
        )
        rows.append(ratio(f"{table}: a training step, eager", name, seconds[name], seconds[VANILLA]) | {"note": note})
        kept = f"{its_cache.a_token / cache.a_token:.3g} x the cache a token, and {its_cache.a_row:.0f} floats a layer"
        decoded = ratio(f"{table}: {NEW} new tokens", name, decoding[name], decoding[VANILLA]) | {"note": kept}
        rows.append(decoded)
    return rows


def _decoder(side: Side) -> tuple[Cache, Callable[[], float]]:
    """Build a side. Return its `Cache`, and a function that returns the seconds of decoding one sequence."""
    import torch

    from ihlab.model.config import ModelConfig
    from ihlab.model.transformer import Transformer

    shape = side.shape
    fields = {"n_heads": shape.n_heads, **side.fields}
    model = Transformer(
        ModelConfig(
            n_layers=shape.n_layers, d_model=shape.d_model, d_vocab=shape.vocab_size, n_ctx=shape.length, **fields
        )
    )
    prompt = torch.randint(shape.vocab_size, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    return _cache(model, prompt), timed(lambda: model.generate(prompt, NEW))


def _cache(model: Any, prompt: Any) -> Cache:
    """Count the floats of the first layer's cache after the prompt."""
    from ihlab.model.decode import Decoder

    decoder = Decoder(model, batch=1, capacity=prompt.shape[1])
    decoder.forward(prompt)
    layer = decoder.caches[0]
    growing = sum(part.numel() for part in (layer.keys, layer.values, layer.selection))  # noqa: PD011 (no DataFrame)
    return Cache(
        a_token=growing / prompt.shape[1],
        a_row=sum(part.numel() for part in layer.raw.values()),
        parameters=sum(p.numel() for p in model.parameters()),
    )
