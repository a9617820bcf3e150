"""A figure of a model's solution of an iGSM problem: the probability of each token and the finding on each step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ihlab.plots.style import BLACK, ORANGE, RED, new_figure, printed
from tasks.config import require
from tasks.igsm.verify import NO_ERROR

FONT = 8.0  # points; every other length is in inches
LETTER = 0.602 * FONT / 72  # width of a DejaVu Sans Mono character
LINE = 0.22
MARGIN = 0.15
HEADING = 0.35
KEY = 0.6
LEAST_WIDTH = 6.4
INDENT = 4  # letters
MOST_LETTERS = 90  # longer lines are wrapped

SURE = LinearSegmentedColormap.from_list("sure", [ORANGE, "#FFFFFF"])
GREY = "#666666"


class TextLine(NamedTuple):
    """A line with the tokens `start` .. `stop` - 1, indented by `indent` letters, and the finding beside them."""

    start: int
    stop: int
    indent: int
    finding: str


@printed
def written_solution(
    solution: Sequence[str], found: Sequence[str], probability: Float[np.ndarray, " token"], title: str = ""
) -> Figure:
    """Draw the tokens after SOL, one step per line, and beside each step its error, from `findings`.

    A darker token was less probable; white is certain. In a step with several clauses, each clause after the first has
    its own line. An error is reported where it is made, and later steps are judged as if that step had been right.
    Raises `ConfigError` unless there is a probability for each token.
    """
    require(
        len(probability) == len(solution),
        f"There are {len(probability)} probabilities for {len(solution)} tokens, but each token needs one.",
    )
    lines = _lines(solution, found)
    letters = max(_letters(solution, line) for line in lines)
    beside = MARGIN + letters * LETTER + 2 * MARGIN
    width = beside + max(len(line.finding) for line in lines) * LETTER + MARGIN
    figure, axes = _page(max(width, LEAST_WIDTH), len(lines) * LINE, title)
    for number, line in enumerate(lines):
        y = -(number + 0.5) * LINE
        column = line.indent
        for token, sure in zip(solution[line.start : line.stop], probability[line.start : line.stop], strict=True):
            _token(axes, MARGIN + column * LETTER, y, token, float(sure))
            column += len(token) + 1
        fine = line.finding.startswith(NO_ERROR)
        axes.text(beside, y, line.finding, fontsize=FONT, color=GREY if fine else RED, va="center")
    return figure


def _lines(solution: Sequence[str], found: Sequence[str]) -> list[TextLine]:
    """Return the lines. The finding of a step goes beside its last line."""
    lines: list[TextLine] = []
    *left, last = found
    start, indent, marks = 0, 0, 0
    for at, token in enumerate(solution):
        marks += token == ";"
        ends_step = token == "." and bool(left)
        full = indent + len(" ".join(solution[start : at + 2])) > MOST_LETTERS
        if ends_step:
            lines.append(TextLine(start, at + 1, indent, left.pop(0)))
            start, indent, marks = at + 1, 0, 0
        elif full or (token == ";" and marks > 1):  # the first ";" ends the header of the step
            lines.append(TextLine(start, at + 1, indent, ""))
            start, indent = at + 1, INDENT
    return [*lines, TextLine(start, len(solution), indent, last)]


def _letters(solution: Sequence[str], line: TextLine) -> int:
    return line.indent + len(" ".join(solution[line.start : line.stop]))


def _page(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Return a figure in units of an inch with room for the title and the key. The first line is below y = 0."""
    figure = new_figure(width, HEADING + height + KEY)
    figure.set_layout_engine("none")  # all positions are in inches
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(-height - KEY, HEADING))
    axes.set_axis_off()
    axes.text(MARGIN, HEADING / 2, title, fontsize=10, va="center")
    total = HEADING + height + KEY
    bar = figure.add_axes((MARGIN / width, 0.36 / total, 1.6 / width, 0.1 / total))
    figure.colorbar(ScalarMappable(cmap=SURE), cax=bar, orientation="horizontal", ticks=[0, 0.5, 1])
    bar.tick_params(labelsize=FONT - 1)
    bar.grid(visible=False)
    bar.text(1.08, 0.5, "probability of the token written", fontsize=FONT, va="center", transform=bar.transAxes)
    return figure, axes


def _token(axes: Axes, x: float, y: float, token: str, probability: float) -> None:
    height = 0.8 * LINE
    size = len(token) * LETTER
    axes.add_patch(Rectangle((x, y - height / 2), size, height, facecolor=SURE(probability), linewidth=0))
    axes.text(x, y, token, fontsize=FONT, family="monospace", color=BLACK, va="center")
