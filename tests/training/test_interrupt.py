"""Ctrl-C and SIGTERM stop a command the same way, and tell how they did."""

import os
import signal
import time

import pytest

from ihlab.training.interrupt import (
    Interrupted,
    Terminated,
    deferred_interrupt,
    exit_code,
    interruptible,
)


@pytest.fixture(autouse=True)
def handlers():
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def send(signum):
    os.kill(os.getpid(), signum)
    time.sleep(0.01)  # the handler runs before the next statement


IN_FRONT_AND_BEHIND = pytest.mark.parametrize(
    "sigint", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"]
)
EACH_SIGNAL = pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)


@IN_FRONT_AND_BEHIND
@EACH_SIGNAL
def test_either_signal_stops_a_command_wherever_it_was_started(sigint, signum, code):
    signal.signal(signal.SIGINT, sigint)
    with pytest.raises(KeyboardInterrupt) as stopped, interruptible():
        send(signum)
    assert exit_code(stopped.value) == code
    assert signal.getsignal(signal.SIGINT) is sigint
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@EACH_SIGNAL
def test_an_error_that_a_library_makes_of_a_signal_is_no_error(signum, code):
    """As pandas' parser does ("Error tokenizing data") and torch, when a tensor is read."""

    @interruptible()
    def read():
        try:
            send(signum)
        except KeyboardInterrupt:
            raise ValueError("the file cannot be read") from None

    with pytest.raises(KeyboardInterrupt) as stopped:
        read()
    assert exit_code(stopped.value) == code
    with pytest.raises(ValueError, match="no signal"), interruptible():
        raise ValueError("no signal came before this one")


@IN_FRONT_AND_BEHIND
@EACH_SIGNAL
def test_either_signal_waits_for_the_end_of_a_training_step(monkeypatch, sigint, signum, code):
    monkeypatch.setattr("ihlab.training.interrupt.ONE_INTERRUPT", 60.0)
    signal.signal(signal.SIGINT, sigint)
    asked = []

    def training():
        with interruptible(), deferred_interrupt() as interrupted:
            for each in (signum, signal.SIGINT, signal.SIGTERM):  # the first one counts
                asked.append(interrupted.is_set())
                send(each)
            raise Interrupted("saved")

    with pytest.raises(Interrupted) as stopped:
        training()
    assert asked == [False, True, True]
    assert exit_code(stopped.value) == code


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_later_second_signal_stops_at_once(monkeypatch, second):
    monkeypatch.setattr("ihlab.training.interrupt.ONE_INTERRUPT", 0.0)
    asked = []

    def training():
        with deferred_interrupt() as interrupted:
            for each in (signal.SIGTERM, second):
                send(each)
                asked.append(interrupted.is_set())

    with pytest.raises(KeyboardInterrupt) as stopped:
        training()
    assert asked == [True]
    assert isinstance(stopped.value, Terminated) == (second == signal.SIGTERM)


def test_a_programs_own_answer_to_sigterm_is_left_to_it():
    heard = []
    signal.signal(signal.SIGTERM, lambda signum, frame: heard.append(signum))
    with deferred_interrupt() as asked:
        send(signal.SIGTERM)
        assert not asked.is_set()
    assert heard == [signal.SIGTERM]
