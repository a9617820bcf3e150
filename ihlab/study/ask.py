"""A question about a study's table: a sentence, the number that decides it, and its threshold.

A `Number` maps the table to a `Measured`: the number with its interval, a description, and how many
seeds it has. The functions below return the usual numbers, such as the mean of a column over the
seeds of a cell, or the difference between two cells. A cell gives columns their values: {"variant":
"V only"}. Any other function from the table to a `Measured` is a `Number`, too.
"""

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pandas as pd

from ihlab.study import stats
from ihlab.study.claim import Claim, at_floor, slug
from ihlab.study.rates import count_in_words, rate_in_words
from tasks.config import ConfigError, require, shown

Cell = Mapping[str, Any]
"""A cell of a study: the values of some columns of its table."""

TUNING, RUN = "tuning", "run"
"""Values of the column `kind`: tuning runs choose a learning rate, and claims use the other runs.
"""

WORDS = {
    "steps_to_90": "steps to 90% accuracy",
    "crossing": "steps to 90% accuracy",
    "best": "highest accuracy",
    "accuracy": "accuracy after training",
}
"""Names of columns in words. A column that is not listed keeps its own name."""


class Measured(NamedTuple):
    """A number with its interval. `why`: the reason why the question cannot be tested; "" if it
    can.
    """

    measure: str
    estimate: stats.Estimate | None
    seeds: int
    why: str = ""


Number = Callable[[pd.DataFrame], Measured]
Threshold = float | Callable[[pd.DataFrame], float]


class NoRunsError(ConfigError, LookupError):
    """The table has no run of `cell`."""

    def __init__(self, message: str, cell: Cell | None = None) -> None:
        super().__init__(message)
        self.cell = cell


class RepeatedSeedError(ConfigError):
    """A number counts a seed twice."""


@dataclass(frozen=True)
class OfCells:
    """A number that reads the given cells. Before training, a study checks that it trains these
    cells.
    """

    cells: tuple[Cell, ...]
    number: Number

    def __post_init__(self) -> None:
        for cell in self.cells:
            require(
                isinstance(cell, Mapping),
                f"A number has the cell {shown(cell)}, but a cell gives columns their values: {{'variant': 'A'}}.",
            )

    def __call__(self, data: pd.DataFrame) -> Measured:
        """Return the number with its interval. Raises `NoRunsError`, and `RepeatedSeedError`."""
        return self.number(data)


@dataclass(frozen=True)
class Ask:
    """A question of a study: a sentence that holds if the number is `above` or `below` a threshold.

    The threshold is a number, or a function of the table if it depends on the task.

    - `id`: a stable name of the question, unique in its figure. "faster.rope" and "faster.alibi"
      are one question asked in two settings;
    - `setting`: what sets it apart from the same question in other settings, such as {"positions":
      "RoPE"};
    - `statement`: the number of the paper's statement that it answers (docs/coverage.md), if any;
    - `against`: whether the paper says the contrary: if the sentence holds, the paper's statement
      does not;
    - `source`: the place in the paper, or where the question comes from; `of_paper`: whether the
      paper says it;
    - `declared`: the date on which it was asked; "": the study's;
    - `first`, `changed`: the number as first declared, if it was changed after the runs, with the
      date and the reason; an `Ask` if the threshold was changed, too.
    """

    id: str
    sentence: str
    number: Number
    _: KW_ONLY
    above: Threshold | None = None
    below: Threshold | None = None
    source: str = "a question of our own"
    of_paper: bool = False
    statement: int | None = None
    against: bool = False
    setting: Mapping[str, str] = field(default_factory=dict)
    declared: str = ""
    first: "Number | Ask | None" = None
    changed: str = ""

    def __post_init__(self) -> None:
        require(
            (self.above is None) != (self.below is None),
            f"Ask '{self.id}' needs one of above and below.",
        )
        threshold = self._threshold
        is_number = isinstance(threshold, int | float) and not math.isnan(threshold)
        require(
            is_number or callable(threshold),
            f"Ask '{self.id}': the threshold is {shown(threshold)}, but must be a number.",
        )

    @property
    def _threshold(self) -> Threshold:
        threshold = self.below if self.above is None else self.above
        return cast(Threshold, threshold)

    def at(self, **labels: Any) -> "Ask":
        """Return this question with a setting, such as positions="learned", and with the setting's
        labels at the end of its id.
        """
        setting = {axis.replace("_", " "): str(label) for axis, label in labels.items()}
        return replace(self, id=claim_id(self.id, *setting.values()), setting=setting)

    def claim(self, data: pd.DataFrame, declared: str) -> Claim:
        """Return the claim. Raises `NoRunsError` if the table lacks a cell."""
        now = self._claim(data, declared)
        if self.first is None:
            return now
        before = self.first
        if not isinstance(before, Ask):
            before = replace(self, number=before)
        first = before._claim(data, declared)
        if (first.estimate, first.threshold, first.why) == (now.estimate, now.threshold, now.why):
            return now
        return replace(now, first=first, changed=self.changed)

    def _claim(self, data: pd.DataFrame, declared: str) -> Claim:
        measured = self.number(data)
        require(
            isinstance(measured, Measured),
            f"The number of question '{self.id}' is {measured!r}, but no Measured.",
        )
        threshold = self._threshold
        if callable(threshold):
            threshold = threshold(data)
        right_side: Literal["above", "below"] = "above"
        if not measured.measure:  # nothing is compared
            threshold = math.nan
        elif self.above is None:
            right_side = "below"
        return Claim(
            id=self.id,
            setting=self.setting,
            statement=self.statement,
            against=self.against,
            source=self.source,
            of_paper=self.of_paper,
            sentence=self.sentence,
            measure=measured.measure,
            estimate=measured.estimate,
            threshold=threshold,
            right_side=right_side,
            seeds=measured.seeds,
            declared=self.declared or declared,
            why=measured.why,
        )


def claim_id(*parts: str) -> str:
    """Return the id of a question in a setting: ("learned", "KV, window 3") is
    "learned.kv_window_3".
    """
    return ".".join(
        slug(word.replace("'", "").encode("ascii", "ignore").decode()) for word in parts
    )


# Cells of a table


def as_stored(value: Any) -> str:
    """Return the text by which a value is found in a table, whether or not the table was read back
    from its CSV.

    A CSV has no types: `1`, `1.0` and "1" are one value.
    """
    text = str(value)
    try:
        return f"{float(text) + 0:.12g}"  # -0 + 0 is 0
    except ValueError:
        return text


def cell_key(cell: Cell) -> frozenset[tuple[str, str]]:
    """Return a key that identifies a cell in a stored table, whatever the order of its columns."""
    return frozenset((column, as_stored(value)) for column, value in cell.items())


def cell_name(cell: Cell) -> str:
    """Return the name of a cell's runs."""
    return " | ".join(map(str, cell.values()))


def of_kind(data: pd.DataFrame, kind: str = RUN) -> pd.DataFrame:
    """Return the rows whose column `kind` has this value. A table without a column `kind` has only
    runs for claims.
    """
    if "kind" not in data:
        return data
    return data[data["kind"] == kind]


def pick(data: pd.DataFrame, cell: Cell, kind: str = RUN) -> pd.DataFrame:
    """Return the rows of a cell, sorted by rate and seed. Raises `NoRunsError` if there is none."""
    rows = of_kind(data, kind)
    for column, value in cell.items():
        if column not in rows:
            rows = rows[:0]
            break
        rows = rows[rows[column].map(as_stored) == as_stored(value)]
    if rows.empty:
        raise NoRunsError(f"The table has no run of {cell_in_words(cell)}.", cell)
    return rows.sort_values([column for column in ("lr", "seed") if column in rows])


def values(data: pd.DataFrame, cell: Cell, column: str) -> list[float]:
    """Return a cell's values of a column, or of a formula such as "whole - without_own", sorted by
    seed.
    """
    rows = pick(data, cell).sort_values("seed")
    repeated = rows.loc[rows["seed"].duplicated(), "seed"]
    if len(repeated):
        raise RepeatedSeedError(
            f"The table has {int((rows['seed'] == repeated.iloc[0]).sum())} rows of seed {repeated.iloc[0]} for "
            f"{cell_in_words(cell)}, but a question needs one row per seed: name every column of the cell, "
            f"or reduce the rows of a run to one number."
        )
    try:
        measured = rows[column] if column in rows else rows.eval(column, engine="python")
        return np.asarray(measured, dtype=float).tolist()
    except NameError:
        raise ConfigError(
            f"A question needs '{column}', but the table has only {', '.join(map(str, rows))}."
        ) from None
    except (SyntaxError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"A question needs numbers in '{column}' of {cell_in_words(cell)}: {shown(error)}."
        ) from None


def waiting_times(
    data: pd.DataFrame, cell: Cell, column: str, last: float = math.inf
) -> list[float]:
    """Return a cell's waiting times, sorted by seed; inf for those above `last`.

    Raises `ConfigError` for a missing one, which must not count as a run that never gets there.
    """
    times = np.asarray(values(data, cell, column))
    require(
        not np.isnan(times).any(),
        f"'{column}' of {cell_in_words(cell)} is missing for some seed, but must be a time.",
    )
    return np.where(times <= last, times, math.inf).tolist()


def cell_in_words(cell: Cell) -> str:
    """Return the values of a cell, numbers with their column: "V only, recall, heads 8"."""
    words = []
    for name, value in cell.items():
        words.append(value if isinstance(value, str) else f"{name} {value}")
    return ", ".join(words)


def _sides(data: pd.DataFrame, one: Cell, other: Cell) -> tuple[str, str, str]:
    """Return two cells in words, each with its learning rate, and what they have in common (",
    recall", or "").
    """
    common = {column: value for column, value in one.items() if other.get(column) == value}
    if not common or len(common) == len(one):
        return _side(data, one), _side(data, other), ""
    return _side(data, one, common), _side(data, other, common), f", {cell_in_words(common)}"


def _side(data: pd.DataFrame, cell: Cell, common: Collection[str] = ()) -> str:
    """Return a cell with its learning rate, and a note if the rate is the highest or lowest tried.

    The columns `common` are left out.
    """
    rows = pick(data, cell)
    words = cell_in_words({name: value for name, value in cell.items() if name not in common})
    if "lr" not in rows or len(set(rows["lr"])) > 1:
        return words
    lr = float(rows["lr"].iloc[0])
    rate = f"{lr:g}"
    if "kind" in data and "steps_to_90" in data:
        with suppress(NoRunsError):  # the rate was not tuned
            rate = rate_in_words(lr, pick(data, cell, TUNING))
    return f"{words} (learning rate {rate})"


# Numbers


def mean_over_seeds(
    column: str, cell: Cell, within: stats.Range = stats.ANY, words: str = ""
) -> Number:
    """Return the mean of a column, or of a formula of columns, over a cell's seeds. `words`: its
    description.
    """

    def number(data: pd.DataFrame) -> Measured:
        by_seed = values(data, cell, column)
        measure = f"{words or WORDS.get(column, column)}, mean over seeds, {_side(data, cell)}"
        return Measured(measure, stats.mean(by_seed, within), len(by_seed))

    return OfCells((cell,), number)


def learned(cell: Cell) -> Number:
    """Return the fraction of a cell's seeds that reach 90% accuracy."""

    def number(data: pd.DataFrame) -> Measured:
        steps = waiting_times(data, cell, "steps_to_90")
        within = f"{pick(data, cell)['horizon'].max():.0f} steps"
        measure = f"fraction of seeds with an accuracy of 90% within {within}, {_side(data, cell)}"
        return Measured(measure, stats.share(int(np.isfinite(steps).sum()), len(steps)), len(steps))

    return OfCells((cell,), number)


def difference(
    one: Cell,
    other: Cell,
    column: str,
    guess: float | None = None,
) -> Number:
    """Return a column of one cell minus that of another: the median over all pairs of runs.

    With `guess`, the accuracy of guessing, nothing is tested if neither side is better than that.
    """

    def number(data: pd.DataFrame) -> Measured:
        a, b = values(data, one, column), values(data, other, column)
        means = float(np.mean(a)), float(np.mean(b))
        if guess is not None and at_floor(*means, guess=guess):
            return Measured("", None, len(a), "Neither model has learned the task.")
        first, second, common = _sides(data, one, other)
        sides = f"{first} minus {second}{common} (means {means[0]:.2f} and {means[1]:.2f})"
        measure = f"{WORDS.get(column, column.replace('_', ' '))}, {sides}"
        return Measured(measure, stats.shift(a, b, stats.DIFFERENCE), len(a))

    return OfCells((one, other), number)


def ratio(one: Cell, other: Cell, column: str = "steps_to_90") -> Number:
    """Return the ratio of two cells' waiting times, one / other.

    Times count up to the smallest number of steps of the compared runs: a run that ended earlier
    would look slower than it is.
    """

    def number(data: pd.DataFrame) -> Measured:
        last = min(*values(data, one, "horizon"), *values(data, other, "horizon"))
        a, b = waiting_times(data, one, column, last), waiting_times(data, other, column, last)
        first, second, common = _sides(data, one, other)
        counts = (
            f"{count_in_words(a)} and {count_in_words(b)} seeds reach it within {last:.0f} steps"
        )
        measure = f"{WORDS.get(column, column)}, {first} / {second}{common} ({counts})"
        if at_floor(float(np.isfinite(a).mean()), float(np.isfinite(b).mean())):
            return Measured(
                measure,
                None,
                len(a),
                "Neither model reaches it within the steps, so nothing is compared.",
            )
        return Measured(measure, stats.ratio_of_times(a, b, last), len(a))

    return OfCells((one, other), number)


def described(
    measure: str, estimate: Callable[[pd.DataFrame], stats.Estimate], cell: Cell | None = None
) -> Number:
    """Return a number from its description and a function of the table.

    It counts the seeds of `cell`, or those of all runs for claims.
    """

    def number(data: pd.DataFrame) -> Measured:
        rows = of_kind(data) if cell is None else pick(data, cell)
        return Measured(measure, estimate(data), int(rows["seed"].nunique()))

    if cell is None:
        return number
    return OfCells((cell,), number)


def on_table(change: Callable[[pd.DataFrame], pd.DataFrame], number: Number) -> Number:
    """Return a number that is measured on the changed table, `change(table)`."""
    return lambda data: number(change(data))


def untested_if(reason: Callable[[pd.DataFrame], str], number: Number) -> Number:
    """Return a number that is not tested if `reason` returns a reason. Holm's correction then
    leaves it out.
    """
    require(
        not isinstance(reason, OfCells),
        "untested_if(reason, number): the reason is a number: exchange the two.",
    )

    def measured(data: pd.DataFrame) -> Measured:
        why = reason(data)
        if not why:
            return number(data)
        return Measured("", None, number(data).seeds, why)

    if isinstance(number, OfCells):
        return OfCells(number.cells, measured)
    return measured


def claims_of(
    asks: Sequence[Ask], data: pd.DataFrame, declared: str, skip_untrained_cells: bool = False
) -> list[Claim]:
    """Return the claims of all questions that the table can answer. One warning names the others.

    A table of an earlier version may lack columns or cells that newer questions need. With
    `skip_untrained_cells`, questions whose cells the table lacks are left out without a warning.
    Raises `ConfigError` if the table answers no question, and if a question would count a seed
    twice or has values outside the range of its statistic.
    """
    claims: list[Claim] = []
    left: dict[str, Exception] = {}
    for ask in asks:
        try:
            claims.append(ask.claim(data, declared))
        except (RepeatedSeedError, stats.OutOfRangeError) as error:
            raise type(error)(f"Question '{ask.id}': {error}") from None
        except (ConfigError, LookupError) as error:
            if not (skip_untrained_cells and isinstance(error, NoRunsError)):
                left[ask.id] = error
    if left:
        first = next(iter(left.values()))
        why = str(first).rstrip(".")
        if isinstance(first, KeyError):
            why = f"It has no {first}"
        message = f"The table leaves {len(left)} of {len(asks)} questions unanswered ({why}): {', '.join(left)}."
        require(bool(claims), message)
        warnings.warn(message, stacklevel=2)
    return claims
