"""Handling of Ctrl-C and SIGTERM, between training steps and in commands. No torch here."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

ONE_INTERRUPT = 1.0  # seconds


class Interrupted(KeyboardInterrupt):
    """Training was interrupted, and has saved a checkpoint. `signum`: the signal, SIGINT (Ctrl-C)
    or SIGTERM.
    """

    signum = signal.SIGINT


class Terminated(KeyboardInterrupt):
    """The exception for SIGTERM, which stops a command as Ctrl-C does."""

    signum = signal.SIGTERM


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Return the exit code of a command that was stopped: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + getattr(stopped, "signum", signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM raise `Terminated`, and Ctrl-C raise KeyboardInterrupt even if the shell ignores
    SIGINT.

    A shell ignores SIGINT for background jobs. Training always handles it, since an interrupt loses
    nothing. Libraries written in C raise other errors in its place, such as "cannot be read" of a
    file: then the interrupt is raised again.
    """
    stopping = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.default_int_handler):
        stopping.append(signal.SIGINT)
    _received.clear()
    with _handled(_stop, *stopping):
        try:
            yield
        except BaseException as error:
            if not _received or isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            _stop(_received[0], None)


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a flag that the loop reads between steps; a second one
    stops at once.

    Stopping inside an optimiser step would leave the model half updated. Interrupts less than
    `ONE_INTERRUPT` seconds after the first count as the same one: a terminal sends Ctrl-C to a
    pool's workers, and the pool, which does not know that, sends it again. If the program has its
    own SIGTERM handler, that stays in place.
    """
    asked, since, first = threading.Event(), math.inf, signal.SIGINT

    def handle(signum: int, frame: Any) -> None:
        nonlocal since, first
        if time.monotonic() - since > ONE_INTERRUPT:
            _stop(signum, frame)
        if not asked.is_set():
            since, first = time.monotonic(), signal.Signals(signum)
            asked.set()

    deferred = [signal.SIGINT]
    handler = signal.getsignal(signal.SIGTERM)
    if handler is _stop or not callable(handler):
        deferred.append(signal.SIGTERM)
    with _handled(handle, *deferred):
        try:
            yield asked
        except Interrupted as stopped:
            stopped.signum = first
            raise


_received: list[int] = []
"""The signals that `_stop` has answered in this command."""


def _stop(signum: int, frame: Any) -> NoReturn:
    _received.append(signum)
    raise Terminated if signum == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def _handled(handle: Any, *signums: signal.Signals) -> Iterator[None]:
    """Install a handler of signals, and restore the old ones afterwards. Outside the main thread,
    do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, handle) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
