"""How many hops trained models follow: errors against hops, and the hop horizon."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.curves import plan
from ihlab.experiments.experiment import Planned
from ihlab.theory.depth import horizon
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from ihlab.training.run import Run

KINDS = {"vanilla": "vanilla", "kv_shift": "KV shifting", "k_shift": "K only", "v_shift": "V only"}
"""Labels of the kinds of attention."""

Cell = tuple[str, int]
"""Attention, by its label, and number of layers."""

SMALL = 0.1
"""Largest "small error", and the least growth of an error that is to "degrade significantly"."""

MARGIN = 0.3
"""Doublings within which two horizons are the same: less than a third of what a layer is worth."""


def plan_hops(
    figure: str, base: RunConfig, attentions: Sequence[str], depths: Sequence[int], seeds: int | range
) -> list[Planned]:
    """Plan kinds of attention at depths, all else as in `base`: curves such as "vanilla, 2 layers"."""
    curves: dict[str, dict[str, object]] = {
        f"{KINDS[kind]}, {depth} layers": {"attention": kind, "n_layers": depth}
        for depth in depths
        for kind in attentions
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
    from ihlab.measure.metrics import held_out
    from ihlab.measure.rows import graded
    from tasks import MultiHopTask

    task, model, device = run.config.task, run.model(), torch.device("cpu")
    assert isinstance(task, MultiHopTask)
    errors = []
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        with torch.no_grad():
            errors.append(1 - held_out(model, [graded(rows, device)])["accuracy"])
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
    attention, n_layers = cell
    return horizon(n_layers, {label: kind for kind, label in KINDS.items()}[attention])


def log2_hops(table: pd.DataFrame, cell: Cell) -> pd.Series:
    """Return log2 k* of a cell's seeds, from `horizons`."""
    attention, n_layers = cell
    mine = table[(table["attention"] == attention) & (table["n_layers"] == n_layers)]
    return mine.set_index("seed")["log2_hops"].sort_index()


def gap_claim(
    table: pd.DataFrame,
    claim: "partial[Claim]",
    sentence: str,
    more: Sequence[Cell],
    less: Sequence[Cell],
    expected: int,
    layers: int = 1,
) -> Claim:
    """Judge whether the horizon of some cells is `expected` doublings above that of others, to within `MARGIN`.

    `table` is that of `horizons`; of several cells the mean is taken, for each seed. A gap of several `layers` is
    divided by their number. Seeds are not paired: models of two cells share nothing but a seed's number.
    """
    if why := _outside(table, [*more, *less]):
        return claim(sentence=sentence, seeds=0, why=why)
    log2_more, log2_less = (
        pd.concat([log2_hops(table, cell) for cell in cells], axis=1).mean(axis=1) / layers for cells in (more, less)
    )
    off = stats.difference(log2_more.tolist(), (log2_less + expected).tolist())
    measure = f"log2 k*, {_named(more)} less {_named(less)}{' a layer' if layers > 1 else ''}"
    return claim(
        sentence=sentence,
        measure=f"{measure}, here {off.value + expected:.2f}: its distance from {expected}",
        estimate=stats.size(off),
        threshold=MARGIN,
        right_side="below",
    )


def layer_claim(table: pd.DataFrame, claim: "partial[Claim]", attention: str, first: int, last: int) -> Claim:
    """Judge whether each layer after the first of these, up to the last, doubles the hops, to within `MARGIN`."""
    sentence = f"{attention[0].upper()}{attention[1:]}: each layer doubles the hops."
    return gap_claim(table, claim, sentence, [(attention, last)], [(attention, first)], 1, last - first)


def _outside(table: pd.DataFrame, cells: Sequence[Cell]) -> str:
    """Return a sentence if the horizon of a cell's seed is only a bound."""
    bounds = table[table["bound"] != ""]
    missed = [cell for cell in cells if len(log2_hops(bounds, cell))]
    return f"k* lies outside the hops that rows have: {_named(missed)}." if missed else ""


def _named(cells: Sequence[Cell]) -> str:
    """Return cells as words: "vanilla with 2, 3 layers"."""
    depths: dict[str, list[str]] = {}
    for attention, n_layers in cells:
        depths.setdefault(attention, []).append(str(n_layers))
    return " and ".join(
        f"{attention} with {', '.join(layers)} layer{'s' * (layers != ['1'])}" for attention, layers in depths.items()
    )
