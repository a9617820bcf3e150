"""The progress of training: steps done of the total, the last evaluation, steps per second, time
left.

None of these is read from the device, so a GPU never waits for them. No torch here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from ihlab.runtime.progress import progress_bar
from ihlab.training.config import RunConfig

Row = dict[str, int | float]
"""One evaluation: its step and its metrics."""

Report = Callable[[int, Row], None]
"""Callback for progress, called a few times per second with the steps done and the latest row of
metrics.
"""


def evaluated(row: Row) -> str:
    """Return the loss and the accuracy of an evaluation, and what lessons have reached, in words."""
    words = f"loss {row['eval_loss']:.3f}, accuracy {row['accuracy']:.3f}"
    if "proved_length" in row:
        words += f", last proved to {row['proved_length']:.0f} tokens"
    if "attacked_accuracy" in row:
        words += f", attacked {row['attacked_accuracy']:.3f}"
    return words


def shortened(name: str) -> str:
    """Cut the middle out of a long name: runs differ in its beginning and its end."""
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


@contextmanager
def progress(config: RunConfig, members: int = 1) -> Iterator[Report]:
    """Yield a `report` for `train` that shows its progress on standard error, or in the notebook.

    Outside a notebook the first line is the run's recipe. `members` is the number of models that
    each step trains.
    """
    name = shortened(config.name) + ("" if members == 1 else f" and {members - 1} more")
    console = Console(stderr=True)
    if not console.is_jupyter:
        console.out(f"{name}: {config.recipe}", highlight=False)
    with progress_bar(console, name, config.steps, unit=" steps") as bar:
        yield lambda step, row: bar.reach(step, evaluated(row))
        bar.total = bar.n  # with early stopping, fewer steps than planned
