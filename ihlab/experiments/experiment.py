"""What every experiment declares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args, runtime_checkable

import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments.claims import Claim
from ihlab.training.config import RunConfig

if TYPE_CHECKING:  # claims and pictures of a stored table need no torch
    from ihlab.training.run import Run

Scale = Literal["smoke", "laptop", "gpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Planned:
    """One run of an experiment and the curve that it belongs to.

    `stacked`: it may be a member of an ensemble (`ihlab.training.ensemble`) with those that differ in no more than
    members can, and is then the run it would be alone to rounding, not to the last bit.
    """

    curve: str
    config: RunConfig
    stacked: bool = False


@runtime_checkable
class Experiment(Protocol):
    """A figure or table: which runs make it, what it must bear out, how it is drawn.

    `claims` and `draw` see nothing but the table that is stored beside the picture, so that both can
    be made again from it, without training and without torch.
    """

    name: str

    def runs(self, scale: Scale) -> list[Planned]:
        """Every run of every curve, all seeds."""
        ...

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """The table, from each finished run with its curve."""
        ...

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """The paper's sentences against the measured table."""
        ...

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """The picture."""
        ...

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """One sentence, with numbers, of what the table shows at this scale."""
        ...


METHODS = ("runs", "gather", "claims", "draw", "summary")
"""What an experiment must have."""


@runtime_checkable
class TwoStages(Protocol):
    """An experiment some of whose runs depend on how others ended: rates chosen on tuning seeds, runs that go on."""

    def follow(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> list[Planned]:
        """The runs of the second stage, from the finished ones of the first. `gather` is given both."""
        ...
