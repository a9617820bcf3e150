"""Draw batches of a task, as pure functions of the task, a seed, the split and the step."""

from typing import Any, Literal

import numpy as np

from tasks import IGNORE, Batch, Task
from tasks.config import ConfigError, require

SPLITS = ("train", "eval", "probe")
Split = Literal["train", "eval", "probe"]

EVAL_SEED = 20241129
"""The seed of the held-out set, which is the same for every run of a task, whatever the run's own
seed.
"""


def draw(task: Task, seed: int, split: Split, step: int, size: int, packed: bool = False) -> Batch:
    """Return the batch of one step. Each step has its own seed, so steps can be drawn in any order.

    If a task evaluates on other sequences than it trains on, such as held-out documents, its
    `held_out` is the task that draws them. Raises `ConfigError` as `require_batch` does, and for
    packed documents unless `packed`: the caller must tell the model where they start
    (`ihlab.model.documents`).

    The generator is seeded with (split, seed, step). NumPy ignores zeros at the end of a seed, so
    `default_rng(0)` gives the first training batch of seed 0. For sequences that no run has trained
    on, draw with `EVAL_SEED`.
    """
    if split == "eval":
        task = getattr(task, "held_out", task)
    batch = task.batch(size, np.random.default_rng([SPLITS.index(split), seed, step]))
    require_batch(task, batch, size)
    if not packed:
        require_whole(batch)
    return batch


def require_whole(batch: Any) -> None:
    """Raise `ConfigError` for anything but a `Batch`, and for packed documents."""
    require(
        isinstance(batch, Batch),
        f"batch is a {type(batch).__name__}, but must be a tasks.Batch, as from task.batch(size, rng).",
    )
    require(
        batch.document_starts is None,
        "The batch has several documents in a sequence (document_starts), which only training and its evaluations "
        "read: take a batch without them.",
    )


def require_batch(task: Task, batch: Batch, size: int) -> None:
    """Raise `ConfigError` unless a task's batch fits `Batch`: `size` sequences of the task's
    length, with valid ids.

    Targets of another shape would silently train a model on the wrong positions.
    """
    name = f"{type(task).__name__}.batch"
    require(
        isinstance(batch, Batch),
        lambda: f"{name} returned a {type(batch).__name__}, but must return a Batch.",
    )
    whole = (size, task.length)
    for field, least in (("inputs", 0), ("targets", IGNORE), ("answers", IGNORE)):
        ids = getattr(batch, field)
        if field == "answers" and ids is batch.targets:  # the default; skipped to save time
            continue
        _require_array(f"{name} returned {field}", ids, np.int64, whole)
        odd = (ids.view(np.uint64) >= task.vocab_size) & (
            ids != least
        )  # as unsigned, a negative id exceeds all others
        if odd.any():
            others = "" if least == 0 else f", or {IGNORE} where nothing is scored"
            last = task.vocab_size - 1
            raise ConfigError(
                f"{name} returned the id {ids[odd][0]} in {field}, but ids are 0 to {last}{others}."
            )
    if batch.document_starts is not None:
        _require_array(f"{name} returned document_starts", batch.document_starts, bool, whole)
    for group, values in batch.groups.items():
        _require_array(f"{name} returned the group '{group}'", values, np.integer, (size,), whole)


def _require_array(what: str, values: Any, dtype: type, *shapes: tuple[int, ...]) -> None:
    """Raise `ConfigError` unless values are a NumPy array of this type, of one of the shapes."""
    array = isinstance(values, np.ndarray)
    if not (array and np.issubdtype(values.dtype, dtype) and values.shape in shapes):
        returned = f"{values.dtype}, {list(values.shape)}" if array else type(values).__name__
        allowed = " or ".join(str(list(shape)) for shape in shapes)
        raise ConfigError(
            f"{what} as {returned}, but it must be a NumPy array of {dtype.__name__}, {allowed}: [sequences] or "
            "[sequences, positions]."
        )
