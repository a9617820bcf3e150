"""How many hops trained models follow: errors against hops, and the hop horizon."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale
from ihlab.claims.learning_curves import plan
from ihlab.plots.hops import horizon_law
from ihlab.plots.style import BLUE, ORANGE, PINK, SKY, new_figure
from ihlab.theory.depth import by_doubling, horizon
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from ihlab.training.run import Run

KINDS = {"vanilla": "vanilla", "kv_shift": "KV shifting", "k_shift": "K only", "v_shift": "V only"}
"""Labels of the kinds of attention."""

COLORS = dict(zip(KINDS.values(), (ORANGE, BLUE, SKY, PINK), strict=True))
"""The colour of each kind where it is drawn against layers."""

Cell = tuple[str, int]
"""Attention, by its label, and number of layers."""

LAWS: dict[str, Callable[[int], int]] = {
    "$2^L-1$, by hand, with the key shift": partial(horizon, attention="k_shift"),
    "$2^{L-1}$, pointers alone, with the key shift": partial(by_doubling, attention="k_shift"),
    "$2^{L-1}-1$, by hand, without": partial(horizon, attention="vanilla"),
    "$2^{L-2}$, pointers alone, without": partial(by_doubling, attention="vanilla"),
}
"""Hops that L layers follow by hand, as labels and functions of L (`ihlab.theory.depth`)."""

SIGNS = {"above": "≥", "below": "<", "": ""}
"""What stands before a k* that is only a bound."""

SMALL = 0.1
"""Largest "small error", and the least growth of an error that is to "degrade significantly"."""


def plan_hops(figure: str, base: RunConfig, cells: Iterable[Cell], seeds: int | range) -> list[Planned]:
    """Plan cells in the order given, all else as in `base`: curves such as "vanilla, 2 layers"."""
    curves: dict[str, dict[str, object]] = {
        f"{label}, {depth} layers": {"attention": _kind((label, depth)), "n_layers": depth} for label, depth in cells
    }
    return plan(figure, base, curves, seeds)


def hop_tables(trained: Sequence[tuple[str, "Run"]]) -> pd.DataFrame:
    """Return every run's `hop_table` below one another."""
    return pd.concat([hop_table(run) for _, run in trained], ignore_index=True)


def hop_table(run: "Run") -> pd.DataFrame:
    """Return one run's errors: attention, n_layers, seed, hops, error. 100 rows of each k, dropout off.

    The error is the share of wrong answers where the answer is a letter, as in the original's evaluation.
    """
    import torch

    from ihlab.measure.batches import EVAL_SEED
    from ihlab.measure.gathered import evaluation_batch
    from ihlab.measure.metrics import held_out
    from tasks import MultiHopTask

    task, model, device = run.config.task, run.model(), torch.device("cpu")
    assert isinstance(task, MultiHopTask)
    errors = []
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        with torch.no_grad():
            errors.append(1 - held_out(model, [evaluation_batch(rows, device)])["accuracy"])
    facts = {"attention": KINDS[model.cfg.attention], "n_layers": model.cfg.n_layers, "seed": run.config.seed}
    return pd.DataFrame({**facts, "hops": range(len(errors)), "error": errors})


def hop_horizon(hops: Sequence[int], errors: Sequence[float]) -> tuple[float, str]:
    """Return log2 k*, and on which side of it the true one is, if it is only a bound: "below", "above" or "".

    k* is the number of hops at which the error first exceeds `SMALL`, interpolated between neighbouring k, linearly in
    log2 k; `hops` are 1, 2, ..., in order. Where one hop errs already k* is below 1, and where none does
    above the most.
    """
    log2, error = np.log2(hops), np.asarray(errors, dtype=float)
    over = np.flatnonzero(error > SMALL)
    if not over.size:
        return float(log2[-1]), "above"
    if over[0] == 0:
        return 0.0, "below"
    around = over[0] - 1, over[0]
    return float(np.interp(SMALL, error[[*around]], log2[[*around]])), ""


def horizons(data: pd.DataFrame) -> pd.DataFrame:
    """Return the hop horizon of each model: attention, n_layers, seed, log2_hops and bound (`hop_horizon`)."""
    rows = []
    curves = data[data["hops"] > 0].sort_values("hops").groupby(["attention", "n_layers", "seed"])
    for (kind, depth, seed), curve in curves:
        log2_hops, bound = hop_horizon(curve["hops"].tolist(), curve["error"].tolist())
        facts = {"attention": kind, "n_layers": depth, "seed": seed}
        rows.append({**facts, "log2_hops": log2_hops, "bound": bound})
    return pd.DataFrame(rows)


def predicted(cell: Cell) -> int:
    """Return the most hops that the construction follows (`ihlab.theory.depth`)."""
    return horizon(cell[1], _kind(cell))


def by_pointers(cell: Cell) -> int:
    """Return the most hops that the construction with pointers alone follows (`ihlab.theory.depth.by_doubling`)."""
    return by_doubling(cell[1], _kind(cell))


def _kind(cell: Cell) -> str:
    return {label: kind for kind, label in KINDS.items()}[cell[0]]


def of_cell(table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """Return a cell's rows, a row a seed and in their order, of `horizons` or `followed`."""
    attention, n_layers = cell
    return table[(table["attention"] == attention) & (table["n_layers"] == n_layers)].sort_values("seed")


def cell_name(cell: Cell) -> str:
    """Return a cell in words, such as "vanilla with 2 layers"."""
    attention, n_layers = cell
    return f"{attention} with {n_layers} layer{'s' * (n_layers > 1)}"


def hops_followed(errors: Sequence[float]) -> int:
    """Return the most hops h with an error of at most `SMALL` at every k = 1 .. h; `errors` are those of 1, 2, ..."""
    return int(np.cumprod(np.asarray(errors, dtype=float) <= SMALL).sum())


def followed(data: pd.DataFrame) -> pd.DataFrame:
    """Return the hops that each model follows: attention, n_layers, seed and hops (`hops_followed`)."""
    curves = data[data["hops"] > 0].sort_values("hops").groupby(["attention", "n_layers", "seed"])
    return curves["error"].agg(hops_followed).rename("hops").reset_index()


def horizon_table(data: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each cell: what is known by hand, the hops that each model follows, and the median k*.

    Columns: attention, n_layers, models, by_hand, pointers, hops (of each model, sorted), k_star, and low and high, the
    ends of the interval that inverts the sign test (`ihlab.claims.stats.paired`; of five models, at 93.75%). A k*
    of as many hops as the rows have is a bound from below.
    """
    table, whole, rows = horizons(data), followed(data), []
    for cell in dict.fromkeys(zip(data["attention"], data["n_layers"], strict=True)):
        stars = 2 ** of_cell(table, cell)["log2_hops"]
        middle = stats.paired(stars.tolist(), [0.0] * len(stars))
        facts = {"attention": cell[0], "n_layers": cell[1], "models": len(stars)}
        known = {"by_hand": predicted(cell), "pointers": by_pointers(cell)}
        hops = " ".join(map(str, sorted(of_cell(whole, cell)["hops"])))
        rows.append({**facts, **known, "hops": hops, "k_star": middle.value, "low": middle.low, "high": middle.high})
    return pd.DataFrame(rows)


def horizons_told(data: pd.DataFrame, cells: Iterable[Cell]) -> str:
    """State k* and the hops that each model of some cells follows in one sentence, with what is known by hand."""
    table, whole, parts = horizons(data), followed(data), []
    for cell in cells:
        mine = of_cell(table, cell).sort_values("log2_hops")
        stars = ", ".join(
            f"{SIGNS[bound]}{2**log2:.1f}" for log2, bound in zip(mine["log2_hops"], mine["bound"], strict=True)
        )
        hops = ", ".join(map(str, sorted(of_cell(whole, cell)["hops"])))
        parts.append(
            f"{cell_name(cell)} {stars} (whole hops {hops}; by hand {predicted(cell)}, by pointers alone "
            f"{by_pointers(cell)})"
        )
    return f"Hops k* at which the error exceeds {SMALL}, a number a seed: {'; '.join(parts)}."


def horizons_drawn(
    data: pd.DataFrame, question: str, scale: Scale, kinds: Iterable[str], published: pd.DataFrame | None = None
) -> Figure:
    """Draw the horizons of some kinds against layers, the laws as lines; `published` models as diamonds."""
    figure = new_figure(6.4, 5.0)
    axes, table = figure.subplots(), horizons(data)
    there = table[:0] if published is None else horizons(published)
    horizon_law(axes, table, {kind: COLORS[kind] for kind in kinds}, there, LAWS)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    seeds = sorted(set(table.groupby(["attention", "n_layers"]).size()))
    axes.set_title(f"{question} ({scale} scale; {' or '.join(map(str, seeds))} seeds, bar: median)")
    return figure


def share_claim(table: pd.DataFrame, claim: "partial[Claim]", sentence: str, wanted: Mapping[Cell, int]) -> Claim:
    """Judge whether most models of some cells follow exactly so many hops; `table` is that of `followed`."""
    hits = [found == hops for cell, hops in wanted.items() for found in of_cell(table, cell)["hops"]]
    told = " and ".join(f"{hops} ({kind}, {depth} layer{'s' * (depth > 1)})" for (kind, depth), hops in wanted.items())
    return claim(
        sentence=sentence,
        measure=f"share of {len(hits)} models that follow exactly {told} hops: errors at most {SMALL} up to there, and "
        "not beyond",
        estimate=stats.share(sum(hits), len(hits)),
        threshold=0.5,
    )


def share_in_words(beyond: int, one: Cell, other: Cell, counts: Sequence[int]) -> str:
    """Return the measure of a difference of shares of models; `counts` are hits and models of either cell."""
    hits, of, other_hits, other_of = counts
    return (
        f"share of models that follow more than {beyond} hops, {cell_name(one)} less {cell_name(other)} "
        f"({hits} of {of} and {other_hits} of {other_of}; by Fisher's exact test p {stats.fisher(*counts):.2g})"
    )
