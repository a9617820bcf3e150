"""A whole training step: KV shifting against vanilla, and ours against Hugging Face's Llama.

Every model lives in a process of its own, as a training run does, and the processes take turns. In one
process, models share a heap, and how its pages happen to fall moves a model's time by several percent
for as long as the process lives: more than what KV shifting costs.
"""

import itertools
import multiprocessing as mp
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pandas as pd
from paired import Bar, figure, ratio, take_turns

SHAPES = {  # vocabulary, length, d_model; 4 heads, batch 64
    "small (vocabulary 192, length 48, d_model 32, 4 heads, batch 64)": (192, 48, 32),
    "larger (vocabulary 512, length 64, d_model 64, 4 heads, batch 64)": (512, 64, 64),
}
ROWS, BATCHES = 64, 8
MODELS = ("ours, vanilla", "ours, kv_shift", "Hugging Face Llama")
SHIFT_BARS = {"eager": Bar(1.10), "compiled": Bar(1.05)}  # kv_shift / vanilla
LLAMA_BAR = Bar(1.0)  # ours / Llama, the faster mode of each
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
class Side:
    """What one process trains. `shape` is vocabulary, length and d_model."""

    shape: tuple[int, int, int]
    n_layers: int
    model: str
    mode: str


def measure(quick: bool = False) -> pd.DataFrame:
    """Times and ratios of every shape and depth; when quick, of the smallest only."""
    os.environ |= ALLOCATOR  # read by the C library when the fork server starts
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    cases = list(itertools.product(SHAPES, (1, 2)))[: 1 if quick else None]
    rows = [row for shape, n_layers in cases for row in _case(context, shape, n_layers, rounds=8 if quick else 40)]
    return pd.DataFrame(rows)


def _case(context: mp.context.ForkServerContext, shape: str, n_layers: int, rounds: int) -> list[dict[str, object]]:
    """The figures of one shape and depth."""
    table = f"A training step, {n_layers} layer{'s' if n_layers > 1 else ''}, {shape}"
    sides = {(model, mode): Side(SHAPES[shape], n_layers, model, mode) for mode in SHIFT_BARS for model in MODELS}
    with _processes(context, list(sides.values())) as (turns, first_losses, first_seconds):
        _check_same_loss(dict(zip(sides, first_losses, strict=True)))
        by_name = take_turns({" ".join(name): turn for name, turn in zip(sides, turns, strict=True)}, rounds)
    seconds = dict(zip(sides, by_name.values(), strict=True))
    tokens = ROWS * SHAPES[shape][1]
    rows = []
    for (model, mode), first in zip(sides, first_seconds, strict=True):
        s = seconds[model, mode]
        note = f"{tokens / pd.Series(s).median() / 1e3:.0f} k tokens/s"
        note += f"; first step {first:.0f} s" if mode == "compiled" else ""
        rows.append(figure(table, f"{model}, {mode}", 1e3 * s, "ms", note=note))
    vanilla, shifted, llama = MODELS
    for mode, bar in SHIFT_BARS.items():
        rows.append(ratio(table, f"kv_shift / vanilla, {mode}", seconds[shifted, mode], seconds[vanilla, mode], bar))
    for mode in SHIFT_BARS:
        rows.append(ratio(table, f"ours / Llama, {mode}", seconds[vanilla, mode], seconds[llama, mode]))
    ours, theirs = (
        min((seconds[model, mode] for mode in SHIFT_BARS), key=lambda s: pd.Series(s).median())
        for model in (vanilla, llama)
    )
    rows.append(ratio(table, "ours / Llama, the faster mode of each", ours, theirs, LLAMA_BAR))
    return rows


def _check_same_loss(losses: dict[tuple[str, str], float]) -> None:
    """Ours and Llama agree on the first batch, in each mode: times of different computations do not compare."""
    vanilla, shifted, llama = MODELS
    for model, reference in ((llama, vanilla), (vanilla, vanilla), (shifted, shifted)):
        for mode in SHIFT_BARS:
            apart = abs(losses[model, mode] - losses[reference, "eager"])
            assert apart < 1e-4, f"{model}, {mode}: the loss is {apart:.2g} from that of {reference}, eager"


@contextmanager
def _processes(
    context: mp.context.ForkServerContext, sides: list[Side]
) -> Iterator[tuple[list[Callable[[], float]], list[float], list[float]]]:
    """A process for each side: their turns (seconds of one step), first losses and seconds of the first step.

    They are made one after another, so that each has the machine to itself while it compiles.
    """
    pipes, processes, losses, firsts = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, side in enumerate(sides):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, side, Path(folder) / str(number)), daemon=False)
                process.start()
                theirs.close()  # a worker that dies then ends our recv with EOFError instead of hanging it
                pipes.append(ours)
                processes.append(process)
                loss, first = ours.recv()
                losses.append(loss)
                firsts.append(first)
            yield [_turn(pipe) for pipe in pipes], losses, firsts
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
    """Build a side, tell its first loss and first step's seconds, then time one step for every word received."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)  # its own: the first step then counts the whole compilation
    import torch
    from paired import timed

    torch.set_num_threads(1)
    losses: list[float] = []
    step = _stepper(side)
    first = timed(lambda: losses.append(step()))()
    for _ in range(2 * BATCHES):
        step()
    turn = timed(step)
    pipe.send((losses[0], first))
    with torch.compiler.set_stance("fail_on_recompile"):
        while True:
            try:
                pipe.recv()
            except EOFError:
                return
            pipe.send(turn())


def _stepper(side: Side) -> Callable[[], float]:
    """A whole step, as training takes it, on the next of a few batches; it returns the loss."""
    import torch
    from torch.nn import functional as F

    from ihlab.model.config import ModelConfig
    from ihlab.model.hf import to_llama
    from ihlab.model.transformer import Transformer
    from ihlab.training.config import RunConfig
    from ihlab.training.loss import summed_loss
    from ihlab.training.optim import make_optimizer
    from ihlab.training.stream import Scored, Stream
    from tasks import IGNORE, InductionTask

    vocabulary, length, d_model = side.shape
    task = InductionTask(vocab_size=vocabulary, length=length)
    attention = "kv_shift" if "kv_shift" in side.model else "vanilla"
    shape = ModelConfig(
        n_layers=side.n_layers, d_model=d_model, n_heads=4, d_vocab=vocabulary, n_ctx=length, attention=attention
    )
    run = RunConfig(task=task, model=shape, batch_size=ROWS)
    stream = Stream(task, run.seed, ROWS)
    batches = [stream.step(i)[0] for i in range(BATCHES)]

    def every_position(batch: Scored) -> torch.Tensor:
        targets = torch.full((batch.tokens.numel(),), IGNORE)
        targets[batch.index[: batch.count]] = batch.targets[: batch.count]
        return targets

    def llama_loss(model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORE, reduction="sum")

    model: torch.nn.Module = Transformer(shape, seed=run.seed)
    loss: Callable[..., torch.Tensor] = summed_loss
    arguments = [(b.tokens, b.index, b.targets) for b in batches]
    if side.model == "Hugging Face Llama":
        model, loss = to_llama(model).train(), llama_loss
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
