"""Pool of worker processes that train many runs, one run at a time per process."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console

from ihlab.runtime.progress import progress_bar
from ihlab.sweep.imported import IMPORTED, import_file
from ihlab.sweep.jobs import cores
from ihlab.sweep.retry import train_alone, wait_for_lock
from ihlab.training.config import RunConfig
from ihlab.training.progress import Report, Row, evaluated, shortened
from tasks.config import require

Update = tuple[int, int, Row]
"""(index of the config, steps done, latest metrics). The metrics are empty before the first
evaluation.
"""

Job = Callable[[RunConfig, Report], Any]
"""Function of a config and a report, run in a worker process: a module-level function, or a
`partial` of one.
"""

Ended = Callable[[int, Future[Any]], None]
"""Callback for the end of a job: index of the config, and a future with the job's result or
exception.
"""

LARGEST = 256
"""Largest number of members of one stacked model, on any device: each member takes memory."""

RETRIES = 2
"""Number of times that a run is resumed after its worker process was killed."""

GRACE = 8.0
"""Seconds that a worker has to save a checkpoint after its parent has died."""

_context = multiprocessing.get_context("spawn")  # a forked child of a threaded torch can hang
_parent: Connection  # in a worker: it sends updates; anything that it receives means stop
_idle = threading.Event()  # in a worker: it has no job


class WorkerKilledError(RuntimeError):
    """A run's worker process was killed more than `RETRIES` times."""


def train_all(
    configs: Sequence[RunConfig],
    root: Path,
    device: str,
    jobs: int,
    on_update: Callable[[Update], None],
    stacked: Collection[str] = (),
) -> None:
    """Train every config that has not ended, at most `jobs` at a time, the costliest first.

    Runs whose digest is in `stacked` are trained as stacked models where that is faster (`stacks`).
    After Ctrl-C or a failed run, the other workers save a checkpoint and stop, and the exception is
    raised. If a run diverges, the others continue, and it is not trained again: it would diverge
    again (`Run.diverged`). A run whose worker is killed is resumed in another one, at most
    `RETRIES` times. Raises `WorkerKilledError` after that.
    """
    require_importable(configs)
    todo = {i: config for i, config in enumerate(configs) if not has_ended(config, root)}
    may_be_stacked = {i: config for i, config in todo.items() if config.digest in stacked}
    members = {stack[0]: stack for stack in stacks(may_be_stacked, device)}
    groups = {i: [i] for i in todo if i not in may_be_stacked} | members

    rows: dict[int, Row] = {}

    def every_member(update: Update) -> None:
        index, step, rows[index] = update
        for member in groups[index]:
            on_update((member, step, rows[index]))

    def ended(index: int, future: Future[Any]) -> None:
        try:
            future.result()
        except BrokenProcessPool:
            raise WorkerKilledError(
                f"The worker process that trained {todo[index].name} was killed {RETRIES + 1} times, most likely "
                "because memory ran out: start again with a smaller --jobs; every run goes on from its last checkpoint."
            ) from None
        # With early stopping, it ended before that step.
        every_member((index, todo[index].steps, rows.get(index, {})))

    stacked_configs = {}
    for i, stack in members.items():
        stacked_configs[todo[i].digest] = [todo[j] for j in stack]
    first = {i: todo[i] for i in groups}
    job = partial(_train, root, device, stacked_configs)
    in_processes(first, job, jobs, every_member, ended)


def require_importable(configs: Iterable[RunConfig]) -> None:
    """Raise `ConfigError` if worker processes, which import the calling script again, cannot or
    must not do so.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        again = (
            frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>"
        )
        require(
            not again,
            "A worker process, which imports the script again, reached the call that had started it: make that call "
            'under `if __name__ == "__main__":`.',
        )
        frame = frame.f_back
    if hasattr(sys.modules["__main__"], "__file__"):
        return
    for task in {type(config.task) for config in configs}:
        require(
            task.__module__ != "__main__",
            f"The task {task.__name__} is defined in this notebook or session, where worker processes cannot import it "
            "from: write it to a file and import it here.",
        )


def has_ended(config: RunConfig, root: Path) -> bool:
    """Return whether a run is finished or has diverged."""
    folder = config.folder(root)
    return (folder / "done.json").exists() or (folder / "diverged.json").exists()


def stacks(configs: Mapping[int, RunConfig], device: str) -> list[list[int]]:
    """Group the configs' keys for stacking: all members of a group have one
    `ihlab.training.ensemble.kind`.

    The largest group has `best_stack` members on a CPU, and `LARGEST` on a GPU.
    """
    if not configs:
        return []
    from ihlab.training.device import pick_device
    from ihlab.training.ensemble import best_stack, kind
    from ihlab.training.ensemble import stacks as even_parts

    kinds: dict[str, list[int]] = {}
    for i, config in configs.items():
        kinds.setdefault(kind(config), []).append(i)
    parts: list[list[int]] = []
    for alike in kinds.values():
        most = min(LARGEST, best_stack(configs[alike[0]], len(alike), pick_device(device)))
        parts += even_parts(alike, most)
    return parts


def _train(
    root: Path, device: str, stacked: dict[str, list[RunConfig]], config: RunConfig, report: Report
) -> None:
    from ihlab.training.run_writer import TrainingDivergedError
    from ihlab.training.train import train_ensemble

    members = stacked.get(config.digest)
    for each in members or [config]:
        wait_for_lock(each, root)
    if members is None:
        with suppress(TrainingDivergedError):  # recorded in its folder
            train_alone(config, root, device, report)
    else:
        train_ensemble(members, root, device, report, stack=len(members))


def in_processes(
    configs: Mapping[int, RunConfig],
    job: Job,
    jobs: int,
    on_update: Callable[[Update], None],
    on_end: Ended,
) -> None:
    """Run `job(config, report)` for every config in at most `jobs` worker processes, the costliest
    first.

    Processes are used because on a CPU two runs of one thread each, side by side, finish sooner
    than two runs of two threads, one after the other. The cores are divided equally among workers,
    unless OMP_NUM_THREADS sets the number of threads.

    A job whose worker is killed is retried, at most `RETRIES` times. Then it ends with
    `BrokenProcessPool`, or with `Interrupted` if only the worker was asked to stop. No worker
    outlives this process by more than `GRACE` seconds. `on_update` receives the reports of jobs,
    `on_end` the end of each job. If `on_end` raises, or after Ctrl-C, the other workers are stopped
    first, and then the exception is raised.
    """
    todo = costliest_first(configs)
    threads = max(1, cores() // jobs)
    idle = [_Worker(threads) for _ in range(min(jobs, len(todo)))]
    running: dict[Future[Any], tuple[int, _Worker]] = {}
    killed: Counter[int] = Counter()
    try:
        while todo or running:
            while todo and idle:
                worker, index = idle.pop(), todo.pop(0)
                running[worker.submit(index, configs[index], job)] = index, worker
            finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for _, worker in running.values():
                worker.drain(on_update)
            for future in finished:
                index, worker = running.pop(future)
                error = future.exception()
                idle.append(_Worker(threads) if isinstance(error, BrokenProcessPool) else worker)
                if (
                    isinstance(error, BrokenProcessPool | KeyboardInterrupt)
                    and killed[index] < RETRIES
                ):
                    killed[index] += 1
                    todo.insert(0, index)
                else:
                    on_end(index, future)
    finally:
        for _, worker in running.values():
            idle.append(worker)
        for worker in idle:
            worker.ask_to_stop()
        for worker in idle:
            worker.pool.shutdown(wait=True, cancel_futures=True)


def costliest_first(configs: Mapping[int, RunConfig]) -> list[int]:
    """Sort the keys of the configs by training cost, costliest first, so that the last job to
    finish is a short one.
    """
    return sorted(configs, key=lambda i: -_work(configs[i]))


@contextmanager
def steps_bar(
    configs: Sequence[RunConfig], done: Iterable[int], console: Console, name: str = ""
) -> Iterator[Callable[[Update], None]]:
    """Yield an `on_update` that shows all configs as one named bar: the number of runs that have
    ended, the time left.

    `done`: indices of the runs that have already ended. Any other run has ended once an update
    reports its last step.
    """
    work = [_work(config) for config in configs]
    fraction = [0.0] * len(configs)  # of each run's steps
    for index in done:
        fraction[index] = 1.0
    with progress_bar(console, name, sum(work), initial=float(np.dot(work, fraction))) as bar:
        latest = ""

        def show(update: Update) -> None:
            nonlocal latest
            index, step, row = update
            fraction[index] = min(1.0, step / configs[index].steps)
            ended = fraction.count(1.0)
            if row:
                latest = f", {shortened(configs[index].name)}: {evaluated(row)}"
            bar.reach(float(np.dot(work, fraction)), f"{ended}/{len(configs)} runs{latest}")

        yield show


def _work(config: RunConfig) -> int:
    """Return a run's cost in arbitrary units. Below a width of 64, steps hardly get shorter."""
    model = config.model
    positions = config.steps * config.batch_size * config.task.length
    return positions * model.n_layers * (64 + model.d_model)


class _Worker:
    """One worker process, its reports, and a way to stop it.

    It has its own pool, because a shared pool ends all of its processes when one dies. It has its
    own pipe, because a process that is killed inside a shared queue or event never releases the
    lock.
    """

    def __init__(self, threads: int) -> None:
        self.pipe, self._far = _context.Pipe()
        imported = tuple(filter(Path.exists, IMPORTED))
        self.pool = ProcessPoolExecutor(1, _context, _start_worker, (self._far, threads, imported))

    def submit(self, index: int, config: RunConfig, job: Job) -> Future[Any]:
        """Submit a job to the process, which starts with the first one."""
        future = self.pool.submit(_do, index, config, job)
        self._far.close()  # the process has its own copy: once it dies, reading the pipe fails instead of waiting
        return future

    def drain(self, on_update: Callable[[Update], None]) -> None:
        """Pass the reports since the last call to `on_update`."""
        try:
            while self.pipe.poll():
                on_update(self.pipe.recv())
        except (EOFError, OSError):  # the process died, perhaps while sending a message
            return

    def ask_to_stop(self) -> None:
        """Ask the process, if there is one, to save a checkpoint and stop."""
        self.pipe.close()


def _start_worker(parent: Connection, threads: int, files: Sequence[Path]) -> None:
    global _parent  # noqa: PLW0603  # a pool's initialiser can pass an object to its tasks only so
    # Ignored between runs. While training, the loop saves and stops.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    _parent = parent
    _idle.set()
    threading.Thread(target=_follow_parent, daemon=True).start()
    for file in files:
        import_file(file)
    import torch

    if "OMP_NUM_THREADS" not in os.environ:  # the user's own choice
        torch.set_num_threads(threads)


def _do(index: int, config: RunConfig, job: Job) -> Any:
    def report(step: int, row: Row) -> None:
        with suppress(OSError):  # the parent has asked to stop and closed the pipe
            _parent.send((index, step, row))
        if _parent.poll():  # a notebook's interrupt reaches only the parent: pass it on to the loop
            os.kill(os.getpid(), signal.SIGINT)

    _idle.clear()
    try:
        return None if _parent.poll() else job(config, report)
    finally:
        _idle.set()


def _follow_parent() -> None:
    """Interrupt the loop once the parent asks for it or dies, without waiting for a report; then
    end with the parent.

    The death of the parent does not close the queue of jobs, because this process holds both of its
    ends.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([_parent, parent.sentinel])
    os.kill(os.getpid(), signal.SIGINT)
    connection.wait([parent.sentinel])
    _idle.wait(GRACE)
    os._exit(1)
