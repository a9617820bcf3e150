"""A whole training step: KV shifting against vanilla, and ours against Hugging Face's Llama and TransformerLens.

Every model has its own process, as a training run does, and the processes take turns (`workers`).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from paired import Bar, figure, ratio, take_turns, timed
from workers import flops, peak_mib, resident_mib, workers

from tasks import InductionTask, Task

OURS, SHIFTED, LLAMA, LENS = "ours, vanilla", "ours, kv_shift", "Hugging Face Llama", "TransformerLens native"
EVERYWHERE = "ours, vanilla, logits at every position"
"""Our model with the same work as the Llama. `OURS`, as in training, computes logits only at scored positions."""
SCALED = "ours, keys and values times a learned number"
"""The minimum cost of any change to keys and values: each is read and written once, forward and backward."""
FIELDS = {SHIFTED: {"attention": "kv_shift"}, SCALED: {"attention": "kv_shift"}}
"""Config fields of our models that are not vanilla."""
MODES = {LENS: ("eager",), SCALED: ("compiled",)}
"""Modes in which a model is timed, if not both."""
SHIFT_BARS = {"eager": Bar(1.10), "compiled": Bar(1.05)}  # kv_shift / vanilla
TOY_BAR, BAR = Bar(1 / 1.5), Bar(1.0)  # ours / Llama, the faster mode of each


@dataclass(frozen=True)
class Shape:
    """A model and its batches."""

    name: str
    vocab_size: int
    length: int
    d_model: int
    n_layers: int
    n_heads: int = 4
    d_mlp: int | None = None
    rows: int = 64
    rounds: int = 40
    batches: int = 8
    llama_bar: Bar = TOY_BAR
    task: type[Task] = InductionTask

    @property
    def title(self) -> str:
        layers = f"{self.n_layers} layer{'s' if self.n_layers > 1 else ''}"
        return (
            f"{layers}, {self.name} (vocabulary {self.vocab_size}, length {self.length}, d_model {self.d_model}, "
            f"{self.n_heads} heads, batch {self.rows})"
        )


SHAPES = (
    Shape("small", 192, 48, 32, n_layers=1),
    Shape("small", 192, 48, 32, n_layers=2),
    Shape("larger", 512, 64, 64, n_layers=1),
    Shape("larger", 512, 64, 64, n_layers=2),
    Shape("wide", 512, 128, 128, n_layers=2, rows=32, rounds=20),
    Shape("20M", 8000, 512, 1024, n_layers=1, n_heads=8, d_mlp=5504, rows=2, rounds=6, batches=4, llama_bar=BAR),
)


@dataclass(frozen=True)
class Facts:
    """Facts that a process reports before it takes turns.

    - `loss`: loss of the first batch; `first`: seconds of the first step;
    - `memory`: MiB that model and step add to the process at its peak;
    - `flops`: FLOPs of a step's matrix products, 0 if compilation hides them;
    - `speed`: FLOP/s of one large matrix product on the same thread.
    """

    loss: float
    first: float
    memory: float
    flops: int
    speed: float


@dataclass(frozen=True)
class Side:
    """Shape, model and mode of one process; `fields` are config fields of our model that differ from vanilla."""

    shape: Shape
    model: str
    mode: str
    fields: dict[str, Any] = field(default_factory=dict)


def measure(quick: bool = False) -> pd.DataFrame:
    """Return times and ratios of every shape; when quick, only of the smallest."""
    shapes = SHAPES[: 1 if quick else None]
    return pd.DataFrame([row for shape in shapes for row in _case(shape, 8 if quick else shape.rounds)])


def _case(shape: Shape, rounds: int) -> list[dict[str, object]]:
    """Return the figures of one shape."""
    table = f"A training step, {shape.title}"
    sides = {
        (model, mode): Side(shape, model, mode, FIELDS.get(model, {}))
        for model in (OURS, EVERYWHERE, SHIFTED, SCALED, LLAMA, LENS)
        for mode in MODES.get(model, tuple(SHIFT_BARS))
    }
    with workers(prepare, list(sides.values())) as (turns, reported):
        facts = dict(zip(sides, reported, strict=True))
        _check_same_loss({name: fact.loss for name, fact in facts.items()})
        by_name = take_turns({" ".join(name): turn for name, turn in zip(sides, turns, strict=True)}, rounds)
    seconds = dict(zip(sides, by_name.values(), strict=True))
    rows = [
        figure(
            table,
            f"{model}, {mode}",
            1e3 * times,
            "ms",
            note=_note(facts[model, mode], facts[SHIFTED if model == SCALED else model, "eager"].flops, shape, times),
        )
        for (model, mode), times in seconds.items()
    ]
    for mode, bar in SHIFT_BARS.items():
        rows.append(ratio(table, f"kv_shift / vanilla, {mode}", seconds[SHIFTED, mode], seconds[OURS, mode], bar))
    floor = seconds[SCALED, "compiled"]
    rows.append(ratio(table, "the least for a change of k and v / vanilla, compiled", floor, seconds[OURS, "compiled"]))
    for mode in SHIFT_BARS:
        rows.append(ratio(table, f"ours / Llama, {mode}", seconds[OURS, mode], seconds[LLAMA, mode]))
    ours, everywhere, theirs = (_faster(seconds, model) for model in (OURS, EVERYWHERE, LLAMA))
    rows.append(ratio(table, "ours / Llama, the faster mode of each", ours, theirs, shape.llama_bar))
    rows.append(ratio(table, "the same with logits at every position", everywhere, theirs))
    rows.append(ratio(table, "ours / TransformerLens, the faster mode of each", ours, _faster(seconds, LENS), BAR))
    return rows


def _faster(seconds: dict[tuple[str, str], np.ndarray], model: str) -> np.ndarray:
    """Return a model's times in its faster mode."""
    return min((times for (of, _), times in seconds.items() if of == model), key=np.median)


def _note(facts: Facts, counted: int, shape: Shape, seconds: np.ndarray) -> str:
    middle = np.median(seconds)
    compiled = "" if facts.flops else f"; first step {facts.first:.0f} s"
    return (
        f"{shape.rows * shape.length / middle / 1e3:.3g} k tokens/s; {facts.memory:.0f} MiB; "
        f"{counted / middle / facts.speed:.0%} of matmul speed{compiled}"
    )


def _check_same_loss(losses: dict[tuple[str, str], float]) -> None:
    """Check that all sides have the same loss on the first batch: times of different computations do not compare.

    `SCALED` is not checked, since no other side computes its loss.
    """
    for (model, mode), loss in losses.items():
        if model == SCALED:
            continue
        apart = abs(loss - losses[SHIFTED if model == SHIFTED else OURS, "eager"])
        assert apart < 1e-4, f"{model}, {mode}: the loss is {apart:.2g} from ours, eager"


def prepare(side: Side) -> tuple[Facts, Callable[[], float]]:
    """Build a side. Return its `Facts`, and a function that returns the seconds of one step."""
    speed = _matmul_speed()
    before = resident_mib()
    losses: list[float] = []
    step = _stepper(side)
    first = timed(lambda: losses.append(step()))()
    for _ in range(side.shape.batches):
        step()
    memory = peak_mib() - before
    counted = flops(step) if side.mode == "eager" else 0
    return Facts(losses[0], first, memory, counted, speed), timed(step)


def _matmul_speed() -> float:
    """Return the FLOP/s of a product of two 1024 x 1024 matrices, the best of a few."""
    import torch

    a = torch.randn(1024, 1024)
    product = timed(lambda: a @ a)
    return 2 * 1024**3 / min(product() for _ in range(10))


def _stepper(side: Side) -> Callable[[], float]:
    """Return a function that takes a whole training step on the next of a few batches, and returns the loss."""
    import torch
    from lens_native import to_native
    from torch.nn import functional as F

    from ihlab.measure.gathered import TrainingBatch
    from ihlab.measure.loss import summed_loss
    from ihlab.model.config import ModelConfig
    from ihlab.model.hf import to_llama
    from ihlab.model.transformer import Transformer
    from ihlab.training.config import RunConfig
    from ihlab.training.loop import make_optimizer, microbatches
    from tasks import IGNORE

    shape = side.shape
    task = shape.task(vocab_size=shape.vocab_size, length=shape.length)
    config = ModelConfig(
        n_layers=shape.n_layers,
        d_model=shape.d_model,
        d_mlp=shape.d_mlp,
        d_vocab=shape.vocab_size,
        n_ctx=shape.length,
        **{"n_heads": shape.n_heads, **side.fields},
    )
    run = RunConfig(task=task, model=config, batch_size=shape.rows)
    batches = [microbatches(run, i)[0] for i in range(shape.batches)]

    def every_position(batch: TrainingBatch) -> torch.Tensor:
        targets = torch.full((batch.tokens.numel(),), IGNORE)
        if batch.index is None:
            return batch.targets
        targets[batch.index[: batch.count]] = batch.targets[: batch.count]
        return targets

    def loss_of_all(model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = model(tokens, use_cache=False).logits if side.model == LLAMA else model(tokens, return_type="logits")
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORE, reduction="sum")

    model: torch.nn.Module = Transformer(config, seed=run.seed)
    if side.model == SCALED:
        for block in model.blocks:  # type: ignore[union-attr]
            block.attn.key_shift, block.attn.value_shift = (_scale(shape.n_heads) for _ in range(2))
    loss: Callable[..., torch.Tensor] = summed_loss
    arguments: list[tuple[torch.Tensor | None, ...]] = [b.tensors for b in batches]
    if side.model in (EVERYWHERE, LLAMA, LENS):
        convert: dict[str, Callable[..., torch.nn.Module]] = {LLAMA: to_llama, LENS: to_native}
        model, loss = convert.get(side.model, lambda ours: ours)(model).train(), loss_of_all
        arguments = [(b.tokens, every_position(b)) for b in batches]
    if side.mode == "compiled":
        loss = torch.compile(loss)  # for every side, as in training
    optimizer = make_optimizer(model, run)
    turns = itertools.cycle(zip(arguments, [b.count for b in batches], strict=True))

    def step() -> float:
        tensors, count = next(turns)
        mean = loss(model, *tensors) / count
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return mean.item()

    return step


def _scale(n_heads: int) -> Any:
    """Return a shift without the previous token: it multiplies each head's vectors by a learned number."""
    from ihlab.model.shift import TokenShift

    class Scale(TokenShift):
        def forward(self, x, hook=None, before=None):
            return x * self.weight[:, :1]

    return Scale(n_heads, 2)
