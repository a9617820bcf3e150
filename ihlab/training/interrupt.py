"""Ctrl-C between steps. No torch here."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ONE_INTERRUPT = 1.0  # seconds


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, and has saved where it was."""


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag that the loop reads between steps; a second one stops at once.

    Stopped inside an optimiser step, a model is half one step's and half the next's. Interrupts less than
    `ONE_INTERRUPT` seconds after the first are the same one: a terminal sends it to a pool's workers, and the
    pool, which cannot know that, passes it on to them.
    """
    asked, since = threading.Event(), math.inf
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield asked
        return

    def handle(signum: int, frame: Any) -> None:
        nonlocal since
        if time.monotonic() - since > ONE_INTERRUPT:
            raise KeyboardInterrupt
        since = min(since, time.monotonic())
        asked.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
