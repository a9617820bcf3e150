"""The worst sequences that an attack found, with the attention of every head."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

from ihlab.plots.style import BLUE, ORANGE, new_figure, printed, scaled
from tasks.config import require

DRAWN = 3
"""Number of sequences that are drawn."""


@printed
def worst_sequences(
    table: pd.DataFrame,
    attention: Float[np.ndarray, "question layer head pos"] | None,
    title: str,
    words: Callable[[np.ndarray], list[str]] | None = None,
) -> Figure:
    """Draw the first questions of a table, one panel each: tokens from left to right, heads from
    top to bottom.

    `table` and `attention` are those of `ihlab.certify.Attack`. A cell is one head's attention from
    the query to a token. `words` gives the text of ids. Raises `ConfigError` without attention.
    """
    require(
        attention is not None, "The model has no attention patterns, so there is nothing to draw."
    )
    _, n_layers, n_heads, n_pos = attention.shape  # type: ignore[union-attr]
    n, n_rows = min(DRAWN, len(table)), n_layers * n_heads
    figure = new_figure(max(6.0, 0.25 * n_pos + 1.4), n * (0.22 * n_rows + 0.9) + 0.5)
    grid = figure.subplots(n, 1, squeeze=False)[:, 0]
    for axes, pattern, (_, question) in zip(grid, attention, table.iterrows(), strict=False):  # type: ignore[arg-type]
        image = axes.imshow(
            pattern.reshape(n_rows, n_pos), cmap="Blues", vmin=0, vmax=1, aspect="auto"
        )
        ids = np.array([question["answer"], question["mistaken_for"], *question["worst"]])
        answer, rival, *tokens = [str(i) for i in ids] if words is None else words(ids)
        axes.set_xticks(range(n_pos), tokens, rotation=90, fontsize=scaled(8))
        axes.set_yticks(
            range(n_rows),
            [f"{i // n_heads}.{i % n_heads}" for i in range(n_rows)],
            fontsize=scaled(8),
        )
        axes.set(ylabel="head")
        axes.set_title(
            f"answer {answer}, rival {rival}, margin {question['margin']:.2f}",
            fontsize=scaled(9),
            loc="left",
        )
        axes.grid(visible=False)
        places = {n_pos - 1: BLUE, question["position"]: BLUE, question["answer_position"]: ORANGE}
        for place, label in enumerate(axes.get_xticklabels()):
            label.set(
                color=places.get(place, "black"), weight="bold" if place in places else "normal"
            )
    figure.colorbar(image, ax=grid, label="attention of the query", fraction=0.03)
    figure.suptitle(
        f"{title}\nblue: the query and its earlier occurrence; orange: the answer",
        fontsize=scaled(9),
    )
    return figure
