"""The progress of training: steps, loss, accuracy, tokens per second and the time left. No torch here."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ihlab.training.config import RunConfig

Row = dict[str, int | float]
"""One evaluation: its step and its metrics."""

Report = Callable[[int, Row], None]
"""Callback for progress: called now and then with the steps done and the latest row of metrics."""


def progress_bar(console: Console) -> Progress:
    """Return a bar whose tasks have a field `latest`; it draws nothing if the output is not a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[latest]}", markup=False),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def progress(config: RunConfig, members: int = 1) -> Iterator[Report]:
    """Yield a `report` for `train` that draws a progress bar, or nothing if the output is not a terminal.

    `members` train at once, so that a step has the tokens of all.
    """
    tokens_a_step = members * config.batch_size * config.task.length
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(config.name, total=config.steps, latest="")
        first: tuple[int, float] | None = None

        def report(step: int, row: Row) -> None:
            nonlocal first
            now = time.perf_counter()
            first = first or (step, now)
            speed = tokens_a_step * (step - first[0]) / (now - first[1]) if now > first[1] else 0.0
            latest = f"loss {row['eval_loss']:.3f}  accuracy {row['accuracy']:.3f}  {speed / 1e3:.0f}k tokens/s"
            bar.update(task, completed=step, latest=latest)

        yield report
