"""The protocol of an experiment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args, runtime_checkable

import pandas as pd
from matplotlib.figure import Figure

from ihlab.study.claim import Claim
from ihlab.training.config import RunConfig
from tasks.config import choose, require

if TYPE_CHECKING:  # claims and pictures from a stored table do not need torch
    from ihlab.training.run import Run

Scale = Literal["smoke", "laptop", "gpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

Trained = Sequence[tuple[str, "Run"]]
"""Finished runs, each with the name of its cell."""


@dataclass(frozen=True)
class Planned:
    """One run of an experiment and the name of its cell: of the runs that differ from it only in their seeds.

    `stacked`: the run may be trained as a member of an ensemble (`ihlab.training.ensemble`). It then equals the run
    trained alone up to rounding, not bit for bit.
    """

    cell_name: str
    config: RunConfig
    stacked: bool = False


@runtime_checkable
class Experiment(Protocol):
    """A figure or table: its runs, its claims, its drawing.

    `claims`, `draw` and `summary` read only the table that is stored beside the picture, so they can be rerun from it
    without training and without torch.
    """

    @property
    def name(self) -> str:
        """The name of its folder."""
        ...

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan every run of every cell, all seeds."""
        ...

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Return the table of the finished runs."""
        ...

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the paper's sentences by the table."""
        ...

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the picture."""
        ...

    def summary(self, data: pd.DataFrame, scale: Scale) -> str | pd.DataFrame:
        """Return what the table shows at this scale, in one sentence, or as a table if it has many numbers."""
        ...


METHODS = ("runs", "gather", "claims", "draw", "summary")
"""Methods that every experiment must have."""


@runtime_checkable
class TwoStages(Protocol):
    """An experiment with runs that depend on earlier runs, such as learning rates from tuning or continued runs."""

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan the runs of the second stage, given the finished runs of the first. `gather` gets both."""
        ...


def scales_of(experiment: Experiment) -> tuple[Scale, ...]:
    """Return the scales at which an experiment is declared: its attribute `scales`, or all."""
    return tuple(getattr(experiment, "scales", SCALES))


def require_scale(experiment: Experiment, scale: str) -> Scale:
    """Return a scale that the experiment has; raise `ConfigError` for another."""
    scales = scales_of(experiment)
    known = choose("scale", scale, SCALES)
    require(known in scales, f"{experiment.name} has no {scale} scale, only {' and '.join(scales)}.")
    return cast(Scale, known)


def has_second_stage(experiment: Experiment) -> bool:
    """Return whether an experiment plans later runs: a `Study` does only if it tunes rates or continues runs."""
    return isinstance(experiment, TwoStages) and getattr(experiment, "two_stages", True)


@runtime_checkable
class WithCurves(Protocol):
    """An experiment with a second table, of any number of rows per run, which its pictures and its summary show."""

    def gather_curves(self, trained: Trained, scale: Scale) -> pd.DataFrame | None:
        """Return this table; None if this experiment has none."""
        ...


@runtime_checkable
class MorePictures(Protocol):
    """An experiment with pictures beside the first, drawn from the same table."""

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the additional pictures. Each key is the suffix of the picture's file name."""
        ...


@runtime_checkable
class Interactive(Protocol):
    """An experiment with a picture to explore, drawn from the same table."""

    def draw_interactive(self, data: pd.DataFrame, scale: Scale) -> Any:
        """Draw the picture as a `plotly.graph_objects.Figure`."""
        ...


def require_interactive(experiment: Experiment) -> Interactive:
    """Return an experiment with a picture to explore; raise `ConfigError` for another.

    A `Study` has one if its view is `Dots` or `Curves`, or if it has its own.
    """
    has_one = isinstance(experiment, Interactive) and getattr(experiment, "has_interactive", True)
    require(has_one, f"{experiment.name} has no interactive picture: leave out --interactive.")
    return cast(Interactive, experiment)
