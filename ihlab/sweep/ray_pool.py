"""Run jobs on Ray: on this machine's cores, or on the cluster that RAY_ADDRESS names."""

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

from ihlab.sweep.pool import RETRIES, Ended, Job, costliest_first
from ihlab.training.config import RunConfig
from ihlab.training.interrupt import Interrupted, deferred_interrupt
from ihlab.training.progress import Row
from tasks.config import ConfigError

TIME_TO_STOP = 60.0  # seconds
OBJECT_STORE = 100 * 2**20  # bytes: configs and outcomes are small


def in_ray(
    configs: Mapping[int, RunConfig],
    job: Job,
    jobs: int | None,
    on_end: Ended,
    n_gpus: int = 0,
) -> None:
    """Run jobs as `in_processes` does, each as a Ray task with one core and `n_gpus` GPUs; reports
    are dropped.

    At most `jobs` run at a time; None: as many as Ray has cores for. Ray retries a job, at most
    `RETRIES` times, when its worker or its machine dies. A path in a job must mean the same folder
    on every machine of a cluster, so it must be on a shared disk. When this process is killed, a
    Ray that it started ends within seconds, with the jobs; only two idle Ray agents stay for a
    minute. Raises `ConfigError` if Ray is not installed or cannot be started.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed: pip install 'ray>=2.50'.") from None
    todo = deque(costliest_first(configs))
    if not todo:
        return  # Ray takes seconds to start
    with _started(jobs):
        task = ray.remote(num_cpus=1, num_gpus=n_gpus, max_retries=RETRIES)(_do)
        running: dict[Future[Any], tuple[int, Any]] = {}
        try:
            while todo or running:
                while todo and len(running) < (jobs or len(configs)):
                    index = todo.popleft()
                    reference = task.remote(job, configs[index])
                    running[reference.future()] = index, reference
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    on_end(running.pop(future)[0], future)
        finally:
            for _, reference in running.values():
                ray.cancel(reference)  # interrupts the job, whose loop saves a checkpoint
            wait(running, TIME_TO_STOP)


@contextmanager
def _started(jobs: int | None) -> Iterator[None]:
    """Start Ray, and stop it afterwards, unless the caller already runs it."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if "RAY_ADDRESS" not in os.environ:
        options |= {
            "num_cpus": jobs,
            "object_store_memory": OBJECT_STORE,
            "include_dashboard": False,
        }
    answer = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except Exception as error:  # Ray's processes and the network fail in many ways
        ray.shutdown()
        said = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"Ray cannot be started ({said}): try again, or use --engine local."
        ) from None
    if callable(answer) and threading.current_thread() is threading.main_thread():
        # Ray's own handler would end the process while runs still train.
        signal.signal(signal.SIGTERM, answer)
    try:
        yield
    finally:
        with deferred_interrupt() as asked:  # half shut down, Ray ends the process with 1
            ray.shutdown()
            if asked.is_set():
                raise Interrupted


def _do(job: Job, config: RunConfig) -> Any:
    import torch

    torch.set_num_threads(1)

    def report(step: int, row: Row) -> None:
        """Do nothing."""

    return job(config, report)
