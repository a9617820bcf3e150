"""What is attributed: a model, clean and corrupted prompts, and a metric with one number per prompt."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ihlab.interp.head_model import HeadModel, OurModel
from ihlab.interp.prompt_pair import prompt_pair
from ihlab.interp.sources import opened_model
from ihlab.model.lens.token_ids import token_rows
from ihlab.model.transformer import Transformer
from ihlab.settings import own_settings
from ihlab.training.run import Run
from tasks.config import choose, require

Metric = Callable[[Float[Tensor, "batch pos d_vocab"]], Float[Tensor, " batch"]]

INPUTS = ("q", "k", "v")
"""The inputs of a head: its queries, keys and values."""

COLUMNS = {
    "head": ["layer", "head"],
    "input": ["layer", "head", "input"],
    "edge": ["from_layer", "from_head", "to_layer", "to_head", "input"],
}
"""The kinds of nodes, and the columns that name one. An edge runs from a head to an input of a later layer's head."""

SMALLEST_SWING = 1e-9


@dataclass(frozen=True)
class Problem:
    """Prompts and a metric on which effects of a model's heads are measured.

    - `model`: the opened model;
    - `clean`, `corrupted`: tokens [batch, pos]; a position has the same place in both;
    - `metric`: maps the logits of all prompts to one number per prompt.
    """

    model: HeadModel
    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    metric: Metric

    @own_settings()
    def measured(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        """Return the metric of each prompt. Raises `ConfigError` unless it is one number per prompt."""
        values = self.metric(self.model.differentiable_logits(tokens))
        shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        wanted = [len(self.clean)]
        require(shape == wanted, f"The metric returns {shape}, but must return one number per prompt: {wanted}.")
        return values

    @cached_property
    def ends(self) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """The metric of each prompt, clean and corrupted."""
        with torch.no_grad():
            return self.measured(self.clean), self.measured(self.corrupted)

    @property
    def swing(self) -> float:
        """The mean metric of the clean prompts, minus that of the corrupted ones."""
        clean, corrupted = self.ends
        return (clean.double() - corrupted.double()).mean().item()

    @property
    def swapped(self) -> "Problem":
        """The problem with clean and corrupted prompts exchanged. Its effects have the opposite sign."""
        return replace(self, clean=self.corrupted, corrupted=self.clean)

    @property
    def transformer(self) -> Transformer:
        """The model, if it is one of ours. Raises `ConfigError` for a model of another library."""
        require(
            isinstance(self.model, OurModel),
            f"The model is a {self.model.name}, of which only z can be patched: give nodes='head' and a method that "
            "needs no other activation, or convert it (ihlab.model.hf.from_llama, from_gpt2).",
        )
        return self.model.module  # type: ignore[return-value]

    def nodes(self, kind: str) -> pd.DataFrame:
        """Return a table that names every node of a kind, one per row, in the order of all tables and tensors here."""
        n_layers, n_heads = self.model.n_layers, self.model.n_heads
        columns = COLUMNS[choose("nodes", kind, COLUMNS)]
        sizes = {"layer": range(n_layers), "head": range(n_heads), "input": INPUTS}
        index = pd.MultiIndex.from_product([sizes[name.rpartition("_")[2]] for name in columns], names=columns)
        table = index.to_frame(index=False)
        if kind != "edge":
            return table
        require(n_layers >= 2, f"The model has {n_layers} layer, but an edge between heads needs at least 2.")
        return table[table["from_layer"] < table["to_layer"]].reset_index(drop=True)


@own_settings()
def problem(
    source: Any,
    task: Any = None,
    corrupt: str = "key",
    size: int = 64,
    seed: int = 0,
    *,
    clean: Any = None,
    corrupted: Any = None,
    metric: Metric | None = None,
) -> Problem:
    """Return a problem: `size` prompts of a task with their corruptions, and the logit difference of the two answers.

    `source` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face causal LM. `task`
    defaults to the task that the model was trained on. `corrupt` ("key" or "answer") is that of `prompt_pair`.

    Instead of a task, give your own `clean` and `corrupted` tokens [batch, pos] and a `metric` that maps logits
    [batch, pos, d_vocab] to one differentiable number per prompt.

    Raises `ConfigError` without a task or tokens, for prompts of unequal length, for a metric that is not one number
    per prompt, and for prompts on which the metric does not differ.
    """
    if isinstance(source, Run) and task is None and clean is None:
        source.require_task()
    model = opened_model(source, "effects are measured by running a model")
    own = {"clean": clean, "corrupted": corrupted, "metric": metric}
    given = [name for name, value in own.items() if value is not None]
    require(
        len(given) in (0, 3),
        f"Only {' and '.join(given)} is given, but clean, corrupted and metric are needed together.",
    )
    if metric is None:
        task = getattr(model.module, "trained_on", None) if task is None else task
        require(
            task is not None,
            f"The task of the {model.name} is unknown: give a task, or clean and corrupted tokens and a metric.",
        )
        pair = prompt_pair(task, size, seed, corrupt)
        clean, corrupted, metric = pair.clean, pair.corrupted, pair.logit_differences
    clean, corrupted = (model.on_device(token_rows(tokens).long()).clone() for tokens in (clean, corrupted))
    require(
        clean.shape == corrupted.shape,
        f"The corrupted prompts are {list(corrupted.shape)}, but the clean ones are {list(clean.shape)}: a token must "
        "have the same position in both.",
    )
    made = Problem(model, clean, corrupted, metric)
    require(
        abs(made.swing) > SMALLEST_SWING,
        f"The metric is {made.ends[0].mean().item():.3g} on clean and on corrupted prompts: there is no effect to "
        "attribute.",
    )
    return made


def table_of(p: Problem, nodes: str, effects: Float[Tensor, "prompt node"]) -> pd.DataFrame:
    """Return the table of a kind of nodes with their mean `effect` over prompts, and its `fraction` of the swing."""
    effect = effects.detach().double().mean(dim=0).cpu().numpy()
    return p.nodes(nodes).assign(effect=effect, fraction=effect / p.swing)


@contextmanager
def counted(p: Problem) -> Iterator[dict[str, float]]:
    """Count forward and backward passes of models with logits over the vocabulary, in passes of all prompts."""
    passes = {"forward": 0.0, "backward": 0.0}
    depth = 0

    def count(name: str, logits: Tensor) -> None:
        passes[name] += logits[..., 0].numel() / p.clean.numel()

    def before(module: nn.Module, args: Any) -> None:
        nonlocal depth
        depth += 1

    def after(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1
        logits = getattr(output, "logits", output)
        if depth == 0 and isinstance(logits, Tensor) and logits.shape[2:] == (p.model.d_vocab,):
            count("forward", logits)
            if logits.requires_grad:
                logits.register_hook(lambda gradient: count("backward", gradient))

    with register_module_forward_pre_hook(before), register_module_forward_hook(after, always_call=True):
        yield passes
