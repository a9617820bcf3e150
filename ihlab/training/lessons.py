"""Lessons of a run: questions that are added to its batches, and found anew at some evaluations."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ihlab.measure.batches import SPLITS
from ihlab.measure.gathered import TrainingBatch, training_batch
from ihlab.model.transformer import Transformer
from ihlab.training import checkpoint
from ihlab.training.config import TaughtConfig
from ihlab.training.run import Run
from tasks import IGNORE
from tasks.config import require

Found = tuple[Sequence[Sequence[int]], dict[str, float]]
"""Lessons, each the tokens of a question and its answer, and the columns of metrics that finding
them has measured.
"""
Find = Callable[[Transformer, int], Found]
"""Finds the lessons of a model at a step."""

MEASURED = {"proof": "proved_length", "attack": "attacked_accuracy"}
"""The column of metrics that each kind of lessons has. It is 0 before the first lessons."""
PADDING = -1


class LessonBook:
    """The lessons of a run in training.

    `lessons` [lesson, longest + 1] holds the tokens of a question, its answer, then padding. They
    are stored in the folder of the run, `lessons/step-N.safetensors`, so that a resumed run goes on
    with the same ones.
    """

    def __init__(self, run: Run, find: Find) -> None:
        assert isinstance(run.config, TaughtConfig)
        self.run, self.config, self.find = run, run.config, find
        self.lessons = np.full((0, self.config.lessons.lengths[-1] + 1), PADDING)
        self.measured: dict[str, float] = {}
        if self.config.lessons.rows in MEASURED:
            self.measured[MEASURED[self.config.lessons.rows]] = 0.0

    def renew(self, step: int, model: Transformer) -> dict[str, float]:
        """Find lessons, if the step is one at which they are renewed. Return the column of metrics
        (`MEASURED`) with its latest value.
        """
        if step in self.config.renewals():
            new_lessons, self.measured = self.find(model, step)
            self.lessons = np.full((len(new_lessons), self.lessons.shape[1]), PADDING)
            for i, lesson in enumerate(new_lessons):
                self.lessons[i, : len(lesson)] = lesson
            with self.run.writing():
                path, about = self.run.lessons_path(step), self.run.about(step)
                checkpoint.save(path, {"lessons": torch.from_numpy(self.lessons)}, about)
        return self.measured

    def resume(self, step: int, last: dict[str, int | float]) -> None:
        """Load the lessons in use after a step. `last` is its row of metrics, or an earlier one.

        Raises `ConfigError` for a file that is missing or damaged, or has ids that the model does
        not read.
        """
        self.measured = {name: float(last[name]) for name in self.measured}
        earlier = [renewal for renewal in self.config.renewals() if renewal <= step]
        if earlier:
            path = self.run.lessons_path(earlier[-1])
            loaded = checkpoint.load(path, about=self.run.about(earlier[-1]))
            stored = loaded.get("lessons", torch.zeros(0))
            lengths = {length + 1 for length in self.config.lessons.lengths}
            require(
                stored.ndim == 2
                and stored.dtype == torch.int64
                and stored.shape[1] == self.lessons.shape[1]
                and bool(((stored >= PADDING) & (stored < self.config.model.d_vocab)).all())
                and {*(stored >= 0).sum(dim=1).tolist()} <= lengths,
                f"{path} does not hold lessons of the run: remove the run's folder to train it anew.",
            )
            self.lessons = stored.numpy()

    def batches(self, step: int) -> list[TrainingBatch]:
        """Return a step's lessons, one batch for each length. None are drawn before the first are
        found.
        """
        if not len(self.lessons):
            return []
        rng = np.random.default_rng([len(SPLITS) + 1, self.config.seed, step])
        size = int(self.config.lessons.fraction * self.config.batch_size)
        drawn = self.lessons[rng.integers(len(self.lessons), size=size)]
        n_tokens = (drawn != PADDING).sum(axis=1) - 1
        batches = []
        for length in np.unique(n_tokens):
            lessons = drawn[n_tokens == length]
            targets = np.full((len(lessons), length), IGNORE)  # only the answer is scored
            targets[:, -1] = lessons[:, length]
            batches.append(training_batch(lessons[:, :length], targets))
        return batches
