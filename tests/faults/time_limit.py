"""A limit of time for a block: whatever hangs is a failure."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Slow(BaseException):
    """The block took longer than its limit. Not an `Exception`: nothing on the way may catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Slow` in the block after this many seconds."""

    def ring(signum: int, frame: object) -> None:
        raise Slow(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
