"""Cost of a training step as one size grows: length, width, depth, vocabulary, or the members of an ensemble.

Measured time is compared with the counted FLOPs of the step's matrix products, and measured peak memory with
`memory_estimate`. The slope of log cost over log size, fitted over the whole range, is the exponent of the cost.
FLOPs leave out the overhead of each operation and the movement of data. So measured time starts flatter than counted
FLOPs, and becomes as steep only when matrix products dominate the step.
"""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import tyro
from cost_figure import draw_costs
from paired import figure, take_turns, timed
from tables import show
from workers import flops, peak_mib, resident_mib, workers

BASE = {"length": 128, "d_model": 128, "n_layers": 2, "vocab_size": 1024, "members": 1}
ROWS, N_HEADS, BATCHES = 16, 4, 2
AXES = {
    "length": (32, 64, 128, 256, 512),
    "d_model": (32, 64, 128, 256, 512),
    "n_layers": (1, 2, 4, 8, 16),
    "vocab_size": (1024, 2048, 4096, 8192, 16384),
    "members": (1, 2, 4, 8, 16),
}
QUICK = {name: values[:2] for name, values in AXES.items()}
ATTENTION = ("vanilla", "kv_shift")
STEM = Path(__file__).with_name("cost_curves")
TABLES = {
    "time": "Cost curves: the exponent of a training step's time",
    "memory": "Cost curves: the exponent of a training step's peak memory",
}


@dataclass(frozen=True)
class Point:
    """The base with one size changed. Only on the axis `members` are models stacked, even a single one."""

    axis: str
    value: int
    attention: str

    @property
    def sizes(self) -> dict[str, int]:
        return BASE | {self.axis: self.value}


@dataclass(frozen=True)
class Facts:
    """Facts of one step: counted FLOPs, the MiB that it adds to the process at its peak, and the estimated MiB."""

    flops: int
    memory: float
    estimate: float


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the slopes. Unless quick, write the points as CSV and the picture beside this file."""
    points, seconds = costs(quick)
    found = slopes(points, seconds)
    if not quick:
        points.to_csv(STEM.with_suffix(".csv"), index=False, float_format="%.6g")
        draw_costs(points, found, STEM)
    return as_figures(found)


def costs(quick: bool = False) -> tuple[pd.DataFrame, dict[Point, np.ndarray]]:
    """Return one row per point, and the seconds of each of its turns. The points of an axis take turns."""
    rows, seconds = [], {}
    for axis, values in (QUICK if quick else AXES).items():
        points = [Point(axis, value, attention) for value in values for attention in ATTENTION]
        with workers(_prepare, points) as (turns, facts):
            taken = take_turns(dict(zip(points, turns, strict=True)), rounds=3 if quick else 5)
        seconds |= taken
        rows += [_row(point, fact, taken[point]) for point, fact in zip(points, facts, strict=True)]
    return pd.DataFrame(rows), seconds


def _row(point: Point, facts: Facts, seconds: np.ndarray) -> dict[str, object]:
    low, middle, high = np.quantile(seconds, (0, 0.5, 1)) * 1e3
    return {
        "axis": point.axis,
        "value": point.value,
        "attention": point.attention,
        "ms": middle,
        "ms_min": low,
        "ms_max": high,
        "mib": facts.memory,
        "counted_gflop": facts.flops / 1e9,
        "counted_mib": facts.estimate,
    }


def slopes(points: pd.DataFrame, seconds: dict[Point, np.ndarray]) -> pd.DataFrame:
    """Return the measured slope, its range over turns, and the counted slope, per axis, attention and cost."""
    rows = []
    for (axis, attention), part in points.groupby(["axis", "attention"], sort=False):
        x = part["value"].to_numpy()
        turns = np.array([seconds[Point(axis, int(value), attention)] for value in x])
        by_turn = [slope(x, turn) for turn in turns.T]
        of = {"axis": axis, "attention": attention}
        time = {"measured": np.median(by_turn), "min": min(by_turn), "max": max(by_turn)}
        rows.append(of | {"cost": "time", **time, "counted": slope(x, part["counted_gflop"])})
        memory = slope(x, part["mib"])
        once = {"measured": memory, "min": memory, "max": memory}
        rows.append(of | {"cost": "memory", **once, "counted": slope(x, part["counted_mib"])})
    return pd.DataFrame(rows)


def base() -> str:
    """Return the base in words."""
    return ", ".join([*(f"{name} {value}" for name, value in BASE.items()), f"{N_HEADS} heads", f"batch {ROWS}"])


def slope(x: np.ndarray, y: np.ndarray | pd.Series) -> float:
    """Return the least-squares slope of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(np.asarray(y)), 1)[0])


def as_figures(found: pd.DataFrame) -> pd.DataFrame:
    """Return the slopes in the format of all benchmarks."""
    return pd.DataFrame(
        [
            figure(
                TABLES[row.cost],
                f"{row.axis}, {row.attention}",
                [row.min, row.measured, row.max],
                "exponent",
                note=f"counted: {row.counted:.2f}",
            )
            for row in found.sort_values("cost", ascending=False, kind="stable").itertuples()
        ]
    )


def _prepare(point: Point) -> tuple[Facts, Callable[[], float]]:
    """Build a point's training. Return its `Facts`, and a function that returns the seconds of one step."""
    _step(Point("d_model", 32, point.attention), rows=1)()  # load libraries first, so they do not count as memory
    before = resident_mib()
    step = _step(point)
    for _ in range(BATCHES + 1):
        step()
    memory = peak_mib() - before
    counted = flops(step)
    estimate = point.sizes["members"] * memory_estimate(_config(point)) / 2**20
    return Facts(counted, memory, estimate), timed(step)


def _config(point: Point, rows: int = ROWS):
    from ihlab.model.config import ModelConfig
    from ihlab.training.config import RunConfig
    from tasks import InductionTask

    sizes = point.sizes
    model = ModelConfig(
        n_layers=sizes["n_layers"],
        d_model=sizes["d_model"],
        n_heads=N_HEADS,
        d_vocab=sizes["vocab_size"],
        n_ctx=sizes["length"],
        attention=point.attention,
    )
    task = InductionTask(vocab_size=sizes["vocab_size"], length=sizes["length"])
    return RunConfig(task=task, model=model, batch_size=rows, eval_rows=1)


def memory_estimate(config) -> int:
    """Estimate the peak memory of a training step in bytes: 4 P + A + 2 max(a).

    P are the bytes of the parameters, A the bytes of the activations that one microbatch stores for backward, and
    max(a) those of the largest such tensor. A is read from a forward pass on fake tensors.
    """
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.autograd.graph import saved_tensors_hooks

    from ihlab.measure.gathered import each_tensor
    from ihlab.measure.loss import summed_loss
    from ihlab.model.transformer import Transformer
    from ihlab.training.loop import microbatches

    kept: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage()._cdata] = x  # the tensor too: the address of a freed storage is reused
        return x

    drawn = microbatches(config, 0)[0]
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = Transformer(config.model)
        batch = each_tensor(drawn, lambda x: torch.zeros(x.shape, dtype=torch.int64))
        with saved_tensors_hooks(keep, lambda x: x):
            summed_loss(model, *batch.tensors)
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    activations = [x.untyped_storage().nbytes() for number, x in kept.items() if number not in own]
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return 4 * parameters + sum(activations) + 2 * max(activations)


def _step(point: Point, rows: int = ROWS) -> Callable[[], None]:
    """Return a function that takes training's own step on the next of a few batches drawn before."""
    import torch

    from ihlab.training.ensemble import seeds
    from ihlab.training.loop import Training
    from ihlab.training.run import Run

    configs = seeds(_config(point, rows), point.sizes["members"])
    with tempfile.TemporaryDirectory() as root:  # the runs' folder; no results are stored
        runs = [Run.create(config, root) for config in configs]
        training = Training(runs, torch.device("cpu"), stacked=point.axis == "members")
    batches = itertools.cycle([training.batches(i) for i in range(BATCHES)])
    return lambda: training.train_step(next(batches))


def main(quick: bool = False) -> None:
    """Print the slopes, and write the CSV and the picture.

    Args:
        quick: Try the code with two points per axis and few turns; nothing is written.
    """
    show(measure(quick))


if __name__ == "__main__":
    tyro.cli(main)
