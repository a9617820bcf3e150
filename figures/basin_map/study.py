"""From which (alpha1, beta1) does one head learn induction, and where does it end?

Section 3.2 says that heads which start closer to (0, 1) learn more easily. A model of one layer
with one head is trained from each start of a grid over the square of Figure 2 and a margin. The
models are so small that a laptop trains hundreds. The runs of one seed share their initial weights
and batches, so they are one cluster.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ihlab.model.config import ModelConfig
from ihlab.plots.landscape import loss_field
from ihlab.plots.style import BLACK, PAGE, RED, new_figure
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, described
from ihlab.study.study import Run, Study, cells
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks import InductionTask

from .gauge import angular_distance, coordinates, paper_distance

LOW, HIGH = -0.5, 1.5
"""Range of alpha1 and beta1 at the start: the square [0, 1] and a margin of half its side."""
SIDE = 10
"""Starts per side of the grid, at the centres of its cells."""
LENGTH, FIELD = 32, 31
"""Length of sequences, and points per side of the drawn field of the loss."""
FOUND = 0.9
"""A run finds induction if its accuracy at the first answer is at least this."""
MOST = 0.9
"""Minimum fraction of starts for which "gradient descent leads there" counts as true."""
NEAR = 0.3
"""Largest distance to (0, 1) of a good initialisation."""


AXIS = [round(LOW + (HIGH - LOW) * (i + 0.5) / SIDE, 6) for i in range(SIDE)]
STARTS = cells(beta1=AXIS, alpha1=AXIS)
TASK = InductionTask(vocab_size=64, length=LENGTH)
RUN = RunConfig(
    task=TASK,
    model=ModelConfig(n_layers=1, d_model=16, n_heads=1, d_vocab=64, n_ctx=LENGTH, attention="kv_shift"),
    steps=600, batch_size=16, lr=5e-3, warmup=20, eval_rows=128, checkpoints=2,
)  # fmt: skip


def config(cell: Cell) -> RunConfig:
    """Return the run of a start: one layer with one head."""
    return RUN.replace(init_shift=(cell["alpha1"], cell["beta1"]))


def measure(run: Run) -> dict[str, Any]:
    """Return when a run finds induction, its accuracy, and where its alpha and beta start and end.

    - steps: step of the first evaluation with an accuracy of `FOUND` (inf: never);
    - accuracy_start, accuracy: accuracy at the first answer of a sequence, at step 0 and at the
      end; rows: the number of sequences;
    - key_angle, value_angle, key_norm, value_norm: the start's `gauge.coordinates`; end_key_angle,
      ...: the same at the end;
    - distance, angular_distance: distance of the start to (0, 1), in alpha1 and beta1 and in the
      two angles.
    """
    last, accuracies = run.metrics.iloc[-1], run.metrics["accuracy_first"].tolist()
    alpha1, beta1 = run.config.init_shift or (np.nan, np.nan)
    start = coordinates(alpha1, 1 - alpha1, beta1, 1 - beta1)
    end = coordinates(*(last[f"{name}_0.0"] for name in ("alpha1", "alpha2", "beta1", "beta2")))
    return {
        "steps": first_reach(run.metrics["step"], accuracies, FOUND),
        "accuracy": accuracies[-1],
        "accuracy_start": accuracies[0],
        "rows": run.config.eval_rows,
        "distance": paper_distance(alpha1, beta1),
        "angular_distance": angular_distance(start["key_angle"], start["value_angle"]),
        **start,
        **{f"end_{name}": value for name, value in end.items()},
    }


# Questions


def in_square(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that start in the square of Figure 2."""
    return runs[runs["alpha1"].between(0, 1) & runs["beta1"].between(0, 1)]


def at_corner(runs: pd.DataFrame) -> stats.Estimate:
    """Return the fraction of runs with learned induction that end nearer to the corner (0, 1) than
    to others.
    """
    learned = runs[runs["accuracy"] >= FOUND]
    corner = learned[["end_key_angle", "end_value_angle"]].abs().max(axis=1) < np.pi / 4
    by_seed = corner.groupby(learned["seed"])
    return stats.clustered_share(by_seed.sum().astype(int).tolist(), by_seed.size().tolist())


def accuracy_before(runs: pd.DataFrame) -> stats.Estimate:
    """Return the mean accuracy before training of the starts near (0, 1), all on the same
    sequences.
    """
    by_seed = runs[runs["distance"] <= NEAR].groupby("seed")["accuracy_start"].mean()
    return stats.mean_accuracy(by_seed.tolist(), int(runs["rows"].iloc[0]))


def with_steps(column: str, among: str, chosen: Callable[[pd.DataFrame], pd.DataFrame]) -> Number:
    """Return the rank correlation between a column and the steps of some runs, averaged over seeds."""

    def estimate(runs: pd.DataFrame) -> stats.Estimate:
        by_seed = [
            rows[column].rank().corr(rows["steps"].rank())
            for _, rows in chosen(runs).groupby("seed")
        ]
        return stats.mean_correlation(by_seed)

    return described(f"rank correlation between the {among}", estimate)


paper = partial(Ask, source="section 3.2", of_paper=True)
CLOSER = "Heads that start closer to (0, 1) learn induction heads more easily."
SUFFICES = "Even with good initialization, the model has induction capability."
ASKS = (
    paper(
        "induction_heads_mean_0_1",
        "Induction heads means (0, 1).",
        described(
            "fraction of the runs that learn induction, from all starts, that end nearer to (0, 1) than to any other "
            "corner: key and value angle within pi/4 of it, modulo pi",
            at_corner,
        ),
        above=MOST,
        statement=13,
    ),
    paper(
        "closer_is_easier.distance",
        CLOSER,
        with_steps(
            "distance",
            "distance to (0, 1) and the steps, starts in the square of Figure 2",
            in_square,
        ),
        above=0.0,
        statement=14,
    ),
    paper(
        "closer_is_easier.angle",
        CLOSER,
        with_steps(
            "angular_distance",
            "angular distance to (0, 1), up to signs, and the steps, all starts",
            lambda runs: runs,
        ),
        above=0.0,
        statement=14,
    ),
    paper(
        "good_start_suffices.exact_form",
        SUFFICES,
        lambda _: Measured(
            "in the model of Theorem 3.4 at (0, 1), before training: the answer's logit minus the largest other logit, "
            "times S (exact form: e for the answer minus 2 for the repeated token)",
            stats.exact(math.e - 2),
            0,
        ),
        above=0.0,
        statement=17,
        declared="2026-11-23",
    ),
    Ask(
        "good_start_suffices.model",
        SUFFICES,
        described(
            f"accuracy at the first answer before training, starts within {NEAR} of (0, 1), all other weights random",
            accuracy_before,
        ),
        above=0.5,
        statement=17,
        source="section 3.2, about the model of Theorem 3.4; here about a whole model",
    ),
)


# What is shown


def shown(runs: pd.DataFrame) -> pd.DataFrame:
    """Return how many starts find induction, and how soon, by region of the plane."""
    within = f"find induction within {runs['horizon'].iloc[0]:.0f} steps"
    near, rows = runs[runs["distance"] <= NEAR], []
    groups = {
        "in the square of Figure 2": in_square(runs),
        f"within {NEAR} of (0, 1)": near,
        "all": runs,
    }
    for name, mine in groups.items():
        n_learned, median = int((mine["accuracy"] >= FOUND).sum()), mine["steps"].median()
        steps = f"{median:.0f}" if np.isfinite(median) else "never"
        rows.append((name, len(mine), n_learned, f"{mine['accuracy_start'].mean():.3f}", steps))
    return pd.DataFrame(
        rows, columns=["starts", "runs", within, "accuracy before training", "median steps"]
    )


@lru_cache
def field() -> pd.DataFrame:
    """Return the exact loss of Theorem 3.4 at the task's length, over the plane of starts."""
    from ihlab.theory import landscape

    return landscape.field("exact", LENGTH, points=FIELD, low=LOW, high=HIGH).table().round(6)


def view(runs: pd.DataFrame) -> Figure:
    """Draw the map of starts over the field, and where the runs end.

    The plane of final angles is a torus: opposite edges are the same line.
    """
    slowest, figure = float(runs["horizon"].iloc[0]), new_figure(PAGE, 4.6)
    left, right = figure.subplots(1, 2)
    median = runs.groupby(["alpha1", "beta1"])["steps"].median().reset_index()
    loss_field(left, field(), spacing=0.01, faint=True)
    left.add_patch(
        Rectangle(
            (0, 0), 1, 1, fill=False, edgecolor=BLACK, linestyle="--", linewidth=1.2, zorder=3
        )
    )
    shades = coloured(
        left, median["alpha1"], median["beta1"], median["steps"], slowest, size=90, marker="s"
    )
    ticks = np.arange(2 * LOW, 2 * HIGH + 1) / 2
    left.set(xlim=(LOW, HIGH), ylim=(LOW, HIGH), xticks=ticks, yticks=ticks)
    left.set(xlabel=r"$\alpha_1$ at the start", ylabel=r"$\beta_1$ at the start")
    left.set_title(f"{len(median)} starts: median of {runs['seed'].nunique()} seeds", fontsize=10)
    ends, edge = runs.sort_values("seed", kind="stable"), np.pi / 2
    right.add_patch(
        Rectangle((-edge / 2, -edge / 2), edge, edge, facecolor="#E6E6E6", linewidth=0, zorder=0)
    )
    coloured(
        right,
        ends["end_key_angle"],
        ends["end_value_angle"],
        ends["steps"],
        slowest,
        size=22,
        marker="o",
    )
    right.plot(0, 0, marker="*", color=RED, markersize=13, zorder=5)
    right.set(xlim=(-1.03 * edge, 1.03 * edge), ylim=(-1.03 * edge, 1.03 * edge), aspect="equal")
    for set_ticks in (right.set_xticks, right.set_yticks):
        set_ticks(
            np.linspace(-edge, edge, 5), [r"$-\pi/2$", r"$-\pi/4$", "0", r"$\pi/4$", r"$\pi/2$"]
        )
    right.set(
        xlabel=r"key angle at the end (0: $\alpha_1 = 0$; $\pm\pi/2$: $\alpha_2 = 0$)",
        ylabel=r"value angle at the end (0: $\beta_2 = 0$; $\pm\pi/2$: $\beta_1 = 0$)",
    )
    right.set_title(f"ends of {len(runs)} runs\nGrey: nearest to induction.", fontsize=10)
    figure.colorbar(
        shades, ax=[left, right], label=f"training steps to an accuracy of {FOUND}", shrink=0.8
    )
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def coloured(
    axes: Axes, x: pd.Series, y: pd.Series, steps: pd.Series, slowest: float, size: int, marker: str
) -> PathCollection:
    """Draw points coloured by their steps up to `slowest`, with crosses for inf. Return the
    coloured artist.
    """
    learned, label = np.isfinite(steps), f"not within {slowest:.0f} steps"
    axes.scatter(
        x[~learned],
        y[~learned],
        s=0.6 * size,
        marker="x",
        color=BLACK,
        linewidths=1.3,
        zorder=4,
        label=label,
    )
    colors: Any = {
        "c": steps[learned],
        "cmap": "viridis",
        "vmin": 0,
        "vmax": slowest,
        "edgecolors": "white",
    }
    return axes.scatter(
        x[learned], y[learned], s=size, marker=marker, linewidths=0.6, zorder=4, **colors
    )


BASIN_MAP = Study(
    name="basin_map",
    heading="Which starts lead to induction?",
    title="From which starts does one head learn induction, and where does it end?",
    caption="Star: induction head. Dashed: the square of Figure 2. Lines: descent in theory.",
    declared="2026-11-22",
    cells=STARTS,
    smoke_cells=STARTS[::33],
    config=config,
    seeds=range(10),
    stacked=True,
    measure=measure,
    asks=ASKS,
    view=view,
    summary_columns=shown,
)
