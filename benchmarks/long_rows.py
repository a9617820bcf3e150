"""Long sequences: a training step and a forward pass of one sequence of 1024 to 16,384 tokens, as in text or iGSM.

Training: ours against Hugging Face's Llama, with logits at every position on both sides. Forward: ours, with torch's
fused attention kernel, against the same network with torch's flex attention, which has no backward pass on a CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from cost_curves import slope
from paired import figure, ratio, take_turns, timed
from train_step import EVERYWHERE, FIELDS, LLAMA, SHIFTED, Facts, Shape, Side, prepare
from workers import peak_mib, resident_mib, workers

from tasks import NGramTask

LENGTHS = (1024, 4096, 16384)
LAYERS = (1, 2)
ROUNDS = 5
OURS, FLEX = "ours, vanilla", "flex attention"
TRAINED = {EVERYWHERE: {}, SHIFTED: FIELDS[SHIFTED], LLAMA: {}}
"""Sides of a training step, with fields of our configs. The shifted side has logits only at scored positions."""


@dataclass(frozen=True)
class Forward:
    """One process of the second table: a network's forward pass, compiled if it uses flex attention."""

    shape: Shape
    model: str


def measure(quick: bool = False) -> pd.DataFrame:
    """Return times, memory and ratios at every length, and exponents over all; when quick, at two short lengths."""
    lengths, layers = ((128, 256), LAYERS[:1]) if quick else (LENGTHS, LAYERS)
    rows = []
    for n_layers in layers:
        # N-grams, because a sequence of the induction task draws from distinct tokens and cannot exceed the vocabulary.
        sizes = {"n_layers": n_layers, "rows": 1, "rounds": ROUNDS, "batches": 1, "task": NGramTask}
        shapes = [Shape("one row", 512, length, 128, **sizes) for length in lengths]
        words = f"{n_layers} layer{'s' * (n_layers > 1)}, d_model 128, 4 heads, vocabulary 512"
        rows += _table(f"A training step on one long row, {words}", shapes, _training, prepare)
        rows += _table(f"A forward pass over one long row, {words}", shapes, _forward, _prepare_forward)
    return pd.DataFrame(rows)


def _training(shape: Shape) -> dict[str, Side]:
    return {model: Side(shape, model, "eager", fields) for model, fields in TRAINED.items()}


def _forward(shape: Shape) -> dict[str, Forward]:
    return {model: Forward(shape, model) for model in (OURS, FLEX)}


def _table(title: str, shapes: list[Shape], sides_of: Callable, prepared: Callable) -> list[dict[str, object]]:
    """Return the figures of one table: each side's time and memory, ratios to the last side, and exponents."""
    rows, seconds, memory = [], {}, {}
    for shape in shapes:
        sides = sides_of(shape)
        with workers(prepared, list(sides.values())) as (turns, facts):
            taken = take_turns(dict(zip(sides, turns, strict=True)), shape.rounds)
        ours, *_, theirs = sides
        assert abs(facts[0].loss - facts[-1].loss) < 1e-4, f"{ours} and {theirs} do not compute the same"
        for (side, times), fact in zip(taken.items(), facts, strict=True):
            seconds[side, shape.length], memory[side, shape.length] = times, fact.memory
            name = f"{side}, length {shape.length}"
            rows.append(figure(title, name, 1e3 * times, "ms", note=f"{fact.memory:.0f} MiB"))
        rows.append(ratio(title, f"{ours} / {theirs}, length {shape.length}", taken[ours], taken[theirs]))
    lengths = np.array([shape.length for shape in shapes])
    for side in sides_of(shapes[0]):
        by_turn = [slope(lengths, turn) for turn in np.array([seconds[side, length] for length in lengths]).T]
        grows = slope(lengths, np.array([memory[side, length] for length in lengths]))
        rows.append(figure(title, f"{side}: time over length", by_turn, "exponent", note=f"memory: {grows:.2f}"))
    return rows


def _prepare_forward(side: Forward) -> tuple[Facts, Callable[[], float]]:
    """Build a network and a sequence. Return its `Facts`, with a logit as loss, and a timed forward pass."""
    import torch
    from plain_llama import PlainLlama
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from ihlab.model.config import ModelConfig
    from ihlab.model.transformer import Transformer

    shape = side.shape
    size = ModelConfig(
        n_layers=shape.n_layers, d_model=shape.d_model, n_heads=shape.n_heads, d_vocab=shape.vocab_size,
        n_ctx=shape.length,
    )  # fmt: skip
    tokens = torch.randint(shape.vocab_size, (1, shape.length), generator=torch.Generator().manual_seed(0))
    model: torch.nn.Module = Transformer(size, seed=0).eval()
    if side.model == FLEX:
        mask = create_block_mask(lambda _, __, query, key: query >= key, None, None, shape.length, shape.length, "cpu")

        def flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            # Compiled for a CPU, flex attention misreads values that are not contiguous in memory (torch 2.13).
            return flex_attention(q, k, v.contiguous(), block_mask=mask)

        model = torch.compile(PlainLlama(model, flex).logits)
    before = resident_mib()

    def forward() -> float:
        with torch.no_grad():
            logits = model(tokens) if side.model == FLEX else model(tokens, return_type="logits")
            return float(logits[0, -1, 0])

    logit = forward()
    return Facts(logit, 0.0, peak_mib() - before, 0, 0.0), timed(forward)
