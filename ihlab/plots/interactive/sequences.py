"""Interactive figure of the worst sequences that a certificate names."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.grids import grid
from ihlab.plots.interactive.base import escaped, lay_out, switch
from ihlab.plots.style import ORANGE
from ihlab.plots.views import in_order

COLUMNS = ["query", "answer"]


def worst_sequences(
    table: pd.DataFrame, title: str = "The worst sequence of each query and answer"
) -> go.Figure:
    """Draw the margin of each query and answer, with a slider over lengths: hover shows the worst
    sequence.

    `table` has a row for each length, query and answer: `margin`, the `verdict` on it, and `worst`,
    the tokens of the worst sequence. Blue margins are positive: the answer's logit is the largest.
    Red ones are negative. If all have one sign, the colours run from the smallest to the largest. A
    square marks the smallest margin of each length.
    """
    table = table.assign(worst=table["worst"].map(_text)).drop_duplicates(["length", *COLUMNS])
    queries, answers = (in_order(table, name) for name in COLUMNS)
    figure = go.Figure()
    lengths = list(table.groupby("length"))
    for _, of_length in lengths:
        # Grids of one shape for all lengths and columns: no text moves to another cell.
        margin, verdict, worst = (
            grid(of_length, "query", "answer", name, queries, answers)
            for name in ("margin", "verdict", "worst")
        )
        figure.add_heatmap(
            x=list(map(escaped, answers)),
            y=list(map(escaped, queries)),
            z=margin.to_numpy(dtype=np.float32),
            coloraxis="coloraxis",
            hoverongaps=False,
            customdata=np.stack([verdict.to_numpy(), worst.to_numpy()], axis=-1),
            hovertemplate="query %{y}, answer %{x}<br>margin %{z:.4g}: %{customdata[0]}<br>%{customdata[1]}"
            "<extra></extra>",
        )
    for _, of_length in lengths:
        smallest = of_length.dropna(subset=["margin"]).nsmallest(1, "margin")
        figure.add_scatter(
            x=list(map(escaped, smallest["answer"])),
            y=list(map(escaped, smallest["query"])),
            mode="markers",
            marker={"symbol": "square-open", "size": 16, "color": ORANGE, "line": {"width": 3}},
            name="smallest margin",
            showlegend=True,
            hoverinfo="skip",
        )
    scale = {**_scale(table["margin"]), "colorbar": {"title": "margin", "thickness": 12}}
    figure.update_layout(coloraxis=scale, plot_bgcolor="#DDDDDD")
    figure.update_xaxes(title_text="answer", type="category", showgrid=False)
    figure.update_yaxes(title_text="query", type="category", showgrid=False, autorange="reversed")
    lay_out(figure, title, 420)
    groups = {str(length): [i, i + len(lengths)] for i, (length, _) in enumerate(lengths)}
    switch(figure, groups, "slider", "length ")
    return figure


def _scale(margins: "pd.Series[float]") -> dict[str, object]:
    """Return a colour scale that the margins fill: blue is positive, red negative, and the palest
    nearest to 0.
    """
    low, high = float(margins.min()), float(margins.max())
    if low > 0:
        return {"colorscale": "Blues", "cmin": low, "cmax": high}
    if high < 0:
        return {"colorscale": "Reds", "reversescale": True, "cmin": low, "cmax": high}
    most = np.nanmax([-low, high, 1e-9])
    return {"colorscale": "RdBu", "cmin": -most, "cmax": most}


def _text(tokens: object) -> str:
    """Return tokens as one text, at most 16 in a line."""
    if not isinstance(tokens, list | tuple):
        return escaped(tokens)
    words = list(map(escaped, tokens))
    return "<br>".join(" ".join(words[start : start + 16]) for start in range(0, len(words), 16))
