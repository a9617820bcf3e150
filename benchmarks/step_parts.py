"""What a training step of Figure 1a's models consists of, eager and compiled."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
from paired import figure
from train_step import Side, our_training
from workers import by_turns

from ihlab.recipes.induction import DEPTHS, KV1, V2, figure1_run

TABLE = "The parts of a training step: milliseconds on one core"
PARTS = ("draw the batch", "forward and loss", "backward", "clip and AdamW", "Python between")
STEPS = 100


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the milliseconds of each part, for one layer with the shift and two vanilla ones."""
    rows = []
    for curve in [KV1, V2][: 1 if quick else None]:
        run = figure1_run()
        run = run.replace(model=run.model.replace(**DEPTHS[curve]))
        modes = {"eager": Side(run, compiled=False), "compiled": Side(run)}
        _, parts = by_turns(_prepare, modes, rounds=1)
        for mode in modes:
            for part, samples in zip(PARTS, parts[mode].T, strict=True):
                rows.append(figure(TABLE, f"{curve}, {mode}: {part}", samples, "ms"))
    return pd.DataFrame(rows)


def _prepare(side: Side) -> tuple[np.ndarray, Callable[[], float]]:
    """Return the milliseconds of the parts of each of `STEPS` steps [step, part], and no turn."""
    import torch

    training = our_training(side)
    spent: dict[str, float] = {}

    def measured(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                spent[part] = spent.get(part, 0.0) + time.perf_counter() - started

        return called

    draw, forward, backward, optimiser, _ = PARTS
    batches = measured(draw, training.batches)
    inside = training.in_training
    inside.summed_losses = measured(forward, inside.summed_losses)
    inside.clip = measured(optimiser, inside.clip)
    inside.take_step = measured(optimiser, inside.take_step)
    training.optimizer.zero_grad = measured(optimiser, training.optimizer.zero_grad)
    torch.Tensor.backward = measured(backward, torch.Tensor.backward)
    steps = []
    for number in range(10 + STEPS):  # the first ones compile and warm up
        spent.clear()
        started = time.perf_counter()
        training.train_step(batches(number))
        whole = time.perf_counter() - started
        known = [spent[part] for part in PARTS[:-1]]
        steps.append([*known, whole - sum(known)])
    return 1e3 * np.array(steps[10:]), lambda: 0.0
