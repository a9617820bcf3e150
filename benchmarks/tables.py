"""Figures of a benchmark as tables: cells as text, and tables on the terminal."""

import pandas as pd
from rich.console import Console
from rich.table import Table

HEADINGS = ("", "median", "range", "unit", "bar", "")


def show(figures: pd.DataFrame) -> None:
    """Print the tables."""
    console = Console()
    for title, part in figures.groupby("table", sort=False):
        table = Table(*HEADINGS, title=str(title), title_justify="left")
        for row in cells(part):
            table.add_row(*row)
        console.print(table)


def cells(figures: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the figures of one table as text, in the order of `HEADINGS`."""
    return [
        (
            row.measured,
            _number(row.median),
            f"{_number(row.min)} .. {_number(row.max)}",
            row.unit,
            "" if row.bar is None else f"{row.bar} {'kept' if row.bar.kept(row.median) else 'MISSED'}",
            row.note,
        )
        for row in figures.itertuples()
    ]


def _number(x: float) -> str:
    """Return a number with three digits, or with all digits before the point if there are more."""
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"
