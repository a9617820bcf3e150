"""`make bench`: measure, print and write `results.md` beside this file; exit with 1 if a bar is missed."""

import datetime
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import generators
import pandas as pd
import startup
import theory
import train_step
import tyro
from paired import missed
from rich.console import Console
from rich.table import Table

PAGE = Path(__file__).with_name("results.md")
PACKAGES = ("torch", "transformers", "transformer-lens", "numba")
HEADINGS = ("", "median", "range", "unit", "bar", "")
EXPLANATION = """Written by `make bench`, all from one run. The sides of a comparison take turns, A B A B. A time or a
speed is the median of its turns and the range from least to most. A ratio is the median of paired ratios, turn i of
one side over turn i of the other, with the range of their middle half.

A training step is forward, loss, backward, clipping to norm 1, fused AdamW and zeroing the gradients, in float32 on one
thread, every model in a process of its own whose C library keeps freed memory. Ours and the Llama have the same
weights, optimiser, batches and loss, which is checked; the Llama computes logits at every position, as it has no way to
be asked for other positions in each row, and ours only where something is scored. A first step compiles from an empty
cache; it is not among the turns."""


def main(quick: bool = False) -> None:
    """Measure everything.

    Args:
        quick: Few turns and one shape, to try the code: nothing is written, and the numbers are not to be quoted.
    """
    parts = [benchmark.measure(quick) for benchmark in (generators, startup, theory, train_step)]
    figures = pd.concat([part.astype({"bar": object}) for part in parts], ignore_index=True)
    figures["bar"] = figures["bar"].where(figures["bar"].notna(), None)
    sentences = missed(figures)
    show(figures)
    if not quick:
        PAGE.write_text(page(figures, sentences), encoding="utf-8")
    if sentences:
        sys.exit("Missed: " + " ".join(sentences))


def cells(figures: pd.DataFrame) -> list[tuple[str, ...]]:
    """The figures of one table as text, in the order of `HEADINGS`."""
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


def show(figures: pd.DataFrame) -> None:
    """Print the tables."""
    console = Console()
    for title, part in figures.groupby("table", sort=False):
        table = Table(*HEADINGS, title=str(title), title_justify="left")
        for row in cells(part):
            table.add_row(*row)
        console.print(table)


def page(figures: pd.DataFrame, sentences: list[str]) -> str:
    """The tables as Markdown, with what they were measured on."""
    lines = ["# Benchmarks", "", EXPLANATION, ""]
    lines += [f"- {datetime.date.today():%Y-%m-%d}"]
    lines += [f"- {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"]
    lines += ["- " + ", ".join(f"{name} {version(name)}" for name in PACKAGES), ""]
    lines += ["Bars missed:", "", *(f"- {sentence}" for sentence in sentences)] if sentences else ["All bars are kept."]
    for title, part in figures.groupby("table", sort=False):
        lines += ["", f"## {title}", ""]
        lines += [_markdown(HEADINGS), _markdown(["---"] * len(HEADINGS)), *map(_markdown, cells(part))]
    return "\n".join(lines) + "\n"


def processor() -> str:
    """The CPU's model name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _markdown(row: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(row) + " |"


def _number(x: float) -> str:
    """Three digits, and more only before the point."""
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


if __name__ == "__main__":
    tyro.cli(main)
