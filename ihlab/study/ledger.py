"""The folder of an experiment: its tables (CSV), claims, summary, pictures and manifest."""

import base64
import hashlib
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ihlab.plots.style import GREEN, ORANGE, RED, write_picture
from ihlab.storage.files import write_json, write_text
from ihlab.storage.stored import as_text, read_json
from ihlab.study.claim import NOT_TESTED, judged
from ihlab.study.experiment import PUBLISHED, Experiment, Scale
from ihlab.study.history import keep_replaced, read_claims, read_history
from ihlab.study.markdown import (
    escaped,
    interval,
    needed,
    plain,
    short,
    table,
    value,
    verdict_counts,
)
from tasks.config import ConfigError, require
from tasks.files import one_at_a_time, remove_partial

if TYPE_CHECKING:  # Styler needs jinja2, which notebooks have
    from pandas.io.formats.style import Styler


@dataclass(frozen=True)
class Folder:
    """The folder of a figure, `home`, at one scale: `home` itself at the published scale, else
    `home/<scale>`.
    """

    home: Path
    scale: Scale = PUBLISHED

    @property
    def experiment(self) -> str:
        """The name of the experiment, which the folder has."""
        return self.home.name

    @property
    def path(self) -> Path:
        """The folder of this scale's files."""
        if self.scale == PUBLISHED:
            return self.home
        return self.home / self.scale

    def publish(
        self,
        experiment: Experiment,
        data: pd.DataFrame,
        manifest: dict[str, Any] | None = None,
        curves: pd.DataFrame | None = None,
    ) -> None:
        """Write the tables, the claims, the summary, the pictures and, if given, the manifest.

        Claims and verdicts that this replaces are kept in the experiment's history; a warning says
        if they cannot be read. Smoke scale has no history. The manifest also records the digests of
        the tables. Raises `ConfigError` if two claims have the same id.
        """
        with one_at_a_time(self.home):
            remove_partial(self.path, "*")
            tables, pictured = {"data.csv": data}, data
            if curves is not None:
                tables["curves.csv"] = curves
                pictured = with_runs(curves, data)
            if manifest is None and self._manifest.exists():
                manifest = read_json(self._manifest)
            for name, rows in tables.items():
                text = rows.to_csv(index=False)
                write_text(self.path / name, text)
                if manifest is not None:
                    manifest = {**manifest, ENTRIES[name]: _table_facts(text)}
            claims = [claim.to_dict() for claim in judged(experiment.claims(data, self.scale))]
            if self.scale != "smoke" and (self.path / "claims.json").exists():
                try:
                    keep_replaced(self._history, self.claims(), claims, self.scale)
                except ConfigError as error:
                    warnings.warn(
                        f"The history does not get the replaced claims: {error}", stacklevel=2
                    )
            write_json(self.path / "claims.json", claims)
            write_text(
                self.path / "summary.md", summary_text(experiment.summary(pictured, self.scale))
            )
            if manifest is not None:
                write_json(self._manifest, manifest)
            write_picture(experiment.draw(pictured, self.scale), self.picture)
            draw_more: Any = getattr(experiment, "draw_more", lambda data, scale: {})
            for ending, picture in draw_more(pictured, self.scale).items():
                write_picture(picture, self.path / f"{self.experiment}-{ending}.svg")

    def write_interactive(self, experiment: Any) -> Path:
        """Write the interactive picture as `<experiment>.html`, beside the `plotly.min.js` that it
        needs.
        """
        from ihlab.plots.interactive import write_page

        page = self.picture.with_suffix(".html")
        write_page(experiment.draw_interactive(self.pictured(), self.scale), page, "directory")
        return page

    def data(self) -> pd.DataFrame:
        """Return the stored table of runs.

        Raises `ConfigError` if there is none, if its digest is not that in the manifest, and if it
        is not a CSV.
        """
        return self._table("data.csv")

    def curves(self) -> pd.DataFrame | None:
        """Return the stored table of curves; None if the experiment has none. Raises `ConfigError`
        as `data`.
        """
        if not (self.path / "curves.csv").is_file() and self._described("curves.csv") is None:
            return None
        return self._table("curves.csv")

    def pictured(self) -> pd.DataFrame:
        """Return the table that pictures show: the curves with the columns of their runs, or the
        runs.
        """
        curves = self.curves()
        if curves is None:
            return self.data()
        return with_runs(curves, self.data())

    def _table(self, name: str) -> pd.DataFrame:
        path, command = self.path / name, f"ihlab reproduce {self.experiment} --scale {self.scale}"
        if not path.is_file():
            raise ConfigError(f"There is no {path} to draw from; '{command}' makes it.")
        now = _table_facts(path.read_bytes().decode("utf-8", "replace"))
        then = self._described(name)
        if isinstance(then, dict):  # a manifest of an older version does not describe its tables
            require(
                then == now,
                f"{path} ({_in_words(now)}) is not the table that the claims were made of ({_in_words(then)}): "
                f"restore it, or delete {self._manifest} if the change is meant.",
            )
        try:
            return pd.read_csv(path, keep_default_na=False, na_values=[""])  # a cell may be "NA"
        except ValueError as error:
            raise ConfigError(
                f"{path} is not a CSV ({error}): restore it; '{command}' makes it again."
            ) from None

    @property
    def picture(self) -> Path:
        """The first picture, as SVG."""
        return self.path / f"{self.experiment}.svg"

    @property
    def pictures(self) -> list[Path]:
        """All pictures of the folder, `picture` first."""
        return sorted(self.path.glob(f"{self.picture.stem}*.svg"), key=lambda path: path.stem)

    def summary(self) -> str:
        """Return the stored summary: a sentence, or a Markdown table."""
        path = self.path / "summary.md"
        return as_text(path.read_bytes(), path).strip()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Show the picture and the summary in a notebook."""
        picture, summary = base64.b64encode(self.picture.read_bytes()).decode(), self.summary()
        image = f'<img style="max-width: 100%" src="data:image/svg+xml;base64,{picture}">'
        return {"text/markdown": f"{image}\n\n{summary}", "text/plain": summary}

    def verdicts(self) -> pd.DataFrame:
        """Return the stored claims as a readable table: the sentence, its number and interval, and
        the verdict.
        """
        columns = ["sentence", "measure", "value", "interval", "needs", "seeds", "verdict"]
        rows = []
        for claim in self.claims():
            limit = plain(needed(claim))
            numbers = [claim["measure"], value(claim), interval(claim).strip(), limit]
            if claim["verdict"] == NOT_TESTED:
                numbers = [claim.get("why", ""), "", "", ""]
            rows.append([claim["sentence"], *numbers, claim["seeds"] or "", _verdict(claim)])
        return pd.DataFrame(rows, columns=columns)

    def claims(self) -> list[dict[str, Any]]:
        """Return the stored claims. Raises `ConfigError` if the file is cut or has other content."""
        return read_claims(self.path / "claims.json")

    def history(self) -> list[dict[str, Any]]:
        """Return the published claims of this scale that were replaced since
        (`ihlab.study.history`).
        """
        return [row for row in read_history(self._history) if row["scale"] == self.scale]

    def _described(self, name: str) -> dict[str, Any] | None:
        """Return what the manifest says of a table; None if there is no manifest, or an older one."""
        if not self._manifest.exists():
            return None
        return read_json(self._manifest).get(ENTRIES[name])

    @property
    def _manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def _history(self) -> Path:
        return self.home / "history.json"


ENTRIES = {"data.csv": "table", "curves.csv": "curves"}
"""Entries of a manifest: the number of lines and the digest of each table."""


def with_runs(curves: pd.DataFrame, data: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of curves with the columns of their runs. A column that both tables have is
    taken from `curves`.

    The columns of `curves` up to `seed` say which run a row belongs to.
    """
    keys = list(curves.columns[: list(curves.columns).index("seed") + 1])
    repeated = [column for column in data if column in curves and column not in keys]
    return curves.merge(data.drop(columns=repeated), on=keys, how="left")


def _table_facts(text: str) -> dict[str, Any]:
    """Return a CSV's number of lines and its digest, ignoring line endings, which version control
    may change.
    """
    text = text.replace("\r\n", "\n")
    return {"lines": text.count("\n"), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _in_words(facts: dict[str, Any]) -> str:
    return f"{facts['lines']} lines, digest {facts['sha256'][:8]}"


def summary_text(summary: str | pd.DataFrame) -> str:
    """Return a summary as the text of its file: a sentence, or a table as Markdown."""
    if isinstance(summary, str):
        return f"{summary}\n"
    rows = [[_cell(cell) for cell in row] for row in summary.itertuples(index=False)]
    return f"{table([escaped(str(name)) for name in summary.columns], rows)}\n"


def _cell(cell: object) -> str:
    if not isinstance(cell, float):
        return escaped(str(cell))
    if math.isnan(cell):
        return ""
    return short(cell)


ENDLESS = 10_000  # characters of a line in a file, instead of a screen's width


def verdict_table(*folders: Folder) -> "Styler":
    """Return the verdicts of figures as one table for a notebook, coloured."""
    tables = [folder.verdicts() for folder in folders]
    if len(folders) > 1:
        for rows, folder in zip(tables, folders, strict=True):
            rows.insert(0, "figure", folder.experiment)
    styled = pd.concat(tables, ignore_index=True).style.hide(axis="index")
    styled = styled.set_table_styles([{"selector": "th, td", "props": "text-align: left"}])
    return styled.map(
        lambda cell: f"font-weight: bold; color: {_COLORS[cell.partition(' (')[0]]}",
        subset=["verdict"],
    )


_COLORS = {"holds": GREEN, "fails": RED, "undecided": ORANGE, NOT_TESTED: "#888888"}


def print_ledger(console: Console, folders: list[Folder]) -> None:
    """Print one line per claim of the given experiments, then how many hold.

    On a screen, lines are cut to its width. In a file, they are complete.
    """
    printed = Table(box=None, pad_edge=False)
    for name in ("figure", "verdict", "claim", "measured", "needs"):
        printed.add_column(name, no_wrap=name != "claim")  # the sentences get the remaining width
    claims = []
    for folder in folders:
        claims += folder.claims()
        for row in folder.verdicts().to_dict("records"):
            number = f"{row['value']} {row['interval']}".strip()
            sentence = Text(row["sentence"], no_wrap=True, overflow="ellipsis")
            name = f"{folder.experiment} {folder.scale}"
            printed.add_row(name, row["verdict"], sentence, Text(number), row["needs"])
    if not console.is_terminal and not console.is_jupyter:
        console.width = ENDLESS
    console.print(printed)
    console.print(plain(verdict_counts(claims)), highlight=False)


def _verdict(claim: dict[str, Any]) -> str:
    """Return the verdict, and the verdict of the claim as first declared if it differs."""
    now, declared = str(claim["verdict"]), claim.get("first", claim)["verdict"]
    if declared == now:
        return now
    return f"{now} (as declared: {declared})"
