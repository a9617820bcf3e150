"""A study as data: the cells that it trains, the columns that it measures, its questions about
them, and its picture.

A study has two tables, from which its claims and pictures can be made again without training:

- data.csv has one row per run: `kind` ("tuning" or "run"), the cell's columns, `lr`, `seed`,
  `horizon` (the number of steps) and what `measure` returns. Questions read only this table;
- curves.csv has what `curve` returns of the runs for claims: the cell's columns, `lr`, `seed`, and
  any number of rows per run. Pictures and the summary read it with the columns of each run
  (`ihlab.study.ledger.with_runs`). Without `curve` they read data.csv.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.style import printed
from ihlab.plots.views import Curves, Dots
from ihlab.study.ask import (
    RUN,
    TUNING,
    Ask,
    Cell,
    cell_key,
    cell_name,
    claims_of,
    of_kind,
)
from ihlab.study.checked import SMOKE_SEEDS, config_arguments, of_cell, require_study
from ihlab.study.claim import DIGITS, Claim
from ihlab.study.experiment import Planned, Scale, Trained, smoke
from ihlab.study.grid import Grid, cells  # noqa: F401  # studies import them beside `Study`
from ihlab.study.learning_curves import final_loss
from ihlab.study.rates import ACCURACY, count_in_words, fastest_rate, median_in_words
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks.config import require, shown

if TYPE_CHECKING:
    from ihlab.training.run import Run
else:
    Run = Any  # a stored table needs no torch

Measure = Callable[[Run], Mapping[str, Any]]
Rates = tuple[float, ...] | Callable[[Cell], tuple[float, ...]]


def steps_to_90(run: Run) -> dict[str, float]:
    """Return `steps_to_90`, the first step with 90% accuracy (inf: never), the last `accuracy` and
    the `best` one.

    The accuracy is the one named by `RunConfig.stop_at_metric`.
    """
    metrics, accuracy = run.metrics, run.metrics[run.config.stop_at_metric]
    reached = first_reach(metrics["step"], accuracy, ACCURACY)
    return {
        "steps_to_90": reached,
        "accuracy": float(accuracy.iloc[-1]),
        "best": float(accuracy.max()),
    }


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Tuning of the rate: train each cell at each learning rate on tuning seeds, then at its best
    on the claims' seeds.

    Smoke scale tries one rate, the first, on one seed.

    - `by`: how rates are compared. "steps": the fewest steps to 90% accuracy, or the highest
      accuracy if no run gets there. "loss": the lowest held-out loss;
    - `changes`: fields of the config that differ in tuning runs;
    - `measure`: a function from a tuning run to its columns (no claim uses the model of a tuning run);
    - `rate_of`: a function from a cell to the cell whose rate it takes, by default itself.
    """

    rates: Rates
    by: Literal["steps", "loss"] = "steps"
    seeds: tuple[int, ...] = (100, 101)
    changes: Mapping[str, Any] = field(default_factory=dict)
    measure: Measure = steps_to_90
    rate_of: Callable[[Cell], Cell] = lambda cell: cell

    def rates_of(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the rates that are tried for a cell."""
        rates: tuple[float, ...] = of_cell(self.rates, cell)
        if scale == "smoke":
            return rates[:1]
        return rates

    def best(self, runs: Sequence[Run]) -> float:
        """Return the best learning rate of a cell's tuning runs. In a tie the smallest wins."""
        if self.by == "loss":
            return min((final_loss(run), run.config.lr) for run in runs)[1]
        table = pd.DataFrame(
            [{"lr": run.config.lr, "horizon": run.config.steps, **steps_to_90(run)} for run in runs]
        )
        if np.isinf(table["steps_to_90"]).all():
            best = table["best"].round(DIGITS).groupby(table["lr"]).mean()
            return float(best.index[int(best.to_numpy().argmax())])
        return fastest_rate(table)


@dataclass(frozen=True, kw_only=True)
class Study:
    """An `Experiment` described by fields: what a figure trains, measures, asks and shows.

    Raises `ConfigError` if a question could not be answered or would count a run twice
    (`ihlab.study.checked`).

    - `cells`, `smoke_cells`: the trained cells, and those of smoke scale (default: all);
    - `config`: a function from a cell to the config of its runs, without the tuned rate. Its cell
      also has the `seed`, for configs that depend on it. Smoke scale changes the config
      (`ihlab.study.experiment.smoke`);
    - `seeds`: the claims' seeds; smoke scale has seeds 0 and 1;
    - `tuned`: how rates are tuned; None: the config has the rate;
    - `stacked`: whether runs may be trained as members of an ensemble;
    - `measure`, `curve`: functions from a run to its columns in data.csv, and to its rows in
      curves.csv;
    - `asks`, `declared`: the questions, and the date on which they were fixed, before the runs;
    - `view`: the picture of all runs except the tuning runs; `title`, `caption`: the two lines
      above it;
    - `interactive`: a function from these runs and a title to an interactive picture
      (`ihlab.plots.interactive`); Dots and Curves need none;
    - `more_views`: further pictures, by the suffix of their files' names;
    - `summary_columns`: columns of the summary, which has one row per cell with their medians, or a
      function that makes it;
    - `scales`: the scales at which it can be made, each with the fields that differ there;
    - `heading`: the heading of its page, a question; the part before a colon is the text of links
      to it;
    - `by_default`: whether `ihlab reproduce` makes it if no figure is named.

    `seeds`, `tuned` and `stacked` are values for all cells, or functions of a cell.
    """

    name: str
    title: str
    declared: str
    cells: Sequence[Cell]
    config: Callable[[Cell], RunConfig]
    asks: Sequence[Ask]
    view: Callable[[pd.DataFrame], Figure]
    interactive: Callable[[pd.DataFrame, str], Any] | None = None
    more_views: Mapping[str, Callable[[pd.DataFrame], Figure]] = field(default_factory=dict)
    caption: str = ""
    summary_columns: Sequence[str] | Callable[[pd.DataFrame], pd.DataFrame] = ("steps_to_90",)
    seeds: Sequence[int] | Callable[[Cell], Sequence[int]] = range(8)
    tuned: Tuned | Callable[[Cell], Tuned] | None = None
    measure: Measure = steps_to_90
    curve: Callable[[Run], pd.DataFrame] | None = None
    stacked: bool | Callable[[Cell], bool] = False
    smoke_cells: Sequence[Cell] = ()
    scales: Sequence[Scale] | Mapping[Scale, Mapping[str, Any]] = ("smoke", "laptop")
    heading: str = ""
    by_default: bool = False

    def __post_init__(self) -> None:
        require_study(self)

    def at_scale(self, scale: Scale) -> "Study":
        """Return the study with the fields that differ at a scale."""
        if not isinstance(self.scales, Mapping) or not self.scales[scale]:
            return self
        return replace(self, scales=(scale,), **self.scales[scale])

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs, or all runs if no rate is tuned."""
        study = self.at_scale(scale)
        planned: list[Planned] = []
        for cell in study._cells(scale):
            tuned = of_cell(study.tuned, cell)
            if tuned is None:
                planned += study._plan(cell, scale, None, study._seeds(cell, scale))
            elif cell_key(tuned.rate_of(cell)) == cell_key(cell):
                seeds = tuned.seeds
                if scale == "smoke":
                    seeds = seeds[:1]
                for lr in tuned.rates_of(cell, scale):
                    planned += study._plan(cell, scale, lr, seeds, **tuned.changes)
        return planned

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan every cell at its own rate."""
        study = self.at_scale(scale)
        runs_of: dict[Any, list[Run]] = {}
        for name, run in trained:
            runs_of.setdefault(cell_key(study._by_name[name]), []).append(run)
        planned: list[Planned] = []
        for cell in study._cells(scale):
            if tuned := of_cell(study.tuned, cell):
                lr = tuned.best(runs_of[cell_key(tuned.rate_of(cell))])
                planned += study._plan(cell, scale, lr, study._seeds(cell, scale))
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Measure every run. Return data.csv, which the module's docstring describes."""
        study, rows = self.at_scale(scale), []
        for name, run in trained:
            cell, config = study._by_name[name], run.config
            kind, measure = RUN, study.measure
            if study._is_tuning(cell, run):
                kind, measure = TUNING, of_cell(study.tuned, cell).measure
            measured = measure(run)
            require(
                isinstance(measured, Mapping),
                f"Study '{self.name}': measure returns {shown(measured)}, but must return one value for each column: "
                f"a table with several rows is what curve returns.",
            )
            columns = dict(measured)
            horizon = columns.pop("horizon", config.steps - config.first_step)
            known = {"kind": kind, **cell, "lr": config.lr, "seed": config.seed, "horizon": horizon}
            rows.append(self._beside(known, pd.DataFrame([columns]), "measure"))
        return pd.concat(rows, ignore_index=True)

    def gather_curves(self, trained: Trained, scale: Scale) -> pd.DataFrame | None:
        """Return curves.csv, which the module's docstring describes; None without `curve`."""
        study, tables = self.at_scale(scale), []
        if study.curve is None:
            return None
        for name, run in trained:
            cell = study._by_name[name]
            if not study._is_tuning(cell, run):
                known = {**cell, "lr": run.config.lr, "seed": run.config.seed}
                tables.append(self._beside(known, study.curve(run), "curve"))
        return pd.concat(tables, ignore_index=True)

    def _is_tuning(self, cell: Cell, run: Run) -> bool:
        tuned = of_cell(self.tuned, cell)
        return tuned is not None and run.config.seed in tuned.seeds

    def _beside(self, known: Cell, measured: pd.DataFrame, function: str) -> pd.DataFrame:
        """Return measured rows, with the columns that describe their run before the measured ones."""
        taken = ", ".join(column for column in known if column in measured)
        require(
            not taken,
            lambda: (
                f"Study '{self.name}': {function} returns {taken}, but these columns describe the run."
            ),
        )
        numbers = measured.select_dtypes("float").map(lambda x: float(f"{x:.{DIGITS}g}"))
        return pd.DataFrame({**known, **measured.assign(**numbers)}, index=measured.index)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Answer the questions: one claim each, with its number and interval.
        `ihlab.study.claim.judged` corrects them.

        Smoke scale leaves out questions about cells that it does not train.
        """
        untrained = scale == "smoke" and bool(self.smoke_cells)
        return claims_of(
            self.at_scale(scale).asks, data, self.declared, skip_untrained_cells=untrained
        )

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the view of the runs that claims use."""
        return self._picture(self.view, data, scale)

    @property
    def has_interactive(self) -> bool:
        """Whether the study has an interactive picture."""
        return self.interactive is not None or isinstance(self.view, Dots | Curves)

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw the interactive picture."""
        from ihlab.plots import interactive

        title, runs = self._heading(scale), of_kind(data)
        if self.interactive is not None:
            return self.interactive(runs, title)
        return interactive.view(self.view, runs, title)

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the pictures of `more_views`."""
        return {
            suffix: self._picture(view, data, scale) for suffix, view in self.more_views.items()
        }

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the median of every summary column for each cell, the number of seeds, and how
        many reach 90%.
        """
        runs = of_kind(data)
        if callable(self.summary_columns):
            return self.summary_columns(runs)
        return medians(runs, list(self.cells[0]), self.summary_columns)

    @printed
    def _picture(
        self, view: Callable[[pd.DataFrame], Figure], data: pd.DataFrame, scale: Scale
    ) -> Figure:
        figure = view(of_kind(data))
        figure.suptitle(f"{self._heading(scale)}\n{self.caption}".rstrip(), fontsize=11)
        return figure

    def _heading(self, scale: Scale) -> str:
        return f"{self.title} ({scale} scale)"

    @property
    def _by_name(self) -> dict[str, Cell]:
        """Every cell by the name of its runs."""
        return {cell_name(cell): cell for cell in (*self.cells, *self.smoke_cells)}

    def _cells(self, scale: Scale) -> Sequence[Cell]:
        if scale == "smoke" and self.smoke_cells:
            return self.smoke_cells
        return self.cells

    def _seeds(self, cell: Cell, scale: Scale) -> Sequence[int]:
        if scale == "smoke":
            return SMOKE_SEEDS
        return of_cell(self.seeds, cell)

    def _plan(
        self, cell: Cell, scale: Scale, lr: float | None, seeds: Sequence[int], **changes: Any
    ) -> list[Planned]:
        planned, name = [], cell_name(cell)
        for seed in seeds:
            config = self.config(*config_arguments(self.config, {**cell, "seed": seed})).replace(
                seed=seed, **changes
            )
            if scale == "smoke":
                config = smoke(config)
            if lr is not None:
                config = config.replace(lr=lr)
            require(
                cell.get("lr", config.lr) == config.lr,
                f"Study '{self.name}': the runs of {dict(cell)} have the learning rate {config.lr:g}.",
            )
            config = config.replace(name=run_name(f"{self.name} {name} {config.lr:g} {seed}"))
            stacked = of_cell(self.stacked, cell) and not config.clamped
            planned.append(Planned(name, config, stacked))
        return planned


def run_name(text: str) -> str:
    """Return a text as the name of a run: "KV shifting, 1 layer" is "kv-shifting-1-layer"."""
    return re.sub("[^a-z0-9.]+", "-", text.lower()).strip("-")


def medians(data: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Return the median over seeds of some columns and the number of seeds, for each combination of
    columns `by`.
    """
    rows = []
    for cell, runs in data.groupby(list(by), sort=False):
        last = runs.groupby("seed").last()
        row = {**dict(zip(by, cell, strict=True)), "seeds": len(last)}
        for column in columns:
            if column in last:
                row[column] = _median(last[column].tolist())
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def wide(row: str, across: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a summary of the steps to 90%: a row for each value of the column `row`, a column for
    each of `across`.
    """

    def summary(data: pd.DataFrame) -> pd.DataFrame:
        table: dict[str, dict[str, Any]] = {}
        for cell in medians(data, (row, across), ("steps_to_90",)).to_dict("records"):
            table.setdefault(cell[row], {row: cell[row]})[cell[across]] = cell["steps_to_90"]
        return pd.DataFrame(list(table.values())).fillna("")

    return summary


def _median(numbers: Sequence[float]) -> str:
    if np.isnan(numbers).all():
        return ""
    if np.isinf(numbers).any():
        return f"{median_in_words(numbers)} ({count_in_words(numbers)})"
    return f"{float(f'{np.median(numbers):.3g}'):g}"
