"""Pictures of an iGSM problem: its structure graph, its dependency graph, and a head that fetches operands."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from ihlab.igsm.graphs import name as name_of
from ihlab.igsm.layered import Layout, Point, layered
from ihlab.plots.heads import attention_pattern
from ihlab.plots.style import BLACK, BLUE, ORANGE, new_figure, printed
from tasks.config import require
from tasks.igsm.definition import Definition, Parameter
from tasks.igsm.problem import Problem

FONT = 8.0  # points; every other length is in inches
LINE = 0.15
PADDING = 0.08
GAP = (0.12, 0.36)
LANE = 0.02
MARGIN = 0.2
HEADING = 0.3
KEY = 0.45
LEAST_WIDTH = 6.4

GREY = "#8A8A8A"
FILLS = {BLUE: "#E3F0F8", ORANGE: "#FDF0D0", GREY: "#FFFFFF", BLACK: "#FFFFFF"}


@printed
def structure_graph(problem: Problem) -> Figure:
    """Draw the items in a row for each category, and a line from each item to everything that it has.

    A line is an instance: one parameter and one sentence. The query does not depend on grey lines.
    Orange marks the query: a line or, if the query is abstract, its item and its category.
    Raises `ConfigError` if the problem is flat.
    """
    require(not problem.flat, "structure_graph draws problems with a hierarchy, but this one is flat.")
    rows = {item: row for row, items in enumerate(problem.layers.values()) for item in items}
    widths = {item: _width([item]) for item in rows}
    height, gap = LINE + 2 * PADDING, (3 * GAP[0], 2 * GAP[1])
    layout = layered(widths, problem.stated, height, gap, LANE, rows)
    headings = max(_width([category]) for category in problem.layers)
    left = min(x - widths[item] / 2 for item, (x, _) in layout.centers.items()) - 2 * MARGIN - headings / 2
    figure, axes = _page(layout, widths, height, _question(problem), headings + 2 * MARGIN)
    for edge in problem.stated:
        color = _color(edge, problem)
        _line(axes, layout.routes[edge], color, width=2.5 if color == ORANGE else 1.2)
    for item, width in widths.items():
        color = ORANGE if item in problem.query else BLACK
        _box(axes, layout.centers[item], (width, height), color, [item])
    for row, category in enumerate(problem.layers):
        place = (left, -row * (height + gap[1]))
        if category in problem.query:
            _box(axes, place, (headings, height), ORANGE, [])
        axes.text(*place, category, fontsize=FONT, style="italic", ha="center", va="center", zorder=4)
    _key(figure, [(name, Line2D([], [], color=color, lw=2)) for color, name in _COLORS.items()])
    return figure


@printed
def dependency_graph(problem: Problem, values: bool = True) -> Figure:
    """Draw the parameters in boxes, and an arrow from each operand down to the parameter computed from it.

    A box shows the operation and, with `values`, the result. The figure has the stated parameters and the abstract
    ones that these or the query depend on.
    """
    operands = {name_of(parameter): found for parameter, found in problem.dependencies.items()}
    parameters = {name_of(parameter): parameter for parameter in problem.dependencies}
    labels = {}
    for name, parameter in parameters.items():
        rule = _rule(problem.definitions[parameter])
        result = f" = {problem.values[parameter]}" if values and operands[name] else ""
        labels[name] = [f"{parameter[0]}'s", parameter[1], rule + result]
    widths = {name: _width(lines) for name, lines in labels.items()}
    # An operand that occurs twice has one arrow.
    edges = list(dict.fromkeys((name_of(operand), name) for name, found in operands.items() for operand in found))
    height = 3 * LINE + 2 * PADDING
    layout = layered(widths, edges, height, GAP, LANE)
    figure, axes = _page(layout, widths, height, _question(problem))
    for tail, head in edges:
        definition = problem.definitions[parameters[head]]
        subtracted = definition.joined == "-" and definition.terms[1] == (parameters[tail],)
        needed = parameters[head] in problem.necessary
        _line(axes, layout.routes[tail, head], BLUE if needed else GREY, arrow=True, dashed=subtracted)
    for name, parameter in parameters.items():
        abstract = parameter not in problem.stated
        _box(axes, layout.centers[name], (widths[name], height), _color(parameter, problem), labels[name], abstract)
    asked, needed_key, other = [
        (name, Patch(facecolor=FILLS[color], edgecolor=color)) for color, name in _COLORS.items()
    ]
    round_box = ("rounded: a total that no sentence states", Line2D([], [], marker="o", ls="", mfc="none", mec=BLACK))
    dashes = ("dashed: subtracted", Line2D([], [], color=BLACK, ls=(0, (3, 2)), lw=1.2))
    _key(figure, [asked, round_box, needed_key, dashes, other])
    return figure


@printed
def operand_pattern(
    axes: Axes,
    pattern: Float[np.ndarray, "query key"],
    tokens: Sequence[int | str],
    fetched: Iterable[tuple[int, Sequence[int]]],
    start: int = 0,
) -> None:
    """Draw one head's pattern from position `start` on, with orange squares on the entries to be fetched.

    `fetched` has pairs of a query and its keys, as positions in the whole sequence (see `ihlab.igsm.operands`).
    """
    attention_pattern(axes, pattern[start:, start:], tokens[start:])
    keys, queries = np.array([(key, query) for query, keys in fetched for key in keys]).reshape(-1, 2).T - start
    axes.scatter(keys, queries, marker="s", s=45, facecolors="none", edgecolors=ORANGE, linewidths=1.5)


_COLORS = {ORANGE: "asked", BLUE: "needed", GREY: "not needed"}


def _color(parameter: Parameter, problem: Problem) -> str:
    if parameter == problem.query:
        return ORANGE
    return BLUE if parameter in problem.necessary else GREY


def _question(problem: Problem) -> str:
    owner, owned = problem.query
    question = f"How many {owned} does each {owner} have?"
    # A flat problem's solution computes more than the question needs.
    return question if problem.flat else f"{question}  (op = {problem.ops})"


def _rule(definition: Definition) -> str:
    """Name the operation that computes the parameter in one or two words."""
    if not definition.terms:
        return str(definition.constant)
    several = len(definition.terms) > 1
    if len(definition.terms[0]) > 1:
        inner = "sum of products" if several else "product"
    else:
        inner = {"+": "sum", "-": "difference"}[definition.joined] if several else ""
    if definition.constant is None:
        return inner or "the same"
    if not inner:
        return f"{definition.constant} {'more' if definition.applied == '+' else 'times'}"
    return f"{definition.constant} {'+' if definition.applied == '+' else '×'} {inner}"


def _width(lines: Sequence[str]) -> float:
    return max(TextPath((0, 0), line, size=FONT).get_extents().width for line in lines) / 72 + 2 * PADDING


def _page(
    layout: Layout, widths: dict[str, float], height: float, title: str, left: float = 0.0
) -> tuple[Figure, Axes]:
    """Return a figure around the layout, in inches, with room for title and key, and `left` inches more on the left."""
    lanes = [x for route in layout.routes.values() for x, _ in route]
    x_min = min([x - widths[name] / 2 for name, (x, _) in layout.centers.items()] + lanes) - MARGIN - left
    x_max = max([x + widths[name] / 2 for name, (x, _) in layout.centers.items()] + lanes) + MARGIN
    y_min = min(y for _, y in layout.centers.values()) - height / 2 - MARGIN - KEY
    y_max = max(y for _, y in layout.centers.values()) + height / 2 + MARGIN + HEADING
    spare = max(0.0, LEAST_WIDTH - (x_max - x_min)) / 2
    figure = new_figure(x_max - x_min + 2 * spare, y_max - y_min)
    figure.set_layout_engine("none")  # all positions are in inches
    axes = figure.add_axes((0, 0, 1, 1), xlim=(x_min - spare, x_max + spare), ylim=(y_min, y_max))
    axes.set_axis_off()
    axes.text((x_min + x_max) / 2, y_max - MARGIN, title, fontsize=10, ha="center", va="center")
    return figure, axes


def _box(
    axes: Axes, center: Point, size: tuple[float, float], color: str, lines: Sequence[str], rounded: bool = False
) -> None:
    (x, y), (width, height) = center, size
    style = "round,pad=0,rounding_size=0.14" if rounded else "square,pad=0"
    box = FancyBboxPatch(
        (x - width / 2, y - height / 2),
        width,
        height,
        boxstyle=style,
        facecolor=FILLS[color],
        edgecolor=color,
        linewidth=2.0 if color == ORANGE else 1.0,
        zorder=3,
    )
    axes.add_patch(box)
    for index, line in enumerate(lines):
        middle = y + ((len(lines) - 1) / 2 - index) * LINE
        ink = "#666666" if color == GREY else BLACK
        axes.text(x, middle, line, fontsize=FONT, color=ink, ha="center", va="center", zorder=4)


def _line(
    axes: Axes, route: Sequence[Point], color: str, width: float = 1.2, arrow: bool = False, dashed: bool = False
) -> None:
    """Draw a line that is curved between rows and straight within a row."""
    points, codes = [route[0]], [Path.MOVETO]
    for index, ((x0, y0), (x1, y1)) in enumerate(pairwise(route)):
        between_rows = index % 2 == 0
        middle = (y0 + y1) / 2
        points += [(x0, middle), (x1, middle), (x1, y1)] if between_rows else [(x1, y1)]
        codes += [Path.CURVE4] * 3 if between_rows else [Path.LINETO]
    line = FancyArrowPatch(
        path=Path(points, codes),
        arrowstyle="-|>" if arrow else "-",
        mutation_scale=8,
        color=color,
        linewidth=width,
        linestyle=(0, (3, 2)) if dashed else "-",
        zorder=1 if color == GREY else 2,
    )
    axes.add_patch(line)


def _key(figure: Figure, entries: Iterable[tuple[str, Patch | Line2D]]) -> None:
    names, handles = zip(*entries, strict=True)
    figure.legend(handles, names, loc="lower center", ncols=3, fontsize=FONT)
