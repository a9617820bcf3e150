"""Which initial (alpha1, beta1) find induction, and how fast: many starts of one head, over Theorem 3.4's field.

The theorem's model has nothing but the four scalars to learn; a trained one has weights too, and can go on where the
four alone would not. One layer with one key/value head is trained from every point of a grid, with
alpha2 = 1 - alpha1 and beta2 = 1 - beta1 at the start, all four free afterwards, and several seeds. The grid is the
square of Figure 2, from which the paper draws its heads, and half its side around it, where the theorem's
flow has a second basin (`ihlab.theory.landscape.basins`).

A run *finds* induction if its accuracy over all answers is at least 0.9 at the end; its steps are those to the
first evaluation that is. The claims and their thresholds were set after a trial of eight starts and before the map.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.experiment import Planned, Scale
from ihlab.model.config import ModelConfig
from ihlab.plots.basin import end_map, flow_times, start_map
from ihlab.plots.style import new_figure, printed
from ihlab.training.config import RunConfig
from tasks import InductionTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

LOW, HIGH = -0.5, 1.5
"""alpha1 and beta1 at the start: the square [0, 1] and half its side around it."""

SIDE = {"smoke": 2, "laptop": 10, "gpu": 20, "paper": 20}
"""Starts a side, at the centres of as many cells."""

SEEDS = {"smoke": 2, "laptop": 5, "gpu": 5, "paper": 5}
FIELD = {"smoke": 9, "laptop": 31, "gpu": 31, "paper": 31}
"""Points a side of the field that are stored and drawn."""

CURVE = "KV shifting, 1 layer, 1 head"
FOUND = 0.9
"""Accuracy from which induction is found."""

MOST = 0.9
"""The share from which "gradient descent leads there" is true."""

FLOW_STEP, FLOW_TIME = 0.25, 1000.0
INDUCTION, NEGATIVE, UNDECIDED = "induction", "negative", "undecided"


class BasinMap:
    """Steps to induction over the plane of starts, where the runs end, and the theorem's own times beside them."""

    name = "basin_map"

    def runs(self, scale: Scale) -> list[Planned]:
        """A run for each start and seed; those of one stack train together."""
        run = base(scale)
        return [
            Planned(
                CURVE, run.but(name=f"basin-map-{a:+.2f}{b:+.2f}-{seed}", seed=seed, init_shift=(a, b)), stacked=True
            )
            for seed in range(SEEDS[scale])
            for b in starts(scale)
            for a in starts(scale)
        ]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """One table of two kinds of row: runs, and points of the exact form's field at the task's length.

        - alpha1, beta1: at a run's start, or a point's;
        - steps: to the first evaluation with an accuracy of `FOUND` (inf: none), and `accuracy` at the end;
        - own_key, own_value: |alpha1| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|) at the end;
        - basin, flow_time: where the flow goes from there and how long it takes, as of `flow`.
        """
        n_tokens = base(scale).task.length
        table = pd.DataFrame([_row(run) for _, run in trained])
        table = pd.concat([table, flow(table["alpha1"].to_numpy(), table["beta1"].to_numpy(), n_tokens)], axis=1)
        return pd.concat([table.assign(kind="run"), _field(scale, n_tokens)], ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Whether descent leads to (0, 1) and faster from nearby; whether the theorem's flow knows more than that."""
        runs = data[data["kind"] == "run"]
        square = runs[runs["alpha1"].between(0, 1) & runs["beta1"].between(0, 1)]
        found = runs[runs["accuracy"] >= FOUND]
        corner = (found["own_key"] < 0.5) & (found["own_value"] > 0.5)
        claim = partial(Claim, seeds=int(runs["seed"].nunique()), threshold=0.0, right_side="above")
        ours = "not the paper's: our question, of the exact form of Theorem 3.4"
        return [
            claim(
                source="section 3.2",
                sentence="Gradient descent leads to induction heads.",
                measure=f"share of the starts in the square whose accuracy ends at {FOUND} or more",
                estimate=_share(square["accuracy"] >= FOUND, square["seed"]),
                threshold=MOST,
            ),
            claim(
                source="section 3.2",
                sentence="Induction heads means (0, 1).",
                measure="share of the runs with induction, of all starts, that end with |alpha2| > |alpha1| and "
                "|beta1| > |beta2|",
                estimate=_share(corner, found["seed"]),
                threshold=MOST,
            ),
            claim(
                source="section 3.2",
                sentence="Heads that start closer to (0, 1) learn induction heads more easily.",
                measure="rank correlation of the distance to (0, 1) and the steps, starts in the square",
                estimate=_over_seeds(square, lambda part: _rank_correlation(_distance(part), part["steps"])),
            ),
            claim(
                source=ours,
                sentence="The flow of the four scalars alone says more about the steps than the distance does.",
                measure="rank correlation of the flow's time to induction and the steps, less the size of that "
                "of the distance, all starts",
                estimate=_over_seeds(runs, _gain),
            ),
            claim(
                source=ours,
                sentence="Starts that the flow leads to its other solution find induction less often.",
                measure="share with induction among the starts in the induction basin less that in the negative one",
                estimate=_over_seeds(runs, _basin_difference),
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """The map of starts over the field, where the runs end, and the flow's times against the steps."""
        runs, field = data[data["kind"] == "run"], data[data["kind"] == "field"]
        last, seeds = float(base(scale).steps), runs["seed"].nunique()
        figure = new_figure(15.0, 5.4)
        left, middle, right = figure.subplots(1, 3)
        median = runs.groupby(["alpha1", "beta1"])["steps"].median().reset_index()
        shades = start_map(left, median, field, last)
        left.set_title(f"median of {seeds} seeds; cross: never within {last:.0f} steps", fontsize=10)
        end_map(middle, runs, last)
        middle.set_title(f"{len(runs)} runs; star: the induction corner", fontsize=10)
        flow_times(right, runs, last)
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
        figure.colorbar(shades, ax=[left, middle], label=f"steps to an accuracy of {FOUND}", shrink=0.8)
        figure.suptitle(f"Which starts find induction, over the flow of Theorem 3.4 ({scale} scale)")
        return figure


def base(scale: Scale) -> RunConfig:
    """The run of every start: one layer with one head, small enough that a laptop trains hundreds."""
    length = 16 if scale == "smoke" else 32
    task = InductionTask(vocab_size=64, length=length)
    model = ModelConfig(n_layers=1, d_model=16, n_heads=1, d_vocab=64, n_ctx=length, attention="kv_shift")
    run = RunConfig(
        task=task, model=model, steps=600, batch_size=16, lr=5e-3, warmup=20, eval_rows=128, checkpoints=2
    )  # fmt: skip
    return run.but(steps=20, warmup=5, eval_rows=32) if scale == "smoke" else run


def starts(scale: Scale) -> list[float]:
    """The values of alpha1, and of beta1, from which the runs start."""
    side = SIDE[scale]
    return [round(LOW + (HIGH - LOW) * (i + 0.5) / side, 6) for i in range(side)]


def flow(alpha1: np.ndarray, beta1: np.ndarray, n_tokens: int) -> pd.DataFrame:
    """Where the free flow of the exact form leads from each start, and when that is decided, as `basins` has it.

    Columns `basin` and `flow_time`: "induction" or "negative" by the signs of alpha2 and beta1, once the loss is
    below log(T - 3), where they are final; "undecided" and inf if it is not within `FLOW_TIME`.
    """
    from ihlab.theory.landscape import descend

    points, inverse = np.unique(np.stack([alpha1, beta1]), axis=1, return_inverse=True)
    a, b = points
    walked = descend(a, 1 - a, b, 1 - b, n_tokens, lr=FLOW_STEP, steps=round(FLOW_TIME / FLOW_STEP))
    below = walked.loss < np.log(n_tokens - 3)
    decided = below.any(axis=0)
    signs = np.where((walked.alpha2[-1] > 0) & (walked.beta1[-1] > 0), INDUCTION, NEGATIVE)
    basin = np.where(decided, signs, UNDECIDED)
    time = np.where(decided, walked.time[below.argmax(axis=0)], np.inf)
    return pd.DataFrame({"basin": basin, "flow_time": time}).iloc[inverse.ravel()].reset_index(drop=True)


def _row(run: "Run") -> dict[str, Any]:
    metrics = run.metrics
    last = metrics.iloc[-1].abs()
    alpha1, beta1 = run.config.init_shift or (np.nan, np.nan)
    return {
        "seed": run.config.seed,
        "alpha1": alpha1,
        "beta1": beta1,
        "steps": stats.first_reach(metrics["step"], metrics["accuracy"], FOUND),
        "accuracy": round(last["accuracy"], 6),
        "own_key": round(last["alpha1_0.0"] / (last["alpha1_0.0"] + last["alpha2_0.0"]), 6),
        "own_value": round(last["beta1_0.0"] / (last["beta1_0.0"] + last["beta2_0.0"]), 6),
    }


def _field(scale: Scale, n_tokens: int) -> pd.DataFrame:
    from ihlab.theory.landscape import field

    drawn = field("exact", n_tokens, points=FIELD[scale], low=LOW, high=HIGH)
    alpha1, beta1 = np.meshgrid(drawn.alpha1, drawn.beta1)
    values = {"loss": drawn.loss, "slope_alpha1": drawn.slope_alpha1, "slope_beta1": drawn.slope_beta1}
    table = pd.DataFrame({"alpha1": alpha1.ravel(), "beta1": beta1.ravel()} | {k: v.ravel() for k, v in values.items()})
    return table.round(6).assign(kind="field")


def _share(hits: pd.Series, seed: pd.Series) -> stats.Estimate:
    """The share of hits; the starts of one seed share their weights and batches, and are one cluster."""
    by_seed = hits.groupby(seed)
    return stats.clustered_share(by_seed.sum().astype(int).tolist(), by_seed.size().tolist())


def _over_seeds(runs: pd.DataFrame, measure: Callable[[pd.DataFrame], float]) -> stats.Estimate:
    """The mean over seeds; where a seed has no number, nothing is known."""
    by_seed = [measure(part) for _, part in runs.groupby("seed")]
    return stats.Estimate(np.nan, -np.inf, np.inf) if np.isnan(by_seed).any() else stats.mean(by_seed)


def _distance(runs: pd.DataFrame) -> pd.Series:
    return pd.Series(np.hypot(runs["alpha1"], 1 - runs["beta1"]), runs.index)


def _rank_correlation(a: pd.Series, b: pd.Series) -> float:
    """Spearman's, "never" (inf) last; NaN where one of them is the same everywhere."""
    return float(pd.DataFrame({"a": a.rank(), "b": b.rank()}).corr().to_numpy()[0, 1])


def _gain(runs: pd.DataFrame) -> float:
    to_induction = runs["flow_time"].where(runs["basin"] == INDUCTION, np.inf)
    return _rank_correlation(to_induction, runs["steps"]) - abs(_rank_correlation(_distance(runs), runs["steps"]))


def _basin_difference(runs: pd.DataFrame) -> float:
    found = (runs["accuracy"] >= FOUND).groupby(runs["basin"]).mean()
    return float(found.get(INDUCTION, np.nan) - found.get(NEGATIVE, np.nan))
