"""An experiment's folder: the picture, the CSV behind it, the claims and the manifest."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ihlab.experiments.claims import NOT_TESTED, judged
from ihlab.experiments.experiment import Experiment, Scale
from ihlab.files import write_json, write_text
from ihlab.plots.style import save
from tasks.config import ConfigError


@dataclass(frozen=True)
class Folder:
    """`<root>/<experiment>/<scale>/`: one scale never overwrites another, and pictures carry it in their name."""

    root: Path
    experiment: str
    scale: Scale

    @property
    def path(self) -> Path:
        """The folder."""
        return self.root / self.experiment / self.scale

    def publish(self, experiment: Experiment, data: pd.DataFrame, manifest: dict[str, Any] | None = None) -> None:
        """Write the CSV, the claims, the summary sentence, the picture and, if given, the manifest."""
        write_text(self.path / "data.csv", data.to_csv(index=False))
        claims = judged(experiment.claims(data, self.scale))
        write_json(self.path / "claims.json", [claim.to_dict() for claim in claims])
        write_text(self.path / "summary.md", experiment.summary(data, self.scale) + "\n")
        if manifest is not None:
            write_json(self.path / "manifest.json", manifest)
        save(experiment.draw(data, self.scale), self.path / f"{self.experiment}-{self.scale}")

    def data(self) -> pd.DataFrame:
        """Return the stored table. Raises `ConfigError` if there is none."""
        path = self.path / "data.csv"
        if not path.exists():
            command = f"ihlab reproduce {self.experiment} --scale {self.scale}"
            raise ConfigError(f"There is no {path} to draw from; '{command}' makes it.")
        return pd.read_csv(path)

    def claims(self) -> list[dict[str, Any]]:
        """Return the stored claims."""
        return list(json.loads((self.path / "claims.json").read_text(encoding="utf-8")))


_STYLES = {"holds": "green", "fails": "bold red", "undecided": "yellow", NOT_TESTED: "dim"}


def print_ledger(console: Console, folders: list[Folder]) -> None:
    """Print every claim of the given experiments as one table."""
    table = Table(title="Claims against what was measured", show_lines=True, title_justify="left")
    for column in ("figure", "claim", "measured", "needs", "verdict"):
        table.add_column(column, overflow="fold")
    for folder in folders:
        for claim in folder.claims():
            verdict = claim["verdict"]
            table.add_row(
                f"{folder.experiment}\n{folder.scale}",
                f"{escape(claim['sentence'])}\n[dim]{escape(claim['source'])}[/]",
                escape(claim.get("why", "") if verdict == NOT_TESTED else _measured(claim)),
                "" if verdict == NOT_TESTED else _needed(claim),
                f"[{_STYLES[verdict]}]{verdict}[/]",
            )
    console.print(table)


def _measured(claim: dict[str, Any]) -> str:
    low, high = (_number(x) for x in claim["interval"])
    interval = "counted" if claim["confidence"] == 1 else f"[{low}, {high}] {claim['confidence']:.0%}"
    value = "nothing" if claim["value"] is None else _number(claim["value"])
    seeds = f", {claim['seeds']} seeds" if claim["seeds"] else ""
    p = "" if claim["p_holm"] is None else f", p = {claim['p_holm']:.2g}"
    return f"{claim['measure']}: {value} {interval}{seeds}{p}"


def _needed(claim: dict[str, Any]) -> str:
    return f"{'>' if claim['right_side'] == 'above' else '<'} {_number(claim['threshold'])}"


def _number(x: float | None) -> str:
    return "unbounded" if x is None else f"{x:.3g}"
