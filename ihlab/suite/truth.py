"""The truth about a member: the exact effect of every head, input and edge, the scores of its heads, its onset."""

import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ihlab.attribution import TRUE_LEAST, Problem, exact
from ihlab.attribution.noise import NOISE
from ihlab.attribution.problems import CORRUPTIONS, pair_problem
from ihlab.interp.heads import locate_induction_heads
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.prompt_pair import REPLACED, PromptPair, prompt_pair
from ihlab.measure.metrics import Evaluator
from ihlab.model.transformer import Transformer
from ihlab.settings import own_settings
from ihlab.suite.members import CONTROL, HAND_SET, accuracy_of, load, onset_of, run
from ihlab.training.config import RunConfig
from tasks import NGramTask, Task
from tasks.config import choose, require, shown

VERSION = 2
"""The version of what `truth` returns. It rises when a number changes its meaning."""

PROMPTS, SEQUENCES, SEED = 64, 512, 0
"""Prompts on which effects are measured, held-out sequences for accuracy, and the seed of both."""

DEFINITIONS = {
    "swing": "mean over 64 prompts of the logit difference of the two answers, on clean minus on corrupted prompts. In "
    "a corrupted prompt two earlier tokens have changed places (ihlab.interp.prompt_pair, corrupt='key'), so that "
    "another answer is right. 2-hop: prompts ask for the number of 'hops'. 3-grams: another context of the table with "
    "the same last token. Members of period 2: the prompts have random repeats",
    "effect": "the metric on corrupted prompts with the node's activation from the clean ones, minus the metric there",
    "reverse": "the metric on clean prompts, minus the metric there with the node's activation from the corrupted ones",
    "fraction": "effect / swing; reverse_fraction: reverse / swing",
    "true": "whether the larger size of effect and reverse is at least a tenth of the size of the swing; never, if the "
    "swing is not above those of shuffled answers, as before training",
    "heads": "patched: the head's output z, before W_O",
    "inputs": "patched: the queries, keys or values of one head, after the shift and before rotation",
    "edges": "patched: the direct path from a head to one input of a head in a later layer",
    "scores": "ihlab.interp.locate_induction_heads on repeated random tokens and 512 sequences of the task",
    "pairs": "ihlab.interp.induction_pair.find_induction_pair: previous-token heads and the induction heads they feed",
    "onset": "first step at which the accuracy that says what the task is for is halfway from the best guess to 1; "
    "null for a member that has not learned its task",
    "accuracy": "fraction of right answers on 512 held-out sequences: all, the first of each sequence, and by slice",
    "control": "the accuracy of a member of period 2 on sequences with random repeats, where only induction is right",
}
"""What every number is."""


@own_settings()
def truth(
    name: str, seed: int = 0, step: int | None = None, root: str | Path = "runs", hops: int | None = None
) -> dict[str, Any]:
    """Return the truth about a member at a checkpoint: numbers by name, and tables. Its "definitions" say what each is.

    Tables: "heads", "inputs", "edges" (from two layers on), "scores" and "pairs". Numbers: "swing", "accuracy" and
    "control" by slice, "onset", "hops", "step", "seed", and the versions. `hops`: how many the prompts ask for; None:
    the most that the task has. Raises `ConfigError` as `load` does.
    """
    model = load(name, seed, step, root)
    task: Any = model.trained_on
    facts: dict[str, Any] = {"version": VERSION, "member": name, "seed": seed, "step": step or 0}
    facts |= {package: version(package) for package in ("ihlab", "torch")} | {"definitions": dict(DEFINITIONS)}
    if name not in HAND_SET:
        member = run(name, seed, root)
        onset = onset_of(member, accuracy_of(name))
        facts |= {"step": member.require_checkpoint(step), "trained": member.config.recipe}
        facts["onset"] = None if math.isnan(onset) else onset
    facts["hops"] = getattr(task, "max_hops", None) if hops is None else hops
    p = problem(model, hops=facts["hops"])
    facts |= {"accuracy": _accuracy(model, task), "control": _accuracy(model, _control(task)), "swing": p.swing}
    least = TRUE_LEAST * abs(p.swing) if p.answered else math.inf
    for kind in ("head", "input", "edge")[: 2 if model.cfg.n_layers == 1 else 3]:
        table = exact(p, kind)
        size = table[["effect", "reverse"]].abs().max(axis=1)
        facts[f"{kind}s"] = table.assign(true=size >= least)
    facts["scores"] = locate_induction_heads(model, batch=task.batch(SEQUENCES, np.random.default_rng(SEED)))
    facts["pairs"] = find_induction_pair(model)
    return facts


@own_settings()
def problem(
    model: Transformer, corrupt: str = "key", metric: str = "logit-difference", hops: int | None = None
) -> Problem:
    """Return the prompts and the metric on which the effects of a loaded member are measured.

    "swing" defines those of the truth. `corrupt` and `metric` are as in `ihlab.attribution.problem`. `hops`: how many
    the prompts ask for; None: any number, most often one. Raises `ConfigError` for anything but a model of the suite.
    """
    task: Any = getattr(model, "trained_on", None)
    require(task is not None, f"The model is {shown(model)}, but must be one that suite.load returns.")
    return pair_problem(model, prompts(task, corrupt, hops), metric, corrupt)


def prompts(task: Any, corrupt: str = "key", hops: int | None = None) -> PromptPair:
    """Return the prompts of a member's task. For noise they are those of "key", with the place of the noise."""
    choose("corruption", corrupt, CORRUPTIONS)
    how = "key" if corrupt in NOISE else corrupt
    if not isinstance(task, NGramTask) or how == "answer":
        return prompt_pair(_control(task) or task, PROMPTS, SEED, how, hops)
    pair = _other_context(task)
    return REPLACED[how](pair, SEED) if how in REPLACED else pair


def _control(task: Task) -> Task | None:
    return CONTROL if getattr(task, "period", None) else None


def _other_context(task: NGramTask) -> PromptPair:
    """Return prompts whose last context is replaced by another of the table that differs only in its first token."""
    rng, table = np.random.default_rng(SEED), task.table
    pairs = [(a, b) for a in table for b in table if a[0] != b[0] and a[-1] != b[-1] and (a[1:-1] == b[1:-1]).all()]
    position = np.flatnonzero(task.batch(1, rng).answers[0] >= 0)[-1]
    chosen = np.array(pairs)[rng.integers(len(pairs), size=PROMPTS)]  # [prompt, 2, order]
    clean = task.batch(PROMPTS, rng).inputs
    corrupted = clean.copy()
    for tokens, which in ((clean, 0), (corrupted, 1)):
        tokens[:, position - task.order + 2 : position + 1] = chosen[:, which, :-1]
    answers = torch.from_numpy(chosen[:, :, -1].copy())
    at = torch.full((PROMPTS,), int(position))
    return PromptPair(torch.from_numpy(clean), torch.from_numpy(corrupted), at, answers[:, 0], answers[:, 1])


def _accuracy(model: Transformer, task: Task | None) -> dict[str, float]:
    if task is None:
        return {}
    row = Evaluator(RunConfig(task=task, model=model.cfg, eval_rows=SEQUENCES), torch.device("cpu"))(model)
    return {name: value for name, value in row.items() if name.startswith("accuracy")}
