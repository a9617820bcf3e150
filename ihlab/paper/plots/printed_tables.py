"""The paper's printed numbers: differences to a baseline over learning rate and context, and leads on benchmarks."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from ihlab.plots.curves import Mark
from ihlab.plots.style import BLACK, BLUE, ORANGE, printed, scaled

BELOW_TO_ABOVE = LinearSegmentedColormap.from_list("below_to_above", (BLUE, "#FFFFFF", ORANGE))
"""Blue and orange are distinguishable with any colour vision; white is the baseline itself."""
MISSING = "#E6E6E6"
LIMIT = 0.05
"""Colours end at +- this difference, so that a single diverged run does not make all others pale."""


@printed
def difference_maps(panels: Sequence[Axes], maps: Sequence[tuple[str, pd.DataFrame]]) -> None:
    """Draw one map per panel, each a pair of title and cells, with one colour bar beside the last.

    A map has a coloured cell for each learning rate (rows) and context length (columns). The cells have the columns lr,
    context, difference (NaN: grey, out of memory) and best (outlined).
    """
    for axes, (title, cells) in zip(panels, maps, strict=True):
        image = _map(axes, cells)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("context length")
    panels[0].set_ylabel("learning rate")
    bar = panels[0].figure.colorbar(image, ax=panels, extend="both", pad=0.02, fraction=0.06)
    ticks = (-LIMIT, 0.0, LIMIT)
    bar.set_ticks(ticks, labels=[_thousandths(x) for x in ticks])


def _map(axes: Axes, cells: pd.DataFrame) -> AxesImage:
    grid = cells.pivot_table(index="lr", columns="context", values="difference", dropna=False)
    image = axes.imshow(
        grid, cmap=BELOW_TO_ABOVE.with_extremes(bad=MISSING), norm=Normalize(-LIMIT, LIMIT), interpolation="nearest",
        aspect="auto",
    )  # fmt: skip
    contexts, rates = list(grid.columns), list(grid.index)
    for cell in cells.to_dict("records"):
        x, y = contexts.index(cell["context"]), rates.index(cell["lr"])
        # Only the far blue end is too dark for black text.
        ink = "white" if cell["difference"] < -0.6 * LIMIT else "black"
        axes.text(x, y, _thousandths(cell["difference"]), ha="center", va="center", color=ink, fontsize=scaled(9))
        if cell["best"]:
            axes.add_patch(Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fill=False, edgecolor=BLACK, lw=2))
    for number in range(1, len(contexts)):
        axes.axvline(number - 0.5, color="white", lw=1)
    for number in range(1, len(rates)):
        axes.axhline(number - 0.5, color="white", lw=1)
    axes.set_xticks(range(len(contexts)), [str(int(context)) for context in contexts], fontsize=scaled(9))
    axes.set_yticks(range(len(rates)), [f"{rate:.0e}".replace("e-0", "e-") for rate in rates], fontsize=scaled(9))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    return image


def _thousandths(difference: float) -> str:
    """Format a difference for a cell: signed unless 0, and OOM if it is missing."""
    if math.isnan(difference):
        return "OOM"
    x = round(1000 * difference, 1)
    return f"{x:+.{int(abs(x) < 1)}f}".replace("-", "\N{MINUS SIGN}") if x else "0"


@printed
def differences_by_context(axes: Axes, table: pd.DataFrame, lines: Mapping[str, Mark]) -> None:
    """Draw a line over evenly spaced context lengths for each method, the last method thicker; 0 is the baseline.

    `table` has the columns method, context and difference.
    """
    contexts = sorted(table["context"].unique())
    for number, (method, style) in enumerate(lines.items()):
        rows = table[table["method"] == method].sort_values("context")
        places = [contexts.index(context) for context in rows["context"]]
        axes.plot(
            places, rows["difference"], color=style.color, ls=style.dashes, marker=style.marker, ms=6,
            lw=1.5 if number < len(lines) - 1 else 2.5, label=method,
        )  # fmt: skip
    axes.axhline(0, color="0.3", lw=1)
    axes.set_xticks(range(len(contexts)), [str(int(context)) for context in contexts])
    axes.set_xlabel("context length")
    axes.set_axisbelow(True)


@printed
def benchmark_leads(axes: Axes, table: pd.DataFrame) -> None:
    """Draw a column of marks for each group: a dot for each benchmark, a diamond for their average; 0 is no lead.

    `table` has the columns group, lead and total (true for the average).
    """
    groups = list(dict.fromkeys(table["group"]))
    for total, marker, size, colour, label in (
        (False, "o", 5, "0.6", "a benchmark"),
        (True, "D", 8, BLUE, "average of the eight"),
    ):
        rows = table[table["total"] == total]
        places = [groups.index(group) for group in rows["group"]]
        axes.plot(places, rows["lead"], ls="", marker=marker, ms=size, color=colour, label=label)
    axes.axhline(0, color="0.3", lw=1)
    axes.set_xticks(range(len(groups)), groups, fontsize=scaled(9))
    axes.set_ylabel("points of accuracy")
    axes.legend(loc="upper right")
    axes.set_axisbelow(True)
