"""How many runs are trained at a time on this machine."""

import math
import os
from pathlib import Path

from tasks.memory import machine_memory

WORKER_MEMORY = 2**30
"""Bytes of memory for a worker: it has .8 GiB, nearly all of it torch and its compiler, once it has compiled."""

_CONTAINER = Path("/sys/fs/cgroup/cpu.max")


def cores() -> int:
    """Return the number of CPU cores that this process may use, or whose time its container has."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = map(int, _CONTAINER.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no container, or one that sets no limit
        return usable
    return min(usable, math.ceil(quota / period))


def default_jobs(device: str) -> int:
    """Return the default number of runs at a time: one per core, but where memory is short, and 1 on a GPU.

    A second thread makes the figures' runs 1.1 to 1.4 times as fast, a second worker trains twice as many. And with a
    thread each, runs end with the same numbers whatever the number of cores. Workers take at most half of the memory;
    if that leaves fewer workers than cores, the cores are divided among them. Raises `ConfigError` as `pick_device`.
    """
    from ihlab.training.distributed import pick_device

    if pick_device(device).type != "cpu":
        return 1
    return max(1, min(cores(), machine_memory() // 2 // WORKER_MEMORY))
