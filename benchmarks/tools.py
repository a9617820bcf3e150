"""Cost of the tools as one size grows: proofs, attacks, exact effects, and the bench of methods."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from cost_curves import PROJECTED, slope
from cost_figure import draw_growth
from paired import figure, timed
from workers import by_turns

TABLE = "Cost of the tools: exponents of their time"
PICTURE = Path(__file__).with_name("tools.svg")
TURNS = 3
PATIENCE = 600.0
"""The seconds that somebody waits for a result. Where a tool takes as long, the last rows project."""

Turn = Callable[[], object]


@dataclass(frozen=True)
class Growth:
    """A tool, what of its input grows, and the sizes of that."""

    tool: str
    of: str
    sizes: tuple[int, ...]
    prepare: Callable[[int], Turn]

    @property
    def name(self) -> str:
        return f"{self.tool}, {self.of}"


@dataclass(frozen=True)
class Point:
    """One size of `GROWTHS[name]`."""

    name: str
    value: int


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the exponents and limits. Unless quick, draw the picture beside this file."""
    points = pd.concat([costs(growth, quick) for growth in GROWTHS.values()], ignore_index=True)
    exponents = {}
    rows = []
    for name, part in points.groupby("name", sort=False):
        last = part.tail(3)  # the constant part of a small size is no law
        by_turn = [slope(last["value"].to_numpy(), turn) for turn in np.stack(last["seconds"]).T]
        exponents[name] = float(np.median(by_turn))
        least, most = part.iloc[[0, -1]].itertuples()
        note = f"{least.median:.2g} s at {least.value}, {most.median:.2g} s at {most.value}"
        rows.append(figure(TABLE, str(name), by_turn, "exponent", note=note))
        reached = most.value * (PATIENCE / most.median) ** (1 / exponents[name])
        limit = f"{name}: where it takes {PATIENCE / 60:.0f} minutes"
        if reached <= 8 * most.value:  # no law is known farther out
            rows.append(figure(TABLE, limit, [reached], "", note=PROJECTED))
    if not quick:
        draw_growth(points, exponents, PICTURE)
    return pd.DataFrame(rows)


def costs(growth: Growth, quick: bool) -> pd.DataFrame:
    """Return one row per size, with the seconds of each turn and their median."""
    sizes = growth.sizes[:2] if quick else growth.sizes
    sides = {str(value): Point(growth.name, value) for value in sizes}
    taken, _ = by_turns(_prepare, sides, 1 if quick else TURNS)
    seconds = [taken[str(value)][0] for value in sizes]
    medians = [float(np.median(turns)) for turns in seconds]
    return pd.DataFrame(
        {"name": growth.name, "value": sizes, "seconds": seconds, "median": medians}
    )


def _prepare(point: Point) -> tuple[None, Callable[[], float]]:
    return None, timed(GROWTHS[point.name].prepare(point.value))


def _narrow(vocab_size: int = 16, length: int = 16) -> object:
    """Return the model of the page on proofs, with a vocabulary and a length: one head of width 8."""
    from ihlab.model.config import ModelConfig
    from ihlab.training.config import RunConfig
    from ihlab.training.train import train
    from tasks import InductionTask

    task = InductionTask(vocab_size=vocab_size, length=length, min_token=0)
    model = ModelConfig(
        n_layers=1,
        d_model=8,
        n_heads=1,
        d_vocab=vocab_size,
        n_ctx=length,
        attention="kv_shift",
        positional="none",
        mlp="none",
    )
    config = RunConfig(task=task, model=model, steps=500, lr=0.01, batch_size=32, warmup=20)
    with tempfile.TemporaryDirectory() as root:
        return train(config, root, "cpu", report=lambda *_: None).model()


def _certify_vocabulary(value: int) -> Turn:
    from ihlab.certify import certify

    model = _narrow(vocab_size=value)
    return lambda: certify(model, margins=True)  # by default only up to 32 ids


def _certify_length(value: int) -> Turn:
    from ihlab.certify import certify

    model = _narrow()
    return lambda: certify(model, lengths=range(2, value + 1))


def _attack_length(value: int) -> Turn:
    from ihlab.certify import attack

    model = _narrow(vocab_size=64, length=64)
    return lambda: attack(model, length=value)


def _exact_heads(value: int) -> Turn:
    from ihlab.attribution.problems import problem
    from ihlab.attribution.truth import exact
    from ihlab.model.config import ModelConfig
    from ihlab.model.transformer import Transformer
    from tasks import InductionTask

    model = ModelConfig(n_layers=2, d_model=8 * value, n_heads=value, d_vocab=64, n_ctx=32)
    one = problem(Transformer(model), InductionTask(vocab_size=64, length=32))
    return lambda: exact(one)


def _bench_members(value: int) -> Turn:
    from ihlab.suite.bench import run_bench, settings

    members = settings(quick=True)["member"].unique()[:value]
    table = settings(quick=True, members=members)
    return lambda: run_bench({"eap-ig": None}, table)


_ALL = (
    Growth("`certify`, 16 tokens", "ids", (16, 24, 32, 48), _certify_vocabulary),
    Growth("`certify`, 16 ids", "tokens", (16, 32, 64, 128, 256), _certify_length),
    Growth("`attack`, 64 ids", "tokens", (8, 16, 32, 64), _attack_length),
    Growth(
        "`exact`, two layers of width 8 h", "heads h of a layer", (2, 4, 8, 16, 32), _exact_heads
    ),
    Growth("`bench`, one method, quick", "members", (1, 2, 4, 7), _bench_members),
)
GROWTHS = {growth.name: growth for growth in _ALL}
