"""The protocol of an experiment: plan the runs of a figure or table, judge its claims and draw it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, cast, get_args, runtime_checkable

import pandas as pd

from ihlab.study.claim import Claim
from ihlab.training.config import RunConfig
from tasks.config import choose, require

if TYPE_CHECKING:  # a config needs no matplotlib, and claims from a stored table need no torch
    from matplotlib.figure import Figure

    from ihlab.training.run import Run

Scale = Literal["smoke", "laptop", "gpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
PUBLISHED: Scale = "laptop"
"""The scale of the published figures."""

Trained = Sequence[tuple[str, "Run"]]
"""Finished runs, each with the name of its cell."""


@dataclass(frozen=True)
class Planned:
    """One run of an experiment, and the name of its cell. The runs of a cell differ only in their
    seeds.

    `stacked`: the run may be trained as a member of an ensemble (`ihlab.training.ensemble`). It
    then equals the run trained alone up to rounding, not bit for bit.
    """

    cell_name: str
    config: RunConfig
    stacked: bool = False


@runtime_checkable
class Experiment(Protocol):
    """A figure or table: its runs, its claims, its drawing.

    `claims`, `draw` and `summary` read only the table that is stored beside the picture, so they
    can be rerun from it without training and without torch. An experiment may also have these
    methods:

    - `follow(trained, scale)`: plan the runs of a second stage, which depend on the finished runs
      of the first;
    - `gather_curves(trained, scale)`: return a second table, of any number of rows per run, which
      pictures and the summary show; None for none;
    - `draw_more(data, scale)`: return further pictures as a dict, by the suffix of the file name;
    - `draw_interactive(data, scale)`: return an interactive picture, a
      `plotly.graph_objects.Figure`.
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

    def draw(self, data: pd.DataFrame, scale: Scale) -> "Figure":
        """Draw the picture."""
        ...

    def summary(self, data: pd.DataFrame, scale: Scale) -> str | pd.DataFrame:
        """Return what the table shows at this scale, in one sentence, or as a table if it has many
        numbers.
        """
        ...


METHODS = ("runs", "gather", "claims", "draw", "summary")
"""Methods that every experiment must have."""


def smoke(run: RunConfig) -> RunConfig:
    """Return a run like the given one that takes a second: 12 steps of 8 sequences, 32 in an
    evaluation.
    """
    return run.replace(
        steps=12,
        batch_size=8,
        accumulate=1,
        warmup=4,
        eval_every=4,
        eval_rows=32,
        checkpoints=min(run.checkpoints, 3),
        compile=False,
    )


def scales_of(experiment: Experiment) -> tuple[Scale, ...]:
    """Return the scales at which an experiment is declared: its attribute `scales`, or all."""
    return tuple(getattr(experiment, "scales", SCALES))


def require_scale(experiment: Experiment, scale: str) -> Scale:
    """Return a scale that the experiment has; raise `ConfigError` for another."""
    scales = scales_of(experiment)
    known = choose("scale", scale, SCALES)
    require(
        known in scales, f"{experiment.name} has no {scale} scale, only {' and '.join(scales)}."
    )
    return cast(Scale, known)
