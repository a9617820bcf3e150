"""Progress in a terminal, in a file and in a notebook: what is shown, how often, and what is left behind."""

import functools
import io
import operator
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from ihlab import progress as module
from ihlab.progress import add_bar, progress_bar, tracked
from ihlab.training.progress import evaluated, progress

ROW = {"eval_loss": 0.25, "accuracy": 0.875}


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock)
    return clock


def run(shown, clock, seconds, every=1.0):
    """Report a run of ten steps a second, every so many seconds."""
    shown.get_time = clock
    with shown:
        bar = add_bar(shown, "small", seconds * 10, count=f"0/{seconds * 10}", unit="steps")
        for _ in range(int(seconds / every)):
            clock.now += every
            step = round((clock.now - 100) * 10)
            shown.update(bar, completed=step, count=f"{step}/{seconds * 10}", latest=evaluated(ROW))


def lines(clock, seconds):
    file = io.StringIO()
    run(progress_bar(Console(file=file, width=20)), clock, seconds)  # no line is wrapped
    return file.getvalue().splitlines()


def test_a_file_gets_a_line_after_a_few_seconds(clock):
    said = lines(clock, 12)
    assert said == [
        "small: 50/120 steps, loss 0.250, accuracy 0.875, 10 steps/s, 00:07 left",
        "small: 100/120 steps, loss 0.250, accuracy 0.875, 10 steps/s, 00:02 left",
        "small: 120/120 steps, loss 0.250, accuracy 0.875, 10 steps/s, in 00:12",
    ]


def test_a_file_of_a_long_training_gets_nine_lines(clock):
    said = lines(clock, 3600)
    assert [line.split(",")[0] for line in said[:3]] == [f"small: {n}/36000 steps" for n in (50, 4500, 9000)]
    assert len(said) == 9


def test_a_quiet_console_stays_quiet(clock):
    file = io.StringIO()
    run(progress_bar(Console(file=file, quiet=True)), clock, 12)
    assert file.getvalue() == ""


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_has_one_line_of_its_width(width):
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=width, color_system=None)
    with progress_bar(console) as shown:
        bar = add_bar(shown, "quickstart", 2000, unit="steps")
        shown.update(bar, completed=1200, count="1200/2000", latest=evaluated(ROW))
        shown.refresh()
        drawn = terminal.getvalue()
    last = re.split(r"[\r\n]|\x1b\[2K", drawn)[-1]
    assert last.startswith("quickstart ━━━━")
    assert "1200/2000 loss 0.250, accuracy 0.875" in last
    assert len(last) <= width


class Output:
    """A cell's output that can be replaced."""

    def __init__(self):
        self.states = []

    def display(self, bundle, raw, display_id):
        assert raw
        assert display_id
        self.states.append(bundle)
        return self

    def update(self, bundle, raw):
        assert raw
        self.states.append(bundle)


@pytest.fixture
def cell(monkeypatch):
    output = Output()
    monkeypatch.setattr("IPython.display.display", output.display)
    return output


def test_a_notebook_has_one_output_that_ends_as_one_line(clock, cell):
    run(progress_bar(Console(file=io.StringIO(), force_jupyter=True)), clock, 12)
    assert len(cell.states) == 13  # one output, replaced
    during, after = cell.states[4], cell.states[-1]
    assert '<progress value="41.7" max="100"' in during["text/html"]
    assert "<progress" not in after["text/html"]
    assert after["text/plain"] == "small: 120/120 steps, loss 0.250, accuracy 0.875, 10 steps/s, in 00:12"


def test_a_notebook_is_drawn_a_few_times_a_second_at_most(clock, cell):
    run(progress_bar(Console(file=io.StringIO(), force_jupyter=True)), clock, 2, every=0.01)
    assert len(cell.states) <= 2 * module.REDRAWN + 1


def test_a_run_that_ends_early_is_shown_as_ended(small, monkeypatch, cell):
    monkeypatch.setattr(
        "ihlab.training.progress.Console", lambda stderr: Console(file=io.StringIO(), force_jupyter=True)
    )
    with progress(small.replace(stop_at_accuracy=0.5)) as report:
        report(12, ROW)
    assert cell.states[-1]["text/plain"].startswith("small: 12/24 steps, loss 0.250, accuracy 0.875, ")
    assert "left" not in cell.states[-1]["text/plain"]


@pytest.mark.parametrize("where", [{"force_terminal": True, "color_system": None}, {"force_jupyter": True}, {}])
def test_a_loop_is_shown_once_it_is_long_and_only_where_somebody_looks(clock, cell, monkeypatch, where):
    file = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda stderr: Console(file=file, width=80, **where))
    assert list(tracked("abc", "short")) == ["a", "b", "c"]
    assert "short" not in file.getvalue()
    assert cell.states == []
    for _ in tracked(range(4), "long"):
        clock.now += 1.5
    drawn = file.getvalue() + "".join(state["text/plain"] for state in cell.states)
    assert ("long" in drawn) == bool(where)
    assert ("4/4" in drawn) == bool(where)


SMALL = """
import numpy as np
from ihlab import InductionTask, ModelConfig, Transformer, progress
from ihlab.attribution import compare, problem
from ihlab.certify import attack, certify
from ihlab.hf.conformance import suite as conformance
from ihlab.hf.conformance.families import tiny
from ihlab.interp import locate_induction_heads

progress.PATIENCE = 0.0
task = InductionTask(vocab_size=8, length=8, min_token=0)
model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=8, n_ctx=64, mlp="none"), seed=0)
batch = task.batch(4, np.random.default_rng(0))
"""

LONG_CALLS = {
    "locate_induction_heads(model, batch=batch)": ["reading random tokens", "ablating heads"],
    "compare(problem(model, task), methods=['attribution-patching'])": ["methods"],
    "certify(model, task)": ["certifying query tokens"],
    "attack(model, task, questions=2, sweeps=1)": ["searching"],
    "conformance.run(lambda: tiny('llama'), list(conformance.CHECKS)[:2])": ["checking"],
}


@pytest.mark.slow
def test_long_calls_show_in_a_terminal_what_they_do():
    near, far = pty.openpty()
    script = "\n".join([SMALL, *LONG_CALLS])
    process = subprocess.Popen([sys.executable, "-c", script], stderr=far, env={**os.environ, "TERM": "xterm"})
    os.close(far)
    drawn = b""
    try:
        while chunk := os.read(near, 65536):
            drawn += chunk
    except OSError:  # Linux: the other end is closed
        pass
    os.close(near)
    assert process.wait() == 0, drawn.decode()
    for what in functools.reduce(operator.iadd, LONG_CALLS.values(), []):
        assert f"{what} ".encode() in drawn
