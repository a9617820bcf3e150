"""Figure 2: the loss of Theorem 3.4 over the square of alpha1 and beta1: as printed, exact, and by
the paper's script.

The claims are about the theorem and need no training. They test the sentences of Section 3.2 on the
exact form and also give the other two forms' numbers. The exact form has no O(T): it is taken at T
= O(T) + 2 tokens, which gives the same S, but at least at 5, the shortest length. The paths over
the exact loss are those of heads in Figure 1a's KV shifting.

One sentence is not tested here: that heads which start closer to (0, 1) learn more easily. The
heads of one model share its loss and compete. The map of single-head models (`basin_map`) is the
clean test.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ihlab.plots.curves import Line
from ihlab.plots.landscape import loss_field, paths
from ihlab.plots.style import BLACK, GREEN, ORANGE, PAGE, new_figure
from ihlab.recipes.induction import KV1, LAPTOP_SEEDS, depth_config, depth_seeds
from ihlab.study import stats
from ihlab.study.ask import Ask, Measured, OfCells
from ihlab.study.study import Run, Study

OTHERS = (0, 10, 100)
"""The paper's values of O(T)."""

FORMS = {"printed": "Theorem 3.4 as printed", "exact": "exact", "listing": "Appendix L's script"}
GRID, FINE = 31, 1000
"""Grid points per side, for drawing and for computing fractions of the square."""

SIMPLIFIED, BECAME, OTHER_HEADS = "simplified model", "became an induction head", "did not"
IS_INDUCTION = 0.5
"""A trained head counts as an induction head if its prefix-matching score is at least this."""

WALKERS = {SIMPLIFIED: Line(GREEN), BECAME: Line(ORANGE), OTHER_HEADS: Line(BLACK, ":")}
WALKED = {
    SIMPLIFIED: "starts of the simplified model",
    BECAME: "heads that became\ninduction heads",
    OTHER_HEADS: "heads that did not",
}

FIRST = (0, LAPTOP_SEEDS[0])
"""The first seed at smoke scale and at the published one."""

FEW = 0.01
"""Minimum fraction of the square in which a statement must hold to be true "for some starts"."""


def _size(form: str, other: int) -> dict[str, int]:
    return {"n_tokens": _length(other)} if form == "exact" else {"other": other}


def _length(other: int) -> int:
    return max(5, other + 2)


# Questions


@lru_cache
def numbers(form: str, other: int) -> dict[str, float]:
    """Return the numbers that describe one form of the loss over the square.

    - leads: the fraction of starts that descend to (0, 1);
    - away, alpha1_away, beta1_away: the fraction of starts whose distance to (0, 1) first grows,
      whose alpha1 first moves away from 0, and whose beta1 first moves away from 1;
    - slope: the mean norm of the gradient within the square.
    """
    from ihlab.theory.landscape import field

    fine = field(form, points=FINE, **_size(form, other))
    alpha1, beta1 = fine.alpha1[None], fine.beta1[:, None]
    towards_corner = fine.slope_alpha1 * alpha1 - fine.slope_beta1 * (
        1 - beta1
    )  # minus slope times (0, 1) - start
    exact = {
        "leads": fraction_that_descends(form, other),
        "away": np.mean(towards_corner < 0),
        "alpha1_away": np.mean(fine.slope_alpha1 < 0),
        "beta1_away": np.mean(fine.slope_beta1 > 0),
        "slope": np.hypot(fine.slope_alpha1, fine.slope_beta1).mean(),
    }
    return {name: round(float(value), 6) for name, value in exact.items()}


def fraction_that_descends(form: str, other: int) -> float:
    """Return the fraction of 50 x 50 starts whose streamline, clipped to the square, ends within
    0.03 of (0, 1).
    """
    from ihlab.theory.landscape import gradient

    stride, centres = 0.01, (np.arange(50) + 0.5) / 50
    alpha1, beta1 = np.meshgrid(centres, centres)
    for _ in range(round(4 / stride)):  # a length of 4: the whole perimeter
        by = gradient(alpha1, 1 - alpha1, beta1, 1 - beta1, form=form, **_size(form, other))
        slopes = by.alpha1 - by.alpha2, by.beta1 - by.beta2
        along = np.hypot(*slopes)
        alpha1 = np.clip(alpha1 - stride * slopes[0] / along, 0, 1)
        beta1 = np.clip(beta1 - stride * slopes[1] / along, 0, 1)
    return float(np.mean(np.hypot(alpha1, 1 - beta1) < 3 * stride))


def of_forms(what: str, measure: Callable[[str], float]) -> OfCells:
    """Return a measured number for the exact form. Its description also gives this number for the
    other two forms.
    """

    def number(_: pd.DataFrame) -> Measured:
        others = (
            f"printed form {measure('printed'):.3g}, the paper's script {measure('listing'):.3g}"
        )
        return Measured(f"{what}, exact form ({others})", stats.exact(measure("exact")), 0)

    return OfCells((), number)


def leads_there(form: str) -> float:
    """Return the fraction of the square that descends to (0, 1), the smallest over the values of
    O(T).
    """
    return min(numbers(form, other)["leads"] for other in OTHERS)


def slows_down(form: str) -> float:
    """Return the largest ratio of the mean slope at one value of O(T) to that at the value before."""
    return max(
        numbers(form, b)["slope"] / numbers(form, a)["slope"] for a, b in itertools.pairwise(OTHERS)
    )


paper = partial(Ask, source="section 3.2, Figure 2", of_paper=True, statement=13)

READINGS = {
    "distance": ("fraction of starts that first move away from (0, 1), by distance", ("away",)),
    "larger_tap": (
        "fraction of starts whose alpha1 first moves away, or whose beta1 does, the larger of the two",
        ("alpha1_away", "beta1_away"),
    ),
}


def moves_away(columns: Sequence[str], other: int, form: str) -> float:
    """Return the largest of the named `numbers` of a form at one value of O(T)."""
    return max(numbers(form, other)[column] for column in columns)


def directions(name: str, sentence: str, other: int, **threshold: Any) -> list[Ask]:
    """Ask, in both `READINGS` of "moves away", whether gradient descent first moves away from (0,
    1).
    """
    size = f"O(T) = {other} (exact: T = {_length(other)})"
    return [
        paper(
            f"{name}.{reading}",
            sentence,
            of_forms(f"{what}, {size}", partial(moves_away, columns, other)),
            **threshold,
        )
        for reading, (what, columns) in READINGS.items()
    ]


# The runs


def became_induction(run: Run) -> list[bool]:
    """Return whether each key/value head of a run became an induction head."""
    last = run.metrics.iloc[-1]
    return [last[f"prefix_0.{head}"] >= IS_INDUCTION for head in range(run.config.model.kv_heads)]


def measure(run: Run) -> dict[str, float]:
    """Return the length of sequences, and how many heads became induction heads."""
    return {"length": run.config.task.length, "induction_heads": float(sum(became_induction(run)))}


def on_paths(run: Run) -> pd.DataFrame:
    """Return the path of every head of a run, labelled by whether it became an induction head.

    The first run also brings the paths of the simplified model, which belong to no run.
    """
    config, metrics, drawn_paths = run.config, run.metrics, []
    if config.seed in FIRST:
        steps = min(1200, config.steps)
        drawn_paths = _simplified(config.task.length, config.model.d_model, steps)
    for head, became in enumerate(became_induction(run)):
        names = [f"{name}_0.{head}" for name in ("alpha1", "alpha2", "beta1", "beta2")]
        series = BECAME if became else OTHER_HEADS
        path = _path(f"seed {config.seed} head {head}", series, metrics["step"], metrics[names])
        drawn_paths.append(path)
    return pd.concat(drawn_paths, ignore_index=True)


def _simplified(n_tokens: int, d_model: int, steps: int) -> list[pd.DataFrame]:
    """Run gradient descent on all four parameters of the simplified model, from a 4 x 4 grid of
    starts.

    The loss is the mean over 16 fixed random embeddings. Every eighth step is kept.
    """
    import torch

    from ihlab.theory.landscape.simulation import inner_products, simulated_loss

    centres = (np.arange(4) + 0.5) / 4
    alpha1, beta1 = (axis.ravel() for axis in np.meshgrid(centres, centres))
    point = np.stack([alpha1, 1 - alpha1, beta1, 1 - beta1])
    products, visited = inner_products(n_tokens, d_model, samples=16, seed=0), []
    for _ in range(0, steps + 1, 8):
        visited.append(point)
        for _ in range(8):
            parameters = torch.from_numpy(point).requires_grad_()
            (slope,) = torch.autograd.grad(
                simulated_loss(parameters, products, repeat=2).mean(dim=1).sum(), parameters
            )
            point = point - 0.25 * slope.numpy()
    step = 8 * np.arange(len(visited))
    return [
        _path(f"simplified {start}", SIMPLIFIED, step, weights)
        for start, weights in enumerate(np.stack(visited).transpose(2, 0, 1))
    ]


def _path(name: str, series: str, step: ArrayLike, weights: ArrayLike) -> pd.DataFrame:
    """Return a path with the coordinates |own| / (|own| + |previous|), which do not change if W_K
    or W_V is rescaled.

    `weights` [step, 4]: alpha1, alpha2, beta1 and beta2.
    """
    key, previous_key, value, previous_value = np.abs(np.asarray(weights)).T
    alpha1, beta1 = key / (key + previous_key), value / (value + previous_value)
    path = {"path": name, "step": step, "alpha1": alpha1, "beta1": beta1, "series": series}
    return pd.DataFrame(path)


# What is shown


@lru_cache
def drawn(form: str, **sizes: int) -> pd.DataFrame:
    """Return the points of a field that are drawn."""
    from ihlab.theory.landscape import field

    return field(form, points=GRID, **sizes).table().round(5)


def shown(_: pd.DataFrame) -> pd.DataFrame:
    """Return, for each form, the fraction of the square that descends to (0, 1) and that which
    first moves away.
    """
    forms = {"exact": "exact", "printed": "as printed", "listing": "the paper's script"}
    rows = [
        (title, f"{leads_there(form):.0%}", f"{numbers(form, OTHERS[0])['away']:.0%}")
        for form, title in forms.items()
    ]
    return pd.DataFrame(
        rows, columns=["form", "descends to (0, 1)", "first moves away, shortest length"]
    )


def _draw_field(axes: Axes, form: str, other: int) -> None:
    panel = drawn(form, **_size(form, other))
    loss_field(axes, panel)
    tokens = f", {_length(other)} tokens" if form == "exact" else ""
    axes.set_title(
        f"O(T) = {other}{tokens}\nloss {panel['loss'].min():.2f} to {panel['loss'].max():.2f}",
        fontsize=10,
    )
    axes.set_xlabel(r"key of the token itself, $\alpha_1$")


def exact_form(_: pd.DataFrame) -> Figure:
    """Draw the exact form, which the claims are about, at the paper's three values of O(T)."""
    figure = new_figure(PAGE, 3.9)
    for axes, other in zip(figure.subplots(1, 3, sharey=True), OTHERS, strict=True):
        _draw_field(axes, "exact", other)
    figure.axes[0].set_ylabel(r"value of the token itself, $\beta_1$")
    return figure


def other_forms(_: pd.DataFrame) -> Figure:
    """Draw the printed form and the paper's script, one row of panels each."""
    figure = new_figure(PAGE, 6.6)
    for row, form in zip(
        figure.subplots(2, 3, sharex=True, sharey=True), ("printed", "listing"), strict=True
    ):
        for axes, other in zip(row, OTHERS, strict=True):
            _draw_field(axes, form, other)
            axes.label_outer()
        row[0].set_ylabel(f"{FORMS[form]}\n" + r"$\beta_1$")
    return figure


def draw_paths(data: pd.DataFrame) -> Figure:
    """Draw paths over the exact field at the length of training, a panel for each kind of path."""
    figure, n_tokens = new_figure(PAGE, 3.9), int(data["length"].iloc[0])
    for axes, (series, style) in zip(
        figure.subplots(1, 3, sharey=True), WALKERS.items(), strict=True
    ):
        loss_field(axes, drawn("exact", n_tokens=n_tokens), faint=True)
        mine = data[data["series"] == series]
        paths(axes, mine, style.color, series, style.dashes)
        axes.set_title(f"{mine['path'].nunique()} {WALKED[series]}", fontsize=10)
        axes.set(xlabel=r"$|\alpha_1| / (|\alpha_1| + |\alpha_2|)$")
    figure.axes[0].set_ylabel(r"$|\beta_1| / (|\beta_1| + |\beta_2|)$")
    return figure


def explore(data: pd.DataFrame, title: str) -> Any:
    """Draw each loss surface for every value of O(T), with the paths of heads on it, as one
    interactive picture.
    """
    from ihlab.plots import interactive

    n_tokens, surfaces = int(data["length"].iloc[0]), {}
    for form, other in itertools.product(FORMS, OTHERS):
        name = f"T = {_length(other)}" if form == "exact" else f"O(T) = {other}"
        surfaces[f"{form}, {name}"] = drawn(form, **_size(form, other))
    with_paths = f"exact, T = {n_tokens}, with paths"
    surfaces[with_paths] = drawn("exact", n_tokens=n_tokens)
    return interactive.loss_surface(surfaces, {with_paths: data}, WALKERS, title)


FIGURE2 = Study(
    name="figure2",
    heading="Figure 2: where does gradient descent lead?",
    by_default=True,
    title="The loss of Theorem 3.4: where does gradient descent lead?",
    caption="Star: induction head (0, 1). Blue: descent. Black: contours, .05 nats apart. Dot: start of a path.",
    declared="2026-11-21",
    cells=[{"curve": KV1}],
    config=depth_config,
    seeds=depth_seeds,
    measure=measure,
    curve=on_paths,
    asks=[
        paper(
            "leads_to_0_1",
            "Induction heads means (0, 1): gradient descent leads there.",
            of_forms(
                "fraction of the square that descends to (0, 1), the lowest over O(T)", leads_there
            ),
            above=0.99,
            source="related to Figure 2",
            of_paper=False,
        ),
        paper(
            "converges_slower_with_t",
            "As O(T) increases, the contour lines become sparse: convergence slows down.",
            of_forms(
                "ratio of the mean slopes from one O(T) to the next, the largest ratio", slows_down
            ),
            below=1.0,
        ),
        *directions(
            "small_t_turns_back",
            "When O(T) is relatively small, the direction of GD may undergo a small non-monotonic process.",
            OTHERS[0],
            above=FEW,
        ),
        *directions(
            "large_t_consistent",
            "When O(T) is relatively large, the direction of GD is relatively consistent.",
            OTHERS[-1],
            below=FEW,
        ),
    ],
    view=exact_form,
    more_views={"forms": other_forms, "paths": draw_paths},
    interactive=explore,
    summary_columns=shown,
)
