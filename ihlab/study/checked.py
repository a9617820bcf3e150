"""What a study must have before it is trained: cells and seeds that a table can tell apart, questions about them."""

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pandas as pd

from ihlab.study.ask import Ask, Cell, Measured, Number, OfCells, cell_key, curve_of
from tasks.config import ConfigError, require

Study = Any  # `ihlab.study.study.Study`, which imports this module

OF_A_RUN = ("kind", "lr", "seed", "horizon")
"""Columns of every study's table that belong to the run."""

SMOKE_SEEDS = (0, 1)
"""The claims' seeds at smoke scale."""


def require_study(study: Study) -> None:
    """Raise `ConfigError` for a study whose table could not answer its questions, or would answer them wrongly."""
    name = f"Study '{study.name}'"
    for field in ("cells", "asks"):
        require(len(getattr(study, field)) > 0, f"{name} has no {field}: give it at least one.")
    for field in ("cells", "smoke", "later"):
        _require_cells_apart(f"{name}, {field}", getattr(study, field))
    known = [*study.cells, *study.smoke, *study.later]
    _require_one_name(name, known)
    for cell in study.cells:
        _require_seeds(study, f"{name}, cell {dict(cell)}", cell)
        _require_rates(study, f"{name}, cell {dict(cell)}", cell)
    for ask in study.asks:
        require(isinstance(ask, Ask), f"{name}: {ask!r} is among the asks, but must be an Ask.")
    repeated = _repeated(ask.id for ask in study.asks)
    require(repeated is None, f"{name} has two questions with the id {repeated!r}, but each needs its own.")
    for ask in study.asks:
        _require_answerable(ask, f"{name}, question '{ask.id}'", known)


def _require_cells_apart(field: str, cells: Sequence[Cell]) -> None:
    for cell in cells:
        require(len(cell) > 0, f"{field}: a cell has no columns: give it at least one, such as {{'variant': 'A'}}.")
        for column, value in cell.items():
            require(isinstance(column, str), f"{field}: the column {column!r} of {dict(cell)} must be a text.")
            require(
                column == "lr" or column not in OF_A_RUN,
                f"{field}: a cell has the column '{column}', which belongs to its runs: give it another name.",
            )
            require(
                pd.api.types.is_scalar(value) or not pd.api.types.is_list_like(value),
                f"{field}: {column} is {value!r}, but a cell of a table needs one text or number.",
            )
    repeated = _repeated(map(cell_key, cells))
    same = [dict(cell) for cell in cells if cell_key(cell) == repeated]
    require(not same, f"{field}: {' and '.join(map(str, same))} are one cell in a stored table: name each cell once.")


def _require_one_name(name: str, cells: Sequence[Cell]) -> None:
    """Raise `ConfigError` for two cells whose runs would have one name, or that have other columns."""
    named: dict[str, Cell] = {}
    for cell in cells:
        other = named.setdefault(curve_of(cell), cell)
        require(
            cell_key(other) == cell_key(cell),
            f"{name}: the runs of {dict(other)} and of {dict(cell)} have one name, '{curve_of(cell)}': "
            f"change a value of one of them.",
        )
        require(
            set(cell) == set(cells[0]),
            f"{name}: {dict(cells[0])} and {dict(cell)} have different columns, but all cells need the same.",
        )


def _require_seeds(study: Study, words: str, cell: Cell) -> None:
    seeds = list(study.seeds(cell) if callable(study.seeds) else study.seeds)
    tuned = study.tuned(cell) if callable(study.tuned) else study.tuned
    require(len(seeds) > 0, f"{words} has no seeds: give it at least one.")
    repeated = _repeated(seeds)
    require(repeated is None, f"{words} has the seed {repeated} twice, but a run counts once.")
    if tuned is None:
        return
    require(len(tuned.seeds) > 0, f"{words} has no tuning seeds: give it at least one.")
    repeated = _repeated(tuned.seeds)
    require(repeated is None, f"{words} has the tuning seed {repeated} twice, but a run counts once.")
    claimed = {*seeds, *(SMOKE_SEEDS if "smoke" in study.scales else ())}
    both = sorted(claimed.intersection(tuned.seeds))
    require(
        not both,
        f"{words}: the seeds {', '.join(map(str, both))} are for tuning and for claims "
        f"(smoke scale has the seeds 0 and 1): give Tuned(seeds=...) others.",
    )


def _require_rates(study: Study, words: str, cell: Cell) -> None:
    def tuned(cell: Cell) -> Any:
        return study.tuned(cell) if callable(study.tuned) else study.tuned

    if (own := tuned(cell)) is None:
        return
    source = own.same_as(cell)
    there = tuned(source) if cell_key(source) in map(cell_key, study.cells) else None
    require(
        there is not None and cell_key(there.same_as(source)) == cell_key(source),
        f"{words} takes the rate of {dict(source)}, which is no tuned cell: correct Tuned(same_as=...).",
    )
    require(len(own.rates_of(cell, "laptop")) > 0, f"{words} has no rates to try: give Tuned(rates=...) at least one.")


def _require_answerable(ask: Ask, words: str, known: Sequence[Cell]) -> None:
    for cell in ask.cells:
        close = [each for each in known if cell_key(cell) <= cell_key(each)]
        require(len(close) > 0, f"{words}: the study does not train {dict(cell)}, a cell of the question.")
    first = ask.first.number if isinstance(ask.first, Ask) else ask.first
    for number in (ask.number, *([] if first is None else [first])):
        if isinstance(number, OfCells):
            for cell in number.cells:
                _require_one_cell(cell, words, known)
        else:
            _try_without_rows(number, words, known)


def _require_one_cell(cell: Cell, words: str, known: Sequence[Cell]) -> None:
    """Raise `ConfigError` for a cell of a number that is not trained, or that is several trained cells.

    A column that no cell has may be one that `measure` returns.
    """
    columns = list(known[0])
    chosen = cell_key({name: value for name, value in cell.items() if name in columns and name not in OF_A_RUN})
    close = {cell_key(each) for each in known if chosen <= cell_key(each)}
    require(len(close) > 0, f"{words}: the study does not train {dict(cell)}.")
    left_out = ", ".join(name for name in columns if name not in cell)
    require(
        len(close) == 1 or not left_out,
        f"{words}: {dict(cell)} leaves out {left_out}, so it counts the runs of {len(close)} cells as seeds of one.",
    )


def _try_without_rows(number: Number, words: str, known: Sequence[Cell]) -> None:
    """Raise `ConfigError` for a function that fails on a table without rows otherwise than for want of runs."""
    table = pd.DataFrame(columns=list(dict.fromkeys(("kind", *known[0], *OF_A_RUN))))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measured = number(table)
    except (ConfigError, LookupError, ValueError, ArithmeticError, pd.errors.UndefinedVariableError):
        return  # it needs runs, or a measured column
    except Exception as error:
        raise ConfigError(f"{words}: its number raises {type(error).__name__} without runs: {error}.") from None
    require(isinstance(measured, Measured), f"{words}: its number is {measured!r}, but must be a Measured.")


def _repeated(values: Iterable[Hashable]) -> Hashable | None:
    """Return the first value that comes a second time; None if there is none."""
    values, earlier = list(values), set[Hashable]()
    return next((value for value in values if value in earlier or earlier.add(value)), None)  # type: ignore[func-returns-value]
