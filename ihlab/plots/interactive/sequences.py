"""Interactive figure of the worst sequences that a certificate names."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ihlab.plots.interactive.base import escaped, lay_out, switch


def worst_sequences(table: pd.DataFrame, title: str = "The worst sequence of each query and answer") -> go.Figure:
    """Draw the margin of each query and answer, with a slider over lengths: hover shows the worst sequence.

    `table` has a row for each length, query and answer: `margin`, the `verdict` on it, and `worst`, the tokens of the
    worst sequence. Blue margins are positive: the answer's logit is the largest. Red ones are negative.
    """
    figure, groups = go.Figure(), {}
    for number, (length, of_length) in enumerate(table.assign(worst=table["worst"].map(_text)).groupby("length")):
        # One pivot for all columns, and one that keeps rows without a margin: else a text moves to another cell.
        grids = of_length.drop_duplicates(["query", "answer"]).pivot(index="query", columns="answer")  # noqa: PD010
        figure.add_heatmap(
            x=[escaped(token) for token in grids["margin"].columns],
            y=[escaped(token) for token in grids["margin"].index],
            z=grids["margin"].to_numpy(dtype=np.float32),
            coloraxis="coloraxis",
            hoverongaps=False,
            customdata=np.stack([grids["verdict"].to_numpy(), grids["worst"].to_numpy()], axis=-1),
            hovertemplate="query %{y}, answer %{x}<br>margin %{z:.4g}: %{customdata[0]}<br>%{customdata[1]}"
            "<extra></extra>",
        )
        groups[str(length)] = [number]
    most = max(float(table["margin"].abs().fillna(0).max()), 1e-9)
    bar = {"title": "margin", "thickness": 12}
    figure.update_layout(coloraxis={"colorscale": "RdBu", "cmin": -most, "cmax": most, "colorbar": bar})
    figure.update_xaxes(title_text="answer", type="category", showgrid=False)
    figure.update_yaxes(title_text="query", type="category", showgrid=False, autorange="reversed")
    lay_out(figure, title, 620)
    switch(figure, groups, "slider", "length ")
    return figure


def _text(tokens: object) -> str:
    """Return tokens as one text, at most 16 in a line."""
    words = [escaped(token) for token in tokens] if isinstance(tokens, list | tuple) else [escaped(tokens)]
    return "<br>".join(" ".join(words[start : start + 16]) for start in range(0, len(words), 16))
