"""Choose the number of runs trained at a time on this machine."""

import math
import os
from pathlib import Path

from tasks.memory import machine_memory

WORKER_MEMORY = 2**30
"""Bytes of memory per worker. Once it has compiled a run, it takes .8 GiB, nearly all for torch and
its compiler.
"""

_CONTAINER = Path("/sys/fs/cgroup/cpu.max")


def cores() -> int:
    """Return the number of CPU cores that this process may use: its affinity, or its container's
    quota if smaller.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = map(int, _CONTAINER.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no container, or one without a limit
        return usable
    return min(usable, math.ceil(quota / period))


def default_jobs(device: str) -> int:
    """Return the default number of runs at a time: one per core, fewer if memory is short, and 1 on
    a GPU.

    A second thread makes the figures' runs 1.1 to 1.4 times as fast; a second worker trains twice
    as many runs. With one thread each, runs end with the same numbers on any number of cores.
    Workers take at most half of the memory. If that leaves fewer workers than cores, the cores are
    divided among them. Raises `ConfigError` as `pick_device` does.
    """
    from ihlab.training.device import pick_device

    if pick_device(device).type != "cpu":
        return 1
    return max(1, min(cores(), machine_memory() // 2 // WORKER_MEMORY))
