"""Common style of all figures: colour-blind-safe colours, and files that are the same in every run."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure

from tasks.files import write_atomically

P = ParamSpec("P")
T = TypeVar("T")

# Okabe and Ito (2008), readable with any colour vision; the order is ours.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
BLUE, ORANGE, GREEN, PINK, _, RED, BLACK = COLORS
LINES = ("-", "--", "-.", ":")
PAGE = 8.8
"""Width of a figure in inches. A page shows it 880 pixels wide; capitals of 9 points are then 9
pixels high.
"""
STEPS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))
"""Ticks of a log axis of training steps."""

PATH, DECIMALS = re.compile(r' d="[^"]*"'), re.compile(r"(\.\d\d)\d+")
"""Regular expressions for the coordinates of a path in an SVG, and for a number's decimals after
the second.
"""

FONT = 10
"""Default size of text, in points."""

PRINT: Any = {
    "font.size": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "svg.fonttype": "none",
    "svg.hashsalt": "ihlab",  # the same drawing gives the same file
}


def printed(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to draw in the print style. What the user has set in matplotlib's
    rcParams stays as set.
    """

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> T:
        untouched = {
            name: PRINT[name] for name in PRINT if mpl.rcParams[name] == mpl.rcParamsDefault[name]
        }
        with mpl.rc_context(untouched):
            return draw(*args, **kwargs)

    return in_style


def scaled(size: float) -> float:
    """Return a size of text or of a figure, in proportion to the user's font size: `size` at the
    default of 10.
    """
    return size * float(mpl.rcParams["font.size"]) / FONT


@printed
def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, sized in inches, outside pyplot's state. The size grows with the
    user's font size.
    """
    return Figure(figsize=(scaled(width), scaled(height)), layout="constrained")


def write_picture(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix, atomically and without dates or versions.

    An unchanged picture gives an unchanged file. Paths in an SVG have two decimals, a hundredth of
    a point: files are a third smaller. Raises `OSError` as `write_atomically` does.
    """
    kind = path.suffix.lower().removeprefix(".")
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}

    @printed
    def draw(aside: Path) -> None:
        figure.savefig(aside, format=kind, metadata=metadata)
        if kind == "svg":
            drawn = aside.read_text(encoding="utf-8")
            aside.write_text(
                PATH.sub(lambda path: DECIMALS.sub(r"\1", path[0]), drawn), encoding="utf-8"
            )

    write_atomically(path, draw)
