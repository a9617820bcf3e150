"""Sixteen seeds of one configuration: trained stacked as one model, against one run after another.

Both are timed eager and compiled. Compilation happens once, outside the turns.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from paired import Bar, figure, ratio, take_turns

MEMBERS, STEPS = 16, 20
MODES = ("", ", compiled")


@dataclass(frozen=True)
class Shape:
    """A toy model and its batches. Some shapes fit in a processor's cache and some do not."""

    vocab_size: int
    length: int
    d_model: int
    n_heads: int
    rows: int

    @property
    def title(self) -> str:
        return (
            f"{MEMBERS} members, {STEPS} steps, 1 layer of kv_shift (vocabulary {self.vocab_size}, "
            f"length {self.length}, d_model {self.d_model}, {self.n_heads} heads, batch {self.rows})"
        )


SHAPES = (
    Shape(64, 16, 8, n_heads=1, rows=16),
    Shape(64, 16, 16, n_heads=2, rows=32),
    Shape(128, 32, 32, n_heads=4, rows=64),
)


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of whole runs, including evaluations and files, and their ratio."""
    import torch

    torch.set_num_threads(1)
    return pd.DataFrame([row for shape in SHAPES[: 1 if quick else None] for row in _case(shape, 1 if quick else 5)])


def _case(shape: Shape, rounds: int) -> list[dict[str, object]]:
    """Return the figures of one shape."""
    from ihlab.training.ensemble import best_stack

    table = f"An ensemble: {shape.title}"
    config = _config(shape)
    losses: dict[str, np.ndarray] = {}
    stacks = {"stacked": MEMBERS, "one after another": 1}
    sides = {
        f"{how}{mode}": (config.replace(compile=bool(mode)), stack) for mode in MODES for how, stack in stacks.items()
    }
    seconds = take_turns({name: _turn(*side, losses, name) for name, side in sides.items()}, rounds)
    for name, of_side in losses.items():
        apart = np.abs(of_side - losses["one after another"]).max()
        assert apart < 1e-4, f"Losses of the members {name} and of eager runs alone are {apart:.2g} apart"
    stack = min(MEMBERS, best_stack(config, MEMBERS, _cpu()))
    rows = [figure(table, name, times, "s") for name, times in seconds.items()]
    bar = Bar(1.0) if stack > 1 else None  # None if members are not stacked by default
    note = f"{stack} to a stack unless asked for otherwise"
    for mode in MODES:
        measured = f"stacked / one after another{mode}"
        rows.append(ratio(table, measured, *(seconds[how + mode] for how in stacks), bar) | {"note": note})
    return [*rows, ratio(table, "stacked, compiled / stacked", seconds["stacked, compiled"], seconds["stacked"])]


def _turn(config, stack: int, losses: dict[str, np.ndarray], name: str) -> Callable[[], float]:
    """Train all members in a new folder, and store their last losses, which are the same in every turn."""
    from paired import timed

    from ihlab.training.ensemble import seeds
    from ihlab.training.train import train_ensemble

    def seconds() -> float:
        with tempfile.TemporaryDirectory() as root:
            runs = []
            taken = timed(lambda: runs.extend(train_ensemble(seeds(config, MEMBERS), root, "cpu", _silent, stack)))()
            losses[name] = np.array([run.metrics["eval_loss"].iloc[-1] for run in runs])
        return taken

    return seconds


def _silent(*_: object) -> None:
    """Show no progress: drawing a bar is not part of training."""


def _config(shape: Shape):
    from ihlab.model.config import ModelConfig
    from ihlab.training.config import RunConfig
    from tasks import InductionTask

    model = ModelConfig(
        n_layers=1,
        d_model=shape.d_model,
        n_heads=shape.n_heads,
        d_vocab=shape.vocab_size,
        n_ctx=shape.length,
        attention="kv_shift",
    )
    task = InductionTask(vocab_size=shape.vocab_size, length=shape.length)
    return RunConfig(
        task=task, model=model, batch_size=shape.rows, steps=STEPS, eval_every=STEPS, eval_rows=16, checkpoints=2
    )


def _cpu():
    import torch

    return torch.device("cpu")
