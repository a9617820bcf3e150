"""Table 5: which of alpha1 and alpha2, and of beta1 and beta2, is larger in each key/value head of
trained models.

The paper's count depends on the gauge, a count by absolute values does not. Heads of a model share
its loss, models of one seed share their first random numbers. So each seed's heads are pooled over
all models; intervals are over seeds.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ihlab.plots.curves import Mark
from ihlab.plots.style import BLACK, BLUE, GREEN, PAGE, PINK, new_figure, scaled
from ihlab.recipes.induction import (
    KV1,
    depth_config,
    depth_seeds,
    is_narrow,
    kv,
    panels,
    width_config,
    width_seeds,
)
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured
from ihlab.study.study import Run, Study, cells
from ihlab.training.config import RunConfig

MARKS = (Mark(BLACK, "s"), Mark(GREEN, "D"), Mark(PINK, "v"))
STYLES = {
    KV1: Mark(BLUE, "o"),
    **{kv(panel): mark for panel, mark in zip(panels("rope"), MARKS, strict=True)},
}

START, END = "initialisation", "end"
RAW, FREE = "raw", "gauge_free"
COUNTS = {RAW: "raw, as the paper counts", FREE: "by absolute size"}
"""Raw: alpha1 > alpha2; c = -1 in (c alpha, W_K / c) reverses it. Gauge-free: |alpha1| > |alpha2|;
no c reverses it.
"""

OWN, PREVIOUS = "own", "previous"


def config(cell: Cell) -> RunConfig:
    """Return the config of a curve of Figure 1a or 1b."""
    return depth_config(cell) if cell["curve"] == KV1 else width_config(cell)


def heads(run: Run) -> pd.DataFrame:
    """Measure each key/value head at the first checkpoint and at the last.

    - alpha1, alpha2, beta1, beta2: as stored;
    - key, value: |alpha1| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|);
    - key_raw, value_raw, key_gauge_free, value_gauge_free: own or previous, whichever is larger.
    """
    from ihlab.interp.shifts import shift_report

    parts = []
    for when, step in ((START, run.checkpoints[0]), (END, run.checkpoints[-1])):
        report = shift_report(run.model(step))
        larger = {
            "alpha_raw": "key_raw",
            "beta_raw": "value_raw",
            "alpha_larger": "key_gauge_free",
            "beta_larger": "value_gauge_free",
        }
        stored = report[["layer", "head", "alpha1", "alpha2", "beta1", "beta2", *larger]].rename(
            columns=larger
        )
        shares = {"key": 1 - report["alpha_share"], "value": 1 - report["beta_share"]}
        parts.append(stored.assign(when=when, step=step, **shares))
    return pd.concat(parts, ignore_index=True)


def measure(run: Run) -> dict[str, int]:
    """Count the heads after training: all, those whose alphas do not sum to 1, and those with a
    negative weight.
    """
    last = heads(run).query("when == @END")
    away = (last["alpha1"] + last["alpha2"] - 1).abs() > 0.1
    negative = (last[["alpha1", "alpha2", "beta1", "beta2"]] < 0).any(axis="columns")
    return {"heads": len(last), "sum_away": int(away.sum()), "negative": int(negative.sum())}


# Questions


def counted(heads: pd.DataFrame, count: str) -> np.ndarray:
    """Count the heads in each cell, laid out as in the paper: columns own, previous key; rows own,
    previous value.
    """
    key, value = heads[f"key_{count}"], heads[f"value_{count}"]
    return np.array(
        [[int(((key == k) & (value == v)).sum()) for k in (OWN, PREVIOUS)] for v in (OWN, PREVIOUS)]
    )


def of_heads(id: str, sentence: str, words: str, column: str) -> Ask:
    """Ask whether a column counts more than half of the heads."""

    def number(data: pd.DataFrame) -> Measured:
        by_seed = data.groupby("seed")[[column, "heads"]].sum()
        hits, sizes = by_seed[column].tolist(), by_seed["heads"].tolist()
        measure = f"fraction of heads with {words} ({sum(hits)} of {sum(sizes)})"
        return Measured(measure, stats.clustered_share(hits, sizes), len(by_seed))

    return Ask(
        id,
        sentence,
        number,
        above=0.5,
        source="Appendix F.1, about a 2.9B language model; added after the runs",
        statement=32,
        declared="2026-11-27",
    )


# Appendix F's sentences about the table are about a language model: notebook 15 and the study
# `text` test them.
ASKS = (
    of_heads(
        "sum_leaves_1",
        "After training alpha1 + alpha2 is away from 1 in most heads trained for induction.",
        "alpha1 + alpha2 below .9 or above 1.1",
        "sum_away",
    ),
    of_heads(
        "some_negative",
        "After training most heads trained for induction have a negative weight.",
        "a negative alpha or beta",
        "negative",
    ),
)


# What is shown


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return the number of heads in each cell. "Key before, own value" is the induction head of
    Theorem 3.3.
    """
    rows = []
    for count, words in COUNTS.items():
        for when in (START, END):
            (both_own, induction), (crossed, both_before) = counted(
                data[data["when"] == when], count
            )
            rows.append(
                {
                    "heads": f"at {when}" if when == START else f"at the {when}",
                    "counted": words,
                    "key before, own value (Theorem 3.3)": induction,
                    "own key and value": both_own,
                    "both of the token before": both_before,
                    "own key, value before": crossed,
                }
            )
    return pd.DataFrame(rows)


def heads_by_corner(data: pd.DataFrame) -> Figure:
    """Draw each head before and after training, with counts per quarter, and the paper's own count.

    A head on a middle line counts as left of it or below it.
    """
    figure = new_figure(PAGE, 4.8)
    *panels, table = figure.subplots(1, 3, width_ratios=(1.25, 1.25, 1))
    for axes, when, title in zip(
        panels, (START, END), ("before training", "after training"), strict=True
    ):
        at_step = data[data["when"] == when]
        key, value = 1 - at_step["key"], at_step["value"]
        for curve, style in STYLES.items():
            drawn, hollow = (
                at_step["curve"] == curve,
                {"facecolors": "none", "linewidths": 1.2, "zorder": 3},
            )
            axes.scatter(
                key[drawn],
                value[drawn],
                s=32,
                marker=style.marker,
                edgecolors=style.color,
                label=curve,
                **hollow,
            )
        large: Any = {"fontsize": scaled(20), "weight": "bold", "color": "0.6", "zorder": 1}
        for x, column in ((0.25, key <= 0.5), (0.75, key > 0.5)):
            for y, row in ((0.25, value <= 0.5), (0.75, value > 0.5)):
                axes.text(x, y, str(int((column & row).sum())), ha="center", va="center", **large)
        axes.axhline(0.5, color="#999999", linewidth=0.8)
        axes.axvline(0.5, color="#999999", linewidth=0.8)
        axes.set(
            xlim=(-0.04, 1.04),
            ylim=(-0.04, 1.04),
            aspect="equal",
            xticks=(0, 0.5, 1),
            yticks=(0, 0.5, 1),
        )
        axes.grid(visible=False)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel(
            "the token before's fraction of the key\n" r"$|\alpha_2| / (|\alpha_1| + |\alpha_2|)$"
        )
    panels[0].set_ylabel("own fraction of the value\n" r"$|\beta_1| / (|\beta_1| + |\beta_2|)$")
    draw_counts(table, counted(data[data["when"] == END], RAW))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_counts(axes: Axes, counts: np.ndarray) -> None:
    """Draw counts as a small table; darker cells have more heads."""
    total = int(counts.sum())
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=max(total, 1), interpolation="nearest")
    for (row, column), count in np.ndenumerate(counts):
        ink = "white" if count > total / 2 else "black"
        axes.text(
            column, row, str(int(count)), ha="center", va="center", color=ink, fontsize=scaled(15)
        )
    axes.set_xticks((0, 1), [r"$\alpha_1 > \alpha_2$", r"$\alpha_1 \leq \alpha_2$"])
    axes.set_yticks((0, 1), [r"$\beta_1 > \beta_2$", r"$\beta_1 \leq \beta_2$"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.set_title("after training, counted\nwith signs, as in the paper", fontsize="medium")


TABLE5 = Study(
    name="table5",
    heading="Table 5: what do alpha and beta become?",
    by_default=True,
    title="Which token's key and value do heads trained for induction use?",
    caption="Numbers: heads in that quarter. Upper right: an induction head, as in Theorem 3.3.",
    declared="2026-11-22",
    cells=cells(curve=tuple(STYLES)),
    config=config,
    seeds=lambda cell: depth_seeds(cell) if cell["curve"] == KV1 else width_seeds(cell),
    stacked=lambda cell: cell["curve"] != KV1 and is_narrow(cell),
    measure=measure,
    curve=heads,
    asks=ASKS,
    view=heads_by_corner,
    summary_columns=shown,
)
