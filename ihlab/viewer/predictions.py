"""A model's predictions at each position: the most likely tokens, the target and its loss."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ihlab.viewer.packing import packed
from ihlab.viewer.token_text import Text
from ihlab.viewer.tokens import TokenRow
from tasks import IGNORE
from tasks.config import require

TOP = 5
CHANCES = 65535
"""Probabilities are stored as integers from 0 to this number."""


class Predictions:
    """Predictions of all sequences and steps of a page, with one shared list of words."""

    def __init__(self, text: Text | None) -> None:
        self._text = text or str
        self._places = {IGNORE: -1}
        self.words: list[str] = []

    def packed(self, logits: Float[Tensor, "pos d_vocab"], row: TokenRow) -> dict[str, str]:
        """Return `top`, `chance` and `loss` of `view_data`, each as text. The loss is NaN without a
        target.
        """
        require(not logits.isnan().any(), "The model's logits hold a NaN: they cannot be viewed.")
        logs = F.log_softmax(logits.double(), dim=-1)
        values, ids = logs.topk(min(TOP, logs.shape[-1]), dim=-1)
        targets = torch.from_numpy(_targets(row))
        asked = targets != IGNORE
        loss = torch.full(targets.shape, torch.nan, dtype=torch.float64)
        loss[asked] = -logs[asked].gather(1, targets[asked, None])[:, 0]
        places = np.array(list(map(self._place, ids.flatten().tolist())), dtype="<u4")
        return {
            "top": packed(places),
            "chance": packed(np.rint(values.exp().numpy() * CHANCES).astype("<u2")),
            "loss": packed(loss.numpy().astype("<f4")),
        }

    def targets(self, row: TokenRow) -> dict[str, Any]:
        """Return `target` and `asked` of `view_data`."""
        asked = "next token" if row.targets is None else "target"
        return {"target": list(map(self._place, _targets(row).tolist())), "asked": asked}

    def _place(self, i: int) -> int:
        """Return the index of an id's text in `words`; -1 for no target."""
        if i not in self._places:
            self._places[i] = len(self.words)
            self.words.append(self._text(i))
        return self._places[i]


def _targets(row: TokenRow) -> Int[np.ndarray, " pos"]:
    return np.append(row.ids[1:], IGNORE) if row.targets is None else row.targets
