"""Figure 2: the loss of Theorem 3.4 over its square, as printed, exact, and as the paper's script draws it."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ihlab.plots.curves import Line
from ihlab.plots.landscape import loss_field, paths
from ihlab.plots.style import BLACK, GREEN, ORANGE, PAGE, new_figure, printed
from ihlab.recipes.induction import induction_run, kv_runs
from ihlab.study import stats
from ihlab.study.claim import Claim
from ihlab.study.experiment import Planned, Scale, Trained

if TYPE_CHECKING:
    from ihlab.theory.landscape import Field
    from ihlab.training.run import Run

OTHERS = (0, 10, 100)
"""The paper's values of O(T)."""

FORMS = {"printed": "Theorem 3.4 as printed", "exact": "exact", "listing": "Appendix L's script"}
GRID = {"smoke": 9, "laptop": 31}
"""Grid points per side that are stored and drawn."""
FINE = {"smoke": 50, "laptop": 1000}
"""Grid points per side from which fractions of the square are computed."""

SIMPLIFIED, BECAME, OTHER_HEADS = "simplified model", "became an induction head", "did not"
IS_INDUCTION = 0.5
"""A trained head counts as an induction head if its prefix-matching score is at least this."""

LEADS, AWAY, SLOPE = "share that descends to (0, 1)", "share that first moves away from (0, 1)", "mean slope"
COORDINATES = ("share whose alpha1 first rises", "share whose beta1 first falls")

WALKERS = {SIMPLIFIED: Line(GREEN), BECAME: Line(ORANGE), OTHER_HEADS: Line(BLACK, ":")}
WALKED = {
    SIMPLIFIED: "starts of the simplified model",
    BECAME: "heads that became\ninduction heads",
    OTHER_HEADS: "heads that did not",
}

FEW = 0.01
"""Minimum fraction of the square in which a statement must hold to be true "for some starts"."""


class Figure2:
    """Contours and descent over (alpha1, beta1), and real paths over the exact field."""

    name = "figure2"
    scales = ("smoke", "laptop")

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan one layer of KV shifting, trained as in Figure 1a. Its paths of alpha and beta are drawn."""
        return kv_runs(scale)

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather three kinds of row in one table: points of a field, numbers about a fine field, points of a path.

        The exact form has no O(T). Its panels use the length with the same S, T = O(T) + 2, but at least 5, the
        shortest possible length.
        """
        from ihlab.theory.landscape import field

        parts = []
        for form in FORMS:
            for other in OTHERS:
                n_tokens = _length(other)
                size = {"n_tokens": n_tokens} if form == "exact" else {"other": other}
                drawn = field(form, points=GRID[scale], **size).table().round(5).assign(kind="field")
                judged = _numbers(field(form, points=FINE[scale], **size), form, size).assign(kind="number")
                parts.append(pd.concat([drawn, judged]).assign(form=form, other=other, n_tokens=n_tokens))
        task, model = induction_run(scale).task, induction_run(scale).model
        parts.append(field("exact", task.length, points=GRID[scale]).table().round(5).assign(kind="background"))
        parts.append(_simplified(task.length, model.d_model, 16 if scale == "smoke" else 1200))
        parts += [_heads(run) for _, run in trained]
        table = pd.concat(parts, ignore_index=True)
        first = ["kind", "form", "other", "n_tokens", "path", "seed", "step", "alpha1", "beta1"]
        return table[first + [column for column in table.columns if column not in first]]

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the sentences of Section 3.2 about the figure by the exact form, and show the other two forms.

        One sentence is not judged here: that heads which start closer to (0, 1) learn more easily. The heads of one
        model share its loss and compete. The map of single-head models (`basin_map`) is the clean test.
        """
        claim = partial(_claim, _by_form(data))
        small, large = OTHERS[0], OTHERS[-1]
        directions = {
            small: "When O(T) is relatively small, the direction of GD may undergo a small non-monotonic process.",
            large: "When O(T) is relatively large, the direction of GD is relatively consistent.",
        }
        named = {small: "small_t_turns_back", large: "large_t_consistent"}
        readings = {
            "distance": ("fraction of starts that first move away from (0, 1), by distance", _away),
            "larger_tap": (
                "fraction of starts whose alpha1 first moves away, or whose beta1 does, the larger of the two",
                _coordinate_away,
            ),
        }
        return [
            claim(
                "leads_to_0_1",
                "Induction heads means (0, 1): gradient descent leads there.",
                "fraction of the square that descends to (0, 1), the lowest over O(T)",
                _leads_there, 0.99, above=True, of_paper=False,
            ),
            claim(
                "converges_slower_with_t",
                "As O(T) increases, the contour lines become sparse: convergence slows down.",
                "ratio of the mean slopes from one O(T) to the next, the largest ratio",
                _slows_down, 1.0, above=False,
            ),
            *(
                claim(
                    f"{named[other]}.{reading}", sentence, f"{what}, O(T) = {other} (exact: T = {_length(other)})",
                    partial(measure, other=other), FEW, above=other == small,
                )
                for other, sentence in directions.items()
                for reading, (what, measure) in readings.items()
            ),
        ]  # fmt: skip

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the part of the square that descends to (0, 1), and that first moves away, in each form."""
        forms = {"exact": "exact", "printed": "as printed", "listing": "the paper's script"}
        numbers = _by_form(data)
        rows = [
            (title, f"{_leads_there(numbers[form]):.0%}", f"{_away(numbers[form], OTHERS[0]):.0%}")
            for form, title in forms.items()
        ]
        return pd.DataFrame(rows, columns=["form", "descends to (0, 1)", "first moves away, shortest length"])

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the exact form at the paper's three O(T), which the claims are about."""
        figure = new_figure(PAGE, 3.9)
        for axes, other in zip(figure.subplots(1, 3, sharey=True), OTHERS, strict=True):
            _draw_field(axes, data, "exact", other)
        figure.axes[0].set_ylabel(r"value of the token itself, $\beta_1$")
        _explain(figure, "The loss of Theorem 3.4 (exact form): where does gradient descent lead?")
        return figure

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw the three forms at every O(T), and the paths of models, as a surface to turn."""
        from ihlab.plots import interactive

        fields, on_paths = data[data["kind"] == "field"], f"exact, T = {induction_run(scale).task.length}, with paths"
        surfaces = {
            f"{form}, {f'T = {_length(other)}' if form == 'exact' else f'O(T) = {other}'}": fields[
                (fields["form"] == form) & (fields["other"] == other)
            ]
            for form in FORMS
            for other in OTHERS
        }
        surfaces[on_paths] = data[data["kind"] == "background"]
        walked = {on_paths: data[data["kind"] == "path"]}
        return interactive.loss_surface(surfaces, walked, WALKERS, "The loss of Theorem 3.4: where does descent lead?")

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the two forms that the paper gives, and the paths that models take."""
        return {"forms": _draw_forms(data), "paths": _draw_paths(data, scale)}


@printed
def _draw_forms(data: pd.DataFrame) -> Figure:
    """Draw the printed form and the paper's script, one row of panels each."""
    forms = {form: title for form, title in FORMS.items() if form != "exact"}
    figure = new_figure(PAGE, 6.6)
    for row, (form, title) in zip(figure.subplots(len(forms), 3, sharex=True, sharey=True), forms.items(), strict=True):
        for axes, other in zip(row, OTHERS, strict=True):
            _draw_field(axes, data, form, other)
            axes.label_outer()
        row[0].set_ylabel(f"{title}\n" + r"$\beta_1$")
    _explain(figure, "The same loss as the paper prints it, and as its script draws it")
    return figure


def _draw_field(axes: Axes, data: pd.DataFrame, form: str, other: int) -> None:
    panel = data[(data["kind"] == "field") & (data["form"] == form) & (data["other"] == other)]
    loss_field(axes, panel)
    length = f", {_length(other)} tokens" if form == "exact" else ""
    axes.set_title(f"O(T) = {other}{length}\nloss {panel['loss'].min():.2f} to {panel['loss'].max():.2f}", fontsize=10)
    axes.set_xlabel(r"key of the token itself, $\alpha_1$")


def _explain(figure: Figure, title: str) -> None:
    figure.suptitle(
        f"{title}\nStar: induction head (0, 1). Blue: descent. Black: contours, .05 nats apart.", fontsize=11
    )


@printed
def _draw_paths(data: pd.DataFrame, scale: Scale) -> Figure:
    """Draw paths over the exact field at the length of training, a panel for each kind of path."""
    length, walked = induction_run(scale).task.length, data[data["kind"] == "path"]
    figure = new_figure(PAGE, 3.9)
    for axes, (series, style) in zip(figure.subplots(1, 3, sharey=True), WALKERS.items(), strict=True):
        loss_field(axes, data[data["kind"] == "background"], faint=True)
        mine = walked[walked["series"] == series]
        paths(axes, mine, style.color, series, style.dashes)
        axes.set(xlabel=r"$|\alpha_1| / (|\alpha_1| + |\alpha_2|)$")
        axes.set_title(f"{mine['path'].nunique()} {WALKED[series]}", fontsize=10)
    figure.axes[0].set_ylabel(r"$|\beta_1| / (|\beta_1| + |\beta_2|)$")
    figure.suptitle(
        f"Paths over the exact loss for {length} tokens\nDot: start. Star: induction head (0, 1).", fontsize=11
    )
    return figure


def _length(other: int) -> int:
    return max(5, other + 2)


def _numbers(field: "Field", form: str, size: dict[str, int]) -> pd.DataFrame:
    """Return the numbers that the claims use."""
    alpha1, beta1 = field.alpha1[None], field.beta1[:, None]
    corner = field.loss[-1, 0]
    towards_corner = field.slope_alpha1 * alpha1 - field.slope_beta1 * (1 - beta1)  # minus slope times (0, 1) - start
    numbers = {
        "loss at (0, 1)": corner,
        LEADS: _share_that_descends(form, size),
        "share with a lower loss than (0, 1)": np.mean(field.loss < corner),
        AWAY: np.mean(towards_corner < 0),
        COORDINATES[0]: np.mean(field.slope_alpha1 < 0),
        COORDINATES[1]: np.mean(field.slope_beta1 > 0),
        SLOPE: np.hypot(field.slope_alpha1, field.slope_beta1).mean(),
        "contour lines": np.ptp(field.loss) / 0.05,
    }
    return pd.DataFrame({"name": numbers.keys(), "value": np.round(list(numbers.values()), 6)})


def _share_that_descends(form: str, size: dict[str, int]) -> float:
    """Return the fraction of 50 x 50 starts whose streamline, clipped to the square, ends within 0.03 of (0, 1)."""
    from ihlab.theory.landscape import gradient

    stride, centres = 0.01, (np.arange(50) + 0.5) / 50
    alpha1, beta1 = np.meshgrid(centres, centres)
    for _ in range(round(4 / stride)):  # a length of 4: the whole perimeter
        by = gradient(alpha1, 1 - alpha1, beta1, 1 - beta1, form=form, **size)
        slopes = by.alpha1 - by.alpha2, by.beta1 - by.beta2
        length = np.hypot(*slopes)
        alpha1 = np.clip(alpha1 - stride * slopes[0] / length, 0, 1)
        beta1 = np.clip(beta1 - stride * slopes[1] / length, 0, 1)
    return float(np.mean(np.hypot(alpha1, 1 - beta1) < 3 * stride))


def _simplified(n_tokens: int, d_model: int, steps: int) -> pd.DataFrame:
    """Run gradient descent on all four parameters of the simplified model, from a 4 x 4 grid of starts.

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
            (slope,) = torch.autograd.grad(simulated_loss(parameters, products, repeat=2).mean(dim=1).sum(), parameters)
            point = point - 0.25 * slope.numpy()
    own_key, previous_key, own_value, previous_value = np.stack(visited, axis=1)
    parts = [
        pd.DataFrame(
            {
                "path": f"simplified {start}",
                "step": 8 * np.arange(len(visited)),
                "alpha1": _share(own_key[:, start], previous_key[:, start]),
                "beta1": _share(own_value[:, start], previous_value[:, start]),
            }
        )
        for start in range(len(alpha1))
    ]
    return pd.concat(parts).assign(kind="path", series=SIMPLIFIED)


def _heads(run: "Run") -> pd.DataFrame:
    """Return the path of every head of a run, labelled by whether it became an induction head."""
    metrics, seed, parts = run.metrics, run.config.seed, []
    for head in range(run.config.model.kv_heads):
        became = metrics[f"prefix_0.{head}"].iloc[-1] >= IS_INDUCTION
        parts.append(
            pd.DataFrame(
                {
                    "path": f"seed {seed} head {head}",
                    "seed": seed,
                    "step": metrics["step"],
                    "alpha1": _share(metrics[f"alpha1_0.{head}"], metrics[f"alpha2_0.{head}"]),
                    "beta1": _share(metrics[f"beta1_0.{head}"], metrics[f"beta2_0.{head}"]),
                    "series": BECAME if became else OTHER_HEADS,
                }
            )
        )
    return pd.concat(parts).assign(kind="path")


def _share(itself: np.ndarray | pd.Series, before: np.ndarray | pd.Series) -> np.ndarray:
    """Return |own| / (|own| + |before|), a coordinate of the square. It does not change if W_K or W_V is rescaled."""
    size = np.abs(np.asarray(itself))
    return np.round(size / (size + np.abs(np.asarray(before))), 6)


Numbers = dict[tuple[int, str], float]
"""The numbers of one form, by O(T) and name."""


def _by_form(data: pd.DataFrame) -> dict[str, Numbers]:
    numbers = data[data["kind"] == "number"]
    return {
        str(form): dict(zip(zip(table["other"], table["name"], strict=True), table["value"], strict=True))
        for form, table in numbers.groupby("form")
    }


def _leads_there(numbers: Numbers) -> float:
    return min(numbers[other, LEADS] for other in OTHERS)


def _slows_down(numbers: Numbers) -> float:
    return max(numbers[after, SLOPE] / numbers[before, SLOPE] for before, after in itertools.pairwise(OTHERS))


def _away(numbers: Numbers, other: int) -> float:
    return numbers[other, AWAY]


def _coordinate_away(numbers: Numbers, other: int) -> float:
    return max(numbers[other, name] for name in COORDINATES)


def _claim(
    forms: dict[str, Numbers], name: str, sentence: str, what: str, measure: Callable[[Numbers], float],
    threshold: float, above: bool, of_paper: bool = True,
) -> Claim:  # fmt: skip
    """Judge a sentence by a number of the exact form. The measure also gives this number for the other two forms."""
    values = {form: measure(numbers) for form, numbers in forms.items()}
    return Claim(
        id=name,
        statement=13,
        source="section 3.2, Figure 2" if of_paper else "related to Figure 2",
        of_paper=of_paper,
        sentence=sentence,
        measure=f"{what}, exact form (printed form {values['printed']:.3g}, the paper's script "
        f"{values['listing']:.3g})",
        estimate=stats.exact(values["exact"]),
        threshold=threshold,
        right_side="above" if above else "below",
        declared="2026-11-21",
    )
