"""An experiment's folder: the picture, the CSV behind it, the claims and the manifest."""

import base64
import html
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.experiment import Experiment, MorePictures, Scale
from ihlab.claims.history import keep_replaced, read_history
from ihlab.claims.markdown import escaped, interval, measured, needed, plain, short, table, value, verdict_counts
from ihlab.files import write_json, write_text
from ihlab.plots.style import GREEN, ORANGE, RED, write_picture
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
        """Write the CSV, the claims, the summary, the pictures and, if given, the manifest.

        Claims and verdicts that this replaces are kept in the experiment's history. Smoke scale has no history.
        Raises `ConfigError` if two claims have the same id.
        """
        write_text(self.path / "data.csv", data.to_csv(index=False))
        claims = [claim.to_dict() for claim in judged(experiment.claims(data, self.scale))]
        if self.scale != "smoke" and (self.path / "claims.json").exists():
            keep_replaced(self._history, self.claims(), claims, self.scale)
        write_json(self.path / "claims.json", claims)
        write_text(self.path / "summary.md", summary_text(experiment.summary(data, self.scale)))
        if manifest is not None:
            write_json(self.path / "manifest.json", manifest)
        more = experiment.draw_more(data, self.scale) if isinstance(experiment, MorePictures) else {}
        for ending, picture in {"": experiment.draw(data, self.scale), **more}.items():
            name = "-".join(filter(None, (self.experiment, self.scale, ending)))
            write_picture(picture, self.path / f"{name}.png")

    def data(self) -> pd.DataFrame:
        """Return the stored table. Raises `ConfigError` if there is none."""
        path = self.path / "data.csv"
        if not path.exists():
            command = f"ihlab reproduce {self.experiment} --scale {self.scale}"
            raise ConfigError(f"There is no {path} to draw from; '{command}' makes it.")
        return pd.read_csv(path)

    @property
    def picture(self) -> Path:
        """The first picture, as PNG."""
        return self.path / f"{self.experiment}-{self.scale}.png"

    @property
    def pictures(self) -> list[Path]:
        """All pictures of the folder, `picture` first."""
        return sorted(self.path.glob(f"{self.picture.stem}*.png"), key=lambda path: path.stem)

    def summary(self) -> str:
        """Return the stored summary: a sentence, or a Markdown table."""
        return (self.path / "summary.md").read_text(encoding="utf-8").strip()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Show the picture and the summary in a notebook."""
        picture, tag = base64.b64encode(self.picture.read_bytes()).decode(), "pre" if "\n" in self.summary() else "p"
        image = f'<img style="max-width: 100%" src="data:image/png;base64,{picture}">'
        text = f"<{tag}>{html.escape(self.summary())}</{tag}>"
        return {"text/html": f"{image}{text}", "text/plain": self.summary()}

    def verdicts(self) -> pd.DataFrame:
        """Return the stored claims as a readable table: the sentence, its number and interval, and the verdict."""
        columns = ("sentence", "measure", "value", "interval", "needs", "seeds", "verdict")
        rows = [
            (
                claim["sentence"],
                claim.get("why", "") if (not_tested := claim["verdict"] == NOT_TESTED) else claim["measure"],
                "" if not_tested else value(claim),
                "" if not_tested else interval(claim).strip(),
                "" if not_tested else plain(needed(claim)),
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
        """Return the day on which a claim was declared, and the first commit that contains its measure and threshold.

        The commit is from `declared.json`, which maintainers fill. It is left out if the file does not list the claim,
        or lists it with another threshold, side or day.
        """
        path = self.root / self.experiment / "declared.json"
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        row = rows.get(claim.get("id")) if isinstance(rows, dict) else None
        if not row or any(row[name] != claim[name] for name in ("threshold", "right_side", "declared")):
            return str(claim["declared"])
        return f"{claim['declared']}, {row['commit']}{' with its results' if row['with_results'] else ''}"

    @property
    def _history(self) -> Path:
        return self.root / self.experiment / "history.json"


def summary_text(made: str | pd.DataFrame) -> str:
    """Return a summary as the text of its file: a sentence, or a table as Markdown."""
    if isinstance(made, str):
        return f"{made}\n"
    rows = [[_cell(cell) for cell in row] for row in made.itertuples(index=False)]
    return f"{table([escaped(str(name)) for name in made.columns], rows)}\n"


def _cell(cell: object) -> str:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else short(cell)
    return escaped(str(cell))


TITLES = {
    "figure1a": "Figure 1a: how fast is induction learned?",
    "figure1a_learned": "Figure 1a, learned positions: how fast is induction learned?",
    "figure1b": "Figure 1b: can narrow models learn induction?",
    "figure1b_learned": "Figure 1b, learned positions: can narrow models learn it?",
    "figure2": "Figure 2: where does gradient descent lead?",
    "figure4": "Figure 4: which learning rates work on text?",
    "figure7": "Figure 7: do both halves matter, and longer windows?",
    "figure8": "Figure 8: how many hops can a model follow?",
    "figure8_learned": "Figure 8, learned positions: how many hops?",
    "figure9": "Figure 9: does the shift help with 3-grams?",
    "figure10": "Figure 10: do more controls help?",
    "figure11": "Figure 11: does shifting queries help?",
    "table2": "Tables 2, 14 and 15: what is printed?",
    "table4": "Table 4: are more iGSM problems solved?",
    "table5": "Table 5: what do alpha and beta become?",
    "table15": "Table 15: does the shift help latent attention?",
    "tables6to13": "Tables 6 to 13: what is printed?",
    "attribution": "Which attribution methods see the circuit?",
    "basin_map": "Which starts lead to induction?",
    "by_position": "Is induction by position learned?",
    "checker": "Which half recalls, which checks?",
    "depo": "Depo: is the key tap what gives Canon its depth?",
    "lengths_16": "Does the shift help on longer sequences?",
    "idle_layers": "Which attention becomes idle beside convolutions?",
    "formation_laws": "How do steps grow with the length?",
    "elsewhere": "Does shifting elsewhere help?",
    "lengths": "What happens on longer sequences?",
    "many_heads": "Do more heads learn faster?",
    "mqar": "MQAR: does the shift help?",
    "parallel": "Parallel inductions: do narrow models find fewer?",
    "pairs": "Which shift gives two-token induction?",
    "packing": "Packed documents: does a leaking shift matter?",
    "period": "Is training on one period enough?",
    "proofs": "Proofs: when is a model right on every sequence?",
    "robustness": "Which settings change the speed?",
    "saved_layer": "Is the shift worth one layer?",
    "shifts": "Which token shift is fastest?",
    "flatness": "Flatness: is the loss on text flatter with the shift?",
    "fusion": "Fusion or decoupling: what makes vanilla slow?",
    "text": "Does the shift help on text?",
    "width": "Widths: is the shift faster from 32 to 256?",
    "worst_case": "Worst case: what does a sampled accuracy hide?",
    "zoo": "How fast are attention variants?",
}
"""Titles of experiments. A title is a question; one before a colon is the name by which links call it."""


def title(name: str) -> str:
    """Return an experiment's title, the heading of its page. Without one in `TITLES`, "my_study" is "My study"."""
    return TITLES.get(name, name.replace("_", " ").capitalize())


def link_text(name: str) -> str:
    """Return the part of a title by which links call the experiment: "Figure 1a"."""
    return title(name).partition(":")[0]


ENDLESS = 10_000  # columns of a line in a file
AT_THIS_SCALE = " at this scale"


def verdict_table(*folders: Folder) -> "Styler":
    """Return the verdicts of figures as one table for a notebook, coloured."""
    tables = [folder.verdicts() for folder in folders]
    if len(folders) > 1:
        for rows, folder in zip(tables, folders, strict=True):
            rows.insert(0, "figure", folder.experiment)
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
    printed = Table(box=None, pad_edge=False)
    for name in ("figure", "verdict", "claim", *(() if on_screen else ("source",)), "measured", "needs"):
        printed.add_column(name, no_wrap=name != "claim")  # the sentences get the remaining width
    for folder in folders:
        for number, claim in enumerate(folder.claims()):
            printed.add_row(*_row(folder, claim, first=number == 0, on_screen=on_screen))
    if not on_screen:
        complete = Measurement.get(console, console.options.update(width=ENDLESS), printed).maximum
        console.width = max(console.width, complete)
    console.print(printed)
    every = [claim for folder in folders for claim in folder.claims()]
    console.print(plain(verdict_counts(every)), highlight=False)


def _row(folder: Folder, claim: dict[str, Any], *, first: bool, on_screen: bool) -> list[str | Text]:
    """Return the cells of a claim. On a screen only the first claim of an experiment shows its name."""
    tested = claim["verdict"] != NOT_TESTED
    verdict = Text(_verdict(claim), _STYLES[claim["verdict"]])
    sentence = Text(claim["sentence"], no_wrap=True, overflow="ellipsis")
    needs = plain(needed(claim)) if tested else ""
    if on_screen:
        verdict = Text(verdict.plain.replace(AT_THIS_SCALE, ""), verdict.style)
        return [folder.experiment if first else "", verdict, sentence, value(claim) if tested else "", needs]
    number = f"{claim['measure']}: {plain(measured(claim))}" if tested else claim.get("why", "")
    return [f"{folder.experiment} {folder.scale}", verdict, sentence, escape(claim["source"]), escape(number), needs]


def _verdict(claim: dict[str, Any]) -> str:
    """Return the verdict, and the verdict of the claim as first declared if it differs."""
    declared = claim.get("first", claim)["verdict"]
    return claim["verdict"] + (f" (as declared: {declared})" if declared != claim["verdict"] else "")
