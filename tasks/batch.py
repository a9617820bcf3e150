"""Batches of token sequences with targets and answers, and the protocol of the tasks that draw them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int64

IGNORE = -100
"""The target of a position at which nothing is scored (the ignore index of PyTorch's losses).

The compiled kernels contain it as a constant: after a change here, delete `tasks/kernels/__pycache__`."""


PER_LINE = 16
"""Number of positions in a line of `in_lines`."""


@dataclass(frozen=True)
class Batch:
    """Sequences of one task.
    - `inputs`  int64 [batch, pos]: the tokens a model reads;
    - `targets` int64 [batch, pos]: the targets of the training loss at scored positions, else `IGNORE`;
    - `answers` int64 [batch, pos]: the tokens on which accuracy is measured, else `IGNORE`. By default it is
      `targets`; it differs if a model is trained and evaluated at different positions;
    - `groups`  name -> int array: labels by which metrics are split. [batch] for a label of a whole sequence, such as
      its number of hops; [batch, pos] for a label of each answer, such as its gap (arbitrary where nothing is asked);
    - `document_starts` bool [batch, pos]: True at the first token of each document, if a sequence packs several; None
      if each sequence is one document. Only training and its evaluations support packed sequences.
    """

    inputs: Int64[np.ndarray, "batch pos"]
    targets: Int64[np.ndarray, "batch pos"]
    answers: Int64[np.ndarray, "batch pos"] = None  # type: ignore[assignment]  # filled below
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    document_starts: Bool[np.ndarray, "batch pos"] | None = None

    def __post_init__(self) -> None:
        if self.answers is None:
            object.__setattr__(self, "answers", self.targets)

    def rows(self, start: int, stop: int) -> "Batch":
        """Return sequences start .. stop - 1 (views, no copies)."""
        cut = slice(start, stop)
        groups = {name: values[cut] for name, values in self.groups.items()}
        starts = self.document_starts
        if starts is not None:
            starts = starts[cut]
        return Batch(self.inputs[cut], self.targets[cut], self.answers[cut], groups, starts)


@runtime_checkable
class Task(Protocol):
    """A source of batches. `length` is the number of positions in a sequence; ids are below `vocab_size`.

    Optional members:

    - `held_out`: the task that evaluations draw from instead (documents that training never sees);
    - `provenance`: facts about the data that are stored with a run. A name that ends in sha256 marks a digest: the run
      is not resumed on other data;
    - `words(ids)`: the text of each id, which the viewer shows;
    - `begins_with`: the ids at the start of every sequence. Without it, a task is assumed to begin with any id that is
      first in every sequence and occurs nowhere else;
    - `special_ids`: all ids that are not content (by default `begins_with`);
    - `padding_id`: the id that fills up a sequence.

    Head scores use the last three to build probe sequences that look like training sequences.
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
        """Number of positions in a sequence."""
        ...

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences. The result is a pure function of the task and the generator's state."""
        ...

    def show(self, batch: Batch, row: int) -> str:
        """Return one sequence as readable text, with the scored positions marked."""
        ...


def in_lines(
    task: Task, batch: Batch, row: int, note: str, role: Sequence[str] = (), graded: str = "target"
) -> str:
    """Return a sequence as text: lines of 16 positions with tokens, their `role` and targets or answers, then a note.

    `graded` is "target" or "answer": what to show. Tokens are written as the task's `words`, or as ids if it has none.
    """
    words = getattr(task, "words", lambda ids: [str(i) for i in ids])
    scored = (batch.answers if graded == "answer" else batch.targets)[row]
    positions = range(len(scored))
    targets = [words(scored[t : t + 1])[0] if scored[t] != IGNORE else "" for t in positions]
    tokens = words(batch.inputs[row])
    lines = {"position": positions, "token": tokens, "role": role, graded: targets}
    width = max(5, *(1 + len(str(cell)) for cells in lines.values() for cell in cells))
    text = []
    for start in range(0, len(scored), PER_LINE):
        for label, cells in lines.items():
            if len(cells):
                shown = "".join(f"{cell!s:>{width}}" for cell in cells[start : start + PER_LINE])
                text.append(f"{label:<9}{shown}".rstrip())
        text.append("")
    return "\n".join([*text, note])
