"""Errors of the command line as one sentence instead of tyro's box of several lines."""

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial, wraps


def later(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Return a function with the options of a command. Calling it returns a function that runs the command."""

    @wraps(command)
    def call(*args: object, **options: object) -> Callable[[], None]:
        return partial(command, *args, **options)

    return call


@contextmanager
def refusing_in_one_sentence() -> Iterator[None]:
    """Print in one sentence why tyro refuses arguments. tyro itself can only print a box."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except SystemExit as stopped:
        if stopped.code:
            said = io.StringIO(in_one_sentence(said.getvalue()))
        raise
    finally:
        sys.stderr.write(said.getvalue())


def in_one_sentence(box: str) -> str:
    """Return one sentence with a tyro box's reason, its suggestions, and the command that shows the help.

    The first line of a box is its title. Rules separate the reason, suggestions, and the command. Where the
    terminal is not UTF-8, the frame consists of spaces.
    """
    lines = "\n".join(line[2:].rstrip(" │╯") for line in box.splitlines()[1:])
    reason, *more = [
        section for section in re.split(r"^[─-]+$", lines, flags=re.MULTILINE) if section.strip()
    ] or [""]
    if not more:  # of a form unknown here
        return box
    options = re.findall(r"^ {4}(\S.*)", "".join([reason, *more[:-1]]), re.MULTILINE)
    reason, ask = (" ".join(section.split()).rstrip(".") for section in (reason, more[-1]))
    if options and (refused := re.match(r"Error parsing (\S+): .*?('[^']*')", reason)):
        reason = f"{refused[1]} takes {options[0].partition(' ')[2]}, not {refused[2]}"
    elif refused := re.match(r"Error parsing (?!-)\S+: ", reason):  # a sentence of ihlab's own
        reason = reason[refused.end() :]
    elif missing := re.match("Missing from .*?: ", reason):
        reason = f"{missing[0]}{', '.join(options)}"
    elif options:
        reason = f"{reason}. Perhaps you meant {' or '.join(options)}"
    return f"ihlab: {reason}. For all options: {ask[ask.rindex('ihlab') :]}\n"
