"""A study as data: the cells that it trains, what it measures of a run, what it asks about the table, and its picture.

A study's table has one or more rows per run: `kind` ("tuning" or "run"), the cell's columns, `lr`, `seed`, `horizon`
(the number of steps) and what `measure` returns. Questions and views read this table, so both can be made again from
the stored CSV without training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.plots.style import printed
from ihlab.plots.views import Curves, Dots
from ihlab.study.ask import RUN, TUNING, Ask, Cell, cell_key, cells_read, claims_of, curve_of, of_kind
from ihlab.study.checked import SMOKE_SEEDS, require_study
from ihlab.study.claim import Claim
from ihlab.study.experiment import Planned, Scale, Trained
from ihlab.study.learning_curves import final_loss, slug
from ihlab.study.rates import ACCURACY, count_in_words, fastest_rate, median_in_words
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks.config import require

if TYPE_CHECKING:
    from ihlab.training.run import Run
else:
    Run = Any  # a stored table needs no torch

Measure = Callable[[Run], Mapping[str, Any] | pd.DataFrame]
Rates = tuple[float, ...] | Callable[[Cell], tuple[float, ...]]


def cells(**axes: Sequence[Any]) -> list[Cell]:
    """Return every combination of the values of some columns."""
    return [dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values())]


def steps_to_90(run: Run) -> dict[str, float]:
    """Return `steps_to_90`, the first step with 90% accuracy (inf: never), the last `accuracy` and the `best` one.

    The accuracy is the one named by `RunConfig.stop_at_metric`.
    """
    metrics, accuracy = run.metrics, run.metrics[run.config.stop_at_metric]
    reached = first_reach(metrics["step"], accuracy, ACCURACY)
    return {"steps_to_90": reached, "accuracy": float(accuracy.iloc[-1]), "best": float(accuracy.max())}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Every cell is trained at each rate on tuning seeds, and then at its best rate on the seeds of the claims.

    - `by`: what makes a rate the best. "steps": the fewest steps to 90% accuracy, or the highest accuracy if no run
      gets there. "loss": the lowest held-out loss;
    - `smoke`: the rates of smoke scale, by default the first;
    - `smoke_seeds`: the number of tuning seeds at smoke scale;
    - `changes`: fields of the config that differ in tuning runs;
    - `same_as`: from a cell to the one whose rate it takes, by default itself.
    """

    rates: Rates
    by: Literal["steps", "loss"] = "steps"
    seeds: tuple[int, ...] = (100, 101)
    smoke: Rates = ()
    smoke_seeds: int = 1
    changes: Mapping[str, Any] = field(default_factory=dict)
    same_as: Callable[[Cell], Cell] = lambda cell: cell

    def rates_of(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the rates that are tried for a cell."""
        rates, smoke = (each(cell) if callable(each) else each for each in (self.rates, self.smoke))
        return (smoke or rates[:1]) if scale == "smoke" else rates

    def best(self, runs: Sequence[Run]) -> float:
        """Return the best learning rate of a cell's tuning runs. In a tie the smallest wins."""
        if self.by == "loss":
            return min((final_loss(run), run.config.lr) for run in runs)[1]
        table = pd.DataFrame([{"lr": run.config.lr, "horizon": run.config.steps, **steps_to_90(run)} for run in runs])
        if np.isinf(table["steps_to_90"]).all():
            best = table["best"].round(6).groupby(table["lr"]).mean()
            return float(best.index[int(best.to_numpy().argmax())])
        return fastest_rate(table)


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a figure trains, measures, asks and shows. It is an `Experiment`.

    Raises `ConfigError` if a question could not be answered or would count a run twice (`ihlab.study.checked`).

    - `cells`, `smoke`: the trained cells, and those of smoke scale (default: all);
    - `config`: from a cell and a scale to the config of its runs, before learning rate and seed are set;
    - `seeded`: changes of a run's config that depend on its seed;
    - `seeds`: the claims' seeds, of all cells or of each; smoke scale has seeds 0 and 1;
    - `tuned`: how rates are tuned, for all cells or for each; None: the config has the rate;
    - `stacked`: whether runs may be trained as members of an ensemble, of all cells or of each;
    - `measure`: the columns of one run, or a table with any number of rows;
    - `measure_tuning`: the same for tuning runs, whose models no claim uses;
    - `follow_up`: returns the cell and the config of each run that continues a finished one; `later`: those cells;
    - `asks`, `declared`: the questions, and the date on which they were fixed, before the runs;
    - `view`: the picture of all runs except the tuning runs; `title`, `key`: the two lines above it;
    - `interactive`: from those runs and a title to a picture to explore (`ihlab.plots.interactive`); Dots and Curves
      need none;
    - `more_views`: further pictures, by the suffix of their files' names;
    - `shown`: columns of the summary, which has one row per cell with their medians, or a function that makes it;
    - `scales`: the scales at which it can be made.
    """

    name: str
    title: str
    declared: str
    cells: Sequence[Cell]
    config: Callable[[Cell, Scale], RunConfig]
    asks: Sequence[Ask]
    view: Callable[[pd.DataFrame], Figure]
    interactive: Callable[[pd.DataFrame, str], Any] | None = None
    more_views: Mapping[str, Callable[[pd.DataFrame], Figure]] = field(default_factory=dict)
    key: str = ""
    shown: Sequence[str] | Callable[[pd.DataFrame], pd.DataFrame] = ("steps_to_90",)
    seeds: Sequence[int] | Callable[[Cell], Sequence[int]] = range(8)
    seeded: Callable[[RunConfig, Cell], RunConfig] = lambda config, _: config
    tuned: Tuned | Callable[[Cell], Tuned] | None = None
    measure: Measure = steps_to_90
    measure_tuning: Measure = steps_to_90
    follow_up: Callable[[Trained, Scale], list[tuple[Cell, RunConfig]]] | None = None
    later: Sequence[Cell] = ()
    stacked: bool | Callable[[Cell], bool] = False
    smoke: Sequence[Cell] = ()
    scales: tuple[Scale, ...] = ("smoke", "laptop")

    def __post_init__(self) -> None:
        require_study(self)

    @property
    def two_stages(self) -> bool:
        """Whether later runs depend on the first ones."""
        return self.tuned is not None or self.follow_up is not None

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs, or all runs if no rate is tuned."""
        planned = []
        for cell in self._cells(scale):
            tuned = self._tuned(cell)
            if tuned is None:
                planned += self._plan(cell, scale, None, self._seeds(cell, scale))
            elif cell_key(tuned.same_as(cell)) == cell_key(cell):
                seeds = tuned.seeds[: tuned.smoke_seeds if scale == "smoke" else None]
                for lr in tuned.rates_of(cell, scale):
                    planned += self._plan(cell, scale, lr, seeds, **tuned.changes)
        return planned

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan every cell at its own rate, or the runs that continue the first ones."""
        if self.follow_up is not None:
            return [Planned(curve_of(cell), config) for cell, config in self.follow_up(trained, scale)]
        planned, cells = [], self._by_name
        for cell in self._cells(scale):
            if tuned := self._tuned(cell):
                tuning = cell_key(tuned.same_as(cell))
                lr = tuned.best([run for curve, run in trained if cell_key(cells[curve]) == tuning])
                planned += self._plan(cell, scale, lr, self._seeds(cell, scale))
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Measure every run. Return the table that the module's docstring describes."""
        named, parts = self._by_name, []
        for curve, run in trained:
            tuned = self._tuned(named[curve])
            tuning = tuned is not None and run.config.seed in tuned.seeds
            measured = (self.measure_tuning if tuning else self.measure)(run)
            rows = measured if isinstance(measured, pd.DataFrame) else pd.DataFrame([measured])
            known = {
                "kind": TUNING if tuning else RUN, **named[curve], "lr": run.config.lr, "seed": run.config.seed,
                "horizon": run.config.steps - run.config.first_step,
            }  # fmt: skip
            taken = [column for column in known if column in rows]
            require(
                not taken,
                f"Study '{self.name}': measure returns {', '.join(taken)}, but these columns describe the run.",
            )
            if len(rows):
                parts.append(pd.DataFrame({**known, **rows.round(6)}, index=rows.index))
        require(len(parts) > 0, f"Study '{self.name}': measure returns no row for any run.")
        return pd.concat(parts, ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the questions. Smoke scale leaves out those about cells that it does not train."""
        return claims_of(self.asks, data, self.declared, partly=scale == "smoke" and bool(self.smoke))

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the view of the runs that claims use."""
        return self._picture(self.view, data, scale)

    @property
    def has_interactive(self) -> bool:
        """Whether it has a picture to explore."""
        return self.interactive is not None or isinstance(self.view, Dots | Curves)

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw the picture to explore. Hover names the questions that a run answers."""
        from ihlab.plots import interactive

        title, runs = self._heading(scale), self._runs_of_claims(data)
        if self.interactive is not None:
            return self.interactive(runs, title)
        return interactive.view(self.view, runs, title, {ask.id: cells_read(ask, data) for ask in self.asks})

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the further views."""
        return {suffix: self._picture(view, data, scale) for suffix, view in self.more_views.items()}

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the median of every shown column by cell, with the number of seeds, and of those that reach 90%."""
        if callable(self.shown):
            return self.shown(self._runs_of_claims(data))
        return medians(self._runs_of_claims(data), list((*self.cells, *self.later)[-1]), self.shown)

    @printed
    def _picture(self, view: Callable[[pd.DataFrame], Figure], data: pd.DataFrame, scale: Scale) -> Figure:
        figure = view(self._runs_of_claims(data))
        figure.suptitle("\n".join(filter(None, (self._heading(scale), self.key))), fontsize=11)
        return figure

    def _heading(self, scale: Scale) -> str:
        return f"{self.title} ({scale} scale)"

    def _runs_of_claims(self, data: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of these runs, with "none" where a cell has no value: a group of NaN would be left out."""
        runs = of_kind(data)
        absent = [column for column in self.cells[0] if column in runs and runs[column].isna().any()]
        return runs.assign(**{column: runs[column].astype(object).fillna("none") for column in absent})

    @property
    def _by_name(self) -> dict[str, Cell]:
        """Every cell by the name of its runs."""
        return {curve_of(cell): cell for cell in (*self.cells, *self.smoke, *self.later)}

    def _cells(self, scale: Scale) -> Sequence[Cell]:
        return self.smoke if scale == "smoke" and self.smoke else self.cells

    def _seeds(self, cell: Cell, scale: Scale) -> Sequence[int]:
        if scale == "smoke":
            return SMOKE_SEEDS
        return self.seeds(cell) if callable(self.seeds) else self.seeds

    def _tuned(self, cell: Cell) -> Tuned | None:
        return self.tuned(cell) if callable(self.tuned) else self.tuned

    def _plan(self, cell: Cell, scale: Scale, lr: float | None, seeds: Sequence[int], **changes: Any) -> list[Planned]:
        planned, curve = [], curve_of(cell)
        stacked = self.stacked(cell) if callable(self.stacked) else self.stacked
        for seed in seeds:
            config = self.config(cell, scale).replace(seed=seed, **changes)
            config = self.seeded(config if lr is None else config.replace(lr=lr), cell)
            require(
                cell.get("lr", config.lr) == config.lr,
                f"Study '{self.name}': the runs of {dict(cell)} have the learning rate {config.lr:g}.",
            )
            config = config.replace(name=slug(f"{self.name} {curve} {config.lr:g} {seed}"))
            planned.append(Planned(curve, config, stacked and not config.clamped))
        return planned


def medians(data: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Return the median over seeds of some columns and the number of seeds, for each combination of columns `by`."""
    rows = []
    for cell, runs in data.groupby(list(by), sort=False):
        last = runs.groupby("seed").last()
        found = {column: _median(last[column].tolist()) for column in columns if column in last}
        rows.append({**dict(zip(by, cell, strict=True)), "seeds": len(last), **found})
    return pd.DataFrame(rows).fillna("")


def wide(row: str, across: str, *columns: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a summary with a row for each value of the column `row`, and a column for each value of `across`.

    It has the median of the first of `columns` that was measured there, by default the steps to 90%.
    """

    def shown(data: pd.DataFrame) -> pd.DataFrame:
        table: dict[str, dict[str, Any]] = {}
        for cell in medians(data, (row, across), columns or ("steps_to_90",)).to_dict("records"):
            measured = [cell[column] for column in columns or ("steps_to_90",) if cell.get(column)]
            table.setdefault(cell[row], {row: cell[row]})[cell[across]] = next(iter(measured), "")
        return pd.DataFrame(list(table.values())).fillna("")

    return shown


def _median(found: Sequence[float]) -> str:
    if np.isnan(found).all():
        return ""
    if np.isinf(found).any():
        return f"{median_in_words(found)} ({count_in_words(found)})"
    return f"{float(f'{np.median(found):.3g}'):g}"
