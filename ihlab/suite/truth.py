"""What is known about a member: the exact effect of every head, input and edge, the scores of its
heads, its onset.
"""

import math
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ihlab import kept
from ihlab.attribution import TRUE_LEAST, Problem, exact
from ihlab.attribution.noise import NOISE
from ihlab.attribution.problems import COLUMNS, CORRUPTIONS, pair_problem, table_of
from ihlab.attribution.truth import exact_effects
from ihlab.interp.heads import locate_induction_heads
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.prompt_pair import REPLACED, PromptPair, prompt_pair
from ihlab.measure.metrics import Evaluator
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from ihlab.suite.members import CONTROL, HAND_SET, accuracy_of, hops_of, load, onset_of, run
from ihlab.suite.worst import worst_ablation
from ihlab.training.config import RunConfig
from tasks import NGramTask, Task
from tasks.config import choose, require, shown

VERSION = 3
"""The version of what `truth` returns. It rises when a number changes its meaning."""

PROMPTS, SEQUENCES, SEED = 64, 512, 20261129
"""Number of prompts; number of sequences for accuracy and head scores; seed of all draws but those
for accuracy. No run draws its training batches with this seed."""

FEW_PROMPTS = 16
"""Number of prompts on which edges are measured in models of more than two layers."""

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
    "edges": "patched: the direct path from a head to one input of a head in a later layer. From three layers on: on "
    "the first 16 prompts, with 95% intervals (normal, over prompts) of the effect, low and high",
    "built": "members whose weights are set by hand, asked for the most hops: the heads of the circuit by "
    "construction, the input through which the difference of the prompts reaches each, and what it does. In the other "
    "tables it marks them. Heads that copy what does not differ, such as the number of hops, are left out",
    "worst_ablation": "the least faithfulness (ihlab.attribution.circuits) of all sets of heads that hold the true "
    "ones, the heads [layer, head] ablated with it, how many sets were measured, and whether they were sampled, as "
    "with more than 8 other heads; empty if the swing is not above those of shuffled answers",
    "scores": "ihlab.interp.locate_induction_heads on repeated random tokens and 512 sequences of the task",
    "pairs": "ihlab.interp.induction_pair.find_induction_pair: previous-token heads and the induction heads they feed",
    "onset": "first step at which the accuracy that says what the task is for is halfway from the best guess to 1; "
    "null for a member that has not learned its task",
    "accuracy": "fraction of right answers on 512 held-out sequences: all, the first of each sequence, and by slice",
    "proof": "the folder below ihlab/kept that says on which set of sequences the member is proved right, and how to "
    "check it; null for a member without one",
    "control": "the accuracy of a member of period 2 on sequences with random repeats, where only induction is right",
}
"""The definition of every number that `truth` returns."""


@own_settings()
def truth(
    name: str,
    seed: int = 0,
    step: int | None = None,
    root: str | Path = "runs",
    hops: int | None = None,
) -> dict[str, Any]:
    """Return the measured truth about a member at a checkpoint: a dict of numbers and tables, with
    their "definitions".

    Tables: "heads", "inputs", "edges" (from two layers on), "scores", "pairs", and "built" for those
    whose weights are set by hand. Numbers:
    "swing", "accuracy" and "control" by slice, "worst_ablation", "onset", "hops", "step", "seed",
    and the versions. `hops`: the number that prompts ask for; None: the most that the member has
    learned or its task has. Raises `ConfigError` as `load` does.
    """
    model = load(name, seed, step, root)
    task: Any = model.trained_on
    facts: dict[str, Any] = {
        "version": VERSION,
        "member": name,
        "seed": seed,
        "step": step or 0,
        "proof": None,
    }
    facts |= {package: version(package) for package in ("ihlab", "torch")} | {
        "definitions": dict(DEFINITIONS)
    }
    if name not in HAND_SET:
        member = run(name, seed, root)
        onset = onset_of(member, accuracy_of(name))
        at, last = member.require_checkpoint(step), member.require_checkpoint(None)
        proof = kept.proof(name) if seed == 0 and at == last else None
        facts |= {"step": at, "trained": member.config.recipe, "proof": proof}
        facts["onset"] = None if math.isnan(onset) else onset
    most_hops = hops_of(name, task)
    facts["hops"] = most_hops if hops is None else hops
    patching = problem(model, hops=facts["hops"])
    pair: PromptPair = patching.metric.pair  # type: ignore[attr-defined]
    facts |= {
        "accuracy": _accuracy(model, task),
        "control": _accuracy(model, _control(task)),
        "swing": patching.swing,
    }
    constructed = HAND_SET.get(name) if facts["hops"] == most_hops else None
    for kind in ("head", "input", "edge")[: 2 if model.cfg.n_layers == 1 else 3]:
        few = kind == "edge" and model.cfg.n_layers > 2
        if few:
            table, swing = _edges_of_few(model, pair)
        else:
            table, swing = exact(patching, kind), patching.swing
        size = table[["effect", "reverse"]].abs().max(axis=1)
        table["true"] = (size >= TRUE_LEAST * abs(swing)) & patching.answered
        if constructed:
            nodes = pd.MultiIndex.from_frame(table[COLUMNS[kind]])
            table["built"] = nodes.isin(list(constructed.nodes(kind)))
        facts[f"{kind}s"] = table
    if constructed:
        facts["built"] = constructed.table()
    facts["worst_ablation"] = (
        worst_ablation(patching, facts["heads"]["true"].to_numpy()) if patching.answered else {}
    )
    facts["scores"] = locate_induction_heads(
        model, batch=task.batch(SEQUENCES, np.random.default_rng(SEED))
    )
    facts["pairs"] = find_induction_pair(model)
    return facts


def _edges_of_few(model: Transformer, pair: PromptPair) -> tuple[pd.DataFrame, float]:
    """Return the effects of edges on the first prompts, with intervals, and the swing of these
    prompts.
    """
    few = pair_problem(model, PromptPair(*(ids[:FEW_PROMPTS] for ids in vars(pair).values())))
    effects, reverse = exact_effects(few, "edge"), -exact_effects(few.swapped, "edge")
    width = 1.96 * effects.double().std(dim=0) / FEW_PROMPTS**0.5
    table, back = table_of(few, "edge", effects), table_of(few, "edge", reverse)
    table = table.assign(low=table["effect"] - width.numpy(), high=table["effect"] + width.numpy())
    return table.assign(reverse=back["effect"], reverse_fraction=back["fraction"]), few.swing


@own_settings()
def problem(
    model: Transformer,
    corrupt: str = "key",
    metric: str = "logit-difference",
    hops: int | None = None,
) -> Problem:
    """Return the prompts and the metric on which the effects of a loaded member are measured.

    `DEFINITIONS["swing"]` describes those that `truth` takes. `corrupt`, `metric`: as in
    `ihlab.attribution.problem`. `hops`: how many the prompts ask for; None: any number, most often
    one. Raises `ConfigError` for anything but a model of the suite.
    """
    task: Any = getattr(model, "trained_on", None)
    require(
        task is not None, f"The model is {shown(model)}, but must be one that suite.load returns."
    )
    return pair_problem(model, prompts(task, corrupt, hops), metric, corrupt)


def prompts(task: Any, corrupt: str = "key", hops: int | None = None) -> PromptPair:
    """Return the prompts of a member's task. For noise these are "key" prompts: their `earlier`
    token gets noise.
    """
    how = "key" if choose("corruption", corrupt, CORRUPTIONS) in NOISE else corrupt
    if not isinstance(task, NGramTask) or how == "answer":
        return prompt_pair(_control(task) or task, PROMPTS, SEED, how, hops)
    pair = _other_context(task)
    return REPLACED[how](pair, SEED) if how in REPLACED else pair


def _control(task: Task) -> Task | None:
    return CONTROL if getattr(task, "period", None) else None


def _other_context(task: NGramTask) -> PromptPair:
    """Return prompts whose last context is replaced by another of the table that differs only in
    its first token.
    """
    rng, pairs = np.random.default_rng(SEED), []
    for a, b in product(task.table, repeat=2):
        if a[0] != b[0] and a[-1] != b[-1] and (a[1:-1] == b[1:-1]).all():
            pairs.append((a, b))
    position = np.flatnonzero(task.batch(1, rng).answers[0] >= 0)[-1]
    chosen = np.array(pairs)[rng.integers(len(pairs), size=PROMPTS)]  # [prompt, 2, order]
    clean = task.batch(PROMPTS, rng).inputs
    corrupted = clean.copy()
    for tokens, which in ((clean, 0), (corrupted, 1)):
        tokens[:, position - task.order + 2 : position + 1] = chosen[:, which, :-1]
    answers = torch.from_numpy(chosen[:, :, -1].T.copy())
    positions = torch.full((PROMPTS,), int(position))
    return PromptPair(torch.from_numpy(clean), torch.from_numpy(corrupted), positions, *answers)


def _accuracy(model: Transformer, task: Task | None) -> dict[str, float]:
    if task is None:
        return {}
    run = RunConfig(task=task, model=model.cfg, eval_rows=SEQUENCES)
    row = Evaluator(run, torch.device("cpu"))(model)
    return {name: value for name, value in row.items() if name.startswith("accuracy")}
