"""Batches, rows of tokens with targets and answers, and the protocol of the tasks that draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

IGNORE = -100
"""The target of a position at which nothing is scored (the ignore index of PyTorch's losses).

A constant of the compiled kernels too: after a change here, delete `tasks/kernels/__pycache__`."""


@dataclass(frozen=True)
class Batch:
    """Rows of one task.

    - `inputs`  int64 [batch, pos]: the tokens a model reads;
    - `targets` int64 [batch, pos]: the targets of the training loss at scored positions, else `IGNORE`;
    - `answers` int64 [batch, pos]: the tokens on which accuracy is measured, else `IGNORE`. By default it is
      `targets`; it differs if a model trains on other positions than it is graded on;
    - `groups`  name -> int array: slices for metrics. [batch] if a row is in one slice, such as its number of
      hops; [batch, pos] if its answers are in several, such as their gaps (any value where there is no answer).
    """

    inputs: Int64[np.ndarray, "batch pos"]
    targets: Int64[np.ndarray, "batch pos"]
    answers: Int64[np.ndarray, "batch pos"] = None  # type: ignore[assignment]  # filled below
    groups: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.answers is None:
            object.__setattr__(self, "answers", self.targets)

    def rows(self, start: int, stop: int) -> "Batch":
        """Return rows start .. stop - 1 (views, no copies)."""
        groups = {name: values[start:stop] for name, values in self.groups.items()}
        return Batch(self.inputs[start:stop], self.targets[start:stop], self.answers[start:stop], groups)


@runtime_checkable
class Task(Protocol):
    """A source of batches. `length` is the number of positions in a row, ids are below `vocab_size`.

    Optional members: the properties `held_out`, the task from which evaluations draw in its place (documents that
    training never sees), and `provenance`, facts about its data that are stored with a run (one whose name ends in
    sha256 is a digest: the run is not resumed on other data); and `words(ids)`, the text of each id, which the viewer
    shows. Three say which ids are no content, so that heads are probed with sequences like those of training:
    `begins_with`, the ids at the start of every sequence; `special_ids`, all ids that are no content (by default
    `begins_with`); `padding_id`, the id that fills a sequence up. A task without `begins_with` is taken to begin with
    an id that is first in every sequence and nowhere else.
    """

    @property
    def kind(self) -> str:
        """Name of the task in commands and stored runs."""
        ...

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 .. vocab_size - 1."""
        ...

    @property
    def length(self) -> int:
        """Positions in a row."""
        ...

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` rows. The result is a pure function of the task and the generator's state."""
        ...

    def show(self, batch: Batch, row: int) -> str:
        """Return one row as readable text, with the scored positions marked."""
        ...


def in_lines(cells: Mapping[str, Sequence[object]], width: int, per_line: int = 16) -> list[str]:
    """Lay out cells as labelled lines of `per_line` positions, with a blank line after each block.

    `cells` maps a label to one cell for each position; a cell is right-aligned in `width` characters.
    """
    n_positions = max(len(row) for row in cells.values())
    lines = []
    for start in range(0, n_positions, per_line):
        for label, row in {"position": range(n_positions), **cells}.items():
            shown = "".join(f"{cell!s:>{width}}" for cell in row[start : start + per_line])
            lines.append(f"{label:<9}{shown}".rstrip())
        lines.append("")
    return lines
