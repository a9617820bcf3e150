"""Models in separate processes that take turns, and a process's memory and FLOPs.

In one process, models share a heap. The placement of its pages changes a model's time by several
percent for the lifetime of the process, which is more than the cost of KV shifting.
"""

import multiprocessing as mp
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import numpy as np
from paired import take_turns

S = TypeVar("S")  # the spec of one process
F = TypeVar("F")  # the facts that it reports

PRELOAD = (
    "ihlab.training.ensemble",
    "ihlab.training.memory",
    "ihlab.model.conversion",
    "transformers.models.llama.modeling_llama",
    "pandas",
    "rich",
    "tyro",
)


def by_turns(
    prepare: Callable[[S], tuple[F, Callable[[], float]]],
    sides: Mapping[str, S],
    rounds: int,
    starts: int = 1,
) -> tuple[dict[str, np.ndarray], dict[str, F]]:
    """Let a one-thread process for each side take turns, and repeat this with new processes
    `starts` times.

    `prepare(side)` is called in the process and returns its facts and its turn, which returns the
    seconds of one step. Return the seconds of each side [start, turn], and the facts of the first
    start. Only the first start compiles: later ones read its cache.
    """
    seconds, facts = [], []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(starts):
            with processes(prepare, list(sides.values()), Path(cache)) as (turns, reported):
                seconds.append(take_turns(dict(zip(sides, turns, strict=True)), rounds))
                facts.append(dict(zip(sides, reported, strict=True)))
    return {name: np.array([start[name] for start in seconds]) for name in sides}, facts[0]


@contextmanager
def processes(
    prepare: Callable[[S], tuple[F, Callable[[], float]]], sides: Sequence[S], cache: Path
) -> Iterator[tuple[list[Callable[[], float]], list[F]]]:
    """Start a process for each side; yield their turns and the facts they report.

    The processes are started one after another, so that no other process runs while one compiles.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    pipes, children, facts = [], [], []
    try:
        for number, side in enumerate(sides):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, prepare, side, cache / str(number)), daemon=False
            )
            process.start()
            theirs.close()  # so that our recv raises EOFError instead of hanging if the worker dies
            pipes.append(ours)
            children.append(process)
            facts.append(ours.recv())
        yield [_turn(pipe) for pipe in pipes], facts
    finally:
        for pipe in pipes:
            pipe.close()  # ends the worker's loop
        for process in children:
            process.join()


def _turn(pipe: Connection) -> Callable[[], float]:
    def seconds() -> float:
        pipe.send("step")
        return pipe.recv()

    return seconds


def _work(
    pipe: Connection, prepare: Callable[[S], tuple[F, Callable[[], float]]], side: S, cache: Path
) -> None:
    """Send the facts of `prepare`, then take a turn for every message received."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(
        cache
    )  # empty at first: the first step includes the whole compilation
    import torch

    torch.set_num_threads(1)
    facts, turn = prepare(side)
    pipe.send(facts)
    with torch.compiler.set_stance("fail_on_recompile"):
        while True:
            try:
                pipe.recv()
            except EOFError:
                return
            pipe.send(turn())


def resident_mib() -> float:
    """Resident memory of this process, in MiB."""
    return _status_mib("VmRSS")


def peak_mib() -> float:
    """Peak resident memory of this process since it started, in MiB."""
    return _status_mib("VmHWM")


def _status_mib(name: str) -> float:
    """Read a line of /proc/self/status, in MiB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def flops(step: Callable[[], object]) -> int:
    """Count the FLOPs of a step's matrix products; 0 if compilation hides them. Attention counts as
    full squares.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

    def forward(q, k, v, *_, out_shape=None, **__):
        return sdpa_flop_count(q, k, v)

    def backward(grad, q, k, v, *_, out_shape=None, **__):
        return sdpa_backward_flop_count(grad, q, k, v)

    aten = torch.ops.aten
    fused_on_cpu = {  # torch does not count these
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
    with FlopCounterMode(display=False, custom_mapping=fused_on_cpu) as counter:
        step()
    return counter.get_total_flops()
