"""The questions of a search for worst sequences, the changes that it tries at a position, and the
margins after them.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ihlab.certify.rules import Rule, Tokens
from ihlab.interp.head_model import HeadModel, OurModel
from ihlab.measure.batches import draw
from ihlab.runtime.modes import evaluating
from tasks import IGNORE
from tasks.config import require, shown

MOST_WORDS = 512
"""The most tokens that are tried at one position. From a larger vocabulary, this many are drawn at
random.
"""
ROWS = 512
"""Sequences that the model reads at a time: few enough for the processor's cache."""
DRAWN, DRAWS = 256, 40
"""Number of sequences in each batch that is drawn to look for questions, and the maximum number of
batches.
"""

Margins = Float[np.ndarray, " batch"]
Answers = Int[np.ndarray, " batch"]


class Search:
    """Draws the questions of a search, and changes their sequences to lower the margins.

    `fixed` holds the positions that never change: the query's, and those before the task's tokens.
    """

    def __init__(
        self, model: HeadModel, rule: Rule, support: str, rng: np.random.Generator
    ) -> None:
        self.model, self.rule, self.rng = model, rule, rng
        self._legal: Any = rule.drawable if support == "task" else rule.right

    def asked(
        self, task: Any, questions: int, length: int | None, seed: int
    ) -> tuple[Tokens, Answers]:
        """Return sequences of the task, cut after a query, and their answers."""
        begin = self.rule.begin
        if length is None:
            first = draw(task, seed, "eval", 0, DRAWN)
            length = int(np.flatnonzero((first.answers != IGNORE).any(axis=0)).max(initial=1)) + 1
        require(
            2 <= length <= task.length,
            f"length is {length}, but must be from 2 to the task's length, {task.length}.",
        )
        rows, answers = [], []
        for i in range(DRAWS):
            batch = draw(task, seed, "eval", i, DRAWN)
            scored = batch.answers[:, length - 1] != IGNORE
            ends, answer = batch.inputs[scored, :length], batch.answers[scored, length - 1]
            good = self.legal(ends, answer)
            rows += ends[good].tolist()
            answers += answer[good].tolist()
            if len(rows) >= questions:
                break
        require(
            len(rows) >= questions,
            f"Of {DRAWN * DRAWS} sequences of the task {shown(task.kind)}, {len(rows)} have at position {length - 1} a "
            f"query whose answer follows by the rule, but questions={questions} are needed: give another length.",
        )
        self.fixed = [*range(begin), length - 1]
        return np.array(rows[:questions]), np.array(answers[:questions])

    def legal(self, tokens: Tokens, answer: Answers) -> Bool[np.ndarray, " batch"]:
        """Return which sequences are in the support, with this answer."""
        return self._legal(tokens[:, self.rule.begin :], answer)

    def orders(self, tokens: Tokens) -> Int[np.ndarray, "question pos"]:
        """Return a random order of the positions for each question."""
        return self.rng.permuted(np.tile(np.arange(tokens.shape[1]), (len(tokens), 1)), axis=1)

    def lowered(
        self, tokens: Tokens, margins: Margins, answer: Answers, places: Int[np.ndarray, " batch"]
    ) -> tuple[Tokens, Margins]:
        """Make the change at each question's position that lowers its margin most, or none if no
        change lowers it.
        """
        owner, changed = self.changes(tokens, answer, places)
        after = margins_after(self.model, changed, answer[owner])
        best = smallest(owner, after)
        best = best[after[best] < margins[owner[best]]]
        tokens, margins = tokens.copy(), margins.copy()
        tokens[owner[best]], margins[owner[best]] = changed[best], after[best]
        return tokens, margins

    def shaken(self, tokens: Tokens, answer: Answers, n_places: int) -> Tokens:
        """Make a random change at some random positions of each sequence."""
        tokens = tokens.copy()
        for places in self.orders(tokens).T[:n_places]:
            owner, changed = self.changes(tokens, answer, places)
            drawn = smallest(owner, self.rng.random(len(owner)))
            tokens[owner[drawn]] = changed[drawn]
        return tokens

    def changes(
        self, tokens: Tokens, answer: Answers, places: Int[np.ndarray, " batch"]
    ) -> tuple[Int[np.ndarray, " change"], Int[np.ndarray, "change pos"]]:
        """Return every legal change of each question at its position: the number of the question,
        and the tokens.
        """
        each = list(map(self._changes, tokens, places.tolist()))
        owner = np.repeat(np.arange(len(each)), list(map(len, each)))
        changed = np.concatenate(each)
        legal = self.legal(changed, answer[owner])
        return owner[legal], changed[legal]

    def _changes(self, row: Int[np.ndarray, " pos"], place: int) -> Int[np.ndarray, "change pos"]:
        """Return copies of a sequence, each with another change at a position."""
        rule, words = self.rule, self.rule.words
        if len(words) > MOST_WORDS:
            words = self.rng.choice(words, MOST_WORDS, replace=False)
        if place < rule.begin:
            return row[None][:0]
        written = np.tile(row, (len(words), 1))
        written[:, place] = words
        others = range(rule.begin, len(row))
        every = [
            written,
            exchanged(row, place, others, 1),
            exchanged(row, place, others, 2),
            swapped(row, place, words),
        ]
        if place + 1 < len(row):
            every.append(self._two_written(row, place, words))
        changed = np.concatenate(every)
        differs = changed != row
        return changed[differs.any(axis=1) & ~differs[:, self.fixed].any(axis=1)]

    def _two_written(
        self, row: Int[np.ndarray, " pos"], place: int, words: Int[np.ndarray, " word"]
    ) -> Int[np.ndarray, "change pos"]:
        """Return copies of a sequence, one for each pair of tokens, written at a position and the
        next one. If these are too many: each token only with the one that follows its first
        occurrence, or with a random one.
        """
        first, second = np.repeat(words, len(words)), np.tile(words, len(words))
        if len(first) > MOST_WORDS:
            first, second = words, self.rng.choice(words, len(words))
            for token, follower in zip(row[-2::-1], row[:0:-1], strict=True):
                second[first == token] = follower
        both = np.tile(row, (len(first), 1))
        both[:, place], both[:, place + 1] = first, second
        return both


def swapped(
    row: Int[np.ndarray, " pos"], place: int, words: Int[np.ndarray, " word"]
) -> Int[np.ndarray, "change pos"]:
    """Return copies of a sequence, in each of which the token at a position is swapped with
    another token everywhere.
    """
    here, present = row[place], words[np.isin(words, row)][:, None]
    return np.where(row == here, present, np.where(row == present, here, row))


def exchanged(
    row: Int[np.ndarray, " pos"], place: int, others: Iterable[int], size: int
) -> Int[np.ndarray, "change pos"]:
    """Return copies of a sequence in which `size` tokens from a position on are exchanged with
    those at other positions.
    """
    changed = []
    for other in others:
        if abs(other - place) >= size and max(place, other) + size <= len(row):
            copy = row.copy()
            copy[place : place + size] = row[other : other + size]
            copy[other : other + size] = row[place : place + size]
            changed.append(copy)
    return np.array(changed, row.dtype).reshape(-1, len(row))


def without_scale(model: HeadModel) -> HeadModel:
    """Return one of our own models with a final RMSNorm as it is before that divides the logits;
    others as they are.
    """
    if isinstance(model, OurModel) and model.module.cfg.norm == "rms":
        copy = deepcopy(model.module)
        copy.add_hook(
            "ln_final.hook_scale", lambda scale, hook: torch.ones_like(scale), is_permanent=True
        )
        return OurModel(copy)
    return model


def smallest(owner: Int[np.ndarray, " batch"], values: Margins) -> Int[np.ndarray, " owner"]:
    """Return, for each owner that has values, the index of the smallest one."""
    order = np.lexsort((values, owner))
    return order[np.unique(owner[order], return_index=True)[1]]


@torch.no_grad()
def last_logits(model: HeadModel, tokens: Tokens) -> Float[Tensor, "batch d_vocab"]:
    """Return the logits after the last token. Our own models skip other positions in the last
    layer.
    """
    ids = model.on_device(torch.from_numpy(tokens))
    if not isinstance(model, OurModel):
        return model.logits(ids)[:, -1]
    n, n_pos = ids.shape
    last = torch.full((n, 1), n_pos - 1, device=ids.device)
    with evaluating(model.module):
        return model.module.unembed(
            model.module.residual_at(ids, torch.arange(1, n + 1).to(ids) * n_pos - 1, last)
        )


def margins_after(model: HeadModel, tokens: Tokens, answer: Answers) -> Margins:
    """Return logit(answer) minus the largest other logit after each sequence."""
    margins = [np.empty(0)]
    for start in range(0, len(tokens), ROWS):
        rows = slice(start, start + ROWS)
        margins.append(margins_of(last_logits(model, tokens[rows]), answer[rows])[0])
    return np.concatenate(margins)


def margins_of(
    logits: Float[Tensor, "batch d_vocab"], answer: Answers
) -> tuple[Margins, Int[np.ndarray, " batch"]]:
    """Return logit(answer) minus the largest other logit, and the token with that other logit."""
    right = torch.tensor(answer, device=logits.device)[:, None]
    others, rival = logits.scatter(1, right, -torch.inf).max(dim=1)
    return (logits.gather(1, right)[:, 0] - others).double().cpu().numpy(), rival.cpu().numpy()
