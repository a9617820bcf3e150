"""Losses over a grid of learning rate and context length, as differences to a baseline."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from ihlab.plots.curves import Mark
from ihlab.plots.style import BLACK, BLUE, ORANGE, printed

BELOW_TO_ABOVE = LinearSegmentedColormap.from_list("below_to_above", (BLUE, "#FFFFFF", ORANGE))
"""Blue and orange are distinguishable with any colour vision; white is the baseline itself."""

MISSING = "#E6E6E6"


@printed
def difference_map(axes: Axes, cells: pd.DataFrame, limit: float) -> AxesImage:
    """Draw a coloured cell for each learning rate (rows) and context length (columns). The best cells are outlined.

    `cells` has the columns lr, context, difference (NaN: grey), text (written into the cell) and best. Colours end at
    +-`limit`, so that a single diverged run does not make all others pale. Its number is still written.
    """
    grid = cells.pivot_table(index="lr", columns="context", values="difference", dropna=False)
    image = axes.imshow(
        grid, cmap=BELOW_TO_ABOVE.with_extremes(bad=MISSING), norm=Normalize(-limit, limit), interpolation="nearest",
        aspect="auto",
    )  # fmt: skip
    contexts, rates = list(grid.columns), list(grid.index)
    for cell in cells.to_dict("records"):
        x, y = contexts.index(cell["context"]), rates.index(cell["lr"])
        # Only the far blue end is too dark for black text.
        ink = "white" if cell["difference"] < -0.6 * limit else "black"
        axes.text(x, y, cell["text"], ha="center", va="center", color=ink, fontsize=9)
        if cell["best"]:
            frame = Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fill=False, edgecolor=BLACK, lw=2)
            axes.add_patch(frame)
    for number in range(1, len(contexts)):
        axes.axvline(number - 0.5, color="white", lw=1)
    for number in range(1, len(rates)):
        axes.axhline(number - 0.5, color="white", lw=1)
    axes.set_xticks(range(len(contexts)), [str(int(context)) for context in contexts], fontsize=9)
    axes.set_yticks(range(len(rates)), [f"{rate:.0e}".replace("e-0", "e-") for rate in rates], fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    return image


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
    axes.set_xticks(range(len(groups)), groups, fontsize=9)
    axes.set_axisbelow(True)
