"""The stored metrics of a run: `metrics.csv`, and the record of it in each checkpoint."""

import io
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from ihlab.storage.stored import as_text, read_bytes
from ihlab.training.progress import Row
from tasks.config import ConfigError, require

MOST_COLUMNS = 10_000
"""Largest number of columns. pandas is slow for many, and `ihlab runs` reads every table. 1000
heads use half of it.
"""


def as_csv(rows: list[Row], header: bool = True) -> str:
    """Return metrics as CSV, with all digits of a float so that it reads back bit for bit."""
    return pd.DataFrame(rows).to_csv(index=False, header=header)


def record(content: bytes) -> str:
    """Return the size and the CRC-32 of a table, which a checkpoint stores for the metrics up to
    it.
    """
    return f"{len(content)} {zlib.crc32(content):08x}"


def read_metrics(
    path: Path, steps: Iterable[int], known: str | None = None, ended: bool = False
) -> pd.DataFrame:
    """Read the table of `as_csv`.

    It must have a row for each of `steps`, and its beginning must match the `record` given as
    `known`. An incomplete last row is left out, unless the run has `ended`. Raises `ConfigError` for
    a file that cannot be read, is truncated elsewhere, lacks one of `steps`, has more than
    `MOST_COLUMNS` columns, holds anything but numbers, or whose steps do not increase.
    """
    content = read_bytes(path)
    text = as_text(content, path)
    lines = text.split("\n")
    partial = lines.pop()  # an incomplete row: still being written, or left by a killed process
    require(bool(lines) and not (partial and ended), f"{path} is cut off in its last line.")
    table = _parsed(path, "\n".join([*lines, ""]), lines)
    lost = sorted(set(steps) - set(table["step"]))
    require(
        not lost,
        f"{path} is cut off: it has no line of step {lost and lost[0]}, at which the run was evaluated.",
    )
    if known is not None:
        require(
            _begins(content, known),
            f"{path} is damaged: it does not match what the last checkpoint records.",
        )
    return table


def _parsed(path: Path, text: str, lines: list[str]) -> pd.DataFrame:
    columns = lines[0].count(",")
    require(
        columns < MOST_COLUMNS,
        f"{path} has {columns + 1} columns, but must have at most {MOST_COLUMNS}.",
    )
    for i, line in enumerate(lines[1:], start=2):
        require(
            line.count(",") == columns,
            f"{path} has {line.count(',') + 1} cells in line {i}, not {columns + 1}.",
        )
    try:
        table = pd.read_csv(io.StringIO(text))
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{path} is not a table of metrics ({' '.join(str(error).split())})."
        ) from None
    require(len(table) > 0, f"{path} is cut off: it has no lines.")
    require("step" in table, f"{path} is not a table of metrics: it has no column 'step'.")
    require(len(table) == len(lines) - 1, f"{path} is not a table of metrics: it has empty lines.")
    for name, column in table.items():
        numbers = column.dtype.kind in "iuf" and not np.isinf(column.to_numpy()).any()
        require(
            numbers, f"{path}: the column '{name}' holds something that is not a finite number."
        )
    step = table["step"]
    require(
        step.dtype.kind == "i" and int(step.iloc[0]) >= 0,
        f"{path}: the steps must be whole numbers from 0 on.",
    )
    again = step[step.diff() <= 0]
    require(
        again.empty,
        f"{path}: the steps must increase, but step {again.empty or again.iloc[0]} follows a later one.",
    )
    return table


def _begins(content: bytes, known: str) -> bool:
    """Return whether a `record` matches the beginning of a file. A malformed record matches any
    file.
    """
    parsed = re.fullmatch(r"(\d{1,12}) [0-9a-f]{8}", known)
    return parsed is None or known == record(content[: int(parsed[1])])
