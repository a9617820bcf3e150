"""The progress of training: a live bar in a terminal and in a notebook, at most nine lines in a file.

All three show the steps done of the total, the loss and the accuracy of the last evaluation, steps per second and the
time left. None of these is read from the device, so a GPU never waits for them. No torch here.
"""

import html
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

Row = dict[str, int | float]
"""One evaluation: its step and its metrics."""

Report = Callable[[int, Row], None]
"""Callback for progress, called a few times per second with the steps done and the latest row of metrics."""

REDRAWN = 4
"""Redraws of a bar per second, at most."""
LINE_EVERY = 5.0
"""Seconds between two lines in a file, at least."""
PARTS = 8
"""Number of equal parts of the work; after its first line, a file gets one line for each."""


class _Pace(ProgressColumn):
    """A column with the speed, for a bar that has a unit, and the time left; at the end the time it took."""

    def render(self, task: Task) -> Text:
        return Text("  ".join(pace(task)))


def progress_bar(console: Console) -> Progress:
    """Return the progress display for an output: a terminal, a notebook, or a file.

    `add_bar` adds its tasks. In a file it prints lines; in a notebook it is a bar that ends as one line.
    """
    if console.is_jupyter:
        return _InNotebook(console=console, disable=True)
    if not console.is_terminal:
        return _Lines(console=console, disable=True)
    whole = Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=whole),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=4)),  # takes the remaining width
        TextColumn("{task.fields[count]}", markup=False, table_column=whole),
        TextColumn("{task.fields[latest]}", markup=False, table_column=whole),
        _Pace(table_column=whole),
    )
    return Progress(*columns, console=console, refresh_per_second=REDRAWN, expand=True)


def add_bar(shown: Progress, name: str, total: float, done: int = 0, count: str = "", unit: str = "") -> TaskID:
    """Add a task; its later updates give `completed`, `count` (such as 3/12 runs) and `latest` (the loss, in words).

    `unit` names what `completed` counts. With a unit, the speed is shown too.
    """
    return shown.add_task(name, total=total, completed=done, count=count, latest="", unit=unit)


@contextmanager
def counting(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many parts of a call have newly been done.

    They are shown as a bar in a terminal (on standard error) and in a notebook, and nowhere else.
    """
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda parts: None
        return
    with progress_bar(console) as shown:
        bar = add_bar(shown, name, total, count=f"0/{total}")
        done = 0

        def advance(parts: int) -> None:
            nonlocal done
            done += parts
            shown.update(bar, completed=done, count=f"{done}/{total}")

        yield advance


def pace(task: Task) -> list[str]:
    """Return the speed of a task and the time left, in words; for a finished task, the time it took."""
    speed = task.finished_speed or task.speed
    said = [f"{speed:.3g} {task.fields['unit']}/s"] if speed and task.fields["unit"] else []
    if task.finished:
        return [*said, f"in {_clock(task.finished_time or 0)}"]
    return said if task.time_remaining is None else [*said, f"{_clock(task.time_remaining)} left"]


def in_words(task: Task) -> str:
    """Return the state of a task as one line."""
    parts = [f"{task.fields['count']} {task.fields['unit']}".strip(), task.fields["latest"], *pace(task)]
    said = ", ".join(part for part in parts if part)
    return f"{task.description}: {said}" if task.description else said


def evaluated(row: Row) -> str:
    """Return the loss and the accuracy of an evaluation in words."""
    return f"loss {row['eval_loss']:.3f}, accuracy {row['accuracy']:.3f}"


def shortened(name: str) -> str:
    """Cut the middle out of a long name: runs differ in its beginning and its end."""
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


@contextmanager
def progress(config: RunConfig, members: int = 1) -> Iterator[Report]:
    """Yield a `report` for `train` that shows its progress on standard error, or in the notebook.

    Outside a notebook the first line is the run's recipe. `members` is the number of models that each step trains.
    """
    name = shortened(config.name) + ("" if members == 1 else f" and {members - 1} more")
    console = Console(stderr=True)
    if not console.is_jupyter:
        console.out(f"{name}: {config.recipe}", highlight=False)
    with progress_bar(console) as shown:
        bar = add_bar(shown, name, config.steps, count=f"0/{config.steps}", unit="steps")

        def report(step: int, row: Row) -> None:
            shown.update(bar, completed=step, count=f"{step}/{config.steps}", latest=evaluated(row))

        yield report
        shown.update(bar, total=shown.tasks[bar].completed)  # with early stopping, fewer steps than planned


class _Lines(Progress):
    """Progress of one task as lines, for a file: the first after `LINE_EVERY` seconds, then one for each part.

    A run that ends sooner prints none.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._printed, self._part = time.monotonic(), -1
        self._last: list[str] = []

    def update(self, *arguments: Any, **fields: Any) -> None:
        super().update(*arguments, **fields)
        now, part = time.monotonic(), int(PARTS * self.tasks[0].percentage / 100)
        if now - self._printed >= LINE_EVERY and part > self._part:
            self._printed, self._part = now, part
            self._print()

    def stop(self) -> None:
        if self._last:  # otherwise there was no first
            self._print()

    def _print(self) -> None:
        lines = [in_words(task) for task in self.tasks]
        if lines != self._last:
            self.console.out(*lines, sep="\n", highlight=False)
        self._last = lines


class _InNotebook(Progress):
    """Progress as one output of a cell, redrawn in place: a saved notebook shows only the last state."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._drawn = 0.0
        self._output: DisplayHandle | None = None

    def update(self, *arguments: Any, **fields: Any) -> None:
        super().update(*arguments, **fields)
        if time.monotonic() - self._drawn >= 1 / REDRAWN:
            self._draw()

    def stop(self) -> None:
        """Leave one line where the bar was."""
        if self._output is not None:
            self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        self._drawn = time.monotonic()
        if self.console.quiet:
            return
        drawn = {
            "text/html": "".join(map(_as_html, self.tasks)),
            "text/plain": "\n".join(map(in_words, self.tasks)),
        }
        if self._output is None:
            self._output = display(drawn, raw=True, display_id=True)
        else:
            self._output.update(drawn, raw=True)


def _as_html(task: Task) -> str:
    bar = f'<progress value="{task.percentage:.1f}" max="100" style="width: 12em"></progress> '
    return f"<div>{'' if task.finished else bar}<small>{html.escape(in_words(task))}</small></div>"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=ceil(seconds)))[2 if seconds < 3600 else 0 :]
