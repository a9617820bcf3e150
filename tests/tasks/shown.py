"""The worked rows of the tasks' docstrings, and what their `show` prints, read back."""

import re


def picture(doc: str) -> dict[str, list[str]]:
    """Return the lines of a worked row by their labels, with a cell for each position, "" where
    there is nothing.
    """
    lines = [line for line in doc.splitlines() if line.startswith("    ")]
    cells = {
        line.split()[0]: {m.end(): m.group() for m in re.finditer(r"\S+", line)} for line in lines
    }
    columns = list(cells["input"])[1:]
    return {label: [found.get(column, "") for column in columns] for label, found in cells.items()}


def shown(text: str, width: int = 5) -> dict[str, list[str]]:
    """Return the lines of `show` by their labels, with a cell for each position."""
    cells: dict[str, list[str]] = {}
    for block in text.split("\n\n")[:-1]:
        lines = {line[:9].strip(): line[9:] for line in block.splitlines()}
        n_positions = len(lines["position"].split())
        for label, line in lines.items():
            found = [line[i * width : (i + 1) * width].strip() for i in range(n_positions)]
            cells.setdefault(label, []).extend(found)
    return cells
