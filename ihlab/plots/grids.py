"""A table with a row for each cell as a grid, for maps of any kind."""

from typing import Any

import pandas as pd


def grid(
    table: pd.DataFrame,
    row: str,
    column: str,
    value: str,
    rows: list[Any] | range | None = None,
    columns: list[Any] | range | None = None,
) -> pd.DataFrame:
    """Return a column of a table by its row and column in the grid; NaN where the table has no row
    or no value.

    `rows`, `columns`: the names of all rows and columns, in order; by default those in the table,
    sorted. Unlike `pivot_table`, this drops no row or column without values, and never averages.
    """
    cells = table.pivot(index=row, columns=column, values=value)  # noqa: PD010
    return cells.reindex(index=rows, columns=columns)
