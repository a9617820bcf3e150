"""The words of a task's vocabulary, with the methods of a Hugging Face tokenizer that
TransformerLens' users call.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from ihlab.model.lens.token_ids import token_ids
from tasks import Task
from tasks.config import ConfigError, shown


class TaskTokenizer:
    """Text to ids and back, for a task with `words`. A task without words has ids only: the token 7
    is the text "7".
    """

    def __init__(self, task: Task | None) -> None:
        self.task = task

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Raises `ConfigError` if the task has no words, and for a word
        it does not have.
        """
        encode = getattr(self.task, "encode", None)
        if encode is None:
            raise ConfigError(
                f"The text {shown(text)} has no ids: {self._about}. Give token ids instead."
            )
        return np.asarray(encode(text)).tolist()

    def decode(self, ids: Any) -> str:
        """Return the text of one sequence of ids."""
        row = _one_row(ids)
        decode = getattr(self.task, "decode", None)
        text = " ".join(map(str, row)) if decode is None else decode(row)
        if isinstance(text, bytes):
            return text.decode(errors="replace")
        return text if isinstance(text, str) else " ".join(text)

    def convert_ids_to_tokens(self, ids: Any) -> list[str]:
        """Return the text of each id of one sequence."""
        row = _one_row(ids)
        words = getattr(self.task, "words", None)
        return [str(i) for i in row] if words is None else words(row)

    @property
    def _about(self) -> str:
        if self.task is None:
            return "the model has no task whose words are known"
        return f"the task '{getattr(self.task, 'kind', type(self.task).__name__)}' has no words"


def _one_row(ids: Any) -> Int[np.ndarray, " pos"]:
    row = token_ids(ids).cpu().numpy().squeeze()
    if row.ndim > 1:
        raise ConfigError(
            f"The tokens have the shape {list(row.shape)}, but must be one sequence, [pos]."
        )
    return np.atleast_1d(row)
