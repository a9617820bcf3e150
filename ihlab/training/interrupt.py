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
    """Training was interrupted, and has saved a checkpoint."""


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag that the loop reads between steps; a second one stops at once.

    A model that is stopped inside an optimiser step is only half updated. Interrupts less than `ONE_INTERRUPT`
    seconds after the first count as the same one: a terminal sends Ctrl-C to a pool's workers, and the pool, which
    cannot know that, sends it to them again.
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
