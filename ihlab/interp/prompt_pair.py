"""Prompts and their corruptions for activation patching, made from any task."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ihlab.runtime.settings import own_settings
from tasks import IGNORE
from tasks.config import choose, require, shown


@dataclass(frozen=True)
class PromptPair:
    """Prompts, and the same prompts with two ids swapped.

    - `clean`, `corrupted`: tokens [batch, pos];
    - `position`: the position in each sequence [batch] whose next token is scored;
    - `answer`, `other`: the correct next tokens there [batch], on the clean and the corrupted
      prompt. With "resample", `other` is the answer at the position that the other prompt scores.
    """

    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    position: Int[Tensor, " batch"]
    answer: Int[Tensor, " batch"]
    other: Int[Tensor, " batch"]

    @property
    def earlier(self) -> Int[Tensor, " batch"]:
        """Each sequence's first changed position with the token at `position`, or else its first
        changed position.
        """
        changed = self.clean != self.corrupted
        asked = self.clean.gather(1, self.position[:, None])
        return (changed.long() + (changed & (self.clean == asked)).long()).argmax(dim=1)

    def logit_differences(
        self, logits: Float[Tensor, "batch pos d_vocab"]
    ) -> Float[Tensor, " batch"]:
        """Return logit(answer) - logit(other) of each sequence."""
        rows = torch.arange(len(logits), device=logits.device)
        scored = logits[rows, self.position.to(logits.device)]
        return (
            scored[rows, self.answer.to(logits.device)] - scored[rows, self.other.to(logits.device)]
        )

    def logit_difference(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, ""]:
        """Return the mean of `logit_differences`: the metric of `transformer_lens.patching`."""
        return self.logit_differences(logits).mean()


EMPTY = 200
"""Number of batches in a row without a fitting sequence after which a task counts as having none.
"""


@own_settings()
def prompt_pair(
    task: Any, size: int = 32, seed: int = 0, corrupt: str = "answer", hops: int | None = None
) -> PromptPair:
    """Return `size` prompts of a task, each with a corruption whose correct answer is different.

    A prompt ends at its scored position. Later tokens are kept but not scored. `corrupt` names the
    two tokens that are swapped before that position:

    - "answer": the answer and another content id of the same role (`ROLES`), at every position. The
      scored position is the last one whose answer occurs earlier (in tasks of `COPIES`: right after
      the same token). The corruption changes what is copied, and not where it is found. If the task
      does not depend on which ids it uses, as in induction, the other id becomes the correct
      answer. In iGSM the other id is the correct copy of a result, but the arithmetic before it is
      then wrong;
    - "key": the token at the scored position and another token of the same role (`ROLES`). Each of
      the two occurs once before the scored position, and they are not neighbours. The corruption
      changes where the answer is found: the other token's follower becomes the correct answer. In a
      task of several hops (`Batch.groups["hops"]`), the other answer is found by following as many
      hops. The scored position is the last one for which there is such a token.

    Two corruptions use the prompts and scored positions of "key", and change something else:

    - "absent": the earlier occurrence becomes a token that the prompt lacks (`absent`). `other` is
      as in "key";
    - "resample": the prompt becomes another prompt of the batch, whose answer becomes `other`
      (`resample`).

    `hops`: score only answers that take this many hops, in a multi-hop task; None: any number of
    hops.

    Sequences without a position to score are left out. Positions with several correct answers
    (`Batch.groups["choices"]`) are not scored. Raises `ConfigError` if no sequence is left, for an
    unknown `corrupt`, and for a corruption after which a task's prompts would have no other correct
    answer (`UNFIT`).
    """
    require(size >= 1, f"size is {size}, but must be at least 1.")
    if choose("corruption", corrupt, [*SWAPS, *REPLACED]) in REPLACED:
        return REPLACED[corrupt](prompt_pair(task, size, seed, "key", hops), seed)
    swap, missing = SWAPS[corrupt]
    kind = getattr(task, "kind", "")
    reason = UNFIT[corrupt].get(kind)
    require(
        reason is None,
        f"corrupt is {corrupt!r}, but a corrupted prompt of task {shown(kind)} would have no other correct answer: "
        f"{reason}. Give clean and corrupted prompts of your own.",
    )
    rules = Rules(
        special=set(getattr(task, "special_ids", ())) | set(getattr(task, "begins_with", ())),
        role=partial(ROLES[kind], task) if kind in ROLES else np.zeros_like,
        copies=kind in COPIES,
    )
    rng = np.random.default_rng(seed)
    clean: list[np.ndarray] = []
    corrupted, scored = [], []
    empty = 0
    while len(clean) < size:
        batch, before = task.batch(size, rng), len(clean)
        n_hops = np.asarray(batch.groups.get("hops", np.ones(size, dtype=int)))
        n_hops = np.broadcast_to(
            n_hops if n_hops.ndim == 2 else n_hops[:, None], batch.inputs.shape
        )
        asked = (batch.groups.get("choices", 1) == 1) & (True if hops is None else n_hops == hops)
        for tokens, answers, n in zip(
            batch.inputs, np.where(asked, batch.answers, IGNORE), n_hops, strict=True
        ):
            swapped_prompt = swap(tokens, answers, rules, n, rng)
            if swapped_prompt is not None and len(clean) < size:
                swapped, position, other = swapped_prompt
                clean.append(tokens)
                corrupted.append(np.concatenate([swapped, tokens[position:]]))
                scored.append((position, int(answers[position]), other))
        empty = 0 if len(clean) > before else empty + 1
        require(empty < EMPTY, f"No sequence of task {shown(task.kind)} has {missing}.")
    tokens = (torch.from_numpy(np.stack(each)) for each in (clean, corrupted))
    return PromptPair(*tokens, *torch.tensor(scored).unbind(dim=1))


@dataclass(frozen=True)
class Rules:
    """Limits on a task's swaps: ids that are not content, the roles of ids, whether answers must be
    copied (`COPIES`).
    """

    special: set[int]
    role: Callable[[np.ndarray], np.ndarray]
    copies: bool


Swapped = tuple[np.ndarray, int, int] | None
"""The tokens before the scored position with two ids swapped, that position, and the other answer.
"""


def _swapped_answer(
    tokens: np.ndarray, answers: np.ndarray, rules: Rules, hops: np.ndarray, rng: Any
) -> Swapped:
    # The scored token stays: if it were the answer, only its earlier occurrences would change.
    for place in np.flatnonzero((answers != IGNORE) & (answers != tokens))[::-1].tolist():
        before, token, answer = tokens[:place], int(tokens[place]), int(answers[place])
        if answer not in before or (rules.copies and _followed(before, token, 1) != answer):
            continue
        others = np.setdiff1d(before, [*rules.special, answer, token])
        others = others[rules.role(others) == rules.role(np.array([answer]))]
        if not len(others):
            return None
        other = int(rng.choice(others))
        swapped = before.copy()
        swapped[before == answer], swapped[before == other] = other, answer
        return swapped, place, other
    return None


def _swapped_key(
    tokens: np.ndarray, answers: np.ndarray, rules: Rules, hops: np.ndarray, rng: Any
) -> Swapped:
    for position in np.flatnonzero(answers != IGNORE)[::-1].tolist():
        before, options = tokens[:position], []
        token, answer = int(tokens[position]), int(answers[position])
        keys = np.flatnonzero(before == token)
        if (
            len(keys) != 1
            or token in rules.special
            or _followed(before, token, int(hops[position])) != answer
        ):
            continue
        key = int(keys[0])
        once = (np.bincount(before)[before] == 1) & ~np.isin(before, list(rules.special))
        once[max(key - 1, 0) : key + 2] = False  # neighbours
        once &= rules.role(before) == rules.role(np.array([token]))
        for place in np.flatnonzero(once).tolist():
            swapped = before.copy()
            swapped[[key, place]] = before[[place, key]]
            other = _followed(swapped, token, int(hops[position]))
            if other not in (None, answer, token):
                options.append((swapped, other))
        if options:
            swapped, other = options[rng.integers(len(options))]
            return swapped, position, other
    return None


def _followed(before: np.ndarray, token: int, hops: int) -> int | None:
    """Return the token `hops` hops from `token`, which follows `before`. A hop leads from a token to
    the token after its latest occurrence.
    """
    end = len(before)
    for _ in range(hops):
        earlier = np.flatnonzero(before[:end] == token)
        if not len(earlier) or earlier[-1] + 1 == len(before):
            return None
        end = int(earlier[-1]) + 1
        token = int(before[end])
    return token


def absent(pair: PromptPair, seed: int) -> PromptPair:
    """Return the pair with another corruption: one earlier token is replaced by a token that the
    prompt does not hold.

    The token at `pair.earlier` is replaced. The new token is drawn from those at `earlier` in other
    prompts, or else at any changed position. Raises `ConfigError` for a prompt that holds all of
    these tokens.
    """
    rng, rows, places = (
        np.random.default_rng(seed),
        np.arange(len(pair.clean)),
        pair.earlier.numpy(),
    )
    clean = pair.clean.numpy()
    same_place, anywhere = clean[rows, places], clean[(pair.clean != pair.corrupted).numpy()]
    corrupted = clean.copy()
    for row, place in enumerate(places):
        pool = np.setdiff1d(same_place, clean[row])
        if not len(pool):
            pool = np.setdiff1d(anywhere, clean[row])
        require(
            len(pool) > 0,
            f"Prompt {row} holds every token that could replace one: give a larger vocabulary.",
        )
        corrupted[row, place] = rng.choice(pool)
    return replace(pair, corrupted=torch.from_numpy(corrupted))


def resample(pair: PromptPair, seed: int) -> PromptPair:
    """Return the pair with another corruption: each prompt becomes a prompt of the batch that has
    another answer.

    Raises `ConfigError` if all prompts have the same answer.
    """
    rng, answer = np.random.default_rng(seed), pair.answer.numpy()
    require(
        len(set(answer.tolist())) > 1,
        "All prompts have the same answer, so none can replace another.",
    )
    chosen = torch.tensor([rng.choice(np.flatnonzero(answer != each)) for each in answer])
    return replace(pair, corrupted=pair.clean[chosen], other=pair.answer[chosen])


REPLACED: dict[str, Callable[[PromptPair, int], PromptPair]] = {
    "absent": absent,
    "resample": resample,
}
"""The corruptions of `prompt_pair` that start from a pair with the corruption "key"."""

SWAPS = {
    "answer": (_swapped_answer, "an answer that occurs before it, and another id to swap it with"),
    "key": (
        _swapped_key,
        "a token that repeats once, and another one to swap its earlier occurrence with",
    ),
}
"""The corruptions of `prompt_pair`, and what a sequence needs for each."""

ROLES: dict[str, Callable[[Any, np.ndarray], np.ndarray]] = {
    "mqar": lambda task, ids: ids >= task.vocab_size // 2,  # keys and values
    "igsm": lambda task, ids: np.array([word.isdigit() for word in task.words(ids)]),
}
"""The role of each id in tasks whose content ids cannot all take each other's place."""

COPIES = ("text", "trigger")
"""Tasks whose answers are partly memorised: only an answer that followed the same token before is
swapped.
"""

_ARITHMETIC = "its answers are results of arithmetic"
_TABLE = "its answers are those of one table for all sequences"
UNFIT = {
    "answer": {"ngram": _TABLE},
    "key": {
        "igsm": _ARITHMETIC,
        "ngram": _TABLE,
    },
}
"""Why a corruption is refused, keyed by corruption and kind of task."""
