"""Show the progress of a long call with tqdm: a bar in a terminal and in a notebook, lines in a
file. No torch here.

`tracked` shows the progress of a loop. Training and sweeps use `progress_bar`.
"""

from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from tqdm import tqdm

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds after which `tracked` shows progress."""
LINE_EVERY = 5.0
"""Seconds between two lines in a file, at least."""
PARTS = 8
"""Number of equal parts of the work; a file gets one line for each."""


class Bar(tqdm):
    """A bar that is drawn only when it is updated: tqdm has a thread that draws others."""

    monitor_interval = 0

    def reach(self, done: float, latest: str = "") -> None:
        """Show that so much of the total is done, and `latest` behind it."""
        if latest:
            self.set_postfix_str(latest, refresh=False)
        self.update(done - self.n)


def tracked(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items. After `PATIENCE` seconds, show `what`, the number of items done and the time
    left on standard error.

    A terminal shows them until the loop ends. A file gets lines.
    """
    console, each = Console(stderr=True), list(items)
    with progress_bar(
        console, what, len(each), unit=" items", delay=PATIENCE, leave=console.is_jupyter
    ) as bar:
        for item in each:
            yield item
            bar.update()


def progress_bar(console: Console, name: str, total: float, unit: str = "", **options: Any) -> Bar:
    """Return a bar of tqdm for an output: a terminal, a notebook, or a file, which gets lines.

    `unit` names what the total counts. Without a unit, only its share and the time left are shown.
    """
    counts = "{elapsed}<{remaining}{postfix}"
    if unit:
        counts = "{n_fmt}/{total_fmt}, {elapsed}<{remaining}, {rate_fmt}{postfix}"
    drawn: dict[str, Any] = {"bar_format": "{desc} {bar} " + counts}
    if console.is_jupyter:
        drawn |= {"file": _Cell()}
    elif console.is_terminal:
        drawn |= {"file": console.file, "ncols": console.width, "nrows": console.height}
    else:
        drawn = {"file": _Lines(console.file), "bar_format": "{desc}: {percentage:.0f}%, " + counts}
        drawn |= {"delay": LINE_EVERY, "mininterval": LINE_EVERY, "miniters": total / PARTS}
    return Bar(desc=name, total=total, unit=unit, disable=console.quiet, **(options | drawn))


class _Lines:
    """A file for tqdm that begins a new line where tqdm would overwrite the last one."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=self.file)

    def flush(self) -> None:
        self.file.flush()


class _Cell:
    """A file for tqdm that is one output of a notebook's cell: a saved notebook shows only its last
    state.
    """

    encoding = "utf-8"
    output: "DisplayHandle | None" = None

    def write(self, text: str) -> None:
        from IPython.display import display

        shown = {"text/plain": text.strip()}
        if self.output is not None and text.strip():
            self.output.update(shown, raw=True)
        elif text.strip():
            self.output = display(shown, raw=True, display_id=True)

    def flush(self) -> None:
        pass
