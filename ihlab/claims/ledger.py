"""An experiment's folder: the picture, the CSV behind it, the claims and the manifest."""

import base64
import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.experiment import Experiment, MorePictures, Scale
from ihlab.claims.history import keep_replaced, read_history
from ihlab.files import write_json, write_text
from ihlab.plots.style import GREEN, ORANGE, RED, save
from tasks.config import ConfigError

if TYPE_CHECKING:  # it needs jinja2, which notebooks have
    from pandas.io.formats.style import Styler


@dataclass(frozen=True)
class Folder:
    """`<root>/<experiment>/<scale>/`. One scale never overwrites another, and picture names contain the scale."""

    root: Path
    experiment: str
    scale: Scale

    @property
    def path(self) -> Path:
        """The folder."""
        return self.root / self.experiment / self.scale

    def publish(self, experiment: Experiment, data: pd.DataFrame, manifest: dict[str, Any] | None = None) -> None:
        """Write the CSV, the claims, the summary sentence, the pictures and, if given, the manifest.

        Claims and verdicts that this replaces are kept in the experiment's history. Smoke scale has no history.
        """
        write_text(self.path / "data.csv", data.to_csv(index=False))
        claims = [claim.to_dict() for claim in judged(experiment.claims(data, self.scale))]
        if self.scale != "smoke" and (self.path / "claims.json").exists():
            keep_replaced(self._history, self.claims(), claims, self.scale)
        write_json(self.path / "claims.json", claims)
        write_text(self.path / "summary.md", experiment.summary(data, self.scale) + "\n")
        if manifest is not None:
            write_json(self.path / "manifest.json", manifest)
        more = experiment.draw_more(data, self.scale) if isinstance(experiment, MorePictures) else {}
        for ending, picture in {"": experiment.draw(data, self.scale), **more}.items():
            save(picture, self.path / "-".join(filter(None, (self.experiment, self.scale, ending))))

    def data(self) -> pd.DataFrame:
        """Return the stored table. Raises `ConfigError` if there is none."""
        path = self.path / "data.csv"
        if not path.exists():
            command = f"ihlab reproduce {self.experiment} --scale {self.scale}"
            raise ConfigError(f"There is no {path} to draw from; '{command}' makes it.")
        return pd.read_csv(path)

    @property
    def picture(self) -> Path:
        """The picture, as SVG."""
        return self.path / f"{self.experiment}-{self.scale}.svg"

    @property
    def pictures(self) -> list[Path]:
        """All pictures of the folder, as PNG, `picture` first."""
        return sorted(self.path.glob(f"{self.experiment}-{self.scale}*.png"), key=lambda path: path.stem)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Show the picture and the sentence in a notebook."""
        sentence = (self.path / "summary.md").read_text(encoding="utf-8").strip()
        picture = base64.b64encode(self.picture.read_bytes()).decode()
        image = f'<img style="max-width: 100%" src="data:image/svg+xml;base64,{picture}">'
        return {"text/html": f"{image}<p>{html.escape(sentence)}</p>", "text/plain": sentence}

    def verdicts(self) -> pd.DataFrame:
        """Return the stored claims as a readable table: the sentence, its number and interval, and the verdict."""
        columns = ("sentence", "measure", "value", "interval", "needs", "seeds", "verdict")
        rows = [
            (
                claim["sentence"],
                claim.get("why", "") if (not_tested := claim["verdict"] == NOT_TESTED) else claim["measure"],
                "" if not_tested else _value(claim),
                "" if not_tested or claim["confidence"] == 1 else _interval(claim),
                "" if not_tested else _needed(claim),
                claim["seeds"] or "",
                _verdict(claim),
            )
            for claim in self.claims()
        ]
        return pd.DataFrame(rows, columns=list(columns))

    def claims(self) -> list[dict[str, Any]]:
        """Return the stored claims."""
        return list(json.loads((self.path / "claims.json").read_text(encoding="utf-8")))

    def history(self) -> list[dict[str, Any]]:
        """Return the published claims of this scale that were replaced since (`ihlab.claims.history`)."""
        return [row for row in read_history(self._history) if row["scale"] == self.scale]

    def declared(self, claim: dict[str, Any]) -> str:
        """Return the day on which a claim was declared, and the first commit that contains its words and threshold.

        The commit is from `declared.json`, which maintainers fill. It is left out if the file does not list the claim.
        """
        path, by = self.root / self.experiment / "declared.json", ("sentence", "threshold", "right_side", "declared")
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        found = (row for row in rows if all(row[name] == claim[name] for name in by))
        commit = (f"{row['commit']}{' with its results' if row['with_results'] else ''}" for row in found)
        return ", ".join([claim["declared"], *commit][:2])

    @property
    def _history(self) -> Path:
        return self.root / self.experiment / "history.json"


TITLES = {
    "formation": "Formation of induction heads",
    "mqar": "MQAR",
    "table2": "Tables 2, 14 and 15, as printed",
    "tables6to13": "Tables 6 to 13",
    "robustness": "Positions, heads and weight decay",
    "lengths": "Length generalisation",
    "figure8_learned": "Figure 8 with learned positions",
    "saved_layer": "The shift against one more layer",
    "shift_halves": "Keys or values alone",
    "one_more_layer": "One more layer with the shift",
    "elsewhere": "Shifting elsewhere",
    "shifts": "Token shifts compared",
    "key_offset": "Partial key offset and the key shift",
    "mixes": "A shift's gain by mix of text",
    "toy_and_text": "Toys, text and a published order",
    "order": "Bigrams or induction first?",
    "critical_period": "A critical period",
    "period": "Sequences of period 2",
    "checker": "Meta-learner and checker",
    "initial_state": "The state before training",
    "pairs": "Induction by two tokens",
    "by_position": "Induction by position",
    "zoo": "Attention variants",
    "text": "Real text",
}
"""Titles of experiments that cannot be derived from the name."""


def title(name: str) -> str:
    """Return an experiment's title: "figure1a" is "Figure 1a", "basin_map" is "Basin map"."""
    return TITLES.get(name) or re.sub(r"(?<=[a-z])(?=\d)", " ", name.replace("_", " "), count=1).capitalize()


GAP = 2  # between two columns of a rich table
AT_THIS_SCALE = " at this scale"


def verdict_table(*folders: Folder) -> "Styler":
    """Return the verdicts of figures as one table for a notebook, coloured."""
    tables = [folder.verdicts() for folder in folders]
    if len(folders) > 1:
        for table, folder in zip(tables, folders, strict=True):
            table.insert(0, "figure", folder.experiment)
    styled = pd.concat(tables, ignore_index=True).style.hide(axis="index")
    styled = styled.set_table_styles([{"selector": "th, td", "props": "text-align: left"}])
    return styled.map(lambda cell: f"font-weight: bold; color: {_COLORS[cell.partition(' (')[0]]}", subset=["verdict"])


_COLORS = {"holds": GREEN, "fails": RED, "undecided": ORANGE, NOT_TESTED: "#888888"}
_STYLES = {"holds": "green", "fails": "bold red", "undecided": "yellow", NOT_TESTED: "dim"}


def print_ledger(console: Console, folders: list[Folder]) -> None:
    """Print one line per claim of the given experiments, then how many hold.

    On a screen, lines are cut to its width and have only the number and its threshold. In a file, they are complete.
    """
    on_screen = console.is_terminal or console.is_jupyter
    columns = ("figure", "verdict", "claim", *(("measured", "needs") if on_screen else ("source", "measured", "needs")))
    rows = [
        _row(folder, claim, first=number == 0, on_screen=on_screen)
        for folder in folders
        for number, claim in enumerate(folder.claims())
    ]
    widths = [
        max(cell_len(Text.from_markup(cell).plain) for cell in cells) for cells in zip(columns, *rows, strict=True)
    ]
    if on_screen:  # the sentences get the remaining width
        widths[2] = max(20, console.width - (sum(widths) - widths[2]) - GAP * (len(columns) - 1))
    else:
        console.width = max(console.width, sum(widths) + GAP * (len(columns) - 1))
    table = Table(box=None, pad_edge=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, no_wrap=True, width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(tally(folders), highlight=False)


def tally(folders: Sequence[Folder]) -> str:
    """Return the number of claims with each verdict, as markup: "7 claims: 5 hold, 2 fail."."""
    counts = Counter(claim["verdict"] for folder in folders for claim in folder.claims())
    told = [
        f"[{style}]{counts[verdict]} {verdict.removesuffix('s')}[/]"
        for verdict, style in _STYLES.items()
        if counts[verdict]
    ]
    return f"{counts.total()} claims: {', '.join(told)}."


def _row(folder: Folder, claim: dict[str, Any], *, first: bool, on_screen: bool) -> list[str]:
    """Return the cells of a claim, as markup. On a screen only the first claim of an experiment shows its name."""
    verdict = claim["verdict"]
    tested = verdict != NOT_TESTED
    styled, sentence = f"[{_STYLES[verdict]}]{_verdict(claim)}[/]", escape(claim["sentence"])
    needed = _needed(claim) if tested else ""
    if on_screen:
        name, styled = folder.experiment if first else "", styled.replace(AT_THIS_SCALE, "")
        return [name, styled, sentence, _value(claim) if tested else "", needed]
    measured = escape(_measured(claim) if tested else claim.get("why", ""))
    return [f"{folder.experiment} {folder.scale}", styled, sentence, escape(claim["source"]), measured, needed]


def _verdict(claim: dict[str, Any]) -> str:
    """Return the verdict, and the verdict of the claim as first declared if it differs."""
    declared = claim.get("first", claim)["verdict"]
    return claim["verdict"] + (f" (as declared: {declared})" if declared != claim["verdict"] else "")


def _value(claim: dict[str, Any]) -> str:
    return "nothing" if claim["value"] is None else number(claim["value"])


def _interval(claim: dict[str, Any]) -> str:
    low, high = (number(x) for x in claim["interval"])
    return f"[{low}, {high}]"


def _measured(claim: dict[str, Any]) -> str:
    interval = "counted" if claim["confidence"] == 1 else f"{_interval(claim)} {claim['confidence']:.0%}"
    seeds = f", {claim['seeds']} seeds" if claim["seeds"] else ""
    p = "" if claim["p_holm"] is None else f", p = {claim['p_holm']:.2g}"
    return f"{claim['measure']}: {_value(claim)} {interval}{seeds}{p}"


def _needed(claim: dict[str, Any]) -> str:
    return f"{'>' if claim['right_side'] == 'above' else '<'} {number(claim['threshold'])}"


def number(x: float | None) -> str:
    """Format with three significant digits, without an exponent below a million. None is an unbounded end."""
    return "unbounded" if x is None else f"{float(f'{x:.3g}') + 0.0:g}"
