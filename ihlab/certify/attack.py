"""Search for worst-case sequences: change the tokens around a question to lower the model's margin
on its answer.

1. Draw sequences of the task that end with a query.
2. Visit all positions in random order. At each, try every change: write a token; exchange it, or it
   and the next one, with tokens elsewhere, which also moves the query's earlier occurrence and the
   answer; swap two tokens everywhere in the sequence; write two neighbours (in large vocabularies: a
   token and the one that follows it elsewhere).
3. Of the changes that keep the answer right (`ihlab.certify.rules`), make the one with the smallest
   margin.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from ihlab.certify.failure import ANSWER, EARLIER, attention, explained, roles_in
from ihlab.certify.rules import Rule, Tokens, rule_for
from ihlab.certify.search import Answers, Search, margins_after, margins_of, without_scale
from ihlab.interp.head_model import HeadModel
from ihlab.interp.sources import opened_model
from ihlab.runtime.progress import tracked
from ihlab.runtime.settings import own_settings
from tasks import StoredTask
from tasks.config import choose, require, require_integer


@dataclass(frozen=True, repr=False)
class Attack:
    """Questions, each with the worst sequence that a search found.

    `table` has one row per question, smallest margin first:

    - `query`: the last token; `answer`: the right next token;
    - `position`, `answer_position`: where the query and then the answer stand earlier in `worst`;
    - `sampled_margin`, `margin`: logit(answer) minus the largest other logit, after the sequence
      that the task drew and after `worst`; `wrong`: whether `margin` is 0 or less; `mistaken_for`:
      the token with the largest other logit;
    - `in_task`: whether the task could draw `worst` with this answer; missing if it is not known
      what the task draws;
    - `how`: which heads' attention changed between the two sequences, in words;
    - `sampled`, `worst`: the tokens, of which the last is the query.

    `attention` has each head's pattern at the last token of `worst`, in the order of the table;
    None without patterns.
    """

    table: pd.DataFrame
    attention: Float[np.ndarray, "question layer head pos"] | None

    @property
    def accuracy(self) -> float:
        """The fraction of questions that are answered rightly in the worst sequences."""
        return 1 - float(self.table["wrong"].mean())

    @property
    def sampled_accuracy(self) -> float:
        """The fraction of questions that are answered rightly in the sequences that the task drew."""
        return float((self.table["sampled_margin"] > 0).mean())

    @property
    def verdict(self) -> str:
        """What the search found, in a sentence."""
        n, wrong = len(self.table), self.table[self.table["wrong"]]
        said = (
            f"{self.sampled_accuracy * n:.0f} of {n} questions are answered rightly as drawn, and "
            f"{self.accuracy * n:.0f} in the worst sequence that was found (smallest margin "
            f"{self.table['margin'].min():.2f})"
        )
        if wrong.empty:
            return f"{said}."
        known = wrong["in_task"].dropna()
        if known.empty:
            return f"{said}; whether the task could draw it is not known."
        return f"{said}; the task could draw {known.sum()} of the {len(wrong)} sequences with a wrong answer."

    def __repr__(self) -> str:
        return f"Attack({self.verdict})"


@own_settings()
def attack(
    source: Any,
    task: Any = None,
    *,
    questions: int = 24,
    length: int | None = None,
    support: str = "task",
    restarts: int = 2,
    sweeps: int = 3,
    before_norm: bool = False,
    seed: int = 0,
) -> Attack:
    """Search for the sequences on which a model answers worst, and say how it fails there.

    `source` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face
    causal LM. `task` defaults to the task that the model was trained on. A question is a sequence
    of `length` tokens (by default the longest that ends in a query) that the task draws. The search
    keeps the query and the answer, and may move the positions that carry them. `support` says which
    sequences the search may use:

    - "task": those that the task can draw, with the same answer. In the induction task, every
      repeated token then keeps its follower;
    - "any": sequences of any tokens of the task, if the answer is right by its rule. In the
      induction task, the answer must follow the query wherever it occurs, and every other token can
      be anything.

    Each search sweeps at most `sweeps` times over all positions, and ends when a sweep changes
    nothing. The first of the `restarts` searches starts from the sequence that the task drew, each
    other one from random changes of the worst sequence so far. With `before_norm`, the search
    lowers margins before the scale of the final norm divides them, as certificates have them (our
    own models only). Their signs are the same. The result depends only on these arguments.

    By default 24 questions of 32 tokens and 117 ids take about a minute on one core. A longer
    search, such as restarts=16 and sweeps=4, can find worse sequences.

    Raises `ConfigError` without a task, for tasks of several hops and of n-grams, for support="task"
    where it is not known what the task draws, and for a length at which the task has too few questions.
    """
    for name, value in (("questions", questions), ("restarts", restarts), ("sweeps", sweeps)):
        require_integer(name, value, 1)
    choose("support", support, ("task", "any"))
    model = opened_model(source, "the worst sequences are found by running a model")
    task = getattr(model.module, "trained_on", None) if task is None else task
    require(
        task is not None and not isinstance(task, StoredTask),
        f"The task of the {model.name} is unknown: give a task.",
    )
    searched = model
    if before_norm:
        searched = without_scale(model)
    search = Search(searched, rule_for(task, support), support, np.random.default_rng(seed))
    sampled, answer = search.asked(task, questions, length, seed)
    least, worst = margins_after(searched, sampled, answer), sampled
    for restart in tracked(range(restarts), "searching"):
        tokens, n_places = worst, worst.shape[1]
        if restart % 2:  # far from the worst sequence so far, and near to it, in turn
            tokens = search.shaken(worst, answer, n_places)
        elif restart:
            tokens = search.shaken(worst, answer, max(2, n_places // 4))
        margins = margins_after(searched, tokens, answer)
        for _ in range(sweeps):
            before = margins
            for places in search.orders(sampled).T:
                tokens, margins = search.lowered(tokens, margins, answer, places)
            if (margins == before).all():
                break
        better = margins < least
        least, worst = np.where(better, margins, least), np.where(better[:, None], tokens, worst)
    return _reported(search.rule, model, task, sampled, worst, answer)


def _reported(
    rule: Rule, model: HeadModel, task: Any, sampled: Tokens, worst: Tokens, answer: Answers
) -> Attack:
    """Run the model on the sequences as they are, and tabulate what it does."""
    margin, rival = margins_of(model.logits(torch.from_numpy(worst))[:, -1], answer)
    sampled_margin, _ = margins_of(model.logits(torch.from_numpy(sampled))[:, -1], answer)
    patterns, worst_patterns = attention(model, sampled), attention(model, worst)
    how, roles = [""] * len(worst), []
    for i, row in enumerate(worst):
        roles.append(roles_in(row))
        if patterns is not None and worst_patterns is not None:
            of_both = patterns[i], worst_patterns[i]
            how[i] = explained(of_both, (roles_in(sampled[i]), roles[i]), row, task)
    places = pd.DataFrame(roles)
    drawable: Any = rule.drawable(worst[:, rule.begin :], answer)
    if drawable is None:
        drawable = [None] * len(worst)
    table = pd.DataFrame(
        {
            "query": worst[:, -1],
            "answer": answer,
            "position": places[EARLIER].astype("Int64"),
            "answer_position": places[ANSWER].astype("Int64"),
            "sampled_margin": sampled_margin,
            "margin": margin,
            "wrong": ~(margin > 0),
            "mistaken_for": rival,
            "in_task": pd.array(drawable, dtype="boolean"),
            "how": how,
            "sampled": sampled.tolist(),
            "worst": worst.tolist(),
        }
    )
    order = np.argsort(margin, kind="stable")
    at_query = None if worst_patterns is None else worst_patterns[order, :, :, -1]
    return Attack(table.iloc[order].reset_index(drop=True), at_query)
