"""Print text that every terminal can show: names verbatim, and ASCII if the terminal supports nothing else."""

import codecs
import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from rich.console import Console

from tasks.config import visible

if TYPE_CHECKING:
    import pandas as pd

_IN_ASCII = {"±": "+-", "×": "x", "–": "-", "—": "-", "…": "...", "•": "*", "█": "#", "━": "-"}
_LINES = dict.fromkeys("│┃║", "|") | dict.fromkeys("─━═", "-") | dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+")
HANDLER = "ihlab.ascii"


def print_anywhere() -> None:
    """Let standard output and error replace characters that their encoding lacks, instead of failing.

    A closed stream is opened on the null device. Otherwise the next file that is opened would get its number, and
    what is printed would be written to that file.
    """
    codecs.register_error(HANDLER, _replaced)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)  # by worker processes
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, TextIOWrapper
        ):  # a notebook's is not one, and accepts every character
            stream.reconfigure(errors=HANDLER)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(c) or _LINES.get(c) or ascii(c)[1:-1] for c in lacking), error.end


class Terminal(Console):
    """A console whose closed output is an error of the system, as for `print`; rich's own ends with 1."""

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console that prints names verbatim: "[red]" is not a colour, and ":x:" is not an emoji."""
    return Terminal(markup=False, emoji=False, highlight=False)


def print_table(table: "pd.DataFrame", title: str = "") -> None:
    """Print a table with three decimals, below its title. A missing number is empty."""
    shown = table.round(3).map(lambda cell: text(cell) if isinstance(cell, str) else cell)
    printed = shown.to_string(index=False, na_rep="", float_format="{:zg}".format)
    console().print("\n".join(filter(None, [text(title), printed])), soft_wrap=True)


def text(name: object) -> str:
    """Return a name for a table, with terminal control characters, such as colours and newlines, escaped."""
    return visible(str(name))
