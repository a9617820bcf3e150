"""A whole training step of Figure 1a's models, against a hand-written model, Hugging Face's Llama
and vanilla.
"""

import itertools
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from paired import figure, ratio, timed
from workers import by_turns, flops, peak_mib, resident_mib

from ihlab.recipes.induction import DEPTHS, KV1, V2, figure1_run
from ihlab.training.config import RunConfig

OURS, PLAIN, LLAMA = "ours", "hand-written PyTorch", "Hugging Face's Llama"
EVERYWHERE = "ours, logits everywhere"
"""Our model with the same work as the Llama. `OURS`, as in training, computes logits only at scored
positions.
"""
SCALED = "ours, keys and values times a learned number"
"""The minimum cost of any change to keys and values: each is read and written once, forward and
backward.
"""
PLAIN_GOAL, LLAMA_GOAL, SHIFT_GOAL = 1.0, 0.95, 1.05
FLOOR_GOAL = 1.15
"""Against the floor: the same operations in one compiled graph without hooks or options."""
STARTS, ROUNDS, BATCHES = 3, 20, 8


@dataclass(frozen=True)
class Facts:
    """Facts that a process reports before it takes turns.

    - `loss`: loss of the first batch; `first`: seconds of the first step;
    - `memory`: MiB that model and step add to the process at its peak;
    - `flops`: FLOPs of a step's matrix products, 0 if compilation hides them.
    """

    loss: float
    first: float
    memory: float
    flops: int


@dataclass(frozen=True)
class Side:
    """The run and the model of one process; `members`: seeds that are stacked in one step, None:
    one run, not stacked.

    `fields` are fields of the run's model that it changes. A turn takes `steps` steps.
    """

    run: RunConfig
    model: str = OURS
    compiled: bool = True
    fields: dict[str, Any] = field(default_factory=dict)
    members: int | None = None
    steps: int = 5

    @property
    def config(self) -> RunConfig:
        return self.run.replace(model=self.run.model.replace(**self.fields), compile=self.compiled)


def measure(quick: bool = False) -> pd.DataFrame:
    """Return times and ratios of both models; when quick, few turns of the first."""
    return pd.DataFrame(
        [row for curve in [KV1, V2][: 1 if quick else None] for row in _case(curve, quick)]
    )


def _case(curve: str, quick: bool) -> list[dict[str, object]]:
    """Return the rows of one curve of Figure 1a."""
    run = figure1_run()
    run = run.replace(model=run.model.replace(**DEPTHS[curve]))
    shifted, vanilla = {"attention": "kv_shift"}, {"attention": "vanilla"}
    sides = {
        "KV shifting, compiled": Side(run, fields=shifted),
        "vanilla, compiled": Side(run, fields=vanilla),
        f"{SCALED}, compiled": Side(run, SCALED, fields=shifted),
        "KV shifting, eager": Side(run, fields=shifted, compiled=False),
        "vanilla, eager": Side(run, fields=vanilla, compiled=False),
        f"{PLAIN}, eager": Side(run, PLAIN, compiled=False),
    }
    if curve == V2:
        sides |= {f"{model}, compiled": Side(run, model) for model in (EVERYWHERE, LLAMA, PLAIN)}
        sides[f"{LLAMA}, eager"] = Side(run, LLAMA, compiled=False)
    seconds, facts = by_turns(prepare, sides, *((3, 2) if quick else (ROUNDS, STARTS)))
    _check_same_loss(sides, facts)
    task, model = run.task, run.model
    table = (
        f"A training step: {curve} (vocabulary {task.vocab_size}, length {task.length}, d_model {model.d_model}, "
        f"{model.n_heads} heads, batch {run.batch_size})"
    )
    rows = [
        figure(table, name, 1e3 * seconds[name], "ms", note=_note(facts[name], side))
        for name, side in sides.items()
    ]
    trained, layers = curve.split(", ")
    step = f"training step, {curve}"
    plain = seconds[f"{PLAIN}, eager"]
    for mode, goal in (("compiled", math.nan), ("eager", PLAIN_GOAL)):
        rows.append(
            ratio(
                table,
                f"{step}, {mode}",
                seconds[f"{trained}, {mode}"],
                plain,
                goal,
                f"{PLAIN}, eager",
            )
        )
    if curve == V2:
        same = seconds[f"{EVERYWHERE}, compiled"], seconds[f"{LLAMA}, compiled"]
        rows.append(
            ratio(
                table, f"{step}, the same work, compiled", *same, LLAMA_GOAL, f"{LLAMA}, compiled"
            )
        )
        same = seconds[f"{EVERYWHERE}, compiled"], seconds[f"{PLAIN}, compiled"]
        without_hooks = f"{PLAIN}, compiled"
        rows.append(
            ratio(table, f"{step}, logits everywhere, compiled", *same, FLOOR_GOAL, without_hooks)
        )
    base = seconds["vanilla, compiled"]
    floor = ratio(table, SCALED, seconds[f"{SCALED}, compiled"], base, against="vanilla")
    goal = max(SHIFT_GOAL, float(floor["median"]))  # type: ignore[arg-type]
    rows.append(
        ratio(
            table,
            f"training step, KV shifting, {layers}, compiled",
            seconds["KV shifting, compiled"],
            base,
            goal,
            "vanilla",
        )
    )
    eager = seconds["KV shifting, eager"], seconds["vanilla, eager"]
    return [*rows, floor, ratio(table, "KV shifting, eager", *eager, against="vanilla, eager")]


def _note(facts: Facts, side: Side) -> str:
    return f"{facts.memory:.0f} MiB" + (
        f"; first step {facts.first:.0f} s" if side.compiled else ""
    )


def _check_same_loss(sides: dict[str, Side], facts: dict[str, Facts]) -> None:
    """Check that all sides of one attention have the same loss: times of different computations do
    not compare.
    """
    losses: dict[str, dict[str, float]] = {}
    for name, side in sides.items():
        if side.model != SCALED:  # no other side computes its loss
            losses.setdefault(side.config.model.attention, {})[name] = facts[name].loss
    for same in losses.values():
        assert np.ptp(list(same.values())) < 1e-4, (
            f"the losses of the first batch are not the same: {same}"
        )


def prepare(side: Side) -> tuple[Facts, Callable[[], float]]:
    """Build a side. Return its `Facts`, and a function that returns the seconds of one step."""
    before = resident_mib()
    losses: list[float] = []
    step = our_step(side) if side.model in (OURS, SCALED) else _their_step(side)
    first = timed(lambda: losses.append(step()))()
    for _ in range(BATCHES):
        step()
    memory = peak_mib() - before
    turn = timed(lambda: [step() for _ in range(side.steps)])
    return Facts(
        losses[0], first, memory, 0 if side.compiled else flops(step)
    ), lambda: turn() / side.steps


def our_step(side: Side) -> Callable[[], float]:
    """Return a function that takes training's own step on the next of a few batches, and returns
    the mean loss.
    """
    training = our_training(side)
    batches = itertools.cycle([training.batches(i) for i in range(BATCHES)])

    def step() -> float:
        training.running_loss.zero_()
        training.train_step(next(batches))
        return training.running_loss.mean().item()

    return step


def our_training(side: Side) -> Any:
    """Return the training of a side's runs; nothing is stored."""
    import torch

    from ihlab.training.ensemble import seeds
    from ihlab.training.loop import Training
    from ihlab.training.run import Run

    with tempfile.TemporaryDirectory() as root:
        runs = [Run.create(config, root) for config in seeds(side.config, side.members or 1)]
        training = Training(runs, torch.device("cpu"), stacked=side.members is not None)
    if side.model == SCALED:
        for block in training.in_training.model.layers:
            for shift in (block.attn.key_shift, block.attn.value_shift):
                shift.forward = lambda x, *_, weight=shift.weight: x * weight[:, :1]
    return training


def _their_step(side: Side) -> Callable[[], float]:
    """Return the same for another model, with logits at every position and the training loop as one
    would write it.
    """
    import torch
    from plain_llama import PlainLlama
    from torch.nn import functional as F

    from ihlab.measure.batches import draw
    from ihlab.model.conversion import to_llama
    from ihlab.model.transformer import Transformer
    from tasks import IGNORE

    config = side.config
    drawn = [draw(config.task, config.seed, "train", i, config.batch_size) for i in range(BATCHES)]
    batches = itertools.cycle(
        [tuple(map(torch.as_tensor, (batch.inputs, batch.targets))) for batch in drawn]
    )
    ours = Transformer(config.model, seed=config.seed)
    convert: dict[str, Callable[..., torch.nn.Module]] = {
        PLAIN: PlainLlama,
        LLAMA: to_llama,
        EVERYWHERE: lambda x: x,
    }
    model = convert[side.model](ours).train()
    optimizer = torch.optim.AdamW(model.parameters(), config.lr, config.betas, fused=True)

    def summed_loss(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if side.model == PLAIN:
            return model(tokens, targets, IGNORE)
        logits = (
            model(tokens, use_cache=False).logits
            if side.model == LLAMA
            else model(tokens, return_type="logits")
        )
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )

    loss = torch.compile(summed_loss) if side.compiled else summed_loss

    def step() -> float:
        tokens, targets = next(batches)
        mean = loss(tokens, targets) / (targets != IGNORE).sum()
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return mean.item()

    return step
