"""Training many runs, some at a time, each in a process of its own."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty

from ihlab.training.config import RunConfig
from ihlab.training.progress import Row

Update = tuple[int, int, Row]
"""(which config, steps done, latest metrics)."""

_updates: "Queue[Update]"  # in a worker: the way back to the parent
_stop: Event  # in a worker: whether the parent wants no more


def train_all(
    configs: Sequence[RunConfig], root: Path, device: str, jobs: int, on_update: Callable[[Update], None]
) -> None:
    """Train every config that is not finished, at most `jobs` at a time, the costliest first.

    Processes rather than threads or one stacked model: on a CPU two runs of one thread each finish
    sooner than one run of two threads after another. Each worker gets its share of the cores.
    After Ctrl-C or a run's failure the other workers save where they are, stop, and the exception goes on.
    """
    todo = [i for i, config in enumerate(configs) if not (config.folder(root) / "done.json").exists()]
    if not todo:
        return  # a worker takes seconds to start
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    context = multiprocessing.get_context("spawn")  # a forked child of a threaded torch can hang
    updates: Queue[Update] = context.Queue()
    stop = context.Event()
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (updates, stop, threads))
    try:
        waiting: set[Future[None]] = {
            pool.submit(_train_one, i, configs[i], root, device) for i in sorted(todo, key=lambda i: -_cost(configs[i]))
        }
        while waiting:
            finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            _drain(updates, on_update)
            for future in finished:
                future.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _drain(updates: "Queue[Update]", on_update: Callable[[Update], None]) -> None:
    while True:
        try:
            on_update(updates.get_nowait())
        except Empty:
            return


def _cost(config: RunConfig) -> int:
    model = config.model
    return model.n_layers * model.d_model**2 * config.steps * config.batch_size * config.task.length


def _start_worker(updates: "Queue[Update]", stop: Event, threads: int) -> None:
    global _updates, _stop  # a pool's initialiser has no other way to hand something to its tasks
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between runs; while training, the loop saves and stops
    import torch

    _updates, _stop = updates, stop
    torch.set_num_threads(threads)


def _train_one(index: int, config: RunConfig, root: Path, device: str) -> None:
    if _stop.is_set():  # handed to this worker before the rest was cancelled
        return
    from ihlab.training.loop import train

    def report(step: int, row: Row) -> None:
        _updates.put((index, step, row))
        if _stop.is_set():  # a notebook's interrupt reaches the parent alone: pass it on to the loop
            os.kill(os.getpid(), signal.SIGINT)

    train(config, root, device, report)
