"""Conversion between text and token ids, with the method names of a TransformerLens model."""

from typing import Any, cast

from jaxtyping import Int
from torch import Tensor

from ihlab.model.lens.task_tokenizer import TaskTokenizer
from ihlab.model.lens.token_ids import token_ids, token_rows
from tasks import Task


class LensText:
    """A mixin that converts between token ids and the words of the task that the model was trained
    on.
    """

    embed: Any

    trained_on: Task | None = None
    """The task that the model was trained on, if known (`Run.model`): probes use its token ids."""

    @property
    def tokenizer(self) -> TaskTokenizer | None:
        """The words of the task that the model was trained on; None if the task is unknown or has
        no words.
        """
        return TaskTokenizer(self.trained_on) if hasattr(self.trained_on, "words") else None

    def to_tokens(self, tokens: Any, *_: Any, **__: Any) -> Int[Tensor, "batch pos"]:
        """Return ids, given as a tensor or as lists, as sequences [batch, pos].

        A text, or a list of texts of the same number of tokens, is encoded with the words of the
        model's task. Raises `ConfigError` for text if the task has no words, and as
        `ihlab.model.lens.token_ids.token_rows` does.
        """
        if isinstance(tokens, str):
            tokens = [tokens]
        if isinstance(tokens, list) and tokens and isinstance(tokens[0], str):
            tokens = [TaskTokenizer(self.trained_on).encode(text) for text in tokens]
        return token_rows(tokens, self.embed.weight.device)

    def to_str_tokens(self, tokens: Any, *_: Any, **__: Any) -> list[str] | list[list[str]]:
        """Return the text of each token: of ids [pos], of a text, or of each item of a list of
        these.

        A task without words has ids only: the token 7 is the text "7".
        """
        if isinstance(tokens, list) and tokens and not isinstance(tokens[0], int):
            return [cast(list[str], self.to_str_tokens(item)) for item in tokens]
        ids = self.to_tokens(tokens)[0] if isinstance(tokens, str) else tokens
        return TaskTokenizer(self.trained_on).convert_ids_to_tokens(ids)

    def to_string(self, tokens: Any) -> str | list[str]:
        """Return the text of ids [pos], or of each sequence of [batch, pos]."""
        ids, decode = token_ids(tokens), TaskTokenizer(self.trained_on).decode
        if ids.ndim == 2:
            return [decode(row) for row in ids]
        return decode(ids)
