"""Seeds of one config: trained stacked as one model, one after another, and in two processes."""

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from paired import figure, ratio, take_turns, timed
from workers import by_turns, processes

STACKED, ALONE, TWO = "16 seeds stacked", "one run after another", "two processes"
GOAL = 0.75
STEPS = 20
"""Steps of a run where widths and numbers of members are compared."""
WIDTHS = (8, 32, 128)
MEMBERS = (4, 16)


@dataclass(frozen=True)
class Side:
    """A process: how many members it stacks, the steps of a run, and the members."""

    stack: int
    steps: int
    members: int = 16
    d_model: int = 8
    compiled: bool = False


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of whole runs, including evaluations and files, and their ratios."""
    steps = 20 if quick else 100
    sides = {
        STACKED: Side(16, steps, compiled=True),
        ALONE: Side(1, steps, compiled=True),
    }
    seconds, losses = by_turns(_prepare, sides, rounds=1, starts=1 if quick else 3)
    apart = np.abs(losses[STACKED] - losses[ALONE]).max()
    assert apart < 1e-3, f"the losses of members stacked and alone are {apart:.2g} apart"
    table = f"Sixteen seeds of {steps} steps: one layer of KV shifting, d_model 8, compiled"
    rows = [figure(table, name, times, "s") for name, times in seconds.items()]
    rows.append(ratio(table, STACKED, seconds[STACKED], seconds[ALONE], GOAL, ALONE))
    cases = product(WIDTHS[:1] if quick else WIDTHS, MEMBERS[:1] if quick else MEMBERS)
    for d_model, members in cases:
        rows += _ways(d_model, members)
    return pd.DataFrame(rows)


def _ways(d_model: int, members: int) -> list[dict[str, object]]:
    """Compare a stack with runs one after another, and with half of them in each of two processes;
    eager.
    """
    half = Side(1, STEPS, members // 2, d_model)
    whole = [Side(stack, STEPS, members, d_model) for stack in (members, 1)]
    with (
        tempfile.TemporaryDirectory() as cache,
        processes(_prepare, [*whole, half, half], Path(cache)) as ((stacked, alone, *halves), _),
    ):
        ways = {"stacked": stacked, ALONE: alone, TWO: partial(_at_once, halves)}
        seconds = take_turns(ways, 2)
    table = f"Where stacking pays: seeds of {STEPS} steps, one layer of KV shifting, eager"
    name = f"{members} seeds stacked, d_model {d_model}"
    stack = seconds["stacked"]
    return [ratio(table, name, stack, seconds[way], against=way) for way in (ALONE, TWO)]


def _at_once(turns: Sequence[Callable[[], float]]) -> float:
    """Return the seconds of the slowest of turns that are taken at the same time."""
    with ThreadPoolExecutor(len(turns)) as pool:
        return max(pool.map(lambda turn: turn(), turns))


def _prepare(side: Side) -> tuple[np.ndarray, Callable[[], float]]:
    """Train all members once, which compiles. Return their losses, and a function that returns the
    seconds.
    """
    from ihlab.recipes.induction import figure1_run
    from ihlab.training.ensemble import seeds
    from ihlab.training.train import train_ensemble

    run = figure1_run()
    run = run.replace(
        model=run.model.replace(d_model=side.d_model, n_heads=1, attention="kv_shift"),
        steps=side.steps,
        eval_every=side.steps,
        eval_growth=0.0,
        checkpoints=2,
        compile=side.compiled,
    )

    def losses() -> np.ndarray:
        with tempfile.TemporaryDirectory() as root:
            runs = train_ensemble(
                seeds(run, side.members), root, "cpu", lambda *_: None, side.stack
            )
            return np.array([trained.metrics["eval_loss"].iloc[-1] for trained in runs])

    return losses(), timed(losses)
