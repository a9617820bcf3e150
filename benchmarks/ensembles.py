"""Sixteen seeds of Figure 1b's narrowest model: trained stacked as one model, against one run after
another.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from paired import figure, ratio, timed
from workers import by_turns

STACKED, ALONE = "16 seeds stacked", "one run after another"
GOAL = 0.75


@dataclass(frozen=True)
class Side:
    """A process: the number of members of a stack, and the number of steps of every run."""

    stack: int
    steps: int


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of whole runs, including evaluations and files, and their ratio."""
    steps = 20 if quick else 100
    sides = {STACKED: Side(16, steps), ALONE: Side(1, steps)}
    seconds, losses = by_turns(_prepare, sides, rounds=1, starts=1 if quick else 3)
    apart = np.abs(losses[STACKED] - losses[ALONE]).max()
    assert apart < 1e-3, f"the losses of members stacked and alone are {apart:.2g} apart"
    table = f"Sixteen seeds of {steps} steps: one layer of KV shifting, d_model 8, compiled"
    rows = [figure(table, name, times, "s") for name, times in seconds.items()]
    return pd.DataFrame(
        [*rows, ratio(table, STACKED, seconds[STACKED], seconds[ALONE], GOAL, ALONE)]
    )


def _prepare(side: Side) -> tuple[np.ndarray, Callable[[], float]]:
    """Train all members once, which compiles. Return their losses, and a function that returns the
    seconds.
    """
    from ihlab.recipes.induction import figure1_run
    from ihlab.training.ensemble import seeds
    from ihlab.training.train import train_ensemble

    run = figure1_run()
    model = run.model.replace(d_model=8, n_heads=1, attention="kv_shift")
    run = run.replace(
        model=model, steps=side.steps, eval_every=side.steps, eval_growth=0.0, checkpoints=2
    )

    def losses() -> np.ndarray:
        with tempfile.TemporaryDirectory() as root:
            runs = train_ensemble(seeds(run, 16), root, "cpu", lambda *_: None, side.stack)
            return np.array([trained.metrics["eval_loss"].iloc[-1] for trained in runs])

    return losses(), timed(losses)
