"""Basin map: which initial (alpha1, beta1) of one head find induction, and how fast, over Theorem 3.4's field.

The theorem's model learns only the four scalars. A trained model also has weights, so it can keep learning where the
four scalars alone would not. One layer with one key/value head is trained from every point of a grid, with several
seeds. alpha2 = 1 - alpha1 and beta2 = 1 - beta1 at the start; all four are free afterwards. The grid covers the square
of Figure 2, from which the paper draws its heads, and a margin of half its side, where the theorem's flow has a second
basin (`ihlab.theory.landscape.basins`).

The signs of alpha and beta are a gauge of a model with weights (`ihlab.theory.gauge`), but not of the theorem's model.
Claims about runs therefore use folded angles.

A run *finds* induction if its accuracy at the first answer of a sequence is at least 0.9 at the end. Its steps count up
to the first evaluation with that accuracy. Thresholds were set after a trial of eight starts.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.model.config import ModelConfig
from ihlab.paper.plots.basin import end_map, start_map
from ihlab.plots.style import PAGE, new_figure, printed
from ihlab.study import stats
from ihlab.study.claim import Claim
from ihlab.study.experiment import Planned, Scale, Trained
from ihlab.sweep.results import first_reach
from ihlab.theory.gauge import angular_distance, coordinates, paper_distance
from ihlab.training.config import RunConfig
from tasks import InductionTask

if TYPE_CHECKING:
    from ihlab.training.run import Run

LOW, HIGH = -0.5, 1.5
"""Range of alpha1 and beta1 at the start: the square [0, 1] and a margin of half its side."""

SIDE = {"smoke": 2, "laptop": 10}
"""Starts per side of the grid, at the centres of its cells."""

SEEDS = {"smoke": 2, "laptop": 10}
FIELD = {"smoke": 9, "laptop": 31}
"""Points of the field per side that are stored and drawn."""

FOUND = 0.9
"""A run finds induction if its accuracy at the first answer is at least this."""

MOST = 0.9
"""Minimum fraction of starts for which "gradient descent leads there" counts as true."""

NEAR = 0.3
"""Largest distance to (0, 1) of a good initialisation."""


class BasinMap:
    """Steps to induction over the plane of starts, where the runs end, and the times that the theorem predicts."""

    name = "basin_map"
    scales = ("smoke", "laptop")

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan a run for each start and seed. Runs are trained in stacks."""
        run = one_head_run(scale)
        return [
            Planned(
                "KV shifting, 1 layer, 1 head",
                run.replace(name=f"basin-map-{a:+.2f}{b:+.2f}-{seed}", seed=seed, init_shift=(a, b)),
                stacked=True,
            )
            for seed in range(SEEDS[scale])
            for b in starts(scale)
            for a in starts(scale)
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one table of two `kind`s of row: "run" and "field".

        Columns of "run":

        - seed, alpha1, beta1: the seed and the start;
        - key_angle, value_angle, key_norm, value_norm: the start's `gauge.coordinates`; end_key_angle, ...: the same at
          the end;
        - distance, angular_distance: distance of the start to (0, 1), in alpha1 and beta1 and in the two angles;
        - accuracy_start, accuracy: accuracy at the first answer of a sequence, at step 0 and at the end;
        - steps: step of the first evaluation with an accuracy of `FOUND` (inf: none).

        Columns of "field", the exact form at the task's length: alpha1, beta1, loss, slope_alpha1, slope_beta1.
        """
        from ihlab.theory.landscape import field

        n_tokens = one_head_run(scale).task.length
        runs = pd.DataFrame([_row(run) for _, run in trained])
        points = field("exact", n_tokens, points=FIELD[scale], low=LOW, high=HIGH).table().round(6)
        return pd.concat([runs, points.assign(kind="field")], ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether induction is (0, 1), and how steps depend on the distance to it."""
        runs = data[data["kind"] == "run"]
        square, learned = in_square(runs), runs[runs["accuracy"] >= FOUND]
        corner = learned[["end_key_angle", "end_value_angle"]].abs().max(axis=1) < np.pi / 4
        claim = partial(Claim, seeds=int(runs["seed"].nunique()), threshold=0.0, declared="2026-11-22")
        return [
            claim(
                id="induction_heads_mean_0_1",
                statement=13,
                source="section 3.2",
                sentence="Induction heads means (0, 1).",
                measure="fraction of the runs that learn induction, from all starts, that end nearer to (0, 1) than to "
                "any other corner: key and value angle within pi/4 of it, modulo pi",
                estimate=_share(corner, learned["seed"]),
                threshold=MOST,
            ),
            claim(
                id="closer_is_easier.distance",
                statement=14,
                source="section 3.2",
                sentence="Heads that start closer to (0, 1) learn induction heads more easily.",
                measure="rank correlation between the distance to (0, 1) and the steps, starts in the square of Figure "
                "2",
                estimate=_mean_correlation(square, "distance"),
            ),
            claim(
                id="closer_is_easier.angle",
                statement=14,
                source="section 3.2",
                sentence="Heads that start closer to (0, 1) learn induction heads more easily.",
                measure="rank correlation between the angular distance to (0, 1), up to signs, and the steps, all "
                "starts",
                estimate=_mean_correlation(runs, "angular_distance"),
            ),
            claim(
                id="good_start_suffices.exact_form",
                statement=17,
                source="section 3.2",
                sentence="Even with good initialization, the model has induction capability.",
                measure="in the model of Theorem 3.4 at (0, 1), before training: the answer's logit minus the largest "
                "other logit, times S (exact form: e for the answer minus 2 for the repeated token)",
                estimate=stats.exact(math.e - 2),
                seeds=0,
                declared="2026-11-23",
            ),
            claim(
                id="good_start_suffices.model",
                of_paper=False,
                statement=17,
                source="section 3.2, about the model of Theorem 3.4; here about a whole model",
                sentence="Even with good initialization, the model has induction capability.",
                measure=f"accuracy at the first answer before training, starts within {NEAR} of (0, 1), all other "
                "weights random",
                estimate=_accuracy_before(runs, one_head_run(scale).eval_rows),
                threshold=0.5,
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return how many starts find induction, and how soon, by where they are."""
        runs = data[data["kind"] == "run"]
        within = f"find induction within {one_head_run(scale).steps} steps"
        groups = {
            "in the square of Figure 2": in_square(runs),
            f"within {NEAR} of (0, 1)": runs[runs["distance"] <= NEAR],
            "all": runs,
        }
        rows = [
            (
                name,
                len(mine),
                int((mine["accuracy"] >= FOUND).sum()),
                f"{mine['accuracy_start'].mean():.3f}",
                _whole(mine["steps"].median()),
            )
            for name, mine in groups.items()
        ]
        return pd.DataFrame(rows, columns=["starts", "runs", within, "accuracy before training", "median steps"])

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the map of starts over the field, and where the runs end."""
        runs, field = data[data["kind"] == "run"], data[data["kind"] == "field"]
        steps = float(one_head_run(scale).steps)
        figure = new_figure(PAGE, 4.6)
        left, right = figure.subplots(1, 2)
        median = runs.groupby(["alpha1", "beta1"])["steps"].median().reset_index()
        shades = start_map(left, median, field, steps)
        left.set_title(f"{len(median)} starts: median of {runs['seed'].nunique()} seeds", fontsize=10)
        end_map(right, runs, steps)
        right.set_title(f"ends of {len(runs)} runs\nGrey: nearest to induction.", fontsize=10)
        figure.colorbar(shades, ax=[left, right], label=f"training steps to an accuracy of {FOUND}", shrink=0.8)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            "From which starts does one head learn induction, and where does it end?\n"
            "Star: induction head. Dashed: the square of Figure 2. Lines: descent in theory.",
            fontsize=11,
        )
        return figure


def _whole(steps: float) -> str:
    return f"{steps:.0f}" if np.isfinite(steps) else "never"


def one_head_run(scale: Scale) -> RunConfig:
    """Return the run of every start: one layer with one head, small enough that a laptop trains hundreds."""
    length = 16 if scale == "smoke" else 32
    task = InductionTask(vocab_size=64, length=length)
    model = ModelConfig(n_layers=1, d_model=16, n_heads=1, d_vocab=64, n_ctx=length, attention="kv_shift")
    run = RunConfig(task=task, model=model, steps=600, batch_size=16, lr=5e-3, warmup=20, eval_rows=128, checkpoints=2)
    return run.replace(steps=20, warmup=5, eval_rows=32) if scale == "smoke" else run


def starts(scale: Scale) -> list[float]:
    """Return the values of alpha1, and of beta1, from which the runs start."""
    side = SIDE[scale]
    return [round(LOW + (HIGH - LOW) * (i + 0.5) / side, 6) for i in range(side)]


def in_square(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that start in the square of Figure 2."""
    return runs[runs["alpha1"].between(0, 1) & runs["beta1"].between(0, 1)]


def _row(run: "Run") -> dict[str, Any]:
    last, accuracies = run.metrics.iloc[-1], run.metrics["accuracy_first"].tolist()
    alpha1, beta1 = run.config.init_shift or (np.nan, np.nan)
    start = coordinates(alpha1, 1 - alpha1, beta1, 1 - beta1)
    end = coordinates(*(last[f"{name}_0.0"] for name in ("alpha1", "alpha2", "beta1", "beta2")))
    return {
        "kind": "run",
        "seed": run.config.seed,
        "alpha1": alpha1,
        "beta1": beta1,
        "steps": first_reach(run.metrics["step"], accuracies, FOUND),
        "accuracy": round(accuracies[-1], 6),
        "accuracy_start": round(accuracies[0], 6),
        "distance": paper_distance(alpha1, beta1),
        "angular_distance": angular_distance(start["key_angle"], start["value_angle"]),
        **start,
        **{f"end_{name}": value for name, value in end.items()},
    }


# Statistics over seeds: the starts of one seed share their weights and batches, so they are one cluster


def _share(hits: pd.Series, seed: pd.Series) -> stats.Estimate:
    by_seed = hits.groupby(seed)
    return stats.clustered_share(by_seed.sum().astype(int).tolist(), by_seed.size().tolist())


def _accuracy_before(runs: pd.DataFrame, rows: int) -> stats.Estimate:
    """Return the mean accuracy before training of the starts near (0, 1), all on the same `rows` sequences."""
    near = runs[runs["distance"] <= NEAR]
    return stats.mean_accuracy(near.groupby("seed")["accuracy_start"].mean().tolist(), rows)


def _of_each_seed(runs: pd.DataFrame, measure: Callable[[pd.DataFrame], float]) -> list[float]:
    return [measure(rows) for _, rows in runs.groupby("seed")]


def _mean_correlation(runs: pd.DataFrame, column: str) -> stats.Estimate:
    """Return the rank correlation between a column and the steps, averaged over seeds."""
    return stats.mean_correlation(_of_each_seed(runs, lambda rows: rank_correlation(rows[column], rows["steps"])))


def rank_correlation(a: pd.Series, b: pd.Series) -> float:
    """Return Spearman's rank correlation. Ties share a rank and inf is last. NaN if a or b is constant."""
    x, y = (values.rank().to_numpy(dtype=float) for values in (a, b))
    x, y = x - x.mean(), y - y.mean()
    sizes = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    return float(x @ y) / (sizes[0] * sizes[1]) if min(sizes) > 1e-9 * len(x) else float("nan")
