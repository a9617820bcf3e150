"""Progress in a terminal, in a file and in a notebook: what is shown, how often, and what is left
behind.
"""

import io
import re

import pytest
import tqdm.std
from rich.console import Console

from ihlab.runtime import progress as module
from ihlab.runtime.progress import progress_bar, tracked
from ihlab.training.progress import evaluated

ROW = {"eval_loss": 0.25, "accuracy": 0.875}


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 100.0

    def time(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(tqdm.std, "time", clock.time)
    return clock


def run(console, clock, seconds, every=1.0):
    """Report a run of ten steps a second, every so many seconds."""
    with progress_bar(console, "small", seconds * 10, unit=" steps") as bar:
        bar._time = clock.time
        for _ in range(int(seconds / every)):
            clock.now += every
            bar.reach(round((clock.now - 100) * 10), evaluated(ROW))


def lines(clock, seconds):
    file = io.StringIO()
    run(Console(file=file, width=20), clock, seconds)  # no line is wrapped
    return file.getvalue().splitlines()


def test_a_file_gets_a_line_after_a_few_seconds(clock):
    assert lines(clock, 12) == [
        "small: 42%, 50/120, 00:05<00:07, 10.00 steps/s, loss 0.250, accuracy 0.875",
        "small: 83%, 100/120, 00:10<00:02, 10.00 steps/s, loss 0.250, accuracy 0.875",
        "small: 100%, 120/120, 00:12<00:00, 10.00 steps/s, loss 0.250, accuracy 0.875",
    ]
    assert lines(clock, 3) == []


def test_a_terminal_has_one_line_of_its_width(clock):
    terminal, width = io.StringIO(), 80
    with progress_bar(
        Console(file=terminal, force_terminal=True, width=width), "quickstart", 2000, " steps"
    ) as bar:
        clock.now += 12
        bar.reach(1200, evaluated(ROW))
        bar.refresh()
        drawn = terminal.getvalue()
    last = drawn.split("\r")[-1].rstrip()
    assert re.match("quickstart [#█]", last)
    assert re.search(
        r"1200/2000, 00:12<00:0[78], 100.00 steps/s, loss 0.250, accuracy 0.875$", last
    )
    assert width - 2 <= len(last) <= width


class Output:
    """A cell's output that can be replaced."""

    def __init__(self):
        self.states = []

    def display(self, bundle, raw, display_id):
        assert raw
        assert display_id
        self.states.append(bundle["text/plain"])
        return self

    def update(self, bundle, raw):
        assert raw
        self.states.append(bundle["text/plain"])


@pytest.fixture
def cell(monkeypatch):
    output = Output()
    monkeypatch.setattr("IPython.display.display", output.display)
    return output


def test_a_notebook_has_one_output_that_is_replaced(clock, cell):
    run(Console(file=io.StringIO(), force_jupyter=True), clock, 12)
    assert 12 <= len(cell.states) <= 14
    assert cell.states[5].startswith("small ████")
    assert cell.states[-1].endswith(
        "120/120, 00:12<00:00, 10.00 steps/s, loss 0.250, accuracy 0.875"
    )


@pytest.mark.parametrize("where", [{"force_terminal": True}, {"force_jupyter": True}, {}])
def test_a_loop_is_shown_once_it_is_long(clock, cell, monkeypatch, where):
    file = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda stderr: Console(file=file, width=80, **where))
    monkeypatch.setattr(module.Bar, "_time", clock.time, raising=False)
    assert list(tracked("abc", "short")) == ["a", "b", "c"]
    assert "short" not in file.getvalue()
    assert cell.states == []
    for _ in tracked(range(4), "long"):
        clock.now += 3
    drawn = file.getvalue() + "".join(cell.states)
    assert "long" in drawn
    assert "4/4" in drawn
