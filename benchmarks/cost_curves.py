"""Cost of a training step as one size grows: length, width, layers, vocabulary, batch, seeds; and
of whole runs.

Measured time is compared with the counted FLOPs of the step's matrix products, and measured peak
memory with `memory_estimate`. The slope of log cost over log size, fitted over the whole range, is
the exponent of the cost. FLOPs leave out the overhead of each operation and the movement of data.
So measured time starts flatter than counted FLOPs, and becomes as steep only when matrix products
dominate the step.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from cost_figure import draw_costs
from paired import figure, timed
from train_step import Side, our_step
from workers import by_turns, flops, peak_mib, resident_mib

from ihlab.model.config import ModelConfig
from ihlab.training.config import RunConfig
from tasks import InductionTask

sys.path.append(str(Path(__file__).parents[1]))
from figures.figure1.study import PAPER

BASE = {"length": 128, "d_model": 128, "n_layers": 2, "vocab_size": 1024, "batch_size": 16}
N_HEADS = 4
AXES = {
    "length": (32, 64, 128, 256, 512),
    "d_model": (32, 64, 128, 256, 512),
    "n_layers": (1, 2, 4, 8, 16),
    "vocab_size": (1024, 2048, 4096, 8192, 16384),
    "batch_size": (4, 8, 16, 32, 64),
    "members": (1, 2, 4, 8, 16),
    "runs": (1, 2, 4, 8),
}
NAMES = {
    "length": "length",
    "d_model": "width (d_model)",
    "n_layers": "layers",
    "vocab_size": "vocabulary",
    "batch_size": "batch",
    "members": "seeds, stacked",
    "runs": "runs, one after another",
}
RUN_STEPS = 4
"""Steps of each run on the axis `runs`, whose turn is whole runs: folder, evaluations, checkpoints.
"""
STEM = Path(__file__).with_name("cost_curves")
TABLE = "Cost curves: exponents of a training step's time and memory"
PROJECTED = "projected, not measured"


@dataclass(frozen=True)
class Point:
    """The base with one size changed. Only on the axis `members` are models stacked, even a single
    one.
    """

    axis: str
    value: int

    @property
    def config(self) -> RunConfig:
        sizes = BASE | {self.axis: self.value}
        task = InductionTask(vocab_size=sizes["vocab_size"], length=sizes["length"])
        model = ModelConfig(
            n_layers=sizes["n_layers"],
            d_model=sizes["d_model"],
            n_heads=N_HEADS,
            d_vocab=sizes["vocab_size"],
            n_ctx=sizes["length"],
            attention="kv_shift",
        )
        return RunConfig(
            task=task, model=model, batch_size=sizes["batch_size"], steps=RUN_STEPS, eval_rows=1
        )


@dataclass(frozen=True)
class Facts:
    """Facts of one step: counted FLOPs, the MiB that it adds to the process at its peak, and the
    estimated MiB.
    """

    flops: int
    memory: float
    estimate: float


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the slopes and the limits. Unless quick, write the points as CSV and the picture
    beside this file.
    """
    points, seconds = costs(
        {name: values[:2] for name, values in AXES.items()} if quick else AXES, 1 if quick else 5
    )
    found = slopes(points, seconds)
    if not quick:
        points.to_csv(STEM.with_suffix(".csv"), index=False, float_format="%.6g")
        draw_costs(points, found, NAMES, STEM.with_suffix(".svg"))
    rows = [
        figure(
            TABLE,
            f"{row.cost} over {NAMES[row.axis]}",
            [row.min, row.measured, row.max],
            "exponent",
            note=f"counted: {row.counted:z.2f}",
        )
        for row in found.itertuples()
    ]
    return pd.DataFrame([*rows, *limits(points)])


def base() -> str:
    """Return the base in words."""
    return ", ".join(
        [*(f"{NAMES[name]} {value}" for name, value in BASE.items()), f"{N_HEADS} heads"]
    )


def costs(
    axes: dict[str, tuple[int, ...]], rounds: int
) -> tuple[pd.DataFrame, dict[Point, np.ndarray]]:
    """Return one row per point, and the seconds of each of its turns. The points of an axis take
    turns.
    """
    rows, seconds = [], {}
    for axis, values in axes.items():
        points = {str(value): Point(axis, value) for value in values}
        taken, facts = by_turns(_prepare, points, rounds)
        for name, point in points.items():
            seconds[point] = taken[name][0]
            low, middle, high = np.quantile(seconds[point], (0, 0.5, 1)) * 1e3
            fact = facts[name]
            rows.append(
                {
                    "axis": axis,
                    "value": point.value,
                    "ms": middle,
                    "ms_min": low,
                    "ms_max": high,
                    "mib": fact.memory,
                    "counted_gflop": fact.flops / 1e9,
                    "counted_mib": fact.estimate,
                }
            )
    return pd.DataFrame(rows), seconds


def slopes(points: pd.DataFrame, seconds: dict[Point, np.ndarray]) -> pd.DataFrame:
    """Return the measured slope, its range over turns, and the counted slope, per axis and cost."""
    rows = []
    for axis, part in points.groupby("axis", sort=False):
        x = part["value"].to_numpy()
        by_turn = [
            slope(x, turn) for turn in np.array([seconds[Point(axis, int(value))] for value in x]).T
        ]
        time = {"measured": np.median(by_turn), "min": min(by_turn), "max": max(by_turn)}
        rows.append(
            {"axis": axis, "cost": "time"} | time | {"counted": slope(x, part["counted_gflop"])}
        )
        memory = slope(x, part["mib"])
        once = {"measured": memory, "min": memory, "max": memory}
        rows.append(
            {"axis": axis, "cost": "memory"} | once | {"counted": slope(x, part["counted_mib"])}
        )
    return pd.DataFrame(rows)


def slope(x: np.ndarray, y: np.ndarray | pd.Series) -> float:
    """Return the least-squares slope of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(np.asarray(y)), 1)[0])


def limits(points: pd.DataFrame) -> list[dict[str, object]]:
    """Return where 2,000 steps take an hour, projected from the two largest points, and what the
    paper's run takes.
    """
    base = points[(points["axis"] == "n_layers") & (points["value"] == BASE["n_layers"])]
    rows = [figure(TABLE, "2,000 steps at the base", 2 * base["ms"].to_numpy(), "s")]
    for axis in ("length", "d_model", "n_layers", "batch_size"):
        last = points[points["axis"] == axis].tail(2)
        grows = slope(last["value"].to_numpy(), last["ms"])
        value, ms = last[["value", "ms"]].iloc[-1]
        reached = value * (3600 / (2 * ms)) ** (1 / grows)
        rows.append(
            figure(
                TABLE,
                f"{NAMES[axis]} at which 2,000 steps take an hour",
                [reached],
                "",
                note=PROJECTED,
            )
        )
    widest = points[points["axis"] == "d_model"].iloc[-1]
    paper = PAPER
    one = our_step(
        Side(paper.replace(batch_size=1, accumulate=1, precision="fp32"), compiled=False)
    )
    gflop = flops(one) / 1e9 * paper.batch_size * paper.steps
    days = gflop / widest["counted_gflop"] * widest["ms"] / 1e3 / 86400
    rows.append(
        figure(TABLE, "one run of Figure 1a at the paper's scale", [days], "days", note=PROJECTED)
    )
    return rows


def _prepare(point: Point) -> tuple[Facts, Callable[[], float]]:
    """Build a point's training. Return its `Facts`, and a function that returns the seconds of one
    step.
    """
    _step(Point("d_model", 32))()  # load libraries first, so they do not count as memory
    before = resident_mib()
    step = _step(point)
    for _ in range(3):
        step()
    memory = peak_mib() - before
    members = point.value if point.axis == "members" else 1
    estimate = members * memory_estimate(point.config) / 2**20
    return Facts(flops(step), memory, estimate), timed(step)


def _step(point: Point) -> Callable[[], object]:
    """Return a function that takes training's own step, or for the axis `runs` trains whole runs."""
    if point.axis != "runs":
        members = point.value if point.axis == "members" else None
        return our_step(Side(point.config, compiled=False, members=members))

    from ihlab.training.ensemble import seeds
    from ihlab.training.train import train_ensemble

    def runs() -> None:
        with tempfile.TemporaryDirectory() as root:
            train_ensemble(seeds(point.config, point.value), root, "cpu", lambda *_: None, 1)

    return runs


def memory_estimate(config: RunConfig) -> int:
    """Estimate the peak memory of a training step in bytes: 4 P + A + 2 max(a).

    P are the bytes of the parameters, A the bytes of the activations that one microbatch stores for
    backward, and max(a) those of the largest such tensor. A is read from a forward pass on fake
    tensors.
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
        kept[x.untyped_storage()._cdata] = (
            x  # the tensor too: the address of a freed storage is reused
        )
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
