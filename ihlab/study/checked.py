"""Check a study before it is trained: its table must tell cells and seeds apart, and answer every
question.
"""

import inspect
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ihlab.study.ask import (
    RUN,
    TUNING,
    Ask,
    Cell,
    Measured,
    NoRunsError,
    Number,
    OfCells,
    RepeatedSeedError,
    cell_key,
    cell_name,
)
from ihlab.study.experiment import PUBLISHED, SCALES
from tasks.config import ConfigError, choose, require, shown

Study = Any  # `ihlab.study.study.Study`, which imports this module

OF_A_RUN = ("kind", "lr", "seed", "horizon")
"""Columns of every study's table that belong to the run."""

SMOKE_SEEDS = (0, 1)
"""The claims' seeds at smoke scale."""


def of_cell(value: Any, cell: Cell) -> Any:
    """Return the value of a study's field for a cell: the field may be a value or a function of the
    cell.
    """
    return value(cell) if callable(value) else value


def config_arguments(config: Callable[..., Any], cell: Cell) -> list[Any]:
    """Return the arguments of a study's `config`: a cell, and the published scale if it takes one,
    as before 0.5.
    """
    try:
        inspect.signature(config).bind(cell)
    except TypeError:
        return [cell, PUBLISHED]
    return [cell]


def require_study(study: Study) -> None:
    """Raise `ConfigError` for a study whose table could not answer its questions, or would answer
    them wrongly.
    """
    name = f"Study '{study.name}'"
    try:
        inspect.signature(study.config).bind(*config_arguments(study.config, {}))
    except TypeError:
        raise ConfigError(
            f"{name}: config must be a function of a cell: smoke scale derives its own."
        ) from None
    for field in ("cells", "asks"):
        value = getattr(study, field)
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        require(is_list, f"{name}: {field} is {shown(value)}, but must be a list.")
        require(len(value) > 0, f"{name} has no {field}: give it at least one.")
    require(
        len(study.scales) > 0, f"{name} has no scales: give it at least one of {', '.join(SCALES)}."
    )
    for scale in study.scales:
        choose(f"scale of {name}", scale, SCALES)
    for field in ("cells", "smoke_cells"):
        _require_cells_apart(f"{name}, {field}", getattr(study, field))
    known = [*study.cells, *study.smoke_cells]
    _require_one_name(name, known)
    for cell in study.cells:
        _require_seeds(study, f"{name}, cell {dict(cell)}", cell)
        _require_rates(study, f"{name}, cell {dict(cell)}", cell)
    for ask in study.asks:
        require(isinstance(ask, Ask), f"{name}: {ask!r} is among the asks, but must be an Ask.")
    repeated = _repeated(ask.id for ask in study.asks)
    require(
        repeated is None,
        f"{name} has two questions with the id {repeated!r}, but each needs its own.",
    )
    for ask in study.asks:
        _require_answerable(ask, f"{name}, question '{ask.id}'", known)


def _require_cells_apart(field: str, cells: Sequence[Cell]) -> None:
    for cell in cells:
        require(
            isinstance(cell, Mapping), f"{field}: {shown(cell)} must give columns their values."
        )
        require(
            len(cell) > 0,
            f"{field}: a cell has no columns: give it at least one, such as {{'variant': 'A'}}.",
        )
        for column, value in cell.items():
            require(
                column == "lr" or column not in OF_A_RUN,
                f"{field}: a cell has the column '{column}', which belongs to its runs: give it another name.",
            )
            require(
                isinstance(value, str | int | float | np.integer | np.bool_),
                f"{field}: {column} is {shown(value)}, but a cell of a table needs one text, int, float or bool.",
            )
    repeated = _repeated(map(cell_key, cells))
    same = [dict(cell) for cell in cells if cell_key(cell) == repeated]
    require(
        not same,
        f"{field}: {' and '.join(map(str, same))} are one cell in a stored table: name each cell once.",
    )


def _require_one_name(name: str, cells: Sequence[Cell]) -> None:
    """Raise `ConfigError` for two cells whose runs would have one name, or whose columns differ."""
    named: dict[str, Cell] = {}
    for cell in cells:
        other = named.setdefault(cell_name(cell), cell)
        require(
            cell_key(other) == cell_key(cell),
            f"{name}: the runs of {dict(other)} and of {dict(cell)} have one name, '{cell_name(cell)}': "
            f"change a value of one of them.",
        )
        require(
            set(cell) == set(cells[0]),
            f"{name}: {dict(cells[0])} and {dict(cell)} have different columns, but all cells need the same.",
        )


def _require_seeds(study: Study, words: str, cell: Cell) -> None:
    seeds, tuned = of_cell(study.seeds, cell), of_cell(study.tuned, cell)
    is_list = isinstance(seeds, Sequence | np.ndarray) and not isinstance(seeds, str)
    require(is_list, f"{words}: seeds is {shown(seeds)}, but must be a list of numbers.")
    _require_counted_once(words, "seed", seeds)
    if tuned is None:
        return
    _require_counted_once(words, "tuning seed", tuned.seeds)
    fixed = sorted({"lr", "seed"} & {*tuned.changes})
    require(
        not fixed,
        f"{words}: Tuned(changes=...) has {' and '.join(fixed)}, which tuning sets itself.",
    )
    claimed = {*seeds}
    if "smoke" in study.scales:
        claimed.update(SMOKE_SEEDS)
    both = sorted(claimed.intersection(tuned.seeds))
    require(
        not both,
        f"{words}: the seeds {', '.join(map(str, both))} are for tuning and for claims "
        f"(smoke scale has the seeds 0 and 1): give Tuned(seeds=...) others.",
    )


def _require_counted_once(words: str, kind: str, seeds: Sequence[int]) -> None:
    require(len(seeds) > 0, f"{words} has no {kind}s: give it at least one.")
    for seed in seeds:
        whole = isinstance(seed, int | np.integer) and bool(seed >= 0)
        require(
            whole, f"{words}: a {kind} is {shown(seed)}, but must be a whole number, at least 0."
        )
    repeated = _repeated(seeds)
    require(repeated is None, f"{words} has the {kind} {repeated} twice, but a run counts once.")


def _require_rates(study: Study, words: str, cell: Cell) -> None:
    if (tuned := of_cell(study.tuned, cell)) is None:
        return
    source = tuned.rate_of(cell)
    other = None
    if cell_key(source) in map(cell_key, study.cells):
        other = of_cell(study.tuned, source)
    require(
        other is not None and cell_key(other.rate_of(source)) == cell_key(source),
        f"{words} takes the rate of {dict(source)}, which is no tuned cell: correct Tuned(rate_of=...).",
    )
    rates = tuned.rates_of(cell, "laptop")
    require(len(rates) > 0, f"{words} has no rates to try: give Tuned(rates=...) at least one.")


def _require_answerable(ask: Ask, words: str, known: Sequence[Cell]) -> None:
    numbers = [ask.number]
    if isinstance(ask.first, Ask):
        numbers.append(ask.first.number)
    elif ask.first is not None:
        numbers.append(ask.first)
    for number in numbers:
        if isinstance(number, OfCells):
            for cell in number.cells:
                _require_one_cell(cell, words, known)
        else:
            _try_without_numbers(number, words, known)


def _require_one_cell(cell: Cell, words: str, known: Sequence[Cell]) -> None:
    """Raise `ConfigError` for a cell of a number that is not trained, or that matches several
    trained cells.

    A column that no cell has may be one that `measure` returns.
    """
    columns = list(known[0])
    chosen = cell_key(
        {name: value for name, value in cell.items() if name in columns and name not in OF_A_RUN}
    )
    close = {cell_key(each) for each in known if chosen <= cell_key(each)}
    require(len(close) > 0, f"{words}: the study does not train {dict(cell)}.")
    left_out = ", ".join(name for name in columns if name not in cell)
    require(
        len(close) == 1 or not left_out,
        f"{words}: {dict(cell)} leaves out {left_out}, so it counts the runs of {len(close)} cells as seeds of one.",
    )


def _try_without_numbers(number: Number, words: str, known: Sequence[Cell]) -> None:
    """Raise `ConfigError` for a number that is no function of a table, or that looks for a cell
    which is not trained.

    It is tried on a table that has two rows of one seed for each cell, a tuning run and a claim
    run, but no measured column. Without measurements, even a correct function may fail in any way.
    A cell with further columns is accepted, because `measure` may return these columns.
    """
    require(
        callable(number),
        f"{words}: its number is {shown(number)}, but must be a function of the table.",
    )
    once = {cell_key(cell): cell for cell in known}.values()
    rows = [{"kind": kind, **cell, "seed": 0} for cell in once for kind in (RUN, TUNING)]
    columns = dict.fromkeys(("kind", *known[0], *OF_A_RUN))
    try:
        with warnings.catch_warnings(action="ignore"):
            measured = number(pd.DataFrame(rows, columns=list(columns)))
    except NoRunsError as error:
        measured_too = error.cell is None or not {*error.cell} <= {*known[0]}
        require(measured_too, f"{words}: the study does not train {error.cell}.")
    except RepeatedSeedError as error:
        raise ConfigError(f"{words}: {error}") from None
    except Exception as error:  # it needs measurements
        unknown = isinstance(error, NameError) and not isinstance(
            error, pd.errors.UndefinedVariableError
        )
        require(not unknown, f"{words}: its number raises NameError: {error}.")
    else:
        require(
            isinstance(measured, Measured),
            f"{words}: its number is {shown(measured)}, but must be a Measured.",
        )


def _repeated(values: Iterable[Hashable]) -> Hashable | None:
    """Return the first value that comes a second time; None if there is none."""
    earlier = set[Hashable]()
    for value in values:
        if value in earlier:
            return value
        earlier.add(value)
    return None
