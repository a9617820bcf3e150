"""An attribution problem: a model, clean and corrupted prompts, and a metric with one number per
prompt.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ihlab.attribution.metrics import METRICS, NamedMetric, scored
from ihlab.attribution.noise import NOISE, noisy
from ihlab.attribution.padded import prompts_mask
from ihlab.interp.head_model import HeadModel, OurModel
from ihlab.interp.prompt_pair import REPLACED, SWAPS, PromptPair, prompt_pair
from ihlab.interp.sources import opened_model
from ihlab.model.lens.padding import in_order, padded_right, real_first
from ihlab.model.lens.token_ids import token_rows
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from ihlab.training.run import Run
from tasks.config import ConfigError, choose, require, shown

Metric = Callable[[Float[Tensor, "batch pos d_vocab"]], Float[Tensor, " batch"]]

INPUTS = ("q", "k", "v")
"""The inputs of a head: its queries, keys and values."""

COLUMNS = {
    "head": ["layer", "head"],
    "input": ["layer", "head", "input"],
    "edge": ["from_layer", "from_head", "to_layer", "to_head", "input"],
    "position": ["layer", "head", "position"],
}
"""The kinds of nodes, and the columns that identify a node. An edge runs from a head to an input of
a later head.
"""

POSITIONS = ("key", "after", "last", "rest")
"""Positions of a head's output: the earlier token that was changed, the one after it, the scored
one, all others.
"""

SMALLEST_SWING = 1e-9

CHANGED = 1e-4
"""A clean output that is this many nats from the stored one counts as changed: rounding errors are
far below.
"""

SHUFFLES = 200
"""How often the answers are shuffled among the prompts, for the null distribution of the swing."""

DIFFERENCE = "logit-difference"

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module of torch keeps its hooks."""

Ends = tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]


@dataclass(frozen=True)
class Problem:
    """Prompts and a metric on which effects of a model's heads are measured.

    - `model`: the opened model;
    - `clean`, `corrupted`: tokens [batch, pos], with corresponding tokens at the same position;
    - `metric`: maps the logits of all prompts to one number per prompt.
    """

    model: HeadModel
    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    metric: Metric

    _ends: dict[int, Ends] = field(default_factory=dict, init=False, repr=False, compare=False)

    @own_settings()
    def measured(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        """Return the metric of each prompt. Raises `ConfigError` unless it is one finite number per
        prompt.
        """
        values = self.metric(self.model.differentiable_logits(tokens))
        shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        wanted = [len(self.clean)]
        require(
            shape == wanted,
            f"The metric returns {shape}, but must return one number per prompt: {wanted}.",
        )
        return require_finite(values)

    @property
    def ends(self) -> Ends:
        """The metric of each prompt, clean and corrupted. It is measured again once weights or
        prompts have changed.

        Raises `ConfigError` as `measured` does, and if the metric does not differ between clean and
        corrupted prompts.
        """
        state = self._state()
        if state not in self._ends:
            with torch.no_grad():
                ends = self.measured(self.clean), self.measured(self.corrupted)
            clean, corrupted = (end.double().mean().item() for end in ends)
            nats = min(abs(clean), abs(corrupted))
            require(
                getattr(self.metric, "name", None) != "kl" or nats < CHANGED,
                f"The output on clean prompts is {nats:.2g} nats from the one that the metric 'kl' compares with: the "
                "model has changed, so make the problem again.",
            )
            require(
                abs(clean - corrupted) > SMALLEST_SWING,
                f"The metric is {clean:.3g} on clean and on corrupted prompts: there is no effect to attribute.",
            )
            self._ends.clear()
            self._ends[state] = ends
        return self._ends[state]

    def _state(self) -> int:
        """Return a number that depends on weights, prompts and the number of hooks."""
        module, state = self.model.module, 0
        for tensor in (*module.parameters(), *module.buffers(), self.clean, self.corrupted):
            if not tensor.is_meta:
                state = crc32(
                    tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data, state
                )
        hooks = [len(getattr(part, table)) for part, table in product(module.modules(), HOOKS)]
        return crc32(str(hooks).encode(), state)

    @property
    def swing(self) -> float:
        """The mean metric of the clean prompts, minus that of the corrupted ones."""
        clean, corrupted = self.ends
        return (clean.double() - corrupted.double()).mean().item()

    @property
    def answered(self) -> bool:
        """Whether the swing says something about the answers: it is larger than every swing with
        shuffled answers.

        A shuffle scores each prompt by the answers of another prompt. The swing of an untrained
        model is no larger. For every named metric the logit difference decides, because wrong
        answers have large swings of log probability, too. Your own metric gets the logits of
        another prompt instead. True for one prompt, and for a metric that is the same function for
        all prompts.
        """
        if isinstance(self.metric, NamedMetric) and self.metric.name != DIFFERENCE:
            return replace(self, metric=replace(self.metric, name=DIFFERENCE)).answered
        n, generator = len(self.clean), torch.Generator().manual_seed(0)
        ends = self.ends
        if n == 1:
            return True
        swings = []
        with torch.no_grad(), own_settings():
            logits = list(map(self.model.differentiable_logits, (self.clean, self.corrupted)))
            for _ in range(SHUFFLES):
                circle = torch.randperm(n, generator=generator).to(self.clean.device)
                other = circle[circle.argsort() - 1]  # no prompt keeps its own answers
                clean, corrupted = map(self._shuffled(other), logits)
                if torch.allclose(clean, ends[0]) and torch.allclose(corrupted, ends[1]):
                    return True
                swings.append(abs((clean.double() - corrupted.double()).mean().item()))
        return abs(self.swing) > max(swings)

    def _shuffled(self, other: Int[Tensor, " batch"]) -> Metric:
        """Return the metric with the answers of other prompts."""
        if isinstance(self.metric, NamedMetric):
            return self.metric.shuffled(other)
        return lambda logits: self.metric(logits[other])[other.argsort()]

    @property
    def swapped(self) -> "Problem":
        """The problem with clean and corrupted prompts exchanged. Its effects have the opposite
        sign.
        """
        return replace(self, clean=self.corrupted, corrupted=self.clean)

    @property
    def transformer(self) -> Transformer:
        """The model, if it is one of ours. Raises `ConfigError` for a model of another library."""
        require(
            isinstance(self.model, OurModel),
            f"The model is a {self.model.name}, which has no hook points for this: use another method, or convert it "
            "(ihlab.model.conversion.from_llama, from_gpt2).",
        )
        return self.model.module  # type: ignore[return-value]

    def nodes(self, kind: str, layers: Sequence[int] | None = None) -> pd.DataFrame:
        """Return a table that names every node of a kind, one per row, in the order of all tables
        and tensors here.

        `layers`: only nodes of these layers, which keep their index among all nodes. Raises
        `ConfigError` for an unknown kind, for layers that the model does not have, and for edges in
        fewer than two layers.
        """
        n_layers, n_heads = self.model.n_layers, self.model.n_heads
        columns = COLUMNS[choose("nodes", kind, COLUMNS)]
        sizes: dict[str, Any] = {"layer": range(n_layers), "head": range(n_heads)}
        sizes |= {"input": INPUTS, "position": POSITIONS}
        values = [sizes[name.rpartition("_")[2]] for name in columns]
        table = pd.MultiIndex.from_product(values, names=columns).to_frame(index=False)
        if kind == "edge":
            require(
                n_layers >= 2,
                f"The model has {n_layers} layer, but an edge between heads needs at least 2.",
            )
            table = table[table["from_layer"] < table["to_layer"]].reset_index(drop=True)
        if layers is None:
            return table
        known = set(layers) <= set(range(n_layers)) and len(set(layers)) > (kind == "edge")
        least = "two layers" if kind == "edge" else "layers"
        require(
            known, f"layers is {shown(layers)}, but must have {least} from 0 to {n_layers - 1}."
        )
        return table[table.filter(like="layer").isin(layers).all(axis=1)]

    def position_masks(self) -> Bool[Tensor, "position batch pos"]:
        """Return, for each of `POSITIONS`, the mask of its positions in each prompt. Every position
        is in one mask.

        Raises `ConfigError` for prompts of your own, in which no position has a name.
        """
        if not isinstance(self.metric, NamedMetric):
            raise ConfigError(
                "nodes is 'position', but only the prompts of a task have named positions."
            )
        pair = self.metric.pair
        index = torch.full(self.clean.shape, POSITIONS.index("rest"))
        rows = torch.arange(len(index))
        index[rows, (pair.earlier + 1).clamp_max(index.shape[1] - 1)] = POSITIONS.index("after")
        index[rows, pair.earlier] = POSITIONS.index("key")
        index[rows, pair.position] = POSITIONS.index("last")
        numbers = torch.arange(len(POSITIONS))[:, None, None]
        return (index == numbers).to(self.clean.device)


CORRUPTIONS = (*SWAPS, *REPLACED, *NOISE)
"""What `problem` can change in the corrupted prompts."""


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
    metric: Metric | str | None = None,
    attention_mask: Any = None,
) -> Problem:
    """Return a problem: `size` prompts of a task with their corruptions, and a metric.

    `source` is a `Run`, a `Transformer`, a TransformerLens `TransformerBridge` or a Hugging Face
    causal LM. `task` defaults to the task that the model was trained on. `corrupt` is one of
    `CORRUPTIONS`: "key", "answer", "absent" or "resample" (see `prompt_pair`), or "noise-0.5",
    "noise-1" or "noise-3" (see `noisy`). `metric` is the name of one of `METRICS`, by default the
    logit difference of the two answers.

    Instead of a task, give your own `clean` and `corrupted` tokens [batch, pos] and a `metric` that
    maps logits [batch, pos, d_vocab] to one differentiable number per prompt. `attention_mask`
    [batch, pos] is 1 at tokens and 0 at padding, in both kinds of prompts. Padding moves to the
    end; the metric sees logits at the positions that you gave.

    Raises `ConfigError` without a task or tokens, for weights in half precision, for prompts of
    unequal length, for prompts that begin with padding and have no mask, for a metric that is not
    one finite number per prompt, and for prompts on which the metric does not differ.
    """
    if isinstance(source, Run) and task is None and clean is None:
        source.require_task()
    model = opened_model(source, "effects are measured by running a model")
    function = None if isinstance(metric, str) else metric
    custom = {"clean": clean, "corrupted": corrupted, "metric": function}
    present = [name for name in custom if custom[name] is not None]
    require(
        len(present) in (0, 3),
        f"Only {' and '.join(present)} is given, but clean, corrupted and metric are needed together.",
    )
    if function is None:
        task = getattr(model.module, "trained_on", None) if task is None else task
        require(
            task is not None,
            f"The task of the {model.name} is unknown: give a task, or clean and corrupted tokens and a metric.",
        )
        choose("corruption", corrupt, CORRUPTIONS)
        pair = prompt_pair(task, size, seed, "key" if corrupt in NOISE else corrupt)
        return pair_problem(model, pair, metric if isinstance(metric, str) else DIFFERENCE, corrupt)
    clean = model.on_device(token_rows(clean).long()).clone()
    corrupted = model.on_device(token_rows(corrupted).long()).clone()
    require(
        clean.shape == corrupted.shape,
        f"The corrupted prompts are {list(corrupted.shape)}, but the clean ones are {list(clean.shape)}: a token must "
        "have the same position in both.",
    )
    for tokens in (corrupted, clean):
        real = prompts_mask(model, tokens, attention_mask)
    if real is not None and not padded_right(real):
        order = real_first(real)
        clean, corrupted = in_order(clean, order, 1), in_order(corrupted, order, 1)
        function = _of_positions(function, order)
    return _checked(Problem(model, clean, corrupted, function))


def _of_positions(metric: Metric, order: Int[Tensor, "batch pos"]) -> Metric:
    """Return a metric that gets logits at the positions that the prompts had before `order` moved
    their padding to the end.
    """
    back = order.argsort(dim=1)

    def reordered(logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, " batch"]:
        return metric(in_order(logits, back, 1))

    return reordered


def pair_problem(
    source: Any, pair: PromptPair, metric: str = DIFFERENCE, corrupt: str = "key"
) -> Problem:
    """Return the problem of a pair of prompts with a metric of `METRICS`. Raises `ConfigError` as
    `problem` does.

    `corrupt` names the corruption of the pair. For one that adds noise (`NOISE`), give the pair of
    corruption "key".
    """
    model = opened_model(source, "effects are measured by running a model")
    choose("metric", metric, METRICS)
    clean, corrupted = model.on_device(pair.clean), model.on_device(pair.corrupted)
    if corrupt in NOISE:
        model, noise = noisy(model, pair, NOISE[corrupt])
        corrupted = noise.to(model.device)
    with torch.no_grad():
        logits = scored(model.differentiable_logits(clean), pair)
    return _checked(Problem(model, clean, corrupted, NamedMetric(metric, pair, logits)))


def _checked(problem: Problem) -> Problem:
    half = {x.dtype for x in problem.model.module.parameters()} & {torch.float16, torch.bfloat16}
    require(
        not half,
        f"The model has weights in {shown(half)}, whose rounding can exceed effects: load it in float32, or call "
        "model.float().",
    )
    _ = problem.ends
    return problem


def with_all_metrics(problems: Sequence[Problem]) -> Problem:
    """Return one problem whose metric is [metric, batch], of problems that differ only in their
    metric.
    """
    return replace(
        problems[0], metric=lambda logits: torch.stack([each.metric(logits) for each in problems])
    )


def require_finite(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the values of a metric. Raises `ConfigError` unless all are finite."""
    wrong = values.detach()[~values.detach().isfinite()]
    if len(wrong):
        raise ConfigError(
            f"The metric is {wrong[0].item()} on {len(wrong)} of {values.numel()} prompts, but must be finite on "
            "clean, corrupted and patched prompts."
        )
    return values


def over_prompts(effects: Float[Tensor, "prompt node"]) -> Float[np.ndarray, " node"]:
    """Return the mean effect of each node."""
    return effects.detach().double().mean(dim=0).cpu().numpy()


def table_of(
    problem: Problem,
    nodes: str,
    effects: Float[Tensor, "prompt node"],
    layers: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Return the table of a kind of nodes with their mean `effect` over prompts, and its `fraction`
    of the swing.
    """
    effect = over_prompts(effects)
    return problem.nodes(nodes, layers).assign(effect=effect, fraction=effect / problem.swing)


@contextmanager
def counted(problem: Problem) -> Iterator[dict[str, float]]:
    """Count forward and backward passes of models with logits over the vocabulary; a pass of all
    prompts counts 1.
    """
    passes = {"forward": 0.0, "backward": 0.0}
    depth = 0

    def count(name: str, share: float) -> None:
        passes[name] += share

    def before(module: nn.Module, args: Any) -> None:
        nonlocal depth
        depth += 1

    def after(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1
        logits = getattr(output, "logits", output)
        shape = logits.shape if isinstance(logits, Tensor) else torch.Size()
        if depth or shape[2:] != (problem.model.d_vocab,):
            return
        share = shape[:2].numel() / problem.clean.numel()
        count("forward", share)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: count("backward", share))

    with (
        register_module_forward_pre_hook(before),
        register_module_forward_hook(after, always_call=True),
    ):
        yield passes
