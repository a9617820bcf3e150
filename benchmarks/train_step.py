"""A whole training step: KV shifting against vanilla, and ours against Hugging Face's Llama and TransformerLens.

Every model lives in a process of its own, as a training run does, and the processes take turns. In one
process, models share a heap, and how its pages happen to fall moves a model's time by several percent
for as long as the process lives: more than what KV shifting costs.
"""

import itertools
import multiprocessing as mp
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pandas as pd
from paired import Bar, figure, ratio, take_turns

BATCHES = 8
OURS, SHIFTED, LLAMA, LENS = "ours, vanilla", "ours, kv_shift", "Hugging Face Llama", "TransformerLens native"
MODES = {LENS: ("eager",)}
"""In which modes a model is timed, if not in both."""
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
    llama_bar: Bar = TOY_BAR

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
    Shape("20M", 8000, 512, 1024, n_layers=1, n_heads=8, d_mlp=5504, rows=2, rounds=6, llama_bar=BAR),
)
PRELOAD = (
    "ihlab.training.loss",
    "ihlab.model.hf",
    "transformers.models.llama.modeling_llama",
    "pandas",
    "rich",
    "tyro",
)
# Keep freed memory: given back after each step, it is faulted in again page by page during the next.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


@dataclass(frozen=True)
class Facts:
    """What a process tells before it takes turns.

    - `loss` of the first batch; `first` step's seconds;
    - `memory`: MiB that a step adds at its peak to the process without a model;
    - `flops` of a step's products of matrices, 0 where compilation hides them;
    - `speed`: FLOP/s of one large product on the same thread.
    """

    loss: float
    first: float
    memory: float
    flops: int
    speed: float


@dataclass(frozen=True)
class Side:
    """What one process trains."""

    shape: Shape
    model: str
    mode: str


def measure(quick: bool = False) -> pd.DataFrame:
    """Times and ratios of every shape; when quick, of the smallest only."""
    os.environ |= ALLOCATOR  # read by the C library when the fork server starts
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    return pd.DataFrame(
        [row for shape in SHAPES[: 1 if quick else None] for row in _case(context, shape, 8 if quick else shape.rounds)]
    )


def _case(context: mp.context.ForkServerContext, shape: Shape, rounds: int) -> list[dict[str, object]]:
    """The figures of one shape."""
    table = f"A training step, {shape.title}"
    sides = {
        (model, mode): Side(shape, model, mode)
        for model in (OURS, SHIFTED, LLAMA, LENS)
        for mode in MODES.get(model, tuple(SHIFT_BARS))
    }
    with _processes(context, list(sides.values())) as (turns, told):
        facts = dict(zip(sides, told, strict=True))
        _check_same_loss({name: fact.loss for name, fact in facts.items()})
        by_name = take_turns({" ".join(name): turn for name, turn in zip(sides, turns, strict=True)}, rounds)
    seconds = dict(zip(sides, by_name.values(), strict=True))
    rows = [
        figure(
            table,
            f"{model}, {mode}",
            1e3 * times,
            "ms",
            note=_note(facts[model, mode], facts[model, "eager"].flops, shape, times),
        )
        for (model, mode), times in seconds.items()
    ]
    for mode, bar in SHIFT_BARS.items():
        rows.append(ratio(table, f"kv_shift / vanilla, {mode}", seconds[SHIFTED, mode], seconds[OURS, mode], bar))
    for mode in SHIFT_BARS:
        rows.append(ratio(table, f"ours / Llama, {mode}", seconds[OURS, mode], seconds[LLAMA, mode]))
    ours, theirs = (_faster(seconds, model) for model in (OURS, LLAMA))
    rows.append(ratio(table, "ours / Llama, the faster mode of each", ours, theirs, shape.llama_bar))
    rows.append(ratio(table, "ours / TransformerLens, the faster mode of each", ours, _faster(seconds, LENS), BAR))
    return rows


def _faster(seconds: dict[tuple[str, str], np.ndarray], model: str) -> np.ndarray:
    """A model's times in its faster mode."""
    return min((times for (of, _), times in seconds.items() if of == model), key=np.median)


def _note(facts: Facts, flops: int, shape: Shape, seconds: np.ndarray) -> str:
    middle = np.median(seconds)
    compiled = "" if facts.flops else f"; first step {facts.first:.0f} s"
    return (
        f"{shape.rows * shape.length / middle / 1e3:.3g} k tokens/s; {facts.memory:.0f} MiB; "
        f"{flops / middle / facts.speed:.0%} of matmul speed{compiled}"
    )


def _check_same_loss(losses: dict[tuple[str, str], float]) -> None:
    """All agree on the first batch, in each mode: times of different computations do not compare."""
    for (model, mode), loss in losses.items():
        apart = abs(loss - losses[SHIFTED if model == SHIFTED else OURS, "eager"])
        assert apart < 1e-4, f"{model}, {mode}: the loss is {apart:.2g} from ours, eager"


@contextmanager
def _processes(
    context: mp.context.ForkServerContext, sides: list[Side]
) -> Iterator[tuple[list[Callable[[], float]], list[Facts]]]:
    """A process for each side: their turns (seconds of one step), and what each tells of itself.

    They are made one after another, so that each has the machine to itself while it compiles.
    """
    pipes, processes, facts = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, side in enumerate(sides):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, side, Path(folder) / str(number)), daemon=False)
                process.start()
                theirs.close()  # a worker that dies then ends our recv with EOFError instead of hanging it
                pipes.append(ours)
                processes.append(process)
                facts.append(ours.recv())
            yield [_turn(pipe) for pipe in pipes], facts
        finally:
            for pipe in pipes:
                pipe.close()  # ends the worker's loop
            for process in processes:
                process.join()


def _turn(pipe: Connection) -> Callable[[], float]:
    def seconds() -> float:
        pipe.send("step")
        return pipe.recv()

    return seconds


def _work(pipe: Connection, side: Side, cache: Path) -> None:
    """Build a side, tell its `Facts`, then time one step for every word received."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)  # its own: the first step then counts the whole compilation
    import torch
    from paired import timed

    torch.set_num_threads(1)
    speed = _matmul_speed()
    before = _status_mib("VmRSS")
    losses: list[float] = []
    step = _stepper(side)
    first = timed(lambda: losses.append(step()))()
    for _ in range(BATCHES):
        step()
    memory = _status_mib("VmHWM") - before
    flops = _flops(step) if side.mode == "eager" else 0
    turn = timed(step)
    pipe.send(Facts(losses[0], first, memory, flops, speed))
    with torch.compiler.set_stance("fail_on_recompile"):
        while True:
            try:
                pipe.recv()
            except EOFError:
                return
            pipe.send(turn())


def _matmul_speed() -> float:
    """FLOP/s of a product of two 1024 x 1024 matrices, the best of a few."""
    import torch
    from paired import timed

    a = torch.randn(1024, 1024)
    product = timed(lambda: a @ a)
    return 2 * 1024**3 / min(product() for _ in range(10))


def _status_mib(name: str) -> float:
    """What Linux says of this process's memory, in MiB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def _flops(step: Callable[[], float]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def _stepper(side: Side) -> Callable[[], float]:
    """A whole step, as training takes it, on the next of a few batches; it returns the loss."""
    import torch
    from lens_native import to_native
    from torch.nn import functional as F

    from ihlab.model.config import ModelConfig
    from ihlab.model.hf import to_llama
    from ihlab.model.transformer import Transformer
    from ihlab.training.config import RunConfig
    from ihlab.training.loss import summed_loss
    from ihlab.training.optim import make_optimizer
    from ihlab.training.stream import Scored, Stream
    from tasks import IGNORE, InductionTask

    shape = side.shape
    task = InductionTask(vocab_size=shape.vocab_size, length=shape.length)
    config = ModelConfig(
        n_layers=shape.n_layers,
        d_model=shape.d_model,
        n_heads=shape.n_heads,
        d_mlp=shape.d_mlp,
        d_vocab=shape.vocab_size,
        n_ctx=shape.length,
        attention="kv_shift" if side.model == SHIFTED else "vanilla",
    )
    run = RunConfig(task=task, model=config, batch_size=shape.rows)
    stream = Stream(task, run.seed, shape.rows)
    batches = [stream.step(i)[0] for i in range(BATCHES)]

    def every_position(batch: Scored) -> torch.Tensor:
        targets = torch.full((batch.tokens.numel(),), IGNORE)
        targets[batch.index[: batch.count]] = batch.targets[: batch.count]
        return targets

    def loss_of_all(model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = model(tokens, return_type="logits") if side.model == LENS else model(tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORE, reduction="sum")

    model: torch.nn.Module = Transformer(config, seed=run.seed)
    loss: Callable[..., torch.Tensor] = summed_loss
    arguments = [(b.tokens, b.index, b.targets) for b in batches]
    if side.model in (LLAMA, LENS):
        model, loss = (to_llama if side.model == LLAMA else to_native)(model).train(), loss_of_all
        arguments = [(b.tokens, every_position(b)) for b in batches]
    if side.mode == "compiled":
        loss = torch.compile(loss)
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
