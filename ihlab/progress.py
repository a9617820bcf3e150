"""Show the progress of a long call: a live bar in a terminal and in a notebook. No torch here.

`tracked` shows the progress of a loop. Training and sweeps use `progress_bar`, which prints lines into a file.
"""

import html
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds after which `tracked` shows progress."""
REDRAWN = 4
"""Redraws of a bar per second, at most."""
LINE_EVERY = 5.0
"""Seconds between two lines in a file, at least."""
PARTS = 8
"""Number of equal parts of the work; after its first line, a file gets one line for each."""


def tracked(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items. After `PATIENCE` seconds, show `what`, the number of items done and the time left.

    These are shown in a terminal (on standard error) until the loop ends, or in a notebook, and nowhere else.
    """
    console, each = Console(stderr=True), list(items)
    if not (console.is_terminal or console.is_jupyter):
        yield from each
        return
    with progress_bar(console, PATIENCE) as shown:
        bar = add_bar(shown, what, len(each), count=f"0/{len(each)}")
        for done, item in enumerate(each, start=1):
            yield item
            shown.update(bar, completed=done, count=f"{done}/{len(each)}")


class _Pace(ProgressColumn):
    """A column with the speed (if the bar has a unit) and the time left, or at the end the time that the task took."""

    def render(self, task: Task) -> Text:
        return Text("  ".join(pace(task)))


def progress_bar(console: Console, patience: float = 0.0) -> Progress:
    """Return the progress display for an output: a terminal, a notebook, or a file.

    `add_bar` adds its tasks. In a file it prints lines; in a notebook it is a bar that ends as one line. With
    `patience`, it appears after that many seconds, and leaves nothing in a terminal.
    """
    if console.is_jupyter:
        return _InNotebook(patience, console=console, disable=True)
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
    options: dict[str, Any] = {"console": console, "refresh_per_second": REDRAWN, "expand": True}
    return _Patient(patience, *columns, transient=patience > 0, **options)


def add_bar(shown: Progress, name: str, total: float, done: int = 0, count: str = "", unit: str = "") -> TaskID:
    """Add a task; its later updates give `completed`, `count` (such as 3/12 runs) and `latest` (the loss, in words).

    `unit` names what `completed` counts. With a unit, the speed is shown too.
    """
    return shown.add_task(name, total=total, completed=done, count=count, latest="", unit=unit)


def pace(task: Task) -> list[str]:
    """Return the speed of a task and the time left, in words; for a finished task, the time it took."""
    speed = task.finished_speed or task.speed
    said = [f"{speed:.3g} {task.fields['unit']}/s"] if speed and task.fields["unit"] else []
    if task.finished:
        return [*said, f"in {_clock(task.finished_time or 0)}"]
    return said if task.time_remaining is None else [*said, f"{_clock(task.time_remaining)} left"]


def in_words(task: Task) -> str:
    """Return the state of a task as one line."""
    phrases = [f"{task.fields['count']} {task.fields['unit']}".strip(), task.fields["latest"], *pace(task)]
    said = ", ".join(phrase for phrase in phrases if phrase)
    return f"{task.description}: {said}" if task.description else said


class _Patient(Progress):
    """Progress in a terminal, from some seconds after its start on."""

    def __init__(self, patience: float, *columns: ProgressColumn, **options: Any) -> None:
        self._from = time.monotonic() + patience
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        if time.monotonic() >= self._from:
            yield from super().get_renderables()


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
        now, eighth = time.monotonic(), int(PARTS * self.tasks[0].percentage / 100)
        if now - self._printed >= LINE_EVERY and eighth > self._part:
            self._printed, self._part = now, eighth
            self._print()

    def stop(self) -> None:
        if self._last:  # otherwise no line was printed
            self._print()

    def _print(self) -> None:
        lines = [in_words(task) for task in self.tasks]
        if lines != self._last:
            self.console.out(*lines, sep="\n", highlight=False)
        self._last = lines


class _InNotebook(Progress):
    """Progress as one output of a cell, redrawn in place: a saved notebook shows only the last state."""

    def __init__(self, patience: float, **options: Any) -> None:
        super().__init__(**options)
        self._drawn = time.monotonic() + patience - 1 / REDRAWN
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
